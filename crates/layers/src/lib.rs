//! The layers between a socket and MQTT: PROXY protocol, TLS, WebSocket, QUIC.
//!
//! ```text
//! socket ─► PROXY header ─► TLS ─► WebSocket ─► MQTT
//!           (at the start)                       ▲
//! datagrams ─────────► QUIC ─────────────────────┘
//! ```
//!
//! Each layer is a [`stream::Stream`] over another one: it transforms bytes in buffers that it is given, and has no socket,
//! thread or poller of its own. [`Layered`] puts together what the first bytes of a client ask for, as the [`Stack`] of its
//! listener allows. A client that speaks MQTT directly has no layer: its stream is the socket.

#![forbid(unsafe_code)]

#[cfg(test)]
mod double;
mod layered;
mod prefixed;
mod proxy;
pub mod quic;
mod tls;
mod web;
mod websocket;

use std::fmt;
use std::io;

pub use self::layered::{Layered, Lowest, Protocol, Stack};
pub use self::tls::{
    Authorities, ClientCertificates, Current as CurrentTls, Identity, Settings as TlsSettings, SettingsError,
    Tls, answers, common_name, expired,
};
pub use self::websocket::{Rules as WebSocketRules, WebSocket};

/// Why a layer has ended a connection. It is the inner error of an [`io::Error`] of the kind
/// [`InvalidData`](io::ErrorKind::InvalidData).
#[derive(Debug)]
#[non_exhaustive]
pub enum Rejected {
    /// The listener does not accept what the first bytes of the client begin.
    Protocol(&'static str),
    /// The PROXY header is missing or malformed.
    Proxy(&'static str),
    /// The TLS handshake has failed, or a record is not what the protocol asks for.
    Tls(rustls::Error),
    /// The handshake was the question of a certificate authority, which has its answer.
    Challenge,
    /// The handshake of QUIC has failed, or a packet is not what RFC 9000 asks for.
    Quic(String),
    /// The upgrade request, or a frame, is not what RFC 6455 asks for.
    WebSocket(&'static str),
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(why) => f.write_str(why),
            Self::Proxy(why) => write!(f, "PROXY protocol: {why}"),
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::Challenge => f.write_str("a certificate authority has asked, and has its answer"),
            Self::Quic(why) => write!(f, "QUIC: {why}"),
            Self::WebSocket(why) => write!(f, "WebSocket: {why}"),
        }
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tls(error) => Some(error),
            Self::Protocol(_) | Self::Proxy(_) | Self::Challenge | Self::Quic(_) | Self::WebSocket(_) => None,
        }
    }
}

impl From<Rejected> for io::Error {
    fn from(rejected: Rejected) -> Self {
        Self::new(io::ErrorKind::InvalidData, rejected)
    }
}
