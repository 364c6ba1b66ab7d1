//! Errors, one type for each operation, and the party at fault.

use std::fmt;
use std::io;
use std::sync::Arc;

use session::client as protocol;
use wire::{ConnectRefusal, DisconnectReason, ReasonCode, Shown, Utf8Error, Violation};

use crate::dial::{TransportError, advice, fault_of};

/// The place to look for the cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The calling program: the same call will fail again.
    Application,
    /// The server or its administrator: the server refused, or broke the protocol.
    Server,
    /// The network: a later attempt may succeed.
    Network,
}

/// The reason for the end of a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Ended {
    /// The application has disconnected, or dropped the last handle.
    ByUs,
    /// The server has ended the connection with DISCONNECT (section 3.14).
    ByServer {
        /// Reason code of DISCONNECT.
        reason: DisconnectReason,
        /// Reason String: the explanation of the server.
        text: Option<String>,
        /// Server Reference: another server to use.
        server_reference: Option<String>,
    },
    /// The server has refused a connection, after it had accepted an earlier one.
    Refused(ConnectRefusal),
    /// The server has closed the connection without DISCONNECT.
    Closed,
    /// The server asks for another authentication step, and there is no [`Authenticator`](crate::Authenticator).
    NoAuthenticator,
    /// The [`Authenticator`](crate::Authenticator) has rejected what the server sent. The text gives the reason.
    NotAuthenticated(String),
    /// Data of the [`Authenticator`](crate::Authenticator) cannot be sent. The text gives the reason.
    AuthenticationUnsent(String),
    /// The server has broken the protocol. The client has reported the violation to the server, if the protocol version
    /// has a packet for this.
    Violation(Violation),
    /// The server has not answered CONNECT or PINGREQ in time.
    TimedOut(protocol::TimedOut),
    /// The server has not answered SUBSCRIBE or UNSUBSCRIBE within [`Options::request_timeout`].
    ///
    /// [`Options::request_timeout`]: crate::Options::request_timeout
    RequestTimedOut,
    /// The application waited for an answer, and took nothing out of a full stream whose messages precede that answer.
    ///
    /// The client could not read the answer: see [the crate](crate#back-pressure).
    Unread,
    /// The [session store](crate::Options::session_store) has failed. Packets that depend on it have not left.
    Store(Arc<io::Error>),
    /// The transport has failed. An inner [`TransportError`] names the layer, if the failure occurred while connecting.
    Io(Arc<io::Error>),
}

/// An option that cannot be part of CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// The client identifier is not a valid MQTT string.
    ClientId(Utf8Error),
    /// The user name is not a valid MQTT string.
    UserName(Utf8Error),
    /// The password has more than 65,535 bytes.
    PasswordTooLong,
    /// There is a password without a user name. MQTT before version 5 requires the user name [3.1.1: MQTT-3.1.2-22].
    PasswordWithoutUserName,
    /// The authentication method is not a valid MQTT string.
    AuthenticationMethod(Utf8Error),
    /// The authentication data has more than 65,535 bytes.
    AuthenticationDataTooLong,
    /// The will has a field that no packet can carry.
    Will,
}

/// The reason why a connection could not be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The options cannot be encoded as CONNECT.
    Options(OptionsError),
    /// The state machine refuses to begin this connection.
    Protocol(protocol::ConnectError),
    /// The server has refused the connection.
    Refused {
        /// Reason code of CONNACK.
        reason: ConnectRefusal,
        /// Reason String: the explanation of the server.
        text: Option<String>,
        /// Server Reference: another server to use.
        server_reference: Option<String>,
    },
    /// The connection ended before the server answered.
    Ended(Ended),
}

/// The reason why a message was not published.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PublishError {
    /// The message could not be sent. With [`SessionEnded`](protocol::PublishError::SessionEnded), it may have arrived.
    Protocol(protocol::PublishError),
    /// The server has refused the message.
    Refused {
        /// Reason code, at least 0x80.
        reason: ReasonCode,
        /// Reason String: the explanation of the server.
        text: Option<String>,
    },
    /// The connection is over. A message that was sent may have arrived.
    Ended(Ended),
}

