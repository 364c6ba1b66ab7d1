//! What a connection is asked for, and what it is given.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use session::client::Acknowledge;
use tokio::sync::Semaphore;
use wire::{Binary, Connect, Packet, Role, UserProperties, Utf8, Version, Will};

use crate::authentication::{Authenticator, Authenticators};
use crate::back_off::BackOff;
use crate::error::OptionsError;
use crate::owned::{OwnedUserProperties, OwnedWill};
use crate::routes::Bounds;
use crate::state::Trace;

/// So many messages of QoS 1 and 2 may wait for a connection that is being tried for. While there is one, publishers wait
/// before as many do.
const WAITING_MESSAGES_MAX: usize = 10_000;

/// The server is to answer PINGREQ within this time, or to take at least one byte where it is kept from coming to it.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// More than anybody waits, and less than clocks of any system have room for: 30 years.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// A time that can be added to now.
pub(crate) fn bounded(duration: Duration) -> Duration {
    duration.min(LONGEST)
}

/// Before MQTT 5 a server that has enough can only close the connection, as Mosquitto does when more than its
/// `max_inflight_messages`, 20, are under way at QoS 2.
const INFLIGHT_MAX_3: u16 = 20;

/// How to connect: CONNECT (section 3.1), and the client's own bounds.
///
/// ```
/// use client::{Options, Version};
///
/// let options = Options::new(Version::V5)
///     .client_id("sensor-7")
///     .credentials("ann", Some(b"secret"))
///     .session_expiry_secs(3_600)
///     .clean_start(false);
/// # let _ = options;
/// ```
///
/// Times of more than 30 years are 30 years.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) version: Version,
    client_id: String,
    user_name: Option<String>,
    password: Option<Secret>,
    clean_start: bool,
    keep_alive_secs: u16,
    will: Option<OwnedWill>,
    session_expiry_secs: u32,
    receive_max: NonZeroU16,
    packet_bytes_max: Option<NonZeroU32>,
    topic_alias_max: u16,
    request_response_information: bool,
    request_problem_information: bool,
    authentication: Option<Authentication>,
    user_properties: OwnedUserProperties,
    inflight_max: NonZeroU16,
    pub(crate) acknowledge: Acknowledge,
    pub(crate) messages_max: usize,
    drop_when_full: bool,
    pub(crate) commands_max: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) flush_timeout: Duration,
    pub(crate) reconnect: Option<BackOff>,
    pub(crate) trace: Option<Trace>,
}

/// Not to be printed.
#[derive(Clone)]
struct Secret(Box<[u8]>);

