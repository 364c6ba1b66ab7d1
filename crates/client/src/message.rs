//! Received messages, their streams, and the acknowledgements that the server waits for.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context as Task, Poll};

use futures_core::Stream;
use session::Incoming;
use session::client::Receipt;
use tokio::sync::mpsc;
use topic::{TopicFilter, TopicFilterBuf, TopicName};
use wire::{
    Delivery, MessageProperties, PacketId, Publish, Qos, ReasonCode, SubscriptionIdentifier,
    SubscriptionIdentifiers, TopicAlias,
};

use crate::outlet::Inlet;

/// Maximum capacity of the scratch memory that is kept for the next message.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// Estimated memory that the allocator and the counters of shared memory take for a message.
const ALLOCATION_BYTES: usize = 64;

/// A received message (section 3.3). Clones share its bytes.
///
/// With [`Acknowledge::ByApplication`](crate::Acknowledge::ByApplication), a message that is dropped without
/// [`acknowledge`](Self::acknowledge) or [`refuse`](Self::refuse) is [counted](crate::Client::unacknowledged_dropped).
/// The server keeps the message, and the acknowledgements of later messages wait until the connection ends.
#[derive(Clone)]
#[must_use = "with `Acknowledge::ByApplication`, a message that is dropped holds up the acknowledgements of later messages"]
pub struct Message {
    /// Topic, properties in the encoding of MQTT 5, payload.
    ///
    /// The bytes are copied, so that a kept message does not keep the whole read buffer.
    bytes: Arc<[u8]>,
    topic_bytes: u32,
    properties_bytes: u32,
    delivery: Delivery,
    retain: bool,
    topic_alias: Option<TopicAlias>,
    subscription_identifiers: Identifiers,
    owed: Option<Arc<Owed>>,
}

/// Subscription Identifiers of a message. There is nearly always at most one, which needs no allocation.
#[derive(Clone)]
enum Identifiers {
    AtMostOne(Option<SubscriptionIdentifier>),
    Several(Box<[SubscriptionIdentifier]>),
}

/// The messages of one subscription, in the order in which the server sent them.
///
/// The stream ends when the subscription or the connection ends, after the messages that arrived before. Dropping
/// the stream does not end the subscription; [`Client::unsubscribe`](crate::Client::unsubscribe) does.
///
/// A message of QoS 1 that nobody took out is not acknowledged when the connection ends. A lasting session receives the
/// message again on its next connection. If the connection continues after the stream was dropped, the message is
/// acknowledged after 10 s. Acknowledgements leave in order, and later ones wait behind this one.
#[derive(Debug)]
pub struct Messages {
    filter: TopicFilterBuf,
    granted: Qos,
    inlet: Inlet,
}

/// The pending acknowledgement of a message that goes to one or more streams.
#[derive(Debug)]
pub(crate) struct Owed {
    receipt: Receipt,
    /// Number of streams that have not accepted or dropped the message yet; 0 once the acknowledgement is decided.
    left: AtomicUsize,
    /// At least one stream has accepted the message.
    is_accepted: AtomicBool,
    /// Whether taking the message out of its stream accepts the message.
    is_automatic: bool,
    to: mpsc::UnboundedSender<Accepted>,
}

/// Decision about a message: all streams have finished with it, or one has refused it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) receipt: Receipt,
    pub(crate) decision: Decision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The message was accepted or refused, with this reason.
    Answered(ReasonCode),
    /// The message was dropped in all streams before anybody took it out. The client accepts it later.
    Abandoned,
    /// The application took the message out and dropped it without the acknowledgement that it owes.
    Lost,
}

impl Message {
    /// Copies a message. `scratch` is reused memory.
    pub(crate) fn new(message: &Incoming<'_>, owed: Option<Arc<Owed>>, scratch: &mut Vec<u8>) -> Self {
        let Publish { delivery, retain, topic, payload, properties, subscription_identifiers } =
            &message.packet;
        let name = message.topic().as_str();
        scratch.clear();
        scratch.extend_from_slice(name.as_bytes());
        let properties_bytes = if properties.is_empty() {
            0
        } else {
            // A vector has room for all properties of a packet.
            properties.write_bytes(scratch).unwrap_or_default()
        };
        scratch.extend_from_slice(payload);
        let bytes = Arc::from(scratch.as_slice());
        if scratch.capacity() > SCRATCH_BYTES_MAX {
            *scratch = Vec::new();
        }
        // A packet is shorter than 2^28 bytes.
        let length = |length: usize| u32::try_from(length).unwrap_or_default();
        Self {
            bytes,
            topic_bytes: length(name.len()),
            properties_bytes: length(properties_bytes),
            delivery: *delivery,
            retain: *retain,
            topic_alias: topic.alias(),
            subscription_identifiers: Identifiers::of(*subscription_identifiers),
            owed,
        }
    }

