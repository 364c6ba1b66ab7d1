//! How many connections a listener accepts in a second.

use std::collections::HashMap;
use std::net::IpAddr;

use stream::Peer;

/// Limits for the connections that a listener accepts in each second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// From all addresses together.
    pub total: Option<u32>,
    /// From each address. Addresses of IPv6 count together if they have the same first 64 bits, because one host may have
    /// all of them.
    pub per_address: Option<u32>,
}

/// Maximum number of addresses that are counted one by one in a second. Later ones count together.
const ADDRESSES_MAX: usize = 1 << 16;
const SECOND_MS: u64 = 1_000;

/// The connections of the second that runs.
#[derive(Debug)]
pub(crate) struct Rates {
    limits: RateLimits,
    began_ms: u64,
    total: u32,
    addresses: HashMap<Host, u32>,
}

/// The part of an address that one host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Host {
    V4([u8; 4]),
    V6([u8; 8]),
    /// Every address that there is no more place for.
    Other,
}

impl Rates {
    pub(crate) fn new(limits: RateLimits) -> Self {
        Self { limits, began_ms: 0, total: 0, addresses: HashMap::new() }
    }

    /// Changes the limits. Connections of the second that runs count.
    pub(crate) fn change(&mut self, limits: RateLimits) {
        self.limits = limits;
    }

    /// Whether there is any limit.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits != RateLimits::default()
    }

    /// Counts a connection. Returns whether it is one too many.
    pub(crate) fn is_exceeded_by(&mut self, peer: Peer, now_ms: u64) -> bool {
        let RateLimits { total, per_address } = self.limits;
        if total.is_none() && per_address.is_none() {
            return false;
        }
        if now_ms >= self.began_ms + SECOND_MS {
            (self.began_ms, self.total) = (now_ms, 0);
            self.addresses = HashMap::new();
        }
        if let (Some(most), Peer::Inet(address)) = (per_address, peer) {
            let mut host = Host::of(address.ip());
            if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&host) {
                host = Host::Other;
            }
            let count = self.addresses.entry(host).or_default();
            if *count >= most {
                // It does not count for others.
                return true;
            }
            *count += 1;
        }
        if total.is_some_and(|most| self.total >= most) {
            return true;
        }
        self.total += 1;
        false
    }
}

impl Host {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::from(std::net::SocketAddr::new(address.parse().expect("an address"), 40_000))
    }

    /// How many of these connections are accepted at this moment.
    fn accepted(rates: &mut Rates, addresses: &[&str], now_ms: u64) -> usize {
        addresses.iter().filter(|address| !rates.is_exceeded_by(peer(address), now_ms)).count()
    }

    #[test]
    fn a_listener_accepts_so_many_in_each_second() {
        let mut rates = Rates::new(RateLimits { total: Some(3), per_address: None });
        assert_eq!(accepted(&mut rates, &["192.0.2.1"; 5], 10_000), 3);
        assert_eq!(accepted(&mut rates, &["192.0.2.2"; 5], 10_999), 0);
        assert_eq!(accepted(&mut rates, &["192.0.2.2"; 5], 11_000), 3);
    }

    #[test]
    fn each_address_has_a_limit_of_its_own_and_ipv6_one_for_each_64_bits() {
        let mut rates = Rates::new(RateLimits { total: None, per_address: Some(2) });
        assert_eq!(accepted(&mut rates, &["192.0.2.1"; 5], 0), 2);
        assert_eq!(accepted(&mut rates, &["192.0.2.2", "192.0.2.3", "::ffff:192.0.2.1"], 999), 2);
        let same = ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:0:0:3", "2001:db8:0:0:ffff::1"];
        assert_eq!(accepted(&mut rates, &same, 999), 2);
        assert_eq!(accepted(&mut rates, &["2001:db8:0:1::1"], 999), 1);
        assert_eq!(accepted(&mut rates, &["192.0.2.1"; 5], 1_000), 2);
    }

    #[test]
    fn an_address_beyond_its_limit_leaves_the_total_to_others() {
        let mut rates = Rates::new(RateLimits { total: Some(3), per_address: Some(1) });
        assert_eq!(accepted(&mut rates, &["192.0.2.1"; 100], 0), 1);
        assert_eq!(accepted(&mut rates, &["192.0.2.2", "192.0.2.3", "192.0.2.4"], 0), 2);
    }

    #[test]
    fn addresses_are_bounded() {
        let mut rates = Rates::new(RateLimits { total: None, per_address: Some(1) });
        for number in 0..u32::try_from(ADDRESSES_MAX).expect("it fits") + 1_000 {
            let address = IpAddr::from(number.to_be_bytes());
            rates.is_exceeded_by(Peer::from(std::net::SocketAddr::new(address, 1)), 0);
        }
        assert_eq!(rates.addresses.len(), ADDRESSES_MAX + 1);
        let processes = Peer::Process { uid: None, pid: None };
        assert!(!rates.is_exceeded_by(processes, 0), "a process of this machine has no address");
    }
}
