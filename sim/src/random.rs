//! Everything that is left to chance, from one seed.

/// Numbers that look random and are the same for the same seed, on every machine and in every version: `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        usize::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).expect("it is below a usize")
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// Returns true this number of times in a thousand.
    pub(crate) fn chance(&mut self, per_mille: usize) -> bool {
        self.below(1_000) < per_mille
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// How many of `all` are taken this time: often all, sometimes one, otherwise anything from one on.
    pub(crate) fn some_of(&mut self, all: usize) -> usize {
        match self.below(4) {
            _ if all < 2 => all,
            0 | 1 => all,
            2 => 1,
            _ => self.between(1, all),
        }
    }

    /// Returns the number of an event, by the weights of the events. At least one weight is not 0.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let all: u32 = weights.iter().sum();
        let mut left = self.below(all as usize);
        for (which, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight as usize) {
                Some(rest) => left = rest,
                None => return which,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let drawn: Vec<usize> = (0..1_000).map(|_| random.between(3, 6)).collect();
        assert!((3..=6).all(|number| drawn.contains(&number)));
        assert!(drawn.iter().all(|number| (3..=6).contains(number)));
        assert!((0..1_000).all(|_| random.weighted(&[0, 3, 0]) == 1));
        assert!((0..1_000).all(|_| (1..=9).contains(&random.some_of(9))));
    }

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        assert_eq!(Random::new(0).next(), 0xE220_A839_7B1D_CDAF, "the first number of SplitMix64");
    }
}
