//! The protocol of one MQTT session, in every version, without sockets, clock or other sessions.
//!
//! A [`Session`] plays the server's part. It takes the packets of its client in and says what they ask of the world
//! outside: a [`Request`]. It keeps what belongs to one connection: version, keep alive, topic aliases, the packet
//! identifiers of messages that are not acknowledged, the bounds that the client gave. What outlives a connection,
//! and what goes between sessions, is the world's matter.
//!
//! A [`Client`] plays the client's part: see [`client`]. It keeps the session from one connection to the next.
//!
//! Both are made of the same halves: one sends messages and keeps their identifiers until they are acknowledged, the
//! other receives them and keeps answers in order.

#![forbid(unsafe_code)]

mod alias;
mod answer;
mod authentication;
pub mod client;
mod connect;
mod fit;
mod ids;
mod in_order;
mod inbound;
mod incoming;
mod outbound;
mod packet;
mod sending;
mod session;
mod settings;
mod terms;
mod timeout;
mod waiting;

pub use answer::Details;
pub use authentication::{Authenticated, AuthenticationOutcome, AuthenticationStep};
pub use client::Client;
pub use connect::Accepted;
pub use incoming::Incoming;
pub use session::{Request, Session};
pub use settings::Settings;
pub use terms::Terms;
pub use waiting::{Bound, Wait, Waiting};
