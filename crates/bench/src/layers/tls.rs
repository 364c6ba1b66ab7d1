//! One end of a TLS connection, over bytes (RFC 5246, RFC 8446).
//!
//! Records are decrypted in a buffer that all connections of a thread share, and encrypted where the socket takes them
//! from: a connection that does nothing has no buffer.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ClientConfig, HandshakeKind, ServerConfig};

use crate::link::{READ_LEN, Received};

/// Maximum ciphertext that is kept until more comes, in bytes: a message of the handshake has at most 64 KiB.
const HELD_BYTES_MAX: usize = 96 * 1024;

/// Maximum plaintext of a record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 16 * 1024;

/// Maximum number of bytes that a record has beyond its plaintext: header, nonce, tag, padding.
const OVERHEAD_BYTES: usize = 128;

thread_local! {
    static RECORDS: RefCell<Vec<u8>> = RefCell::new(vec![0; HELD_BYTES_MAX + READ_LEN]);
}

/// The layer of TLS.
pub(super) struct Tls {
    session: Session,
    /// The beginning of a record, or of a message of the handshake. The session remembers places in it.
    received: Vec<u8>,
    /// Plaintext that a reader had no room for.
    decrypted: Vec<u8>,
    /// Plaintext that was written before the end of the handshake.
    written: Vec<u8>,
    /// The peer has sent close_notify.
    has_ended: bool,
    /// The session has sent its last alert. It must not see records any more: it panics at a broken one.
    is_over: bool,
}

enum Session {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Tls {
    /// The client's end; its first message is appended to `unsent`.
    ///
    /// # Errors
    /// If rustls refuses its configuration.
    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        unsent: &mut Vec<u8>,
    ) -> io::Result<Self> {
        let session = UnbufferedClientConnection::new(config, name).map_err(|error| failed(&error))?;
        let mut tls = Self::new(Session::Client(session));
        tls.session.pump(&mut [], unsent, &mut Sink { buffer: &mut [], count: 0, rest: &mut Vec::new() })?;
        Ok(tls)
    }

    /// The server's end, which waits for the client's first message.
    ///
    /// # Errors
    /// If rustls refuses its configuration.
    pub(super) fn server(config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = UnbufferedServerConnection::new(config).map_err(|error| failed(&error))?;
        Ok(Self::new(Session::Server(session)))
    }

    fn new(session: Session) -> Self {
        Self {
            session,
            received: Vec::new(),
            decrypted: Vec::new(),
            written: Vec::new(),
            has_ended: false,
            is_over: false,
        }
    }

    /// Whether the handshake went on from an earlier one. `None` before its end.
    pub(super) fn is_resumed(&self) -> Option<bool> {
        let kind = match &self.session {
            Session::Client(session) => session.handshake_kind(),
            Session::Server(session) => session.handshake_kind(),
        };
        Some(kind? == HandshakeKind::Resumed).filter(|_| !self.session.is_handshaking())
    }

    /// Reads plaintext. Records that are due are appended to `unsent`.
    ///
    /// # Errors
    /// What the system says of the connection, and `InvalidData` if the peer breaks a rule or cannot be trusted.
    pub(super) fn read(
        &mut self,
        socket: &mut impl Read,
        buffer: &mut [u8],
        unsent: &mut Vec<u8>,
    ) -> io::Result<Received> {
        // The socket may be empty already: nothing announces these bytes again.
        if !self.decrypted.is_empty() {
            let len = buffer.len().min(self.decrypted.len());
            buffer[..len].copy_from_slice(&self.decrypted[..len]);
            self.decrypted.drain(..len);
            return Ok(Received::Bytes { len, drained: false });
        }
        RECORDS.with_borrow_mut(|records| {
            while !self.has_ended {
                let before = self.received.len();
                let count = match crate::link::read(socket, &mut records[before..before + READ_LEN])? {
                    Received::Bytes { len, .. } => len,
                    nothing => return Ok(nothing),
                };
                if self.is_over {
                    continue;
                }
                records[..before].copy_from_slice(&self.received);
                let len = self.decrypt(&mut records[..before + count], buffer, unsent)?;
                if len > 0 {
                    let is_all = self.decrypted.is_empty() && !self.has_ended;
                    return Ok(Received::Bytes { len, drained: count < READ_LEN && is_all });
                }
                // Only the socket says that nothing is there: its end may have been announced with these bytes.
            }
            Ok(Received::Closed)
        })
    }

    /// Decrypts records into `buffer`, and keeps what is no whole record. Returns the length of the plaintext.
    fn decrypt(&mut self, records: &mut [u8], buffer: &mut [u8], unsent: &mut Vec<u8>) -> io::Result<usize> {
        let mut sink = Sink { buffer, count: 0, rest: &mut self.decrypted };
        let pumped = self.session.pump(records, unsent, &mut sink);
        let count = sink.count;
        self.is_over = pumped.is_err();
        let Pumped { consumed, has_ended } = pumped?;
        self.has_ended |= has_ended;
        let rest = &records[consumed..];
        if rest.len() > HELD_BYTES_MAX {
            return Err(failed(&rustls::Error::General("a message is too long".to_owned())));
        }
        self.received.clear();
        self.received.extend_from_slice(rest);
        if !self.written.is_empty() && !self.session.is_handshaking() {
            let written = std::mem::take(&mut self.written);
            self.write(&written, unsent)?;
        }
        Ok(count)
    }

