use core::fmt;

use crate::header::PacketType;
use crate::property::properties;
use crate::reason::DisconnectReason;
use crate::repeated::UserProperties;
use crate::rule::{self, Fault};
use crate::string::Utf8;
use crate::version::Role;
use crate::walk::{ControlPacket, Layout, Walk};

/// DISCONNECT: the last packet of a connection (section 3.14).
///
/// Before MQTT 5 only clients send the packet, and only for a normal end. Any other reason is refused there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Disconnect<'a> {
    /// The reason for the end of the connection.
    pub reason: DisconnectReason,
    /// Details about the reason; MQTT 5 only.
    pub properties: DisconnectProperties<'a>,
}

properties! {
    /// The properties of DISCONNECT (section 3.14.2.2).
    pub struct DisconnectProperties<'a> {
        /// Seconds for which the session outlives the connection, in place of the value in CONNECT. Only from
        /// clients \[MQTT-3.14.2-2\].
        SessionExpiryInterval => session_expiry_interval_secs: Option<u32>,
        /// A text that helps people to find the cause.
        ReasonString => reason_string: Option<Utf8<'a>>,
        /// Another server that the client can use. Only from servers.
        ServerReference => server_reference: Option<Utf8<'a>>,
        /// Pairs of name and value, in order. The application defines their meaning.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> Disconnect<'a> {
    /// Makes a DISCONNECT without properties.
    pub const fn new(reason: DisconnectReason) -> Self {
        Self { reason, properties: DisconnectProperties::EMPTY }
    }
}

impl DisconnectReason {
    /// The end that sends this reason, if only one of the two does.
    const fn only_from(self) -> Option<Role> {
        match self {
            Self::DisconnectWithWillMessage => Some(Role::Client),
            Self::NotAuthorized
            | Self::ServerBusy
            | Self::ServerShuttingDown
            | Self::KeepAliveTimeout
            | Self::SessionTakenOver
            | Self::TopicFilterInvalid
            | Self::RetainNotSupported
            | Self::QosNotSupported
            | Self::UseAnotherServer
            | Self::ServerMoved
            | Self::SharedSubscriptionsNotSupported
            | Self::ConnectionRateExceeded
            | Self::MaximumConnectTime
            | Self::SubscriptionIdentifiersNotSupported
            | Self::WildcardSubscriptionsNotSupported => Some(Role::Server),
            _ => None,
        }
    }
}

impl<'a> ControlPacket<'a> for Disconnect<'a> {
    const TYPE: PacketType = PacketType::Disconnect;
}

impl<'a> Layout<'a> for Disconnect<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let before_5 = !walk.version().is_5();
        let reason = walk.tail(
            &rule::DISCONNECT_REASON,
            |packet| {
                packet.reason == DisconnectReason::NormalDisconnection
                    && (before_5 || packet.properties.is_empty())
            },
            |packet| packet.reason,
        )?;
        walk.check(!before_5 || reason.code() == 0, &rule::DISCONNECT_REASON)?;
        let properties =
            walk.tail_properties(|packet| packet.properties.is_empty(), |packet| &packet.properties)?;
        match walk.sender() {
            Some(Role::Client) => {
                let is_ours = reason.only_from() != Some(Role::Server);
                walk.check(is_ours, &rule::DISCONNECT_REASON_OF_SERVER)?;
                walk.check(properties.server_reference.is_none(), &rule::SERVER_REFERENCE_FROM_CLIENT)?;
            }
            Some(Role::Server) => {
                let is_ours = reason.only_from() != Some(Role::Client);
                walk.check(is_ours, &rule::DISCONNECT_REASON_OF_CLIENT)?;
                walk.check(
                    properties.session_expiry_interval_secs.is_none(),
                    &rule::SESSION_EXPIRY_FROM_SERVER,
                )?;
            }
            None => {}
        }
        Ok(walk.build(|| Self { reason, properties }))
    }
}

impl fmt::Display for Disconnect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DISCONNECT {}{}", self.reason, self.properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EncodeError, Version};

    #[test]
    fn before_5_all_is_well_or_nothing_is_sent() {
        let packet = Disconnect::new(DisconnectReason::DisconnectWithWillMessage);
        assert!(matches!(packet.encoded_len(Version::V3_1_1), Err(EncodeError::Forbidden(_))));
        assert_eq!(packet.encoded_len(Version::V5), Ok(3));
        assert_eq!(Disconnect::default().encoded_len(Version::V3_1_1), Ok(2));
    }
}