    /// Topic to which the message was published.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        let text = std::str::from_utf8(&self.bytes[..self.topic_bytes as usize]);
        let name = text.ok().and_then(|text| TopicName::new(text).ok());
        name.expect("these bytes were a topic name")
    }

    /// Payload of the message.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[(self.topic_bytes + self.properties_bytes) as usize..]
    }

    /// QoS with which the server sent the message.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.delivery.qos()
    }

    /// RETAIN flag: the server had stored the message before it was sent.
    #[must_use]
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// DUP flag: at QoS 1, the message may have arrived before.
    #[must_use]
    pub fn dup(&self) -> bool {
        self.delivery.dup()
    }

    /// Packet Identifier; `None` at QoS 0. The identifier is valid on this connection only, and may be reused.
    #[must_use]
    pub fn packet_id(&self) -> Option<PacketId> {
        self.delivery.packet_id()
    }

    /// Topic Alias, if the packet had one. [`topic`](Self::topic) returns the topic in any case.
    #[must_use]
    pub fn topic_alias(&self) -> Option<TopicAlias> {
        self.topic_alias
    }

    /// Subscription Identifiers of the subscriptions that match, as far as the server reports them.
    ///
    /// The client chooses an identifier of its own for a subscription to which the application gave none.
    #[must_use]
    pub fn subscription_identifiers(&self) -> &[SubscriptionIdentifier] {
        match &self.subscription_identifiers {
            Identifiers::AtMostOne(identifier) => identifier.as_slice(),
            Identifiers::Several(identifiers) => identifiers,
        }
    }

    /// Properties of the message (section 3.3.2.3); empty before MQTT 5.
    #[must_use]
    pub fn properties(&self) -> MessageProperties<'_> {
        let properties = &self.bytes[self.topic_bytes as usize..][..self.properties_bytes as usize];
        // Valid, because these bytes were written from properties.
        MessageProperties::from_bytes(properties).unwrap_or_default()
    }

    /// Accepts the message, if the application acknowledges messages ([`Acknowledge::ByApplication`]).
    ///
    /// Otherwise, and at QoS 0, this call does nothing. If several streams have the message, it is acknowledged when
    /// the last of them has accepted it. PUBACK and PUBREC leave in the order of the messages, and may wait for earlier
    /// ones. After the end of its connection, this call does nothing, and the message arrives again if the session
    /// continues.
    ///
    /// [`Acknowledge::ByApplication`]: crate::Acknowledge::ByApplication
    pub fn acknowledge(mut self) {
        self.accept();
    }

    /// Refuses the message with a reason code of at least 0x80. The server does not send the message again.
    ///
    /// Reason codes need MQTT 5. Before MQTT 5 this call accepts the message.
    pub fn refuse(self, reason: wire::PubAckReason) {
        if let Some(owed) = &self.owed {
            owed.refuse(reason.reason());
        }
    }

    /// The acknowledgement to send as soon as the message is in a stream, for QoS 2 without
    /// [`Acknowledge::ByApplication`](crate::Acknowledge::ByApplication).
    ///
    /// If such a message were accepted later, and the connection were lost before, the message would arrive twice.
    pub(crate) fn owed_at_once(&self) -> Option<Arc<Owed>> {
        self.owed.clone().filter(|owed| owed.is_automatic && self.qos() == Qos::ExactlyOnce)
    }

    /// Memory of the message, in bytes: its fields, and the memory around them.
    pub(crate) fn size_bytes(&self) -> usize {
        let identifiers = match &self.subscription_identifiers {
            Identifiers::AtMostOne(_) => 0,
            Identifiers::Several(identifiers) => size_of_val(&**identifiers),
        };
        self.bytes.len() + identifiers + size_of::<Self>() + size_of::<Owed>() + ALLOCATION_BYTES
    }

    /// Whether no acknowledgement is pending: the message came with QoS 0, or is accepted.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.owed.is_none()
    }

    /// Takes over the acknowledgement, to accept the message in place of the streams that have not.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.owed.as_ref()?.claim()
    }

    /// Drops the message, which nobody took out of one of its streams.
    pub(crate) fn renounce(self) {
        if let Some(owed) = &self.owed {
            owed.renounce();
        }
    }

    /// Whether the message may go to another stream: only the caller has it, and nobody has accepted it.
    pub(crate) fn is_free(&self) -> bool {
        Arc::strong_count(&self.bytes) == 1 && self.owed.as_ref().is_some_and(|owed| !owed.is_answered())
    }

    /// Accepts the message for one of its streams, which only needs to receive it.
    pub(crate) fn accepted(mut self) -> Self {
        self.accept();
        self
    }

    fn accept(&mut self) {
        if let Some(owed) = self.owed.take() {
            owed.accept();
        }
    }

    /// Takes the message out of its stream.
    pub(crate) fn taken(mut self) -> Self {
        if self.owed.as_ref().is_some_and(|owed| owed.is_automatic) {
            self.accept();
        }
        self
    }

    /// Sets the number of streams that receive the message.
    pub(crate) fn is_for(&self, streams: usize) {
        if let Some(owed) = &self.owed {
            owed.left.store(streams, Ordering::Relaxed);
        }
    }
}

