//! The client's part of a session: connect, publish, subscribe, and continue after a lost connection.
//!
//! A [`Client`] accepts the requests of its application and the packets of its server. It writes the resulting packets to
//! a buffer of the caller, who owns socket and clock:
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
//! # The party at fault
//! A fault of the server is a [`Violation`]: [`Client::answer`] reports it to the server, and the connection ends. A request
//! of the application that cannot be carried out is the error of its own call, and changes nothing.
//!
//! # Sessions that outlive the process
//! [`Client::stored`] returns the state to store, and [`Client::restore`] continues with it. QoS 2 stays exactly once after a
//! crash on one condition: the bytes that a call writes leave only when the changes of that call are on disk. A packet
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

/// Bounds of a client, and its way of acknowledging.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The party that accepts messages.
    pub acknowledge: Acknowledge,
    /// Maximum number of messages of QoS 1 and 2 in flight to the server. The server's Receive Maximum may be lower. At
    /// least 1.
    pub inflight_max: u16,
    /// Maximum number of messages that wait behind those in flight, or for a connection.
    pub waiting_messages_max: usize,
    /// Maximum size of the waiting messages, in bytes. One message may always wait.
    pub waiting_bytes_max: usize,
    /// Number of messages that the server may send beyond Receive Maximum before the connection ends [MQTT-3.3.4-9].
    ///
    /// Mosquitto 2.0 miscounts messages of QoS 2 when it resumes a session with many. A client that ends the connection
    /// for this reason receives as many again on the next connection.
    pub receive_excess_max: u16,
    /// Maximum number of topic aliases towards the server. The server's own maximum may be lower. 0 means none.
    pub topic_alias_out_max: u16,
    /// Time limit for the answer to CONNECT, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Time limit for the answer to PINGREQ, in milliseconds.
    pub ping_timeout_ms: u64,
}

/// The party that accepts a message. PUBACK or PUBREC may then leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// The client accepts each message when it has read the message.
    #[default]
    AtOnce,
    /// The application accepts messages with [`Client::acknowledge`].
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

/// State of a message after [`Client::publish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publishing {
    /// The message is written, with this identifier. At QoS 0 there is no identifier.
    Sent(Option<PacketId>),
    /// The message waits for a connection, or behind the messages in flight. In a session of an earlier program, it may
    /// wait for an identifier that is not in use there.
    Waits,
}

