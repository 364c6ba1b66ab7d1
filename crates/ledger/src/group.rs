//! Groups that share a subscription (MQTT 5.0, 4.8.2).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::fast::FixedState;
use foldhash::quality::SeedableRandomState;
use hashbrown::{HashMap, HashTable};
use index::{Dispatch, Lane, Members, QueueId, Subscriber};
use session::{Message, Now};
use topic::TopicFilter;
use wire::PacketId;

use crate::brake::Growth;
use crate::entry::Entry;
use crate::lanes::Lanes;
use crate::queue::Queue;
use crate::record::{Incarnation, MessageId};
use crate::table::Table;
use crate::{SESSION_BYTES, Settings};

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
    /// It has, or had, a member that lasts: what comes from then on is recorded.
    pub(crate) is_recorded: bool,
    pub(crate) queue: Queue,
    /// Where keys keep their order: what of the queue can go to whom.
    pub(crate) lanes: Option<Box<Lanes>>,
    pub(crate) returned: BTreeMap<MessageId, Entry>,
    /// How many of those will expire.
    returned_expiring: usize,
    pub(crate) held: HashMap<MessageId, Held, SeedableRandomState>,
    /// Members that take something, as far as is known, in turn. One that does not any more is found out when it is its
    /// turn.
    pub(crate) ring: Ring,
    pub(crate) members: usize,
    pub(crate) connected: usize,
    pub(crate) growth: Growth,
    /// What waited when a member was ended whose keys had filled the queue: the others are given time to take it.
    pub(crate) inherited: Inherited,
    /// Its queue was full: its members are ended, and nobody joins it.
    pub(crate) is_ending: bool,
    /// It stands in the line of those that are to be fed.
    pub(crate) is_ready: bool,
    /// It stands in the line of those whose lanes are to get their owners.
    pub(crate) is_deciding: bool,
}

/// About what it takes to know whose a lane is, here and in the index.
const LANE_BYTES: usize = 20;

/// What of a queue does not count against its bound: the messages that came first.
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

