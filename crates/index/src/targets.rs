//! Whom a message goes to: the matches of a topic, one per subscriber, sorted by shard.

use std::num::NonZeroU32;
use std::sync::Arc;

use topic::TopicName;
use wire::Qos;

use crate::{Index, Interest, ShardId, Subscriber};

/// The index as the broker and the ledger use it.
pub type Subscriptions = Index<Arc<Subscriber>, Interest>;

/// One subscriber that a message goes to, with what its matching subscriptions ask for together.
#[derive(Debug, Clone)]
pub struct Target {
    /// Who.
    pub subscriber: Arc<Subscriber>,
    /// The highest granted QoS of them [MQTT-3.3.4-2].
    pub qos: Qos,
    /// Whether one of them wants RETAIN as it was published.
    pub retain_as_published: bool,
    /// How many of them there are.
    pub matches: u32,
    /// The identifiers of them all [MQTT-3.3.4-4].
    pub identifiers: Box<[NonZeroU32]>,
}

impl Target {
    /// Merges the subscriptions of one subscriber, of which there is at least one.
    fn merge(subscriptions: &[(Arc<Subscriber>, Interest)]) -> Self {
        let interests = || subscriptions.iter().map(|(_, interest)| interest);
        Self {
            subscriber: Arc::clone(&subscriptions[0].0),
            qos: interests().map(|interest| interest.qos()).max().unwrap_or_default(),
            retain_as_published: interests().any(|interest| interest.retain_as_published()),
            matches: u32::try_from(subscriptions.len()).unwrap_or(u32::MAX),
            identifiers: interests().filter_map(|interest| interest.identifier()).collect(),
        }
    }
}

/// Everybody a topic reaches, in one list per shard. Lists are shared: a cached route is mailed without a copy.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// The shards that have at least one, each once.
    pub shards: Vec<(ShardId, Arc<[Target]>)>,
    /// The length of all lists together.
    pub count: usize,
}

impl Targets {
    /// Looks a topic up. A subscription with No Local is left out if it is the publisher's own
    /// [MQTT-3.8.3-3], before overlapping ones are merged.
    #[must_use]
    pub fn look_up(index: &Subscriptions, topic: TopicName<'_>, publisher: Option<&str>) -> Self {
        let mut matches: Vec<(Arc<Subscriber>, Interest)> = Vec::new();
        index.for_each_match(topic, |subscriber, interest| {
            if !(interest.no_local() && publisher == Some(&*subscriber.client_id)) {
                matches.push((Arc::clone(subscriber), *interest));
            }
        });
        matches.sort_unstable_by_key(|(subscriber, interest)| (subscriber.place(), interest.identifier()));
        let mut targets = Self::default();
        for shard in matches.chunk_by(|a, b| a.0.shard == b.0.shard) {
            let list: Vec<Target> =
                shard.chunk_by(|a, b| a.0.connection == b.0.connection).map(Target::merge).collect();
            targets.count += list.len();
            targets.shards.push((shard[0].0.shard, list.into()));
        }
        targets
    }

    /// The list of one shard, empty if nobody is there.
    #[must_use]
    pub fn on(&self, shard: ShardId) -> &[Target] {
        self.shards.iter().find(|(id, _)| *id == shard).map_or(&[], |(_, list)| list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, ConnectionId};

    fn subscriber(name: &str, shard: usize, slot: u32) -> Arc<Subscriber> {
        let connection = ConnectionId { slot, generation: 0 };
        Arc::new(Subscriber::new(name.into(), ShardId::new(shard), connection))
    }

    fn index(subscriptions: &[(&str, &Arc<Subscriber>, Interest)]) -> Subscriptions {
        let index = Subscriptions::new([1, 2]);
        let change = |&(filter, subscriber, options)| {
            let filter = topic::TopicFilter::new(filter).expect("a filter");
            Change::Subscribe { filter, subscriber, options }
        };
        index.apply(subscriptions.iter().map(change), &mut Vec::new());
        index
    }

    #[test]
    fn overlapping_subscriptions_make_one_copy_with_the_highest_qos_and_all_identifiers() {
        let [a, b] = [subscriber("a", 0, 1), subscriber("b", 1, 1)];
        let with = |qos, identifier| Interest::new(qos).with_identifier(NonZeroU32::new(identifier));
        let index = index(&[
            ("x/+", &a, with(Qos::AtMostOnce, 7)),
            ("x/#", &a, with(Qos::ExactlyOnce, 3)),
            ("x/y", &a, with(Qos::AtLeastOnce, 0)),
            ("#", &b, with(Qos::AtMostOnce, 0).with_retain_as_published(true)),
        ]);
        let targets = Targets::look_up(&index, topic::topic!("x/y"), None);
        assert_eq!(targets.count, 2);
        let [first] = targets.on(ShardId::new(0)) else { panic!("one target on shard 0") };
        assert_eq!((first.qos, first.matches), (Qos::ExactlyOnce, 3));
        assert_eq!(first.identifiers.iter().map(|i| i.get()).collect::<Vec<_>>(), [3, 7]);
        let [second] = targets.on(ShardId::new(1)) else { panic!("one target on shard 1") };
        assert!(second.retain_as_published && second.identifiers.is_empty());
        assert!(targets.on(ShardId::new(2)).is_empty());
    }

    #[test]
    fn no_local_leaves_out_that_subscription_only() {
        let a = subscriber("a", 0, 1);
        let quiet = Interest::new(Qos::ExactlyOnce).with_no_local(true);
        let index = index(&[("x", &a, quiet), ("#", &a, Interest::new(Qos::AtMostOnce))]);
        let own = Targets::look_up(&index, topic::topic!("x"), Some("a"));
        assert_eq!(own.on(ShardId::new(0))[0].qos, Qos::AtMostOnce);
        let other = Targets::look_up(&index, topic::topic!("x"), Some("b"));
        assert_eq!(other.on(ShardId::new(0))[0].qos, Qos::ExactlyOnce);
    }
}
