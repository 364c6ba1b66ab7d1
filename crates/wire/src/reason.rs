use core::fmt;

use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;
use crate::version::Version;
use crate::walk::Field;

macro_rules! reason_codes {
    ($($code:literal $name:ident $text:literal)*) => {
        /// Reason code (section 2.4): the result of an operation in one byte. Codes from 0x80 on are errors.
        ///
        /// Three names share 0x00. The other two are [`NORMAL_DISCONNECTION`](Self::NORMAL_DISCONNECTION) and
        /// [`GRANTED_QOS_0`](Self::GRANTED_QOS_0). The types further down, such as [`PubAckReason`], list the codes
        /// that each packet may carry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReasonCode {
            $(#[doc = concat!("`", stringify!($code), "` ", $text)] $name = $code,)*
        }

        impl ReasonCode {
            /// Every reason code of MQTT 5, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the reason code with this number, if the standard has one.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name of the code in the standard.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reason_codes! {
    0x00 Success "Success"
    0x01 GrantedQos1 "Granted QoS 1"
    0x02 GrantedQos2 "Granted QoS 2"
    0x04 DisconnectWithWillMessage "Disconnect with Will Message"
    0x10 NoMatchingSubscribers "No matching subscribers"
    0x11 NoSubscriptionExisted "No subscription existed"
    0x18 ContinueAuthentication "Continue authentication"
    0x19 ReAuthenticate "Re-authenticate"
    0x80 UnspecifiedError "Unspecified error"
    0x81 MalformedPacket "Malformed Packet"
    0x82 ProtocolError "Protocol Error"
    0x83 ImplementationSpecificError "Implementation specific error"
    0x84 UnsupportedProtocolVersion "Unsupported Protocol Version"
    0x85 ClientIdentifierNotValid "Client Identifier not valid"
    0x86 BadUserNameOrPassword "Bad User Name or Password"
    0x87 NotAuthorized "Not authorized"
    0x88 ServerUnavailable "Server unavailable"
    0x89 ServerBusy "Server busy"
    0x8A Banned "Banned"
    0x8B ServerShuttingDown "Server shutting down"
    0x8C BadAuthenticationMethod "Bad authentication method"
    0x8D KeepAliveTimeout "Keep Alive timeout"
    0x8E SessionTakenOver "Session taken over"
    0x8F TopicFilterInvalid "Topic Filter invalid"
    0x90 TopicNameInvalid "Topic Name invalid"
    0x91 PacketIdentifierInUse "Packet Identifier in use"
    0x92 PacketIdentifierNotFound "Packet Identifier not found"
    0x93 ReceiveMaximumExceeded "Receive Maximum exceeded"
    0x94 TopicAliasInvalid "Topic Alias invalid"
    0x95 PacketTooLarge "Packet too large"
    0x96 MessageRateTooHigh "Message rate too high"
    0x97 QuotaExceeded "Quota exceeded"
    0x98 AdministrativeAction "Administrative action"
    0x99 PayloadFormatInvalid "Payload format invalid"
    0x9A RetainNotSupported "Retain not supported"
    0x9B QosNotSupported "QoS not supported"
    0x9C UseAnotherServer "Use another server"
    0x9D ServerMoved "Server moved"
    0x9E SharedSubscriptionsNotSupported "Shared Subscriptions not supported"
    0x9F ConnectionRateExceeded "Connection rate exceeded"
    0xA0 MaximumConnectTime "Maximum connect time"
    0xA1 SubscriptionIdentifiersNotSupported "Subscription Identifiers not supported"
    0xA2 WildcardSubscriptionsNotSupported "Wildcard Subscriptions not supported"
}

impl ReasonCode {
    /// The name of 0x00 in DISCONNECT.
    pub const NORMAL_DISCONNECTION: Self = Self::Success;
    /// The name of 0x00 in SUBACK.
    pub const GRANTED_QOS_0: Self = Self::Success;

    /// The code as a byte on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether the operation failed, which all codes from 0x80 on say.
    pub const fn is_error(self) -> bool {
        self.code() >= 0x80
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error of a conversion: this packet may not carry the reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlisted(pub ReasonCode);

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reason code 0x{:02X} ({}) does not belong in this packet", self.0.code(), self.0)
    }
}

impl core::error::Error for Unlisted {}

/// Declares the reason codes that one kind of packet may carry. `= Code` and a text follow a name that only this
/// packet uses for a code.
macro_rules! listed {
    ($(#[$doc:meta])* $list:ident { $($name:ident $(= $code:ident $text:literal)?),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $list {
            $(#[doc = concat!("[`ReasonCode::", listed!(@code_text $name $($code)?), "`]")]
            $name = listed!(@code $name $($code)?).code(),)*
        }

        impl $list {
            /// Every code of the list, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the code of the list with this number.
            pub const fn from_code(code: u8) -> Option<Self> {
                $(if code == Self::$name.code() { return Some(Self::$name); })*
                None
            }

            /// The same code as a [`ReasonCode`], under its general name.
            pub const fn reason(self) -> ReasonCode {
                match self {
                    $(Self::$name => listed!(@code $name $($code)?),)*
                }
            }

            /// The code as a byte on the wire.
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// Whether the operation failed, which all codes from 0x80 on say.
            pub const fn is_error(self) -> bool {
                self.code() >= 0x80
            }
        }

        impl fmt::Display for $list {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$name => listed!(@text $name $($code $text)?),)*
                })
            }
        }

        impl From<$list> for ReasonCode {
            fn from(listed: $list) -> Self {
                listed.reason()
            }
        }

        impl TryFrom<ReasonCode> for $list {
            type Error = Unlisted;

            fn try_from(reason: ReasonCode) -> Result<Self, Unlisted> {
                Self::from_code(reason.code()).ok_or(Unlisted(reason))
            }
        }
    };
    (@code $name:ident) => { ReasonCode::$name };
    (@code $name:ident $code:ident) => { ReasonCode::$code };
    (@code_text $name:ident) => { stringify!($name) };
    (@code_text $name:ident $code:ident) => { stringify!($code) };
    (@text $name:ident) => { ReasonCode::$name.as_str() };
    (@text $name:ident $code:ident $text:literal) => { $text };
}

