//! How full a subscriber is, and which shards wait for it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::ShardId;

/// How full a subscriber's output is, seen by every shard that feeds it.
#[derive(Debug, Default)]
pub struct Gauge {
    level: AtomicU8,
    /// One bit per shard that has stopped reading somebody because of this subscriber.
    waiting: AtomicU64,
    /// Those who wait have others to publish to who have room: that was so at most so many looks ago.
    holds_others: AtomicU8,
    /// More messages of QoS 1 and 2 wait behind its window than should.
    is_behind: AtomicBool,
}

/// What a [`Gauge`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// There is room.
    Open = 0,
    /// Above the high-water mark: who feeds it stops reading until it is open again.
    Over = 1,
    /// It makes no progress: nobody waits for it, what is QoS 0 is dropped.
    Slow = 2,
}

impl Gauge {
    /// The level now.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.level.load(Ordering::Relaxed) {
            0 => Level::Open,
            1 => Level::Over,
            _ => Level::Slow,
        }
    }

    /// Only the shard on which the subscriber lives sets its level.
    pub fn set(&self, level: Level) {
        self.level.store(level as u8, Ordering::SeqCst);
    }

    /// Whether acknowledgements to its publishers are held back, because so much waits behind its in-flight window.
    /// Nobody waits for one that makes no progress.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_marked_behind() && self.level() != Level::Slow
    }

    /// Whether so much waits behind its in-flight window, progress or not.
    #[must_use]
    pub fn is_marked_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Only the shard on which the subscriber lives tells.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::SeqCst);
    }

    /// Announces that a publisher of `shard` wants to hear when the subscriber is not behind any more, and whether others
    /// wait with it who have room; then looks again.
    #[must_use]
    pub fn wait_behind(&self, shard: ShardId, holds_others: bool) -> bool {
        self.note_others(holds_others);
        self.waiting.fetch_or(1 << shard.number(), Ordering::SeqCst);
        self.is_behind.load(Ordering::SeqCst)
    }

    /// Announces that a publisher of `shard` is going to wait, and whether others wait with it who have room;
    /// then looks again, so that the end of the wait cannot be missed (rule 10 of `protocol::order`). Returns whether it
    /// has to wait.
    #[must_use]
    pub fn wait(&self, shard: ShardId, holds_others: bool) -> bool {
        self.note_others(holds_others);
        self.waiting.fetch_or(1 << shard.number(), Ordering::SeqCst);
        self.level.load(Ordering::SeqCst) == Level::Over as u8
    }

    /// Takes the set of shards that wait. The level was set to something other than
    /// [`Over`](Level::Over) before, so that nobody new has to wait.
    pub fn take_waiting(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.holds_others.store(0, Ordering::Relaxed);
        let bits = match self.waiting.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.waiting.swap(0, Ordering::SeqCst),
        };
        (0..ShardId::MAX).filter(move |number| bits & (1 << number) != 0).map(ShardId::new)
    }

    /// A publisher that waits finds that others whom it publishes to have room, or that none has. What one finds stands
    /// until it is not said again for a while: publishers look at their own pace.
    pub fn note_others(&self, have_room: bool) {
        if have_room {
            self.holds_others.store(Self::LOOKS, Ordering::Relaxed);
        }
    }

    /// Whether others wait for this subscriber who have room. One who judges it looks again and again.
    #[must_use]
    pub fn look_at_others(&self) -> bool {
        let looks = self.holds_others.load(Ordering::Relaxed);
        // Lost if a publisher says so at this moment: then it says so again.
        self.holds_others.store(looks.saturating_sub(1), Ordering::Relaxed);
        looks > 0
    }

    /// So many looks of the judge what a publisher has found is taken to be so.
    const LOOKS: u8 = 3;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_gauge_tells_each_waiting_shard_once() {
        let gauge = Gauge::default();
        assert!(!gauge.wait(ShardId::new(3), false), "an open gauge keeps nobody waiting");
        gauge.set(Level::Over);
        assert!(gauge.wait(ShardId::new(0), true) && gauge.wait(ShardId::new(63), false));
        assert!(gauge.look_at_others());
        gauge.set(Level::Open);
        assert_eq!(gauge.take_waiting().map(ShardId::number).collect::<Vec<_>>(), [0, 3, 63]);
        assert_eq!(gauge.take_waiting().count(), 0);
        assert!(!gauge.look_at_others(), "nobody waits any more");
    }

    #[test]
    fn that_others_have_room_is_believed_for_a_few_looks() {
        let gauge = Gauge::default();
        gauge.note_others(true);
        gauge.note_others(false);
        assert_eq!((0..5).filter(|_| gauge.look_at_others()).count(), 3);
    }

    /// Both threads begin each round at the same moment.
    #[test]
    fn a_publisher_that_has_to_wait_is_told_however_both_threads_run() {
        const ROUNDS: usize = 50_000;
        let (gauge, shard) = (Gauge::default(), ShardId::new(5));
        let [begun, done] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let meet = |round: usize| {
            begun.fetch_add(1, Ordering::AcqRel);
            while begun.load(Ordering::Acquire) < 2 * round {
                std::thread::yield_now();
            }
        };
        let is_told = AtomicBool::new(false);
        let mut lost = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    meet(round);
                    gauge.set(Level::Open);
                    is_told.store(gauge.take_waiting().count() > 0, Ordering::Release);
                    done.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                gauge.set(Level::Over);
                meet(round);
                let waits = gauge.wait(shard, false);
                while done.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                lost += usize::from(waits && !is_told.load(Ordering::Acquire));
                gauge.take_waiting().for_each(drop);
            }
        });
        assert_eq!(lost, 0, "rounds in which the publisher waits for ever");
    }
}
