//! Requests of an application that cannot be carried out.

use std::fmt;

use wire::EncodeError;

/// Reason why a client does not connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// The client already has a connection.
    Connected,
    /// Before MQTT 5 a lasting session needs a client identifier [3.1.1: MQTT-3.1.3-7]. In MQTT 3.1 each session needs
    /// one.
    NoClientId,
    /// The session to resume belongs to another client identifier.
    OtherClient,
    /// CONNECT breaks a rule.
    Packet(EncodeError),
}

/// Reason why a message is not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishError {
    /// At QoS 0 a message does not wait for a connection.
    NotConnected,
    /// The bounds of waiting messages are reached.
    Full,
    /// The server does not offer this QoS [MQTT-3.2.2-11].
    QosNotSupported,
    /// The server does not retain messages [MQTT-3.2.2-14].
    RetainNotSupported,
    /// The server does not allow packets of this size [MQTT-3.2.2-15], or no packet can have it.
    TooLarge,
    /// The packet breaks a rule.
    Packet(EncodeError),
    /// The session has ended while the message was in flight.
    SessionEnded,
}

/// Reason why SUBSCRIBE, UNSUBSCRIBE or AUTH is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// There is no connection.
    NotConnected,
    /// Too many requests have not been answered.
    TooMany,
    /// The server does not offer wildcards in filters.
    WildcardSubscriptionsNotSupported,
    /// The server does not offer subscription identifiers.
    SubscriptionIdentifiersNotSupported,
    /// The server does not offer shared subscriptions.
    SharedSubscriptionsNotSupported,
    /// The server does not allow packets of this size [MQTT-3.2.2-15].
    TooLarge,
    /// CONNECT had no authentication method [MQTT-4.12.0-7].
    NoAuthenticationMethod,
    /// The next step of the authentication is the server's.
    NotOurTurn,
    /// The packet breaks a rule.
    Packet(EncodeError),
}

/// Reason why DISCONNECT is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectError {
    /// There is no connection.
    NotConnected,
    /// A session that ends with its connection cannot become a lasting one.
    NoSession,
    /// The packet breaks a rule, or the server does not allow packets of its size.
    Packet(EncodeError),
}

/// The answer that did not arrive in time. The connection is useless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedOut {
    /// CONNACK did not arrive within its time limit.
    Connect,
    /// No packet has arrived within the time limit of PINGREQ.
    Ping,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("there is a connection already"),
            Self::NoClientId => f.write_str("this session needs a client identifier"),
            Self::OtherClient => f.write_str("the session is that of another client identifier"),
            Self::Packet(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("a message of QoS 0 does not wait for a connection"),
            Self::Full => f.write_str("too many messages wait"),
            Self::QosNotSupported => f.write_str("the server does not offer this QoS"),
            Self::RetainNotSupported => f.write_str("the server does not retain messages"),
            Self::TooLarge => f.write_str("the server does not take packets of this size"),
            Self::Packet(error) => error.fmt(f),
            Self::SessionEnded => f.write_str("the session has ended before the message was acknowledged"),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "there is no connection",
            Self::TooMany => "too many requests have not been answered",
            Self::WildcardSubscriptionsNotSupported => "the server does not offer wildcards in filters",
            Self::SubscriptionIdentifiersNotSupported => "the server does not offer subscription identifiers",
            Self::SharedSubscriptionsNotSupported => "the server does not offer shared subscriptions",
            Self::TooLarge => "the server does not take packets of this size",
            Self::NoAuthenticationMethod => "there was no authentication method in CONNECT",
            Self::NotOurTurn => "it is the server's turn in the authentication",
            Self::Packet(error) => return error.fmt(f),
        })
    }
}

impl fmt::Display for DisconnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("there is no connection"),
            Self::NoSession => f.write_str("a session that was to end with its connection cannot be kept"),
            Self::Packet(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "the server has not answered CONNECT in time",
            Self::Ping => "the server has not answered PINGREQ in time",
        })
    }
}

impl std::error::Error for ConnectError {}
impl std::error::Error for PublishError {}
impl std::error::Error for RequestError {}
impl std::error::Error for DisconnectError {}
impl std::error::Error for TimedOut {}
