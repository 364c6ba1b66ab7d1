//! An application message that outlives its packet.

use std::fmt;
use std::sync::Arc;

use topic::{TopicError, TopicName};
use wire::{MessageProperties, Publish, Qos, Will};

use crate::{Budget, Charge, Now, Purpose, SpanMark};

/// Approximate memory of a message beyond its bytes.
const OVERHEAD_BYTES: usize = 96;

/// An application message with its forwarded properties, in one piece of memory.
#[derive(Clone)]
pub struct Message {
    /// Topic, properties in the encoding of MQTT 5, payload.
    bytes: Box<[u8]>,
    topic_bytes: u32,
    properties_bytes: u32,
    publisher: Option<Arc<str>>,
    qos: Qos,
    retain: bool,
    expiry_secs: Option<u32>,
    /// Time of expiry on the wall clock, which means the same after a restart.
    expires_unix_ms: Option<u64>,
    /// The mark of a message with spans. It is lost when the message leaves the memory.
    span: Option<Arc<SpanMark>>,
    /// Share of a memory budget.
    charge: Option<Charge>,
}

impl Message {
    /// The message of a PUBLISH to `topic`: the topic of the packet, or that of its alias.
    #[must_use]
    pub fn new(topic: TopicName<'_>, publish: &Publish<'_>, publisher: Option<Arc<str>>, now: Now) -> Self {
        let &Publish { ref delivery, retain, ref properties, payload, .. } = publish;
        Self::of_content(&Content { topic, properties, payload, qos: delivery.qos(), retain }, publisher, now)
    }

    /// A will at its publication (MQTT 5.0, 3.1.3.2). Its expiry interval begins at `now`.
    #[must_use]
    pub fn of_will(will: &Will<'_>, publisher: Arc<str>, now: Now) -> Self {
        let &Will { topic, ref properties, ref payload, qos, retain, .. } = will;
        let content = Content { topic, properties, payload: payload.as_bytes(), qos, retain };
        Self::of_content(&content, Some(publisher), now)
    }

    /// A retained message of the server itself; `None` if `topic` is no topic name.
    #[must_use]
    pub fn of_server(topic: &str, payload: &[u8]) -> Option<Self> {
        let topic = TopicName::new(topic).ok()?;
        let properties = &MessageProperties::EMPTY;
        let content = Content { topic, properties, payload, qos: Qos::AtMostOnce, retain: true };
        Some(Self::of_content(&content, None, Now { monotonic_ms: 0, unix_ms: 0 }))
    }

    /// A message of the server itself that is not retained; `None` if `topic` is no topic name, or the payload is longer than
    /// a packet can be.
    #[must_use]
    pub fn of_control(topic: &str, payload: &[u8]) -> Option<Self> {
        let topic = TopicName::new(topic).ok().filter(|_| payload.len() < 1 << 27)?;
        let properties = &MessageProperties::EMPTY;
        let content = Content { topic, properties, payload, qos: Qos::AtMostOnce, retain: false };
        Some(Self::of_content(&content, None, Now { monotonic_ms: 0, unix_ms: 0 }))
    }

    /// A message with this content. An expiry interval begins now.
    #[must_use]
    pub fn of_content(content: &Content<'_>, publisher: Option<Arc<str>>, now: Now) -> Self {
        let &Content { topic, properties, payload, qos, retain } = content;
        let mut bytes = Vec::with_capacity(topic.as_str().len() + payload.len());
        bytes.extend_from_slice(topic.as_str().as_bytes());
        let properties_bytes =
            properties.write_bytes(&mut bytes).expect("a vector takes everything that a packet held");
        bytes.extend_from_slice(payload);
        let expires = |secs: u32| now.unix_ms.saturating_add(u64::from(secs) * 1_000);
        let length = |length: usize| u32::try_from(length).expect("a packet is shorter than 2^28 bytes");
        Self {
            bytes: bytes.into_boxed_slice(),
            topic_bytes: length(topic.as_str().len()),
            properties_bytes: length(properties_bytes),
            publisher,
            qos,
            retain,
            expiry_secs: properties.message_expiry_interval_secs,
            expires_unix_ms: properties.message_expiry_interval_secs.map(expires),
            span: None,
            charge: None,
        }
    }

    /// A copy with another topic, which belongs to no budget.
    #[must_use]
    pub fn with_topic(&self, topic: TopicName<'_>) -> Self {
        let rest = &self.bytes[self.topic_bytes as usize..];
        let bytes = [topic.as_str().as_bytes(), rest].concat().into_boxed_slice();
        let topic_bytes = u32::try_from(topic.as_str().len()).expect("a topic has at most 65,535 bytes");
        let (publisher, span) = (self.publisher.clone(), self.span.clone());
        Self { bytes, topic_bytes, publisher, span, charge: None, ..*self }
    }

