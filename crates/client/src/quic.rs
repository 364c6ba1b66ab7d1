//! QUIC, implemented with quinn. MQTT is in the first bidirectional stream.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, IdleTimeout, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::dial::{Layer, TransportError, first_of};
use crate::endpoint::{Endpoint, Place, Stream};
use crate::error::Fault;

/// Name of MQTT inside of QUIC (RFC 7301).
const ALPN: &[u8] = b"mqtt";
/// An address that has not answered after this time is given up. Unlike TCP, nothing says that nobody listens.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// A server of which nothing comes is given up after this time, and asked for a sign of life well before.
const IDLE: Duration = Duration::from_secs(15 * 60);
const PING: Duration = Duration::from_secs(5 * 60);
/// Time for the server to acknowledge the last bytes.
const GOODBYE_MAX: Duration = Duration::from_secs(3);

/// The stream of MQTT in a connection, which ends with it.
struct Quic {
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
    /// The last bytes are on their way.
    goodbye: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Connects to the endpoint.
pub(crate) async fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
    let wrong = |cause: &str| TransportError::new(Layer::Quic, endpoint, Fault::Application, cause);
    let Place::Tcp { host, port } = &endpoint.place else {
        return Err(wrong("it is no address of a network").into());
    };
    #[cfg(feature = "socks5")]
    if endpoint.proxy.is_some() {
        return Err(wrong("a proxy carries TCP only").into());
    }
    #[cfg(feature = "websocket")]
    if endpoint.websocket.is_some() {
        return Err(wrong("there is no WebSocket inside of QUIC").into());
    }
    let tls = endpoint.tls.as_ref().ok_or_else(|| wrong("it is always encrypted"))?;
    let (mut tls, name) = tls.parts(host);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.enable_early_data = false;
    let crypto = QuicClientConfig::try_from(tls).map_err(|_| wrong("it needs TLS 1.3"))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport()));
    let unknown = |error: io::Error| TransportError::new(Layer::Name, host, Fault::Network, error);
    let addresses = lookup_host((host.as_str(), *port)).await.map_err(unknown)?;
    let bind = endpoint.bind;
    let dial = |address| dial(address, bind, config.clone(), name.clone());
    let found = first_of(addresses, Layer::Quic, dial).await?;
    Ok(Stream::new(found.ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))?))
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok())
        .keep_alive_interval(Some(PING));
    transport
}

async fn dial(to: SocketAddr, bind: Option<IpAddr>, config: ClientConfig, name: String) -> io::Result<Quic> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = bind.unwrap_or(any);
    if from.is_ipv4() != to.is_ipv4() {
        let text = format!("it is of another family than {from}, from where to connect");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    }
    let endpoint = quinn::Endpoint::client(SocketAddr::new(from, 0))?;
    let connecting = endpoint.connect_with(config, to, &name).map_err(io::Error::other)?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    let connection = timeout(HANDSHAKE_MAX, connecting).await.map_err(late)??;
    let (send, receive) = connection.open_bi().await?;
    Ok(Quic { connection, send, receive, goodbye: None })
}

impl AsyncRead for Quic {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(AsyncRead::poll_read(Pin::new(&mut self.receive), task, into));
        Poll::Ready(match (read, self.connection.close_reason()) {
            // The server ends a connection that is over.
            (Err(_), Some(quinn::ConnectionError::ApplicationClosed(close)))
                if close.error_code == VarInt::from_u32(0) =>
            {
                Ok(())
            }
            (read, _) => read,
        })
    }
}

impl AsyncWrite for Quic {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.send), task, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Task<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Waits until the server has acknowledged the last bytes. If the program ended earlier, these bytes would be lost.
    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        if self.goodbye.is_none() {
            // It may be finished, or the server may have closed the connection.
            drop(self.send.finish());
            let acknowledged = self.send.stopped();
            self.goodbye = Some(Box::pin(async move { drop(timeout(GOODBYE_MAX, acknowledged).await) }));
        }
        if let Some(goodbye) = &mut self.goodbye {
            ready!(goodbye.as_mut().poll(task));
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.connection.close(VarInt::from_u32(0), b"");
    }
}

impl fmt::Debug for Quic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quic").field("to", &self.connection.remote_address()).finish_non_exhaustive()
    }
}
