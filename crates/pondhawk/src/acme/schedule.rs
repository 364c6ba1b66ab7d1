//! The times at which a certificate is asked for.

use std::time::Duration;

/// Pause after the first failure. Let's Encrypt accepts five failures of a name in an hour.
const PAUSE_MIN: Duration = Duration::from_secs(60);
/// Longest pause between two attempts, unless the authority asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(6 * 3_600);

/// The first and the last second of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from_unix_secs: i64,
    pub(super) until_unix_secs: i64,
}

/// The time in which the authority wants the certificate to be renewed (RFC 9773).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from_unix_secs: i64,
    pub(super) until_unix_secs: i64,
}

impl Validity {
    fn secs(self) -> i64 {
        self.until_unix_secs.saturating_sub(self.from_unix_secs).max(0)
    }

    /// The second from which on the certificate is renewed. `random` chooses among the seconds of a thirtieth of the lifetime.
    ///
    /// This is when a third of the lifetime is left, or in the window that the authority has named. A window is no reason to
    /// renew a certificate in the first tenth of its lifetime, nor to wait until the last sixth.
    pub(super) fn renewal_unix_secs(self, window: Option<Window>, random: u64) -> i64 {
        let (from, until, secs) = (self.from_unix_secs, self.until_unix_secs, self.secs());
        let Some(window) = window else {
            return until - secs / 3 - within(secs / 30, random);
        };
        let length = window.until_unix_secs.saturating_sub(window.from_unix_secs).max(0);
        let wanted = window.from_unix_secs.saturating_add(within(length, random));
        // Not `clamp`: a certificate may end before it begins.
        wanted.max(from.saturating_add(secs / 10)).min(until - secs / 6)
    }
}

/// A number from 0 to `max`.
fn within(max: i64, random: u64) -> i64 {
    let count = max.unsigned_abs().saturating_add(1);
    i64::try_from(random % count).unwrap_or(0)
}

/// The pause after this number of failures in a row: twice as long after each, and up to half of it less by chance.
pub(super) fn pause(failures: u32, random: u64) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(PAUSE_MAX);
    let millis = u64::try_from(doubled.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis - random % (millis / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const RANDOM: [u64; 5] = [0, 1, 12_345_678_901_234_567, 1 << 63, u64::MAX];

    #[test]
    fn a_third_of_the_lifetime_is_left_for_the_renewal() {
        let validity = Validity { from_unix_secs: 0, until_unix_secs: 90 * DAY };
        for random in RANDOM {
            let at = validity.renewal_unix_secs(None, random);
            assert!((57 * DAY..=60 * DAY).contains(&at), "{at}");
        }
        let backwards = Validity { from_unix_secs: 100, until_unix_secs: 50 };
        assert_eq!(backwards.renewal_unix_secs(None, 7), 50);
        let window = Window { from_unix_secs: 70, until_unix_secs: 80 };
        assert_eq!(backwards.renewal_unix_secs(Some(window), 7), 50);
        for (from, until) in [(i64::MIN, i64::MAX), (0, i64::MAX), (i64::MIN / 2, 0)] {
            let extreme = Validity { from_unix_secs: from, until_unix_secs: until };
            for random in RANDOM {
                extreme.renewal_unix_secs(None, random);
            }
        }
    }

    #[test]
    fn the_authority_names_a_time_within_bounds() {
        let validity = Validity { from_unix_secs: 0, until_unix_secs: 90 * DAY };
        let window = |from: i64, until: i64| Some(Window { from_unix_secs: from, until_unix_secs: until });
        for random in RANDOM {
            let at = |window| validity.renewal_unix_secs(window, random);
            assert!((30 * DAY..=31 * DAY).contains(&at(window(30 * DAY, 31 * DAY))));
            assert_eq!(at(window(30 * DAY, 20 * DAY)), 30 * DAY);
            assert_eq!(at(window(-DAY, 0)), 9 * DAY, "at once, but not again and again");
            assert_eq!(at(window(1_000 * DAY, 1_001 * DAY)), 75 * DAY, "never too late");
            at(window(i64::MIN, i64::MAX));
            at(window(i64::MAX, i64::MIN));
        }
    }

    #[test]
    fn pauses_double_and_have_a_bound() {
        for random in RANDOM {
            for (failures, longest_secs) in [
                (0, 60),
                (1, 60),
                (2, 120),
                (3, 240),
                (9, 15_360),
                (10, 21_600),
                (1_000, 21_600),
                (u32::MAX, 21_600),
            ] {
                let longest = Duration::from_secs(longest_secs);
                let pause = pause(failures, random);
                assert!(pause <= longest && pause >= longest / 2, "{failures}: {pause:?}");
            }
        }
        assert_ne!(pause(5, 1), pause(5, 2), "brokers that failed together come back one by one");
    }
}
