//! Makes the connection to an [`Endpoint`], layer by layer.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpSocket, TcpStream, ToSocketAddrs, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::Shown;

use crate::endpoint::{Endpoint, Place, Stream};
use crate::error::Fault;

/// Connection Attempt Delay that RFC 8305 recommends.
const HEAD_START: Duration = Duration::from_millis(250);

/// The layer of a connection that could not be made, and the cause.
///
/// This is the inner error of the [`io::Error`] in [`Ended::Io`](crate::Ended::Io).
#[derive(Debug)]
pub struct TransportError {
    layer: Layer,
    /// Name or address of the peer, for the error text.
    to: String,
    fault: Fault,
    cause: Box<dyn Error + Send + Sync>,
}

/// A layer of a connection, from the lowest to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layer {
    /// Lookup of the host's address.
    Name,
    /// TCP, or a Unix domain socket.
    Socket,
    /// The connection through the SOCKS5 proxy.
    Proxy,
    /// QUIC, including its TLS and the check of certificates.
    Quic,
    /// TLS, including the check of certificates.
    Tls,
    /// WebSocket, including its HTTP handshake.
    WebSocket,
}

impl TransportError {
    pub(crate) fn new(
        layer: Layer,
        to: impl fmt::Display,
        fault: Fault,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { layer, to: to.to_string(), fault, cause: cause.into() }
    }

    /// The layer that failed.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The party whose fault the failure is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The `TransportError` inside an [`io::Error`], if there is one.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, cause) = (Shown(&self.to), Shown(&self.cause));
        match self.layer {
            Layer::Name => write!(f, "there is no address of {to}: {cause}"),
            Layer::Socket => write!(f, "{to} cannot be reached: {cause}"),
            Layer::Proxy => write!(f, "the proxy {to} makes no connection: {cause}"),
            Layer::Tls => {
                write!(f, "no TLS with {to}: {cause}")?;
                let advice = self.cause.downcast_ref().and_then(advice);
                advice.map_or(Ok(()), |advice| write!(f, ": {advice}"))
            }
            Layer::Quic => write!(f, "no QUIC with {to}: {cause}"),
            Layer::WebSocket => write!(f, "no WebSocket with {to}: {cause}"),
        }
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// The party whose fault a failed transport is.
///
/// A TLS alert may arrive after all layers are made, and then comes without a [`TransportError`].
pub(crate) fn fault_of(error: &io::Error) -> Fault {
    if let Some(error) = TransportError::of(error) {
        return error.fault;
    }
    #[cfg(feature = "tls")]
    return crate::tls::fault_of(error);
    #[cfg(not(feature = "tls"))]
    Fault::Network
}

/// Hint for the user, for errors with a known remedy that their own text does not mention.
#[cfg(feature = "tls")]
pub(crate) use crate::tls::advice;

/// Hint for the user. Without TLS there is none.
#[cfg(not(feature = "tls"))]
pub(crate) fn advice(_: &io::Error) -> Option<&'static str> {
    None
}

/// Keeps the [`io::ErrorKind`] of the cause, if the cause is an [`io::Error`].
impl From<TransportError> for io::Error {
    fn from(error: TransportError) -> Self {
        let kind = error.cause.downcast_ref().map(Self::kind);
        Self::new(kind.unwrap_or(io::ErrorKind::InvalidData), error)
    }
}

