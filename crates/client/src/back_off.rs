//! How long to wait before a connection is tried for again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A random time, with a bound that doubles from one to the other: clients that a server has lost at one moment do not
/// come back at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackOff {
    pub(crate) first: Duration,
    pub(crate) max: Duration,
}

impl BackOff {
    /// Before the attempt that comes after so many in vain.
    pub(crate) fn delay(self, attempts: u32) -> Duration {
        self.bound(attempts).mul_f64(fraction())
    }

    fn bound(self, attempts: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempts).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// Between 0 and 1, as random as the standard library makes its hashers.
fn fraction() -> f64 {
    let bits = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_longest() {
        let back_off = BackOff { first: Duration::from_millis(100), max: Duration::from_secs(5) };
        let bounds = [0, 1, 2, 9, 31, 32, u32::MAX].map(|attempts| back_off.bound(attempts).as_millis());
        assert_eq!(bounds, [100, 200, 400, 5_000, 5_000, 5_000, 5_000]);
        assert!((0..100).all(|_| back_off.delay(0) <= back_off.first));
    }
}