/// A method, and the data that CONNECT has for it.
#[derive(Debug, Clone)]
struct Authentication {
    method: String,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    Data(Option<Secret>),
    Exchange(Authenticators),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Options {
    /// A client without a name, which begins with nothing and leaves nothing behind; keep alive 60 s, 256 messages of
    /// QoS 1 and 2 at a time (Receive Maximum), which are acknowledged as they are taken out of their [`Messages`].
    ///
    /// [`Messages`]: crate::Messages
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            client_id: String::new(),
            user_name: None,
            password: None,
            clean_start: true,
            keep_alive_secs: 60,
            will: None,
            session_expiry_secs: 0,
            receive_max: NonZeroU16::new(256).unwrap_or(NonZeroU16::MIN),
            packet_bytes_max: None,
            topic_alias_max: 16,
            request_response_information: false,
            request_problem_information: true,
            authentication: None,
            user_properties: OwnedUserProperties::default(),
            inflight_max: NonZeroU16::new(if version.is_5() { 1_000 } else { INFLIGHT_MAX_3 })
                .unwrap_or(NonZeroU16::MIN),
            acknowledge: Acknowledge::AtOnce,
            messages_max: 256,
            drop_when_full: false,
            commands_max: 256,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(10),
            reconnect: None,
            trace: None,
        }
    }

    /// Whose session it is. Empty, as it is at first: the server assigns one, except before MQTT 5 for a session that
    /// lasts, and in MQTT 3.1, where it must be given.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// User name and password, at most 65,535 bytes each. Debug output leaves the password out.
    #[must_use]
    pub fn credentials(mut self, user_name: impl Into<String>, password: Option<&[u8]>) -> Self {
        self.user_name = Some(user_name.into());
        self.password = password.map(|password| Secret(password.into()));
        self
    }

    /// A password without a user name, at most 65,535 bytes; MQTT 5 only.
    #[must_use]
    pub fn password(mut self, password: &[u8]) -> Self {
        self.password = Some(Secret(password.into()));
        self
    }

    /// Authentication Method, and the data that CONNECT has for it (section 4.12), for methods that need no more. MQTT 5
    /// only. Debug output leaves the data out.
    #[must_use]
    pub fn authentication(mut self, method: impl Into<String>, data: Option<&[u8]>) -> Self {
        let how = How::Data(data.map(|data| Secret(data.into())));
        self.authentication = Some(Authentication { method: method.into(), how });
        self
    }

    /// Authentication Method, and what makes its steps, which each connection has anew (section 4.12). MQTT 5 only.
    ///
    /// ```
    /// use client::{Authenticator, Options, Version};
    ///
    /// /// Sends the challenge back, turned round.
    /// struct Mirror;
    ///
    /// impl Authenticator for Mirror {
    ///     fn begin(&mut self) -> Option<Vec<u8>> {
    ///         Some(b"ann".to_vec())
    ///     }
    ///
    ///     fn step(&mut self, challenge: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
    ///         let challenge = challenge.ok_or("no challenge")?;
    ///         Ok(Some(challenge.iter().rev().copied().collect()))
    ///     }
    /// }
    ///
    /// let options = Options::new(Version::V5).authenticator("MIRROR", || Mirror);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn authenticator<A: Authenticator + 'static>(
        mut self,
        method: impl Into<String>,
        make: impl Fn() -> A + Send + Sync + 'static,
    ) -> Self {
        let how = How::Exchange(Authenticators(Arc::new(move || Box::new(make()))));
        self.authentication = Some(Authentication { method: method.into(), how });
        self
    }

    /// What else CONNECT says (section 3.1.2.11.8). MQTT 5 only.
    #[must_use]
    pub fn user_properties(mut self, properties: UserProperties<'_>) -> Self {
        self.user_properties = OwnedUserProperties::new(properties);
        self
    }

    /// Whether the server is asked for [`Server::response_information`](crate::Server::response_information). MQTT 5 only; at
    /// first it is not.
    #[must_use]
    pub fn request_response_information(mut self, is_asked_for: bool) -> Self {
        self.request_response_information = is_asked_for;
        self
    }

    /// Whether the server may send reason strings and user properties in any packet, or only in PUBLISH, CONNACK and
    /// DISCONNECT (section 3.1.2.11.7). MQTT 5 only; at first it may.
    #[must_use]
    pub fn request_problem_information(mut self, is_asked_for: bool) -> Self {
        self.request_problem_information = is_asked_for;
        self
    }

    /// Clean Start, or Clean Session before MQTT 5: whether what an earlier connection has left is forgotten. At first
    /// it is.
    #[must_use]
    pub fn clean_start(mut self, clean_start: bool) -> Self {
        self.clean_start = clean_start;
        self
    }

    /// The session is kept for so many seconds after its connection; [`u32::MAX`] is for ever. MQTT 5 only; at first 0.
    #[must_use]
    pub fn session_expiry_secs(mut self, secs: u32) -> Self {
        self.session_expiry_secs = secs;
        self
    }

    /// The server hears something at least as often as this, in seconds; 0 is never. At first 60.
    #[must_use]
    pub fn keep_alive_secs(mut self, secs: u16) -> Self {
        self.keep_alive_secs = secs;
        self
    }

    /// What the server publishes when the connection ends without DISCONNECT (section 3.1.2.5).
    #[must_use]
    pub fn will(mut self, will: &Will<'_>) -> Self {
        self.will = Some(OwnedWill::new(will));
        self
    }

    /// Receive Maximum: the server sends so many messages of QoS 1 and 2 before one of them is acknowledged. One that
    /// sends more, as Mosquitto 2.0 does when it resumes a session with many, is read more slowly, and not left. MQTT 5
    /// only; at first 256.
    #[must_use]
    pub fn receive_max(mut self, messages: NonZeroU16) -> Self {
        self.receive_max = messages;
        self
    }

    /// Maximum Packet Size: the largest packet that is taken, in bytes. A larger one ends the connection, as does a frame of
    /// WebSocket that has 1 MiB more. MQTT 5 only: other servers cannot be told.
    #[must_use]
    pub fn packet_bytes_max(mut self, bytes: NonZeroU32) -> Self {
        self.packet_bytes_max = Some(bytes);
        self
    }

    /// Topic Alias Maximum: how many topics the server may abbreviate. MQTT 5 only; at first 16.
    #[must_use]
    pub fn topic_alias_max(mut self, aliases: u16) -> Self {
        self.topic_alias_max = aliases;
        self
    }

    /// So many messages of QoS 1 and 2 are under way to the server at a time, if it takes as many (its Receive Maximum).
    /// At first 1,000; before MQTT 5, where servers cannot say how many they take, 20.
    #[must_use]
    pub fn inflight_max(mut self, messages: NonZeroU16) -> Self {
        self.inflight_max = messages;
        self
    }

    /// Who acknowledges messages of QoS 1 and 2: the client, when one of QoS 1 is taken out of its [`Messages`], and one of
    /// QoS 2 put in; or the application ([`Message::acknowledge`]). At first the client.
    ///
    /// Exactly once is how often a message of QoS 2 is *accepted*. Where the application says that, what it has not
    /// acknowledged before the connection ends comes again on the next one, also at QoS 2, and acknowledgements of what came
    /// before do nothing: an application that must not act twice has to know what it has done, or leaves it to the client.
    ///
    /// [`Messages`]: crate::Messages
    /// [`Message::acknowledge`]: crate::Message::acknowledge
    #[must_use]
    pub fn acknowledge(mut self, acknowledge: Acknowledge) -> Self {
        self.acknowledge = acknowledge;
        self
    }

    /// Each subscription holds so many messages that have not been taken out: at least 1, at most [`usize::MAX`] / 8. At
    /// first 256.
    #[must_use]
    pub fn messages_max(mut self, messages: usize) -> Self {
        self.messages_max = messages.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Whether a message of QoS 0 whose stream is full is thrown away, and [counted](crate::Messages::dropped), so that it
    /// does not keep back what comes behind it: see [the crate](crate#back-pressure). At first it is not.
    #[must_use]
    pub fn drop_when_full(mut self, is_dropped: bool) -> Self {
        self.drop_when_full = is_dropped;
        self
    }

    /// So many operations wait for the driver before the next one has to wait: at least 1, at most [`usize::MAX`] / 8. At
    /// first 256.
    #[must_use]
    pub fn commands_max(mut self, commands: usize) -> Self {
        self.commands_max = commands.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// The server is to answer CONNECT within this time. At first 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = bounded(timeout);
        self
    }

    /// The server is to answer SUBSCRIBE and UNSUBSCRIBE within this time, or the connection is closed. At first 10 s.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = bounded(timeout);
        self
    }

    /// So long may [`disconnect`](crate::Client::disconnect), or the end of the last handle, wait for what is not
    /// acknowledged. At first 10 s.
    #[must_use]
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.flush_timeout = bounded(timeout);
        self
    }

    /// A connection that is lost is made anew, by those of the `connect` functions that can: after a random time between
    /// the half of `first`, at least 10 ms, and all of it, and twice as much with each attempt in vain, up to `max`. So is
    /// an attempt whose connection has not lasted for `max`: a server that accepts and closes is left in peace too. See
    /// [the crate](crate#reconnecting). At first this is not done.
    #[must_use]
    pub fn reconnect(mut self, first: Duration, max: Duration) -> Self {
        self.reconnect = Some(BackOff::new(bounded(first), bounded(max)));
        self
    }

    /// Each packet is shown to this, on its way to the socket or as it was read, with who has sent it: [`Role::Client`] is
    /// this end. It is called by the task that drives the connection, which goes on when it returns. A
    /// [`Packet`] prints itself on one line, without passwords:
    ///
    /// ```
    /// use client::{Options, Role, Version};
    ///
    /// let options = Options::new(Version::V5).trace(|sender, packet| {
    ///     let arrow = if sender == Role::Client { "->" } else { "<-" };
    ///     eprintln!("{arrow} {packet}");
    /// });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn trace(mut self, trace: impl Fn(Role, &Packet<'_>) + Send + Sync + 'static) -> Self {
        self.trace = Some(Trace(Arc::new(trace)));
        self
    }

    /// The bounds of the state machine. It always leaves the acknowledgement to us: to wait until a message is taken.
    pub(crate) fn settings(&self) -> session::client::Settings {
        session::client::Settings {
            acknowledge: Acknowledge::ByApplication,
            inflight_max: self.inflight_max.get(),
            waiting_messages_max: WAITING_MESSAGES_MAX,
            receive_excess_max: u16::MAX,
            connect_timeout_ms: u64::try_from(self.connect_timeout.as_millis()).unwrap_or(u64::MAX / 2),
            ping_timeout_ms: u64::try_from(PING_TIMEOUT.as_millis()).unwrap_or(u64::MAX / 2),
            ..session::client::Settings::default()
        }
    }

    /// The largest packet that the server may send. Before MQTT 5 it does not know.
    pub(crate) fn largest_packet_bytes(&self) -> Option<NonZeroU32> {
        self.packet_bytes_max.filter(|_| self.version.is_5())
    }

    /// The bounds of what was received and not taken.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { held_max: self.receive_max.get().into(), drops_when_full: self.drop_when_full }
    }

    /// CONNECT, after a connection was lost: the session goes on, if there is one that outlives connections. Before
    /// MQTT 5 one flag says both, and stays as it was.
    pub(crate) fn connect_again<'a>(&'a self, data: Option<&'a [u8]>) -> Result<Connect<'a>, OptionsError> {
        let mut connect = self.connect(data)?;
        connect.clean_start &= !self.version.is_5();
        Ok(connect)
    }

    pub(crate) fn authenticators(&self) -> Option<&Authenticators> {
        match &self.authentication.as_ref()?.how {
            How::Exchange(authenticators) if self.version.is_5() => Some(authenticators),
            _ => None,
        }
    }

    pub(crate) fn authentication_data(&self) -> Option<&[u8]> {
        match &self.authentication.as_ref()?.how {
            How::Data(data) => data.as_ref().map(|data| &*data.0),
            How::Exchange(_) => None,
        }
    }

    /// CONNECT, with what an exchange begins with.
    pub(crate) fn connect<'a>(&'a self, data: Option<&'a [u8]>) -> Result<Connect<'a>, OptionsError> {
        let client_id = Utf8::new(&self.client_id).map_err(OptionsError::ClientId)?;
        let user_name =
            self.user_name.as_deref().map(Utf8::new).transpose().map_err(OptionsError::UserName)?;
        let password = self.password.as_ref().map(|password| Binary::new(&password.0)).transpose();
        let mut connect = Connect::new(self.version, client_id);
        connect
            .set_credentials(user_name, password.map_err(|_| OptionsError::PasswordTooLong)?)
            .map_err(|_| OptionsError::PasswordWithoutUserName)?;
        connect.clean_start = self.clean_start;
        connect.keep_alive_secs = self.keep_alive_secs;
        connect.will = self.will.as_ref().map(OwnedWill::will).transpose()?;
        if self.version.is_5() {
            connect.properties.session_expiry_interval_secs =
                Some(self.session_expiry_secs).filter(|secs| *secs > 0);
            connect.properties.receive_maximum = Some(self.receive_max);
            connect.properties.maximum_packet_bytes = self.packet_bytes_max;
            connect.properties.topic_alias_maximum = Some(self.topic_alias_max).filter(|max| *max > 0);
            connect.properties.request_response_information =
                Some(true).filter(|_| self.request_response_information);
            connect.properties.request_problem_information =
                Some(false).filter(|_| !self.request_problem_information);
            connect.properties.user_properties = self.user_properties.get();
            if let Some(Authentication { method, .. }) = &self.authentication {
                let method = Utf8::new(method).map_err(OptionsError::AuthenticationMethod)?;
                connect.properties.authentication_method = Some(method);
                let data = data.or(self.authentication_data()).map(Binary::new).transpose();
                connect.properties.authentication_data =
                    data.map_err(|_| OptionsError::AuthenticationDataTooLong)?;
            }
        }
        Ok(connect)
    }
}
