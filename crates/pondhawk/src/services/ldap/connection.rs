//! A connection to a directory, which answers one request at a time and ends with its deadline.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ::ldap::{Answer, Entry, MESSAGE_BYTES_MAX, Message, Outcome, Search, code};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::place::{Begin, Place};
use crate::services::Deadline;

/// Maximum number of messages that a directory may send for one request. Referrals are messages too.
const MESSAGES_MAX: usize = 100;
/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;

/// A connection to a directory.
pub(super) struct Connection {
    stream: Stream,
    /// Bytes that no message has used yet.
    buffer: Vec<u8>,
    /// Number of requests so far.
    requests: i32,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

/// A socket whose reads and writes all end with the deadline, however many of them TLS makes.
struct Socket {
    stream: TcpStream,
    deadline: Deadline,
}

impl Socket {
    fn left(&self) -> io::Result<Option<Duration>> {
        self.deadline.left().map(Some).map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

impl io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl io::Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Connection {
    /// Connects to a directory, with TLS if the place says so.
    ///
    /// # Errors
    /// No address takes the connection, the directory refuses TLS or does not prove its name, or the time is over.
    pub(super) fn open(
        place: &Place,
        tls: Option<&Arc<ClientConfig>>,
        deadline: Deadline,
    ) -> Result<Self, String> {
        let stream = connect(place, &deadline)?;
        let stream = Stream::Plain(Socket { stream, deadline });
        let mut this = Self { stream, buffer: Vec::new(), requests: 0 };
        if place.begin == Begin::StartTls {
            this.start_tls()?;
        }
        let Some(config) = tls else { return Ok(this) };
        let session = ClientConnection::new(Arc::clone(config), place.name.clone());
        let session = session.map_err(|error| error.to_string())?;
        let Self { stream: Stream::Plain(socket), requests, .. } = this else {
            return Err("TLS has begun already".to_owned());
        };
        let stream = Stream::Tls(Box::new(StreamOwned::new(session, socket)));
        Ok(Self { stream, buffer: Vec::new(), requests })
    }

    fn start_tls(&mut self) -> Result<(), String> {
        let id = self.next();
        self.write(&::ldap::start_tls(id))?;
        match self.answer(id)? {
            Answer::Extended(Outcome { code: code::SUCCESS, .. }) if self.buffer.is_empty() => Ok(()),
            Answer::Extended(Outcome { code: code::SUCCESS, .. }) => {
                Err("the directory has sent something between StartTLS and TLS".to_owned())
            }
            Answer::Extended(refused) => Err(format!("StartTLS is refused: {refused}")),
            _ => Err(ODD.to_owned()),
        }
    }

    /// Logs in as an entry. Returns the result, which may be a refusal.
    ///
    /// # Errors
    /// There is no answer in time, or none that can be understood.
    pub(super) fn bind(&mut self, entry: &str, password: &str) -> Result<Outcome, String> {
        let id = self.next();
        self.write(&::ldap::bind(id, entry, password))?;
        match self.answer(id)? {
            Answer::Bound(outcome) => Ok(outcome),
            _ => Err(ODD.to_owned()),
        }
    }

    /// Searches for entries. Returns at most two, and the result unless there are two.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub(super) fn search(&mut self, search: &Search<'_>) -> Result<(Vec<Entry>, Option<Outcome>), String> {
        let id = self.next();
        self.write(&::ldap::search(id, search))?;
        let mut entries = Vec::new();
        for _ in 0..MESSAGES_MAX {
            match self.answer(id)? {
                Answer::Entry(entry) => entries.push(entry),
                Answer::Done(outcome) => return Ok((entries, Some(outcome))),
                Answer::Reference | Answer::Other => {}
                Answer::Bound(_) | Answer::Extended(_) => return Err(ODD.to_owned()),
            }
            if entries.len() == 2 {
                return Ok((entries, None));
            }
        }
        Err("the directory sends more answers than anybody has asked for".to_owned())
    }

    /// Says goodbye. A directory that does not listen any more has decided already.
    pub(super) fn close(mut self) {
        let id = self.next();
        let _ = self.write(&::ldap::unbind(id));
        if let Stream::Tls(stream) = &mut self.stream {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    }

    fn next(&mut self) -> i32 {
        self.requests += 1;
        self.requests
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        };
        written.map_err(|error| explained(&error))
    }

    /// The next answer to a request.
    fn answer(&mut self, id: i32) -> Result<Answer, String> {
        for _ in 0..MESSAGES_MAX {
            let message = self.message()?;
            match (message.id, message.answer) {
                (own, answer) if own == id => return Ok(answer),
                // A notice of disconnection (RFC 4511, section 4.4.1).
                (0, Answer::Extended(outcome)) => {
                    return Err(format!("the directory ends the connection: {outcome}"));
                }
                _ => {}
            }
        }
        Err("the directory answers other questions".to_owned())
    }

    fn message(&mut self) -> Result<Message, String> {
        loop {
            match ::ldap::decode(&self.buffer) {
                Ok(Some((message, length))) => {
                    self.buffer.drain(..length);
                    return Ok(message);
                }
                Ok(None) if self.buffer.len() <= MESSAGE_BYTES_MAX + READ_BYTES => self.read()?,
                Ok(None) | Err(_) => return Err(ODD.to_owned()),
            }
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let mut piece = [0; READ_BYTES];
        let length = match &mut self.stream {
            Stream::Plain(stream) => stream.read(&mut piece),
            Stream::Tls(stream) => stream.read(&mut piece),
        };
        match length {
            Ok(0) => Err("the directory has closed the connection".to_owned()),
            Ok(length) => {
                self.buffer.extend_from_slice(&piece[..length]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(explained(&error)),
        }
    }
}

const ODD: &str = "the directory sends something that is no answer";

fn explained(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Deadline::OVER.to_owned(),
        _ => error.to_string(),
    }
}

fn connect(place: &Place, deadline: &Deadline) -> Result<TcpStream, String> {
    let mut last = None;
    for address in place.resolver.addresses(deadline)? {
        match TcpStream::connect_timeout(&address, deadline.left()?) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(|error| error.to_string())?;
                return Ok(socket);
            }
            Err(error) => last = Some(explained(&error)),
        }
    }
    Err(last.unwrap_or_else(|| "there is no address".to_owned()))
}
