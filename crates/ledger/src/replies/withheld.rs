//! Acknowledgements that are withheld for a while, because a queue has grown too much.

use std::collections::{BTreeMap, VecDeque};

use base::{Place, QueueId, ShardId};
use protocol::Reply;

use crate::lines::brake::Brake;
use crate::record::Effects;

/// The longest time for which an acknowledgement is withheld.
const WITHHELD_MS_MAX: u64 = 1_000;
/// A publisher that has waited for readers while others had room goes on for as long as it has waited. It may put off at
/// most this much of that. It keeps half of its throughput, whatever the readers do, and however many of them there are.
const DEBT_MS_MAX: u64 = 1_000;

/// Acknowledgements that are held back as long as a queue of theirs has grown too much, at most a second each.
///
/// All that wait of one connection wait for one queue, in their order.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    by_queue: BTreeMap<QueueId, VecDeque<Waiting>>,
    by_connection: BTreeMap<Place, Waits>,
    /// One for each that waits, or waited.
    due: VecDeque<(u64, QueueId)>,
    debts: Debts,
}

#[derive(Debug)]
struct Waiting {
    due_ms: u64,
    place: Place,
    shard: ShardId,
    reply: Reply,
}

/// A connection whose acknowledgements wait.
#[derive(Debug)]
struct Waits {
    brake: Brake,
    acknowledgements: usize,
    since_ms: u64,
    /// When the last of them is sent at the latest.
    due_ms: u64,
}

/// Publishers that have waited for readers while others had room, until they have gone on for as long as they waited.
#[derive(Debug, Default)]
struct Debts {
    /// When that is the case.
    until_ms: BTreeMap<Place, u64>,
    /// Each of them once, to be looked at then, or later.
    looks: VecDeque<(u64, Place)>,
}

impl Debts {
    /// The end of the debt of a publisher that has also waited since `since_ms`.
    fn until(&self, place: Place, since_ms: u64, now_ms: u64) -> u64 {
        let known_ms = self.until_ms.get(&place).copied().unwrap_or_default();
        known_ms.max(since_ms) + 2 * (now_ms - since_ms)
    }

    fn charge(&mut self, place: Place, since_ms: u64, now_ms: u64) {
        let until_ms = self.until(place, since_ms, now_ms);
        if until_ms > now_ms && self.until_ms.insert(place, until_ms).is_none() {
            self.looks.push_back((until_ms, place));
        }
    }

    /// Forgets debts that are over.
    fn settle(&mut self, now_ms: u64) {
        while let Some((_, place)) = self.looks.pop_front_if(|(look_ms, _)| *look_ms <= now_ms) {
            match self.until_ms.get(&place) {
                Some(until_ms) if *until_ms > now_ms => self.looks.push_back((*until_ms, place)),
                _ => drop(self.until_ms.remove(&place)),
            }
        }
    }
}

impl Withheld {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    /// The queue for which this connection's acknowledgements wait already.
    pub(crate) fn queue_of(&self, place: Place) -> Option<QueueId> {
        self.by_connection.get(&place).map(|waits| waits.brake.queue)
    }

    /// Whether an acknowledgement may wait for this reason.
    pub(crate) fn may_wait(&self, place: Place, brake: Brake, now_ms: u64) -> bool {
        let since_ms = self.by_connection.get(&place).map_or(now_ms, |waits| waits.since_ms);
        !brake.beside_others || self.debts.until(place, since_ms, now_ms) <= now_ms + DEBT_MS_MAX
    }

    /// Withholds an acknowledgement, for the queue for which others of the same connection wait already, or else for
    /// this one. If it may not wait for this queue, it waits only for the acknowledgements before it.
    pub(crate) fn push(&mut self, brake: Option<Brake>, place: Place, reply: Reply, now_ms: u64) {
        let brake = self.by_connection.get(&place).map(|waits| waits.brake).or(brake);
        let brake = brake.expect("an acknowledgement waits for a queue, or behind one that does");
        let may_wait = self.may_wait(place, brake, now_ms);
        let due_ms = now_ms + WITHHELD_MS_MAX;
        let new = Waits { brake, acknowledgements: 0, since_ms: now_ms, due_ms };
        let waits = self.by_connection.entry(place).or_insert(new);
        waits.acknowledgements += 1;
        if may_wait {
            waits.due_ms = due_ms;
        }
        let (queue, due_ms) = (brake.queue, waits.due_ms);
        self.due.push_back((due_ms, queue));
        self.by_queue.entry(queue).or_default().push_back(Waiting {
            due_ms,
            place,
            shard: place.shard,
            reply,
        });
    }

    /// The queue has gone down: nobody waits for it any more.
    pub(crate) fn release(&mut self, queue: QueueId, now_ms: u64, to: &mut impl Effects) {
        for waiting in self.by_queue.remove(&queue).into_iter().flatten() {
            self.let_go(waiting, now_ms, to);
        }
    }

    /// Acknowledgements that have waited long enough wait no more.
    pub(crate) fn release_due(&mut self, now_ms: u64, to: &mut impl Effects) {
        self.debts.settle(now_ms);
        while let Some((_, queue)) = self.due.pop_front_if(|(due_ms, _)| *due_ms <= now_ms) {
            let Some(waiting) = self.by_queue.get_mut(&queue) else { continue };
            let first = waiting.pop_front_if(|waiting| waiting.due_ms <= now_ms);
            if waiting.is_empty() {
                self.by_queue.remove(&queue);
            }
            if let Some(first) = first {
                self.let_go(first, now_ms, to);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.due.front().map(|(due_ms, _)| *due_ms)
    }

    fn let_go(&mut self, waiting: Waiting, now_ms: u64, to: &mut impl Effects) {
        if let Some(waits) = self.by_connection.get_mut(&waiting.place) {
            waits.acknowledgements -= 1;
            if waits.acknowledgements == 0 {
                let Waits { brake, since_ms, .. } = *waits;
                self.by_connection.remove(&waiting.place);
                if brake.beside_others {
                    self.debts.charge(waiting.place, since_ms, now_ms);
                }
            }
        }
        to.post(waiting.shard, waiting.reply);
    }
}
