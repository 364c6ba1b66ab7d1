//! Groups that share a subscription (MQTT 5.0, 4.8.2).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use base::{Dispatch, Lane, Members, Message, Now, QueueId, Subscriber};
use foldhash::SharedSeed;
use foldhash::fast::FixedState;
use foldhash::quality::SeedableRandomState;
use hashbrown::{HashMap, HashTable};
use topic::TopicFilter;
use wire::PacketId;

use crate::lines::lanes::Lanes;
use crate::queue::Queue;
use crate::queue::entry::Entry;
use crate::record::{Incarnation, MessageId};
use crate::settings::Settings;

/// One group: a queue with several readers.
///
/// A message that is sent to a member is held for it until it is acknowledged; if the member goes before that, it comes
/// back, before all that were never sent.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its filter, and its members as shards see them.
    pub(crate) subscriber: Arc<Subscriber>,
    pub(crate) incarnation: Incarnation,
    /// The session that was its first member, in this process.
    founder: Option<QueueId>,
    /// The group has, or had, a lasting member: messages are recorded from then on.
    pub(crate) is_recorded: bool,
    /// In a key-ordered group: the messages that each member can get.
    pub(crate) lanes: Option<Box<Lanes>>,
    pub(crate) returned: BTreeMap<MessageId, Entry>,
    /// How many of those will expire.
    pub(crate) returned_expiring: usize,
    pub(crate) held: HashMap<MessageId, Held, SeedableRandomState>,
    /// Members that take something, as far as is known, in turn. One that does not any more is found out when it is its
    /// turn.
    pub(crate) ring: Ring,
    pub(crate) members: usize,
    pub(crate) connected: usize,
    /// Messages that waited when a member was ended whose keys had filled the queue. The other members get time to
    /// receive them.
    pub(crate) inherited: Inherited,
    /// Its queue was full: its members are ended, and nobody joins it.
    pub(crate) is_ending: bool,
    /// The group is in the line of groups whose lanes are to get their owners.
    pub(crate) is_deciding: bool,
}

/// About what it takes to know whose a lane is, here and in the index.
const LANE_BYTES: usize = 20;

/// The oldest messages of a queue, which do not count against its bound.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Inherited {
    messages: usize,
    bytes: usize,
}

/// Members of a group, or groups of a member, in the order of their turns.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    turns: BTreeMap<u64, QueueId>,
    last: u64,
}

/// A message that a member has.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) holder: QueueId,
    pub(crate) packet_id: PacketId,
    pub(crate) lane: Option<Lane>,
    /// Nothing once it is the member's.
    pub(crate) entry: Option<Entry>,
}

/// The filters of all groups.
#[derive(Debug)]
pub(crate) struct Filters {
    by_filter: HashTable<(Arc<str>, QueueId)>,
    /// How many groups there are on each topic filter.
    on_filter: HashTable<OnFilter>,
    hasher: SeedableRandomState,
    dispatch: Dispatch,
}

/// The groups whose filters differ in the share name only. A message that matches goes to each of them.
#[derive(Debug)]
struct OnFilter {
    /// The filter of one of them, or of one that was among them.
    text: Arc<str>,
    groups: usize,
    /// How many of them were begun by one session, in this process.
    of_founders: HashMap<QueueId, usize, FixedState>,
}

/// How many groups there are on one topic filter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Begun {
    /// Number of groups on the filter.
    pub(crate) groups: usize,
    /// Number of groups that one session has begun.
    pub(crate) of_founder: usize,
}

/// A shared filter without `$share/` and the share name.
fn plain(filter: &str) -> &str {
    let parsed = TopicFilter::new(filter).ok();
    parsed.and_then(TopicFilter::shared).map_or(filter, |shared| shared.filter.as_str())
}

impl Group {
    /// A member has connected, or is not connected any more: shards give it what is of QoS 0, or do not.
    pub(crate) fn set_connected(&self, member: &Arc<Subscriber>, is_connected: bool) {
        if let Some(members) = self.subscriber.members() {
            members.set_connected(member, is_connected);
        }
    }

    /// Whether a member that takes something may get something.
    pub(crate) fn has_turns(&self) -> bool {
        self.lanes.as_ref().map_or(!self.ring.is_empty(), |lanes| lanes.has_turns())
    }