/// The reason why a subscription was not made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The list of filters is empty [MQTT-3.8.3-2].
    NoFilter,
    /// Another [`Messages`](crate::Messages) already receives the messages of the same filter.
    Subscribed,
    /// No Local is not allowed for shared subscriptions [MQTT-3.8.3-4].
    NoLocalOnShared,
    /// SUBSCRIBE could not be sent.
    Protocol(protocol::RequestError),
    /// The server has refused the subscription.
    Refused {
        /// Reason code, at least 0x80.
        reason: ReasonCode,
        /// Reason String: the explanation of the server.
        text: Option<String>,
    },
    /// The connection is over.
    Ended(Ended),
}

/// The reason why a subscription was not ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum UnsubscribeError {
    /// The list of filters is empty [MQTT-3.10.3-2].
    NoFilter,
    /// UNSUBSCRIBE could not be sent.
    Protocol(protocol::RequestError),
    /// The server has refused to end the subscription.
    Refused {
        /// Reason code, at least 0x80.
        reason: ReasonCode,
        /// Reason String: the explanation of the server.
        text: Option<String>,
    },
    /// The connection is over, and most probably the subscription too.
    Ended(Ended),
}

/// The reason why a reauthentication failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AuthenticateError {
    /// AUTH could not be sent.
    Protocol(protocol::RequestError),
    /// The connection is over. With [`Ended::ByServer`], the authentication may be the cause.
    Ended(Ended),
}

/// The reason why a [`Requester`](crate::Requester) could not be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RequesterError {
    /// The connection uses a version before MQTT 5, which has no Response Topic.
    Version,
    /// The response topic cannot be used as a filter.
    Filter(topic::FilterError),
    /// The subscription to the response topic failed.
    Subscribe(SubscribeError),
}

/// The reason why a question has no answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RequestError {
    /// The question was not published.
    Publish(PublishError),
    /// The server reports that the question has no subscriber; only at QoS 1 and 2.
    Nobody,
    /// The answer did not arrive in time. A late answer is dropped.
    TimedOut,
    /// The subscription or the connection is over.
    Ended(Ended),
}

/// The reason why a connection did not end properly. The connection is over in any case.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DisconnectError {
    /// Messages failed, or were not acknowledged within [`Options::flush_timeout`](crate::Options::flush_timeout).
    Unacknowledged {
        /// Number of these messages. Messages that were not even sent are included at every QoS.
        messages: usize,
    },
    /// The requested DISCONNECT could not be sent. The connection has ended with a plain DISCONNECT instead.
    Protocol(protocol::DisconnectError),
    /// The connection ended before the call, or before all bytes had left.
    Ended(Ended),
}

impl Ended {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::ByUs
            | Self::NoAuthenticator
            | Self::AuthenticationUnsent(_)
            | Self::Unread
            | Self::Store(_) => Fault::Application,
            Self::ByServer { .. }
            | Self::Refused(_)
            | Self::Violation(_)
            | Self::RequestTimedOut
            | Self::NotAuthenticated(_) => Fault::Server,
            Self::Io(error) => fault_of(error),
            Self::Closed | Self::TimedOut(_) => Fault::Network,
        }
    }
}

impl ConnectError {
    /// Whether another attempt may succeed without a change of the options.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Options(_) | Self::Protocol(_) => false,
            Self::Refused { reason, .. } => is_temporary(*reason),
            Self::Ended(ended) => may_pass(ended),
        }
    }

    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Options(_) | Self::Protocol(_) => Fault::Application,
            Self::Refused { .. } => Fault::Server,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

