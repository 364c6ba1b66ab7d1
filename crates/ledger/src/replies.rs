//! Replies that wait until what they promise is durable, and acknowledgements that wait a little longer.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use index::{Place, QueueId, ShardId};
use wire::ReasonCode;

use crate::{Durability, Effects, Lsn, Progress, Record, Refusal, Reply};

/// So long an acknowledgement is withheld at most.
const WITHHELD_MS_MAX: u64 = 1_000;

/// What is committed, how much of it is durable, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    committed: Lsn,
    written: Lsn,
    durable: Lsn,
    /// In the order of what they wait for, which is the order in which they came: answers to connections that wait for
    /// the sync...
    held: VecDeque<(Lsn, Answer)>,
    /// ... and to those that wait for the write alone. A connection is one of either, so that its answers keep their
    /// order.
    held_for_write: VecDeque<(Lsn, Answer)>,
    /// The connections that do not wait for the sync.
    hasty: HashMap<Place, Durability, FixedState>,
    pub(crate) withheld: Withheld,
    /// Nothing will be durable any more.
    is_poisoned: bool,
}

/// A reply that may have to wait.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) shard: ShardId,
    pub(crate) reply: Reply,
    /// It acknowledges a message that went into this queue, which had grown too much.
    pub(crate) brake: Option<QueueOf>,
}

/// One queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueOf {
    Session(QueueId),
    Group(QueueId),
}

impl Replies {
    pub(crate) fn commit(&mut self, group: &[Record<'_>], to: &mut impl Effects) -> Result<(), Refusal> {
        if self.is_poisoned {
            return Err(Refusal::Poisoned);
        }
        let lsn = match to.commit(group) {
            Ok(lsn) => lsn,
            Err(refusal) => {
                self.is_poisoned |= refusal == Refusal::Poisoned;
                return Err(refusal);
            }
        };
        debug_assert!(lsn > self.committed, "positions grow");
        self.committed = lsn;
        Ok(())
    }

    /// Nobody waits for what is copied.
    pub(crate) fn copy(&mut self, group: &[Record<'_>], to: &mut impl Effects) -> Result<(), Refusal> {
        if self.is_poisoned {
            return Err(Refusal::Poisoned);
        }
        let copied = to.copy(group).map(drop);
        self.is_poisoned |= copied == Err(Refusal::Poisoned);
        copied
    }

    /// Whether everything is durable that was committed so far.
    pub(crate) fn is_all_durable(&self) -> bool {
        self.durable >= self.committed
    }

    /// A connection has come that waits for so much, or has gone.
    pub(crate) fn set_durability(&mut self, place: Place, durability: Durability) {
        match durability {
            Durability::Fsync => drop(self.hasty.remove(&place)),
            hasty => drop(self.hasty.insert(place, hasty)),
        }
    }

    fn durability(&self, place: Place) -> Durability {
        // Of most servers nobody is hasty.
        if self.hasty.is_empty() {
            Durability::Fsync
        } else {
            self.hasty.get(&place).copied().unwrap_or_default()
        }
    }

    /// Whether everything that was committed so far is as safe as a connection wants it to be.
    pub(crate) fn is_all_safe(&self, place: Place) -> bool {
        match self.durability(place) {
            Durability::Fsync => self.is_all_durable(),
            Durability::Os => self.written >= self.committed,
            Durability::None => true,
        }
    }

    /// Whether an answer to a connection may promise what was committed before.
    pub(crate) fn promise(&self, place: Place) -> Result<(), ReasonCode> {
        let is_lost = self.is_poisoned && !self.is_all_safe(place);
        if is_lost { Err(ReasonCode::ImplementationSpecificError) } else { Ok(()) }
    }

    /// Keeps an answer until everything that was committed so far is as safe as the connection wants it to be.
    pub(crate) fn hold(&mut self, place: Place, answer: Answer) {
        let held = match self.durability(place) {
            Durability::Fsync => &mut self.held,
            Durability::Os | Durability::None => &mut self.held_for_write,
        };
        held.push_back((self.committed, answer));
    }

    /// The last record.
    pub(crate) fn committed(&self) -> Lsn {
        self.committed
    }

    pub(crate) fn set_progress(&mut self, progress: Progress) {
        self.durable = self.durable.max(progress.durable);
        self.written = self.written.max(progress.written).max(self.durable);
    }

    /// The next answer that has not to wait any more.
    pub(crate) fn next_safe(&mut self) -> Option<Answer> {
        let written = self.held_for_write.pop_front_if(|(lsn, _)| *lsn <= self.written);
        let safe = written.or_else(|| self.held.pop_front_if(|(lsn, _)| *lsn <= self.durable));
        safe.map(|(_, answer)| answer)
    }

    /// Nothing will be written any more: returns everything that waits for it.
    pub(crate) fn poison(&mut self) -> impl Iterator<Item = Answer> + use<> {
        self.is_poisoned = true;
        let held = std::mem::take(&mut self.held).into_iter();
        held.chain(std::mem::take(&mut self.held_for_write)).map(|(_, answer)| answer)
    }

    pub(crate) fn has_held(&self) -> bool {
        !(self.held.is_empty() && self.held_for_write.is_empty())
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }
}

/// Acknowledgements that are held back as long as a queue of theirs has grown too much, at most a second each.
///
/// All that wait of one connection wait for one queue, in their order.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    by_queue: BTreeMap<QueueOf, VecDeque<Waiting>>,
    by_connection: BTreeMap<Place, (QueueOf, usize)>,
    /// One for each that waits, or waited.
    due: VecDeque<(u64, QueueOf)>,
}

#[derive(Debug)]
struct Waiting {
    due_ms: u64,
    place: Place,
    shard: ShardId,
    reply: Reply,
}

impl Withheld {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    /// The queue for which this connection's acknowledgements wait already.
    pub(crate) fn queue_of(&self, place: Place) -> Option<QueueOf> {
        self.by_connection.get(&place).map(|(queue, _)| *queue)
    }

