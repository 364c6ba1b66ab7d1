//! The layers between a socket and MQTT: TLS, WebSocket, or WebSocket over TLS, from either end; and QUIC for clients.
//!
//! ```text
//! socket ── TLS ── WebSocket ── MQTT
//! datagrams ────── QUIC ─────── MQTT
//! ```
//!
//! A connection over TCP alone has none of this: a [`Link`](crate::link::Link) asks once per read and once per write.

mod certificates;
mod frames;
mod quic;
mod tls;
mod trust;
mod upgrade;
mod websocket;

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use clap::ValueEnum;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;

pub(crate) use self::certificates::Certificates;
pub(crate) use self::quic::{Quic, QuicStack};
pub(crate) use self::trust::{Trust, TrustArgs, server_config};
pub(crate) use self::upgrade::Location;

use self::tls::Tls;
use self::websocket::WebSocket;
use crate::link::{Received, write};

/// Sessions that a client remembers, of one server.
const SESSIONS: usize = 8;

/// Choice of layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Over {
    /// MQTT over TCP alone
    #[default]
    Tcp,
    /// MQTT over TLS
    Tls,
    /// MQTT over WebSocket
    Ws,
    /// MQTT over WebSocket over TLS
    Wss,
    /// MQTT over QUIC, in its first bidirectional stream
    Quic,
}

impl Over {
    /// The layers behind a scheme of a URL.
    pub(crate) fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme.to_ascii_lowercase().as_str() {
            "mqtt" | "tcp" => Some(Self::Tcp),
            "mqtts" | "ssl" | "tls" => Some(Self::Tls),
            "ws" => Some(Self::Ws),
            "wss" => Some(Self::Wss),
            "quic" => Some(Self::Quic),
            _ => None,
        }
    }

    /// The port of servers that name none.
    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Tcp => 1883,
            Self::Tls => 8883,
            Self::Ws => 80,
            Self::Wss => 443,
            Self::Quic => 14_567,
        }
    }

    /// Whether servers need a certificate.
    pub(crate) fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Wss | Self::Quic)
    }

    pub(crate) fn has_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Quic => "quic",
        }
    }
}

/// The layers of all connections to one server.
#[derive(Debug, Clone)]
pub(crate) struct ClientStack {
    /// With the name that the server's certificate must have.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) websocket: Option<Location>,
    /// In place of all others.
    pub(crate) quic: Option<QuicStack>,
}

/// The layers of all connections that a server accepts.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerStack {
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) websocket: bool,
}

/// The layers of one connection.
#[derive(Debug)]
pub(crate) struct Layers {
    below: Below,
    websocket: Option<WebSocket>,
}

/// Everything below WebSocket.
#[derive(Debug)]
struct Below {
    tls: Option<Tls>,
    /// Bytes for the socket.
    unsent: Vec<u8>,
    /// A frame on its way to TLS.
    frame: Vec<u8>,
}

impl ClientStack {
    /// The same, with a memory for the sessions of one client.
    pub(crate) fn with_sessions(&self) -> Self {
        let remember = |(config, name): &(Arc<ClientConfig>, ServerName<'static>)| {
            let mut config = ClientConfig::clone(config);
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
            (Arc::new(config), name.clone())
        };
        Self { tls: self.tls.as_ref().map(remember), websocket: self.websocket.clone(), quic: None }
    }

    /// The layers of another connection, which begin with a handshake.
    ///
    /// # Errors
    /// If TLS cannot begin.
    pub(crate) fn layers(&self) -> io::Result<Layers> {
        let mut unsent = Vec::new();
        let tls = match &self.tls {
            Some((config, name)) => Some(Tls::client(Arc::clone(config), name.clone(), &mut unsent)?),
            None => None,
        };
        let mut below = Below { tls, unsent, frame: Vec::new() };
        let mut request = Vec::new();
        let websocket = self.websocket.as_ref().map(|location| WebSocket::client(location, &mut request));
        below.put(&request)?;
        Ok(Layers { below, websocket })
    }
}

impl ServerStack {
    /// Whether connections have no layer.
    pub(crate) fn is_empty(&self) -> bool {
        self.tls.is_none() && !self.websocket
    }

