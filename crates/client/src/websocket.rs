//! MQTT over WebSocket (MQTT 5.0, section 6): control packets in binary frames, independent of frame boundaries.

use std::io;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};

use futures_core::Stream as _;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::handshake::client::{Request, generate_key};
use tokio_tungstenite::tungstenite::http::header::{HOST, HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::http::uri::PathAndQuery;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::dial::{Layer, TransportError};
use crate::endpoint::{Duplex, Endpoint, Place};
use crate::error::Fault;

/// Size of the largest possible control packet.
const PACKET_BYTES_MAX: usize = (256 << 20) + 5;

/// Bytes that a received frame may have beyond the largest packet.
///
/// Frames may begin and end anywhere, and may contain any number of smaller packets.
const FRAME_EXCESS_BYTES: usize = 1 << 20;

/// Maximum size of a sent frame. The bytes of a frame are copied, because they are masked.
const SENT_FRAME_BYTES_MAX: usize = 64 << 10;

/// Maximum number of bytes that wait for the socket. They are frames of this client, and answers to pings.
///
/// A server that sends pings and reads nothing could otherwise fill the client's memory.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Number of frames without data after which other tasks of the runtime have a turn.
const FRAMES_PER_TURN: usize = 256;

/// Options of WebSocket: the path, and further headers. The subprotocol is `mqtt` [MQTT-6.0.0-3].
///
/// ```no_run
/// # use pondhawk_client::{Endpoint, WebSocket};
/// let websocket = WebSocket::new("/mqtt")?.header("Authorization", "Bearer 7f3c")?;
/// let endpoint = Endpoint::tcp("localhost", 8080).websocket(websocket);
/// # Ok::<(), pondhawk_client::WebSocketError>(())
/// ```
#[derive(Debug, Clone)]
pub struct WebSocket {
    path: PathAndQuery,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The reason why HTTP cannot carry an option. The application is at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The text is not a valid path.
    Path(String),
    /// The name or the value of this header is not valid.
    Header(String),
    /// The handshake itself sets this header.
    Reserved(String),
}

impl WebSocket {
    /// Options for this path, which begins with `/` and may have a query.
    ///
    /// # Errors
    /// [`WebSocketError::Path`].
    pub fn new(path: impl AsRef<str>) -> Result<Self, WebSocketError> {
        let text = path.as_ref();
        let path = Some(text).filter(|text| text.starts_with('/')).and_then(|text| text.parse().ok());
        let path = path.ok_or_else(|| WebSocketError::Path(text.to_owned()))?;
        Ok(Self { path, headers: Vec::new() })
    }

    /// Adds a header. A name may be added several times. Debug output does not show the value.
    ///
    /// # Errors
    /// [`WebSocketError::Header`], [`WebSocketError::Reserved`].
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, WebSocketError> {
        let wrong = || WebSocketError::Header(name.to_owned());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        let is_own = matches!(header.as_str(), "host" | "connection" | "upgrade");
        if is_own || header.as_str().starts_with("sec-websocket-") {
            return Err(WebSocketError::Reserved(name.to_owned()));
        }
        value.set_sensitive(true);
        self.headers.push((header, value));
        Ok(self)
    }

    /// Performs the handshake on a connection to the server. Packets have at most `packet_bytes_max` bytes.
    pub(crate) async fn wrap<S: Duplex>(
        &self,
        stream: S,
        endpoint: &Endpoint,
        packet_bytes_max: NonZeroU32,
    ) -> io::Result<Frames<S>> {
        let packet_bytes_max = (packet_bytes_max.get() as usize).min(PACKET_BYTES_MAX);
        let frame_bytes_max = packet_bytes_max + FRAME_EXCESS_BYTES;
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(frame_bytes_max);
        config.max_frame_size = Some(frame_bytes_max);
        config.max_write_buffer_size = WAITING_BYTES_MAX;
        let failed = |error| {
            let (fault, cause) = explain(error);
            TransportError::new(Layer::WebSocket, endpoint, fault, cause)
        };
        let request = self.request(endpoint).map_err(|error| failed(error.into()))?;
        let connected = client_async_with_config(request, stream, Some(config)).await;
        let (frames, _) = connected.map_err(failed)?;
        Ok(Frames { frames, rest: Bytes::new(), to: endpoint.to_string(), is_closed: false })
    }

    fn request(&self, endpoint: &Endpoint) -> Result<Request, tungstenite::http::Error> {
        let host = host_header(endpoint);
        let mut request = Request::builder()
            // The scheme does not matter: TLS is a layer below, if it is used.
            .uri(format!("ws://{host}{}", self.path))
            .header(HOST, host)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key())
            .header("Sec-WebSocket-Protocol", "mqtt")
            .body(())?;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        Ok(request)
    }
}

