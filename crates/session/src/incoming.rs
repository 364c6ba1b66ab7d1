//! A received PUBLISH with its topic alias resolved (MQTT 5.0, 3.3.2.3.4).

use std::sync::Arc;

use base::Ticket;
use topic::{TopicName, TopicNameBuf};
use wire::{Delivery, PayloadFormat, Publish, PublishTopic, ReasonCode, Version};

use crate::Settings;

/// A PUBLISH with a known topic.
#[derive(Debug)]
pub struct Incoming<'p> {
    /// The packet in the reader's buffer.
    pub packet: Publish<'p>,
    /// Version of the connection.
    pub version: Version,
    topic: Resolved<'p>,
}

#[derive(Debug)]
pub(crate) enum Resolved<'p> {
    /// The topic is in the packet.
    Own(TopicName<'p>),
    /// A topic alias stands for the topic.
    Aliased(Arc<TopicNameBuf>),
}

impl<'p> Incoming<'p> {
    #[inline]
    pub(crate) fn new(packet: Publish<'p>, version: Version, topic: Resolved<'p>) -> Self {
        Self { packet, version, topic }
    }

    /// The answer that is owed: [`Session::complete`](crate::Session::complete) sends it. `None` at QoS 0.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self.packet.delivery {
            Delivery::AtMostOnce => None,
            Delivery::AtLeastOnce { packet_id, .. } => Some(Ticket::PubAck(packet_id)),
            Delivery::ExactlyOnce { packet_id, .. } => Some(Ticket::PubRec(packet_id)),
        }
    }

    /// Topic of the message.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        match &self.topic {
            Resolved::Own(topic) => *topic,
            Resolved::Aliased(topic) => topic.name(),
        }
    }

    /// Whether a receiver with the same version may get the packet byte for byte.
    ///
    /// Otherwise the packet is encoded again: with the topic in place of an alias, and with its User Properties behind
    /// all other properties, so that receivers can share them with the payload.
    #[must_use]
    pub fn is_verbatim(&self) -> bool {
        self.packet.topic.alias().is_none() && self.packet.properties.is_as_written()
    }

    /// Reason why the message must not be routed; `None` if it may be. The topic may be forbidden for clients, or the
    /// payload may not be the text that it claims to be.
    #[must_use]
    pub fn refusal(&self, settings: &Settings) -> Option<ReasonCode> {
        let claims_text = self.packet.properties.payload_format == Some(PayloadFormat::Utf8);
        if !self.may_be_published(settings) {
            Some(ReasonCode::TopicNameInvalid)
        } else if settings.check_payload_format
            && claims_text
            && std::str::from_utf8(self.packet.payload).is_err()
        {
            Some(ReasonCode::PayloadFormatInvalid)
        } else {
            None
        }
    }

    /// The packet with its topic in place of an alias, which only this connection knows.
    #[must_use]
    pub fn without_alias(&self) -> Publish<'_> {
        Publish { topic: PublishTopic::Name(self.topic()), ..self.packet }
    }

    /// Whether clients may publish to this topic. `$SYS` belongs to the server, `$share` is no topic, and the number of
    /// levels is bounded.
    #[must_use]
    pub fn may_be_published(&self, settings: &Settings) -> bool {
        may_be_published(self.topic(), settings)
    }
}

pub(crate) fn may_be_published(topic: TopicName<'_>, settings: &Settings) -> bool {
    !matches!(topic.first_level(), "$SYS" | "$share") && topic.level_count() <= settings.topic_levels_max
}
