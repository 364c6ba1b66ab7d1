//! Counters that show a route cache whether its entry is still valid.

use super::sync::{AtomicU64, Ordering};

/// Number of counters. A name's first level selects one of them.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;

/// A moment in the life of all subscriptions that can match one topic; stored beside a cached route.
///
/// Take it *before* the lookup it belongs to. 54 bits count changes, 10 name the slot: at a million changes a
/// second it wraps after 500 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

/// One counter for each slot of first levels, and one for filters that begin with a wildcard.
///
/// Both only grow, so their sum changes if either does: a [`Generation`] is the sum, beside the slot.
///
/// # Why this is enough
/// A counter is raised inside the write lock of the change it tells of, with release ordering.
/// - Whoever reads the raised counter (acquire) and then takes the read lock sees the change: raising happened
///   inside the write lock and before the read, so this read lock comes after that write lock, and must wait for
///   its end. A route that was looked up too early therefore carries the old sum.
/// - Whoever has been told of the change (its SUBACK was sent, its mail arrived) has the raising behind them,
///   and a later read of the same counter cannot return an older value. Checking needs no ordering for that.
#[derive(Debug)]
pub(crate) struct Generations {
    by_first_level: Box<[AtomicU64]>,
    leading_wildcard: AtomicU64,
}

/// The counter of the changes to a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Concerns {
    /// Names whose first level has this hash.
    FirstLevel(u64),
    /// All names, for a filter that begins with a wildcard.
    Everything,
}

impl Generations {
    /// Bytes of the counters.
    pub(crate) const HEAP_BYTES: usize = SLOTS * size_of::<AtomicU64>();

    pub(crate) fn new() -> Self {
        Self {
            by_first_level: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            leading_wildcard: AtomicU64::new(0),
        }
    }

    pub(crate) fn of(&self, first_level_hash: u64) -> Generation {
        let slot = slot_of(first_level_hash);
        let sum = self.by_first_level[slot]
            .load(Ordering::Acquire)
            .wrapping_add(self.leading_wildcard.load(Ordering::Acquire));
        Generation(sum << SLOT_BITS | slot as u64)
    }

    pub(crate) fn is_current(&self, generation: Generation) -> bool {
        let slot = slot_of(generation.0);
        let sum = self.by_first_level[slot]
            .load(Ordering::Relaxed)
            .wrapping_add(self.leading_wildcard.load(Ordering::Relaxed));
        generation.0 == sum << SLOT_BITS | slot as u64
    }

    /// Must be called inside the write lock, or after a change of the handle itself.
    pub(crate) fn raise(&self, concerns: Concerns) {
        let counter = match concerns {
            Concerns::FirstLevel(hash) => &self.by_first_level[slot_of(hash)],
            Concerns::Everything => &self.leading_wildcard,
        };
        counter.fetch_add(1, Ordering::Release);
    }
}

/// The slot is the low bits, of a hash as of a generation.
#[allow(clippy::cast_possible_truncation, reason = "only the low ten bits are kept")]
fn slot_of(bits: u64) -> usize {
    bits as usize & (SLOTS - 1)
}