    /// A message from its parts. Copies the bytes once, and belongs to no budget.
    ///
    /// # Errors
    /// The parts, which may come from a disk, are not those of a message.
    pub fn from_parts(parts: &Parts<'_>) -> Result<Self, PartsError> {
        let &Parts { bytes, topic_bytes, properties_bytes, publisher, qos, retain, expires_unix_ms } = parts;
        let rest = bytes.get(topic_bytes as usize..).ok_or(PartsError::Lengths)?;
        let properties = rest.get(..properties_bytes as usize).ok_or(PartsError::Lengths)?;
        if u32::try_from(bytes.len()).is_err() {
            return Err(PartsError::Lengths);
        }
        let topic = std::str::from_utf8(&bytes[..topic_bytes as usize]).map_err(|_| PartsError::Utf8)?;
        TopicName::new(topic).map_err(PartsError::Topic)?;
        let properties = MessageProperties::from_bytes(properties)
            .map_err(|violation| PartsError::Properties(violation.text))?;
        if !properties.is_as_written() {
            return Err(PartsError::Properties("User Properties do not stand behind all others"));
        }
        let expiry_secs = properties.message_expiry_interval_secs;
        if expiry_secs.is_some() != expires_unix_ms.is_some() {
            return Err(PartsError::Expiry);
        }
        Ok(Self {
            bytes: bytes.into(),
            topic_bytes,
            properties_bytes,
            publisher: publisher.cloned(),
            qos,
            retain,
            expiry_secs,
            expires_unix_ms,
            span: None,
            charge: None,
        })
    }

    /// The parts for [`from_parts`](Self::from_parts).
    #[must_use]
    pub fn parts(&self) -> Parts<'_> {
        Parts {
            bytes: &self.bytes,
            topic_bytes: self.topic_bytes,
            properties_bytes: self.properties_bytes,
            publisher: self.publisher.as_ref(),
            qos: self.qos,
            retain: self.retain,
            expires_unix_ms: self.expires_unix_ms,
        }
    }

    /// The message with the mark of its spans, if it has any.
    #[must_use]
    pub fn with_span(self, span: Option<Arc<SpanMark>>) -> Self {
        Self { span, ..self }
    }

    /// The mark of the message, if it has spans.
    #[must_use]
    pub fn span(&self) -> Option<&Arc<SpanMark>> {
        self.span.as_ref()
    }

    /// The message, charged to a budget until its last owner drops it.
    #[must_use]
    pub fn charged_to(mut self, budget: &Arc<Budget>) -> Self {
        self.charge_to(budget);
        self
    }

    /// Charges the message to a budget until its last owner drops it.
    pub fn charge_to(&mut self, budget: &Arc<Budget>) {
        self.charge = Some(budget.charge(Purpose::Messages, self.size_bytes()));
    }

    /// Topic to which the message was published.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        let bytes = &self.bytes[..self.topic_bytes as usize];
        let text = std::str::from_utf8(bytes).expect("these bytes were a topic name");
        TopicName::new(text).expect("these bytes were a topic name")
    }

    /// Payload of the message.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[(self.topic_bytes + self.properties_bytes) as usize..]
    }

    /// Client identifier of the publisher; `None` for the server's own messages.
    #[must_use]
    pub fn publisher(&self) -> Option<&str> {
        self.publisher.as_deref()
    }

    /// QoS with which the message was published.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Whether the message was published with RETAIN 1.
    #[must_use]
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// Whether the message may wait for a receiver. With an expiry interval of 0, only receivers that can have it at
    /// once get it.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.expiry_secs != Some(0)
    }

    /// Whether the message has expired [MQTT-3.3.2-5]. An interval of 0 has passed as soon as the message has waited.
    #[must_use]
    pub fn is_expired(&self, now: Now) -> bool {
        self.expires_unix_ms.is_some_and(|expires| expires < now.unix_ms)
    }

    /// The packet that delivers the message now: QoS 0, RETAIN 0, and the remaining expiry interval [MQTT-3.3.2-6].
    #[must_use]
    pub fn publish(&self, now: Now) -> Publish<'_> {
        let properties = &self.bytes[self.topic_bytes as usize..][..self.properties_bytes as usize];
        let mut properties =
            MessageProperties::from_written_bytes(properties).expect("these bytes were made from properties");
        properties.message_expiry_interval_secs = self.expires_unix_ms.map(|expires| {
            let left_ms = expires.saturating_sub(now.unix_ms);
            // Rounded up: a message that has not expired has at least one second left.
            let left_secs = u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
            // After the clock was set back, the interval is still not longer than the original one.
            self.expiry_secs.map_or(left_secs, |secs| left_secs.min(secs))
        });
        Publish { properties, ..Publish::new(self.topic(), self.payload()) }
    }

    /// The message with an expiry that begins now: a will does not age before its publication (MQTT 5.0, 3.1.3.2.4).
    /// Copies the message only if it expires and has another owner too.
    #[must_use]
    pub fn published_at(mut self: Arc<Self>, now: Now) -> Arc<Self> {
        if let Some(secs) = self.expiry_secs {
            let expires = now.unix_ms.saturating_add(u64::from(secs) * 1_000);
            Arc::make_mut(&mut self).expires_unix_ms = Some(expires);
        }
        self
    }

    /// Time of expiry on the wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn expires_unix_ms(&self) -> Option<u64> {
        self.expires_unix_ms
    }

    /// Approximate memory of the message, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        Self::size_bytes_of(self.bytes.len())
    }

    /// Approximate memory of a message with a topic, properties and a payload of this length together.
    #[must_use]
    pub fn size_bytes_of(bytes: usize) -> usize {
        bytes + OVERHEAD_BYTES
    }
}

