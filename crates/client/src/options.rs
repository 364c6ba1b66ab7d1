//! Options of a connection: CONNECT, and the bounds of the client.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use wire::{Binary, Connect, Packet, Role, UserProperties, Utf8, Version, Will};

use crate::authentication::{Authenticator, Authenticators};
use crate::back_off::BackOff;
use crate::error::OptionsError;
use crate::outlet::Bound;
use crate::owned::{OwnedUserProperties, OwnedWill};
use crate::routes::Bounds;
use crate::state::Trace;
use crate::store::{SessionStore, SharedStore};

/// Default of [`Options::packet_bytes_max`], and of [`Options::message_bytes_max`]: 16 MiB.
///
/// A malicious server makes each client store a packet of this size.
pub(crate) const PACKET_BYTES_MAX: NonZeroU32 = NonZeroU32::new(16 << 20).unwrap();

/// Maximum number of QoS 1 and 2 messages that wait while the client reconnects. During a connection, publishers
/// are stopped at a lower number.
const WAITING_MESSAGES_MAX: usize = 10_000;

/// Time limit for the answer to PINGREQ. With a backlog of output, the server must accept at least one byte in this
/// time.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// 30 years: longer than any wait, and small enough to be added to the clock of any system.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// Shortens a duration so that it can be added to the current time.
pub(crate) fn bounded(duration: Duration) -> Duration {
    duration.min(LONGEST)
}

/// Maximum number of messages in flight before MQTT 5, where a server can state its limit only by closing the
/// connection.
///
/// Mosquitto does so when more than its `max_inflight_messages`, 20, are in flight at QoS 2.
const INFLIGHT_MAX_3: u16 = 20;

/// Options of a connection: the fields of CONNECT (section 3.1), and the bounds of the client.
///
/// ```
/// use pondhawk_client::{Options, Version};
///
/// let options = Options::new(Version::V5)
///     .client_id("sensor-7")
///     .credentials("ann", Some(b"secret"))
///     .session_expiry_secs(3_600)
///     .clean_start(false);
/// # let _ = options;
/// ```
///
/// Times of more than 30 years are treated as 30 years.
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
    packet_bytes_max: NonZeroU32,
    topic_alias_max: u16,
    request_response_information: bool,
    request_problem_information: bool,
    authentication: Option<Authentication>,
    user_properties: OwnedUserProperties,
    inflight_max: NonZeroU16,
    pub(crate) acknowledge: Acknowledge,
    messages_max: usize,
    message_bytes_max: usize,
    drop_when_full: bool,
    pub(crate) commands_max: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) flush_timeout: Duration,
    pub(crate) reconnect: Option<BackOff>,
    pub(crate) waits_for_server: bool,
    pub(crate) store: Option<SharedStore>,
    pub(crate) trace: Option<Trace>,
}

/// The party that acknowledges received messages of QoS 1 and 2: see [`Options::acknowledge`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acknowledge {
    /// The client acknowledges each message by itself. At QoS 1 it does so when the message is taken out of its
    /// [`Messages`](crate::Messages), and at QoS 2 when the message is put in.
    #[default]
    AtOnce,
    /// The application acknowledges each message with [`Message::acknowledge`](crate::Message::acknowledge).
    ByApplication,
}

/// Bytes that debug output must not show.
#[derive(Clone)]
struct Secret(Box<[u8]>);