    /// Appends the records of these bytes to `unsent`, or keeps the bytes until the handshake is over.
    ///
    /// # Errors
    /// If the session is at its end.
    pub(super) fn write(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) -> io::Result<()> {
        if self.is_over {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.session.is_handshaking() {
            self.written.extend_from_slice(bytes);
            return Ok(());
        }
        match &mut self.session {
            Session::Client(session) => {
                encrypt(session.process_tls_records(&mut self.received), bytes, unsent)
            }
            Session::Server(session) => {
                encrypt(session.process_tls_records(&mut self.received), bytes, unsent)
            }
        }
    }

    /// Appends close_notify to `unsent`, if the handshake is over.
    pub(super) fn close(&mut self, unsent: &mut Vec<u8>) {
        if self.is_over || self.session.is_handshaking() {
            return;
        }
        self.is_over = true;
        match &mut self.session {
            Session::Client(session) => close(session.process_tls_records(&mut self.received), unsent),
            Session::Server(session) => close(session.process_tls_records(&mut self.received), unsent),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

/// A session that takes records, for both ends.
trait Records {
    type Data;

    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn wants_write(&self) -> bool;
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn wants_write(&self) -> bool {
        (**self).wants_write()
    }
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(records)
    }

    fn wants_write(&self) -> bool {
        (**self).wants_write()
    }
}

impl Session {
    fn is_handshaking(&self) -> bool {
        match self {
            Self::Client(session) => session.is_handshaking(),
            Self::Server(session) => session.is_handshaking(),
        }
    }

    fn pump(&mut self, records: &mut [u8], unsent: &mut Vec<u8>, sink: &mut Sink<'_>) -> io::Result<Pumped> {
        match self {
            Self::Client(session) => pump(session, records, unsent, sink),
            Self::Server(session) => pump(session, records, unsent, sink),
        }
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

/// Processes records until more are needed. Records that are due are appended to `unsent`.
fn pump<S: Records>(
    session: &mut S,
    records: &mut [u8],
    unsent: &mut Vec<u8>,
    sink: &mut Sink<'_>,
) -> io::Result<Pumped> {
    let (mut consumed, mut has_ended) = (0, false);
    loop {
        let UnbufferedStatus { mut discard, state } = session.process(&mut records[consumed..]);
        let mut needs_more = false;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(|error| failed(&error))?;
                    discard += record.discard;
                    sink.put(record.payload);
                }
            }
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, unsent),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => has_ended = true,
            Ok(ConnectionState::Closed) => (has_ended, needs_more) = (true, true),
            Ok(_) => needs_more = true,
            Err(error) => {
                encode_alert(session, unsent);
                return Err(failed(&error));
            }
        }
        consumed += discard;
        if needs_more {
            return Ok(Pumped { consumed, has_ended });
        }
    }
}

/// Appends one encoded record to `unsent`.
fn encode<D>(mut data: EncodeTlsData<'_, D>, unsent: &mut Vec<u8>) {
    let before = unsent.len();
    let mut written = data.encode(&mut []);
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = written {
        unsent.resize(before + required_size, 0);
        written = data.encode(&mut unsent[before..]);
    }
    unsent.truncate(before + written.unwrap_or_default());
}

/// Appends the alert of a failed session.
fn encode_alert<S: Records>(session: &mut S, unsent: &mut Vec<u8>) {
    while session.wants_write() {
        match session.process(&mut []).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, unsent),
            _ => return,
        }
    }
}

/// Appends the records of these bytes to `unsent`.
fn encrypt<D>(status: UnbufferedStatus<'_, '_, D>, bytes: &[u8], unsent: &mut Vec<u8>) -> io::Result<()> {
    let ConnectionState::WriteTraffic(mut traffic) = status.state.map_err(|error| failed(&error))? else {
        return Err(ErrorKind::BrokenPipe.into());
    };
    for plaintext in bytes.chunks(RECORD_BYTES) {
        let before = unsent.len();
        unsent.resize(before + plaintext.len() + OVERHEAD_BYTES, 0);
        let written = traffic.encrypt(plaintext, &mut unsent[before..]).map_err(io::Error::other)?;
        unsent.truncate(before + written);
    }
    Ok(())
}

fn close<D>(status: UnbufferedStatus<'_, '_, D>, unsent: &mut Vec<u8>) {
    let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else { return };
    let before = unsent.len();
    unsent.resize(before + OVERHEAD_BYTES, 0);
    let written = traffic.queue_close_notify(&mut unsent[before..]);
    unsent.truncate(before + written.unwrap_or_default());
}

fn failed(error: &rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}"))
}
