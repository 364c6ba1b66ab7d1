//! TLS (RFC 5246, RFC 8446), a server's side: a stream over a stream.
//!
//! Records are decrypted and encrypted in buffers that all connections of a thread share. A connection holds bytes of its
//! own only while a record, or a message of the handshake, has come in part, or while the stream below does not take what
//! was encrypted.

pub(crate) mod challenge;
mod exporter;
pub(crate) mod name;
mod settings;
mod version1;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::time::Duration;

use base::CertificateName;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ServerConnectionData;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{CertificateError, HandshakeKind};
use stream::{Received, Stream};

pub use self::challenge::answers;
pub use self::name::common_name;
pub use self::settings::{Authorities, ClientCertificates, Current, Identity, Settings, SettingsError};

use crate::Rejected;

/// The label of the keying material that is the channel binding (RFC 9266).
pub(crate) const CHANNEL_BINDING: &[u8] = b"EXPORTER-Channel-Binding";
/// Maximum ciphertext of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Maximum ciphertext that is kept until more comes, in bytes: a message of the handshake has at most 64 KiB.
const HELD_BYTES_MAX: usize = 96 * 1024;
/// Maximum plaintext of one write, in bytes.
const WRITE_BYTES: usize = 64 * 1024;
/// Maximum plaintext of a record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// Maximum bytes that a record has beyond its plaintext: header, nonce, tag, padding.
const OVERHEAD_BYTES: usize = 128;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        received: vec![0; HELD_BYTES_MAX + READ_BYTES],
        plaintext: Vec::with_capacity(RECORD_BYTES),
        encrypted: vec![0; WRITE_BYTES / RECORD_BYTES * (RECORD_BYTES + OVERHEAD_BYTES)],
    });
}

/// The buffers of a thread.
struct Scratch {
    received: Vec<u8>,
    plaintext: Vec<u8>,
    encrypted: Vec<u8>,
}

/// The server's end of a TLS connection.
pub struct Tls<S> {
    below: S,
    /// `None` once it has failed.
    session: Option<UnbufferedServerConnection>,
    /// The beginning of a record or of a message of the handshake. The session remembers places in it: it always gets all of
    /// these bytes, in front of those that come.
    received: Vec<u8>,
    /// Plaintext for which a reader had no room.
    decrypted: Vec<u8>,
    /// Records that the stream below has not taken.
    unsent: Vec<u8>,
    /// The channel binding, once the handshake has brought its secret. `None` with TLS 1.2.
    binding: Option<[u8; 32]>,
    /// The failure behind the plaintext that the reader has got.
    failure: Option<rustls::Error>,
    /// The peer has sent close_notify.
    has_ended: bool,
    /// The reader has been told of the end. It throws away what still comes.
    is_over: bool,
    /// The writer writes no more: the stream below is shut when everything has left.
    is_shutting: bool,
}

impl<S: Stream> Tls<S> {
    /// A connection on which ClientHello is the next to be read.
    pub fn new(below: S, session: UnbufferedServerConnection) -> Self {
        Self {
            below,
            session: Some(session),
            received: Vec::new(),
            decrypted: Vec::new(),
            unsent: Vec::new(),
            binding: None,
            failure: None,
            has_ended: false,
            is_over: false,
            is_shutting: false,
        }
    }

    /// The stream below this layer.
    pub fn below(&mut self) -> &mut S {
        &mut self.below
    }

