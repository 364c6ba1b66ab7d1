//! Ports for servers that cannot choose a free one and tell it.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

const LOWEST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// Returns free ports below the range from which the system chooses, each only once in a process.
///
/// The system gives a port that was only just free to the next connection. No server could listen there then.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_ports<const AS_MANY: usize>() -> [u16; AS_MANY] {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
        let anywhere = RandomState::new().hash_one(LOWEST) % u64::from(COUNT);
        AtomicU16::new(u16::try_from(anywhere).unwrap_or_default())
    });
    let next =
        || LOWEST + NEXT.fetch_update(Relaxed, Relaxed, |last| Some((last + 1) % COUNT)).unwrap_or_default();
    let mut ports = std::iter::repeat_with(next).take(usize::from(COUNT)).filter(|port| is_free(*port));
    [(); AS_MANY].map(|()| ports.next().expect("a port is free"))
}

/// Returns one of these ports.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn free_port() -> u16 {
    let [port] = free_ports();
    port
}

/// Whether nobody listens at a port, on any address.
fn is_free(port: u16) -> bool {
    let addresses: [SocketAddr; 2] =
        [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    let is_bound = TcpListener::bind(addresses[0]).is_ok() && UdpSocket::bind(addresses[0]).is_ok();
    // There may be no IPv6 here.
    let in_use = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    is_bound && !TcpListener::bind(addresses[1]).is_err_and(in_use)
}
