//! The handle: what an application calls.

use std::io;
#[cfg(unix)]
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context as Task, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use session::Now;
use session::client::Outgoing;
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::{mpsc, oneshot, watch};
use topic::TopicFilter;
use wire::{
    Delivery, Disconnect, DisconnectReason, PacketId, Publish, Qos, ReasonCode, SubscribeProperties,
    SubscriptionOptions, UnsubscribeProperties,
};

use crate::command::{Command, End};
use crate::dial;
use crate::driver::{Asked, Driver};
use crate::endpoint::Endpoint;
use crate::error::{
    AuthenticateError, ConnectError, DisconnectError, Ended, PublishError, SubscribeError, UnsubscribeError,
};
use crate::inbox::Inbox;
use crate::message::Messages;
use crate::options::Options;
use crate::outlet::Outlet;
use crate::owned::{OwnedDisconnect, OwnedSubscribe, OwnedUnsubscribe};
use crate::server::Server;
use crate::state::State;

/// A connection to a server. Clones are cheap, and speak for the same session.
///
/// When the last one is dropped, what was asked for is still sent, and then DISCONNECT.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    ends: mpsc::Sender<End>,
    shared: Arc<Shared>,
}

/// What handles and driver have in common.
#[derive(Debug)]
struct Shared {
    /// As it was at first.
    server: Arc<Server>,
    state: watch::Receiver<State>,
    ended: Arc<OnceLock<Ended>>,
    messages_max: usize,
}

/// The answer to a PUBLISH that comes. To drop it takes nothing back.
///
/// It resolves to the reason: Success, or No matching subscribers (0x10); at QoS 0, where nobody answers, to Success
/// when the message is handed to the connection.
#[derive(Debug)]
#[must_use = "a message of QoS 1 or 2 is the server's when this resolves, and not before"]
pub struct Acknowledgement {
    answer: oneshot::Receiver<Result<ReasonCode, PublishError>>,
    shared: Arc<Shared>,
}

impl Client {
    /// Connects over TCP, as to `"localhost:1883"`; and again, with [`Options::reconnect`].
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect_tcp<A>(address: A, options: Options) -> Result<Self, ConnectError>
    where
        A: ToSocketAddrs + Clone + Send + Sync + 'static,
    {
        let connector = move || {
            let address = address.clone();
            Box::pin(async move {
                let stream = TcpStream::connect(address).await?;
                // The driver writes as much as there is at a time.
                stream.set_nodelay(true)?;
                Ok(stream)
            }) as Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>
        };
        Self::connect_by(connector, options).await
    }

    /// Connects over a socket of this machine; and again, with [`Options::reconnect`].
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    #[cfg(unix)]
    pub async fn connect_unix(path: impl Into<PathBuf>, options: Options) -> Result<Self, ConnectError> {
        let path = path.into();
        Self::connect_by(move || UnixStream::connect(path.clone()), options).await
    }

    /// Connects to a server, through all layers of the [`Endpoint`]; and again, with [`Options::reconnect`].
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

    /// Connects over what `connector` gives; and again, with [`Options::reconnect`]. The first attempt is the only one
    /// whose failure is returned.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect_by<C, F, S>(mut connector: C, options: Options) -> Result<Self, ConnectError>
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

