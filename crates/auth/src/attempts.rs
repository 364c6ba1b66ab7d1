//! Wrong passwords by address, so that guessing costs an attacker time and the broker nothing.

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

/// The outcome of a check of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The password is right.
    Right,
    /// The password is wrong, or there is no such user.
    Wrong,
    /// The password was not checked.
    Not(Unchecked),
}

/// The reason why a password is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchecked {
    /// Too many others wait, or have waited too long.
    Busy,
    /// Too many wrong passwords have come from the address.
    Guessing,
}

/// Number of wrong passwords from one address that are checked without a pause.
const FREE: u32 = 30;
/// Time after which an address has one of them back, in milliseconds.
const REGAIN_MS: u64 = 1_000;
/// Maximum number of addresses with wrong passwords. Beyond it the oldest is forgotten.
const ORIGINS_MAX: usize = 65_536;

/// The part of an address that one host has: for IPv6 the first 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin(u64);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            // No address of IPv6 that is in use begins like this.
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            IpAddr::V6(address) => Self(u64::try_from(address.to_bits() >> 64).expect("64 bits")),
        }
    }
}

/// Wrong passwords of late. An address has 30 of them, and gets one back each second. With none left, the broker refuses its
/// passwords without a check.
///
/// At most 65,536 addresses have an entry. When there are more, the address whose first wrong password is the oldest is
/// forgotten.
#[derive(Debug, Default)]
pub struct Attempts {
    by_origin: HashMap<Origin, Wrong>,
    /// Addresses in the order of their first wrong passwords.
    order: VecDeque<Origin>,
}

#[derive(Debug, Clone, Copy)]
struct Wrong {
    count: u32,
    /// Time of the last change, on the monotonic clock.
    at_ms: u64,
}

impl Wrong {
    /// The number that is left after this time.
    fn count_at(self, now_ms: u64) -> u32 {
        let regained = now_ms.saturating_sub(self.at_ms) / REGAIN_MS;
        self.count.saturating_sub(u32::try_from(regained).unwrap_or(u32::MAX))
    }
}

impl Attempts {
    /// Whether a password from this address is checked.
    #[must_use]
    pub fn may_try(&self, origin: Origin, now_ms: u64) -> bool {
        self.count(origin, now_ms) < FREE
    }

    /// Whether a wrong password has come from this address of late. The passwords of other addresses are checked first.
    #[must_use]
    pub fn is_suspect(&self, origin: Origin, now_ms: u64) -> bool {
        self.count(origin, now_ms) > 0
    }

    /// Notes a wrong password.
    pub fn was_wrong(&mut self, origin: Origin, now_ms: u64) {
        let count = self.count(origin, now_ms);
        let is_new = self.by_origin.insert(origin, Wrong { count: count + 1, at_ms: now_ms }).is_none();
        if is_new {
            self.order.push_back(origin);
        }
        self.forget_old(now_ms);
    }

    /// Number of addresses with an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_origin.len()
    }

    /// Whether no address has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_origin.is_empty()
    }

    fn count(&self, origin: Origin, now_ms: u64) -> u32 {
        self.by_origin.get(&origin).map_or(0, |wrong| wrong.count_at(now_ms))
    }

    /// Looks at the two oldest addresses, and at as many as there are too many.
    fn forget_old(&mut self, now_ms: u64) {
        for _ in 0..2 {
            let Some(origin) = self.order.front().copied() else { return };
            if self.order.len() <= ORIGINS_MAX && self.count(origin, now_ms) > 0 {
                return;
            }
            self.order.pop_front();
            self.by_origin.remove(&origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str) -> Origin {
        address.parse::<IpAddr>().expect("an address").into()
    }

    #[test]
    fn an_address_has_some_wrong_passwords_and_gets_them_back_with_time() {
        let (bad, good) = (origin("192.0.2.1"), origin("192.0.2.2"));
        let mut attempts = Attempts::default();
        for _ in 0..FREE {
            assert!(attempts.may_try(bad, 5_000));
            attempts.was_wrong(bad, 5_000);
        }
        assert!(!attempts.may_try(bad, 5_999) && attempts.is_suspect(bad, 5_999));
        assert!(attempts.may_try(good, 5_999) && !attempts.is_suspect(good, 5_999));
        assert!(attempts.may_try(bad, 6_000), "one is back");
        attempts.was_wrong(bad, 6_000);
        assert!(!attempts.may_try(bad, 6_000));
        assert!(!attempts.is_suspect(bad, 6_000 + u64::from(FREE) * REGAIN_MS));
    }

    #[test]
    fn an_ipv6_host_has_64_bits_and_an_ipv4_host_one_address() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:192.0.2.1"), origin("192.0.2.1"));
    }

    #[test]
    fn addresses_are_bounded_and_old_ones_forgotten() {
        let mut attempts = Attempts::default();
        for number in 0..u32::try_from(ORIGINS_MAX).expect("it fits") + 1_000 {
            attempts.was_wrong(IpAddr::from(number.to_be_bytes()).into(), 0);
        }
        assert_eq!((attempts.len(), attempts.order.len()), (ORIGINS_MAX, ORIGINS_MAX));
        let later = 1_000 * REGAIN_MS;
        (0..ORIGINS_MAX).for_each(|_| attempts.was_wrong(origin("192.0.2.1"), later));
        assert_eq!(attempts.len(), 1, "nothing is left of the others");
    }
}
