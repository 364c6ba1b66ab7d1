//! The client's part of a session: connect, publish, subscribe, and go on after a connection was lost.
//!
//! A [`Client`] takes what its application wants and the packets of its server, and writes the packets that follow to a
//! buffer of the caller, who owns socket and clock:
//!
//! ```
//! use base::Now;
//! use pondhawk_session::client::{Client, Event, Outgoing, Settings};
//! use wire::{Connect, ConnAck, Qos, Utf8, Version};
//!
//! let now = Now { monotonic_ms: 0, unix_ms: 0 };
//! let mut out = Vec::new();
//! let mut client: Client<&str> = Client::new(Settings::default());
//! client.connect(&Connect::new(Version::V5, Utf8::new("sensor-7")?), now, &mut out)?;
//!
//! // The server answers.
//! let event = client.handle_packet(ConnAck::accepted(false).into(), now, &mut out)?;
//! assert!(matches!(event, Event::Connected { .. }));
//!
//! let reading = Outgoing::new(topic::topic!("t"), b"21.5").qos(Qos::AtLeastOnce);
//! client.publish(&reading, "the first reading", now, &mut out)?;
//! assert_eq!(client.in_flight(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Whose fault
//! What the server does wrong is a [`Violation`]: [`Client::answer`] tells it, and the connection ends. What the
//! application asks for and cannot have is the error of its own call, and nothing happens.
//!
//! # Sessions that outlive the process
//! [`Client::stored`] is what must be kept, [`Client::restore`] goes on with it. For QoS 2 to be exactly once across a
//! crash, the bytes that a call writes may leave only when what that call changed is on disk: what follows from them
//! cannot be taken back.

mod authentication;
mod connection;
mod error;
mod inherited;
mod packet;
mod publish;
mod request;
mod stored;

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Message, Ticket};
use topic::TopicName;
use wire::{
    AckProperties, Binary, ConnAckProperties, ConnectRefusal, Disconnect, MessageProperties, PacketId, Qos,
    ReasonCode, SubAck, UnsubAck, Violation,
};

use crate::Incoming;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::waiting::WaitingQueue;

pub use error::{ConnectError, DisconnectError, PublishError, RequestError, TimedOut};
pub use stored::{Stored, StoredMessage, UnderWay};

use connection::Link;
use inherited::Inherited;
use publish::Sent;

/// The bounds of a client, and how it acknowledges.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who says that a message has been accepted.
    pub acknowledge: Acknowledge,
    /// So many messages of QoS 1 and 2 are under way to the server at a time, if it takes as many. At least 1.
    pub inflight_max: u16,
    /// So many messages may wait behind them, or for a connection.
    pub waiting_messages_max: usize,
    /// So many bytes may they hold; one message may always wait.
    pub waiting_bytes_max: usize,
    /// So many messages more than Receive Maximum allows may the server send before the connection ends for it
    /// [MQTT-3.3.4-9]. Mosquitto 2.0 miscounts those of QoS 2 when it resumes a session with many: whoever leaves for
    /// that is sent as many again on the next connection.
    pub receive_excess_max: u16,
    /// Topic aliases that are used towards a server that allows as many; 0 is none.
    pub topic_alias_out_max: u16,
    /// The server is to answer CONNECT within this time.
    pub connect_timeout_ms: u64,
    /// The server is to answer PINGREQ within this time.
    pub ping_timeout_ms: u64,
}

/// Who says that a message has been accepted, so that PUBACK or PUBREC may leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// Nobody: it is accepted when it has been read.
    #[default]
    AtOnce,
    /// The application: [`Client::acknowledge`].
    ByApplication,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            acknowledge: Acknowledge::AtOnce,
            inflight_max: 1_000,
            waiting_messages_max: 100_000,
            waiting_bytes_max: 256 << 20,
            receive_excess_max: 0,
            topic_alias_out_max: 16,
            connect_timeout_ms: 10_000,
            ping_timeout_ms: 10_000,
        }
    }
}

