//! Groups that share a subscription (MQTT 5.0, 4.8.2).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::{HashMap, HashTable};
use index::{QueueId, Subscriber};
use wire::PacketId;

use crate::queue::{Entry, Queue};
use crate::record::{Incarnation, MessageId};
use crate::session::Growth;
use crate::table::Table;

/// One group: a queue with several readers.
///
/// A message that is sent to a member is held for it until it is acknowledged; if the member goes before that, it comes
/// back, before all that were never sent.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its filter, and its members as shards see them.
    pub(crate) subscriber: Arc<Subscriber>,
    pub(crate) incarnation: Incarnation,
    /// It has, or had, a member that lasts: what comes from then on is recorded.
    pub(crate) is_recorded: bool,
    pub(crate) queue: Queue,
    pub(crate) returned: BTreeMap<MessageId, Entry>,
    pub(crate) held: HashMap<MessageId, Held, SeedableRandomState>,
    /// Members that take something, as far as is known, in turn. One that does not any more is found out when it is its
    /// turn.
    pub(crate) ring: Ring,
    pub(crate) members: usize,
    pub(crate) connected: usize,
    pub(crate) growth: Growth,
    /// It stands in the line of those that are to be fed.
    pub(crate) is_ready: bool,
}

/// Members in the order of their turns.
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
    /// Nothing once it is the member's.
    pub(crate) entry: Option<Entry>,
}

/// All groups, by place and by filter.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) table: Table<Group>,
    by_filter: HashTable<(Arc<str>, QueueId)>,
    hasher: SeedableRandomState,
}

impl Group {
    pub(crate) fn has_waiting(&self) -> bool {
        !(self.returned.is_empty() && self.queue.is_empty())
    }

    /// The next message: what came back goes first.
    pub(crate) fn front(&self) -> Option<(MessageId, &Entry)> {
        self.returned.first_key_value().map(|(id, entry)| (*id, entry)).or_else(|| self.queue.front())
    }

    pub(crate) fn pop(&mut self) -> Option<(MessageId, Entry)> {
        let next = self.returned.pop_first().or_else(|| self.queue.pop());
        self.growth.shrink(&self.queue);
        next
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
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
        Self { table: Table::default(), by_filter: HashTable::new(), hasher }
    }

    pub(crate) fn of_filter(&self, filter: &str) -> Option<QueueId> {
        let found = self.by_filter.find(self.hasher.hash_one(filter), |(known, _)| **known == *filter);
        found.map(|(_, id)| *id)
    }

    /// A group without members.
    pub(crate) fn insert(&mut self, filter: &str, incarnation: Incarnation) -> QueueId {
        let filter: Arc<str> = filter.into();
        let held = HashMap::with_hasher(self.hasher.clone());
        let id = self.table.insert(|id| Group {
            subscriber: Arc::new(Subscriber::group(Arc::clone(&filter), id)),
            incarnation,
            is_recorded: false,
            queue: Queue::default(),
            returned: BTreeMap::new(),
            held,
            ring: Ring::default(),
            members: 0,
            connected: 0,
            growth: Growth::default(),
            is_ready: false,
        });
        let hasher = &self.hasher;
        let hash_of = |(filter, _): &(Arc<str>, QueueId)| hasher.hash_one(&**filter);
        self.by_filter.insert_unique(hasher.hash_one(&*filter), (filter, id), hash_of);
        id
    }

    pub(crate) fn remove(&mut self, id: QueueId) -> Option<Box<Group>> {
        let group = self.table.remove(id)?;
        let hash = self.hasher.hash_one(&*group.subscriber.client_id);
        if let Ok(found) = self.by_filter.find_entry(hash, |(_, known)| *known == id) {
            found.remove();
        }
        Some(group)
    }
}
