//! Topic aliases, which stand for topic names on one connection (MQTT 5.0, 3.3.2.3.4).

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use topic::{TopicName, TopicNameBuf};
use wire::{PublishTopic, ReasonCode, Role, TopicAlias, Version, Violation};

use crate::incoming::Resolved;

/// Topic aliases of the peer on its connection.
#[derive(Debug, Default)]
pub(crate) struct IncomingAliases {
    names: Vec<Option<Arc<TopicNameBuf>>>,
    /// Sum of the lengths of the names, in bytes.
    bytes: usize,
}

impl IncomingAliases {
    /// Approximate memory of the names and their table, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes + self.names.capacity() * size_of::<Option<Arc<TopicNameBuf>>>()
    }

    /// The topic of an alias.
    pub(crate) fn name(&self, alias: TopicAlias) -> Option<TopicName<'_>> {
        let place = usize::from(alias.value() - 1);
        self.names.get(place)?.as_ref().map(|name| name.name())
    }

    /// Finds the topic of a PUBLISH, and stores a new alias.
    pub(crate) fn resolve<'p>(
        &mut self,
        topic: PublishTopic<'p>,
        version: Version,
        alias_max: u16,
        sender: Role,
    ) -> Result<Resolved<'p>, Violation> {
        let place = |alias: TopicAlias| {
            let place = usize::from(alias.value() - 1);
            if alias.value() <= alias_max { Ok(place) } else { Err(too_high(version, sender)) }
        };
        match topic {
            PublishTopic::Name(name) => Ok(Resolved::Own(name)),
            PublishTopic::NameWithAlias(name, alias) => {
                let place = place(alias)?;
                if self.names.len() <= place {
                    self.names.resize(place + 1, None);
                }
                let old = self.names[place].replace(Arc::new(name.into()));
                self.bytes += name.as_str().len();
                self.bytes -= old.map_or(0, |old| old.name().as_str().len());
                Ok(Resolved::Own(name))
            }
            PublishTopic::Alias(alias) => {
                let known = self.names.get(place(alias)?).and_then(Clone::clone);
                known.map(Resolved::Aliased).ok_or_else(|| {
                    Violation::after_connect(
                        version,
                        ReasonCode::ProtocolError,
                        ["MQTT-3.3.2-7", "MQTT-4.8.0-1"],
                        "a topic alias that stands for nothing on this connection",
                    )
                })
            }
        }
    }
}

fn too_high(version: Version, sender: Role) -> Violation {
    let statement = match sender {
        Role::Client => "MQTT-3.3.2-9",
        Role::Server => "MQTT-3.3.2-11",
    };
    let statements = [statement, "MQTT-4.8.0-1"];
    let text = "a topic alias above the maximum";
    Violation::after_connect(version, ReasonCode::TopicAliasInvalid, statements, text)
}

/// Minimum length of a name with an alias, in bytes. An alias takes three bytes, and its first use also takes the name.
const REPAYING_BYTES: usize = 8;
/// Maximum number of aliases in use. A search through them must cost next to nothing.
const ALIASES_MAX: u16 = 64;
/// Number of names that are remembered after their first use.
const SEEN: usize = 32;
/// Maximum use count of a name. A name with this count is challenged as often before another replaces it.
const CREDIT_MAX: u8 = 15;

/// Our own topic aliases on a connection, for repeated names.
#[derive(Debug)]
pub(crate) struct OutgoingAliases {
    /// Names in the order of their aliases, from 1 on.
    names: Vec<Name>,
    /// Hashes of names that were used once, each at its only possible index.
    seen: [u32; SEEN],
    /// Index of the next name to be challenged.
    hand: u16,
    alias_max: u16,
}

#[derive(Debug)]
struct Name {
    hash: u32,
    text: Box<str>,
    /// Count that falls when another name needs an alias, and rises with each use.
    credit: u8,
}

impl OutgoingAliases {
    pub(crate) fn new(alias_max: u16) -> Self {
        Self { names: Vec::new(), seen: [0; SEEN], hand: 0, alias_max: alias_max.min(ALIASES_MAX) }
    }

    /// Topic or alias for a PUBLISH to this topic. The packet must be written, because the peer learns a new alias from
    /// it.
    pub(crate) fn outgoing<'t>(&mut self, topic: TopicName<'t>) -> PublishTopic<'t> {
        let text = topic.as_str();
        if text.len() < REPAYING_BYTES || self.alias_max == 0 {
            return PublishTopic::Name(topic);
        }
        let hash = hash(text);
        let known = self.names.iter().zip(1..).find(|(name, _)| name.hash == hash && *name.text == *text);
        if let Some((_, alias)) = known {
            let name = &mut self.names[usize::from(alias - 1)];
            name.credit = (name.credit + 1).min(CREDIT_MAX);
            return TopicAlias::new(alias).map_or(PublishTopic::Name(topic), PublishTopic::Alias);
        }
        let seen = &mut self.seen[hash as usize % SEEN];
        if *seen != hash {
            *seen = hash;
            return PublishTopic::Name(topic);
        }
        let alias = self.place().and_then(|place| {
            let name = Name { hash, text: text.into(), credit: 1 };
            match self.names.get_mut(usize::from(place)) {
                Some(old) => *old = name,
                None => self.names.push(name),
            }
            TopicAlias::new(place + 1)
        });
        alias.map_or(PublishTopic::Name(topic), |alias| PublishTopic::NameWithAlias(topic, alias))
    }

    /// Reports that a packet with this topic was not written: the peer does not know its alias.
    pub(crate) fn unsent(&mut self, topic: PublishTopic<'_>) {
        if let PublishTopic::NameWithAlias(_, alias) = topic
            && let Some(name) = self.names.get_mut(usize::from(alias.value() - 1))
        {
            // An empty name never has an alias.
            *name = Name { hash: 0, text: "".into(), credit: 0 };
        }
    }

    /// Index for a new name, from 0 on.
    fn place(&mut self) -> Option<u16> {
        let count = u16::try_from(self.names.len()).unwrap_or(self.alias_max);
        if count < self.alias_max {
            return Some(count);
        }
        self.hand = (self.hand + 1) % self.alias_max;
        let asked = &mut self.names[usize::from(self.hand)];
        if asked.credit == 0 {
            return Some(self.hand);
        }
        asked.credit -= 1;
        None
    }
}

fn hash(text: &str) -> u32 {
    let [a, b, c, d, ..] = FixedState::with_seed(0).hash_one(text).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