/// A message to be published.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Outgoing<'a> {
    /// Topic to publish to.
    pub topic: TopicName<'a>,
    /// Content of the message, at most about 256 MiB (section 1.5.5).
    pub payload: &'a [u8],
    /// QoS between this client and the server.
    pub qos: Qos,
    /// Whether the server stores the message for later subscribers (RETAIN).
    pub retain: bool,
    /// Properties, which need MQTT 5. A Message Expiry Interval begins when the message is published.
    pub properties: MessageProperties<'a>,
}

impl<'a> Outgoing<'a> {
    /// A message with QoS 0, without RETAIN and without properties.
    #[must_use]
    pub const fn new(topic: TopicName<'a>, payload: &'a [u8]) -> Self {
        let properties = MessageProperties::EMPTY;
        Self { topic, payload, qos: Qos::AtMostOnce, retain: false, properties }
    }

    /// The message with another payload.
    #[must_use]
    pub const fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// The message with this QoS. The default is QoS 0.
    #[must_use]
    pub const fn qos(mut self, qos: Qos) -> Self {
        self.qos = qos;
        self
    }

    /// The message with or without RETAIN: the server stores it for later subscribers. The default is `false`.
    #[must_use]
    pub const fn retain(mut self, retain: bool) -> Self {
        self.retain = retain;
        self
    }

    /// The message with these properties, which need MQTT 5. By default there are none.
    #[must_use]
    pub const fn properties(mut self, properties: MessageProperties<'a>) -> Self {
        self.properties = properties;
        self
    }
}

/// What became of a message that was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publishing {
    /// It is written, with this identifier; at QoS 0 it has none.
    Sent(Option<PacketId>),
    /// It waits for a connection, or for its turn behind those under way; in a session that an earlier program has left,
    /// for an identifier that is not in use there.
    Waits,
}