    /// Whether enough members have had their turns that it is the first one's turn again.
    pub(crate) fn is_round(&self, turns: usize) -> bool {
        turns > 0 && turns >= self.ring.turns.len()
    }

    /// Whether a member takes a message, as far as is known, before which nothing waits.
    pub(crate) fn takes(&self, message: &Message) -> bool {
        match (&self.lanes, self.lane_of(message)) {
            (Some(lanes), Some(lane)) => lanes.takes(lane),
            _ => !self.ring.is_empty(),
        }
    }

    /// A message comes back, to its old place.
    pub(crate) fn put_back(&mut self, id: MessageId, entry: Entry) {
        self.notice(id, &entry);
        self.returned_expiring += usize::from(entry.expires());
        self.returned.insert(id, entry);
    }

    /// Looks at about `visits` of the messages that came back, behind one and up to another, and notes which of them are
    /// expired. Returns where it stopped, if it did.
    pub(crate) fn look_for_expired(
        &self,
        (after, last): (Option<MessageId>, Option<MessageId>),
        visits: usize,
        now: Now,
        expired: &mut Vec<MessageId>,
    ) -> Option<MessageId> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let last = last.map_or(Bound::Unbounded, Bound::Included);
        let mut returned = self.returned.range((first, last));
        let mut stopped = None;
        for (id, entry) in returned.by_ref().take(visits) {
            if entry.is_expired(now) {
                expired.push(*id);
            }
            stopped = Some(*id);
        }
        returned.next().and(stopped)
    }

    /// Returns at most this number of messages that came back, behind `after`, and the last of them, unless it is the
    /// last of all.
    pub(crate) fn returned_behind(
        &self,
        after: Option<MessageId>,
        visits: usize,
    ) -> (Vec<MessageId>, Option<MessageId>) {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.returned.range((first, Bound::Unbounded));
        let found: Vec<MessageId> = rest.by_ref().take(visits).map(|(id, _)| *id).collect();
        let stopped = found.last().copied().filter(|_| rest.next().is_some());
        (found, stopped)
    }

    /// A message that has come back, or that a member may give back.
    pub(crate) fn returned_or_held(&self, id: MessageId) -> Option<&Entry> {
        let held = || self.held.get(&id).and_then(|held| held.entry.as_ref());
        self.returned.get(&id).or_else(held)
    }

    pub(crate) fn returned_or_held_mut(&mut self, id: MessageId) -> Option<&mut Entry> {
        let held = self.held.get_mut(&id).and_then(|held| held.entry.as_mut());
        self.returned.get_mut(&id).or(held)
    }

    pub(crate) fn take_returned(&mut self, id: MessageId) -> Option<Entry> {
        let entry = self.returned.remove(&id)?;
        self.returned_expiring -= usize::from(entry.expires());
        Some(entry)
    }

    /// The key of a message, if it is to keep an order with others.
    pub(crate) fn lane_of(&self, message: &Message) -> Option<Lane> {
        lane_of(self.subscriber.members()?, message)
    }

    /// Returns the lane of an entry. All messages of a key-ordered group are in memory.
    fn lane_of_entry(&self, entry: &Entry) -> Option<Lane> {
        self.lane_of(entry.message()?)
    }

    /// Adds a waiting message to its lane.
    pub(crate) fn notice(&mut self, id: MessageId, entry: &Entry) {
        let lane = self.lane_of_entry(entry);
        if let (Some(lane), Some(lanes)) = (lane, &mut self.lanes) {
            lanes.add(lane, id, entry.size_bytes());
        }
    }

    /// A message waits no more; this is left of the queue.
    pub(crate) fn forget(&mut self, id: MessageId, entry: &Entry, queue: &Queue) {
        let lane = self.lane_of_entry(entry);
        if let (Some(lane), Some(lanes)) = (lane, &mut self.lanes) {
            lanes.remove(lane, id, entry.size_bytes());
        }
        self.inherited.shrink(queue);
    }
}