impl Identifiers {
    fn of(identifiers: SubscriptionIdentifiers<'_>) -> Self {
        let mut all = identifiers.iter();
        match (all.next(), all.next()) {
            (first, None) => Self::AtMostOne(first),
            _ => Self::Several(identifiers.iter().collect()),
        }
    }
}

/// Prints topic, QoS and sizes, but neither payload nor properties, which may be long or secret.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} B", self.topic(), self.qos(), self.payload().len())?;
        if self.properties_bytes > 0 {
            write!(f, " + {} B of properties", self.properties_bytes)?;
        }
        f.write_str(if self.retain { " retain" } else { "" })
    }
}

impl Messages {
    pub(crate) fn new(filter: TopicFilterBuf, granted: Qos, inlet: Inlet) -> Self {
        Self { filter, granted, inlet }
    }

    pub(crate) fn into_inlet(self) -> Inlet {
        self.inlet
    }

    /// Waits for the next message; `None` after the last one. Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|task| self.inlet.poll_next(task)).await.map(Message::taken)
    }

    /// Filter of the subscription.
    #[must_use]
    pub fn filter(&self) -> TopicFilter<'_> {
        self.filter.filter()
    }

    /// Highest QoS of the messages: as requested, or lower.
    #[must_use]
    pub fn granted(&self) -> Qos {
        self.granted
    }

    /// Number of messages of QoS 0 that were dropped because the stream was full. See [`Options::drop_when_full`].
    ///
    /// [`Options::drop_when_full`]: crate::Options::drop_when_full
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.inlet.dropped()
    }
}

impl Stream for Messages {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Message>> {
        self.inlet.poll_next(task).map(|message| message.map(Message::taken))
    }
}

impl Owed {
    pub(crate) fn new(receipt: Receipt, is_automatic: bool, to: mpsc::UnboundedSender<Accepted>) -> Self {
        Self { receipt, left: AtomicUsize::new(1), is_accepted: AtomicBool::new(false), is_automatic, to }
    }

    /// Records that one stream has accepted the message.
    fn accept(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
        self.one_less();
    }

    /// Records that one stream has dropped the message without accepting it.
    fn renounce(&self) {
        self.one_less();
    }

    /// Counts a stream that has finished with the message. The last one decides.
    ///
    /// If no stream accepted the message, it is left for a reader on a later connection.
    fn one_less(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less) == Ok(1) {
            let is_accepted = self.is_accepted.load(Ordering::Relaxed);
            let answered = Decision::Answered(ReasonCode::Success);
            self.decide(if is_accepted { answered } else { Decision::Abandoned });
        }
    }

    fn refuse(&self, reason: ReasonCode) {
        if self.claim().is_some() {
            self.decide(Decision::Answered(reason));
        }
    }

    /// Takes the receipt, if nobody has before.
    ///
    /// A receipt is valid once: its packet identifier may belong to another message later.
    pub(crate) fn claim(&self) -> Option<Receipt> {
        (self.left.swap(0, Ordering::Relaxed) > 0).then_some(self.receipt)
    }

    fn is_answered(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Sends the decision to the driver.
    ///
    /// The channel has no bound of its own: the server's limit of unacknowledged messages bounds it. After the end
    /// of the connection nobody receives the decision, which then has no meaning.
    fn decide(&self, decision: Decision) {
        let _ = self.to.send(Accepted { receipt: self.receipt, decision });
    }
}

/// Reports a message that was dropped without a decision.
impl Drop for Owed {
    fn drop(&mut self) {
        if !self.is_answered() {
            self.decide(if self.is_automatic { Decision::Abandoned } else { Decision::Lost });
        }
    }
}
