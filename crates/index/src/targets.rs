//! Targets of a message: the matches of a topic, one for each subscriber, sorted by shard.

use std::sync::Arc;

use base::{ConnectionId, Identifiers, Identity, Interest, Place, ShardId, Subscriber};
use topic::TopicName;
use wire::Qos;

use crate::{FilterHash, FilterSum, Index};

/// The index as the broker and the ledger use it.
pub type Subscriptions = Index<Arc<Subscriber>, Interest>;

/// One receiver of a message, with the combined options of its matching subscriptions.
#[derive(Debug, Clone)]
pub struct Target {
    /// Handle of the subscriber.
    pub subscriber: Arc<Subscriber>,
    /// Place of its connection when the topic was looked up.
    pub connection: ConnectionId,
    /// The highest granted QoS of its subscriptions [MQTT-3.3.4-2].
    pub qos: Qos,
    /// Whether one of its subscriptions has Retain As Published.
    pub retain_as_published: bool,
    /// Sum of its matching filters. For a member of a group, no filter is in the sum.
    pub filters: FilterSum,
    /// The identifiers of all its subscriptions [MQTT-3.3.4-4].
    pub identifiers: Identifiers,
}

impl Target {
    /// A member of a group.
    #[must_use]
    pub fn one(subscriber: Arc<Subscriber>, connection: ConnectionId, interest: Interest) -> Self {
        Self {
            subscriber,
            connection,
            qos: interest.qos(),
            retain_as_published: interest.retain_as_published(),
            filters: FilterSum::default(),
            identifiers: interest.identifier().into_iter().collect(),
        }
    }

    /// Merges the subscriptions of one subscriber, of which there is at least one.
    fn merge(found: &[Found]) -> Self {
        let interests = || found.iter().map(|found| found.interest);
        let Found { subscriber, place, .. } = &found[0];
        Self {
            subscriber: Arc::clone(subscriber),
            connection: place.map_or(ConnectionId::NOWHERE, |place| place.connection),
            qos: interests().map(Interest::qos).max().unwrap_or_default(),
            retain_as_published: interests().any(Interest::retain_as_published),
            filters: found.iter().fold(FilterSum::default(), |sum, found| sum.with(found.filter)),
            identifiers: interests().filter_map(Interest::identifier).collect(),
        }
    }

    /// Whether a message of this QoS goes through the ledger to it, because the message must outlive the connection.
    #[must_use]
    pub fn is_queued(&self, qos: Qos) -> bool {
        self.subscriber.queue.is_some() && self.qos.min(qos) > Qos::AtMostOnce
    }
}

/// All targets of a topic, shared: a cached route is mailed, and posted to the ledger, without a copy.
#[derive(Debug, Default)]
pub struct Targets {
    /// Connected targets by shard. Each shard with at least one target occurs once.
    pub shards: Vec<(ShardId, Arc<[Target]>)>,
    /// Number of connected targets.
    pub count: usize,
    /// Targets with a queue for messages of QoS 1 and 2. Connected ones are in `shards` too.
    pub queued: Vec<Target>,
    /// Groups. Each gets one copy, for one of its members.
    pub groups: Vec<Arc<Subscriber>>,
    /// Number of subscribers without a connection, which QoS 0 does not reach.
    pub absent: usize,
    /// Number of those that were granted QoS 0, which no message reaches.
    pub absent_at_most_once: usize,
    /// Number of matching subscriptions that the look-up has examined, also those that get nothing. The look-up costs
    /// about as much as this many short packets.
    pub examined: usize,
}

/// One subscription that matches.
struct Found {
    subscriber: Arc<Subscriber>,
    place: Option<Place>,
    interest: Interest,
    filter: FilterHash,
}

impl Targets {
    /// Looks up a topic. A subscription with No Local is left out if it belongs to the publisher [MQTT-3.8.3-3], before
    /// overlapping subscriptions are merged. A group is not merged.
    #[must_use]
    pub fn look_up(index: &Subscriptions, topic: TopicName<'_>, publisher: Option<&str>) -> Self {
        Self::look_up_that(index, topic, publisher, |_| true)
    }

    /// The same among the subscribers that `admits` holds for: the rules allow them to receive the topic. Groups are not
    /// asked, because each of their members has rules of its own.
    #[must_use]
    pub fn look_up_that(
        index: &Subscriptions,
        topic: TopicName<'_>,
        publisher: Option<&str>,
        admits: impl Fn(&Subscriber) -> bool,
    ) -> Self {
        let mut targets = Self::default();
        let mut found: Vec<Found> = Vec::new();
        index.for_each_matching_filter(topic, |_, filter, subscribers| {
            subscribers.for_each(&mut |subscriber: &Arc<Subscriber>, interest: &Interest| {
                if subscriber.members().is_some() {
                    targets.groups.push(Arc::clone(subscriber));
                } else if !(interest.no_local() && publisher == Some(&*subscriber.client_id)) {
                    let (subscriber, place) = (Arc::clone(subscriber), subscriber.place());
                    found.push(Found { subscriber, place, interest: *interest, filter });
                }
            });
        });
        targets.examined = found.len() + targets.groups.len();
        found.retain(|found| admits(&found.subscriber));
        found.sort_unstable_by_key(|found| (found.subscriber.identity(), found.interest.identifier()));
        let same = |a: &Found, b: &Found| Arc::ptr_eq(&a.subscriber, &b.subscriber);
        let merge = |found: &[Found]| (found[0].place, Target::merge(found));
        let mut merged: Vec<(Option<Place>, Target)> = found.chunk_by(same).map(merge).collect();
        // Subscribers without a connection come first, in the order of their queues: nothing visible depends on
        // addresses.
        merged.sort_unstable_by_key(|(place, target)| (*place, target.subscriber.queue));
        let absent = merged.partition_point(|(place, _)| place.is_none());
        let queued = merged[..absent].iter().filter(|(_, target)| target.is_queued(Qos::ExactlyOnce));
        targets.queued.reserve(queued.count());
        targets.add_absent(merged.drain(..absent).map(|(_, target)| target));
        for shard in merged.chunk_by(|(a, _), (b, _)| a.map(|a| a.shard) == b.map(|b| b.shard)) {
            let Some(place) = shard[0].0 else { continue };
            let list: Arc<[Target]> = shard.iter().map(|(_, target)| target.clone()).collect();
            targets.count += list.len();
            targets.queued.extend(list.iter().filter(|target| target.is_queued(Qos::ExactlyOnce)).cloned());
            targets.shards.push((place.shard, list));
        }
        targets
    }

