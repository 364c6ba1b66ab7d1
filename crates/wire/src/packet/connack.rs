use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};

use crate::header::PacketType;
use crate::number::MaximumQos;
use crate::property::properties;
use crate::read::Reader;
use crate::reason::ConnectRefusal;
use crate::repeated::UserProperties;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::string::{Binary, Utf8};
use crate::trace::Flag;
use crate::version::Version;
use crate::walk::{ControlPacket, Field, Layout, Walk};

/// CONNACK: the answer to CONNECT (section 3.2).
///
/// Before MQTT 5 a refusal is one of five return codes. A reason for which [`ConnectRefusal::return_code`] is
/// `None` is refused there. MQTT 3.1 has no Session Present, and the flag is not written there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnAck<'a> {
    /// Whether the connection is accepted, and if not, why.
    pub outcome: Connected,
    /// The settings of the server; MQTT 5 only.
    pub properties: ConnAckProperties<'a>,
}

/// Result of a CONNECT. A refusal never has a session \[MQTT-3.2.2-6\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connected {
    /// The connection is accepted: return code or reason code 0.
    Accepted {
        /// Whether the server continues a stored session.
        session_present: bool,
    },
    /// The connection is refused. The server closes it after CONNACK.
    Refused(ConnectRefusal),
}

properties! {
    /// The properties of CONNACK (section 3.2.2.3). Each text gives the meaning of `None` as "absent".
    pub struct ConnAckProperties<'a> {
        /// Seconds for which the session outlives the connection; absent: the value in CONNECT.
        SessionExpiryInterval => session_expiry_interval_secs: Option<u32>,
        /// Maximum number of QoS 1 and 2 messages that the server accepts without having acknowledged them; absent:
        /// 65,535.
        ReceiveMaximum => receive_maximum: Option<NonZeroU16>,
        /// The highest QoS that the server accepts; absent: 2.
        MaximumQos => maximum_qos: Option<MaximumQos>,
        /// Whether the server stores retained messages; absent: yes.
        RetainAvailable => retain_available: Option<bool>,
        /// Maximum length of packets that the server accepts, in bytes; absent: no limit beside the protocol's.
        MaximumPacketSize => maximum_packet_bytes: Option<NonZeroU32>,
        /// The identifier that the server assigned to a client without one.
        AssignedClientIdentifier => assigned_client_identifier: Option<Utf8<'a>>,
        /// The highest topic alias that the server accepts; absent: 0, no alias.
        TopicAliasMaximum => topic_alias_maximum: Option<u16>,
        /// A text that helps people to find the cause.
        ReasonString => reason_string: Option<Utf8<'a>>,
        /// Whether filters may have wildcards; absent: yes.
        WildcardSubscriptionAvailable => wildcard_subscription_available: Option<bool>,
        /// Whether subscriptions may have identifiers; absent: yes.
        SubscriptionIdentifierAvailable => subscription_identifier_available: Option<bool>,
        /// Whether subscriptions may be shared; absent: yes.
        SharedSubscriptionAvailable => shared_subscription_available: Option<bool>,
        /// Seconds of keep alive that the server demands; absent: the value in CONNECT.
        ServerKeepAlive => server_keep_alive_secs: Option<u16>,
        /// Basis for response topics, if the client asked for it.
        ResponseInformation => response_information: Option<Utf8<'a>>,
        /// Another server that the client can use.
        ServerReference => server_reference: Option<Utf8<'a>>,
        /// The authentication method, as in CONNECT.
        AuthenticationMethod => authentication_method: Option<Utf8<'a>>,
        /// The data of the last step, whose format the method defines. Requires a method.
        AuthenticationData => authentication_data: Option<Binary<'a>>,
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> ConnAck<'a> {
    /// Makes a CONNACK that accepts the connection, without properties.
    pub const fn accepted(session_present: bool) -> Self {
        Self { outcome: Connected::Accepted { session_present }, properties: ConnAckProperties::EMPTY }
    }

    /// Makes a CONNACK that refuses the connection, without properties.
    pub const fn refused(reason: ConnectRefusal) -> Self {
        Self { outcome: Connected::Refused(reason), properties: ConnAckProperties::EMPTY }
    }
}

/// Two bytes: acknowledge flags, and reason code or return code.
impl<'a> Field<'a> for Connected {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let flags = from.u8()?;
        // MQTT 3.1 has no flags here, and does not use the byte.
        let session_present = flags == 1 && from.version != Version::V3_1;
        if flags > 1 && from.version != Version::V3_1 {
            return Err(&rule::CONNACK_FLAGS);
        }
        if from.rest.first() == Some(&0) {
            from.u8()?;
            return Ok(Self::Accepted { session_present });
        }
        let refusal = ConnectRefusal::read(from)?;
        if session_present {
            return Err(&rule::SESSION_PRESENT_IN_REFUSAL);
        }
        Ok(Self::Refused(refusal))
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        let bytes = match *self {
            Self::Accepted { session_present } => [u8::from(session_present && version != Version::V3_1), 0],
            Self::Refused(refusal) => [0, refusal.wire_code(version)?],
        };
        sink.put(&bytes);
        Ok(())
    }
}

impl<'a> ControlPacket<'a> for ConnAck<'a> {
    const TYPE: PacketType = PacketType::ConnAck;
}

impl<'a> Layout<'a> for ConnAck<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let outcome = walk.field(|packet| packet.outcome)?;
        let properties = walk.properties(|packet| &packet.properties)?;
        let has_method = properties.authentication_method.is_some();
        walk.check(has_method || properties.authentication_data.is_none(), &rule::DATA_WITHOUT_METHOD)?;
        Ok(walk.build(|| Self { outcome, properties }))
    }
}

impl fmt::Display for ConnAck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Connected::Accepted { session_present } => {
                write!(f, "CONNACK Success{}", Flag(session_present, "session-present"))?;
            }
            Connected::Refused(reason) => write!(f, "CONNACK {reason}")?,
        }
        self.properties.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::EncodeError;

    #[test]
    fn a_refusal_that_3_x_cannot_say_is_not_written() {
        let mut bytes = Vec::new();
        let error = ConnAck::refused(ConnectRefusal::TopicNameInvalid).encode(Version::V3_1_1, &mut bytes);
        let Err(EncodeError::Forbidden(forbidden)) = error else { panic!("{error:?}") };
        assert_eq!(forbidden.statement(), "MQTT-4.8.0-1");
        assert_eq!(forbidden.text(), "a code that CONNACK does not have");
        assert!(bytes.is_empty());
    }

    #[test]
    fn session_present_is_not_for_3_1() {
        let mut bytes = Vec::new();
        for version in Version::ALL {
            ConnAck::accepted(true).encode(version, &mut bytes).unwrap();
        }
        assert_eq!(bytes, b"\x20\x02\0\0\x20\x02\x01\0\x20\x03\x01\0\0");
    }

    #[test]
    fn properties_that_a_version_does_not_write_are_not_refused() {
        let authentication_data = Binary::new(b"x").ok();
        let properties = ConnAckProperties { authentication_data, ..ConnAckProperties::EMPTY };
        let packet = ConnAck { properties, ..ConnAck::accepted(false) };
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
        assert!(packet.encoded_len(Version::V5).is_err());
    }
}