/// The key of a message for a group with these members, if it is to keep an order with others.
pub(crate) fn lane_of(members: &Members, message: &Message) -> Option<Lane> {
    let at = Now { monotonic_ms: 0, unix_ms: 0 };
    members.dispatch().lane(message.publisher(), || message.publish(at).properties)
}

impl Inherited {
    /// All of a queue.
    pub(crate) fn all_of(queue: &Queue) -> Self {
        Self { messages: queue.len(), bytes: queue.bytes() }
    }

    /// The most that a group inherits, which is 2.5 times the bound of its queue.
    pub(crate) fn most(settings: &Settings) -> Self {
        let most = |bound: usize| bound.saturating_mul(2).saturating_add(bound / 2);
        Self { messages: most(settings.queue_messages_max), bytes: most(settings.queue_bytes_max) }
    }

    /// The part of a queue that was read from records. A queue is over its bound because a member was ended, or because
    /// the bound was lowered.
    pub(crate) fn restored(queue: &Queue, settings: &Settings) -> Self {
        let is_over = queue.len() >= settings.queue_messages_max || queue.bytes() >= settings.queue_bytes_max;
        let all = if is_over { Self::all_of(queue) } else { Self::default() };
        let most = Self::most(settings);
        Self { messages: all.messages.min(most.messages), bytes: all.bytes.min(most.bytes) }
    }

    /// Whether the queue is not longer than this with one more message.
    pub(crate) fn has_room_for(self, queue: &Queue, bytes: usize) -> bool {
        queue.len() < self.messages && queue.bytes().saturating_add(bytes) <= self.bytes
    }

    /// Something was taken from the queue.
    fn shrink(&mut self, queue: &Queue) {
        self.messages = self.messages.min(queue.len());
        self.bytes = self.bytes.min(queue.bytes());
    }

    /// Whether it is at most this number of messages and bytes.
    pub(crate) fn is_within(self, messages: usize, bytes: usize) -> bool {
        self.messages <= messages && self.bytes <= bytes
    }

    /// Messages and bytes of the rest of the queue.
    pub(crate) fn rest_of(self, queue: &Queue) -> (usize, usize) {
        (queue.len().saturating_sub(self.messages), queue.bytes().saturating_sub(self.bytes))
    }
}

impl Ring {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Behind all others. Returns its turn.
    pub(crate) fn push(&mut self, member: QueueId) -> u64 {
        self.last += 1;
        self.turns.insert(self.last, member);
        self.last
    }

    pub(crate) fn pop(&mut self) -> Option<QueueId> {
        self.turns.pop_first().map(|(_, member)| member)
    }

    pub(crate) fn remove(&mut self, turn: u64) {
        self.turns.remove(&turn);
    }
}

impl Filters {
    pub(crate) fn new(seed: u64, dispatch: Dispatch) -> Self {
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
        Self { by_filter: HashTable::new(), on_filter: HashTable::new(), hasher, dispatch }
    }

    /// How many groups there are on the topic filter of a shared one, and how many of them this session has begun.
    pub(crate) fn begun_on_filter_of(&self, filter: &str, founder: QueueId) -> Begun {
        let plain_text = plain(filter);
        let is_it = |known: &OnFilter| plain(&known.text) == plain_text;
        let found = self.on_filter.find(self.hasher.hash_one(plain_text), is_it);
        found.map_or(Begun::default(), |known| Begun {
            groups: known.groups,
            of_founder: known.of_founders.get(&founder).copied().unwrap_or_default(),
        })
    }

    fn count_on_filter(&mut self, filter: &Arc<str>, founder: Option<QueueId>) {
        let (plain_text, hasher) = (plain(filter), &self.hasher);
        let entry = self.on_filter.entry(
            hasher.hash_one(plain_text),
            |known| plain(&known.text) == plain_text,
            |known| hasher.hash_one(plain(&known.text)),
        );
        let new = || OnFilter { text: Arc::clone(filter), groups: 0, of_founders: HashMap::default() };
        let mut entry = entry.or_insert_with(new);
        entry.get_mut().groups += 1;
        if let Some(founder) = founder {
            *entry.get_mut().of_founders.entry(founder).or_default() += 1;
        }
    }

