//! Applications can name each type in the signatures of the client, with this crate as their only dependency.

use pondhawk_client::{
    Acknowledge, AuthenticateError, BinaryTooLong, ConnectError, ConnectRefusal, DisconnectError,
    DisconnectReason, EncodeError, Ended, FilterError, Message, OptionsError, PubAckReason, PublishError,
    ReasonCode, RequestError, RequesterError, SubscribeError, TimedOut, TopicError, TopicFilter, TopicName,
    UnsubscribeError, Utf8Error, Violation, protocol,
};

/// Fields of errors, arguments and results, each with the type that an application has to name.
#[test]
fn types_in_signatures_can_be_named() {
    let _: fn(Message, PubAckReason) = Message::refuse;
    let _: fn(ConnectRefusal) -> Ended = Ended::Refused;
    let _: fn(TimedOut) -> Ended = Ended::TimedOut;
    let _: fn(Violation) -> Ended = Ended::Violation;
    let _: fn(OptionsError) -> ConnectError = ConnectError::Options;
    let _: fn(Utf8Error) -> OptionsError = OptionsError::ClientId;
    let _: fn(protocol::ConnectError) -> ConnectError = ConnectError::Protocol;
    let _: fn(protocol::PublishError) -> PublishError = PublishError::Protocol;
    let _: fn(protocol::RequestError) -> SubscribeError = SubscribeError::Protocol;
    let _: fn(protocol::RequestError) -> UnsubscribeError = UnsubscribeError::Protocol;
    let _: fn(protocol::RequestError) -> AuthenticateError = AuthenticateError::Protocol;
    let _: fn(protocol::DisconnectError) -> DisconnectError = DisconnectError::Protocol;
    let _: fn(EncodeError) -> protocol::PublishError = protocol::PublishError::Packet;
    let _: fn(FilterError) -> RequesterError = RequesterError::Filter;
    let _: fn(PublishError) -> RequestError = RequestError::Publish;
    let _: Result<TopicName<'_>, TopicError> = TopicName::new("a");
    let _: Result<TopicFilter<'_>, FilterError> = TopicFilter::new("a");
    let _: Result<pondhawk_client::Binary<'_>, BinaryTooLong> = pondhawk_client::Binary::new(b"");
    let _: (Acknowledge, ReasonCode, DisconnectReason) =
        (Acknowledge::AtOnce, ReasonCode::Success, DisconnectReason::NormalDisconnection);
}
