//! A connection with the layers that its first bytes ask for.
//!
//! ```text
//!  Fresh ── first byte is CONNECT's ─────────────► Plain     the socket itself, nothing else
//!    │
//!    ├───── "PROXY ", or its signature ──► Begun ─┐
//!    ├───── 0x16 (TLS handshake) ─────────────────┼► Secure    MQTT or WebSocket over TLS
//!    └───── an HTTP method ───────────────────────┴► Clear     WebSocket, or MQTT behind a PROXY header
//! ```
//!
//! A connection of QUIC comes as one, and has no socket of its own.

use core::net::SocketAddr;
use std::io::{self, IoSlice};
use std::mem;
use std::sync::Arc;

use base::CertificateName;
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use stream::{Peer, Received, Stream};

use crate::prefixed::Prefixed;
use crate::quic::QuicStream;
use crate::tls::{Current, Tls};
use crate::web::{Http, Web};
use crate::websocket::Rules;
use crate::{Rejected, proxy};

/// The content type of a TLS handshake record (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// The protocol of a listener, above TLS if there is TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT or WebSocket, as the first byte says.
    #[default]
    Auto,
    /// MQTT alone: a WebSocket client is refused.
    Mqtt,
    /// MQTT over WebSocket alone: a client that does not begin with an HTTP request is refused.
    WebSocket,
}

/// The layers that a listener allows or asks for.
#[derive(Debug, Default)]
pub struct Stack {
    /// The protocol above TLS.
    pub protocol: Protocol,
    /// Every connection begins with a PROXY header.
    pub proxy: bool,
    /// Certificates and rules of TLS. `None` refuses TLS.
    pub tls: Option<Arc<Current>>,
    /// With TLS, connections without TLS are accepted too.
    pub tls_optional: bool,
    /// The rules for upgrade requests.
    pub websocket: Arc<Rules>,
}

/// A connection over a socket, or over any other stream.
#[derive(Debug)]
pub struct Layered<S>(State<S>);

