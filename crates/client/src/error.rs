//! Why something was not done: one error for each operation, and whose fault it was.

use std::fmt;
use std::io;
use std::sync::Arc;

use session::client as protocol;
use wire::{ConnectRefusal, DisconnectReason, ReasonCode, Utf8Error, Violation};

use crate::dial::{TransportError, advice, fault_of};

/// Where to look for the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// In the program that called: the same call will fail again.
    Application,
    /// At the server, or with who administers it: it said no, or broke the protocol.
    Server,
    /// On the way: try again, later.
    Network,
}

/// Why a connection is over.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Ended {
    /// The application has disconnected, or dropped the last handle.
    ByUs,
    /// The server has ended it with DISCONNECT (section 3.14).
    ByServer {
        /// Why.
        reason: DisconnectReason,
        /// In the server's own words.
        text: Option<String>,
        /// Another server to use.
        server_reference: Option<String>,
    },
    /// The server has refused it, after it had accepted an earlier one.
    Refused(ConnectRefusal),
    /// The server has closed it without a word.
    Closed,
    /// The server wants another step of an authentication, for which there is no
    /// [`Authenticator`](crate::Authenticator).
    NoAuthenticator,
    /// The [`Authenticator`](crate::Authenticator) has said no; why.
    NotAuthenticated(String),
    /// The server has broken the protocol; it was told so.
    Violation(Violation),
    /// The server has not answered CONNECT or PINGREQ in time.
    TimedOut(protocol::TimedOut),
    /// The server has not answered SUBSCRIBE or UNSUBSCRIBE within [`Options::request_timeout`].
    ///
    /// [`Options::request_timeout`]: crate::Options::request_timeout
    RequestTimedOut,
    /// The application has waited for the server while it took nothing out of a full stream, and what it waited for could
    /// not be read: see [the crate](crate#back-pressure).
    Unread,
    /// The transport has failed; a [`TransportError`] inside says more, if it was on the way to the server.
    Io(Arc<io::Error>),
}

/// Why [`Options`](crate::Options) make no CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// The client identifier is no string of MQTT's.
    ClientId(Utf8Error),
    /// The user name is no string of MQTT's.
    UserName(Utf8Error),
    /// The password has more than 65,535 bytes.
    PasswordTooLong,
    /// Before MQTT 5 a password needs a user name [3.1.1: MQTT-3.1.2-22].
    PasswordWithoutUserName,
    /// The authentication method is no string of MQTT's.
    AuthenticationMethod(Utf8Error),
    /// The authentication data has more than 65,535 bytes.
    AuthenticationDataTooLong,
    /// The will has what no packet can have.
    Will,
}

/// Why there is no connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The options make no CONNECT.
    Options(OptionsError),
    /// The state machine does not begin this connection.
    Protocol(protocol::ConnectError),
    /// The server has refused it.
    Refused {
        /// Why.
        reason: ConnectRefusal,
        /// In the server's own words.
        text: Option<String>,
        /// Another server to use.
        server_reference: Option<String>,
    },
    /// The connection ended before the server had answered.
    Ended(Ended),
}

/// Why a message was not published.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PublishError {
    /// It could not be sent. With [`SessionEnded`](protocol::PublishError::SessionEnded) the server may have it.
    Protocol(protocol::PublishError),
    /// The server has refused it.
    Refused {
        /// Why: from 0x80 on.
        reason: ReasonCode,
        /// In the server's own words.
        text: Option<String>,
    },
    /// The connection is over. What was on its way may have arrived.
    Ended(Ended),
}

/// Why there is no subscription.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SubscribeError {
    /// There is no filter to subscribe to [MQTT-3.8.3-2].
    NoFilter,
    /// Some messages go to another [`Messages`](crate::Messages) for the same filter already.
    Subscribed,
    /// No Local is not for shared subscriptions [MQTT-3.8.3-4].
    NoLocalOnShared,
    /// It could not be asked for.
    Protocol(protocol::RequestError),
    /// The server has refused it.
    Refused {
        /// Why: from 0x80 on.
        reason: ReasonCode,
        /// In the server's own words.
        text: Option<String>,
    },
    /// The connection is over.
    Ended(Ended),
}

