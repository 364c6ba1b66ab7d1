//! What is received: messages, the streams they come in, and what is owed for them.

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

/// So much memory is kept for putting the next message together.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

/// A message that was received (section 3.3). Clones share its bytes.
#[derive(Clone)]
pub struct Message {
    /// Topic, properties as MQTT 5 encodes them, payload. A copy: what is kept does not keep what was read with it.
    bytes: Arc<[u8]>,
    topic_bytes: u32,
    properties_bytes: u32,
    delivery: Delivery,
    retain: bool,
    topic_alias: Option<TopicAlias>,
    subscription_identifiers: Identifiers,
    owed: Option<Arc<Owed>>,
}

/// The subscriptions that a message comes for; nearly always it is one, which needs no memory of its own.
#[derive(Clone)]
enum Identifiers {
    AtMostOne(Option<SubscriptionIdentifier>),
    Several(Box<[SubscriptionIdentifier]>),
}

/// The messages of one subscription, in the order in which the server has sent them.
///
/// It ends when the subscription or the connection does, after what had come before. To drop it ends nothing at the
/// server: [`Client::unsubscribe`](crate::Client::unsubscribe) does. A message of QoS 1 that nobody has taken out is not
/// acknowledged when the connection ends: a session that lasts has it again on its next one. On a connection that goes
/// on after the stream was dropped it is acknowledged 10 s later, since acknowledgements leave in order and others
/// wait behind it.
#[derive(Debug)]
pub struct Messages {
    filter: TopicFilterBuf,
    granted: Qos,
    inlet: Inlet,
}

/// What the server is owed for a message that goes to one or more streams.
#[derive(Debug)]
pub(crate) struct Owed {
    receipt: Receipt,
    /// So many have not accepted it yet.
    left: AtomicUsize,
    /// One of them has taken it.
    is_accepted: AtomicBool,
    /// Whether taking it out of its stream accepts it.
    is_automatic: bool,
    to: mpsc::UnboundedSender<Accepted>,
}

/// All have accepted a message, or one has refused it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) receipt: Receipt,
    /// `None`: nobody has said anything, and nobody will.
    pub(crate) reason: Option<ReasonCode>,
}

impl Message {
    /// `scratch` is memory that is used again and again.
    pub(crate) fn new(message: &Incoming<'_>, owed: Option<Arc<Owed>>, scratch: &mut Vec<u8>) -> Self {
        let Publish { delivery, retain, topic, payload, properties, subscription_identifiers } =
            &message.packet;
        let name = message.topic().as_str();
        scratch.clear();
        scratch.extend_from_slice(name.as_bytes());
        let properties_bytes = if properties.is_empty() {
            0
        } else {
            // A vector takes everything that a packet held.
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

    /// Where it was published to.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        let text = std::str::from_utf8(&self.bytes[..self.topic_bytes as usize]);
        let name = text.ok().and_then(|text| TopicName::new(text).ok());
        name.expect("these bytes were a topic name")
    }

    /// The message itself.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[(self.topic_bytes + self.properties_bytes) as usize..]
    }

