//! How long to wait before a connection is tried for again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// No bound is shorter: a server that is there again must not be asked all the time.
const LEAST: Duration = Duration::from_millis(10);

/// A random time between the half of a bound and all of it, where the bound doubles from one time to the next: clients
/// that a server has lost at one moment do not come back at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackOff {
    first: Duration,
    max: Duration,
}

impl BackOff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        let first = first.max(LEAST);
        Self { first, max: max.max(first) }
    }

    /// Before the attempt that comes after so many in vain.
    pub(crate) fn delay(self, attempts: u32) -> Duration {
        let half = self.bound(attempts) / 2;
        half + half.mul_f64(fraction())
    }

    /// A connection that has lasted for so long was not in vain.
    pub(crate) fn success(self) -> Duration {
        self.max
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
        let back_off = BackOff::new(Duration::from_millis(100), Duration::from_secs(5));
        let bounds = [0, 1, 2, 9, 31, 32, u32::MAX].map(|attempts| back_off.bound(attempts).as_millis());
        assert_eq!(bounds, [100, 200, 400, 5_000, 5_000, 5_000, 5_000]);
        let between = Duration::from_millis(50)..=Duration::from_millis(100);
        assert!((0..100).all(|_| between.contains(&back_off.delay(0))));
    }

    #[test]
    fn there_is_always_some_time_between_two_attempts() {
        let none = BackOff::new(Duration::ZERO, Duration::ZERO);
        assert!((0..100).all(|attempts| none.delay(attempts) >= LEAST / 2));
    }
}