/// Why a subscription was not ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum UnsubscribeError {
    /// There is no filter to unsubscribe from [MQTT-3.10.3-2].
    NoFilter,
    /// It could not be asked for.
    Protocol(protocol::RequestError),
    /// The server has refused it.
    Refused {
        /// Why: from 0x80 on.
        reason: ReasonCode,
        /// In the server's own words.
        text: Option<String>,
    },
    /// The connection is over, and most probably the subscription with it.
    Ended(Ended),
}

/// Why an authentication has not succeeded anew.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AuthenticateError {
    /// It could not be asked for.
    Protocol(protocol::RequestError),
    /// The connection is over; with [`Ended::ByServer`] perhaps because of this.
    Ended(Ended),
}

/// Why there is no [`Requester`](crate::Requester).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RequesterError {
    /// Before MQTT 5 there is no Response Topic.
    Version,
    /// The response topic cannot be subscribed to.
    Filter(topic::FilterError),
    /// There is no subscription to it.
    Subscribe(SubscribeError),
}

/// Why a question has no answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RequestError {
    /// It was not published.
    Publish(PublishError),
    /// The server says that nobody gets it; only with QoS 1 and 2.
    Nobody,
    /// The answer did not come in time; if it does later, it is thrown away.
    TimedOut,
    /// The subscription or the connection is over.
    Ended(Ended),
}

/// Why a connection did not end as it should. It is over in any case.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DisconnectError {
    /// Messages were not acknowledged within [`Options::flush_timeout`](crate::Options::flush_timeout), or failed in it.
    Unacknowledged {
        /// So many; of those that were not even sent, whatever their QoS.
        messages: usize,
    },
    /// DISCONNECT could not have what it was to have; the connection has ended with a plain one.
    Protocol(protocol::DisconnectError),
    /// It had ended before, or before everything had left.
    Ended(Ended),
}

impl Ended {
    /// Whose fault it was.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::ByUs | Self::NoAuthenticator | Self::Unread => Fault::Application,
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
    /// Whose fault it was.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Options(_) | Self::Protocol(_) => Fault::Application,
            Self::Refused { .. } => Fault::Server,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

impl PublishError {
    /// Whose fault it was.
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
    /// Whose fault it was.
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
    /// Whose fault it was.
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
    /// Whose fault it was.
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
    /// Whose fault it was.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Version | Self::Filter(_) => Fault::Application,
            Self::Subscribe(error) => error.fault(),
        }
    }
}

impl RequestError {
    /// Whose fault it was. Who does not answer is taken for the server here.
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
    /// Whose fault it was.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Unacknowledged { .. } => Fault::Server,
            Self::Protocol(_) => Fault::Application,
            Self::Ended(ended) => ended.fault(),
        }
    }
}

/// What the server said beside a reason.
fn write_more(f: &mut fmt::Formatter<'_>, text: Option<&str>, server: Option<&str>) -> fmt::Result {
    if let Some(text) = text {
        write!(f, " ({text})")?;
    }
    server.map_or(Ok(()), |server| write!(f, "; use {server}"))
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
            Self::NotAuthenticated(why) => write!(f, "the authentication has failed here: {why}"),
            Self::Violation(violation) => write!(f, "the server has broken the protocol: {violation}"),
            Self::TimedOut(what) => write!(f, "{what}: look at the network, or try again"),
            Self::RequestTimedOut => f.write_str("the server has not answered a request in time"),
            Self::Unread => f.write_str(
                "an answer was waited for behind messages that nobody takes: take them while you wait",
            ),
            Self::Io(error) if TransportError::of(error).is_some() => error.fmt(f),
            Self::Io(error) => {
                write!(f, "the transport has failed: {error}")?;
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
            Self::Io(error) => Some(&**error),
            Self::ByUs
            | Self::NoAuthenticator
            | Self::NotAuthenticated(_)
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
