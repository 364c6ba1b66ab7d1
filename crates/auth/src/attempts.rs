//! Wrong passwords by address and user, so that guessing costs an attacker time and the broker nothing.

use core::hash::Hash;
use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

/// Number of wrong passwords for one user from one address that are checked without a pause.
const FREE: u32 = 30;
/// Time after which one of them is allowed again, in milliseconds.
const REGAIN_MS: u64 = 1_000;
/// The same for all users of an address: a company may have a thousand devices behind one.
const ADDRESS_FREE: u32 = 300;
const ADDRESS_REGAIN_MS: u64 = 100;
/// Number of unknown passwords that are compared with those that were right before, and the time after which one more is: for one
/// user from one address, and for all users of an address. An address that is not suspect has no more of them: its slow checks
/// may all still wait, and a service that is down makes nobody suspect.
const LOOKS_FREE: u32 = 100;
const LOOKS_REGAIN_MS: u64 = 200;
const ADDRESS_LOOKS_FREE: u32 = 1_000;
const ADDRESS_LOOKS_REGAIN_MS: u64 = 10;
/// All origins of a network of IPv6 together have this many times the numbers above, and get them back this many times as fast:
/// for each user, and for all users. A site has 65,536 origins.
const NETWORK_TIMES: u32 = 10;
/// Time after a wrong password in which the passwords of its address wait for those of other addresses, in milliseconds.
/// A thousand attackers cost a thousand slow checks in this time, and not a thousand each second.
const SUSPECT_MS: u64 = 300_000;
/// Maximum number of entries of each table. Beyond it the oldest is forgotten.
const ENTRIES_MAX: usize = 65_536;

/// The part of an address that one host has: for IPv6 the first 64 bits. Also a user of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(u64);

impl Origin {
    /// Processes of one user of this machine; `None` if the system does not tell the user.
    #[must_use]
    pub fn of_process(uid: Option<u32>) -> Self {
        // An address of IPv6 that begins with `ff` is a multicast group, and nobody connects from it.
        const PROCESS: u64 = 0xffff_ffff << 32;
        const UNKNOWN: u64 = 0xffff_fffe << 32;
        Self(uid.map_or(UNKNOWN, |uid| PROCESS | u64::from(uid)))
    }

    /// An address from which an operator logs in to the admin server. Wrong passwords there and wrong passwords of clients at the
    /// same address do not count together: neither keeps the other out.
    #[must_use]
    pub fn of_operator(address: IpAddr) -> Self {
        // Nobody has an address of IPv6 that begins like this: those in use begin with 0x2, 0x3 or 0xf.
        Self(Self::from(address).0 ^ OF_OPERATOR)
    }

    /// The network in which somebody may have many origins: for IPv6 the first 48 bits, as a site or a tunnel commonly has them.
    /// Other origins stand for themselves.
    #[must_use]
    pub fn network(self) -> Self {
        if self.is_alone() { self } else { Self(self.0 & !0xffff) }
    }

    /// Whether the origin is its own network: an address of IPv4, or a user of this machine.
    fn is_alone(self) -> bool {
        let is_ipv4 = (self.0 & !OF_OPERATOR) >> 32 == 0;
        let is_process = self.0 >> 56 == 0xff;
        is_ipv4 || is_process
    }
}

/// The bit that is different in origins of operators.
const OF_OPERATOR: u64 = 1 << 63;

/// The first 96 bits of `64:ff9b::/96`.
const NAT64: u128 = 0x0064_ff9b_0000_0000_0000_0000;

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            // No address of IPv6 that is in use begins like this.
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            // A translator (NAT64, RFC 6052) gives each address of IPv4 one of IPv6 with this prefix of 96 bits.
            IpAddr::V6(address) if address.to_bits() >> 32 == NAT64 => {
                Self(u64::try_from(address.to_bits() & u128::from(u32::MAX)).expect("32 bits"))
            }
            IpAddr::V6(address) => Self(u64::try_from(address.to_bits() >> 64).expect("64 bits")),
        }
    }
}