    /// The QoS that it came with.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.delivery.qos()
    }

    /// RETAIN: the server had kept it.
    #[must_use]
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// DUP: it may have come before, at QoS 1.
    #[must_use]
    pub fn dup(&self) -> bool {
        self.delivery.dup()
    }

    /// Packet Identifier, which is the connection's and may be another message's later; none at QoS 0.
    #[must_use]
    pub fn packet_id(&self) -> Option<PacketId> {
        self.delivery.packet_id()
    }

    /// Topic Alias, which stood for the topic or beside it; [`topic`](Self::topic) knows what it stood for.
    #[must_use]
    pub fn topic_alias(&self) -> Option<TopicAlias> {
        self.topic_alias
    }

    /// Subscription Identifiers: for which subscriptions it comes, as far as the server says. A subscription that was
    /// not given one by the application has one of the client's own.
    #[must_use]
    pub fn subscription_identifiers(&self) -> &[SubscriptionIdentifier] {
        match &self.subscription_identifiers {
            Identifiers::AtMostOne(identifier) => identifier.as_slice(),
            Identifiers::Several(identifiers) => identifiers,
        }
    }

    /// What goes with it (section 3.3.2.3); before MQTT 5 nothing does.
    #[must_use]
    pub fn properties(&self) -> MessageProperties<'_> {
        let properties = &self.bytes[self.topic_bytes as usize..][..self.properties_bytes as usize];
        // They were written from properties.
        MessageProperties::from_bytes(properties).unwrap_or_default()
    }

    /// Accepts it, where the application is the one to say so ([`Acknowledge::ByApplication`]); otherwise, and at QoS 0,
    /// nothing happens. If several streams have it, the last one to accept it counts. PUBACK and PUBREC leave in the
    /// order of the messages: this one may wait for others. When its connection is over, this does nothing, and the
    /// message comes again if its session goes on.
    ///
    /// [`Acknowledge::ByApplication`]: crate::Acknowledge::ByApplication
    pub fn acknowledge(mut self) {
        self.accept();
    }

    /// Refuses it, with a reason from 0x80 on; MQTT 5 only, before which this accepts it. It does not come again.
    pub fn refuse(self, reason: wire::PubAckReason) {
        if let Some(owed) = &self.owed {
            owed.refuse(reason.reason());
        }
    }

    /// To be accepted as soon as it has its place in a stream, where nobody else has to say so: at QoS 2 a message that is
    /// accepted later comes again if the connection is lost before, and would be there twice.
    pub(crate) fn owed_at_once(&self) -> Option<Arc<Owed>> {
        self.owed.clone().filter(|owed| owed.is_automatic && self.qos() == Qos::ExactlyOnce)
    }

    /// Whether the server waits for nothing: it came with QoS 0, or is accepted.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.owed.is_none()
    }

    /// To be accepted in place of those who do not.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        self.owed.as_ref()?.claim()
    }

    /// One of its streams has gone without anybody having taken it out.
    pub(crate) fn renounce(self) {
        if let Some(owed) = &self.owed {
            owed.renounce();
        }
    }

    /// Whether it may go to somebody else: nobody has it but the caller, and nobody has accepted it.
    pub(crate) fn is_free(&self) -> bool {
        Arc::strong_count(&self.bytes) == 1 && self.owed.as_ref().is_some_and(|owed| !owed.is_answered())
    }

    /// One of its streams asks for no more than that it is there.
    pub(crate) fn accepted(mut self) -> Self {
        self.accept();
        self
    }

    fn accept(&mut self) {
        if let Some(owed) = self.owed.take() {
            owed.accept();
        }
    }

    /// It leaves its stream.
    pub(crate) fn taken(mut self) -> Self {
        if self.owed.as_ref().is_some_and(|owed| owed.is_automatic) {
            self.accept();
        }
        self
    }

    /// So many streams have it.
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

/// What there is to it, without payload and properties, which are only counted: there may be much of them, and they may be
/// secret.
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

    /// Throws away what has come.
    pub(crate) fn discard(&mut self) {
        std::iter::from_fn(|| self.inlet.try_next()).for_each(Message::renounce);
    }

    pub(crate) fn into_inlet(self) -> Inlet {
        self.inlet
    }

    /// The next message, as soon as there is one; `None` when there will be none any more. To drop the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|task| self.inlet.poll_next(task)).await.map(Message::taken)
    }

    /// What was subscribed to.
    #[must_use]
    pub fn filter(&self) -> TopicFilter<'_> {
        self.filter.filter()
    }

    /// The highest QoS that messages come with: as asked for, or less.
    #[must_use]
    pub fn granted(&self) -> Qos {
        self.granted
    }

    /// So many messages of QoS 0 were thrown away because the stream was full: see [`Options::drop_when_full`].
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

    /// One of those who have it accepts it.
    fn accept(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
        self.one_less();
    }

    /// One of those who have it has no use for it.
    fn renounce(&self) {
        self.one_less();
    }

    /// The last one counts. If nobody has taken it, there may be somebody on another connection.
    fn one_less(&self) {
        let one_less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less) == Ok(1) {
            self.answer(self.is_accepted.load(Ordering::Relaxed).then_some(ReasonCode::Success));
        }
    }

    fn refuse(&self, reason: ReasonCode) {
        if self.claim().is_some() {
            self.answer(Some(reason));
        }
    }

    /// The receipt, for whoever asks first: it is of use once, and later its identifier is another message's.
    pub(crate) fn claim(&self) -> Option<Receipt> {
        (self.left.swap(0, Ordering::Relaxed) > 0).then_some(self.receipt)
    }

    fn is_answered(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Not more of these are ever on their way than the server may have unacknowledged. Nobody hears it after the end
    /// of the connection, where it says nothing any more.
    fn answer(&self, reason: Option<ReasonCode>) {
        let _ = self.to.send(Accepted { receipt: self.receipt, reason });
    }
}

/// Whoever had it has gone without a word.
impl Drop for Owed {
    fn drop(&mut self) {
        if self.is_automatic && !self.is_answered() {
            self.answer(None);
        }
    }
}
