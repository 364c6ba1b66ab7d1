//! The handle through which an application uses a connection.

use std::io;
#[cfg(unix)]
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context as Task, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use base::{Content, Message, Now};
use session::client::Outgoing;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::{mpsc, oneshot, watch};
use topic::TopicFilter;
use wire::{
    Disconnect, DisconnectReason, Qos, ReasonCode, SubscribeProperties, SubscriptionOptions,
    UnsubscribeProperties,
};

use crate::command::{Command, End, Unwanted};
use crate::counters::Counters;
use crate::dial;
use crate::driver::{Asked, Driver};
use crate::endpoint::Endpoint;
use crate::error::{
    AuthenticateError, ConnectError, DisconnectError, Ended, PublishError, SubscribeError, UnsubscribeError,
};
use crate::inbox::Inbox;
use crate::message::Messages;
use crate::options::Options;
use crate::outlet::{Bound, Outlet};
use crate::owned::{OwnedDisconnect, OwnedSubscribe, OwnedUnsubscribe};
use crate::routes::Number;
use crate::server::Server;
use crate::state::State;

/// A connection to a server. Clones are cheap, and belong to the same session.
///
/// When the last clone is dropped, the client still sends everything that was queued, and then DISCONNECT.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    ends: mpsc::Sender<End>,
    unwanted: Unwanted,
    shared: Arc<Shared>,
}

/// State that the handles and the driver share.
#[derive(Debug)]
struct Shared {
    /// CONNACK of the first connection.
    server: Arc<Server>,
    state: watch::Receiver<State>,
    ended: Arc<OnceLock<Ended>>,
    bound: Bound,
    counters: Arc<Counters>,
}

/// The server's answer to a PUBLISH. Dropping this future does not cancel the message.
///
/// The future resolves to the reason: Success, or No matching subscribers (0x10). At QoS 0 the server does not
/// answer, and the future resolves to Success when the message is handed to the connection.
#[derive(Debug)]
#[must_use = "a message of QoS 1 or 2 is the server's when this resolves, and not before"]
pub struct Acknowledgement {
    answer: oneshot::Receiver<Result<ReasonCode, PublishError>>,
    shared: Arc<Shared>,
}

impl Client {
    /// Connects over TCP to an address such as `"localhost:1883"`. With [`Options::reconnect`], also reconnects.
    ///
    /// Errors name the address as its [`Debug`](std::fmt::Debug) shows it, or the IP address that did not answer.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect_tcp<A>(address: A, options: Options) -> Result<Self, ConnectError>
    where
        A: ToSocketAddrs + std::fmt::Debug + Clone + Send + Sync + 'static,
    {
        let connector = move || {
            let address = address.clone();
            Box::pin(async move {
                // Nagle's algorithm would only add delay: the driver already writes as much as possible at a time.
                dial::tcp_to(&address).await
            }) as Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>
        };
        Self::connect_by(connector, options).await
    }

    /// Connects over a Unix domain socket. With [`Options::reconnect`], also reconnects.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    #[cfg(unix)]
    pub async fn connect_unix(path: impl Into<PathBuf>, options: Options) -> Result<Self, ConnectError> {
        Self::connect_to(Endpoint::unix(path), options).await
    }

