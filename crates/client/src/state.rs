//! What can be watched of a connection.

use std::fmt;
use std::sync::Arc;

use wire::{Packet, Role};

use crate::error::Ended;
use crate::server::Server;

/// Where a connection stands: see [`Client::state`](crate::Client::state).
///
/// ```text
///              a fault, where it may be made anew
///  Connected ─────────────────────────────────────► Reconnecting
///      │     ◄─────────────────────────────────────      │
///      │                     CONNACK                     │
///      └───────────────────► Ended ◄─────────────────────┘
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum State {
    /// The server has accepted the connection, and this is what it said.
    Connected(Arc<Server>),
    /// The connection was lost, for this reason, and another is being tried for; each attempt in vain brings its own.
    Reconnecting(Ended),
    /// There will be no other.
    Ended(Ended),
}

/// Who sees each packet.
#[derive(Clone)]
pub(crate) struct Trace(pub(crate) Arc<See>);

/// Takes who has sent a packet, and the packet.
type See = dyn Fn(Role, &Packet<'_>) + Send + Sync;

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