/// Wrong passwords of late. Each user has 30 of them from an address, and gets one back each second. All users of an address
/// have 300, and get ten back each second. With none left, the broker refuses a password without a check, unless it was right
/// before. It compares 100 passwords of an address for each user with those, and five more each second; for all users, 1,000
/// and 100 more each second. Passwords that were right before do not count. With no comparison left, it refuses all passwords
/// of a suspect address, and compares none of another address, so that nobody guesses faster what others have logged in with.
/// All addresses of a network of IPv6 (48 bits) have ten times these numbers together.
///
/// An address is suspect for five minutes after a wrong password. At most 65,536 addresses have an entry, and as many pairs
/// of an address and a user. When there are more, the entry whose first wrong password is the oldest is forgotten. The same
/// numbers hold for networks.
#[derive(Debug)]
pub struct Attempts {
    of_origins: Counts,
    of_networks: Counts,
}

/// The counts of one kind of place: of origins, or of networks with several origins.
#[derive(Debug)]
struct Counts {
    wrong: Pair,
    looks: Pair,
}

impl Counts {
    /// The counts with this many times the numbers of an origin. An entry of a wrong password is kept for a time.
    fn new(times: u32, kept_ms: u64) -> Self {
        let table = |free: u32, regain_ms: u64| (free * times, regain_ms / u64::from(times));
        Self {
            wrong: Pair::new(table(ADDRESS_FREE, ADDRESS_REGAIN_MS), table(FREE, REGAIN_MS), kept_ms),
            looks: Pair::new(
                table(ADDRESS_LOOKS_FREE, ADDRESS_LOOKS_REGAIN_MS),
                table(LOOKS_FREE, LOOKS_REGAIN_MS),
                0,
            ),
        }
    }
}

/// A count for all users of a place, and one for each user.
#[derive(Debug)]
struct Pair {
    all: Table<Origin>,
    each: Table<(Origin, u64)>,
}

impl Pair {
    fn new(all: (u32, u64), each: (u32, u64), kept_ms: u64) -> Self {
        Self { all: Table::new(all.0, all.1, kept_ms), each: Table::new(each.0, each.1, 0) }
    }

    fn has_left(&self, place: Origin, user: u64, now_ms: u64) -> bool {
        self.all.has_left(&place, now_ms) && self.each.has_left(&(place, user), now_ms)
    }

    fn add(&mut self, place: Origin, user: u64, now_ms: u64) {
        self.all.add(place, now_ms);
        self.each.add((place, user), now_ms);
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self { of_origins: Counts::new(1, SUSPECT_MS), of_networks: Counts::new(NETWORK_TIMES, 0) }
    }
}

impl Attempts {
    /// The counts that an origin has part in.
    fn of(&self, origin: Origin) -> impl Iterator<Item = (&Counts, Origin)> {
        let network = (!origin.is_alone()).then(|| (&self.of_networks, origin.network()));
        [(&self.of_origins, origin)].into_iter().chain(network)
    }

    fn of_mut(&mut self, origin: Origin) -> impl Iterator<Item = (&mut Counts, Origin)> {
        let network = (!origin.is_alone()).then(|| (&mut self.of_networks, origin.network()));
        [(&mut self.of_origins, origin)].into_iter().chain(network)
    }

    /// Whether a password from this address for this user is checked. The user is a [number](crate::Check::number).
    #[must_use]
    pub fn may_try(&self, origin: Origin, user: u64, now_ms: u64) -> bool {
        self.of(origin).all(|(counts, place)| counts.wrong.has_left(place, user, now_ms))
    }

    /// Whether a password from this address for this user is compared with those that were right before. Otherwise the password
    /// is one that nobody knows.
    #[must_use]
    pub fn may_look(&self, origin: Origin, user: u64, now_ms: u64) -> bool {
        self.of(origin).all(|(counts, place)| counts.looks.has_left(place, user, now_ms))
    }