    fn add_absent(&mut self, absent: impl Iterator<Item = Target>) {
        for target in absent {
            self.absent += 1;
            self.absent_at_most_once += usize::from(target.qos == Qos::AtMostOnce);
            if target.is_queued(Qos::ExactlyOnce) {
                self.queued.push(target);
            }
        }
    }

    /// The list of one shard; empty if it has no target.
    #[must_use]
    pub fn on(&self, shard: ShardId) -> &[Target] {
        self.shards.iter().find(|(id, _)| *id == shard).map_or(&[], |(_, list)| list)
    }

    /// Number of absent subscribers that a message of this QoS does not reach.
    #[must_use]
    pub fn absent_at(&self, qos: Qos) -> usize {
        if qos == Qos::AtMostOnce { self.absent } else { self.absent_at_most_once }
    }

    /// Whether there is no target at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count + self.absent + self.groups.len() == 0
    }

    /// Whether a message of this QoS goes through a queue of the ledger to any target.
    #[must_use]
    pub fn has_queued(&self, qos: Qos) -> bool {
        qos > Qos::AtMostOnce && !(self.queued.is_empty() && self.groups.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::Change;
    use base::{Dispatch, QueueId};

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

    /// [MQTT-3.3.4-2, MQTT-3.3.4-3, MQTT-3.3.4-4, 3.1.1 MQTT-3.3.5-1]
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
        let filters = ["x/+", "x/#", "x/y"].map(|filter| topic::TopicFilter::new(filter).expect("a filter"));
        let hashes = filters.map(|filter| index.hash_of_filter(filter));
        let sum = hashes.into_iter().fold(FilterSum::default(), FilterSum::with);
        assert_eq!((first.qos, first.filters), (Qos::ExactlyOnce, sum));
        assert_eq!(first.identifiers.iter().map(|i| i.get()).collect::<Vec<_>>(), [3, 7]);
        let [second] = targets.on(ShardId::new(1)) else { panic!("one target on shard 1") };
        assert!(second.retain_as_published && second.identifiers.is_empty());
        assert!(targets.on(ShardId::new(2)).is_empty());
    }

    /// A message of QoS 0 waits for nobody; one above it waits unless the subscription is of QoS 0.
    #[test]
    fn absent_subscribers_are_counted_by_the_qos_of_the_message() {
        let id = |slot| QueueId { slot, generation: 0 };
        let away = [1, 2, 3].map(|slot| Arc::new(Subscriber::lasting(format!("{slot}").into(), id(slot))));
        let [low, high] = [Qos::AtMostOnce, Qos::AtLeastOnce].map(Interest::new);
        let index = index(&[("x", &away[0], high), ("x", &away[1], high), ("#", &away[2], low)]);
        let targets = Targets::look_up(&index, topic::topic!("x"), None);
        let counts = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce].map(|qos| targets.absent_at(qos));
        assert_eq!(counts, [3, 1, 1]);
    }

    #[test]
    fn a_lasting_session_is_queued_for_wherever_it_is_and_a_group_is_merged_with_nobody() {
        let here = subscriber("here", 0, 1);
        let id = |slot| QueueId { slot, generation: 0 };
        let [away, back] = [1, 2].map(|slot| Arc::new(Subscriber::lasting("lasting".into(), id(slot))));
        let connection = ConnectionId { slot: 9, generation: 1 };
        back.move_to(Some(Place { shard: ShardId::new(1), connection }));
        let group = Arc::new(Subscriber::group("$share/g/x".into(), id(3), Dispatch::RoundRobin));
        let [low, high] = [Qos::AtMostOnce, Qos::AtLeastOnce].map(Interest::new);
        let all = [
            ("x", &here, high),
            ("x", &away, high),
            ("#", &away, low),
            ("x", &back, high),
            ("x", &group, low),
        ];
        let targets = Targets::look_up(&index(&all), topic::topic!("x"), None);
        assert_eq!((targets.count, targets.absent, targets.groups.len()), (2, 1, 1));
        assert_eq!(targets.queued.len(), 2);
        assert_eq!(targets.on(ShardId::new(1))[0].connection, connection);
        assert!(targets.has_queued(Qos::AtLeastOnce) && !targets.has_queued(Qos::AtMostOnce));
    }

    /// [MQTT-3.8.3-3]
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
