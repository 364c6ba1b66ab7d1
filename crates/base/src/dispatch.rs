//! Dispatch policies of a group: to its members in turn, or by a key that keeps its order.

use std::hash::Hasher;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use wire::MessageProperties;

/// The choice of a member for a message (MQTT 5.0, 4.8.2, leaves it to the server).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Dispatch {
    /// The next member in turn that accepts it.
    #[default]
    RoundRobin,
    /// The owner of the message's key: messages with one key keep their order. A member loses a key when it leaves, or
    /// when a new member gets the key and the old one has acknowledged all its messages with that key.
    KeyOrdered(Key),
}

/// The common value of messages that keep their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The client that has published them.
    Publisher,
    /// The value of the first User Property with this name. A message without one has its publisher as the key.
    Property(Arc<str>),
}

/// A set of keys that move together. There are enough of them for groups of some hundred members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u16);

impl Lane {
    /// Number of lanes of a group.
    pub const COUNT: usize = 1_024;

    /// All lanes, from 0 on.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u16::MAX).map(Self).take(Self::COUNT)
    }

    /// The lane of this number, if it is below [`COUNT`](Self::COUNT).
    #[must_use]
    pub fn numbered(number: usize) -> Option<Self> {
        u16::try_from(number).ok().filter(|_| number < Self::COUNT).map(Self)
    }

    /// The lane's number, from 0 on and below [`COUNT`](Self::COUNT).
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Score of a member with this name for the lane. The present member with the highest score owns it: a change of
    /// members moves only the lanes of that member.
    #[must_use]
    pub fn claim_of(self, client_id: &str) -> u64 {
        let mut hasher = hasher_of(client_id);
        hasher.write_u16(self.0);
        hasher.finish()
    }

    fn of(key: &str) -> Self {
        let number = hasher_of(key).finish() % Self::COUNT as u64;
        Self(u16::try_from(number).expect("there are fewer lanes than that"))
    }
}

impl Dispatch {
    /// Lane of a message; `None` if the message has no order to keep.
    #[must_use]
    pub fn lane<'a>(
        &self,
        publisher: Option<&str>,
        properties: impl FnOnce() -> MessageProperties<'a>,
    ) -> Option<Lane> {
        let publisher = publisher.unwrap_or_default();
        match self {
            Self::RoundRobin => None,
            Self::KeyOrdered(Key::Publisher) => Some(Lane::of(publisher)),
            Self::KeyOrdered(Key::Property(name)) => {
                let mut pairs = properties().user_properties.iter();
                let chosen = pairs.find(|pair| pair.name.as_str() == &**name);
                Some(Lane::of(chosen.map_or(publisher, |pair| pair.value.as_str())))
            }
        }
    }
}

/// The hash has no key: a publisher with colliding keys could as well use one key. Without a seed, the hash of the
/// bytes alone is the same for `a` and `aa`, and for `m1` and `m11`.
fn hasher_of(text: &str) -> FoldHasher<'static> {
    let mut hasher = FoldHasher::with_seed(0, SharedSeed::global_fixed());
    hasher.write(text.as_bytes());
    hasher.write_usize(text.len());
    hasher
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{UserProperties, UserProperty, Utf8};

    fn text(text: &str) -> Utf8<'_> {
        Utf8::new(text).expect("a string")
    }

    #[test]
    fn messages_with_one_key_have_one_lane() {
        let pairs = [
            UserProperty { name: text("order"), value: text("7") },
            UserProperty { name: text("order"), value: text("8") },
        ];
        let properties = MessageProperties {
            user_properties: UserProperties::from(&pairs[..]),
            ..MessageProperties::default()
        };
        let by_order = Dispatch::KeyOrdered(Key::Property("order".into()));
        let by_publisher = Dispatch::KeyOrdered(Key::Publisher);
        assert_eq!(by_order.lane(Some("a"), || properties), by_order.lane(Some("b"), || properties));
        assert_eq!(by_order.lane(Some("a"), || properties), Some(Lane::of("7")));
        assert_eq!(by_order.lane(Some("a"), || MessageProperties::EMPTY), Some(Lane::of("a")));
        assert_eq!(by_publisher.lane(Some("a"), || properties), Some(Lane::of("a")));
        assert_eq!(Dispatch::RoundRobin.lane(Some("a"), || properties), None);
    }

    #[test]
    fn lanes_are_shared_out_evenly_and_few_move() {
        let owner = |lane: Lane, members: &[&str]| {
            let most = members.iter().max_by_key(|name| lane.claim_of(name));
            (*most.expect("there is one")).to_owned()
        };
        let (three, four) = (["a", "b", "c"], ["a", "b", "c", "d"]);
        let moved: Vec<_> = Lane::all().filter(|lane| owner(*lane, &three) != owner(*lane, &four)).collect();
        assert!(moved.iter().all(|lane| owner(*lane, &four) == "d"), "only to the one that came");
        assert!((150..=350).contains(&moved.len()), "a quarter, not {}", moved.len());
    }

    /// Of two members with equal scores, one would have all lanes and the other none.
    #[test]
    fn members_with_similar_names_share_the_lanes_evenly() {
        for names in [&["a", "aa", "aaa"][..], &["m1", "m11", "m10"], &["a", "b", "ba"]] {
            for name in names {
                let most = |lane: Lane| names.iter().max_by_key(|name| lane.claim_of(name));
                let lanes = Lane::all().filter(|lane| most(*lane) == Some(name)).count();
                assert!((250..=430).contains(&lanes), "{lanes} of {names:?} for {name:?}");
            }
        }
    }
}