    /// Whether a read costs as much as keys and signatures do.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Reads into the buffers of the thread. Returns how much plaintext came.
    fn read_with(&mut self, scratch: &mut Scratch, buffer: &mut [u8]) -> io::Result<Received> {
        let before = self.received.len();
        // As plaintext is shorter than its records, that of one read almost always fits.
        let room = buffer.len().clamp(1_024, READ_BYTES);
        let Received { bytes, is_drained } = self.below.read(&mut scratch.received[before..before + room])?;
        if bytes == 0 {
            return Ok(Received { bytes, is_drained });
        }
        let records = &mut scratch.received[..before + bytes];
        records[..before].copy_from_slice(&self.received);
        let mut sink = Sink { buffer, count: 0, rest: &mut self.decrypted };
        let session = self.session.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let was_handshaking = session.is_handshaking();
        let mut step = || pump(session, records, &mut self.unsent, &mut sink);
        let result = if was_handshaking {
            let (result, secret) = exporter::watch(step);
            let suite = session.negotiated_cipher_suite();
            let binding = secret.zip(suite).and_then(|(secret, suite)| exporter::binding(&secret, suite));
            self.binding = binding.or(self.binding);
            result
        } else {
            step()
        };
        let count = sink.count;
        if was_handshaking && let Some(error) = expired_since(session, UnixTime::now()) {
            // Nothing that stands behind the handshake is read.
            return Err(self.fail(error));
        }
        if was_handshaking && !session.is_handshaking() && session.alpn_protocol() == Some(challenge::ALPN) {
            // The authority has seen the certificate, and nothing that it sends is for MQTT.
            if let Ok(pumped) = &result {
                // The session remembers an incomplete message behind the handshake, and expects its bytes again.
                self.received = records[pumped.consumed..].to_vec();
                self.close_notify();
            }
            return Err(self.reject(Rejected::Challenge));
        }
        let Pumped { consumed, has_ended } = match result {
            Ok(pumped) => pumped,
            Err(error) if count == 0 => return Err(self.fail(error)),
            Err(error) => {
                // The reader gets the plaintext in front of the failure first.
                self.session = None;
                self.failure = Some(error);
                return Ok(Received { bytes: count, is_drained: false });
            }
        };
        self.has_ended |= has_ended;
        let rest = &records[consumed..];
        if rest.len() > HELD_BYTES_MAX {
            return Err(self.fail(rustls::Error::General("a message is too long".to_owned())));
        }
        self.received.clear();
        self.received.extend_from_slice(rest);
        if rest.is_empty() {
            self.received = Vec::new();
        }
        match count {
            0 if self.has_ended => self.end(),
            // Only the socket says that it would block: its end may have been announced together with these bytes.
            0 => Err(io::ErrorKind::Interrupted.into()),
            _ => {
                let is_drained = is_drained && self.decrypted.is_empty() && !self.has_ended;
                Ok(Received { bytes: count, is_drained })
            }
        }
    }

    fn end(&mut self) -> io::Result<Received> {
        self.is_over = true;
        Ok(Received { bytes: 0, is_drained: false })
    }

    fn fail(&mut self, error: rustls::Error) -> io::Error {
        self.reject(Rejected::Tls(error))
    }

    fn reject(&mut self, rejected: Rejected) -> io::Error {
        self.is_over = true;
        self.session = None;
        self.received = Vec::new();
        self.decrypted = Vec::new();
        rejected.into()
    }

    /// Encrypts at most [`WRITE_BYTES`] of these pieces. Returns how many bytes, and the length of their records.
    fn encrypt(&mut self, pieces: &[IoSlice<'_>], scratch: &mut Scratch) -> io::Result<(usize, usize)> {
        let Scratch { plaintext, encrypted, .. } = scratch;
        let session = self.session.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let UnbufferedStatus { discard, state } = session.process_tls_records(&mut self.received);
        let ConnectionState::WriteTraffic(mut traffic) = state.map_err(Rejected::Tls)? else {
            // Nobody writes before the handshake is done.
            return Err(io::ErrorKind::NotConnected.into());
        };
        let (mut taken, mut length) = (0, 0);
        let mut pieces = pieces.iter().map(|piece| &piece[..]).filter(|piece| !piece.is_empty());
        let mut piece = pieces.next().unwrap_or_default();
        while !piece.is_empty() && taken < WRITE_BYTES {
            let room = RECORD_BYTES.min(WRITE_BYTES - taken);
            let record = if piece.len() >= room {
                let (record, rest) = piece.split_at(room);
                piece = rest;
                record
            } else {
                // Short pieces share a record.
                plaintext.clear();
                while plaintext.len() < room && !piece.is_empty() {
                    let (part, rest) = piece.split_at(piece.len().min(room - plaintext.len()));
                    plaintext.extend_from_slice(part);
                    piece = if rest.is_empty() { pieces.next().unwrap_or_default() } else { rest };
                }
                &plaintext[..]
            };
            length += traffic.encrypt(record, &mut encrypted[length..]).map_err(io::Error::other)?;
            taken += record.len();
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
            }
        }
        self.received.drain(..discard);
        Ok((taken, length))
    }