/// All parts except the payload, of which only the length is printed: a trace has many messages, and a payload may be a
/// secret.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} q{} {} B", self.topic(), self.qos.level(), self.payload().len())?;
        if self.properties_bytes > 0 {
            write!(f, " + {} B of properties", self.properties_bytes)?;
        }
        if self.retain {
            f.write_str(" retain")?;
        }
        if let Some(publisher) = &self.publisher {
            write!(f, " from {publisher:?}")?;
        }
        match self.expires_unix_ms {
            Some(expires_unix_ms) => write!(f, " until {expires_unix_ms} ms"),
            None => Ok(()),
        }
    }
}

/// The parts of a message, for a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Topic, properties in the form of [`MessageProperties::write_bytes`], payload; less than 4 GiB.
    pub bytes: &'a [u8],
    /// Length of the topic at the beginning.
    pub topic_bytes: u32,
    /// Length of the properties behind the topic.
    pub properties_bytes: u32,
    /// Client identifier of the publisher; `None` for the server's own messages.
    pub publisher: Option<&'a Arc<str>>,
    /// QoS with which the message was published.
    pub qos: Qos,
    /// Whether the message was published with RETAIN 1.
    pub retain: bool,
    /// Time of expiry on the wall clock, in milliseconds since 1970. Present if and only if the properties have an
    /// expiry interval.
    pub expires_unix_ms: Option<u64>,
}

/// Reason why [`Parts`] are not those of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartsError {
    /// Topic and properties are longer than all bytes, or there are 4 GiB or more.
    Lengths,
    /// The topic is not UTF-8.
    Utf8,
    /// The topic is no topic name.
    Topic(TopicError),
    /// The properties break this rule.
    Properties(&'static str),
    /// There is an expiry interval without a time of expiry, or the other way round.
    Expiry,
}

impl fmt::Display for PartsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths => f.write_str("the lengths of a message's parts do not fit it"),
            Self::Utf8 => f.write_str("a topic name that is not UTF-8"),
            Self::Topic(error) => write!(f, "a topic name: {error}"),
            Self::Properties(rule) => write!(f, "a message's properties: {rule}"),
            Self::Expiry => f.write_str("a message with half an expiry"),
        }
    }
}

impl std::error::Error for PartsError {}