/// What a packet of the server means to the application.
#[derive(Debug)]
pub enum Event<'p, T> {
    /// Nothing.
    None,
    /// The server has accepted the connection; what was under way is being sent again, and what waited is sent.
    Connected {
        /// It goes on with the session that it had. If not, and we had one, that is over: see
        /// [`Client::next_failed`].
        session_present: bool,
        /// What the server offers, and how much it takes; all of which the client keeps to.
        properties: ConnAckProperties<'p>,
    },
    /// The server has refused the connection, and closes it.
    Refused {
        /// Why.
        reason: ConnectRefusal,
        /// More about it, such as another server to use.
        properties: ConnAckProperties<'p>,
    },
    /// The server wants another step of the authentication: [`Client::authenticate`].
    Authenticate {
        /// What the method makes of it.
        data: Option<Binary<'p>>,
    },
    /// A re-authentication has succeeded.
    Authenticated {
        /// What the method makes of it.
        data: Option<Binary<'p>>,
    },
    /// A message.
    Message {
        /// It.
        message: Incoming<'p>,
        /// With [`Acknowledge::ByApplication`], at QoS 1 and 2: to be acknowledged.
        receipt: Option<Receipt>,
    },
    /// A message that was received with QoS 2 will not come again: its identifier need not be kept any more.
    Released {
        /// The identifier.
        packet_id: PacketId,
    },
    /// A message that was published with QoS 2 has arrived: it need not be kept any more, but its identifier.
    Received {
        /// The identifier.
        packet_id: PacketId,
        /// 0x00, or 0x10 if nobody gets it.
        reason: ReasonCode,
    },
    /// A message that was published with QoS 1 or 2 is done with.
    Published {
        /// The identifier, which is free now.
        packet_id: PacketId,
        /// What came with the message.
        tag: T,
        /// Of PUBACK or PUBREC: from 0x80 on the server has refused it, 0x10 is that nobody gets it.
        reason: ReasonCode,
        /// More about it.
        properties: AckProperties<'p>,
    },
    /// The answer to [`Client::subscribe`].
    Subscribed(SubAck<'p>),
    /// The answer to [`Client::unsubscribe`].
    Unsubscribed(UnsubAck<'p>),
    /// The server ends the connection, and says why.
    Disconnected(Disconnect<'p>),
}

/// A message that is to be acknowledged. It is of no use on another connection, where the message comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    ticket: Ticket,
    connection: u32,
}

/// A message that was to be published, and of which nothing more will be heard.
#[derive(Debug)]
pub struct Failed<T> {
    /// What came with it.
    pub tag: T,
    /// The message, to be published anew by whoever wants that; `None` if it has arrived, and only the end of its
    /// exchange at QoS 2 was missing.
    pub message: Option<Arc<Message>>,
    /// It was sent without being acknowledged: the server may have it.
    pub was_sent: bool,
    /// Why.
    pub why: PublishError,
}

/// One session, the client's part.
///
/// ```text
///                 connect                   CONNACK
/// Disconnected ────────────► Connecting ───────────────► Connected
///      ▲                     AUTH, if any                    │
///      └───────── refused, disconnect, connection_lost ──────┘
/// ```
///
/// What is published while there is no connection waits for one; at QoS 0 it is refused.
///
/// `T` is what comes with each message and comes back with [`Event::Published`].
#[derive(Debug)]
pub struct Client<T = ()> {
    settings: Settings,
    /// Whose session this is; empty until the server has assigned an identifier.
    client_id: Box<str>,
    /// The server has a session for it, as far as we know.
    has_session: bool,
    outbound: Outbound<Sent<T>>,
    waiting: WaitingQueue<T>,
    inbound: Inbound,
    /// Of a session that an earlier program has left.
    inherited: Option<Box<Inherited>>,
    /// Numbers what is sent, for the order in which it is sent again.
    next_order: u64,
    failed: VecDeque<Failed<T>>,
    link: Option<Box<Link>>,
    /// Tells connections apart.
    connections: u32,
}

impl<T> Client<T> {
    /// A client without a session.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            client_id: "".into(),
            has_session: false,
            outbound: Outbound::default(),
            waiting: WaitingQueue::default(),
            inbound: Inbound::default(),
            inherited: None,
            next_order: 0,
            failed: VecDeque::new(),
            link: None,
            connections: 0,
        }
    }

    /// Whether the server has accepted the connection, and it has not ended.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_connected)
    }

    /// The client identifier: the one of the last CONNECT or, if that was empty, the one that the server has assigned.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// How many messages of QoS 1 and 2 are under way to the server.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outbound.len()
    }

    /// How many messages wait behind them, or for a connection.
    #[must_use]
    pub fn waiting_messages(&self) -> usize {
        self.waiting.len()
    }

    /// A message that was to be published and is not, because the session has ended or because the server does not
    /// take it; one after the other, until there is none.
    pub fn next_failed(&mut self) -> Option<Failed<T>> {
        self.failed.pop_front()
    }

    /// Accepts a message, or refuses it, which before MQTT 5 it cannot be. PUBACKs leave in the order of the messages,
    /// and so do PUBRECs: this one may wait for others. The receipt of an earlier connection does nothing.
    pub fn acknowledge(&mut self, receipt: Receipt, reason: ReasonCode, now: base::Now, into: &mut Vec<u8>) {
        let Some(link) = &mut self.link else { return };
        if receipt.connection != self.connections || !link.is_connected {
            return;
        }
        if self.inbound.complete(receipt.ticket, reason, link.version) {
            let start = into.len();
            self.inbound.write_answers(link.version, into);
            link.note_sent(into.len() > start, now);
        }
    }
}

/// What the server has done wrong.
fn violation(
    link: &Link,
    reason: ReasonCode,
    statements: [&'static str; 2],
    text: &'static str,
) -> Violation {
    Violation::after_connect(link.version, reason, statements, text)
}