    fn close_notify(&mut self) {
        let Some(session) = &mut self.session else { return };
        let mut alert = [0; 2 + OVERHEAD_BYTES];
        let UnbufferedStatus { discard, state } = session.process_tls_records(&mut self.received);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state
            && let Ok(length) = traffic.queue_close_notify(&mut alert)
        {
            self.unsent.extend_from_slice(&alert[..length]);
        }
        self.received.drain(..discard);
    }
}

impl<S: fmt::Debug> fmt::Debug for Tls<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("below", &self.below).finish_non_exhaustive()
    }
}

/// The place for plaintext.
struct Sink<'a> {
    buffer: &'a mut [u8],
    count: usize,
    rest: &'a mut Vec<u8>,
}

impl Sink<'_> {
    fn put(&mut self, plaintext: &[u8]) {
        let room = if self.rest.is_empty() { self.buffer.len() - self.count } else { 0 };
        let (now, later) = plaintext.split_at(plaintext.len().min(room));
        self.buffer[self.count..self.count + now.len()].copy_from_slice(now);
        self.count += now.len();
        self.rest.extend_from_slice(later);
    }
}

struct Pumped {
    /// Bytes of records that are not needed any more.
    consumed: usize,
    /// The peer has sent close_notify.
    has_ended: bool,
}

/// Processes records until more are needed. Records that are due are appended to `unsent`, the alert of a failure among
/// them.
fn pump(
    session: &mut UnbufferedServerConnection,
    records: &mut [u8],
    unsent: &mut Vec<u8>,
    sink: &mut Sink<'_>,
) -> Result<Pumped, rustls::Error> {
    let (mut consumed, mut has_ended) = (0, false);
    loop {
        let UnbufferedStatus { mut discard, state } = session.process_tls_records(&mut records[consumed..]);
        let mut needs_more = false;
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                encode_alert(session, &mut records[consumed + discard..], unsent);
                return Err(error);
            }
        };
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    sink.put(record.payload);
                }
            }
            ConnectionState::EncodeTlsData(data) => encode(data, unsent),
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => has_ended = true,
            ConnectionState::Closed => {
                (has_ended, needs_more) = (true, true);
            }
            // Early data is not offered. Whatever a later version adds is no reason to go round in circles.
            _ => needs_more = true,
        }
        consumed += discard;
        if needs_more {
            return Ok(Pumped { consumed, has_ended });
        }
    }
}

/// The error of a session that was resumed after the certificate of its client had expired. A client that resumes a session
/// shows no certificate, and none is verified.
fn expired_since(session: &UnbufferedServerConnection, now: UnixTime) -> Option<rustls::Error> {
    if session.is_handshaking() || session.handshake_kind() != Some(HandshakeKind::Resumed) {
        return None;
    }
    expired(session.peer_certificates()?.first()?, now)
}

/// The error of a certificate that was verified in an earlier handshake, and has expired since.
#[must_use]
pub fn expired(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<rustls::Error> {
    // It was verified, and is well-formed.
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let not_after_unix_secs = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    let not_after = UnixTime::since_unix_epoch(Duration::from_secs(not_after_unix_secs));
    (now > not_after).then(|| CertificateError::ExpiredContext { time: now, not_after }.into())
}

/// Appends one encoded record to `unsent`.
fn encode(mut data: EncodeTlsData<'_, ServerConnectionData>, unsent: &mut Vec<u8>) {
    let before = unsent.len();
    let mut written = data.encode(&mut []);
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = written {
        unsent.resize(before + required_size, 0);
        written = data.encode(&mut unsent[before..]);
    }
    unsent.truncate(before + written.unwrap_or_default());
}

/// Appends the alert of a failed session. The session looks at no further record.
fn encode_alert(session: &mut UnbufferedServerConnection, records: &mut [u8], unsent: &mut Vec<u8>) {
    while session.wants_write() {
        match session.process_tls_records(records).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, unsent),
            _ => return,
        }
    }
}

