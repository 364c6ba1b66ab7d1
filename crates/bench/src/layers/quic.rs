//! One connection of QUIC over a UDP socket of its own, whose first bidirectional stream carries MQTT.
//!
//! Unlike TCP, nobody acknowledges for a client that reads nothing, and nobody sends again: [`Quic::serve`] does both.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use mio::net::UdpSocket;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, IdleTimeout, ReadError, StreamEvent, StreamId, TransportConfig, VarInt,
    WriteError,
};

use crate::link::Received;

/// Name of MQTT inside of QUIC (RFC 7301).
const ALPN: &[u8] = b"mqtt";

/// Maximum length of a datagram, bytes.
const DATAGRAM_LEN_MAX: usize = 65_536;

/// Datagrams that are read before the stream is: acknowledgements leave in between.
const DATAGRAMS_PER_READ: usize = 64;

/// Bytes that wait for acknowledgements or for the reader, in each direction.
const WINDOW_BYTES: u32 = 256 * 1024;

/// A server of which nothing comes is given up after this time.
const IDLE: VarInt = VarInt::from_u32(900_000);

/// The error code of a connection that ends without an error.
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// The settings of all connections to one server.
#[derive(Clone)]
pub(crate) struct QuicStack {
    endpoint: Arc<EndpointConfig>,
    client: ClientConfig,
    /// The name that the server's certificate must have.
    name: String,
}

/// A connection.
pub(crate) struct Quic {
    socket: UdpSocket,
    server: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    /// Opened behind the handshake.
    stream: Option<StreamId>,
    /// Bytes that the stream has not accepted.
    unsent: VecDeque<u8>,
    /// A datagram that the socket has not accepted.
    datagram: Vec<u8>,
    /// Nothing follows `unsent`.
    is_finishing: bool,
    lost: Option<ConnectionError>,
    received: BytesMut,
}

impl QuicStack {
    /// Connections with this configuration of TLS; `None` if it is not for TLS 1.3.
    pub(crate) fn new(tls: &rustls::ClientConfig, name: String) -> Option<Self> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).ok()?));
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
            .receive_window(VarInt::from_u32(WINDOW_BYTES))
            .send_window(WINDOW_BYTES.into())
            .max_idle_timeout(Some(IdleTimeout::from(IDLE)));
        client.transport_config(Arc::new(transport));
        Some(Self { endpoint: Arc::new(EndpointConfig::default()), client, name })
    }

    /// Begins another connection, from this address.
    ///
    /// # Errors
    /// If there is no socket left, or quinn refuses its configuration.
    pub(crate) fn connect(&self, server: SocketAddr, from: IpAddr) -> io::Result<Quic> {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0))?;
        socket.connect(server)?;
        let mut endpoint = Endpoint::new(Arc::clone(&self.endpoint), None, true, None);
        let connected = endpoint.connect(Instant::now(), self.client.clone(), server, &self.name);
        let (handle, connection) = connected.map_err(io::Error::other)?;
        Ok(Quic {
            socket,
            server,
            endpoint,
            handle,
            connection,
            stream: None,
            unsent: VecDeque::new(),
            datagram: Vec::new(),
            is_finishing: false,
            lost: None,
            received: BytesMut::new(),
        })
    }
}

