//! Who an entry of the index leads to, and how full that subscriber is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// One event loop with the connections that it accepted; there are at most [`MAX`](Self::MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u8);

impl ShardId {
    /// As many shards as a [`Gauge`] has bits for those that wait.
    pub const MAX: usize = 64;

    /// # Panics
    /// If `number` is not below [`MAX`](Self::MAX); the configuration has checked that.
    #[must_use]
    pub fn new(number: usize) -> Self {
        assert!(number < Self::MAX, "shard {number} is beyond the configured maximum");
        Self(u8::try_from(number).expect("MAX fits a byte"))
    }

    /// The shard's number, from 0.
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// A place in a shard's table of connections, and which of its successive tenants is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The place in the table.
    pub slot: u32,
    /// Grows with each tenant, so that a late message for an earlier one finds nobody.
    pub generation: u32,
}

/// Somebody who subscribes: one connection, and the session on it.
#[derive(Debug)]
pub struct Subscriber {
    /// The client identifier; it exists once, shared by ledger, session and subscriber.
    pub client_id: Arc<str>,
    /// Where the connection lives.
    pub shard: ShardId,
    /// Its place there.
    pub connection: ConnectionId,
    /// How full its output is.
    pub gauge: Gauge,
}

impl Subscriber {
    /// A subscriber whose output is empty.
    #[must_use]
    pub fn new(client_id: Arc<str>, shard: ShardId, connection: ConnectionId) -> Self {
        Self { client_id, shard, connection, gauge: Gauge::default() }
    }

    /// Orders subscribers by place: shard first, so that a sorted list falls into one run per shard.
    #[must_use]
    pub fn place(&self) -> (ShardId, ConnectionId) {
        (self.shard, self.connection)
    }
}

/// How full a subscriber's output is, seen by every shard that feeds it.
#[derive(Debug, Default)]
pub struct Gauge {
    level: AtomicU8,
    /// One bit per shard that has stopped reading somebody because of this subscriber.
    waiting: AtomicU64,
    /// One of those who wait has other subscribers, who wait with it.
    holds_others: AtomicBool,
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

    /// Announces that a publisher of `shard` is going to wait, and whether other subscribers wait with it;
    /// then looks again, so that the end of the wait cannot be missed. Returns whether it has to wait.
    #[must_use]
    pub fn wait(&self, shard: ShardId, holds_others: bool) -> bool {
        self.holds_others.fetch_or(holds_others, Ordering::Relaxed);
        self.waiting.fetch_or(1 << shard.0, Ordering::SeqCst);
        self.level.load(Ordering::SeqCst) == Level::Over as u8
    }

    /// Takes the set of shards that wait. The level was set to something other than
    /// [`Over`](Level::Over) before, so that nobody new has to wait.
    pub fn take_waiting(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.holds_others.store(false, Ordering::Relaxed);
        let bits = match self.waiting.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.waiting.swap(0, Ordering::SeqCst),
        };
        (0..Self::SHARDS).filter(move |number| bits & (1 << number) != 0).map(ShardId)
    }

    /// Whether somebody who waits has other subscribers.
    #[must_use]
    pub fn holds_others(&self) -> bool {
        self.holds_others.load(Ordering::Relaxed)
    }

    const SHARDS: u8 = 64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_tells_each_waiting_shard_once() {
        let gauge = Gauge::default();
        assert!(!gauge.wait(ShardId::new(3), false), "an open gauge keeps nobody waiting");
        gauge.set(Level::Over);
        assert!(gauge.wait(ShardId::new(0), true) && gauge.wait(ShardId::new(63), false));
        assert!(gauge.holds_others());
        gauge.set(Level::Open);
        assert_eq!(gauge.take_waiting().map(ShardId::number).collect::<Vec<_>>(), [0, 3, 63]);
        assert_eq!(gauge.take_waiting().count(), 0);
    }
}