    fn uncount_on_filter(&mut self, filter: &str, founder: Option<QueueId>) {
        let plain_text = plain(filter);
        let is_it = |known: &OnFilter| plain(&known.text) == plain_text;
        let found = self.on_filter.find_entry(self.hasher.hash_one(plain_text), is_it);
        let mut found = found.expect("a group is counted on its topic filter");
        let known = found.get_mut();
        known.groups -= 1;
        if let Some(founder) = founder
            && let Some(begun) = known.of_founders.get_mut(&founder)
        {
            *begun -= 1;
            if *begun == 0 {
                known.of_founders.remove(&founder);
            }
        }
        if known.groups == 0 {
            found.remove();
        }
    }

    /// The memory of the lanes of one group.
    pub(crate) fn lanes_bytes(&self) -> usize {
        match self.dispatch {
            Dispatch::KeyOrdered(_) => Lane::COUNT * LANE_BYTES,
            Dispatch::RoundRobin => 0,
        }
    }

    pub(crate) fn of_filter(&self, filter: &str) -> Option<QueueId> {
        let found = self.by_filter.find(self.hasher.hash_one(filter), |(known, _)| **known == *filter);
        found.map(|(_, id)| *id)
    }

    /// A group without members, which is not among the others yet.
    pub(crate) fn group(
        &self,
        filter: &str,
        id: QueueId,
        incarnation: Incarnation,
        founder: Option<QueueId>,
    ) -> Group {
        let dispatch = self.dispatch.clone();
        let is_ordered = matches!(dispatch, Dispatch::KeyOrdered(_));
        Group {
            subscriber: Arc::new(Subscriber::group(filter.into(), id, dispatch)),
            incarnation,
            founder,
            is_recorded: false,
            lanes: is_ordered.then(|| Box::new(Lanes::new())),
            returned: BTreeMap::new(),
            returned_expiring: 0,
            held: HashMap::with_hasher(self.hasher.clone()),
            ring: Ring::default(),
            members: 0,
            connected: 0,
            inherited: Inherited::default(),
            is_ending: false,
            is_deciding: false,
        }
    }

    pub(crate) fn add(&mut self, group: &Group, id: QueueId) {
        let filter = &group.subscriber.client_id;
        self.count_on_filter(filter, group.founder);
        let hasher = &self.hasher;
        let hash_of = |(filter, _): &(Arc<str>, QueueId)| hasher.hash_one(&**filter);
        self.by_filter.insert_unique(hasher.hash_one(&**filter), (Arc::clone(filter), id), hash_of);
    }

    pub(crate) fn remove(&mut self, group: &Group, id: QueueId) {
        let filter = &group.subscriber.client_id;
        self.uncount_on_filter(filter, group.founder);
        let hash = self.hasher.hash_one(&**filter);
        let found = self.by_filter.find_entry(hash, |(_, known)| *known == id);
        found.expect("a group is among the others by its filter").remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::Lines;
    use base::Key;

    /// The account knows about as much memory as the lanes of a group take: each has an owner.
    #[test]
    fn the_lanes_of_each_group_are_on_the_account() {
        let groups_bytes = |dispatch: Dispatch, count: u64| {
            let mut groups = Lines::alone(&Settings { seed: 7, dispatch, ..Settings::default() });
            for number in 1..=count {
                groups.insert_group(&format!("$share/g{number}/a"), Incarnation(number), None);
            }
            groups.size_bytes()
        };
        for count in [0, 1, 10] {
            let factor = usize::try_from(count).expect("a small number");
            let of_one = groups_bytes(Dispatch::RoundRobin, 1);
            assert!((size_of::<Group>()..10 * size_of::<Group>()).contains(&of_one), "{of_one} bytes");
            assert_eq!(groups_bytes(Dispatch::RoundRobin, count), factor * of_one);
            let of_lanes = groups_bytes(Dispatch::KeyOrdered(Key::Publisher), 1) - of_one;
            let owners = Lane::COUNT * size_of::<Option<QueueId>>();
            assert!((owners..3 * owners).contains(&of_lanes), "{of_lanes} bytes");
            assert_eq!(
                groups_bytes(Dispatch::KeyOrdered(Key::Publisher), count),
                factor * (of_one + of_lanes)
            );
        }
    }
}