    /// The layers of another connection.
    ///
    /// # Errors
    /// If TLS cannot begin.
    pub(crate) fn layers(&self) -> io::Result<Layers> {
        let tls = self.tls.clone().map(Tls::server).transpose()?;
        let below = Below { tls, unsent: Vec::new(), frame: Vec::new() };
        Ok(Layers { below, websocket: self.websocket.then(WebSocket::server) })
    }
}

impl Layers {
    /// Reads bytes of MQTT, in the way of [`Link::read`](crate::link::Link::read).
    ///
    /// # Errors
    /// What the system says of the connection, and `InvalidData` if the peer breaks a rule of a layer.
    pub(crate) fn read<S: Read + Write>(
        &mut self,
        socket: &mut S,
        buffer: &mut [u8],
    ) -> io::Result<Received> {
        // A socket that is full says so once: what is kept leaves with `flush`.
        let was_behind = self.is_behind();
        loop {
            if self.websocket.as_ref().is_some_and(WebSocket::has_ended) {
                return Ok(Received::Closed);
            }
            let received = self.below.read(socket, buffer);
            let received = received.and_then(|received| self.unwrap(received, buffer));
            // Answers that are due leave at once, also the alert before an error.
            let flushed = if was_behind { Ok(()) } else { self.below.flush(socket) };
            match received? {
                // An empty frame, or the upgrade: the socket may have more.
                Received::Bytes { len: 0, .. } => flushed?,
                Received::Closed => return Ok(Received::Closed),
                received => return flushed.map(|()| received),
            }
        }
    }

    /// Takes bytes out of their frames.
    fn unwrap(&mut self, received: Received, buffer: &mut [u8]) -> io::Result<Received> {
        let (Some(websocket), Received::Bytes { len, drained }) = (&mut self.websocket, &received) else {
            return Ok(received);
        };
        let mut answers = Vec::new();
        let len = websocket.read(&mut buffer[..*len], &mut answers)?;
        let has_ended = websocket.has_ended();
        if !answers.is_empty() {
            self.below.put(&answers)?;
        }
        Ok(Received::Bytes { len, drained: *drained && !has_ended })
    }

    /// Sends bytes of MQTT after all that was sent before, as one frame. What the socket does not take is kept for
    /// [`Self::flush`].
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) fn send(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        let was_behind = self.is_behind();
        let below = &mut self.below;
        match (&mut self.websocket, &mut below.tls) {
            (None, _) => below.put(bytes)?,
            (Some(websocket), None) => websocket.write(bytes, &mut below.unsent),
            (Some(websocket), Some(tls)) => {
                below.frame.clear();
                websocket.write(bytes, &mut below.frame);
                tls.write(&below.frame, &mut below.unsent)?;
            }
        }
        // A socket that is full says so once.
        if was_behind { Ok(()) } else { below.flush(socket) }
    }

    /// Sends what is kept, as far as the socket takes it.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.below.flush(socket)
    }

    /// Whether bytes wait for the socket to take them.
    pub(crate) fn is_behind(&self) -> bool {
        !self.below.unsent.is_empty()
    }

    /// Says goodbye in each layer: nothing is sent afterwards.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) fn end(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let mut close = Vec::new();
        if let Some(websocket) = &mut self.websocket {
            websocket.close(&mut close);
        }
        self.below.put(&close)?;
        if let Some(tls) = &mut self.below.tls {
            tls.close(&mut self.below.unsent);
        }
        self.below.flush(socket)
    }

    /// Whether the TLS handshake went on from an earlier one. `None` before its end, and without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        self.below.tls.as_ref().and_then(Tls::is_resumed)
    }
}

impl Below {
    fn read(&mut self, socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<Received> {
        match &mut self.tls {
            Some(tls) => tls.read(socket, buffer, &mut self.unsent),
            None => crate::link::read(socket, buffer),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            _ if bytes.is_empty() => Ok(()),
            Some(tls) => tls.write(bytes, &mut self.unsent),
            None => {
                self.unsent.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let written = write(socket, &self.unsent)?;
            self.unsent.drain(..written);
        }
        Ok(())
    }
}

/// The name that a server's certificate must have: that of the host.
///
/// # Errors
/// If the host is neither a name nor an address.
pub(crate) fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let wrong = |_| io::Error::new(ErrorKind::InvalidInput, format!("`{host}` is no name of a host"));
    ServerName::try_from(host.to_owned()).map_err(wrong)
}