/// The lowest stream of a connection.
#[derive(Debug)]
pub enum Lowest<'a, S> {
    /// A socket, for the poller.
    Socket(&'a mut S),
    /// A stream of QUIC, whose connection is announced by its shard.
    Quic(&'a mut QuicStream),
}

#[derive(Debug)]
enum State<S> {
    /// Nothing has been read.
    Fresh(S, Arc<Stack>),
    /// The first bytes do not yet say what the connection is.
    Begun(Box<Begun<S>>),
    Plain(S),
    Quic(QuicStream),
    Clear(Box<Named<Web<Prefixed<S>>>>),
    Secure(Box<Named<Web<Tls<Prefixed<S>>>>>),
    /// In the middle of a change; never seen from outside.
    Changing,
}

#[derive(Debug)]
struct Begun<S> {
    below: S,
    stack: Arc<Stack>,
    bytes: Vec<u8>,
}

/// A stream whose peer is known by what a PROXY header says.
#[derive(Debug)]
struct Named<S> {
    stream: S,
    /// The address of the client, until it is asked for.
    source: Option<SocketAddr>,
}

/// The layers that the first bytes ask for.
enum Choice {
    NeedsMore,
    Plain,
    Clear,
    Secure(Arc<ServerConfig>),
}

impl Stack {
    /// Decides by the first bytes behind the PROXY header.
    fn choose(&self, first: &[u8]) -> Result<Choice, Rejected> {
        if proxy::is_begun(first) {
            return Err(Rejected::Proxy("a header that nothing asked for"));
        }
        match (first, &self.tls) {
            ([], _) => Ok(Choice::NeedsMore),
            ([TLS_HANDSHAKE, ..], Some(current)) => {
                Ok(current.config_for(first).map_or(Choice::NeedsMore, Choice::Secure))
            }
            ([TLS_HANDSHAKE, ..], None) => {
                Err(Rejected::Protocol("a TLS handshake, and this listener has no certificate"))
            }
            (_, Some(_)) if !self.tls_optional => {
                Err(Rejected::Protocol("no TLS handshake, and this listener asks for TLS"))
            }
            // It may be a PROXY header or an HTTP request.
            _ if proxy::may_begin(first) && first.len() < proxy::SIGNATURE.len() => Ok(Choice::NeedsMore),
            _ => match Http::of(first) {
                Http::Perhaps => Ok(Choice::NeedsMore),
                Http::Yes => Ok(Choice::Clear),
                Http::No if self.protocol == Protocol::WebSocket => Ok(Choice::Clear),
                Http::No => Ok(Choice::Plain),
            },
        }
    }
}

impl<S: Stream> Layered<S> {
    /// A connection of which nothing has been read.
    pub fn new(socket: S, stack: Arc<Stack>) -> Self {
        Self(State::Fresh(socket, stack))
    }

    /// A connection without layers.
    pub fn plain(socket: S) -> Self {
        Self(State::Plain(socket))
    }

    /// A stream in a connection of QUIC.
    pub fn quic(stream: QuicStream) -> Self {
        Self(State::Quic(stream))
    }

    /// The lowest stream, for the poller.
    pub fn lowest(&mut self) -> Lowest<'_, S> {
        match &mut self.0 {
            State::Fresh(socket, _) | State::Plain(socket) => Lowest::Socket(socket),
            State::Quic(stream) => Lowest::Quic(stream),
            State::Begun(begun) => Lowest::Socket(&mut begun.below),
            State::Clear(named) => Lowest::Socket(named.stream.below().below()),
            State::Secure(named) => Lowest::Socket(named.stream.below().below().below()),
            State::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    fn stream(&self) -> &dyn Stream {
        match &self.0 {
            State::Fresh(socket, _) | State::Plain(socket) => socket,
            State::Quic(stream) => stream,
            State::Begun(begun) => &begun.below,
            State::Clear(named) => &named.stream,
            State::Secure(named) => &named.stream,
            State::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    fn stream_mut(&mut self) -> &mut dyn Stream {
        match &mut self.0 {
            State::Fresh(socket, _) | State::Plain(socket) => socket,
            State::Quic(stream) => stream,
            State::Begun(begun) => &mut begun.below,
            State::Clear(named) => &mut named.stream,
            State::Secure(named) => &mut named.stream,
            State::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    /// Reads the first bytes.
    fn begin(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let (below, stack, mut bytes) = match mem::replace(&mut self.0, State::Changing) {
            State::Fresh(socket, stack) => (socket, stack, Vec::new()),
            State::Begun(begun) => (begun.below, begun.stack, begun.bytes),
            _ => unreachable!("only the beginning is read here"),
        };
        let mut begun = Begun { below, stack, bytes: Vec::new() };
        let received = match begun.below.read(buffer) {
            Ok(received) if received.bytes > 0 => received,
            end => {
                begun.bytes = bytes;
                self.0 = begun.into_state();
                return end;
            }
        };
        if bytes.is_empty()
            && !begun.stack.proxy
            && matches!(begun.stack.choose(&buffer[..received.bytes]), Ok(Choice::Plain))
        {
            self.0 = State::Plain(begun.below);
            return Ok(received);
        }
        bytes.extend_from_slice(&buffer[..received.bytes]);
        begun.bytes = bytes;
        self.continue_with(begun, buffer)
    }

    fn continue_with(&mut self, mut begun: Begun<S>, buffer: &mut [u8]) -> io::Result<Received> {
        match begun.choose() {
            Ok((Choice::NeedsMore, _)) => {
                self.0 = begun.into_state();
                // Only the socket says that it would block: its end may have been announced together with these bytes.
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok((Choice::Plain | Choice::Clear, source)) => {
                let stack = begun.stack;
                let below = Prefixed::new(begun.bytes, begun.below);
                self.0 =
                    State::Clear(Box::new(Named { stream: Web::Fresh(below, stack, Vec::new()), source }));
            }
            Ok((Choice::Secure(config), source)) => {
                let session = match UnbufferedServerConnection::new(config) {
                    Ok(session) => session,
                    Err(error) => return self.reject(begun.below, Rejected::Tls(error)),
                };
                let tls = Tls::new(Prefixed::new(begun.bytes, begun.below), session);
                self.0 = State::Secure(Box::new(Named {
                    stream: Web::Fresh(tls, begun.stack, Vec::new()),
                    source,
                }));
            }
            Err(rejected) => return self.reject(begun.below, rejected),
        }
        self.read(buffer)
    }

    /// Ends the layers. The socket is closed without an answer.
    fn reject(&mut self, below: S, rejected: Rejected) -> io::Result<Received> {
        self.0 = State::Plain(below);
        Err(rejected.into())
    }
}

impl<S> Begun<S> {
    fn into_state(self) -> State<S> {
        if self.bytes.is_empty() {
            State::Fresh(self.below, self.stack)
        } else {
            State::Begun(Box::new(self))
        }
    }

    /// Decides by the bytes so far, and removes a PROXY header from their front.
    fn choose(&mut self) -> Result<(Choice, Option<SocketAddr>), Rejected> {
        if !self.stack.proxy {
            return Ok((self.stack.choose(&self.bytes)?, None));
        }
        let Some(header) = proxy::decode(&self.bytes).map_err(Rejected::Proxy)? else {
            return Ok((Choice::NeedsMore, None));
        };
        let choice = self.stack.choose(&self.bytes[header.length..])?;
        if !matches!(choice, Choice::NeedsMore) {
            self.bytes.drain(..header.length);
        }
        Ok((choice, header.source))
    }
}

impl<S: Stream> Stream for Layered<S> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match &mut self.0 {
            State::Plain(socket) => socket.read(buffer),
            State::Quic(stream) => stream.read(buffer),
            State::Clear(named) => named.stream.read(buffer),
            State::Secure(named) => named.stream.read(buffer),
            State::Fresh(..) | State::Begun(_) => self.begin(buffer),
            State::Changing => unreachable!("a change ends before the call returns"),
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.stream_mut().has_arrived()
    }

    #[inline]
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.0 {
            State::Plain(socket) => socket.write(pieces),
            _ => self.stream_mut().write(pieces),
        }
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            State::Plain(_) => Ok(()),
            _ => self.stream_mut().flush(),
        }
    }

    #[inline]
    fn wants_write(&self) -> bool {
        match &self.0 {
            State::Plain(_) => false,
            _ => self.stream().wants_write(),
        }
    }

    #[inline]
    fn is_costly(&mut self) -> bool {
        match &mut self.0 {
            State::Secure(named) => named.stream.below().is_handshaking(),
            State::Quic(stream) => stream.is_costly(),
            _ => false,
        }
    }

    #[inline]
    fn owes_goodbye(&self) -> bool {
        match &self.0 {
            State::Clear(_) | State::Secure(_) => true,
            State::Quic(stream) => stream.owes_goodbye(),
            _ => false,
        }
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        match &self.0 {
            State::Plain(_) => 0,
            // Its shard counts it.
            State::Quic(_) => 0,
            State::Fresh(..) | State::Changing => 0,
            State::Begun(begun) => begun.bytes.capacity() + size_of::<Begun<S>>(),
            State::Clear(named) => named.stream.held_bytes() + size_of_val(&**named),
            State::Secure(named) => named.stream.held_bytes() + size_of_val(&**named),
        }
    }

    fn shut_down_write(&mut self) {
        self.stream_mut().shut_down_write();
    }

    #[inline]
    fn take_peer(&mut self) -> Option<Peer> {
        match &mut self.0 {
            State::Clear(named) => named.source.take().map(Peer::from),
            State::Secure(named) => named.source.take().map(Peer::from),
            _ => None,
        }
    }

    fn certificate_name(&mut self, name: CertificateName) -> Option<String> {
        match &mut self.0 {
            State::Secure(named) => named.stream.below().certificate_name(name),
            State::Quic(stream) => stream.certificate_name(name),
            _ => None,
        }
    }

    fn channel_binding(&mut self) -> Option<[u8; 32]> {
        match &mut self.0 {
            State::Secure(named) => named.stream.below().channel_binding(),
            State::Quic(stream) => stream.channel_binding(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::Pipe;
    use crate::websocket::frames::tests::frame;

    const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 1883\r\n";
    const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Protocol: mqtt\r\n\r\n";

    /// The bytes that a connection gives its reader, who reads at most this many at a time, and the text of the error that
    /// ended it.
    fn read(
        stack: Stack,
        pieces: &[&[u8]],
        buffer_bytes: usize,
    ) -> (Vec<u8>, Option<String>, Layered<Pipe>, Pipe) {
        let pipe = Pipe::new(1 << 20);
        let mut connection = Layered::new(pipe.clone(), Arc::new(stack));
        pieces.iter().for_each(|piece| pipe.put(piece));
        let (mut all, mut buffer) = (Vec::new(), vec![0; buffer_bytes]);
        loop {
            match connection.read(&mut buffer) {
                Ok(received) => all.extend_from_slice(&buffer[..received.bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return (all, None, connection, pipe);
                }
                Err(error) => return (all, Some(error.to_string()), connection, pipe),
            }
        }
    }

    #[test]
    fn a_client_of_mqtt_has_no_layer() {
        let (bytes, error, mut connection, _) = read(Stack::default(), &[CONNECT], 100);
        assert_eq!((&bytes[..], error), (CONNECT, None));
        assert!(matches!(connection.0, State::Plain(_)) && connection.held_bytes() == 0);
        assert_eq!(connection.take_peer(), None);
        assert!(size_of::<Layered<i32>>() <= 16);
    }

    /// PUBREC begins with the same byte as POST, and PUBACK with one before A.
    #[test]
    fn packets_of_mqtt_are_no_requests() {
        for packet in [&b"\x50\x02\x00\x01"[..], b"\x40\x02\x00\x01", b"\x50\x52\x4f\x00"] {
            for pieces in [vec![packet], packet.chunks(1).collect()] {
                let (bytes, error, _, _) = read(Stack::default(), &pieces, 100);
                assert_eq!((&bytes[..], error), (packet, None));
            }
        }
    }

    #[test]
    fn a_proxy_header_names_the_peer_wherever_it_is_cut() {
        let stream = [HEADER, CONNECT].concat();
        for cut in 1..stream.len() {
            let stack = Stack { proxy: true, ..Stack::default() };
            let (first, second) = stream.split_at(cut);
            let (bytes, error, mut connection, _) = read(stack, &[first, second], 7);
            assert_eq!((&bytes[..], error), (CONNECT, None), "{cut}");
            let peer = connection.take_peer().map(|peer| peer.to_string());
            assert_eq!(peer.as_deref(), Some("192.0.2.1:12345"), "{cut}");
            assert_eq!(connection.take_peer(), None);
        }
    }

    #[test]
    fn websocket_is_found_wherever_its_request_is_cut() {
        let frames = [frame(0x02, &CONNECT[..3]), frame(0x80, &CONNECT[3..])].concat();
        let stream = [REQUEST, &frames].concat();
        for cut in 1..stream.len() {
            let (first, second) = stream.split_at(cut);
            let (bytes, error, mut connection, pipe) = read(Stack::default(), &[first, second], 1_000);
            assert_eq!((&bytes[..], error), (CONNECT, None), "{cut}");
            connection.flush().expect("there is room");
            assert!(pipe.take_written().starts_with(b"HTTP/1.1 101 "));
            assert!(!connection.wants_write());
            assert!(connection.held_bytes() <= 320, "{}", connection.held_bytes());
            connection.write(&[IoSlice::new(b"\x20\x02"), IoSlice::new(b"\0\0")]).expect("there is room");
            assert_eq!(pipe.take_written(), b"\x82\x04\x20\x02\0\0");
            connection.shut_down_write();
            assert_eq!(pipe.take_written(), b"\x88\x02\x03\xe8");
            assert!(pipe.is_shut());
        }
    }

    #[test]
    fn listeners_refuse_what_they_do_not_speak() {
        let mqtt = || Stack { protocol: Protocol::Mqtt, ..Stack::default() };
        let websocket = || Stack { protocol: Protocol::WebSocket, ..Stack::default() };
        let proxy = || Stack { proxy: true, ..Stack::default() };
        let rows: [(&str, Stack, &[u8], &str); 8] = [
            ("TLS", Stack::default(), b"\x16\x03\x01", "no certificate"),
            ("a PROXY header", Stack::default(), HEADER, "nothing asked for"),
            ("a PROXY header", Stack::default(), proxy::SIGNATURE, "nothing asked for"),
            ("an HTTP request", mqtt(), REQUEST, "MQTT only"),
            ("MQTT", websocket(), CONNECT, "WebSocket only"),
            ("MQTT", proxy(), CONNECT, "no header"),
            ("a second header", proxy(), &[HEADER, HEADER].concat(), "nothing asked for"),
            ("a page", Stack::default(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "plain HTTP request"),
        ];
        for (what, stack, bytes, expected) in rows {
            let (read, error, mut connection, pipe) = read(stack, &[bytes], 1_000);
            let error = error.unwrap_or_else(|| panic!("{what} was accepted"));
            assert!(read.is_empty() && error.contains(expected), "{what}: {error}");
            pipe.put(b"thrown away");
            assert_eq!(connection.read(&mut [0; 100]).expect("it is read all the same").bytes, 11);
        }
    }

    /// Each byte goes through all layers.
    #[test]
    fn everything_works_behind_everything_else_byte_by_byte() {
        let frames = frame(0x82, CONNECT);
        let stream = [HEADER, REQUEST, &frames].concat();
        let pieces: Vec<&[u8]> = stream.chunks(1).collect();
        let stack = Stack { proxy: true, ..Stack::default() };
        let (bytes, error, mut connection, _) = read(stack, &pieces, 1_000);
        assert_eq!((&bytes[..], error), (CONNECT, None));
        assert!(connection.take_peer().is_some());
    }

    /// A request may also end with LF alone, and more may have come behind it.
    #[test]
    fn a_request_ends_at_its_first_empty_line_however_lines_end() {
        let request = String::from_utf8(REQUEST.to_vec()).expect("text").replace("\r\n", "\n").into_bytes();
        for (tail, rest) in [(&b"\x82"[..], &b"\r\n\r\n"[..]), (b"", b"\r\n\r\n"), (b"x", &[b'a'; 9_000])] {
            let first = [&request[..], tail].concat();
            let (bytes, _, mut connection, pipe) = read(Stack::default(), &[&first, rest], 16_000);
            drop(connection.flush());
            assert!(pipe.take_written().starts_with(b"HTTP/1.1 101 "));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn the_close_frame_of_a_client_is_answered_and_ends_the_stream() {
        let close = [REQUEST, &frame(0x82, CONNECT), &frame(0x88, b"\x03\xe9")].concat();
        let pipe = Pipe::new(1 << 20);
        let mut connection = Layered::new(pipe.clone(), Arc::default());
        pipe.put(&close);
        let mut buffer = [0; 1_000];
        assert_eq!(connection.read(&mut buffer).expect("CONNECT"), Received { bytes: 15, is_drained: false });
        assert_eq!(connection.read(&mut buffer).expect("the end").bytes, 0);
        connection.flush().expect("there is room");
        let written = pipe.take_written();
        assert!(written.ends_with(b"\x88\x02\x03\xe9"), "{written:?}");
    }
}
