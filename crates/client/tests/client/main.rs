//! Tests of the client through its API, with a server that the test plays packet by packet.

mod authenticated;
mod ended;
mod endpoint;
mod flooded;
mod inbox;
mod names;
mod peer;
mod pipeline;
mod published;
mod received;
mod reconnected;
mod requested;
#[cfg(feature = "socks5")]
mod socks5;
mod stored;
#[cfg(feature = "tls")]
mod tls;
mod watched;
#[cfg(feature = "websocket")]
mod websocket;
