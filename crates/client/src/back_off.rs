//! Delays between attempts to reconnect.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Minimum of every bound, to protect a server that has just come back from constant attempts.
const LEAST: Duration = Duration::from_millis(10);

/// A random delay between half of a bound and the whole bound, which doubles with each attempt.
///
/// The randomness prevents all clients that lost a server at the same moment from reconnecting at the same moment.
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

    /// Delay before the next attempt, after `attempts` failed attempts.
    pub(crate) fn delay(self, attempts: u32) -> Duration {
        let half = self.bound(attempts) / 2;
        half + half.mul_f64(fraction())
    }

    /// A connection that lasted at least this long counts as a success, and resets the delay.
    pub(crate) fn success(self) -> Duration {
        self.max
    }

    fn bound(self, attempts: u32) -> Duration {
        let factor = 1_u32.checked_shl(attempts).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// Random number between 0 and 1, from the random keys of the standard library's hashers.
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