/// Meaning of a packet from the server for the application.
#[derive(Debug)]
pub enum Event<'p, T> {
    /// Nothing for the application.
    None,
    /// The server has accepted the connection. Messages in flight are sent again, and waiting messages are sent.
    Connected {
        /// The server has the session. If not, and the client had one, that session is over: see
        /// [`Client::next_failed`].
        session_present: bool,
        /// Features and limits of the server. The client keeps to all of them.
        properties: ConnAckProperties<'p>,
    },
    /// The server has refused the connection, and closes it.
    Refused {
        /// Reason code of CONNACK.
        reason: ConnectRefusal,
        /// Further properties, such as another server to use.
        properties: ConnAckProperties<'p>,
    },
    /// The server asks for another step of the authentication: [`Client::authenticate`].
    Authenticate {
        /// Data of the authentication method.
        data: Option<Binary<'p>>,
    },
    /// A re-authentication has succeeded.
    Authenticated {
        /// Data of the authentication method.
        data: Option<Binary<'p>>,
    },
    /// The server has delivered a message.
    Message {
        /// The message, in the memory of the packet.
        message: Incoming<'p>,
        /// Receipt for [`Client::acknowledge`]: with [`Acknowledge::ByApplication`], at QoS 1 and 2.
        receipt: Option<Receipt>,
    },
    /// A message that was received with QoS 2 will not come again. The program can forget its identifier.
    Released {
        /// Packet identifier of the message.
        packet_id: PacketId,
    },
    /// The server has received a message of QoS 2. The program can forget the message, and must keep its identifier.
    Received {
        /// Packet identifier of the message.
        packet_id: PacketId,
        /// Reason code of PUBREC: 0x00, or 0x10 without subscribers.
        reason: ReasonCode,
    },
    /// The exchange of a message of QoS 1 or 2 is over.
    Published {
        /// Packet identifier of the message, which is free now.
        packet_id: PacketId,
        /// Tag that was given with the message.
        tag: T,
        /// Reason code of PUBACK or PUBREC. From 0x80 on, the server has refused the message. 0x10 means that there are
        /// no subscribers.
        reason: ReasonCode,
        /// Further properties of the acknowledgement.
        properties: AckProperties<'p>,
    },
    /// The answer to [`Client::subscribe`].
    Subscribed(SubAck<'p>),
    /// The answer to [`Client::unsubscribe`].
    Unsubscribed(UnsubAck<'p>),
    /// The server ends the connection, and gives its reason.
    Disconnected(Disconnect<'p>),
}

/// Permission to acknowledge one message. On another connection the receipt does nothing, because the message comes
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    ticket: Ticket,
    connection: u32,
}

/// A message whose exchange has ended without success.
#[derive(Debug)]
pub struct Failed<T> {
    /// Tag that was given with the message.
    pub tag: T,
    /// The message, so that the application can publish it again. `None` if the server has received it, and only the
    /// end of its exchange at QoS 2 was missing.
    pub message: Option<Arc<Message>>,
    /// The message was sent and not acknowledged: the server may have it.
    pub was_sent: bool,
    /// Reason for the failure.
    pub why: PublishError,
}

/// The client's part of one session.
///
/// ```text
///                 connect                   CONNACK
/// Disconnected ────────────► Connecting ───────────────► Connected
///      ▲                     AUTH, if any                    │
///      └───────── refused, disconnect, connection_lost ──────┘
/// ```
///
/// Without a connection, messages of QoS 1 and 2 wait for one, and messages of QoS 0 are refused.
///
/// `T` is the type of the tag of each message, which [`Event::Published`] returns.
#[derive(Debug)]
pub struct Client<T = ()> {
    settings: Settings,
    /// Client identifier. Empty until the server has assigned one.
    client_id: Box<str>,
    /// The server has a session for this identifier, as far as the client knows.
    has_session: bool,
    outbound: Outbound<Sent<T>>,
    waiting: WaitingQueue<T>,
    inbound: Inbound,
    /// State of a session that an earlier program has left; `None` for any other.
    inherited: Option<Box<Inherited>>,
    /// Counter for the order in which packets are sent again.
    next_order: u64,
    failed: VecDeque<Failed<T>>,
    link: Option<Box<Link>>,
    /// Number of connections so far, which distinguishes their receipts.
    connections: u32,
}

impl<T> Client<T> {
    /// A client without a session, and without a connection.
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

    /// Whether the server has accepted the connection, and the connection has not ended.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_connected)
    }

    /// The client identifier of the last CONNECT. If that was empty, the identifier that the server has assigned.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Number of messages of QoS 1 and 2 that are in flight to the server.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outbound.len()
    }

    /// Number of messages that wait behind those in flight, or for a connection.
    #[must_use]
    pub fn waiting_messages(&self) -> usize {
        self.waiting.len()
    }

    /// Removes and returns a message that has failed, because the session has ended or the server does not allow it.
    /// `None` if there is none.
    pub fn next_failed(&mut self) -> Option<Failed<T>> {
        self.failed.pop_front()
    }

    /// Accepts or refuses a message. Before MQTT 5, a refusal counts as acceptance.
    ///
    /// PUBACKs leave in the order of the messages, and so do PUBRECs: this answer may wait for others. A receipt of an
    /// earlier connection does nothing.
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

/// Violation for a fault of the server after CONNECT.
fn violation(
    link: &Link,
    reason: ReasonCode,
    statements: [&'static str; 2],
    text: &'static str,
) -> Violation {
    Violation::after_connect(link.version, reason, statements, text)
}
