//! Numbers for entries of tables: shards, connections, queues.

/// Number of an event loop with its connections, below [`MAX`](Self::MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u8);

impl ShardId {
    /// Maximum number of shards: the bits of a [`Gauge`](crate::Gauge).
    pub const MAX: usize = 64;

    /// # Panics
    /// If `number` is not below [`MAX`](Self::MAX); the configuration has checked that.
    #[must_use]
    pub fn new(number: usize) -> Self {
        assert!(number < Self::MAX, "shard {number} is beyond the configured maximum");
        Self(u8::try_from(number).expect("MAX fits a byte"))
    }

    /// The shard's number, from 0 on.
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// Index in a shard's table of connections, with the generation of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Index in the table.
    pub slot: u32,
    /// Number that grows with each new entry at this index: a late message for an earlier entry reaches nobody.
    pub generation: u32,
}

impl ConnectionId {
    /// An identifier of no connection.
    pub const NOWHERE: Self = Self { slot: u32::MAX, generation: 0 };
}

/// Index of a session's or group's queue in the ledger's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId {
    /// Index in the table.
    pub slot: u32,
    /// Number that grows with each new entry at this index: a late message for an earlier entry reaches nobody.
    pub generation: u32,
}

/// Shard and connection of a session. Ordered by shard first, so that a sorted list has one run for each shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Shard of the connection.
    pub shard: ShardId,
    /// Identifier of the connection on its shard.
    pub connection: ConnectionId,
}

impl Place {
    /// Number of bits of a slot. A shard has fewer connections than there are descriptors.
    const SLOT_BITS: u32 = 25;
    const IS_CONNECTED: u64 = 1 << 63;

    pub(crate) fn bits(self) -> u64 {
        debug_assert!(self.connection.slot < 1 << Self::SLOT_BITS, "a shard has at most 2^25 connections");
        let shard = u64::from(self.shard.0) << Self::SLOT_BITS;
        Self::IS_CONNECTED
            | (shard | u64::from(self.connection.slot)) << 32
            | u64::from(self.connection.generation)
    }

    #[allow(clippy::cast_possible_truncation, reason = "each field is cut out of the word it was put into")]
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let slot = (bits >> 32) as u32 & ((1 << Self::SLOT_BITS) - 1);
        let shard = ShardId((bits >> (32 + Self::SLOT_BITS)) as u8 & (ShardId::MAX - 1) as u8);
        let connection = ConnectionId { slot, generation: bits as u32 };
        (bits & Self::IS_CONNECTED != 0).then_some(Self { shard, connection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Subscriber;

    #[test]
    fn a_place_survives_its_bits() {
        let connection = ConnectionId { slot: (1 << 25) - 1, generation: u32::MAX };
        let place = Place { shard: ShardId::new(63), connection };
        let subscriber = Subscriber::lasting("s".into(), QueueId { slot: 1, generation: 0 });
        assert_eq!(subscriber.place(), None);
        subscriber.move_to(Some(place));
        assert_eq!(subscriber.place(), Some(place));
        let first = Place { shard: ShardId::new(0), connection: ConnectionId { slot: 0, generation: 0 } };
        subscriber.move_to(Some(first));
        assert_eq!(subscriber.place(), Some(first));
    }
}
