//! One connection of QUIC, and the stream of packets that its streams are for the shard.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::{CertificateName, ConnectionId};
use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, Dir, Event, StreamEvent, TransportError,
    TransportErrorCode, VarInt, WriteError,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use stream::{Readiness, Received, Stream};

use super::door::{Begun, Handshake};
use super::streams::{End, Streams};
use crate::{Rejected, tls};

/// Maximum bytes of a piece that the connection keeps until its peer acknowledges all of it.
pub(super) const PIECE_BYTES: usize = 8 * 1024;
/// Minimum bytes of a datagram with a STREAM frame that are no data: the headers of packet and frame, and the tag.
const OVERHEAD_BYTES: usize = 32;
/// Maximum time of a handshake. Its first answer can be lost twice.
const HANDSHAKE: Duration = Duration::from_secs(4);
/// Frames of STREAM and CRYPTO that a datagram may have without further notice, beside one of each stream beyond the first. A
/// client needs one or two.
const FREE_FRAMES: u64 = 4;
/// Bytes read that permit one frame more.
const BYTES_PER_FRAME: u64 = 32;
/// Maximum number of further frames. quinn-proto sorts frames that lie behind a gap again and again, some for free that repeat
/// earlier ones: 27 frames cost about as much as a datagram.
const EXCESS_FRAMES_MAX: u64 = 4_096;
/// The error code of a connection that ends without an error.
const NO_ERROR: VarInt = VarInt::from_u32(0);
/// The same, if the certificate of a client has expired: "bad authentication" in MQTT 5.0.
const BAD_CERTIFICATE: VarInt = VarInt::from_u32(0x8C);
/// Readable and writable, and at its end. A client may close a connection behind packets that are to be read: the stream has not
/// failed.
const OVER: Readiness = Readiness { readable: true, writable: true, ending: true, failed: false };

/// The streams of a connection, as one stream of control packets.
///
/// Dropping the stream closes the connection.
pub struct QuicStream(Arc<Mutex<Link>>);

/// Places of [`Links`](super::Links) with connections that have something to do.
pub(super) type Touched = Mutex<Vec<u32>>;

/// A connection with its streams.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Dropped when the handshake is complete. The moment is its deadline.
    handshake: Option<(Handshake, Instant)>,
    streams: Streams,
    /// The reason why the connection has ended.
    lost: Option<ConnectionError>,
    /// The reason why it was refused behind the handshake.
    refused: Option<rustls::Error>,
    /// The name of the stream at its shard.
    pub(super) watcher: Option<ConnectionId>,
    /// Nobody reads or writes the stream any more.
    pub(super) is_abandoned: bool,
    /// The connection was lost by a decision of this side, which nobody was told yet.
    is_given_up: bool,
    place: u32,
    is_touched: bool,
    touched: Arc<Touched>,
    /// Bytes that the peer may have sent and nobody has read. An estimate, at most `window`, see [`Link::receive`].
    unread_bytes: usize,
    /// Bytes that the peer may send on one stream before they are read.
    stream_window: u32,
    /// The same for all streams.
    window: u32,
    frames: Frames,
    /// Bytes that all connections of the shard keep until they are acknowledged.
    sending: Arc<AtomicUsize>,
}

/// Memory of a piece beyond its bytes. A client that acknowledges nothing can make us keep many short answers.
const PIECE_OVERHEAD_BYTES: usize = 128;

/// A piece that was written. It counts until it is acknowledged.
pub(super) struct Sending {
    bytes: Vec<u8>,
    all: Arc<AtomicUsize>,
}

impl Sending {
    pub(super) fn counted(bytes: &[u8], all: &Arc<AtomicUsize>) -> Bytes {
        all.fetch_add(bytes.len() + PIECE_OVERHEAD_BYTES, Ordering::Relaxed);
        Bytes::from_owner(Self { bytes: bytes.to_vec(), all: Arc::clone(all) })
    }
}

impl AsRef<[u8]> for Sending {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes.len() + PIECE_OVERHEAD_BYTES, Ordering::Relaxed);
    }
}

/// Frames beyond those that datagrams and bytes read permit.
struct Frames {
    /// The frames of a datagram that do not count.
    free: u64,
    excess: u64,
}

impl Frames {
    /// The frames of a connection with at most this many streams.
    fn new(streams_max: u32) -> Self {
        Self { free: FREE_FRAMES + u64::from(streams_max.saturating_sub(1)), excess: 0 }
    }

    /// Counts the frames of a datagram. Says whether the connection has too many.
    fn are_too_many(&mut self, of_datagram: u64) -> bool {
        self.excess = (self.excess + of_datagram).saturating_sub(self.free);
        self.excess > EXCESS_FRAMES_MAX
    }

    fn permit(&mut self, count: u64) {
        self.excess = self.excess.saturating_sub(count);
    }
}

