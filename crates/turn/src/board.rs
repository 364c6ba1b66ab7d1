//! How full the ways between threads are, and how many connections each shard has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Budget, ShardId};
use broker::Room;

use crate::way::Way;

/// Gauges that all threads of a process share.
pub struct Board {
    /// By sender, then receiver.
    mail: Vec<Vec<Way>>,
    commands: Vec<Way>,
    /// Answers of the ledger, by shard.
    answers: Vec<Way>,
    budget: Arc<Budget>,
    /// Connections of each shard, lingering ones included.
    loads: Vec<AtomicUsize>,
    /// Connections of each listener, lingering ones included.
    listeners: Vec<AtomicUsize>,
}

impl Board {
    /// A board for a process with this number of shards.
    #[must_use]
    pub fn new(shards: usize, budget: Arc<Budget>) -> Self {
        let ways = || (0..shards).map(|_| Way::default()).collect::<Vec<_>>();
        Self {
            mail: (0..shards).map(|_| ways()).collect(),
            commands: ways(),
            answers: ways(),
            budget,
            loads: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            listeners: Vec::new(),
        }
    }

    /// The same, with this number of listeners whose connections are counted.
    #[must_use]
    pub fn with_listeners(self, count: usize) -> Self {
        Self { listeners: (0..count).map(|_| AtomicUsize::new(0)).collect(), ..self }
    }

    /// The account of memory.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.loads.len()
    }

    /// All connections of the process.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    /// Charges the shard with the fewest connections for one more, and returns its number.
    pub fn charge_least_loaded(&self) -> ShardId {
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let least = loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(number, _)| number);
        let shard = ShardId::new(least);
        self.charge(shard);
        shard
    }

    /// A shard is charged for one more connection.
    pub fn charge(&self, shard: ShardId) {
        self.loads[shard.number()].fetch_add(1, Ordering::Relaxed);
    }

    /// A connection of a shard is gone.
    pub fn discharge(&self, shard: ShardId) {
        self.loads[shard.number()].fetch_sub(1, Ordering::Relaxed);
    }

    /// The connections of a listener. 0 if they are not counted.
    #[must_use]
    pub fn connections_of(&self, listener: u16) -> usize {
        self.listeners.get(usize::from(listener)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// A listener has accepted one more connection.
    pub fn charge_listener(&self, listener: u16) {
        if let Some(count) = self.listeners.get(usize::from(listener)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection of a listener is gone.
    pub(crate) fn discharge_listener(&self, listener: u16) {
        if let Some(count) = self.listeners.get(usize::from(listener)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Mail from one shard to another.
    pub(crate) fn mail(&self, from: ShardId, to: ShardId) -> &Way {
        &self.mail[from.number()][to.number()]
    }

    /// Commands of a shard to the ledger.
    pub(crate) fn commands(&self, from: ShardId) -> &Way {
        &self.commands[from.number()]
    }

    /// Answers of the ledger to a shard.
    pub(crate) fn answers(&self, to: ShardId) -> &Way {
        &self.answers[to.number()]
    }

    /// Whether no shard has more than `bound` bytes of answers to read. If one has, the ledger receives
    /// [`ToLedger::AnswersRead`](crate::ToLedger::AnswersRead).
    pub(crate) fn has_room_for_answers(&self, bound: usize) -> bool {
        self.answers.iter().all(|way| way.room(bound) == Room::Open)
    }

    /// The fullest way to a shard from another one, and the fullest to the ledger, in bytes.
    #[must_use]
    pub fn fullest(&self) -> (usize, usize) {
        let most = |ways: &[Way]| ways.iter().map(Way::bytes).max().unwrap_or(0);
        (self.mail.iter().map(|ways| most(ways)).max().unwrap_or(0), most(&self.commands))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn the_fullest_way_is_found_among_mail_and_commands() {
        let board = Board::new(2, Arc::new(base::Budget::new(1 << 30)));
        assert_eq!(board.fullest(), (0, 0));
        board.mail[0][1].add(30, usize::MAX);
        board.mail[1][0].add(70, usize::MAX);
        board.commands[1].add(50, usize::MAX);
        assert_eq!(board.fullest(), (70, 50));
    }

    #[test]
    fn a_sender_that_waits_is_told_once() {
        let way = Way::default();
        way.add(100, 50);
        assert!(way.wait_above(50));
        assert!(way.handled(80));
        assert!(!way.handled(20));
        assert!(!way.wait_above(50));
    }

    /// Both threads begin each round at the same moment, or one of them a little later.
    #[test]
    fn a_sender_that_has_to_wait_is_told_however_both_threads_run() {
        const ROUNDS: usize = 50_000;
        let way = Way::default();
        let [begun, done] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let meet = |round: usize, spins: usize| {
            begun.fetch_add(1, Ordering::AcqRel);
            await_count(&begun, 2 * round);
            (0..spins).for_each(|_| std::hint::spin_loop());
        };
        let is_told = AtomicBool::new(false);
        let mut lost = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    meet(round, round % 8);
                    is_told.store(way.handled(100), Ordering::Release);
                    done.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                way.add(100, 50);
                meet(round, round / 8 % 8);
                let waits = way.wait_above(50);
                await_count(&done, round);
                lost += usize::from(waits && !is_told.load(Ordering::Acquire));
                let _ = way.handled(0);
            }
        });
        assert_eq!(lost, 0, "rounds in which the sender waits for ever");
    }

    /// Waits for the other thread. It seldom gives up the processor: a thread that has to get it back does not meet the other.
    fn await_count(counter: &AtomicUsize, count: usize) {
        let mut looks = 0_u32;
        while counter.load(Ordering::Acquire) < count {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1_000) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}
