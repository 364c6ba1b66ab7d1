//! Fill levels of subscribers, and the shards that wait for them.

use super::ShardId;
use super::sync::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Fill level of a subscriber's output, for every shard that sends to it.
#[derive(Debug, Default)]
pub struct Gauge {
    level: AtomicU8,
    /// One bit for each shard that has stopped reading a publisher because of this subscriber.
    waiting: AtomicU64,
    /// A blocked publisher also had an unblocked subscriber within this number of checks. 0 otherwise.
    holds_others: AtomicU8,
    /// Too many messages of QoS 1 and 2 wait behind its window.
    is_behind: AtomicBool,
}

/// Level of a [`Gauge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// There is room for messages.
    Open = 0,
    /// Above the high-water mark: publishers to it are not read until it is open again.
    Over = 1,
    /// The subscriber makes too little progress, or none: no publisher waits for it, and QoS 0 is dropped.
    Slow = 2,
}

impl Gauge {
    /// Returns the current level.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.level.load(Ordering::Relaxed) {
            0 => Level::Open,
            1 => Level::Over,
            _ => Level::Slow,
        }
    }

    /// Sets the level, and tells nobody. Use [`release`](Self::release) to leave [`Over`](Level::Over). Only the subscriber's
    /// own shard calls this.
    pub fn set(&self, level: Level) {
        self.level.store(level as u8, Ordering::SeqCst);
    }

    /// Whether acknowledgements to its publishers are held back, because too much waits behind its window. False for a
    /// slow subscriber, for which no publisher waits.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_marked_behind() && self.level() != Level::Slow
    }

    /// Whether too much waits behind its window, also for a slow subscriber.
    #[must_use]
    pub fn is_marked_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Sets whether too much waits behind its window, and tells nobody. Only the subscriber's own shard calls this.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::SeqCst);
    }

    /// Registers a publisher of `shard` that waits until less is behind the window, and whether this publisher has
    /// other subscribers with room. Then checks again, and returns whether too much still waits.
    #[must_use]
    pub fn wait_behind(&self, shard: ShardId, holds_others: bool) -> bool {
        self.note_others(holds_others);
        self.waiting.fetch_or(1 << shard.number(), Ordering::SeqCst);
        self.is_behind.load(Ordering::SeqCst)
    }

    /// Registers a publisher of `shard` that is going to wait, and whether this publisher has other subscribers with
    /// room. Then checks again, so that the end of the wait cannot be missed (rule 10 of `protocol::order`). Returns
    /// whether the publisher has to wait.
    #[must_use]
    pub fn wait(&self, shard: ShardId, holds_others: bool) -> bool {
        self.note_others(holds_others);
        self.waiting.fetch_or(1 << shard.number(), Ordering::SeqCst);
        self.level.load(Ordering::SeqCst) == Level::Over as u8
    }

    /// Sets a level other than [`Over`](Level::Over). Then removes and returns the shards that wait, which are to be told: the
    /// other half of rule 10. Only the subscriber's own shard calls this.
    pub fn release(&self, level: Level) -> impl Iterator<Item = ShardId> + use<> {
        debug_assert_ne!(level, Level::Over, "nobody waits after a release");
        self.set(level);
        self.take_waiting()
    }

    /// Notes that little waits behind its window. Then removes and returns the shards that wait, which are to be told: the
    /// other half of rule 10. Only the subscriber's own shard calls this.
    pub fn release_behind(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.set_behind(false);
        self.take_waiting()
    }

    fn take_waiting(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.holds_others.store(0, Ordering::Relaxed);
        let bits = match self.waiting.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.waiting.swap(0, Ordering::SeqCst),
        };
        (0..ShardId::MAX).filter(move |number| bits & (1 << number) != 0).map(ShardId::new)
    }

    /// Notes whether a blocked publisher also has subscribers with room. A `true` stays for some checks, because each
    /// publisher looks at its own pace.
    pub fn note_others(&self, have_room: bool) {
        if have_room {
            self.holds_others.store(Self::LOOKS, Ordering::Relaxed);
        }
    }

    /// Whether a blocked publisher had other subscribers with room at one of the last checks. Each call is a check.
    #[must_use]
    pub fn look_at_others(&self) -> bool {
        let looks = self.holds_others.load(Ordering::Relaxed);
        // A concurrent note of a publisher may be lost; the publisher repeats it.
        self.holds_others.store(looks.saturating_sub(1), Ordering::Relaxed);
        looks > 0
    }

    /// Number of checks for which the note of a publisher counts.
    const LOOKS: u8 = 3;
}
