//! Address of a server, and the layers of the connection.

use std::fmt;
use std::io;
use std::net::IpAddr;
#[cfg(unix)]
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dial;
#[cfg(feature = "socks5")]
use crate::socks5::Proxy;
#[cfg(feature = "tls")]
use crate::tls::Tls;
#[cfg(feature = "websocket")]
use crate::websocket::WebSocket;

/// A server's address, and the layers between the address and MQTT.
///
/// An endpoint is built part by part, or parsed from a URL:
///
/// | URL | | port | feature |
/// |---|---|---|---|
/// | `mqtt://host:port`, `tcp://…` | TCP | 1883 | |
/// | `mqtts://host:port`, `ssl://…`, `tls://…` | TLS | 8883 | `tls` |
/// | `ws://host:port/path` | WebSocket | 80 | `websocket` |
/// | `wss://host:port/path` | WebSocket over TLS | 443 | `tls`, `websocket` |
/// | `quic://host:port` | QUIC | 14567 | `quic` |
/// | `unix:///path` | a socket of this machine | | |
///
/// TLS trusts the certificate authorities of the system, unless `Endpoint::tls` says otherwise. Credentials do not
/// belong in the URL but in [`Options`](crate::Options).
///
/// ```no_run
/// # use pondhawk_client::{Client, Endpoint, Options, Version};
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint: Endpoint = "mqtt://broker.example".parse()?;
/// let client = Client::connect_to(endpoint, Options::new(Version::V5)).await?;
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub(crate) place: Place,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) no_delay: bool,
    #[cfg(feature = "socks5")]
    pub(crate) proxy: Option<Proxy>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    #[cfg(feature = "websocket")]
    pub(crate) websocket: Option<WebSocket>,
    #[cfg(feature = "quic")]
    pub(crate) has_quic: bool,
}

/// Address at which the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host name or IP address, without the brackets of IPv6.
    Tcp { host: String, port: u16 },
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Endpoint {
    /// An endpoint at a host, given by name or IP address, and a port.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::at(Place::Tcp { host: host.into(), port })
    }

    /// An endpoint at the path of a Unix domain socket.
    #[cfg(unix)]
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(Place::Unix(path.into()))
    }

    pub(crate) fn at(place: Place) -> Self {
        Self {
            place,
            bind: None,
            no_delay: true,
            #[cfg(feature = "socks5")]
            proxy: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "websocket")]
            websocket: None,
            #[cfg(feature = "quic")]
            has_quic: false,
        }
    }

    /// Sets the local address to connect from; by default the system chooses it.
    ///
    /// Addresses of the server that belong to the other address family are skipped.
    #[must_use]
    pub fn bind(mut self, address: IpAddr) -> Self {
        self.bind = Some(address);
        self
    }

    /// Sets TCP_NODELAY, which sends small packets without waiting for more data. The default is `true`.
    ///
    /// The delay would gain little, because the client already writes as many bytes as possible at a time.
    #[must_use]
    pub fn no_delay(mut self, no_delay: bool) -> Self {
        self.no_delay = no_delay;
        self
    }

    /// Connects through a SOCKS5 proxy. The proxy looks up the name of the host.
    #[cfg(feature = "socks5")]
    #[must_use]
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Adds TLS with this configuration.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Adds WebSocket with this configuration. With TLS, WebSocket is inside of TLS.
    #[cfg(feature = "websocket")]
    #[must_use]
    pub fn websocket(mut self, websocket: WebSocket) -> Self {
        self.websocket = Some(websocket);
        self
    }

    /// Uses QUIC (RFC 9000) with this configuration of TLS. The port is then a UDP port.
    ///
    /// MQTT uses the first stream, under the protocol name `mqtt` (ALPN), whatever ALPN `tls` has. WebSocket and
    /// proxies are not available.
    #[cfg(feature = "quic")]
    #[must_use]
    pub fn quic(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self.has_quic = true;
        self
    }

    /// Connects through all layers.
    ///
    /// # Errors
    /// The layer that failed and the cause, in an inner [`TransportError`](crate::TransportError).
    pub async fn connect(&self) -> io::Result<Stream> {
        dial::connect(self, crate::options::PACKET_BYTES_MAX).await
    }

    /// Name of the server for certificates and HTTP.
    #[cfg(any(feature = "tls", feature = "websocket"))]
    pub(crate) fn host(&self) -> &str {
        match &self.place {
            Place::Tcp { host, .. } => host,
            #[cfg(unix)]
            Place::Unix(_) => "localhost",
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        #[cfg(feature = "tls")]
        let has_tls = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        #[cfg(feature = "websocket")]
        let has_websocket = self.websocket.is_some();
        #[cfg(not(feature = "websocket"))]
        let has_websocket = false;
        #[cfg(feature = "quic")]
        if self.has_quic {
            return "quic";
        }
        match (&self.place, has_websocket, has_tls) {
            #[cfg(unix)]
            (Place::Unix(_), ..) => "unix",
            (_, true, true) => "wss",
            (_, true, false) => "ws",
            (_, false, true) => "mqtts",
            (_, false, false) => "mqtt",
        }
    }
}

/// Writes the endpoint as a URL, without the path of WebSocket.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            #[cfg(unix)]
            Place::Unix(path) => write!(f, "{}", wire::Shown(path.display())),
        }
    }
}

/// A connection through all layers of an [`Endpoint`]: an ordered stream of bytes in both directions.
pub struct Stream(Box<dyn Duplex>);

/// A stream that a layer offers to the next one.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

impl Stream {
    pub(crate) fn new(stream: impl Duplex + 'static) -> Self {
        Self(Box::new(stream))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(task, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(task)
    }
}