    /// Connects over anything that takes and gives bytes in order, and returns when the server has accepted. On a tokio
    /// runtime, where the driver becomes a task. It ends with the stream.
    ///
    /// # Errors
    /// [`ConnectError`]; then there is no connection.
    pub async fn connect<S>(stream: S, options: Options) -> Result<Self, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::drive(options, |driver| drop(tokio::spawn(driver.run(stream)))).await
    }

    async fn drive(options: Options, spawn: impl FnOnce(Driver)) -> Result<Self, ConnectError> {
        let (commands, asked) = mpsc::channel(options.commands_max);
        // The first one counts.
        let (ends, ending) = mpsc::channel(1);
        let (accepted, answer) = oneshot::channel();
        let ended = Arc::new(OnceLock::new());
        let messages_max = options.messages_max;
        spawn(Driver::new(options, Asked { commands: asked, ends: ending }, accepted, Arc::clone(&ended))?);
        let (server, state) = answer.await.map_err(|_| ConnectError::Ended(why(&ended)))??;
        Ok(Self { commands, ends, shared: Arc::new(Shared { server, state, ended, messages_max }) })
    }

    /// Where the connection stands, and how that changes.
    ///
    /// ```no_run
    /// # use client::{Client, State};
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

    /// What the server said when it accepted the first connection; what it said on a later one is in
    /// [`state`](Self::state).
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.shared.server
    }

    /// Why the connection is over; `None` while it is not.
    #[must_use]
    pub fn ended(&self) -> Option<&Ended> {
        self.shared.ended.get()
    }

    /// Publishes a message: returns when it is queued, and the [`Acknowledgement`] resolves when the server has it. An
    /// expiry interval begins now. Messages of one handle go out in the order of these calls.
    ///
    /// # Errors
    /// [`PublishError::Ended`]; then it is not published. What else can go wrong, the acknowledgement says.
    pub async fn publish(&self, outgoing: &Outgoing<'_>) -> Result<Acknowledgement, PublishError> {
        let (reply, answer) = oneshot::channel();
        let message = owned(outgoing);
        let sent = self.commands.send(Command::Publish { message, reply }).await;
        sent.map_err(|_| PublishError::Ended(self.why()))?;
        Ok(Acknowledgement { answer, shared: Arc::clone(&self.shared) })
    }

    /// Subscribes, and returns when the server has accepted it.
    ///
    /// # Errors
    /// [`SubscribeError`]; then there is no subscription.
    pub async fn subscribe(&self, filter: TopicFilter<'_>, qos: Qos) -> Result<Messages, SubscribeError> {
        self.subscribe_with(filter, SubscriptionOptions { qos, ..SubscriptionOptions::default() }).await
    }

    /// Subscribes with options (section 3.8.3.1): those other than QoS are MQTT 5's. A message that matches several
    /// subscriptions comes in each of their streams.
    ///
    /// # Errors
    /// [`SubscribeError`]; then there is no subscription.
    pub async fn subscribe_with(
        &self,
        filter: TopicFilter<'_>,
        options: SubscriptionOptions,
    ) -> Result<Messages, SubscribeError> {
        self.subscribe_for(filter, options, false).await
    }

    pub(crate) async fn subscribe_for(
        &self,
        filter: TopicFilter<'_>,
        options: SubscriptionOptions,
        is_for_answers: bool,
    ) -> Result<Messages, SubscribeError> {
        let (reply, answer) = oneshot::channel();
        let filter = filter.into();
        let sent = self.commands.send(Command::Subscribe { filter, options, is_for_answers, reply }).await;
        sent.map_err(|_| SubscribeError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(SubscribeError::Ended(self.why())))
    }

    /// Ends a subscription; its [`Messages`] end after what has come. It does not matter whether there was one: the
    /// reason says so, from MQTT 5 on.
    ///
    /// # Errors
    /// [`UnsubscribeError`].
    pub async fn unsubscribe(&self, filter: TopicFilter<'_>) -> Result<ReasonCode, UnsubscribeError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Unsubscribe { filter: filter.into(), reply }).await;
        sent.map_err(|_| UnsubscribeError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(UnsubscribeError::Ended(self.why())))
    }

    /// Everything that comes and belongs to no other stream, from now on; what has come at QoS 1 and 2 and nobody has
    /// claimed yet is in it too. The inbox that there was ends.
    ///
    /// # Errors
    /// [`SubscribeError::Ended`].
    pub async fn inbox(&self) -> Result<Inbox, SubscribeError> {
        let (outlet, inlet) = Outlet::new(self.shared.messages_max);
        let sent = self.commands.send(Command::Inbox(outlet)).await;
        sent.map_err(|_| SubscribeError::Ended(self.why()))?;
        Ok(Inbox::new(inlet))
    }

    /// Subscribes to several filters with one packet (section 3.8), and returns what the server says of each. Their messages
    /// come in the [inbox](Self::inbox): ask for it before.
    ///
    /// # Errors
    /// [`SubscribeError`]; then nothing is subscribed to. That the server refuses a filter is no error.
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

    /// Ends several subscriptions with one packet (section 3.10), also those that an earlier connection has left, and
    /// returns what the server says of each; before MQTT 5 it says nothing.
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

    /// Begins the authentication of this connection anew (section 4.12.1), with the method of CONNECT, and returns when the
    /// server is content. If it is not, it ends the connection. One at a time: another that is asked for meanwhile is
    /// refused ([`NotOurTurn`](session::client::RequestError::NotOurTurn)).
    ///
    /// # Errors
    /// [`AuthenticateError`].
    pub async fn reauthenticate(&self) -> Result<(), AuthenticateError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Reauthenticate(reply)).await;
        sent.map_err(|_| AuthenticateError::Ended(self.why()))?;
        answer.await.unwrap_or_else(|_| Err(AuthenticateError::Ended(self.why())))
    }

    /// Ends the connection: sends what is queued, waits until all of it is acknowledged, sends DISCONNECT, and closes.
    /// The server forgets the will. From now on nothing more is taken; what has not had room in the queue is refused.
    ///
    /// It ends within [`Options::flush_timeout`], and a second in which the last bytes leave, whatever the server does. If
    /// there is no connection just now, and there is something to deliver, another is tried for in that time, at once, if
    /// the client [reconnects](Options::reconnect).
    ///
    /// # Errors
    /// [`DisconnectError`]; the connection is over nevertheless.
    pub async fn disconnect(&self) -> Result<(), DisconnectError> {
        self.disconnect_with(&Disconnect::new(DisconnectReason::NormalDisconnection)).await
    }

    /// [Disconnects](Self::disconnect) with a reason and with properties (section 3.14.2.2), which are MQTT 5's: another
    /// Session Expiry Interval, in seconds, or [`DisconnectReason::DisconnectWithWillMessage`], after which the server
    /// publishes the will.
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

/// The driver says why before it goes; it is gone without a word only if its runtime is.
fn why(ended: &OnceLock<Ended>) -> Ended {
    ended.get().cloned().unwrap_or(Ended::ByUs)
}

/// The message as it waits for the driver, in one piece of memory.
fn owned(outgoing: &Outgoing<'_>) -> session::Message {
    let delivery = match outgoing.qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        // The identifier is the driver's to choose; a message has none.
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: PacketId::MIN, dup: false },
    };
    let publish = Publish {
        delivery,
        retain: outgoing.retain,
        properties: outgoing.properties,
        ..Publish::new(outgoing.topic, outgoing.payload)
    };
    let now = Now { monotonic_ms: 0, unix_ms: unix_ms() };
    session::Message::new(outgoing.topic, &publish, None, now)
}

/// The wall clock; before 1970 it is 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