    /// Whether a password from this address for this user is refused, although it may have been right before.
    #[must_use]
    pub fn are_spent(&self, origin: Origin, user: u64, now_ms: u64) -> bool {
        let is_suspect = || self.of(origin).any(|(counts, place)| counts.wrong.all.is_kept(&place, now_ms));
        !self.may_look(origin, user, now_ms) && is_suspect()
    }

    /// Notes a password that was compared with those that were right before, and is none of them. It counts whether it is then
    /// checked or not: passwords that give way to others in a line would be guesses without a limit.
    pub fn was_unknown(&mut self, origin: Origin, user: u64, now_ms: u64) {
        self.of_mut(origin).for_each(|(counts, place)| counts.looks.add(place, user, now_ms));
    }

    /// Whether a wrong password has come from this address in the last five minutes. The passwords of other addresses are
    /// checked first.
    #[must_use]
    pub fn is_suspect(&self, origin: Origin, now_ms: u64) -> bool {
        self.of_origins.wrong.all.is_kept(&origin, now_ms)
    }

    /// Notes a wrong password.
    pub fn was_wrong(&mut self, origin: Origin, user: u64, now_ms: u64) {
        self.of_mut(origin).for_each(|(counts, place)| counts.wrong.add(place, user, now_ms));
    }

    /// Number of addresses with an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.of_origins.wrong.all.entries.len()
    }

    /// Whether no address has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_origins.wrong.all.entries.is_empty()
    }
}