/// Implements [`Field`] for lists of reasons. The default is code 0x00, which a packet may leave out.
macro_rules! plain_field {
    ($($list:ident::$default:ident, unlisted: $rule:ident;)*) => {$(
        impl Default for $list {
            fn default() -> Self {
                Self::$default
            }
        }

        impl<'a> Field<'a> for $list {
            fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
                Self::from_code(from.u8()?).ok_or(&rule::$rule)
            }

            fn write<S: Sink + ?Sized>(&self, _: Version, sink: &mut S) -> Result<(), Fault> {
                sink.put_byte(self.code());
                Ok(())
            }
        }
    )*};
}

listed! {
    /// Reasons to refuse a connection: the errors of CONNACK (section 3.2.2.2).
    ConnectRefusal {
        UnspecifiedError, MalformedPacket, ProtocolError, ImplementationSpecificError,
        UnsupportedProtocolVersion, ClientIdentifierNotValid, BadUserNameOrPassword, NotAuthorized,
        ServerUnavailable, ServerBusy, Banned, BadAuthenticationMethod, TopicNameInvalid, PacketTooLarge,
        QuotaExceeded, PayloadFormatInvalid, RetainNotSupported, QosNotSupported, UseAnotherServer,
        ServerMoved, ConnectionRateExceeded,
    }
}

listed! {
    /// The reasons of PUBACK and PUBREC (sections 3.4.2.1 and 3.5.2.1).
    PubAckReason {
        Success, NoMatchingSubscribers, UnspecifiedError, ImplementationSpecificError, NotAuthorized,
        TopicNameInvalid, PacketIdentifierInUse, QuotaExceeded, PayloadFormatInvalid,
    }
}

listed! {
    /// The reasons of PUBREL and PUBCOMP (sections 3.6.2.1 and 3.7.2.1).
    PubRelReason { Success, PacketIdentifierNotFound }
}

listed! {
    /// The answer to one subscription in SUBACK (section 3.9.3).
    SubAckReason {
        GrantedQos0 = Success "Granted QoS 0", GrantedQos1, GrantedQos2, UnspecifiedError,
        ImplementationSpecificError, NotAuthorized, TopicFilterInvalid, PacketIdentifierInUse, QuotaExceeded,
        SharedSubscriptionsNotSupported, SubscriptionIdentifiersNotSupported,
        WildcardSubscriptionsNotSupported,
    }
}

listed! {
    /// The answer to one filter in UNSUBACK (section 3.11.3).
    UnsubAckReason {
        Success, NoSubscriptionExisted, UnspecifiedError, ImplementationSpecificError, NotAuthorized,
        TopicFilterInvalid, PacketIdentifierInUse,
    }
}

listed! {
    /// The reasons of DISCONNECT (sections 2.4 and 3.14.2.1).
    DisconnectReason {
        NormalDisconnection = Success "Normal disconnection", DisconnectWithWillMessage, UnspecifiedError,
        MalformedPacket, ProtocolError, ImplementationSpecificError, NotAuthorized, ServerBusy,
        ServerShuttingDown, BadAuthenticationMethod, KeepAliveTimeout, SessionTakenOver, TopicFilterInvalid,
        TopicNameInvalid, ReceiveMaximumExceeded, TopicAliasInvalid, PacketTooLarge, MessageRateTooHigh,
        QuotaExceeded, AdministrativeAction, PayloadFormatInvalid, RetainNotSupported, QosNotSupported,
        UseAnotherServer, ServerMoved, SharedSubscriptionsNotSupported, ConnectionRateExceeded,
        MaximumConnectTime, SubscriptionIdentifiersNotSupported, WildcardSubscriptionsNotSupported,
    }
}

