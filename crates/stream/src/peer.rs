//! Names of the other ends of connections.

use core::net::SocketAddr;
use std::fmt;

/// The other end of a connection, as the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An address and port of a network.
    Inet(SocketAddr),
    /// A process of this machine, with its user and process ids as far as the system tells them.
    Process {
        /// Number of its user.
        uid: Option<u32>,
        /// Number of the process.
        pid: Option<u32>,
    },
    /// A connection of a simulated network.
    Simulated(usize),
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Process { uid: Some(uid), pid: Some(pid) } => write!(f, "unix:uid={uid},pid={pid}"),
            Self::Process { uid: Some(uid), pid: None } => write!(f, "unix:uid={uid}"),
            Self::Process { uid: None, .. } => f.write_str("unix"),
            Self::Simulated(link) => write!(f, "link {link}"),
        }
    }
}
