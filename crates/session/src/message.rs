//! A message that outlives the packet it came in.

use std::sync::Arc;

use topic::TopicName;
use wire::{MessageProperties, Publish, PublishTopic, Qos, Will};

use crate::client::Outgoing;
use crate::{Budget, Charge, Now, Purpose};

/// What one message costs beside its bytes, about.
const OVERHEAD_BYTES: usize = 96;

/// An application message with what is forwarded of its properties, in one piece of memory.
#[derive(Debug, Clone)]
pub struct Message {
    /// Topic, properties as MQTT 5 encodes them, payload.
    bytes: Box<[u8]>,
    topic_bytes: u32,
    properties_bytes: u32,
    publisher: Option<Arc<str>>,
    qos: Qos,
    retain: bool,
    expiry_secs: Option<u32>,
    /// On the wall clock, so that it means the same after a restart.
    expires_unix_ms: Option<u64>,
    /// What it holds of a budget.
    charge: Option<Charge>,
}

impl Message {
    /// The message of a PUBLISH to `topic`, which is the packet's own or what its alias stands for.
    #[must_use]
    pub fn new(topic: TopicName<'_>, publish: &Publish<'_>, publisher: Option<Arc<str>>, now: Now) -> Self {
        let content = Content { topic, properties: &publish.properties, payload: publish.payload };
        Self::build(&content, publish.delivery.qos(), publish.retain, publisher, now)
    }

    /// A message that this end publishes.
    pub(crate) fn of_outgoing(outgoing: &Outgoing<'_>, now: Now) -> Self {
        let Outgoing { topic, payload, qos, retain, ref properties } = *outgoing;
        Self::build(&Content { topic, properties, payload }, qos, retain, None, now)
    }

    /// A will, as it is published when its time has come (MQTT 5.0, 3.1.3.2): its expiry counts from then,
    /// which is `now`.
    #[must_use]
    pub fn of_will(will: &Will<'_>, publisher: Arc<str>, now: Now) -> Self {
        let content =
            Content { topic: will.topic, properties: &will.properties, payload: will.payload.as_bytes() };
        Self::build(&content, will.qos, will.retain, Some(publisher), now)
    }

    /// A retained message of the server's own; `None` if `topic` is no topic name.
    #[must_use]
    pub fn of_server(topic: &str, payload: &[u8]) -> Option<Self> {
        let topic = TopicName::new(topic).ok()?;
        let content = Content { topic, properties: &MessageProperties::EMPTY, payload };
        let now = Now { monotonic_ms: 0, unix_ms: 0 };
        Some(Self::build(&content, Qos::AtMostOnce, true, None, now))
    }

    fn build(content: &Content<'_>, qos: Qos, retain: bool, publisher: Option<Arc<str>>, now: Now) -> Self {
        let Content { topic, properties, payload } = content;
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
            charge: None,
        }
    }

    /// The message, on the account of a budget as long as anybody has it.
    #[must_use]
    pub fn charged_to(mut self, budget: &Arc<Budget>) -> Self {
        self.charge = Some(budget.charge(Purpose::Messages, self.size_bytes()));
        self
    }

    /// Where it was published to.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        let bytes = &self.bytes[..self.topic_bytes as usize];
        let text = std::str::from_utf8(bytes).expect("these bytes were a topic name");
        TopicName::new(text).expect("these bytes were a topic name")
    }

    /// The message itself.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[(self.topic_bytes + self.properties_bytes) as usize..]
    }

    /// The client identifier of who published it; the server's own messages have none.
    #[must_use]
    pub fn publisher(&self) -> Option<&str> {
        self.publisher.as_deref()
    }

    /// The QoS it was published with.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Whether it was published with RETAIN 1.
    #[must_use]
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// Whether it may wait for anybody. With an expiry interval of 0 it is for those who can have it at once.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.expiry_secs != Some(0)
    }

    /// Whether its time has run out [MQTT-3.3.2-5]. An interval of 0 is over as soon as the message has waited for
    /// anything.
    #[must_use]
    pub fn is_expired(&self, now: Now) -> bool {
        self.expires_unix_ms.is_some_and(|expires| expires < now.unix_ms)
    }

    /// The packet that delivers it now: QoS 0, RETAIN 0, its expiry less the time it has waited
    /// [MQTT-3.3.2-6].
    #[must_use]
    pub fn publish(&self, now: Now) -> Publish<'_> {
        let properties = &self.bytes[self.topic_bytes as usize..][..self.properties_bytes as usize];
        let mut properties =
            MessageProperties::from_bytes(properties).expect("these bytes were made from properties");
        properties.message_expiry_interval_secs = self.expires_unix_ms.map(|expires| {
            let left_ms = expires.saturating_sub(now.unix_ms);
            // Rounded up: a message that is not expired yet has something left.
            u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
        });
        Publish {
            topic: PublishTopic::Name(self.topic()),
            properties,
            ..Publish::new(self.topic(), self.payload())
        }
    }

    /// The message with an expiry that begins now: a will waits for its moment without growing old (MQTT 5.0,
    /// 3.1.3.2.4). Copies it only if it expires and somebody else has it too.
    #[must_use]
    pub fn published_at(mut self: Arc<Self>, now: Now) -> Arc<Self> {
        if let Some(secs) = self.expiry_secs {
            let expires = now.unix_ms.saturating_add(u64::from(secs) * 1_000);
            Arc::make_mut(&mut self).expires_unix_ms = Some(expires);
        }
        self
    }

    /// When its time runs out, on the wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn expires_unix_ms(&self) -> Option<u64> {
        self.expires_unix_ms
    }

    /// What it holds of memory, about.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

struct Content<'a> {
    topic: TopicName<'a>,
    properties: &'a MessageProperties<'a>,
    payload: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Utf8;

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
