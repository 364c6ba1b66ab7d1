//! Random numbers that depend only on a seed.

/// A generator (SplitMix64). All seeds are equally good, so that the number of a connection can be a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Makes the generator for one part of a run, such as a connection or an image.
    pub fn of(seed: u64, which: u64) -> Self {
        let mut random = Self(seed);
        Self(random.next() ^ which.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// Returns any number of 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number less than `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("less than a usize")
    }

    /// Returns true with a probability of 1 in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns a random item of the list.
    pub fn of_list<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns a byte from 0 to 255.
    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Returns a packet identifier, topic alias or length.
    pub fn two(&mut self) -> u16 {
        let [a, b, ..] = self.next().to_le_bytes();
        // Small numbers are more likely to be equal to other ones.
        if self.one_in(4) {
            self.of_list(&[0, 1, 127, 128, 16_383, 16_384, u16::MAX])
        } else {
            u16::from_le_bytes([a, b]) % 12
        }
    }

    /// Returns `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }
}
