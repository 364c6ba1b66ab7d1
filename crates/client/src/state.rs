//! Observable state of a connection.

use std::fmt;
use std::sync::Arc;

use wire::{Packet, Role};

use crate::error::Ended;
use crate::server::Server;

/// State of a connection: see [`Client::state`](crate::Client::state).
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
    /// The server has accepted the connection, with this CONNACK.
    Connected(Arc<Server>),
    /// The connection was lost, and the client tries to reconnect. The reason is that of the latest failure.
    Reconnecting(Ended),
    /// The client has ended, and will not reconnect.
    Ended(Ended),
}

/// The application's function that sees each packet.
#[derive(Clone)]
pub(crate) struct Trace(pub(crate) Arc<See>);

/// Signature of the trace function: the sender of a packet, and the packet.
type See = dyn Fn(Role, &Packet<'_>) + Send + Sync;

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
