//! Random numbers that are determined by a seed (SplitMix64).

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a seed that depends on the current time, and has at most six digits.
    pub(crate) fn seed_of_now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(now.as_nanos()).unwrap_or_default()).next() % 1_000_000
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Draws up to `count` items in random order, each at most once.
    pub(crate) fn draw<T>(&mut self, mut from: Vec<T>, count: usize) -> Vec<T> {
        let mut drawn = Vec::new();
        while drawn.len() < count && !from.is_empty() {
            let length = u64::try_from(from.len()).expect("a length fits");
            let at = usize::try_from(self.next() % length).expect("it is below a length");
            drawn.push(from.swap_remove(at));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_nothing_twice() {
        let draw = |seed, count| Random::new(seed).draw((0..100).collect(), count);
        assert_eq!(draw(7, 40), draw(7, 40));
        assert_ne!(draw(7, 40), draw(8, 40));
        let mut all = draw(7, 200);
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
