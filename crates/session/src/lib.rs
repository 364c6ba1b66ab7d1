//! The protocol of one MQTT session, in every version, without sockets, clock or other sessions.
//!
//! A [`Session`] takes the packets of its peer in and says what they ask of the world outside: a [`Request`].
//! It keeps what belongs to one connection: version, keep alive, topic aliases, the will, the bounds that the
//! client gave. What goes between sessions is the broker's matter.
//!
//! So far it plays the server's part at QoS 0.

#![forbid(unsafe_code)]

mod connect;
mod incoming;
mod message;
mod session;
mod settings;
mod ticket;

pub use incoming::Incoming;
pub use message::Message;
pub use session::{Request, Session};
pub use settings::Settings;
pub use ticket::Ticket;

/// The time, as the caller read it. Nothing in the core looks at a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Milliseconds since some moment before the process did anything; never goes back. For running timers.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970-01-01 UTC; may jump. For times that must mean something later.
    pub unix_ms: u64,
}