/// Counts that fall with time.
#[derive(Debug)]
struct Table<Key> {
    entries: HashMap<Key, Wrong>,
    /// Keys in the order of their first wrong passwords.
    order: VecDeque<Key>,
    free: u32,
    regain_ms: u64,
    /// Minimum time that an entry is kept.
    kept_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Wrong {
    count: u32,
    /// Time of the last change on the monotonic clock, or when the last whole one came back before that.
    at_ms: u64,
}

impl<Key: Copy + Eq + Hash> Table<Key> {
    fn new(free: u32, regain_ms: u64, kept_ms: u64) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), free, regain_ms, kept_ms }
    }

    fn count(&self, key: &Key, now_ms: u64) -> u32 {
        let left = |wrong: &Wrong| {
            let regained = now_ms.saturating_sub(wrong.at_ms) / self.regain_ms;
            wrong.count.saturating_sub(u32::try_from(regained).unwrap_or(u32::MAX))
        };
        self.entries.get(key).map_or(0, left)
    }

    fn has_left(&self, key: &Key, now_ms: u64) -> bool {
        self.count(key, now_ms) < self.free
    }

    fn is_kept(&self, key: &Key, now_ms: u64) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|wrong| now_ms.saturating_sub(wrong.at_ms) < self.kept_ms)
            || self.count(key, now_ms) > 0
    }

    fn add(&mut self, key: Key, now_ms: u64) {
        let count = self.count(&key, now_ms);
        // The time since the last whole one came back stays: two in quick succession must not cost it.
        let fraction_ms = self.entries.get(&key).filter(|_| count > 0);
        let fraction_ms = fraction_ms.map_or(0, |wrong| now_ms.saturating_sub(wrong.at_ms) % self.regain_ms);
        let wrong = Wrong { count: count.saturating_add(1), at_ms: now_ms - fraction_ms };
        if self.entries.insert(key, wrong).is_none() {
            self.order.push_back(key);
        }
        self.forget_old(now_ms);
    }

    /// Looks at the two oldest entries, and removes one if there are too many.
    fn forget_old(&mut self, now_ms: u64) {
        for _ in 0..2 {
            let Some(key) = self.order.front().copied() else { return };
            if self.order.len() <= ENTRIES_MAX && self.is_kept(&key, now_ms) {
                return;
            }
            self.order.pop_front();
            self.entries.remove(&key);
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
    fn a_customer_of_ipv6_is_one_origin_and_each_address_behind_a_translator_is_another() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::2"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_ne!(origin("64:ff9b::192.0.2.1"), origin("64:ff9b::192.0.2.2"));
        assert_eq!(origin("64:ff9b::192.0.2.1"), origin("192.0.2.1"));
    }

    #[test]
    fn a_user_has_some_wrong_passwords_from_an_address_and_gets_them_back_with_time() {
        let (bad, good) = (origin("192.0.2.1"), origin("192.0.2.2"));
        let mut attempts = Attempts::default();
        for _ in 0..FREE {
            assert!(attempts.may_try(bad, 1, 5_000));
            attempts.was_wrong(bad, 1, 5_000);
        }
        assert!(!attempts.may_try(bad, 1, 5_999) && attempts.may_try(good, 1, 5_999));
        assert!(attempts.may_try(bad, 2, 5_999), "another user behind the same address");
        assert!(attempts.may_try(bad, 1, 6_000), "one is back");
        attempts.was_wrong(bad, 1, 6_000);
        assert!(!attempts.may_try(bad, 1, 6_000));
    }

    #[test]
    fn all_users_of_an_address_have_more_wrong_passwords_together() {
        let (bad, mut attempts) = (origin("192.0.2.1"), Attempts::default());
        for user in 0..u64::from(ADDRESS_FREE) {
            assert!(attempts.may_try(bad, user, 0));
            attempts.was_wrong(bad, user, 0);
        }
        assert!(!attempts.may_try(bad, 1_000, ADDRESS_REGAIN_MS - 1));
        assert!(attempts.may_try(bad, 1_000, ADDRESS_REGAIN_MS));
    }

    #[test]
    fn an_address_has_some_looks_at_passwords_that_were_right_and_gets_them_back() {
        let (bad, mut attempts) = (origin("192.0.2.1"), Attempts::default());
        for _ in 0..LOOKS_FREE {
            assert!(attempts.may_look(bad, 1, 0));
            attempts.was_unknown(bad, 1, 0);
        }
        assert!(
            !attempts.may_look(bad, 1, LOOKS_REGAIN_MS - 1) && attempts.may_look(bad, 1, LOOKS_REGAIN_MS)
        );
        assert!(attempts.may_look(bad, 2, 0), "another user behind the same address");
        assert!(!attempts.are_spent(bad, 1, 0), "no password of it was wrong");
        attempts.was_wrong(bad, 1, 0);
        assert!(
            attempts.are_spent(bad, 1, LOOKS_REGAIN_MS - 1) && !attempts.are_spent(bad, 1, LOOKS_REGAIN_MS)
        );
        assert!(!attempts.are_spent(bad, 2, 0) && !attempts.are_spent(origin("192.0.2.2"), 1, 0));
        for user in 0..u64::from(ADDRESS_LOOKS_FREE) {
            attempts.was_unknown(bad, user, 0);
        }
        assert!(attempts.are_spent(bad, 5_000, 0), "all users of the address have looked too often");
    }

    /// A site of IPv6 has 65,536 networks of 64 bits.
    #[test]
    fn the_origins_of_a_site_share_ten_times_the_wrong_passwords_and_looks() {
        let of_site = |number: u32| Origin(0x2001_0db8_0001_0000 | u64::from(number));
        let (mut wrong, mut looks, mut attempts) = (0, 0, Attempts::default());
        for number in 0..20_000 {
            let origin = of_site(number);
            if attempts.may_try(origin, 1, 0) {
                attempts.was_wrong(origin, 1, 0);
                wrong += 1;
            }
            if attempts.may_look(origin, 1, 0) {
                attempts.was_unknown(origin, 1, 0);
                looks += 1;
            }
        }
        assert_eq!((wrong, looks), (NETWORK_TIMES * FREE, NETWORK_TIMES * LOOKS_FREE));
        let fresh = of_site(30_000);
        assert!(attempts.are_spent(fresh, 1, 0), "an origin that has done nothing yet");
        assert!(attempts.may_try(fresh, 1, REGAIN_MS) && attempts.may_look(fresh, 1, REGAIN_MS));
        assert!(attempts.may_try(fresh, 2, 0), "another user");
        assert!(
            attempts.may_try(origin("2001:db8:2::1"), 1, 0) && attempts.may_try(origin("192.0.2.1"), 1, 0)
        );
        for number in 0..10_000_u32 {
            let (origin, user) = (of_site(number), u64::from(number));
            if attempts.may_try(origin, user, 0) {
                attempts.was_wrong(origin, user, 0);
                wrong += 1;
            }
        }
        assert_eq!(wrong, NETWORK_TIMES * ADDRESS_FREE, "all users together");
    }

    #[test]
    fn two_wrong_passwords_in_quick_succession_do_not_cost_the_time_that_has_passed() {
        let (bad, mut attempts) = (origin("192.0.2.1"), Attempts::default());
        (0..FREE).for_each(|_| attempts.was_wrong(bad, 1, 0));
        let mut checked = 0;
        for round in 1..=10 {
            for _ in 0..2 {
                let now_ms = round * 1_900;
                if attempts.may_try(bad, 1, now_ms) {
                    attempts.was_wrong(bad, 1, now_ms);
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, 19, "one in each second");
    }

    #[test]
    fn an_address_stays_suspect_for_minutes() {
        let (bad, mut attempts) = (origin("192.0.2.1"), Attempts::default());
        attempts.was_wrong(bad, 1, 5_000);
        assert!(attempts.is_suspect(bad, 5_000 + SUSPECT_MS - 1));
        assert!(!attempts.is_suspect(bad, 5_000 + SUSPECT_MS));
        assert!(!attempts.is_suspect(origin("192.0.2.2"), 5_000));
    }

    #[test]
    fn an_ipv6_host_has_64_bits_and_an_ipv4_host_one_address() {
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:1"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:192.0.2.1"), origin("192.0.2.1"));
    }

    #[test]
    fn a_network_of_ipv6_has_48_bits_and_other_origins_are_alone() {
        let network = |address| origin(address).network();
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:ffff::"));
        assert_ne!(network("2001:db8:1::"), network("2001:db8:2::"));
        let of_operator = Origin::of_operator("192.0.2.1".parse().expect("an address"));
        let of_process = [Some(1_000), None].map(Origin::of_process);
        for alone in of_process.into_iter().chain([origin("192.0.2.1"), of_operator]) {
            assert_eq!(alone.network(), alone);
        }
    }

    #[test]
    fn users_of_this_machine_are_apart_from_each_other_and_from_addresses() {
        let origins = [Some(0), Some(1_000), None].map(Origin::of_process);
        assert!(origins[0] != origins[1] && origins[1] != origins[2] && origins[0] != origins[2]);
        assert!(!origins.contains(&origin("0.0.0.0")) && !origins.contains(&origin("0.0.3.232")));
    }

    #[test]
    fn entries_are_bounded_and_old_ones_forgotten() {
        let mut attempts = Attempts::default();
        for number in 0..u32::try_from(ENTRIES_MAX).expect("it fits") + 1_000 {
            attempts.was_wrong(IpAddr::from(number.to_be_bytes()).into(), 1, 0);
            attempts.was_unknown(IpAddr::from(number.to_be_bytes()).into(), 1, 0);
        }
        let looks =
            (attempts.of_origins.looks.all.entries.len(), attempts.of_origins.looks.each.entries.len());
        assert_eq!(looks, (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!((attempts.len(), attempts.of_origins.wrong.all.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(
            (attempts.of_origins.wrong.each.entries.len(), attempts.of_origins.wrong.each.order.len()),
            (ENTRIES_MAX, ENTRIES_MAX)
        );
        let later = SUSPECT_MS;
        (0..ENTRIES_MAX).for_each(|_| attempts.was_wrong(origin("192.0.2.1"), 1, later));
        assert_eq!(
            (attempts.len(), attempts.of_origins.wrong.each.entries.len()),
            (1, 1),
            "nothing is left of the others"
        );
    }
}