listed! {
    /// The reasons of AUTH (section 3.15.2.1).
    AuthReason { Success, ContinueAuthentication, ReAuthenticate }
}

plain_field! {
    PubAckReason::Success, unlisted: PUBACK_REASON;
    PubRelReason::Success, unlisted: PUBREL_REASON;
    UnsubAckReason::Success, unlisted: UNSUBACK_REASON;
    DisconnectReason::NormalDisconnection, unlisted: DISCONNECT_REASON;
    AuthReason::Success, unlisted: AUTH_REASON;
}

impl ConnectRefusal {
    /// The Connect Return code of MQTT 3.1 and 3.1.1 (section 3.2.2.3 there) with the same meaning, from 1 to 5.
    ///
    /// `None` if no return code has this meaning. A server then closes the connection without CONNACK.
    pub const fn return_code(self) -> Option<u8> {
        match self {
            Self::UnsupportedProtocolVersion => Some(1),
            Self::ClientIdentifierNotValid => Some(2),
            Self::ServerUnavailable
            | Self::ServerBusy
            | Self::QuotaExceeded
            | Self::ConnectionRateExceeded => Some(3),
            Self::BadUserNameOrPassword => Some(4),
            Self::NotAuthorized | Self::Banned | Self::BadAuthenticationMethod => Some(5),
            _ => None,
        }
    }

    /// Returns the reason for a Connect Return code of MQTT 3.1 and 3.1.1, which is from 1 to 5.
    pub const fn from_return_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::UnsupportedProtocolVersion),
            2 => Some(Self::ClientIdentifierNotValid),
            3 => Some(Self::ServerUnavailable),
            4 => Some(Self::BadUserNameOrPassword),
            5 => Some(Self::NotAuthorized),
            _ => None,
        }
    }

    /// Reads one byte: the reason code in MQTT 5, the return code before.
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, Fault> {
        let code = from.u8()?;
        let refusal = if from.version.is_5() { Self::from_code(code) } else { Self::from_return_code(code) };
        refusal.ok_or(&rule::CONNACK_REASON)
    }

    pub(crate) fn wire_code(self, version: Version) -> Result<u8, Fault> {
        if version.is_5() {
            return Ok(self.code());
        }
        self.return_code().ok_or(&rule::CONNACK_REASON)
    }
}

impl SubAckReason {
    /// Returns the answer that grants this QoS.
    pub const fn granted(qos: crate::Qos) -> Self {
        match qos {
            crate::Qos::AtMostOnce => Self::GrantedQos0,
            crate::Qos::AtLeastOnce => Self::GrantedQos1,
            crate::Qos::ExactlyOnce => Self::GrantedQos2,
        }
    }

    /// The byte for this reason in `version`. MQTT 3.1.1 has one failure code; MQTT 3.1 has none, and the result is
    /// `None`.
    fn wire_code(self, version: Version) -> Option<u8> {
        match version {
            Version::V5 => Some(self.code()),
            _ if !self.is_error() => Some(self.code()),
            Version::V3_1_1 => Some(Self::UnspecifiedError.code()),
            Version::V3_1 => None,
        }
    }
}

impl<'a> Field<'a> for SubAckReason {
    fn read(from: &mut Reader<'a>) -> Result<Self, Fault> {
        let reason = Self::from_code(from.u8()?);
        reason
            .filter(|reason| reason.wire_code(from.version) == Some(reason.code()))
            .ok_or(&rule::SUBACK_REASON)
    }

    fn write<S: Sink + ?Sized>(&self, version: Version, sink: &mut S) -> Result<(), Fault> {
        let code = self.wire_code(version).ok_or(&rule::SUBACK_REASON)?;
        sink.put_byte(code);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_code_is_what_it_was_made_from() {
        for code in 0..=u8::MAX {
            assert!(ReasonCode::from_code(code).is_none_or(|reason| reason.code() == code));
        }
        assert_eq!(ReasonCode::ALL.len(), 43);
        assert!(ReasonCode::ALL.iter().all(|reason| reason.is_error() == (reason.code() >= 0x80)));
    }

    #[test]
    fn code_0_has_the_name_of_its_packet() {
        assert_eq!(ReasonCode::NORMAL_DISCONNECTION.to_string(), "Success");
        assert_eq!(DisconnectReason::NormalDisconnection.to_string(), "Normal disconnection");
        assert_eq!(SubAckReason::GrantedQos0.to_string(), "Granted QoS 0");
    }

    #[test]
    fn return_codes_of_3_x_have_a_reason() {
        for code in 1..=5 {
            let reason = ConnectRefusal::from_return_code(code).unwrap();
            assert_eq!(reason.return_code(), Some(code));
        }
        assert_eq!(ConnectRefusal::from_return_code(6), None);
        assert_eq!(ConnectRefusal::QuotaExceeded.return_code(), Some(3));
        assert_eq!(ConnectRefusal::TopicNameInvalid.return_code(), None);
    }
}