    /// Connects to a server through all layers of the [`Endpoint`]. With [`Options::reconnect`], also reconnects.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect_to(endpoint: Endpoint, options: Options) -> Result<Self, ConnectError> {
        let (endpoint, packet_bytes_max) = (Arc::new(endpoint), options.largest_packet_bytes());
        let connector = move || {
            let endpoint = Arc::clone(&endpoint);
            async move { dial::connect(&endpoint, packet_bytes_max).await }
        };
        Self::connect_by(connector, options).await
    }

    /// Connects over the stream that `connector` returns. With [`Options::reconnect`], also reconnects.
    ///
    /// Only a failure of the first attempt is returned as an error. With [`Options::wait_for_server`], only a permanent
    /// refusal is returned as an error.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect_by<C, F, S>(connector: C, options: Options) -> Result<Self, ConnectError>
    where
        C: FnMut() -> F + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let Some(back_off) = options.reconnect.filter(|_| options.waits_for_server) else {
            return Self::connect_once(connector, options).await;
        };
        // Each attempt has a driver of its own, and the last one keeps the connector.
        let connector = Arc::new(Mutex::new(connector));
        let mut attempts = 0_u32;
        loop {
            let connector = Arc::clone(&connector);
            let next = move || (connector.lock().unwrap_or_else(PoisonError::into_inner))();
            match Self::connect_once(next, options.clone()).await {
                Err(error) if error.may_pass() => {
                    tokio::time::sleep(back_off.delay(attempts)).await;
                    attempts = attempts.saturating_add(1);
                }
                outcome => return outcome,
            }
        }
    }

    async fn connect_once<C, F, S>(mut connector: C, options: Options) -> Result<Self, ConnectError>
    where
        C: FnMut() -> F + Send + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let stream = tokio::time::timeout(options.connect_timeout, connector()).await;
        let timed_out = |_| ConnectError::Ended(Ended::TimedOut(session::client::TimedOut::Connect));
        let stream = stream.map_err(timed_out)??;
        let back_off = options.reconnect;
        Self::drive(options, |driver| {
            match back_off {
                Some(back_off) => tokio::spawn(driver.run_again(stream, connector, back_off)),
                None => tokio::spawn(driver.run(stream)),
            };
        })
        .await
    }

    /// Connects over any ordered stream of bytes, and returns when the server has accepted the connection.
    ///
    /// The caller must run on a tokio runtime, on which the driver becomes a task. The driver ends with the stream
    /// and does not reconnect.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect<S>(stream: S, options: Options) -> Result<Self, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::drive(options, |driver| drop(tokio::spawn(driver.run(stream)))).await
    }

    async fn drive(mut options: Options, spawn: impl FnOnce(Driver)) -> Result<Self, ConnectError> {
        let restored = options.restore().await?;
        let (commands, asked) = mpsc::channel(options.commands_max);
        // One place is enough, because only the first request to end the connection counts.
        let (ends, ending) = mpsc::channel(1);
        let (unwanted, ended_subscriptions) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let (accepted, answer) = oneshot::channel();
        let ended = Arc::new(OnceLock::new());
        let bound = options.stream_bound();
        let asked = Asked {
            commands: asked,
            ends: ending,
            unwanted: ended_subscriptions,
            unwanted_sender: unwanted.clone(),
        };
        let (end, count) = (Arc::clone(&ended), Arc::clone(&counters));
        spawn(Driver::new(options, asked, accepted, (end, count), restored)?);
        let (server, state) = answer.await.map_err(|_| ConnectError::Ended(why(&ended)))??;
        let shared = Arc::new(Shared { server, state, ended, bound, counters });
        Ok(Self { commands, ends, unwanted, shared })
    }

    /// The state of the connection, as a channel that reports each change.
    ///
    /// ```no_run
    /// # use pondhawk_client::{Client, State};
    /// # async fn watch(client: Client) {
    /// let mut state = client.state();
    /// while state.changed().await.is_ok() {
    ///     match &*state.borrow_and_update() {
    ///         State::Connected(server) => println!("connected; session present: {}", server.session_present),
    ///         State::Reconnecting(why) => println!("{why}; trying again"),
    ///         State::Ended(why) => println!("{why}"),
    ///         _ => {}
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.shared.state.clone()
    }

    /// The server's CONNACK on the first connection. [`state`](Self::state) has the CONNACK of later connections.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.shared.server
    }

    /// The reason for the end of the connection; `None` until the client has ended.
    #[must_use]
    pub fn ended(&self) -> Option<&Ended> {
        self.shared.ended.get()
    }

    /// Number of messages of QoS 1 and 2 for which there was no stream, and which were dropped because too many were
    /// waiting for one.
    ///
    /// The bound is [`Options::message_bytes_max`]. The dropped messages were the oldest, and were accepted.
    #[must_use]
    pub fn unclaimed_dropped(&self) -> u64 {
        self.shared.counters.unclaimed()
    }

    /// Number of messages that the application took and dropped without acknowledging or refusing them.
    ///
    /// This is an error of the application: with [`Acknowledge::ByApplication`](crate::Acknowledge::ByApplication), the
    /// acknowledgements of later messages wait behind such a message until the connection ends.
    #[must_use]
    pub fn unacknowledged_dropped(&self) -> u64 {
        self.shared.counters.unacknowledged()
    }

    /// Number of messages of earlier programs, from the [session store](Options::session_store), that were lost: the server
    /// has refused them, or has perhaps not received them.
    ///
    /// There are two causes: the server lost the session of a message of QoS 2 before PUBREC, or the server does not
    /// allow the QoS, the size or RETAIN of a message.
    #[must_use]
    pub fn restored_lost(&self) -> u64 {
        self.shared.counters.restored()
    }

    /// Waits until all messages of QoS 1 and 2 that this handle has published are in the
    /// [session store](Options::session_store). From then on, they outlive the program.
    ///
    /// Without a session store, waits until the driver has accepted the messages.
    ///
    /// # Errors
    /// The reason for the end of the client. The messages may not be in the store.
    pub async fn stored(&self) -> Result<(), Ended> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Stored(reply)).await.map_err(|_| self.why())?;
        answer.await.map_err(|_| self.why())
    }

    /// Publishes a message, and returns when the message is queued.
    ///
    /// The [`Acknowledgement`] resolves when the server has the message. A Message Expiry Interval begins with this
    /// call. Messages of one handle are sent in the order of these calls.
    ///
    /// # Errors
    /// [`PublishError::Ended`]; then the message is not published. The acknowledgement reports every other error.
    pub async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<Acknowledgement, PublishError> {
        let (reply, answer) = oneshot::channel();
        let message = owned(outgoing);
        let sent = self.commands.send(Command::Publish { message, reply }).await;
        sent.map_err(|_| PublishError::Ended(self.why()))?;
        Ok(Acknowledgement { answer, shared: Arc::clone(&self.shared) })
    }

    /// Subscribes to one filter, and returns when the server has accepted the subscription.
    ///
    /// # Errors
    /// [`SubscribeError`]; then there is no subscription.
    pub async fn subscribe(&self, filter: TopicFilter<'_>, qos: Qos) -> Result<Messages, SubscribeError> {
        self.subscribe_with(filter, SubscriptionOptions { qos, ..SubscriptionOptions::default() }).await
    }

    /// Subscribes to one filter with options (section 3.8.3.1). Options other than QoS need MQTT 5.
    ///
    /// A message that matches several subscriptions arrives in the stream of each.
    ///
    /// # Errors
    /// [`SubscribeError`]; then there is no subscription.
    pub async fn subscribe_with(
        &self,
        filter: TopicFilter<'_>,
        options: SubscriptionOptions,
    ) -> Result<Messages, SubscribeError> {
        self.subscribe_for(filter, options, false).await.map(|(messages, _)| messages)
    }

    pub(crate) async fn subscribe_for(
        &self,
        filter: TopicFilter<'_>,
        options: SubscriptionOptions,
        is_for_answers: bool,
    ) -> Result<(Messages, Number), SubscribeError> {
        let (reply, answer) = oneshot::channel();
        let filter = filter.into();
        let sent = self.commands.send(Command::Subscribe { filter, options, is_for_answers, reply }).await;
        sent.map_err(|_| SubscribeError::Ended(self.why()))?;
        let ended = || SubscribeError::Ended(self.why());
        let granted = answer.await.unwrap_or_else(|_| Err(ended()))?;
        granted.take().ok_or_else(ended)
    }

    /// Ends a subscription that nobody wants any more, without waiting.
    pub(crate) fn forget(&self, number: Number) {
        // Without a driver there is no subscription.
        let _ = self.unwanted.send(number);
    }

    /// Ends a subscription. Its [`Messages`] end after the messages that have already arrived.
    ///
    /// A missing subscription is no error. From MQTT 5 on, the returned reason says whether there was one.
    ///
    /// # Errors
    /// [`UnsubscribeError`].
    pub async fn unsubscribe(&self, filter: TopicFilter<'_>) -> Result<ReasonCode, UnsubscribeError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Unsubscribe { filter: filter.into(), reply }).await;
        sent.map_err(|_| UnsubscribeError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(UnsubscribeError::Ended(self.why())))
    }

    /// Opens the inbox: one stream for all messages that belong to no other stream.
    ///
    /// The inbox begins with unclaimed messages of QoS 1 and 2 that have already arrived. An earlier inbox ends.
    ///
    /// # Errors
    /// [`SubscribeError::Ended`].
    pub async fn inbox(&self) -> Result<Inbox, SubscribeError> {
        let (outlet, inlet) = Outlet::new(self.shared.bound);
        let sent = self.commands.send(Command::Inbox(outlet)).await;
        sent.map_err(|_| SubscribeError::Ended(self.why()))?;
        Ok(Inbox::new(inlet))
    }

    /// Subscribes to several filters with one packet (section 3.8), and returns the server's reason for each.
    ///
    /// The messages arrive in the [inbox](Self::inbox), which should be opened first.
    ///
    /// # Errors
    /// [`SubscribeError`]; then nothing is subscribed to. A filter that the server refuses is no error.
    pub async fn subscribe_many(
        &self,
        filters: &[(TopicFilter<'_>, SubscriptionOptions)],
        properties: &SubscribeProperties<'_>,
    ) -> Result<Vec<ReasonCode>, SubscribeError> {
        let (reply, answer) = oneshot::channel();
        let subscribe = OwnedSubscribe::new(filters, properties);
        let sent = self.commands.send(Command::SubscribeMany { subscribe, reply }).await;
        sent.map_err(|_| SubscribeError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(SubscribeError::Ended(self.why())))
    }

    /// Ends several subscriptions with one packet (section 3.10), and returns the server's reason for each.
    ///
    /// Subscriptions of an earlier connection can be ended too. Before MQTT 5 the server sends no reasons, and the
    /// list is empty.
    ///
    /// # Errors
    /// [`UnsubscribeError`].
    pub async fn unsubscribe_many(
        &self,
        filters: &[TopicFilter<'_>],
        properties: &UnsubscribeProperties<'_>,
    ) -> Result<Vec<ReasonCode>, UnsubscribeError> {
        let (reply, answer) = oneshot::channel();
        let unsubscribe = OwnedUnsubscribe::new(filters, properties);
        let sent = self.commands.send(Command::UnsubscribeMany { unsubscribe, reply }).await;
        sent.map_err(|_| UnsubscribeError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(UnsubscribeError::Ended(self.why())))
    }

    /// Authenticates this connection anew (section 4.12.1), and returns when the server has accepted the client.
    ///
    /// The method is that of CONNECT. A server that does not accept the client ends the connection. Only one
    /// reauthentication may be under way: a second one is refused with
    /// [`NotOurTurn`](session::client::RequestError::NotOurTurn).
    ///
    /// # Errors
    /// [`AuthenticateError`].
    pub async fn reauthenticate(&self) -> Result<(), AuthenticateError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Reauthenticate(reply)).await;
        sent.map_err(|_| AuthenticateError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(AuthenticateError::Ended(self.why())))
    }

    /// Ends the connection after all queued messages have been sent and acknowledged.
    ///
    /// The client sends DISCONNECT and closes the connection, and the server discards the will. From this call on
    /// the client accepts no more operations, and refuses those that are waiting for room in the queue.
    ///
    /// The call returns within [`Options::flush_timeout`] plus one second for the last bytes, whatever the server
    /// does. If the connection is lost when `disconnect` is called, and messages remain to be delivered, a client that
    /// [reconnects](Options::reconnect) tries to reconnect at once, within the same time.
    ///
    /// # Errors
    /// [`DisconnectError`]; the connection is over nevertheless.
    pub async fn disconnect(&self) -> Result<(), DisconnectError> {
        self.disconnect_with(&Disconnect::new(DisconnectReason::NormalDisconnection)).await
    }

    /// [Disconnects](Self::disconnect) with a reason and with properties (section 3.14.2.2), which need MQTT 5.
    ///
    /// Examples are another Session Expiry Interval, in seconds, and
    /// [`DisconnectReason::DisconnectWithWillMessage`], after which the server publishes the will.
    ///
    /// # Errors
    /// [`DisconnectError`]; the connection is over nevertheless.
    pub async fn disconnect_with(&self, packet: &Disconnect<'_>) -> Result<(), DisconnectError> {
        let (reply, answer) = oneshot::channel();
        let packet = OwnedDisconnect::new(packet);
        let sent = self.ends.send(End { packet, reply }).await;
        sent.map_err(|_| DisconnectError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(DisconnectError::Ended(self.why())))
    }

    fn why(&self) -> Ended {
        why(&self.shared.ended)
    }
}

impl Future for Acknowledgement {
    type Output = Result<ReasonCode, PublishError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(task);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(PublishError::Ended(why(&self.shared.ended)))))
    }
}

/// Returns the reason that the driver stored before it ended. A driver stores none if its runtime is shut down.
fn why(ended: &OnceLock<Ended>) -> Ended {
    ended.get().cloned().unwrap_or(Ended::ByUs)
}

/// Copies the message into one piece of memory, for the queue to the driver.
fn owned(outgoing: &Outgoing<'_>) -> Message {
    let &Outgoing { topic, payload, qos, retain, ref properties, .. } = outgoing;
    let content = Content { topic, properties, payload, qos, retain };
    Message::of_content(&content, None, Now { monotonic_ms: 0, unix_ms: unix_ms() })
}

/// Unix time in milliseconds; 0 if the clock is set before 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