/// Whether another connection may succeed after one has ended for this reason.
pub(crate) fn may_pass(ended: &Ended) -> bool {
    match ended {
        // Two clients with one identifier would take the session from each other for ever.
        Ended::ByUs | Ended::ByServer { reason: DisconnectReason::SessionTakenOver, .. } => false,
        // Another connection would fail for the same reason.
        Ended::NoAuthenticator
        | Ended::NotAuthenticated(_)
        | Ended::AuthenticationUnsent(_)
        | Ended::Unread
        | Ended::Store(_) => false,
        Ended::Refused(reason) => is_temporary(*reason),
        _ => true,
    }
}

/// Whether a refusal may be temporary. Reasons that say nothing about the client count as temporary.
fn is_temporary(reason: ConnectRefusal) -> bool {
    use ConnectRefusal::{
        ConnectionRateExceeded, ImplementationSpecificError, QuotaExceeded, ServerBusy, ServerUnavailable,
        UnspecifiedError, UseAnotherServer,
    };
    match reason {
        ServerUnavailable | ServerBusy | QuotaExceeded | ConnectionRateExceeded => true,
        UnspecifiedError | ImplementationSpecificError => true,
        // Temporary, unlike Server moved.
        UseAnotherServer => true,
        _ => false,
    }
}

impl PublishError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Protocol(protocol::PublishError::SessionEnded) | Self::Refused { .. } => Fault::Server,
            Self::Protocol(protocol::PublishError::NotConnected | protocol::PublishError::Full) => {
                Fault::Network
            }
            Self::Protocol(_) => Fault::Application,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

impl SubscribeError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Protocol(protocol::RequestError::NotConnected) => Fault::Network,
            Self::NoFilter | Self::Subscribed | Self::NoLocalOnShared | Self::Protocol(_) => {
                Fault::Application
            }
            Self::Refused { .. } => Fault::Server,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

impl UnsubscribeError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Protocol(protocol::RequestError::NotConnected) => Fault::Network,
            Self::NoFilter | Self::Protocol(_) => Fault::Application,
            Self::Refused { .. } => Fault::Server,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

impl AuthenticateError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Protocol(protocol::RequestError::NotConnected) => Fault::Network,
            Self::Protocol(_) => Fault::Application,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

impl RequesterError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Version | Self::Filter(_) => Fault::Application,
            Self::Subscribe(error) => error.fault(),
        }
    }
}

