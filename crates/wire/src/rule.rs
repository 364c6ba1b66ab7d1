//! Every rule that this crate enforces, with reason code, normative statements and a short text.

use core::fmt;

use crate::packet::{ConnAck, Disconnect, Packet};
use crate::reason::{ConnectRefusal, DisconnectReason, ReasonCode};
use crate::version::Version;

/// A violation of the protocol by a peer, with the normative statement that forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// [`MalformedPacket`](ReasonCode::MalformedPacket), [`ProtocolError`](ReasonCode::ProtocolError), or one of
    /// the few codes that name the case. MQTT 3.x cannot send the code; there the code serves logs and counters.
    pub reason: ReasonCode,
    /// The normative statement, such as `MQTT-3.3.1-4`. For MQTT 3.1 and 3.1.1 this is the statement of 3.1.1.
    pub statement: &'static str,
    /// The rule in a few words.
    pub text: &'static str,
    /// The packet that the standard allows a server to send before it closes the connection.
    pub answer: Answer,
}

/// The packet that may be sent to a peer after a [`Violation`]. The connection is closed in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No packet: the version is 3.1 or 3.1.1, or the bytes are no CONNECT of a known version.
    Nothing,
    /// CONNACK of this version: the violation is in a CONNECT whose protocol level was read.
    ConnAck(Version, ConnectRefusal),
    /// DISCONNECT with this reason, in MQTT 5 after CONNECT. A server that has not sent CONNACK with Success yet
    /// sends nothing instead \[MQTT-3.14.0-1\].
    Disconnect(DisconnectReason),
}

impl Violation {
    /// A violation after CONNECT that needs more than one packet to detect. `statements` are the statements of MQTT
    /// 5 and of 3.1.1, in this order. A reason that DISCONNECT may not carry is answered with "Unspecified error".
    pub fn after_connect(
        version: Version,
        reason: ReasonCode,
        statements: [&'static str; 2],
        text: &'static str,
    ) -> Self {
        let [statement_5, statement_3] = statements;
        let statement = if version.is_5() { statement_5 } else { statement_3 };
        let answer = match version {
            Version::V5 => {
                Answer::Disconnect(reason.try_into().unwrap_or(DisconnectReason::UnspecifiedError))
            }
            Version::V3_1 | Version::V3_1_1 => Answer::Nothing,
        };
        Self { reason, statement, text, answer }
    }

    /// A violation in a packet that should be a CONNECT. `version` is `None` until the protocol level has been
    /// read.
    pub(crate) fn in_connect(fault: Fault, version: Option<Version>) -> Self {
        let refusal = ConnectRefusal::try_from(fault.reason).unwrap_or(ConnectRefusal::UnspecifiedError);
        let answer = match version {
            Some(Version::V5) => Answer::ConnAck(Version::V5, refusal),
            _ if core::ptr::eq(fault, &UNSUPPORTED_LEVEL) => Answer::ConnAck(Version::V5, refusal),
            _ if core::ptr::eq(fault, &UNSUPPORTED_LEVEL_3) => Answer::ConnAck(Version::V3_1_1, refusal),
            _ => Answer::Nothing,
        };
        let statement = fault.statement(version.unwrap_or(Version::V3_1_1));
        Self { reason: fault.reason, statement, text: fault.text, answer }
    }

    pub(crate) fn of(fault: Fault, version: Version) -> Self {
        Self::after_connect(version, fault.reason, [fault.statement(version); 2], fault.text)
    }
}

impl Answer {
    /// Returns the packet to be sent, and the version in which it is encoded.
    pub fn packet(self) -> Option<(Version, Packet<'static>)> {
        match self {
            Self::Nothing => None,
            Self::ConnAck(version, reason) => Some((version, ConnAck::refused(reason).into())),
            Self::Disconnect(reason) => Some((Version::V5, Disconnect::new(reason).into())),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.reason, self.text, self.statement)
    }
}

impl core::error::Error for Violation {}

/// A rule, with its normative statements in MQTT 5 and in 3.1.1. A rule without a statement of its own has the
/// general one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) reason: ReasonCode,
    v5: &'static str,
    v3: &'static str,
    pub(crate) text: &'static str,
}

/// A broken rule. Every field returns one in its result, and the reference keeps the result small.
pub(crate) type Fault = &'static Rule;

