//! Messages that are on their way to one client, by the identifier of their exchange.

use hashbrown::HashTable;
use index::{Lane, QueueId};
use wire::PacketId;

use crate::queue::Entry;
use crate::record::MessageId;

/// The exchanges of QoS 1 and 2 with one subscriber (MQTT 5.0, 4.3 and 4.4).
#[derive(Debug)]
pub(crate) struct InFlight {
    exchanges: HashTable<Exchange>,
    last: PacketId,
    order: u64,
}

/// One of them.
///
/// ```text
///              ┌────── PUBACK, PUBREC with an error ──────► over
///   Own ───────┤                                             ▲
///              └─ PUBREC ─► Released ──────── PUBCOMP ───────┤
///   Shared ──────────────── PUBACK ──────────────────────────┤
///     └── Sent, QoS 2 ────► Taken ──────── PUBCOMP ──────────┘
/// ```
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) packet_id: PacketId,
    /// Grows with each exchange, and when an exchange goes on.
    pub(crate) order: u64,
    /// What it counts for.
    pub(crate) bytes: usize,
    pub(crate) state: State,
    /// On this connection a group has given it for good, and keeps the order of its key until it is over.
    pub(crate) lane: Option<(QueueId, Lane)>,
}

#[derive(Debug)]
pub(crate) enum State {
    /// A message of the session's own.
    Own(MessageId, Entry),
    /// A message of a group, which gets it back when the connection ends.
    Shared { group: QueueId, message: MessageId },
    /// The same, of QoS 2 and written: it stays with this client, whose session ends with the connection.
    Taken { group: QueueId, message: MessageId },
    /// The client has it; PUBREL is on its way.
    Released,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { exchanges: HashTable::new(), last: PacketId::MAX, order: 0 }
    }
}

impl InFlight {
    pub(crate) fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// The next identifier that is not in use [MQTT-2.2.1-3]; none if all 65,535 are. Successive calls give different
    /// ones as long as there are.
    pub(crate) fn allocate(&mut self) -> Option<PacketId> {
        for _ in PacketId::MIN.value()..=PacketId::MAX.value() {
            self.last = PacketId::new(self.last.value().wrapping_add(1)).unwrap_or(PacketId::MIN);
            if self.find(self.last).is_none() {
                return Some(self.last);
            }
        }
        None
    }

    pub(crate) fn insert(&mut self, packet_id: PacketId, bytes: usize, state: State) {
        self.order += 1;
        let exchange = Exchange { packet_id, order: self.order, bytes, state, lane: None };
        self.exchanges.insert_unique(hash(packet_id), exchange, |exchange| hash(exchange.packet_id));
    }

    pub(crate) fn find(&self, packet_id: PacketId) -> Option<&Exchange> {
        self.exchanges.find(hash(packet_id), |exchange| exchange.packet_id == packet_id)
    }

    /// The exchange goes on: it takes its place behind all others, and its state is the caller's to change.
    pub(crate) fn advance(&mut self, packet_id: PacketId) -> Option<&mut Exchange> {
        self.order += 1;
        let order = self.order;
        let exchange =
            self.exchanges.find_mut(hash(packet_id), |exchange| exchange.packet_id == packet_id)?;
        exchange.order = order;
        Some(exchange)
    }

    pub(crate) fn find_mut(&mut self, packet_id: PacketId) -> Option<&mut Exchange> {
        self.exchanges.find_mut(hash(packet_id), |exchange| exchange.packet_id == packet_id)
    }

    pub(crate) fn remove(&mut self, packet_id: PacketId) -> Option<Exchange> {
        let found = self.exchanges.find_entry(hash(packet_id), |exchange| exchange.packet_id == packet_id);
        let exchange = found.ok()?.remove().0;
        if self.exchanges.is_empty() && self.exchanges.capacity() > 64 {
            self.exchanges = HashTable::new();
        }
        Some(exchange)
    }

    /// The connection is over: what groups have given for good keeps nobody waiting any more.
    pub(crate) fn take_lanes(&mut self) -> Vec<(QueueId, Lane)> {
        self.exchanges.iter_mut().filter_map(|exchange| exchange.lane.take()).collect()
    }

    /// All of them, in their order.
    pub(crate) fn in_order(&self) -> Vec<&Exchange> {
        let mut all: Vec<&Exchange> = self.exchanges.iter().collect();
        all.sort_unstable_by_key(|exchange| exchange.order);
        all
    }
}

/// The identifiers are given by us, one after the other: it is enough to spread them over the word.
fn hash(packet_id: PacketId) -> u64 {
    u64::from(packet_id.value()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
