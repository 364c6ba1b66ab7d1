//! A PUBLISH that was received, its alias resolved (MQTT 5.0, 3.3.2.3.4).

use std::sync::Arc;

use topic::{TopicName, TopicNameBuf};
use wire::{Publish, PublishTopic, ReasonCode, TopicAlias, Version, Violation};

use crate::Settings;

/// A PUBLISH whose topic is known.
#[derive(Debug)]
pub struct Incoming<'p> {
    /// The packet as it was read.
    pub packet: Publish<'p>,
    /// The version it was read in.
    pub version: Version,
    topic: Resolved<'p>,
}

#[derive(Debug)]
enum Resolved<'p> {
    /// The packet has it.
    Own(TopicName<'p>),
    /// An alias stands for it.
    Aliased(Arc<TopicNameBuf>),
}

impl<'p> Incoming<'p> {
    pub(crate) fn new(packet: Publish<'p>, version: Version, topic: TopicName<'p>) -> Self {
        Self { packet, version, topic: Resolved::Own(topic) }
    }

    /// Where the message goes.
    #[must_use]
    pub fn topic(&self) -> TopicName<'_> {
        match &self.topic {
            Resolved::Own(topic) => *topic,
            Resolved::Aliased(topic) => topic.name(),
        }
    }

    /// Whether a receiver that speaks the same version may get the packet byte for byte.
    #[must_use]
    pub fn is_verbatim(&self) -> bool {
        self.packet.topic.alias().is_none()
    }

    /// The packet with its topic in place of an alias, which is this connection's only.
    #[must_use]
    pub fn without_alias(&self) -> Publish<'_> {
        Publish { topic: PublishTopic::Name(self.topic()), ..self.packet }
    }

    /// Whether clients may publish to this topic: `$SYS` is the server's, `$share` is no topic, and there is
    /// a bound on levels.
    #[must_use]
    pub fn may_be_published(&self, settings: &Settings) -> bool {
        may_be_published(self.topic(), settings)
    }
}

pub(crate) fn may_be_published(topic: TopicName<'_>, settings: &Settings) -> bool {
    !matches!(topic.first_level(), "$SYS" | "$share") && topic.level_count() <= settings.topic_levels_max
}

/// The aliases that a client has set up on its connection.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    names: Vec<Option<Arc<TopicNameBuf>>>,
}

impl Aliases {
    /// Finds out where a PUBLISH goes, and remembers what it says about its alias.
    pub(crate) fn resolve<'p>(
        &mut self,
        packet: Publish<'p>,
        version: Version,
        alias_max: u16,
    ) -> Result<Incoming<'p>, Violation> {
        let checked = |alias: TopicAlias| {
            let in_range = alias.value() <= alias_max;
            in_range.then(|| usize::from(alias.value())).ok_or_else(|| {
                Violation::after_connect(
                    version,
                    ReasonCode::TopicAliasInvalid,
                    ["MQTT-3.3.2-9", "MQTT-4.8.0-1"],
                    "a topic alias above the maximum",
                )
            })
        };
        let topic = match packet.topic {
            PublishTopic::Name(name) => Resolved::Own(name),
            PublishTopic::NameWithAlias(name, alias) => {
                let place = checked(alias)?;
                if self.names.len() <= place {
                    self.names.resize(place + 1, None);
                }
                self.names[place] = Some(Arc::new(name.into()));
                Resolved::Own(name)
            }
            PublishTopic::Alias(alias) => {
                let known = self.names.get(checked(alias)?).and_then(Clone::clone);
                Resolved::Aliased(known.ok_or_else(|| {
                    Violation::after_connect(
                        version,
                        ReasonCode::ProtocolError,
                        ["MQTT-3.3.2-7", "MQTT-4.8.0-1"],
                        "a topic alias that stands for nothing on this connection",
                    )
                })?)
            }
        };
        Ok(Incoming { packet, version, topic })
    }
}