impl Rule {
    pub(crate) fn statement(&self, version: Version) -> &'static str {
        match version {
            Version::V5 if self.v5 == NOT_HERE => CLOSE_5,
            Version::V5 => self.v5,
            _ if self.v3 == NOT_HERE => CLOSE_3,
            _ => self.v3,
        }
    }

    /// Whether a packet of this version can break the rule.
    #[cfg(test)]
    pub(crate) fn is_in(&self, version: Version) -> bool {
        let statement = if version.is_5() { self.v5 } else { self.v3 };
        statement != NOT_HERE
    }
}

/// The general statement of MQTT 5: "Malformed packet or protocol error: close."
const CLOSE_5: &str = "MQTT-4.13.1-1";
/// The general statement of MQTT 3.1.1: "Protocol violation: close."
const CLOSE_3: &str = "MQTT-4.8.0-1";

/// Placeholder for a statement: packets of these versions cannot break the rule.
const NOT_HERE: &str = "";

macro_rules! rules {
    ($($name:ident $reason:ident $v5:expr, $v3:expr, $text:literal;)*) => {
        $(pub(crate) static $name: Rule =
            Rule { reason: ReasonCode::$reason, v5: $v5, v3: $v3, text: $text };)*

        /// All rules, for the test that the table of packets covers each of them.
        #[cfg(test)]
        pub(crate) static ALL: &[Fault] = &[$(&$name),*];
    };
}

