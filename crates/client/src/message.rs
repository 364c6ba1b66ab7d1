//! What is received: messages, the streams they come in, and what is owed for them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll};

use futures_core::Stream;
use session::Now;
use session::client::Receipt;
use tokio::sync::mpsc;
use topic::{TopicFilter, TopicFilterBuf, TopicName};
use wire::{
    Delivery, MessageProperties, PacketId, Publish, Qos, ReasonCode, SubscriptionIdentifier, TopicAlias,
};

/// A message that was received (section 3.3). Clones share its bytes.
#[derive(Clone)]
pub struct Message {
    content: Arc<session::Message>,
    /// When: what is left of its expiry is as of then.
    received: Now,
    /// QoS, and what only comes with it.
    delivery: Delivery,
    topic_alias: Option<TopicAlias>,
    subscription_identifiers: Box<[SubscriptionIdentifier]>,
    owed: Option<Arc<Owed>>,
}

/// The messages of one subscription, in the order in which the server has sent them.
///
/// It ends when the subscription or the connection does, after what had come before. To drop it ends nothing at the
/// server: [`Client::unsubscribe`](crate::Client::unsubscribe) does. A message of QoS 1 or 2 that nobody has taken out
/// is not acknowledged: a session that lasts has it again on its next connection.
#[derive(Debug)]
pub struct Messages {
    filter: TopicFilterBuf,
    granted: Qos,
    messages: mpsc::Receiver<Message>,
}

/// What the server is owed for a message that goes to one or more streams.
#[derive(Debug)]
pub(crate) struct Owed {
    receipt: Receipt,
    /// So many have not accepted it yet.
    left: AtomicUsize,
    /// Whether taking it out of its stream accepts it.
    is_automatic: bool,
    to: mpsc::UnboundedSender<Accepted>,
}

/// All have accepted a message, or one has refused it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) receipt: Receipt,
    pub(crate) reason: ReasonCode,
}

impl Message {
    /// The message of a PUBLISH to `topic`, which is its own or what its alias stands for.
    pub(crate) fn new(
        topic: TopicName<'_>,
        packet: &Publish<'_>,
        received: Now,
        owed: Option<Arc<Owed>>,
    ) -> Self {
        Self {
            content: Arc::new(session::Message::new(topic, packet, None, received)),
            received,
            delivery: packet.delivery,
            topic_alias: packet.topic.alias(),
            subscription_identifiers: packet.subscription_identifiers.iter().collect(),
            owed,
        }
    }

    /// Where it was published to.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        self.content.topic()
    }

    /// The message itself.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.content.payload()
    }

    /// The QoS that it came with.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.content.qos()
    }

    /// RETAIN: the server had kept it.
    #[must_use]
    pub fn retain(&self) -> bool {
        self.content.retain()
    }

    /// DUP: the packet may have come before; at QoS 1 the message too.
    #[must_use]
    pub fn dup(&self) -> bool {
        matches!(
            self.delivery,
            Delivery::AtLeastOnce { dup: true, .. } | Delivery::ExactlyOnce { dup: true, .. }
        )
    }

    /// The packet identifier that it came with, at QoS 1 and 2. Another message may have the same later.
    #[must_use]
    pub fn packet_id(&self) -> Option<PacketId> {
        match self.delivery {
            Delivery::AtMostOnce => None,
            Delivery::AtLeastOnce { packet_id, .. } | Delivery::ExactlyOnce { packet_id, .. } => {
                Some(packet_id)
            }
        }
    }

    /// The alias that stood for its topic, or was to stand for it from then on. It means nothing any more.
    #[must_use]
    pub fn topic_alias(&self) -> Option<TopicAlias> {
        self.topic_alias
    }

    /// The identifiers of the subscriptions for which the server has sent it.
    #[must_use]
    pub fn subscription_identifiers(&self) -> &[SubscriptionIdentifier] {
        &self.subscription_identifiers
    }

    /// What goes with it (section 3.3.2.3); before MQTT 5 nothing does.
    #[must_use]
    pub fn properties(&self) -> MessageProperties<'_> {
        self.content.publish(self.received).properties
    }

    /// Accepts it, where the application is the one to say so ([`Acknowledge::ByApplication`]); otherwise, and at QoS 0,
    /// nothing happens. If several streams have it, the last one to accept it counts. PUBACK and PUBREC leave in the
    /// order of the messages: this one may wait for others.
    ///
    /// [`Acknowledge::ByApplication`]: crate::Acknowledge::ByApplication
    pub fn acknowledge(mut self) {
        self.accept();
    }

    /// Refuses it, with a reason from 0x80 on; MQTT 5 only, before which this accepts it. It does not come again.
    pub fn refuse(self, reason: wire::PubAckReason) {
        if let Some(owed) = &self.owed {
            owed.left.store(0, Ordering::Relaxed);
            owed.answer(reason.reason());
        }
    }

    fn accept(&mut self) {
        if let Some(owed) = self.owed.take()
            && owed.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            owed.answer(ReasonCode::Success);
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

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.content.fmt(f)
    }
}

impl Messages {
    pub(crate) fn new(filter: TopicFilterBuf, granted: Qos, messages: mpsc::Receiver<Message>) -> Self {
        Self { filter, granted, messages }
    }

    /// The next message, as soon as there is one; `None` when there will be none any more. To drop the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await.map(Message::taken)
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
}

impl Stream for Messages {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(task).map(|message| message.map(Message::taken))
    }
}

impl Owed {
    pub(crate) fn new(receipt: Receipt, is_automatic: bool, to: mpsc::UnboundedSender<Accepted>) -> Self {
        Self { receipt, left: AtomicUsize::new(1), is_automatic, to }
    }

    /// Not more of these are ever on their way than the server may have unacknowledged. Nobody hears it after the end
    /// of the connection, where it says nothing any more.
    fn answer(&self, reason: ReasonCode) {
        let _ = self.to.send(Accepted { receipt: self.receipt, reason });
    }
}