/// Content of a message that is about to be published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Content<'a> {
    /// Topic of the message.
    pub topic: TopicName<'a>,
    /// Properties, all of which are forwarded.
    pub properties: &'a MessageProperties<'a>,
    /// Payload of the message, in bytes.
    pub payload: &'a [u8],
    /// The QoS with which the message is published.
    pub qos: Qos,
    /// Whether RETAIN is 1.
    pub retain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Utf8;

    /// [MQTT-3.3.2-6]
    #[test]
    fn a_clock_that_was_set_back_adds_nothing_to_an_expiry_interval() {
        let properties =
            MessageProperties { message_expiry_interval_secs: Some(10), ..MessageProperties::default() };
        let topic = topic::topic!("a/b");
        let at = |unix_ms| Now { monotonic_ms: 0, unix_ms };
        let message =
            Message::new(topic, &Publish { properties, ..Publish::new(topic, b"") }, None, at(5_000));
        for (unix_ms, left_secs) in [(0, 10), (4_999, 10), (5_000, 10), (6_000, 9)] {
            let left = message.publish(at(unix_ms)).properties.message_expiry_interval_secs;
            assert_eq!(left, Some(left_secs), "at {unix_ms} ms");
        }
    }

    /// [MQTT-3.3.2-6]
    #[test]
    fn a_message_gives_back_what_it_was_made_of_and_less_time() {
        let properties = MessageProperties {
            message_expiry_interval_secs: Some(10),
            content_type: Some(Utf8::new("text/plain").expect("a string")),
            ..MessageProperties::default()
        };
        let topic = topic::topic!("a/b");
        let publish = Publish { properties, retain: true, ..Publish::new(topic, b"hey") };
        let at = |unix_ms| Now { monotonic_ms: 0, unix_ms };
        let message = Message::new(topic, &publish, Some("me".into()), at(1_000));
        assert_eq!(
            (message.topic(), message.payload(), message.publisher()),
            (topic, &b"hey"[..], Some("me"))
        );
        assert!(message.retain());
        let sent = message.publish(at(5_500));
        assert_eq!(sent.properties.message_expiry_interval_secs, Some(6), "5.5 s have been 5 s at the most");
        assert_eq!(sent.properties.content_type, properties.content_type);
        assert!(!message.is_expired(at(11_000)) && message.is_expired(at(11_001)));
    }

    fn telling() -> Message {
        let properties = MessageProperties {
            message_expiry_interval_secs: Some(10),
            content_type: Some(Utf8::new("text/plain").expect("a string")),
            ..MessageProperties::default()
        };
        let topic = topic::topic!("a/b");
        let publish = Publish { properties, retain: true, ..Publish::new(topic, b"hey") };
        Message::new(topic, &publish, Some("me".into()), Now { monotonic_ms: 0, unix_ms: 1_000 })
    }

    #[test]
    fn a_message_is_made_again_from_its_parts() {
        let now = Now { monotonic_ms: 0, unix_ms: 2_000 };
        for message in [telling(), Message::of_server("$SYS/a", b"1").expect("a topic")] {
            let again = Message::from_parts(&message.parts()).expect("they are a message's");
            assert_eq!(again.parts(), message.parts());
            assert_eq!(again.publish(now), message.publish(now));
            assert_eq!(again.may_wait(), message.may_wait());
        }
    }

    #[test]
    fn parts_of_no_message_are_refused() {
        let message = telling();
        let parts = message.parts();
        let refused = |parts: Parts<'_>| Message::from_parts(&parts).expect_err("no message has these");
        assert_eq!(refused(Parts { topic_bytes: u32::MAX, ..parts }), PartsError::Lengths);
        assert_eq!(refused(Parts { properties_bytes: u32::MAX, ..parts }), PartsError::Lengths);
        assert_eq!(refused(Parts { expires_unix_ms: None, ..parts }), PartsError::Expiry);
        assert_eq!(refused(Parts { topic_bytes: 0, ..parts }), PartsError::Topic(TopicError::Empty));
        assert!(matches!(refused(Parts { properties_bytes: 1, ..parts }), PartsError::Properties(_)));
        let with = |bytes: &[u8]| refused(Parts { bytes, topic_bytes: 3, properties_bytes: 0, ..parts });
        assert_eq!(with(b"a/#"), PartsError::Topic(TopicError::Wildcard));
        assert_eq!(with(b"a/\xFF"), PartsError::Utf8);
        assert_eq!(with(b"a/b"), PartsError::Expiry, "without the property");
    }

    #[test]
    fn a_trace_of_a_message_counts_its_bytes() {
        let text = format!("{:?}", telling());
        assert_eq!(text, r#""a/b" q0 3 B + 18 B of properties retain from "me" until 11000 ms"#);
    }

    #[test]
    fn a_message_gets_another_topic_and_keeps_the_rest() {
        let (before, whole) = (telling(), telling().with_topic(topic::topic!("house/a/b")));
        let after = Message::from_parts(&whole.parts()).expect("they are a message's");
        assert_eq!(after.topic(), topic::topic!("house/a/b"));
        assert_eq!(after.with_topic(topic::topic!("a/b")).parts(), before.parts());
        assert_eq!((after.payload(), after.publisher()), (&b"hey"[..], Some("me")));
    }

    #[test]
    fn a_will_does_not_grow_old_before_it_is_published() {
        let properties =
            MessageProperties { message_expiry_interval_secs: Some(10), ..MessageProperties::default() };
        let payload = wire::Binary::new(b"gone").expect("short");
        let topic = topic::topic!("a/b");
        let will = Will {
            topic,
            payload,
            qos: Qos::AtLeastOnce,
            retain: true,
            delay_interval_secs: Some(60),
            properties,
        };
        let at = |unix_ms| Now { monotonic_ms: 0, unix_ms };
        let message = Arc::new(Message::of_will(&will, "me".into(), at(0)));
        let published = Arc::clone(&message).published_at(at(60_000));
        assert!(message.is_expired(at(60_001)) && !published.is_expired(at(70_000)));
        let sent = published.publish(at(60_000));
        assert_eq!(sent.properties.message_expiry_interval_secs, Some(10));
        assert_eq!(
            (published.qos(), published.retain(), published.payload()),
            (Qos::AtLeastOnce, true, &b"gone"[..])
        );
    }
}