rules! {
    // Fixed header
    NOT_CONNECT ProtocolError "MQTT-3.1.0-1", "MQTT-3.1.0-1", "the first packet is a CONNECT";
    SECOND_CONNECT ProtocolError "MQTT-3.1.0-2", "MQTT-3.1.0-2", "a second CONNECT";
    WRONG_SENDER ProtocolError CLOSE_5, CLOSE_3, "this end of the connection does not send such packets";
    UNKNOWN_TYPE MalformedPacket CLOSE_5, CLOSE_3, "a reserved packet type";
    FLAGS MalformedPacket "MQTT-2.1.3-1", "MQTT-2.2.2-2", "wrong flags in the fixed header";
    PUBREL_FLAGS MalformedPacket "MQTT-3.6.1-1", "MQTT-3.6.1-1", "wrong flags in a PUBREL";
    SUBSCRIBE_FLAGS MalformedPacket "MQTT-3.8.1-1", "MQTT-3.8.1-1", "wrong flags in a SUBSCRIBE";
    UNSUBSCRIBE_FLAGS MalformedPacket "MQTT-3.10.1-1", "MQTT-3.10.1-1", "wrong flags in an UNSUBSCRIBE";
    DISCONNECT_FLAGS MalformedPacket "MQTT-3.14.1-1", "MQTT-3.14.1-1", "wrong flags in a DISCONNECT";
    AUTH_FLAGS MalformedPacket "MQTT-3.15.1-1", NOT_HERE, "wrong flags in an AUTH";
    QOS_3 MalformedPacket "MQTT-3.3.1-4", "MQTT-3.3.1-4", "QoS 3";
    DUP_AT_QOS_0 MalformedPacket "MQTT-3.3.1-2", "MQTT-3.3.1-2", "DUP at QoS 0";
    LENGTH_TOO_LONG MalformedPacket CLOSE_5, CLOSE_3, "a variable byte integer of more than 4 bytes";
    LENGTH_NOT_SHORTEST MalformedPacket "MQTT-1.5.5-1", NOT_HERE, "a variable byte integer that is longer than needed";
    CLIENT_PACKET_TOO_LARGE PacketTooLarge "MQTT-3.2.2-15", CLOSE_3, "a packet over the maximum size";
    SERVER_PACKET_TOO_LARGE PacketTooLarge "MQTT-3.1.2-24", CLOSE_3, "a packet over the maximum size of the client";
    // Fields
    TRUNCATED MalformedPacket CLOSE_5, CLOSE_3, "the packet ends inside a field";
    SURPLUS MalformedPacket CLOSE_5, CLOSE_3, "bytes behind the last field";
    ILL_FORMED_UTF8 MalformedPacket "MQTT-1.5.4-1", "MQTT-1.5.3-1", "a string that is not UTF-8";
    ILL_FORMED_PAIR MalformedPacket "MQTT-1.5.7-1", NOT_HERE, "a user property that is not UTF-8";
    NUL MalformedPacket "MQTT-1.5.4-2", "MQTT-1.5.3-2", "U+0000 in a string";
    PACKET_ID_0 ProtocolError "MQTT-2.2.1-3", "MQTT-2.3.1-1", "packet identifier 0";
    TOPIC_NUL MalformedPacket "MQTT-4.7.3-2", "MQTT-4.7.3-2", "U+0000 in a topic name or filter";
    TOPIC_EMPTY ProtocolError "MQTT-4.7.3-1", "MQTT-4.7.3-1", "an empty topic name";
    TOPIC_WILDCARD MalformedPacket "MQTT-3.3.2-2", "MQTT-3.3.2-2", "a wildcard in a topic name";
    FILTER_EMPTY MalformedPacket "MQTT-4.7.3-1", "MQTT-4.7.3-1", "an empty topic filter";
    MULTI_LEVEL_WILDCARD MalformedPacket "MQTT-4.7.1-1", "MQTT-4.7.1-2", "a # that is not alone on the last level";
    SINGLE_LEVEL_WILDCARD MalformedPacket "MQTT-4.7.1-2", "MQTT-4.7.1-3", "a + that does not take a whole level";
    MALFORMED_SHARE MalformedPacket "MQTT-4.8.2-1", NOT_HERE, "a shared filter without share name or filter";
    // Properties
    UNKNOWN_PROPERTY MalformedPacket CLOSE_5, NOT_HERE, "an unknown property";
    MISPLACED_PROPERTY MalformedPacket CLOSE_5, NOT_HERE, "a property that does not belong in this packet";
    DUPLICATE_PROPERTY ProtocolError CLOSE_5, NOT_HERE, "a property that is there twice";
    PROPERTY_OUT_OF_RANGE ProtocolError CLOSE_5, NOT_HERE, "a property value out of range";
    TOPIC_ALIAS_0 TopicAliasInvalid "MQTT-3.3.2-8", NOT_HERE, "topic alias 0";
    RESPONSE_TOPIC_WILDCARD ProtocolError "MQTT-3.3.2-14", NOT_HERE, "a wildcard in a response topic";
    DATA_WITHOUT_METHOD ProtocolError CLOSE_5, NOT_HERE, "authentication data without a method";
    // CONNECT
    PROTOCOL_NAME UnsupportedProtocolVersion "MQTT-3.1.2-1", "MQTT-3.1.2-1", "an unknown protocol name";
    UNSUPPORTED_LEVEL UnsupportedProtocolVersion "MQTT-3.1.2-2", "MQTT-3.1.2-2", "an unknown protocol level";
    UNSUPPORTED_LEVEL_3 UnsupportedProtocolVersion "MQTT-3.1.2-2", "MQTT-3.1.2-2", "an unknown protocol level of the 3.x kind";
    CONNECT_RESERVED_FLAG MalformedPacket "MQTT-3.1.2-3", "MQTT-3.1.2-3", "the reserved connect flag";
    WILL_QOS_3 MalformedPacket "MQTT-3.1.2-12", "MQTT-3.1.2-14", "Will QoS 3";
    WILL_QOS_WITHOUT_WILL MalformedPacket "MQTT-3.1.2-11", "MQTT-3.1.2-13", "Will QoS without a will";
    WILL_RETAIN_WITHOUT_WILL MalformedPacket "MQTT-3.1.2-13", "MQTT-3.1.2-15", "Will Retain without a will";
    PASSWORD_WITHOUT_USER_NAME MalformedPacket NOT_HERE, "MQTT-3.1.2-22", "a password without a user name";
    WILL_MISSING MalformedPacket "MQTT-3.1.2-9", "MQTT-3.1.2-9", "the will that the flags announce is missing";
    USER_NAME_MISSING MalformedPacket "MQTT-3.1.2-17", "MQTT-3.1.2-19", "the user name that the flags announce is missing";
    PASSWORD_MISSING MalformedPacket "MQTT-3.1.2-19", "MQTT-3.1.2-21", "the password that the flags announce is missing";
    USER_NAME_UNANNOUNCED MalformedPacket "MQTT-3.1.2-16", "MQTT-3.1.2-18", "a user name that the flags do not announce";
    PASSWORD_UNANNOUNCED MalformedPacket "MQTT-3.1.2-18", "MQTT-3.1.2-20", "a password that the flags do not announce";
    // CONNACK
    CONNACK_FLAGS MalformedPacket "MQTT-3.2.2-1", CLOSE_3, "reserved acknowledge flags";
    SESSION_PRESENT_IN_REFUSAL ProtocolError "MQTT-3.2.2-6", "MQTT-3.2.2-4", "Session Present in a refusal";
    CONNACK_REASON ProtocolError "MQTT-3.2.2-8", CLOSE_3, "a code that CONNACK does not have";
    // Acknowledgements
    PUBACK_REASON ProtocolError "MQTT-3.4.2-1", NOT_HERE, "a reason that PUBACK does not have";
    PUBREC_REASON ProtocolError "MQTT-3.5.2-1", NOT_HERE, "a reason that PUBREC does not have";
    PUBREL_REASON ProtocolError "MQTT-3.6.2-1", NOT_HERE, "a reason that PUBREL does not have";
    PUBCOMP_REASON ProtocolError "MQTT-3.7.2-1", NOT_HERE, "a reason that PUBCOMP does not have";
    // PUBLISH
    SUBSCRIPTION_IDENTIFIER_FROM_CLIENT ProtocolError "MQTT-3.3.4-6", NOT_HERE, "a subscription identifier in a PUBLISH of a client";
    // SUBSCRIBE, UNSUBSCRIBE
    NO_SUBSCRIPTION ProtocolError "MQTT-3.8.3-2", "MQTT-3.8.3-3", "a SUBSCRIBE without a filter";
    SUBSCRIPTION_QOS_3 ProtocolError CLOSE_5, "MQTT-3.8.3-4", "a subscription with QoS 3";
    RETAIN_HANDLING_3 ProtocolError CLOSE_5, NOT_HERE, "Retain Handling 3";
    SUBSCRIPTION_RESERVED_BITS MalformedPacket "MQTT-3.8.3-5", "MQTT-3.8.3-4", "reserved bits in the subscription options";
    NO_LOCAL_ON_SHARED ProtocolError "MQTT-3.8.3-4", NOT_HERE, "No Local on a shared subscription";
    NO_FILTER ProtocolError "MQTT-3.10.3-2", "MQTT-3.10.3-2", "an UNSUBSCRIBE without a filter";
    // SUBACK, UNSUBACK
    NO_SUBACK_REASON ProtocolError "MQTT-3.8.4-6", "MQTT-3.8.4-5", "a SUBACK without a code";
    SUBACK_REASON ProtocolError "MQTT-3.9.3-2", "MQTT-3.9.3-2", "a code that SUBACK does not have";
    NO_UNSUBACK_REASON ProtocolError "MQTT-3.11.3-1", NOT_HERE, "an UNSUBACK without a code";
    UNSUBACK_REASON ProtocolError "MQTT-3.11.3-2", NOT_HERE, "a code that UNSUBACK does not have";
    // DISCONNECT, AUTH
    DISCONNECT_REASON ProtocolError "MQTT-3.14.2-1", NOT_HERE, "a reason that DISCONNECT does not have";
    DISCONNECT_REASON_OF_SERVER ProtocolError "MQTT-3.14.2-1", NOT_HERE, "a reason that only servers send";
    DISCONNECT_REASON_OF_CLIENT ProtocolError "MQTT-3.14.2-1", NOT_HERE, "a reason that only clients send";
    SESSION_EXPIRY_FROM_SERVER ProtocolError "MQTT-3.14.2-2", NOT_HERE, "a session expiry interval from a server";
    SERVER_REFERENCE_FROM_CLIENT ProtocolError CLOSE_5, NOT_HERE, "a server reference from a client";
    AUTH_REASON ProtocolError "MQTT-3.15.2-1", NOT_HERE, "a reason that AUTH does not have";
    AUTH_REASON_OF_SERVER ProtocolError "MQTT-3.15.2-1", NOT_HERE, "an AUTH reason that only servers send";
    AUTH_REASON_OF_CLIENT ProtocolError "MQTT-3.15.2-1", NOT_HERE, "an AUTH reason that only clients send";
}
