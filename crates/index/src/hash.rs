//! The keyed hash of names and filters, and what the tables built on it have in common.

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;
use std::hash::Hasher;
use topic::TopicFilter;

/// Hashes a level together with its position. The hash of a filter is the sum over its levels.
///
/// A sum can be changed in one place: the hash of `a/+/c` is that of `a/b/c` with the part of `b` replaced by that of
/// `+`. A topic is therefore hashed once, and each filter that could match it costs one addition for each wildcard. Two
/// different filters differ in some level. Without the seeds, their sums are equal as rarely as two random numbers.
#[derive(Debug)]
pub(crate) struct LevelHash {
    seed: u64,
    shared: SharedSeed,
    /// Hashes of `+` at the first positions.
    pluses: [u64; PLUSES_KEPT],
}

/// Number of these hashes. Few topics have more levels.
const PLUSES_KEPT: usize = 16;

impl LevelHash {
    pub(crate) fn new(seeds: [u64; 2]) -> Self {
        let mut hash =
            Self { seed: seeds[0], shared: SharedSeed::from_u64(seeds[1]), pluses: [0; PLUSES_KEPT] };
        hash.pluses = std::array::from_fn(|position| hash.level(position, "+"));
        hash
    }

    /// The part of `level` at `position` in the hash of its name or filter.
    pub(crate) fn level(&self, position: usize, level: &str) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed ^ odd_multiple(position), &self.shared);
        hasher.write(level.as_bytes());
        hasher.finish()
    }

    /// The part of a `+` at this position.
    pub(crate) fn plus(&self, position: usize) -> u64 {
        self.pluses.get(position).copied().unwrap_or_else(|| self.level(position, "+"))
    }

    /// The hash of a whole filter, or of the name with the same text.
    pub(crate) fn filter(&self, filter: TopicFilter<'_>) -> u64 {
        let levels = filter.levels().enumerate();
        levels.fold(0, |sum, (position, level)| sum.wrapping_add(self.level(position, level)))
    }

    /// The hash of a number.
    pub(crate) fn number(&self, number: u64) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        hasher.write_u64(number);
        hasher.finish()
    }
}

/// Spreads positions over all 64 bits; distinct for distinct positions, because the factor is odd.
fn odd_multiple(position: usize) -> u64 {
    const FRACTION_OF_GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    (position as u64).wrapping_mul(FRACTION_OF_GOLDEN_RATIO)
}

/// Returns memory if the table has shrunk to a quarter, or all of it if the table is empty.
pub(crate) fn give_back<T>(table: &mut HashTable<T>, hash_of: impl Fn(&T) -> u64) {
    if table.is_empty() {
        *table = HashTable::new();
    } else if table.len() < table.capacity() / 4 {
        table.shrink_to(table.len() * 2, hash_of);
    }
}
