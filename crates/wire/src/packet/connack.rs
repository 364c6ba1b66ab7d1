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
/// Before MQTT 5 a refusal is one of five return codes: another reason is refused, unless
/// [`ConnectRefusal::return_code`] knows which of them says the same. MQTT 3.1 has no Session Present: it is not
/// written there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnAck<'a> {
    /// Accepted or refused.
    pub outcome: Connected,
    /// What the server offers; MQTT 5 only.
    pub properties: ConnAckProperties<'a>,
}

/// What became of a CONNECT. A refusal has no session \[MQTT-3.2.2-6\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connected {
    /// Return code and reason code 0.
    Accepted {
        /// Whether the server goes on with a session that it has kept.
        session_present: bool,
    },
    /// Refused, and closed behind it.
    Refused(ConnectRefusal),
}

properties! {
    /// The properties of CONNACK (section 3.2.2.3). `None` is what the text says of absence.
    pub struct ConnAckProperties<'a> {
        /// Seconds for which the session outlives the connection; absent: as asked for.
        SessionExpiryInterval => session_expiry_interval_secs: Option<u32>,
        /// How many QoS 1 and 2 messages the server takes at a time; absent: 65,535.
        ReceiveMaximum => receive_maximum: Option<NonZeroU16>,
        /// The highest QoS that the server takes; absent: 2.
        MaximumQos => maximum_qos: Option<MaximumQos>,
        /// Whether the server keeps retained messages; absent: yes.
        RetainAvailable => retain_available: Option<bool>,
        /// The longest packet that the server takes, in bytes; absent: no limit of its own.
        MaximumPacketSize => maximum_packet_bytes: Option<NonZeroU32>,
        /// The identifier that the server gave a client without one.
        AssignedClientIdentifier => assigned_client_identifier: Option<Utf8<'a>>,
        /// The highest topic alias that the server takes; absent: 0, none.
        TopicAliasMaximum => topic_alias_maximum: Option<u16>,
        /// For people who look for the cause.
        ReasonString => reason_string: Option<Utf8<'a>>,
        /// Whether filters may have wildcards; absent: yes.
        WildcardSubscriptionAvailable => wildcard_subscription_available: Option<bool>,
        /// Whether subscriptions may have identifiers; absent: yes.
        SubscriptionIdentifierAvailable => subscription_identifier_available: Option<bool>,
        /// Whether subscriptions may be shared; absent: yes.
        SharedSubscriptionAvailable => shared_subscription_available: Option<bool>,
        /// Seconds of keep alive that the server demands; absent: as asked for.
        ServerKeepAlive => server_keep_alive_secs: Option<u16>,
        /// The root of the topics for answers, if the client asked for it.
        ResponseInformation => response_information: Option<Utf8<'a>>,
        /// Another server to use.
        ServerReference => server_reference: Option<Utf8<'a>>,
        /// The method that the client asked for.
        AuthenticationMethod => authentication_method: Option<Utf8<'a>>,
        /// What the method makes of the last step; never without a method.
        AuthenticationData => authentication_data: Option<Binary<'a>>,
        /// Anything else, in order.
        UserProperty => user_properties: UserProperties<'a>,
    }
}

impl<'a> ConnAck<'a> {
    /// Accepts, without properties.
    pub const fn accepted(session_present: bool) -> Self {
        Self { outcome: Connected::Accepted { session_present }, properties: ConnAckProperties::EMPTY }
    }

    /// Refuses, without properties.
    pub const fn refused(reason: ConnectRefusal) -> Self {
        Self { outcome: Connected::Refused(reason), properties: ConnAckProperties::EMPTY }
    }
}

/// Two bytes: acknowledge flags, and reason or return code.
impl<'a> Field<'a> for Connected {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let flags = from.u8()?;
        // MQTT 3.1 has no flags here, and says that the byte is not used.
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
    fn what_a_version_does_not_write_it_does_not_refuse() {
        let authentication_data = Binary::new(b"x").ok();
        let properties = ConnAckProperties { authentication_data, ..ConnAckProperties::EMPTY };
        let packet = ConnAck { properties, ..ConnAck::accepted(false) };
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
        assert!(packet.encoded_len(Version::V5).is_err());
    }
}