/// Value of the Host header, without the port if it is the scheme's default (RFC 6455, section 4.1).
fn host_header(endpoint: &Endpoint) -> String {
    let host = endpoint.host();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match (&endpoint.place, endpoint.scheme()) {
        (Place::Tcp { port: 80, .. }, "ws") | (Place::Tcp { port: 443, .. }, "wss") => host,
        (Place::Tcp { port, .. }, _) => format!("{host}:{port}"),
        #[cfg(unix)]
        (Place::Unix(_), _) => host,
    }
}

/// Returns the party at fault for a failed handshake, and the cause with advice.
fn explain(error: tungstenite::Error) -> (Fault, Box<dyn std::error::Error + Send + Sync>) {
    use tungstenite::error::{Error, ProtocolError};
    match error {
        Error::Io(error) => (Fault::Network, error.into()),
        Error::Http(response) => (
            Fault::Server,
            format!("it has answered with HTTP {}: look at the path", response.status()).into(),
        ),
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_)) => {
            (Fault::Server, "it does not offer the subprotocol mqtt [MQTT-6.0.0-4]".into())
        }
        error => (Fault::Server, error.into()),
    }
}

/// The stream of bytes in the frames of a WebSocket.
#[derive(Debug)]
pub(crate) struct Frames<S> {
    frames: WebSocketStream<S>,
    /// Unread bytes of the last frame.
    rest: Bytes,
    /// URL of the server, for error texts.
    to: String,
    /// The server has sent a close frame, and nothing follows.
    is_closed: bool,
}

impl<S> Frames<S> {
    /// Outcome of a read at a close frame: the end of the stream, or an error if the server gives a reason.
    fn closed(&mut self, frame: Option<CloseFrame>) -> io::Result<()> {
        self.is_closed = true;
        let is_ordinary = |frame: &CloseFrame| frame.code == CloseCode::Normal && frame.reason.is_empty();
        let Some(CloseFrame { code, reason }) = frame.filter(|frame| !is_ordinary(frame)) else {
            return Ok(());
        };
        let mut cause = format!("the server has closed it with code {}", u16::from(code));
        if !reason.is_empty() {
            cause += &format!(" ({reason})");
        }
        let cause = io::Error::new(io::ErrorKind::ConnectionAborted, cause);
        Err(TransportError::new(Layer::WebSocket, &self.to, Fault::Server, cause).into())
    }
}

impl<S: Duplex> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut frames = 0;
        while self.rest.is_empty() {
            if self.is_closed {
                return Poll::Ready(Ok(()));
            }
            if frames == FRAMES_PER_TURN {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
            frames += 1;
            match ready!(Pin::new(&mut self.frames).poll_next(task)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Text(_))) => {
                    let text = "the server has sent a text frame [MQTT-6.0.0-1]";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Some(Ok(Message::Close(frame))) => return Poll::Ready(self.closed(frame)),
                // Tungstenite answers pings by itself.
                Some(Ok(_)) => {}
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => match broken(error) {
                    Some(error) => return Poll::Ready(Err(error)),
                    None => return Poll::Ready(Ok(())),
                },
            }
        }
        let count = self.rest.len().min(into.remaining());
        into.put_slice(&self.rest.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: Duplex> AsyncWrite for Frames<S> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = bytes.len().min(SENT_FRAME_BYTES_MAX);
        loop {
            if let Err(error) = ready!(Pin::new(&mut self.frames).poll_ready(task)) {
                return Poll::Ready(Err(broken_pipe(error)));
            }
            let frame = Message::Binary(Bytes::copy_from_slice(&bytes[..count]));
            match Pin::new(&mut self.frames).start_send(frame) {
                // Answers to pings fill the buffer.
                Err(tungstenite::Error::WriteBufferFull(_)) => {
                    if let Err(error) = ready!(Pin::new(&mut self.frames).poll_flush(task)) {
                        return Poll::Ready(Err(broken_pipe(error)));
                    }
                }
                sent => return Poll::Ready(sent.map(|()| count).map_err(broken_pipe)),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.frames).poll_flush(task).map_err(broken_pipe)
    }

    /// Sends a close frame, and ends the stream below.
    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        if let Err(error) = ready!(Pin::new(&mut self.frames).poll_close(task))
            && let Some(error) = broken(error)
        {
            return Poll::Ready(Err(error));
        }
        Pin::new(self.frames.get_mut()).poll_shutdown(task)
    }
}

/// Converts an error; `None` if the connection is only closed, in order or not.
fn broken(error: tungstenite::Error) -> Option<io::Error> {
    use tungstenite::error::{Error, ProtocolError};
    match error {
        Error::Io(error) => Some(error),
        Error::ConnectionClosed | Error::AlreadyClosed => None,
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing) => {
            None
        }
        error => Some(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

fn broken_pipe(error: tungstenite::Error) -> io::Error {
    broken(error).unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
}

impl std::fmt::Display for WebSocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{path:?} is no path of a URL, which begins with a slash"),
            Self::Header(name) => {
                write!(f, "the header {name:?} has a name or a value that HTTP cannot have")
            }
            Self::Reserved(name) => write!(f, "the header {name:?} belongs to the handshake itself"),
        }
    }
}

impl std::error::Error for WebSocketError {}
