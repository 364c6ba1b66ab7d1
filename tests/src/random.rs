//! Numbers that depend on a seed and on nothing else.

/// A generator (SplitMix64): every seed is as good as any other, and a seed may be the number of a connection.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of one of many in a run: of a connection, or an image.
    pub fn of(seed: u64, which: u64) -> Self {
        let mut random = Self(seed);
        Self(random.next() ^ which.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than this; 0 if it is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("less than a usize")
    }

    /// Once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub fn of_list<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Any packet identifier, topic alias or length.
    pub fn two(&mut self) -> u16 {
        let [a, b, ..] = self.next().to_le_bytes();
        // Small ones are the ones that meet others.
        if self.one_in(4) {
            self.of_list(&[0, 1, 127, 128, 16_383, 16_384, u16::MAX])
        } else {
            u16::from_le_bytes([a, b]) % 12
        }
    }

    /// So many bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }
}