pub(super) fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    // One thread uses a link. If it has panicked, nobody does any more.
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(super) fn new(
        (begun, now): (Begun, Instant),
        place: u32,
        touched: Arc<Touched>,
        sending: Arc<AtomicUsize>,
    ) -> Self {
        let Begun { connection, handshake, limits } = begun;
        Self {
            connection,
            handshake: Some((handshake, now + HANDSHAKE)),
            streams: Streams::default(),
            lost: None,
            refused: None,
            watcher: None,
            is_abandoned: false,
            is_given_up: false,
            place,
            is_touched: false,
            touched,
            unread_bytes: 0,
            stream_window: limits.buffer_bytes,
            window: limits.buffer_bytes,
            frames: Frames::new(limits.streams_max),
            sending,
        }
    }

    /// Has the connection looked at, at the end of the turn at the latest.
    pub(super) fn touch(&mut self) {
        if !std::mem::replace(&mut self.is_touched, true) {
            self.touched.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        }
    }

    /// The connection is looked at.
    pub(super) fn look(&mut self, now: Instant) {
        self.is_touched = false;
        if self.is_abandoned && !self.connection.is_closed() {
            self.connection.close(now, NO_ERROR, Bytes::new());
        }
    }

    /// When the next timer fires.
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let deadline = self.handshake.as_ref().map(|(_, deadline)| *deadline);
        self.connection.poll_timeout().into_iter().chain(deadline).min()
    }

    /// Lets timers fire that are due. Says whether the connection is given up because its handshake takes too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        self.connection.handle_timeout(now);
        self.touch();
        let is_late = self.handshake.as_ref().is_some_and(|(_, deadline)| *deadline <= now);
        if is_late {
            self.give_up(now, ConnectionError::TimedOut);
        }
        is_late
    }

    /// Closes the connection, for a reason that its reader is told.
    fn give_up(&mut self, now: Instant, reason: ConnectionError) {
        self.handshake = None;
        if self.lost.is_none() {
            self.connection.close(now, NO_ERROR, Bytes::new());
            self.lost = Some(reason);
            self.is_given_up = true;
        }
    }

    /// Takes in a datagram of this many bytes, or what the door says about connection ids.
    ///
    /// quinn-proto does not tell how much it holds behind a gap of the stream. A datagram with data therefore counts with
    /// all that may be data in it, until as much was read.
    ///
    /// Says whether the connection is given up, because its frames are too many for their data.
    pub(super) fn receive(&mut self, now: Instant, event: ConnectionEvent, bytes: usize) -> bool {
        let before = self.connection.stats().frame_rx;
        self.connection.handle_event(event);
        let after = self.connection.stats().frame_rx;
        if after.stream > before.stream {
            let data = bytes.saturating_sub(OVERHEAD_BYTES);
            self.unread_bytes = (self.unread_bytes + data).min(self.window as usize);
        }
        self.touch();
        let frames = (after.stream - before.stream) + (after.crypto - before.crypto);
        let is_over = self.frames.are_too_many(frames) && self.lost.is_none();
        if is_over {
            let mut error = TransportError::from(TransportErrorCode::PROTOCOL_VIOLATION);
            error.reason = "far more frames than data".to_owned();
            self.give_up(now, ConnectionError::TransportError(error));
        }
        is_over
    }

    /// Looks at what has changed, for the reader and the writer of the stream.
    pub(super) fn poll(&mut self, now: Instant) -> Readiness {
        let mut readiness = Readiness::default();
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => {
                    self.handshake = None;
                    self.check_certificate(now);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => readiness.readable = true,
                Event::Stream(StreamEvent::Readable { .. }) => readiness.readable = true,
                Event::Stream(StreamEvent::Writable { .. } | StreamEvent::Stopped { .. }) => {
                    self.streams.flush(&mut self.connection, &self.sending);
                    self.touch();
                    readiness.writable = true;
                }
                Event::ConnectionLost { reason } => {
                    self.handshake = None;
                    self.lost = Some(reason);
                    readiness = OVER;
                }
                _ => {}
            }
        }
        let is_given_up = std::mem::take(&mut self.is_given_up);
        if is_given_up || self.refused.is_some() { OVER } else { readiness }
    }

    /// A client that resumes a session shows no certificate, and none is verified.
    fn check_certificate(&mut self, now: Instant) {
        let certificate = self.certificate();
        let expired = certificate.and_then(|certificate| tls::expired(&certificate, UnixTime::now()));
        if let Some(error) = expired {
            self.refused = Some(error);
            self.connection.close(now, BAD_CERTIFICATE, Bytes::from_static(b"certificate expired"));
        }
    }

    /// The certificate that the client has shown.
    fn certificate(&self) -> Option<CertificateDer<'static>> {
        let identity = self.connection.crypto_session().peer_identity()?;
        identity.downcast::<Vec<CertificateDer<'static>>>().ok()?.into_iter().next()
    }

    /// The outcome of a read that finds no bytes.
    fn end(&self) -> io::Result<Received> {
        let Some(reason) = &self.lost else { return Err(io::ErrorKind::WouldBlock.into()) };
        match reason {
            ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => Ok(END),
            ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::NO_ERROR => {
                Ok(END)
            }
            ConnectionError::ConnectionClosed(_) => Err(io::ErrorKind::ConnectionAborted.into()),
            ConnectionError::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            ConnectionError::TimedOut => Err(io::ErrorKind::TimedOut.into()),
            error => Err(Rejected::Quic(error.to_string()).into()),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if let Some(error) = &self.refused {
            return Err(Rejected::Tls(error.clone()).into());
        }
        let read = self.streams.read(&mut self.connection, buffer);
        self.widen();
        self.count_read(read.bytes, read.is_blocked);
        if read.has_news {
            self.touch();
        }
        let is_drained = read.is_blocked && read.end.is_none() && self.lost.is_none();
        match read.end {
            _ if read.bytes > 0 => Ok(Received { bytes: read.bytes, is_drained }),
            None => self.end(),
            Some(End::Finished) => Ok(END),
            Some(End::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(End::Cut) => Err(Rejected::Quic("a stream has ended inside a packet".to_owned()).into()),
        }
    }

    /// Gives the streams that the client has opened a window each. The windows of streams that have ended stay.
    fn widen(&mut self) {
        let count = u32::try_from(self.streams.count()).unwrap_or(u32::MAX);
        let window = self.stream_window.saturating_mul(count);
        if window > self.window {
            self.window = window;
            self.connection.set_receive_window(window.into());
            self.touch();
        }
    }

    /// Bytes that were sent twice are read once, and stay in the estimate. A reader that has read everything in order takes
    /// an eighth of the rest off: the rest fades while the stream flows.
    fn count_read(&mut self, bytes: usize, is_blocked: bool) {
        self.unread_bytes = self.unread_bytes.saturating_sub(bytes);
        self.frames.permit(bytes as u64 / BYTES_PER_FRAME);
        if bytes > 0 && is_blocked {
            self.unread_bytes -= self.unread_bytes.div_ceil(8);
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.streams.is_open() || self.connection.is_closed() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let written = self.streams.write(&mut self.connection, pieces, &self.sending);
        self.touch();
        written.map_err(|error| match error {
            WriteError::Blocked => io::ErrorKind::WouldBlock.into(),
            WriteError::Stopped(_) | WriteError::ClosedStream => io::ErrorKind::BrokenPipe.into(),
        })
    }

    /// Bytes that were received and that the shard has not read.
    pub(super) fn received_bytes(&self) -> usize {
        self.unread_bytes + self.streams.held_bytes()
    }

    fn shut_down_write(&mut self) {
        self.streams.finish(&mut self.connection);
        self.touch();
    }
}

/// The end of a stream.
const END: Received = Received { bytes: 0, is_drained: false };

impl QuicStream {
    pub(super) fn new(link: Arc<Mutex<Link>>) -> Self {
        Self(link)
    }

    /// Begins to watch the stream, which has this name at its shard.
    pub fn watch(&self, id: ConnectionId) {
        let mut link = lock(&self.0);
        link.watcher = Some(id);
        link.touch();
    }
}

impl Stream for QuicStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        lock(&self.0).read(buffer)
    }

    /// Bytes of datagrams that were taken in have been announced.
    fn has_arrived(&mut self) -> bool {
        lock(&self.0).lost.is_some()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        lock(&self.0).write(pieces)
    }

    fn is_costly(&mut self) -> bool {
        lock(&self.0).connection.is_handshaking()
    }

    fn certificate_name(&mut self, name: CertificateName) -> Option<String> {
        tls::name::of(&lock(&self.0).certificate()?, name)
    }

    fn channel_binding(&mut self) -> Option<[u8; 32]> {
        let link = lock(&self.0);
        let mut binding = [0; 32];
        let session = link.connection.crypto_session();
        session.export_keying_material(&mut binding, tls::CHANNEL_BINDING, b"").ok().map(|()| binding)
    }

    /// A connection that is closed at once loses bytes that its peer has not acknowledged.
    fn owes_goodbye(&self) -> bool {
        !lock(&self.0).connection.is_closed()
    }

    fn shut_down_write(&mut self) {
        lock(&self.0).shut_down_write();
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        let mut link = lock(&self.0);
        link.is_abandoned = true;
        link.watcher = None;
        link.touch();
    }
}

impl fmt::Debug for QuicStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_too_many_without_data_only() {
        let mut frames = Frames::new(1);
        assert!((0..1_000_000).all(|_| !frames.are_too_many(FREE_FRAMES)));
        // A datagram of 1,200 bytes in frames of about 60 bytes each, whose bytes are read.
        let flows = (0..1_000_000).all(|_| {
            frames.permit(1_100 / BYTES_PER_FRAME);
            !frames.are_too_many(19)
        });
        assert!(flows);
        let mut frames = Frames::new(1);
        let datagrams = (0..).take_while(|_| !frames.are_too_many(190)).count();
        assert_eq!(datagrams, 22, "190 frames of one byte in each");
    }
}
