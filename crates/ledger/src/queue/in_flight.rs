//! Messages that are on their way to one client, by the identifier of their exchange.

use base::{Lane, QueueId};
use hashbrown::HashTable;
use wire::{PacketId, Qos};

use crate::queue::entry::Entry;
use crate::record::{Incarnation, MessageId};

/// The exchanges of QoS 1 and 2 with one subscriber (MQTT 5.0, 4.3 and 4.4).
#[derive(Debug)]
pub(crate) struct InFlight {
    exchanges: HashTable<Exchange>,
    last: PacketId,
    order: u64,
    /// No message that is on its way from the session's own queue has a lower number; there may be none with this one.
    oldest: MessageId,
}

/// An exchange with a subscriber.
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
    place: Order,
    /// Bytes of the message, as they count against the credit of the client.
    pub(crate) bytes: usize,
    pub(crate) state: State,
    /// On this connection a group has given it for good, and keeps the order of its key until it is over.
    pub(crate) lane: Option<(QueueId, Lane)>,
    /// A group has given it for good, on whatever connection, on the record.
    pub(crate) moved_from: Option<Incarnation>,
}

/// The place of an exchange among those of its client, in which their packets are sent again [MQTT-4.6.0-1].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// PUBREC came before a restart, and only a copy of its record was left. The place is one of that time: it is in copies
    /// that are still in the log.
    Kept(u64),
    /// Its last packet was the one with this number that was sent.
    Sent(u64),
    /// The exchange waits for the disk, and is sent behind all that do not wait.
    Waiting(u64),
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

impl Exchange {
    /// The number of its place. Of two exchanges that do not wait, the one with the lower number comes first.
    pub(crate) fn place(&self) -> u64 {
        let (Order::Kept(place) | Order::Sent(place) | Order::Waiting(place)) = self.place;
        place
    }
}

impl Default for InFlight {
    fn default() -> Self {
        Self { exchanges: HashTable::new(), last: PacketId::MAX, order: 0, oldest: MessageId(u64::MAX) }
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

    /// A message of QoS 2 of the session's own waits for its record, until [`sent`](Self::sent).
    pub(crate) fn insert(&mut self, packet_id: PacketId, bytes: usize, state: State) {
        self.order += 1;
        let mut place = Order::Sent(self.order);
        if let State::Own(message, entry) = &state {
            self.oldest = self.oldest.min(*message);
            if entry.qos() == Qos::ExactlyOnce {
                place = Order::Waiting(self.order);
            }
        }
        let exchange = Exchange { packet_id, place, bytes, state, lane: None, moved_from: None };
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
        exchange.place = Order::Sent(order);
        Some(exchange)
    }

    /// Marks an exchange as sent after its record was safe. A connection that did not wait for the record may have sent
    /// the message already.
    pub(crate) fn sent(&mut self, packet_id: PacketId) {
        if self.find(packet_id).is_some_and(|exchange| matches!(exchange.place, Order::Waiting(_))) {
            self.advance(packet_id);
        }
    }

    /// All of them, in the order in which they are sent to a connection that begins. None of them waits any more.
    pub(crate) fn restart(&mut self) -> Vec<&Exchange> {
        let waiting: Vec<PacketId> = self
            .in_order()
            .into_iter()
            .filter(|exchange| matches!(exchange.place, Order::Waiting(_)))
            .map(|exchange| exchange.packet_id)
            .collect();
        for packet_id in waiting {
            self.advance(packet_id);
        }
        self.in_order()
    }

    pub(crate) fn find_mut(&mut self, packet_id: PacketId) -> Option<&mut Exchange> {
        self.exchanges.find_mut(hash(packet_id), |exchange| exchange.packet_id == packet_id)
    }

    /// The session's own message under this identifier.
    pub(crate) fn own(&mut self, packet_id: PacketId) -> Option<&mut Entry> {
        match &mut self.find_mut(packet_id)?.state {
            State::Own(_, entry) => Some(entry),
            _ => None,
        }
    }

    /// All messages of the session's own.
    pub(crate) fn own_all(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.exchanges.iter_mut().filter_map(|exchange| match &mut exchange.state {
            State::Own(_, entry) => Some(entry),
            _ => None,
        })
    }

    pub(crate) fn remove(&mut self, packet_id: PacketId) -> Option<Exchange> {
        let found = self.exchanges.find_entry(hash(packet_id), |exchange| exchange.packet_id == packet_id);
        let exchange = found.ok()?.remove().0;
        if self.exchanges.is_empty() && self.exchanges.capacity() > 64 {
            self.exchanges = HashTable::new();
        }
        Some(exchange)
    }

    /// The exchange of a message that came out of the session's own queue, on the record.
    pub(crate) fn find_message(&mut self, message: MessageId) -> Option<&Exchange> {
        if message < self.oldest {
            return None;
        }
        let own = |exchange: &Exchange| match &exchange.state {
            State::Own(id, entry) if entry.is_recorded() && exchange.moved_from.is_none() => Some(*id),
            _ => None,
        };
        // Asked about old messages in their order, of which few are still on their way: most are answered above.
        self.oldest = self.exchanges.iter().filter_map(own).min().unwrap_or(MessageId(u64::MAX));
        self.exchanges.iter().find(|exchange| own(exchange) == Some(message))
    }

    /// While records are read: a copy says that the client has a message.
    ///
    /// If the first record of this is still there, the exchange has its place by that. Otherwise the copy with the last
    /// word has the place: it was written when the first record went. All exchanges whose first records are there are
    /// younger, since the log goes from its old end.
    pub(crate) fn keep(&mut self, packet_id: PacketId, place: u64) {
        self.order = self.order.max(place);
        let known = self.find(packet_id).filter(|exchange| matches!(exchange.state, State::Released));
        match known.map(|exchange| exchange.place) {
            Some(Order::Sent(_) | Order::Waiting(_)) => return,
            Some(Order::Kept(_)) => {}
            None => {
                self.remove(packet_id);
                self.insert(packet_id, 0, State::Released);
            }
        }
        self.find_mut(packet_id).expect("it was put there").place = Order::Kept(place);
    }

    /// Messages go out again in the order of their numbers, not of their records, which may be copies. Messages of one
    /// topic thus keep their order [MQTT-4.6.0-6]. Before them, exchanges go on whose messages the client has. All of them
    /// get places behind those that copies in the log have.
    pub(crate) fn restore_order(&mut self) {
        let message = |exchange: &Exchange| match &exchange.state {
            State::Own(id, _) => Some(*id),
            _ => None,
        };
        let is_kept = |exchange: &Exchange| matches!(exchange.place, Order::Kept(_));
        let mut others: Vec<&mut Exchange> =
            self.exchanges.iter_mut().filter(|exchange| !is_kept(exchange)).collect();
        others.sort_unstable_by_key(|exchange| (message(exchange), exchange.place));
        for exchange in others {
            self.order += 1;
            exchange.place = Order::Sent(self.order);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter()
    }

    /// The connection is over: what groups have given for good keeps nobody waiting any more.
    pub(crate) fn take_lanes(&mut self) -> Vec<(QueueId, Lane)> {
        self.exchanges.iter_mut().filter_map(|exchange| exchange.lane.take()).collect()
    }

    /// All of them, in their order.
    pub(crate) fn in_order(&self) -> Vec<&Exchange> {
        let mut all: Vec<&Exchange> = self.exchanges.iter().collect();
        all.sort_unstable_by_key(|exchange| exchange.place);
        all
    }
}

/// The identifiers are given by us, one after the other: it is enough to spread them over the word.
fn hash(packet_id: PacketId) -> u64 {
    u64::from(packet_id.value()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