/// Authentication Method, and the source of its data.
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
    /// Options for a client without identifier, whose session begins empty and ends with the connection.
    ///
    /// Keep alive is 60 s. Receive Maximum is 256: at most this many QoS 1 and 2 messages are unacknowledged. The
    /// client acknowledges a message of QoS 1 when it is taken out of its [`Messages`].
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
            packet_bytes_max: PACKET_BYTES_MAX,
            topic_alias_max: 16,
            request_response_information: false,
            request_problem_information: true,
            authentication: None,
            user_properties: OwnedUserProperties::default(),
            inflight_max: NonZeroU16::new(if version.is_5() { 1_000 } else { INFLIGHT_MAX_3 })
                .unwrap_or(NonZeroU16::MIN),
            acknowledge: Acknowledge::AtOnce,
            messages_max: 256,
            message_bytes_max: 16 << 20,
            drop_when_full: false,
            commands_max: 256,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(10),
            reconnect: None,
            waits_for_server: false,
            store: None,
            trace: None,
        }
    }

    /// Sets the client identifier, which names the session. The default is empty.
    ///
    /// With an empty identifier, the server assigns one. MQTT 3.1.1 requires an identifier for a lasting session, and
    /// MQTT 3.1 always requires one.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Sets user name and password, at most 65,535 bytes each. Debug output does not show the password.
    #[must_use]
    pub fn credentials(mut self, user_name: impl Into<String>, password: Option<&[u8]>) -> Self {
        self.user_name = Some(user_name.into());
        self.password = password.map(|password| Secret(password.into()));
        self
    }

    /// Sets a password without a user name, at most 65,535 bytes. MQTT 5 only.
    #[must_use]
    pub fn password(mut self, password: &[u8]) -> Self {
        self.password = Some(Secret(password.into()));
        self
    }

    /// Sets the Authentication Method and its data in CONNECT (section 4.12), for methods without further steps.
    ///
    /// MQTT 5 only. Debug output does not show the data.
    #[must_use]
    pub fn authentication(mut self, method: impl Into<String>, data: Option<&[u8]>) -> Self {
        let how = How::Data(data.map(|data| Secret(data.into())));
        self.authentication = Some(Authentication { method: method.into(), how });
        self
    }

    /// Sets the Authentication Method, and a factory that makes an [`Authenticator`] for each connection (section
    /// 4.12).
    ///
    /// MQTT 5 only.
    ///
    /// ```
    /// use pondhawk_client::{Authenticator, Options, Version};
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

    /// Sets the User Properties of CONNECT (section 3.1.2.11.8). MQTT 5 only.
    #[must_use]
    pub fn user_properties(mut self, properties: UserProperties<'_>) -> Self {
        self.user_properties = OwnedUserProperties::new(properties);
        self
    }

    /// Requests [`Server::response_information`](crate::Server::response_information). MQTT 5 only; the default is
    /// `false`.
    #[must_use]
    pub fn request_response_information(mut self, is_asked_for: bool) -> Self {
        self.request_response_information = is_asked_for;
        self
    }

    /// Allows Reason Strings and User Properties in every packet (section 3.1.2.11.7).
    ///
    /// With `false`, the server may send these only in PUBLISH, CONNACK and DISCONNECT. MQTT 5 only; the default is
    /// `true`.
    #[must_use]
    pub fn request_problem_information(mut self, is_asked_for: bool) -> Self {
        self.request_problem_information = is_asked_for;
        self
    }

    /// Sets Clean Start, or Clean Session before MQTT 5: an earlier session is discarded. The default is `true`.
    #[must_use]
    pub fn clean_start(mut self, clean_start: bool) -> Self {
        self.clean_start = clean_start;
        self
    }

    /// Sets the time in seconds for which the session outlives its connection; [`u32::MAX`] is for ever.
    ///
    /// MQTT 5 only; the default is 0.
    #[must_use]
    pub fn session_expiry_secs(mut self, secs: u32) -> Self {
        self.session_expiry_secs = secs;
        self
    }

    /// Sets the keep alive in seconds: the longest time without a packet to the server. 0 is no limit; the default
    /// is 60.
    #[must_use]
    pub fn keep_alive_secs(mut self, secs: u16) -> Self {
        self.keep_alive_secs = secs;
        self
    }

    /// Sets the message that the server publishes when the connection ends without DISCONNECT (section 3.1.2.5).
    #[must_use]
    pub fn will(mut self, will: &Will<'_>) -> Self {
        self.will = Some(OwnedWill::new(will));
        self
    }

    /// Sets Receive Maximum: the number of QoS 1 and 2 messages that the server may send without acknowledgement.
    ///
    /// If a server sends more, the client reads more slowly, and does not disconnect. Mosquitto 2.0 sends more when it
    /// resumes a session with many messages. The server learns the value only with MQTT 5. The default is 256.
    #[must_use]
    pub fn receive_max(mut self, messages: NonZeroU16) -> Self {
        self.receive_max = messages;
        self
    }

    /// Sets Maximum Packet Size: the largest packet to accept, in bytes. The default is 16 MiB; the maximum of MQTT is
    /// 256 MiB.
    ///
    /// A larger packet ends the connection, and so does a WebSocket frame larger by more than 1 MiB. A packet other than
    /// PUBLISH may have at most 1 MiB in any case. The server learns the value only with MQTT 5.
    #[must_use]
    pub fn packet_bytes_max(mut self, bytes: NonZeroU32) -> Self {
        self.packet_bytes_max = bytes;
        self
    }

    /// Sets Topic Alias Maximum: the number of topics that the server may abbreviate. MQTT 5 only; the default is 16.
    #[must_use]
    pub fn topic_alias_max(mut self, aliases: u16) -> Self {
        self.topic_alias_max = aliases;
        self
    }

    /// Sets the maximum number of QoS 1 and 2 messages in flight to the server.
    ///
    /// The server's Receive Maximum is a further limit. The default is 1,000 with MQTT 5. Before MQTT 5, where
    /// servers cannot state a limit, the default is 20.
    #[must_use]
    pub fn inflight_max(mut self, messages: NonZeroU16) -> Self {
        self.inflight_max = messages;
        self
    }

    /// Sets the party that acknowledges messages of QoS 1 and 2: the client, which is the default, or the application.
    ///
    /// The client acknowledges a message of QoS 1 when it is taken out of its [`Messages`], and a message of QoS 2
    /// when it is put in. The application acknowledges with [`Message::acknowledge`].
    ///
    /// At QoS 2, a message is *accepted* exactly once. With [`Acknowledge::ByApplication`], a message that was not
    /// acknowledged before the connection ended arrives again on the next connection, even at QoS 2. Acknowledgements
    /// of messages from an earlier connection have no effect. An application that must not act twice has to record its
    /// actions, or leave the acknowledgement to the client.
    ///
    /// [`Messages`]: crate::Messages
    /// [`Message::acknowledge`]: crate::Message::acknowledge
    #[must_use]
    pub fn acknowledge(mut self, acknowledge: Acknowledge) -> Self {
        self.acknowledge = acknowledge;
        self
    }

    /// Sets the maximum number of messages that a stream stores: at least 1, at most [`usize::MAX`] / 8. The
    /// default is 256.
    #[must_use]
    pub fn messages_max(mut self, messages: usize) -> Self {
        self.messages_max = messages.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the maximum total size, in bytes, of the messages that a stream stores. One further message may exceed this
    /// maximum.
    ///
    /// The same bound applies to the messages that wait behind all full streams together, and to the messages for which
    /// there is no stream. The default is 16 MiB.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes.max(1);
        self
    }

    /// Drops messages of QoS 0 whose stream is full, so that they do not hold up the messages behind them.
    ///
    /// The drops are [counted](crate::Messages::dropped): see [the crate](crate#back-pressure). The default is `false`.
    #[must_use]
    pub fn drop_when_full(mut self, is_dropped: bool) -> Self {
        self.drop_when_full = is_dropped;
        self
    }

    /// Sets the maximum number of operations that are queued for the driver: at least 1, at most [`usize::MAX`] / 8.
    ///
    /// Further operations wait. The default is 256.
    #[must_use]
    pub fn commands_max(mut self, commands: usize) -> Self {
        self.commands_max = commands.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the time limit for the transport, and for the answer to CONNECT. The default is 10 s for each.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = bounded(timeout);
        self
    }

    /// Sets the time limit for the answers to SUBSCRIBE, UNSUBSCRIBE and a reauthentication. The default is 10 s.
    ///
    /// When the time is over, the connection is closed.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = bounded(timeout);
        self
    }

    /// Sets the time limit for pending acknowledgements in [`disconnect`](crate::Client::disconnect). The default
    /// is 10 s.
    ///
    /// The limit also applies after the last handle was dropped.
    #[must_use]
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.flush_timeout = bounded(timeout);
        self
    }

    /// Reconnects after the connection is lost, with the `connect` functions that can reconnect.
    ///
    /// The first delay is a random time between half of `first` and `first`, which is at least 10 ms. The bound
    /// doubles with each failed attempt, up to `max`. A connection that did not last for `max` counts as failed, so
    /// that a server that accepts and closes connections is not flooded with attempts. See [the
    /// crate](crate#reconnecting). By default the client does not reconnect.
    #[must_use]
    pub fn reconnect(mut self, first: Duration, max: Duration) -> Self {
        self.reconnect = Some(BackOff::new(bounded(first), bounded(max)));
        self
    }

    /// Also waits for the first connection, as the client does for later ones: with [`reconnect`](Self::reconnect), the
    /// `connect` functions try until the server accepts the client, or refuses it for a permanent reason.
    ///
    /// The default is `false`: the `connect` functions return the error of the first attempt. A caller that must not wait
    /// for ever sets a time limit with [`tokio::time::timeout`].
    #[must_use]
    pub fn wait_for_server(mut self, waits: bool) -> Self {
        self.waits_for_server = waits;
        self
    }

    /// Stores the session in `store`, so that it outlives the program, and sets [`clean_start`](Self::clean_start) to
    /// `false`.
    ///
    /// The first connection continues the stored session: messages of QoS 1 and 2 without an acknowledgement are sent
    /// again. The server must have the session too: with MQTT 5, set
    /// [`session_expiry_secs`](Self::session_expiry_secs). If the server has lost the session, messages of QoS 1 are
    /// published anew, and messages of QoS 2 that had been sent are [counted](crate::Client::restored_lost). A store
    /// belongs to one client identifier. If the server has assigned the identifier, the next program uses the same
    /// identifier.
    ///
    /// The application subscribes again: streams do not outlive the program. `clean_start(true)` after this call discards
    /// the stored session.
    ///
    /// No packet leaves before the changes that belong to it are in the store. This takes one to ten milliseconds on a
    /// disk. Messages that are published together are stored together.
    ///
    /// Clones of these options share the store, and one connection at a time can use it. A second connection waits for
    /// [`connect_timeout`](Self::connect_timeout), and then fails.
    #[must_use]
    pub fn session_store(mut self, store: impl SessionStore) -> Self {
        self.store = Some(SharedStore::new(store));
        self.clean_start = false;
        self
    }

    /// Passes each sent and received packet to `trace`, together with its sender. [`Role::Client`] is this client.
    ///
    /// The task that drives the connection calls `trace`, and waits until it returns. A [`Packet`] prints itself on
    /// one line, without passwords:
    ///
    /// ```
    /// use pondhawk_client::{Options, Role, Version};
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

    /// Bounds of the state machine. It never acknowledges by itself, because messages are acknowledged when they
    /// are taken.
    pub(crate) fn settings(&self) -> session::client::Settings {
        session::client::Settings {
            acknowledge: session::client::Acknowledge::ByApplication,
            inflight_max: self.inflight_max.get(),
            waiting_messages_max: WAITING_MESSAGES_MAX,
            receive_excess_max: u16::MAX,
            connect_timeout_ms: u64::try_from(self.connect_timeout.as_millis()).unwrap_or(u64::MAX / 2),
            ping_timeout_ms: u64::try_from(PING_TIMEOUT.as_millis()).unwrap_or(u64::MAX / 2),
            ..session::client::Settings::default()
        }
    }

    /// The largest packet that the server may send.
    pub(crate) fn largest_packet_bytes(&self) -> NonZeroU32 {
        self.packet_bytes_max
    }

    /// Bound of each stream.
    pub(crate) fn stream_bound(&self) -> Bound {
        Bound { messages: self.messages_max, bytes: self.message_bytes_max }
    }

    /// Bounds of the messages that were received and not taken.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            held_max: self.receive_max.get().into(),
            held_bytes_max: self.message_bytes_max,
            drops_when_full: self.drop_when_full,
        }
    }

    /// CONNECT after a lost connection.
    ///
    /// With MQTT 5, Clean Start is 0, so that a session that outlives its connection goes on. Before MQTT 5, the
    /// flag also decides whether the session outlives its connection, and stays unchanged.
    pub(crate) fn connect_again<'a>(&'a self, data: Option<&'a [u8]>) -> Result<Connect<'a>, OptionsError> {
        let mut connect = self.connect(data)?;
        connect.clean_start &= !self.version.is_5();
        Ok(connect)
    }

    /// Client identifier, which may be empty.
    pub(crate) fn name(&self) -> &str {
        &self.client_id
    }

    pub(crate) fn rename(&mut self, client_id: &str) {
        client_id.clone_into(&mut self.client_id);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.clean_start
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

    /// CONNECT with the first authentication data of an exchange.
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
            connect.properties.maximum_packet_bytes = Some(self.packet_bytes_max);
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