/// Connects through all layers of the endpoint.
///
/// `packet_bytes_max` is the largest packet that the server may send, which limits the size of WebSocket frames.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    #[cfg_attr(not(feature = "websocket"), expect(unused_variables, reason = "others have no frames"))]
    packet_bytes_max: NonZeroU32,
) -> io::Result<Stream> {
    #[cfg(feature = "quic")]
    if endpoint.has_quic {
        return crate::quic::connect(endpoint).await;
    }
    let stream = match &endpoint.place {
        Place::Tcp { host, port } => tcp(endpoint, host, *port).await?,
        #[cfg(unix)]
        Place::Unix(path) => {
            let unreachable = |error| TransportError::new(Layer::Socket, endpoint, Fault::Network, error);
            let connected: io::Result<_> = UnixStream::connect(path).await;
            Stream::new(connected.map_err(unreachable)?)
        }
    };
    #[cfg(feature = "tls")]
    let stream = match &endpoint.tls {
        Some(tls) => Stream::new(tls.wrap(stream, endpoint.host()).await?),
        None => stream,
    };
    #[cfg(feature = "websocket")]
    let stream = match &endpoint.websocket {
        Some(websocket) => Stream::new(websocket.wrap(stream, endpoint, packet_bytes_max).await?),
        None => stream,
    };
    Ok(stream)
}

/// Makes the TCP connection to the server, or to a proxy that connects to the server.
async fn tcp(endpoint: &Endpoint, host: &str, port: u16) -> io::Result<Stream> {
    #[cfg(feature = "socks5")]
    if let Some(proxy) = &endpoint.proxy {
        let socket = socket(endpoint, proxy.host(), proxy.port()).await?;
        return Ok(Stream::new(proxy.wrap(socket, host, port).await?));
    }
    Ok(Stream::new(socket(endpoint, host, port).await?))
}

/// Connects to the first address of the host that answers.
///
/// Each address has a head start of 250 ms before the next one is tried in parallel (RFC 8305, section 5). An
/// address that does not answer can therefore not use up the time of the others.
async fn socket(endpoint: &Endpoint, host: &str, port: u16) -> io::Result<TcpStream> {
    let unknown = |error: io::Error| TransportError::new(Layer::Name, host, Fault::Network, error);
    let addresses = lookup_host((host, port)).await.map_err(unknown)?;
    let bind = endpoint.bind;
    let found = first_of(addresses, Layer::Socket, move |address| socket_to(address, bind)).await?;
    let socket = found.ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))?;
    socket.set_nodelay(endpoint.no_delay)?;
    Ok(socket)
}

/// Connects over TCP alone to the first address that answers, with TCP_NODELAY.
pub(crate) async fn tcp_to(to: &(impl ToSocketAddrs + fmt::Debug)) -> io::Result<TcpStream> {
    let unknown =
        |error: io::Error| TransportError::new(Layer::Name, format!("{to:?}"), Fault::Network, error);
    let addresses = lookup_host(to).await.map_err(unknown)?;
    let found = first_of(addresses, Layer::Socket, |address| socket_to(address, None)).await?;
    let socket = found.ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Connects to the first of these addresses that answers; `None` if there are none.
pub(crate) async fn first_of<T, F>(
    mut addresses: impl Iterator<Item = SocketAddr>,
    layer: Layer,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<Option<T>>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let (mut last, mut attempts) = (None, JoinSet::new());
    loop {
        let next = addresses.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            let attempt = connect(address);
            attempts.spawn(async move { (address, attempt.await) });
        }
        let attempt = attempts.join_next();
        let outcome = if is_last { Ok(attempt.await) } else { timeout(HEAD_START, attempt).await };
        match outcome {
            Ok(Some(Ok((_, Ok(socket))))) => return Ok(Some(socket)),
            Ok(Some(Ok((address, Err(error))))) => {
                let fault = if layer == Layer::Socket { Fault::Network } else { fault_of(&error) };
                last = Some(TransportError::new(layer, address, fault, error));
            }
            Ok(None) if is_last => return last.map_or(Ok(None), |last| Err(last.into())),
            _ => {}
        }
    }
}

async fn socket_to(address: SocketAddr, bind: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(bind) = bind else { return TcpStream::connect(address).await };
    if bind.is_ipv4() != address.is_ipv4() {
        let text = format!("it is of another family than {bind}, from where to connect");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    }
    let socket = if bind.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(bind, 0))?;
    socket.connect(address).await
}