impl Quic {
    /// The socket, for the poller.
    pub(crate) fn socket(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    /// Reads bytes of MQTT, in the way of [`Link::read`](crate::link::Link::read).
    ///
    /// # Errors
    /// The reason why the connection was lost.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            let len = self.read_stream(buffer)?;
            if let Some(len @ 1..) = len {
                // Only the socket says that nothing more is there.
                return Ok(Received::Bytes { len, drained: false });
            }
            if len.is_none() {
                return Ok(Received::Closed);
            }
            if self.receive()? == 0 {
                return if self.lost.is_some() { self.end() } else { Ok(Received::Nothing) };
            }
        }
    }

    /// Reads bytes of the stream; `None` at its end.
    fn read_stream(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(id) = self.stream else { return Ok(Some(0)) };
        let mut stream = self.connection.recv_stream(id);
        // The end was read before.
        let Ok(mut chunks) = stream.read(true) else { return Ok(None) };
        let mut len = 0;
        let outcome = loop {
            match chunks.next(buffer.len() - len) {
                Ok(Some(chunk)) => {
                    buffer[len..len + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    len += chunk.bytes.len();
                    if len == buffer.len() {
                        break Ok(Some(len));
                    }
                }
                Ok(None) if len == 0 => break Ok(None),
                Ok(None) | Err(ReadError::Blocked) => break Ok(Some(len)),
                Err(ReadError::Reset(_)) => break Err(ErrorKind::ConnectionReset.into()),
            }
        };
        if chunks.finalize().should_transmit() {
            self.transmit()?;
        }
        outcome
    }

    fn end(&self) -> io::Result<Received> {
        match &self.lost {
            Some(ConnectionError::ApplicationClosed(close)) if close.error_code == NO_ERROR => {
                Ok(Received::Closed)
            }
            Some(ConnectionError::LocallyClosed) | None => Ok(Received::Closed),
            Some(error) => Err(io::Error::new(ErrorKind::ConnectionAborted, format!("QUIC: {error}"))),
        }
    }

    /// Takes in what has arrived, acknowledges it, and sends what is due, without a look at the stream.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub(crate) fn serve(&mut self, now: Instant) -> io::Result<()> {
        if self.timeout().is_some_and(|due| due <= now) {
            self.connection.handle_timeout(now);
        }
        while self.receive()? > 0 {}
        Ok(())
    }

    /// When a timer is due.
    pub(crate) fn timeout(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Takes in some datagrams, and sends what is due. Returns how many came.
    fn receive(&mut self) -> io::Result<usize> {
        let now = Instant::now();
        let mut count = 0;
        let mut answer = Vec::new();
        while count < DATAGRAMS_PER_READ {
            self.received.resize(DATAGRAM_LEN_MAX, 0);
            let len = match self.socket.recv(&mut self.received) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            count += 1;
            let datagram = BytesMut::from(&self.received[..len]);
            let event = self.endpoint.handle(now, self.server, None, None, datagram, &mut answer);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        self.advance()?;
        Ok(count)
    }

    /// Handles events, and sends what is due.
    fn advance(&mut self) -> io::Result<()> {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.stream = self.connection.streams().open(Dir::Bi),
                Event::Stream(StreamEvent::Available { .. }) if self.stream.is_none() => {
                    self.stream = self.connection.streams().open(Dir::Bi);
                }
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
        self.write_unsent()?;
        self.transmit()
    }

    fn write_unsent(&mut self) -> io::Result<()> {
        let Some(id) = self.stream.filter(|_| !self.connection.is_closed()) else { return Ok(()) };
        let mut stream = self.connection.send_stream(id);
        while !self.unsent.is_empty() {
            match stream.write(self.unsent.as_slices().0) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(WriteError::Blocked) => return Ok(()),
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    return Err(ErrorKind::BrokenPipe.into());
                }
            }
        }
        if std::mem::take(&mut self.is_finishing) {
            // A stream that was stopped is finished already.
            let _ = stream.finish();
        }
        Ok(())
    }

    /// Sends datagrams as far as the socket takes them.
    fn transmit(&mut self) -> io::Result<()> {
        loop {
            if self.datagram.is_empty() {
                let now = Instant::now();
                if self.connection.poll_transmit(now, 1, &mut self.datagram).is_none() {
                    return Ok(());
                }
            }
            match self.socket.send(&self.datagram) {
                Ok(_) => self.datagram.clear(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends bytes of MQTT after all that was sent before.
    ///
    /// # Errors
    /// What the system says of the socket, and `BrokenPipe` if the server reads nothing more.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unsent.extend(bytes);
        self.flush()
    }

    /// Sends what is kept, as far as the server and the network take it.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write_unsent()?;
        self.transmit()
    }

    /// Whether bytes wait for the server or the network.
    pub(crate) fn is_behind(&self) -> bool {
        self.stream.is_some() && !self.unsent.is_empty()
    }

    /// Lets the server know that nothing follows.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.is_finishing = true;
        self.flush()
    }

    /// Ends the connection.
    pub(crate) fn close(&mut self) {
        self.connection.close(Instant::now(), NO_ERROR, Bytes::new());
        // A server that is not told waits until it has heard nothing for long.
        let _ = self.transmit();
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        if !self.connection.is_closed() {
            self.close();
        }
    }
}

impl fmt::Debug for QuicStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicStack").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Quic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quic").field("server", &self.server).finish_non_exhaustive()
    }
}