    pub(crate) fn push(&mut self, queue: QueueOf, place: Place, reply: Reply, now_ms: u64) {
        let due_ms = now_ms + WITHHELD_MS_MAX;
        self.by_connection.entry(place).or_insert((queue, 0)).1 += 1;
        self.due.push_back((due_ms, queue));
        self.by_queue.entry(queue).or_default().push_back(Waiting {
            due_ms,
            place,
            shard: place.shard,
            reply,
        });
    }

    /// The queue has gone down: nobody waits for it any more.
    pub(crate) fn release(&mut self, queue: QueueOf, to: &mut impl Effects) {
        for waiting in self.by_queue.remove(&queue).into_iter().flatten() {
            self.let_go(waiting, to);
        }
    }

    /// Those who have waited long enough wait no more.
    pub(crate) fn release_due(&mut self, now_ms: u64, to: &mut impl Effects) {
        while let Some((_, queue)) = self.due.pop_front_if(|(due_ms, _)| *due_ms <= now_ms) {
            let Some(waiting) = self.by_queue.get_mut(&queue) else { continue };
            let first = waiting.pop_front_if(|waiting| waiting.due_ms <= now_ms);
            if waiting.is_empty() {
                self.by_queue.remove(&queue);
            }
            if let Some(first) = first {
                self.let_go(first, to);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.due.front().map(|(due_ms, _)| *due_ms)
    }

    fn let_go(&mut self, waiting: Waiting, to: &mut impl Effects) {
        if let Some((_, count)) = self.by_connection.get_mut(&waiting.place) {
            *count -= 1;
            if *count == 0 {
                self.by_connection.remove(&waiting.place);
            }
        }
        to.post(waiting.shard, waiting.reply);
    }
}