impl<S: Stream> Stream for Tls<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if self.is_over {
            return self.below.read(buffer);
        }
        if !self.decrypted.is_empty() {
            let bytes = buffer.len().min(self.decrypted.len());
            buffer[..bytes].copy_from_slice(&self.decrypted[..bytes]);
            self.decrypted.drain(..bytes);
            if self.decrypted.is_empty() {
                self.decrypted = Vec::new();
            }
            return Ok(Received { bytes, is_drained: false });
        }
        if let Some(error) = self.failure.take() {
            return Err(self.fail(error));
        }
        if self.has_ended {
            return self.end();
        }
        SCRATCH.with_borrow_mut(|scratch| self.read_with(scratch, buffer))
    }

    fn has_arrived(&mut self) -> bool {
        !self.decrypted.is_empty() || self.below.has_arrived()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        if self.session.is_none() {
            // Nobody can read it any more. The end of the stream below still has to leave.
            return Ok(pieces.iter().map(|piece| piece.len()).sum());
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let (taken, length) = self.encrypt(pieces, scratch)?;
            let records = &scratch.encrypted[..length];
            let written = loop {
                match self.below.write(&[IoSlice::new(records)]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    written => break written,
                }
            };
            match written {
                Ok(written) => self.unsent.extend_from_slice(&records[written..]),
                // The peer has to get these records before any other: they count as written.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent.extend_from_slice(records);
                }
                Err(error) => return Err(error),
            }
            Ok(taken)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let written = self.below.write(&[IoSlice::new(&self.unsent)])?;
            self.unsent.drain(..written);
        }
        self.unsent = Vec::new();
        self.below.flush()?;
        if std::mem::take(&mut self.is_shutting) {
            self.below.shut_down_write();
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        !self.unsent.is_empty() || self.is_shutting || self.below.wants_write()
    }

    fn held_bytes(&self) -> usize {
        self.received.capacity()
            + self.decrypted.capacity()
            + self.unsent.capacity()
            + self.below.held_bytes()
    }

    fn certificate_name(&mut self, name: CertificateName) -> Option<String> {
        let [certificate, ..] = self.session.as_ref()?.peer_certificates()? else { return None };
        name::of(certificate, name)
    }

    fn channel_binding(&mut self) -> Option<[u8; 32]> {
        self.binding.filter(|_| !self.is_handshaking())
    }

    fn shut_down_write(&mut self) {
        self.close_notify();
        self.is_shutting = true;
        // Nothing that still comes is looked at.
        self.is_over = true;
        // If the stream below takes nothing now, the rest leaves with a later call of `flush`.
        drop(self.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite};

    use super::*;
    use crate::double::Pipe;

    /// A client with its end of the stream below.
    struct Client {
        session: ClientConnection,
        pipe: Pipe,
    }

    impl Client {
        /// A server and a client that trusts it.
        fn and_server(settings: impl FnOnce(&mut Settings), room: usize) -> (Self, Tls<Pipe>) {
            Self::with_suites(settings, room, ring::ALL_CIPHER_SUITES)
        }

        /// The same for a client that has these cipher suites.
        fn with_suites(
            settings: impl FnOnce(&mut Settings),
            room: usize,
            suites: &[SupportedCipherSuite],
        ) -> (Self, Tls<Pipe>) {
            let made =
                rcgen::generate_simple_self_signed(["broker.example".to_owned()]).expect("a certificate");
            let certificate = CertificateDer::from(made.cert);
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
            let identities = vec![Identity { chain: vec![certificate.clone()], key }];
            let mut all = Settings { identities, ..Settings::default() };
            settings(&mut all);
            let config = all.build().expect("it fits together");
            let mut roots = RootCertStore::empty();
            roots.add(certificate).expect("it can be trusted");
            let cipher_suites = suites.to_vec();
            let provider = Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() });
            let client = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = "broker.example".try_into().expect("a name");
            let session = ClientConnection::new(Arc::new(client), name).expect("a connection");
            let pipe = Pipe::new(room);
            let server =
                Tls::new(pipe.clone(), UnbufferedServerConnection::new(config).expect("a connection"));
            (Self { session, pipe }, server)
        }

        /// Sends what is due, at most this many bytes.
        fn send(&mut self, bytes_max: usize) -> bool {
            let mut records = Vec::new();
            while self.session.wants_write() {
                self.session.write_tls(&mut records).expect("a vector takes everything");
            }
            let is_any = !records.is_empty();
            for piece in records.chunks(bytes_max) {
                self.pipe.put(piece);
            }
            is_any
        }

        /// Receives what has come. Returns the plaintext.
        fn receive(&mut self) -> Vec<u8> {
            let written = self.pipe.take_written();
            let mut rest = &written[..];
            let mut plaintext = Vec::new();
            while !rest.is_empty() {
                self.session.read_tls(&mut rest).expect("a slice can be read");
                self.session.process_new_packets().expect("the server keeps the rules");
                drop(self.session.reader().read_to_end(&mut plaintext));
            }
            plaintext
        }

        fn shake_hands(&mut self, server: &mut Tls<Pipe>) {
            let mut rounds = 0;
            while self.session.is_handshaking() || server.is_handshaking() {
                self.send(usize::MAX);
                assert!(read_all(server, 100_000).is_empty());
                drop(server.flush());
                assert!(self.receive().is_empty());
                rounds += 1;
                assert!(rounds < 10_000, "there is an end");
            }
            // The tickets.
            while server.wants_write() {
                drop(server.flush());
                self.receive();
            }
        }
    }

    /// Reads until nothing comes, in reads of this many bytes.
    fn read_all(server: &mut Tls<Pipe>, buffer_bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; buffer_bytes];
        let mut all = Vec::new();
        loop {
            match server.read(&mut buffer) {
                Ok(Received { bytes: 0, .. }) => return all,
                Ok(Received { bytes, is_drained }) => {
                    all.extend_from_slice(&buffer[..bytes]);
                    if is_drained {
                        return all;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return all,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at / 7).to_le_bytes()[0]).collect()
    }

    #[test]
    fn bytes_pass_in_both_directions_however_they_are_cut() {
        for (buffer_bytes, piece_bytes, room) in
            [(1, 1_000, 1), (100, 5, 100), (3_000, 1, 20_000), (65_536, 9_999, 1 << 20)]
        {
            let (mut client, mut server) = Client::and_server(|_| (), room);
            client.shake_hands(&mut server);
            let sent = bytes(40_000);
            client.session.writer().write_all(&sent).expect("it is buffered");
            client.send(piece_bytes);
            assert!(read_all(&mut server, buffer_bytes) == sent, "{buffer_bytes}");
            assert_eq!(server.held_bytes(), 0, "nothing is held while nothing is under way");
            let (mut left, mut received) = (&sent[..], Vec::new());
            while !left.is_empty() || server.wants_write() {
                let (first, rest) = left.split_at(left.len().min(10));
                match server.write(&[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)]) {
                    Ok(written) => left = &left[written..],
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                if left.is_empty() {
                    drop(server.flush());
                }
                received.extend(client.receive());
            }
            assert!(received == sent, "{buffer_bytes}");
            assert_eq!(server.held_bytes(), 0);
        }
    }

    /// The library of the client exports keying material itself. TLS 1.2 has none that serves.
    #[test]
    fn both_ends_have_the_same_channel_binding() {
        // The key of the server is none of RSA.
        let is_ours = |suite: &&SupportedCipherSuite| !format!("{suite:?}").contains("_RSA_");
        for suite in ring::ALL_CIPHER_SUITES.iter().filter(is_ours) {
            let (mut client, mut server) = Client::with_suites(|_| {}, 1 << 20, &[*suite]);
            assert_eq!(server.channel_binding(), None, "the handshake has not begun");
            client.shake_hands(&mut server);
            let exported = client.session.export_keying_material([0; 32], CHANNEL_BINDING, Some(b""));
            let exported = exported.expect("the handshake is complete");
            assert_eq!(server.channel_binding(), suite.tls13().map(|_| exported), "{suite:?}");
        }
    }

    #[test]
    fn the_end_of_the_client_follows_its_last_bytes() {
        let (mut client, mut server) = Client::and_server(|_| (), 1 << 20);
        client.shake_hands(&mut server);
        client.session.writer().write_all(b"last").expect("it is buffered");
        client.session.send_close_notify();
        client.send(usize::MAX);
        client.pipe.put(b"thrown away");
        let mut buffer = [0; 100];
        assert_eq!(server.read(&mut buffer).expect("bytes"), Received { bytes: 4, is_drained: false });
        assert_eq!(server.read(&mut buffer).expect("the end").bytes, 0);
        assert_eq!(server.read(&mut buffer).expect("what a closed connection throws away").bytes, 11);
    }

    #[test]
    fn close_notify_leaves_before_the_socket_is_shut() {
        let (mut client, mut server) = Client::and_server(|_| (), 1 << 20);
        client.shake_hands(&mut server);
        server.write(&[IoSlice::new(b"last")]).expect("there is room");
        server.shut_down_write();
        assert!(client.pipe.is_shut() && !server.wants_write());
        assert_eq!(client.receive(), b"last");
        let mut nothing = [0];
        assert_eq!(client.session.reader().read(&mut nothing).expect("a clean end"), 0);
    }

    #[test]
    fn a_socket_that_takes_nothing_is_shut_behind_everything_else() {
        let (mut client, mut server) = Client::and_server(|_| (), 10_000);
        client.shake_hands(&mut server);
        server.write(&[IoSlice::new(&bytes(30_000))]).expect("the records are kept");
        server.shut_down_write();
        assert!(!client.pipe.is_shut() && server.wants_write());
        let mut received = Vec::new();
        while server.wants_write() {
            received.extend(client.receive());
            drop(server.flush());
        }
        received.extend(client.receive());
        assert!(client.pipe.is_shut() && received == bytes(30_000));
    }

    #[test]
    fn bytes_that_are_not_tls_are_answered_with_an_alert() {
        let (client, mut server) = Client::and_server(|_| (), 1 << 20);
        client.pipe.put(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00");
        let mut buffer = [0; 1_000];
        let error = server.read(&mut buffer).expect_err("it is no ClientHello");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().starts_with("TLS: "), "{error}");
        server.flush().expect("there is room");
        assert_eq!(client.pipe.take_written()[0], 0x15, "an alert");
        assert_eq!(server.held_bytes(), 0);
    }

    #[test]
    fn a_record_that_was_changed_ends_with_an_alert_behind_what_came_before_it() {
        let (mut client, mut server) = Client::and_server(|_| (), 1 << 20);
        client.shake_hands(&mut server);
        client.session.writer().write_all(b"good").expect("it is buffered");
        let mut records = Vec::new();
        client.session.write_tls(&mut records).expect("a vector takes everything");
        let length = records.len();
        client.session.writer().write_all(b"changed").expect("it is buffered");
        client.session.write_tls(&mut records).expect("a vector takes everything");
        records[length + 7] ^= 1;
        client.pipe.put(&records);
        let mut buffer = [0; 100];
        assert_eq!(server.read(&mut buffer).expect("bytes"), Received { bytes: 4, is_drained: false });
        let error = server.read(&mut buffer).expect_err("it was changed");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        server.flush().expect("there is room");
        assert_eq!(client.pipe.take_written()[0], 0x17, "an alert that is encrypted");
        assert_eq!(server.write(&[IoSlice::new(b"nobody reads this")]).expect("it is dropped"), 17);
        server.shut_down_write();
        assert!(client.pipe.is_shut());
    }

    /// A message of the handshake may say that it has 16 MiB.
    #[test]
    fn a_handshake_without_an_end_takes_bounded_memory() {
        let (client, mut server) = Client::and_server(|_| (), 1 << 20);
        let mut buffer = vec![0; READ_BYTES];
        let mut first = true;
        for _ in 0..100 {
            let mut record = vec![0; 5 + RECORD_BYTES];
            record[..5].copy_from_slice(&[0x16, 3, 1, 0x40, 0]);
            if std::mem::take(&mut first) {
                record[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
            }
            client.pipe.put(&record);
            match server.read(&mut buffer) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    assert!(server.held_bytes() < 200_000);
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                    return;
                }
                Ok(received) => panic!("{received:?}"),
            }
        }
        panic!("a message of 1.6 MB was accepted");
    }

    #[test]
    fn a_key_that_does_not_belong_to_its_certificate_is_refused() {
        let made =
            |_| rcgen::generate_simple_self_signed(["broker.example".to_owned()]).expect("a certificate");
        let [one, other] = [1, 2].map(made);
        let key = PrivateKeyDer::try_from(other.signing_key.serialize_der()).expect("a key");
        let identities = vec![Identity { chain: vec![one.cert.into()], key }];
        let error = Settings { identities, ..Settings::default() }.build().expect_err("they do not fit");
        assert!(matches!(error, SettingsError::Mismatch(0)), "{error}");
        let error = Settings::default().build().expect_err("there is nothing");
        assert!(matches!(error, SettingsError::NoCertificate), "{error}");
    }
}