impl RequestError {
    /// Returns the party at fault. A peer that does not answer counts as the server.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Publish(error) => error.fault(),
            Self::Nobody | Self::TimedOut => Fault::Server,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

impl DisconnectError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Unacknowledged { .. } => Fault::Server,
            Self::Protocol(_) => Fault::Application,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

/// Writes the explanation and the server reference that came with a reason.
fn write_more(f: &mut fmt::Formatter<'_>, text: Option<&str>, server: Option<&str>) -> fmt::Result {
    if let Some(text) = text {
        write!(f, " ({})", Shown(text))?;
    }
    server.map_or(Ok(()), |server| write!(f, "; use {}", Shown(server)))
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByUs => f.write_str("this client has disconnected: connect anew"),
            Self::ByServer { reason, text, server_reference } => {
                write!(f, "the server has ended the connection: {}", reason.reason())?;
                write_more(f, text.as_deref(), server_reference.as_deref())
            }
            Self::Refused(reason) => {
                write!(f, "the server has refused to connect again: {}", reason.reason())
            }
            Self::Closed => f.write_str("the server has closed the connection without a word: try again"),
            Self::NoAuthenticator => {
                f.write_str("the server wants more of an authentication than there is: set an authenticator")
            }
            Self::NotAuthenticated(why) => write!(f, "the authentication has failed here: {}", Shown(why)),
            Self::AuthenticationUnsent(why) => {
                write!(f, "the data of the authenticator cannot be sent: {why}")
            }
            Self::Violation(violation) => write!(f, "the server has broken the protocol: {violation}"),
            Self::TimedOut(what) => write!(f, "{what}: look at the network, or try again"),
            Self::RequestTimedOut => f.write_str("the server has not answered a request in time"),
            Self::Unread => f.write_str(
                "an answer was waited for behind messages that nobody takes: take them while you wait",
            ),
            Self::Store(error) => write!(f, "the session cannot be stored: {}", Shown(error)),
            Self::Io(error) if TransportError::of(error).is_some() => error.fmt(f),
            Self::Io(error) => {
                write!(f, "the transport has failed: {}", Shown(error))?;
                advice(error).map_or(Ok(()), |advice| write!(f, ": {advice}"))
            }
        }
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientId(error) => write!(f, "the client identifier: {error}"),
            Self::UserName(error) => write!(f, "the user name: {error}"),
            Self::PasswordTooLong => f.write_str("the password has more than 65,535 bytes"),
            Self::PasswordWithoutUserName => f.write_str("before MQTT 5 a password needs a user name"),
            Self::AuthenticationMethod(error) => write!(f, "the authentication method: {error}"),
            Self::AuthenticationDataTooLong => {
                f.write_str("the authentication data has more than 65,535 bytes")
            }
            Self::Will => f.write_str("the will has what no packet can have"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(error) => error.fmt(f),
            Self::Protocol(error) => error.fmt(f),
            Self::Refused { reason, text, server_reference } => {
                write!(f, "the server has refused the connection: {}", reason.reason())?;
                write_more(f, text.as_deref(), server_reference.as_deref())
            }
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => error.fmt(f),
            Self::Refused { reason, text } => {
                write!(f, "the server has refused the message: {reason}")?;
                write_more(f, text.as_deref(), None)
            }
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFilter => f.write_str("there is no filter to subscribe to"),
            Self::Subscribed => f.write_str("there is a subscription for this filter: unsubscribe first"),
            Self::NoLocalOnShared => wire::NoLocalOnShared.fmt(f),
            Self::Protocol(error) => error.fmt(f),
            Self::Refused { reason, text } => {
                write!(f, "the server has refused the subscription: {reason}")?;
                write_more(f, text.as_deref(), None)
            }
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for UnsubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFilter => f.write_str("there is no filter to unsubscribe from"),
            Self::Protocol(error) => error.fmt(f),
            Self::Refused { reason, text } => {
                write!(f, "the server has kept the subscription: {reason}")?;
                write_more(f, text.as_deref(), None)
            }
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for AuthenticateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => error.fmt(f),
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for RequesterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("requests need MQTT 5"),
            Self::Filter(error) => write!(f, "the response topic: {error}"),
            Self::Subscribe(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Publish(error) => error.fmt(f),
            Self::Nobody => f.write_str("nobody has subscribed to the topic of the request"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for DisconnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unacknowledged { messages } => {
                write!(f, "disconnected; {messages} messages were not acknowledged in time")
            }
            Self::Protocol(error) => error.fmt(f),
            Self::Ended(ended) => ended.fmt(f),
        }
    }
}

impl std::error::Error for Ended {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Violation(violation) => Some(violation),
            Self::TimedOut(what) => Some(what),
            Self::Store(error) | Self::Io(error) => Some(&**error),
            Self::ByUs
            | Self::NoAuthenticator
            | Self::NotAuthenticated(_)
            | Self::AuthenticationUnsent(_)
            | Self::ByServer { .. }
            | Self::Refused(_)
            | Self::Closed
            | Self::RequestTimedOut
            | Self::Unread => None,
        }
    }
}

impl std::error::Error for OptionsError {}
impl std::error::Error for ConnectError {}
impl std::error::Error for PublishError {}
impl std::error::Error for SubscribeError {}
impl std::error::Error for UnsubscribeError {}
impl std::error::Error for AuthenticateError {}
impl std::error::Error for DisconnectError {}
impl std::error::Error for RequesterError {}
impl std::error::Error for RequestError {}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Ended(error.into())
    }
}

impl From<OptionsError> for ConnectError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}
