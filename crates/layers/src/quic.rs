//! QUIC (RFC 9000), a server's side, without sockets: datagrams in, datagrams out, and a stream of packets for each connection.
//!
//! ```text
//! datagram ─► Door ─► (shard, connection) ─► Links ─► Link ─► QuicStream ─► turn::ShardLoop
//!              │  connection ids                       │
//!              └─► answers: Retry, refusals            └─► datagrams, at the end of a turn
//! ```
//!
//! - A [`Door`] knows the connection ids of a listener's connections, and nothing else of them. It belongs to the thread
//!   that reads the UDP socket. For each datagram it says which connection the datagram is for.
//! - [`Links`] are the connections of one shard, with their keys, windows and timers. Decryption, signatures behind the
//!   first flight, and all of MQTT are the shard's.
//! - A [`QuicStream`] is the streams of a connection, as one stream of control packets.
//!
//! The first bidirectional stream that a client opens carries MQTT, as in other brokers. Further ones carry packets of the
//! same session (`streams` has the rules). Early data (0-RTT) is refused: an attacker can repeat it. Unidirectional streams and
//! datagrams (RFC 9221) are not offered.

mod door;
mod link;
mod links;
mod settings;
mod streams;
#[cfg(test)]
mod tests;
mod walk;

pub use self::door::{Arrival, Begun, Datagram, Door};
pub use self::link::QuicStream;
pub use self::links::{GivenUp, Links, Name, Outside};
pub use self::settings::QuicLimits;

/// The parts of `quinn_proto` that pass between a [`Door`] and [`Links`].
pub use quinn_proto::{ConnectionEvent, ConnectionHandle, EcnCodepoint, EndpointEvent, Transmit};