/// All groups, by place and by filter.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) table: Table<Group>,
    by_filter: HashTable<(Arc<str>, QueueId)>,
    /// How many groups there are on each topic filter.
    on_filter: HashTable<OnFilter>,
    by_incarnation: HashMap<Incarnation, QueueId, FixedState>,
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
    /// All of them.
    pub(crate) groups: usize,
    /// Those that one session has begun.
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

    pub(crate) fn has_waiting(&self) -> bool {
        !(self.returned.is_empty() && self.queue.is_empty())
    }

    /// Whether a member that takes something may get something.
    pub(crate) fn has_turns(&self) -> bool {
        self.lanes.as_ref().map_or(!self.ring.is_empty(), |lanes| lanes.has_turns())
    }

    /// Whether a member takes a message, as far as is known, before which nothing waits.
    pub(crate) fn takes(&self, message: &Message) -> bool {
        match (&self.lanes, self.lane_of(message)) {
            (Some(lanes), Some(lane)) => lanes.takes(lane),
            _ => !self.ring.is_empty(),
        }
    }

    /// Whether the next message is on disk alone.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.returned.is_empty() && self.queue.is_away_within(0)
    }

    /// A new message, behind all others.
    pub(crate) fn push(&mut self, id: MessageId, entry: Entry) {
        self.notice(id, &entry);
        self.queue.push(id, entry);
    }

    /// A message comes back, to its old place.
    pub(crate) fn put_back(&mut self, id: MessageId, entry: Entry) {
        self.notice(id, &entry);
        self.returned_expiring += usize::from(entry.expires());
        self.returned.insert(id, entry);
    }

    /// How many messages will expire, of those that wait.
    pub(crate) fn expiring(&self) -> usize {
        self.queue.expiring() + self.returned_expiring
    }

    /// Looks at about `visits` messages behind `after` and notes which of them are expired, those that came back included.
    /// Returns where it stopped, or nothing at the end.
    pub(crate) fn look_for_expired(
        &self,
        after: Option<MessageId>,
        visits: usize,
        now: Now,
        expired: &mut Vec<MessageId>,
    ) -> Option<MessageId> {
        let next = self.queue.look_for_expired(after, visits, now, expired);
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let last = next.map_or(Bound::Unbounded, Bound::Included);
        let mut returned = self.returned.range((first, last));
        let mut stopped = None;
        for (id, entry) in returned.by_ref().take(visits) {
            if entry.is_expired(now) {
                expired.push(*id);
            }
            stopped = Some(*id);
        }
        // What of the queue is behind that is looked at again.
        if returned.next().is_some() { stopped } else { next }
    }

    /// The next message for a member: what came back goes first.
    pub(crate) fn next_for(&self, member: QueueId) -> Option<(MessageId, &Entry)> {
        match &self.lanes {
            None => {
                let returned = self.returned.first_key_value().map(|(id, entry)| (*id, entry));
                returned.or_else(|| self.queue.front())
            }
            Some(lanes) => {
                let id = lanes.next_for(member)?;
                let entry = self.returned.get(&id).or_else(|| self.queue.find(id))?;
                Some((id, entry))
            }
        }
    }

    /// Whether a message is the group's, waiting or with a member that may give it back, and on the record.
    pub(crate) fn keeps(&self, id: MessageId) -> bool {
        let waiting = self.queue.find(id).or_else(|| self.returned.get(&id));
        let held = || self.held.get(&id).and_then(|held| held.entry.as_ref());
        waiting.or_else(held).is_some_and(|entry| entry.is_recorded())
    }

    /// A message that waits, or that a member may give back.
    pub(crate) fn entry(&mut self, id: MessageId) -> Option<&mut Entry> {
        let held = self.held.get_mut(&id).and_then(|held| held.entry.as_mut());
        self.queue.find_mut(id).or_else(|| self.returned.get_mut(&id)).or(held)
    }

    /// Takes a message out, wherever it waits.
    pub(crate) fn take(&mut self, id: MessageId) -> Option<Entry> {
        let returned = self.returned.remove(&id);
        self.returned_expiring -= usize::from(returned.as_ref().is_some_and(Entry::expires));
        let entry = returned.or_else(|| self.queue.remove(id))?;
        self.forget(id, &entry);
        Some(entry)
    }

    /// Takes the oldest of those out that were never sent.
    pub(crate) fn drop_oldest(&mut self) -> Option<Entry> {
        let (id, entry) = self.queue.pop()?;
        self.forget(id, &entry);
        Some(entry)
    }

    /// The key of a message, if it is to keep an order with others.
    pub(crate) fn lane_of(&self, message: &Message) -> Option<Lane> {
        lane_of(self.subscriber.members()?, message)
    }

    /// Where keys keep their order, all messages are in memory.
    fn lane_of_entry(&self, entry: &Entry) -> Option<Lane> {
        self.lane_of(entry.message()?)
    }

    /// The messages that wait were read from records.
    pub(crate) fn restore_lanes(&mut self, settings: &Settings) {
        let Some(mut lanes) = self.lanes.take() else { return };
        self.inherited = Inherited::restored(&self.queue, settings);
        for (id, entry) in self.queue.iter() {
            let lane = self.lane_of_entry(entry).into_iter();
            lane.for_each(|lane| lanes.add(lane, id, entry.size_bytes()));
        }
        self.lanes = Some(lanes);
    }

    fn notice(&mut self, id: MessageId, entry: &Entry) {
        let lane = self.lane_of_entry(entry);
        if let (Some(lane), Some(lanes)) = (lane, &mut self.lanes) {
            lanes.add(lane, id, entry.size_bytes());
        }
    }

    fn forget(&mut self, id: MessageId, entry: &Entry) {
        let lane = self.lane_of_entry(entry);
        if let (Some(lane), Some(lanes)) = (lane, &mut self.lanes) {
            lanes.remove(lane, id, entry.size_bytes());
        }
        self.growth.shrink(&self.queue);
        self.inherited.shrink(&self.queue);
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

    /// Whether it is at most so much.
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

impl Groups {
    pub(crate) fn new(seed: u64, dispatch: Dispatch) -> Self {
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
        let (by_filter, on_filter, by_incarnation) = (HashTable::new(), HashTable::new(), HashMap::default());
        Self { table: Table::default(), by_filter, on_filter, by_incarnation, hasher, dispatch }
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
        let Ok(mut found) = self.on_filter.find_entry(self.hasher.hash_one(plain_text), is_it) else {
            return;
        };
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

    /// What they hold of memory, without the messages that wait.
    pub(crate) fn size_bytes(&self) -> usize {
        let of_lanes = match self.dispatch {
            Dispatch::KeyOrdered(_) => Lane::COUNT * LANE_BYTES,
            Dispatch::RoundRobin => 0,
        };
        self.table.len() * (SESSION_BYTES + of_lanes)
    }

    pub(crate) fn of_filter(&self, filter: &str) -> Option<QueueId> {
        let found = self.by_filter.find(self.hasher.hash_one(filter), |(known, _)| **known == *filter);
        found.map(|(_, id)| *id)
    }

    pub(crate) fn of_incarnation(&self, incarnation: Incarnation) -> Option<QueueId> {
        self.by_incarnation.get(&incarnation).copied()
    }

    /// In the order in which they began.
    pub(crate) fn in_order(&self) -> Vec<(Incarnation, QueueId)> {
        let mut all: Vec<_> = self.by_incarnation.iter().map(|(name, id)| (*name, *id)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// A group without members, which a session has begun.
    pub(crate) fn insert(
        &mut self,
        filter: &str,
        incarnation: Incarnation,
        founder: Option<QueueId>,
    ) -> QueueId {
        let filter: Arc<str> = filter.into();
        let held = HashMap::with_hasher(self.hasher.clone());
        let dispatch = &self.dispatch;
        let is_ordered = matches!(dispatch, Dispatch::KeyOrdered(_));
        let id = self.table.insert(|id| Group {
            subscriber: Arc::new(Subscriber::group(Arc::clone(&filter), id, dispatch.clone())),
            incarnation,
            founder,
            is_recorded: false,
            queue: Queue::default(),
            lanes: is_ordered.then(|| Box::new(Lanes::new())),
            returned: BTreeMap::new(),
            returned_expiring: 0,
            held,
            ring: Ring::default(),
            members: 0,
            connected: 0,
            growth: Growth::default(),
            inherited: Inherited::default(),
            is_ending: false,
            is_ready: false,
            is_deciding: false,
        });
        self.by_incarnation.insert(incarnation, id);
        self.count_on_filter(&filter, founder);
        let hasher = &self.hasher;
        let hash_of = |(filter, _): &(Arc<str>, QueueId)| hasher.hash_one(&**filter);
        self.by_filter.insert_unique(hasher.hash_one(&*filter), (filter, id), hash_of);
        id
    }

    pub(crate) fn remove(&mut self, id: QueueId) -> Option<Box<Group>> {
        let group = self.table.remove(id)?;
        self.by_incarnation.remove(&group.incarnation);
        self.uncount_on_filter(&group.subscriber.client_id, group.founder);
        let hash = self.hasher.hash_one(&*group.subscriber.client_id);
        if let Ok(found) = self.by_filter.find_entry(hash, |(_, known)| *known == id) {
            found.remove();
        }
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::Key;

    /// The account knows about as much memory as the lanes of a group take: each has an owner.
    #[test]
    fn the_lanes_of_each_group_are_on_the_account() {
        let groups_bytes = |dispatch: Dispatch, count: u64| {
            let mut groups = Groups::new(7, dispatch);
            for number in 1..=count {
                groups.insert(&format!("$share/g{number}/a"), Incarnation(number), None);
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
