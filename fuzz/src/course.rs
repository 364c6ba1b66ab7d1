//! One connection through all layers, from its first byte to its end, with a broker that sends back what it reads.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use inputs::Cut;
use layers::{Layered, Stack};
use stream::Stream;

use crate::link::Link;

/// Maximum number of calls in a row that neither read from the link nor return anything. A layer may hold what was read from
/// the link, and a reader with a small buffer needs a call for each byte of that.
const IDLE_CALLS_MAX: usize = 200_000;
/// Maximum memory of all layers beyond twice the buffer of the reader, in bytes: a PROXY header, the head of a request and a
/// handshake, each in a vector that grows by doubling.
const HELD_BYTES_MAX: usize = 2 * (16 + 8 + 96 + 64) * 1_024;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The peer has ended it.
    Peer,
    /// A layer has refused it.
    Refused,
}

/// Results of a connection, apart from those that the cut decides.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes for the session.
    pub read: Vec<u8>,
    pub end: End,
    /// The client that a PROXY header names.
    pub peer: Option<String>,
    /// Bytes that the peer has received.
    pub written: Vec<u8>,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, end, peer, written } = self;
        write!(f, "{end:?}, peer {peer:?}, read {}, written {}", read.escape_ascii(), written.escape_ascii())
    }
}

/// Runs a connection on which everything that the peer sends has arrived in `link`.
///
/// # Panics
/// A layer goes round in circles, holds too much, or writes something behind the end.
pub fn run(stack: Arc<Stack>, link: &Link, cut: &Cut<'_>) -> Outcome {
    go_on(Layered::new(link.clone(), stack), link, cut)
}

/// The same for a connection of which something has been read.
///
/// # Panics
/// As [`run`] does.
pub fn go_on(connection: Layered<Link>, link: &Link, cut: &Cut<'_>) -> Outcome {
    let mut course = Course {
        connection,
        link,
        room_bytes: cut.room_bytes,
        peer: None,
        received: Vec::new(),
        held_bytes_max: HELD_BYTES_MAX + 2 * cut.buffer_bytes,
    };
    link.set_room(cut.room_bytes);
    let mut buffer = vec![0; cut.buffer_bytes];
    let (mut read, mut idle_calls) = (Vec::new(), 0);
    let end = loop {
        let reads = link.reads();
        match course.connection.read(&mut buffer) {
            Ok(received) if received.bytes == 0 => break End::Peer,
            Ok(received) => {
                read.extend_from_slice(&buffer[..received.bytes]);
                idle_calls = 0;
                course.look();
                course.write(&buffer[..received.bytes]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                idle_calls = if link.reads() == reads { idle_calls + 1 } else { 0 };
                assert!(idle_calls <= IDLE_CALLS_MAX, "a layer goes round in circles");
                course.look();
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
                break End::Refused;
            }
        }
    };
    course.look();
    course.flush();
    course.connection.shut_down_write();
    course.flush();
    assert!(link.is_shut(), "the end leaves behind everything else");
    course.receive();
    Outcome { read, end, peer: course.peer, written: course.received }
}

struct Course<'a> {
    connection: Layered<Link>,
    link: &'a Link,
    room_bytes: usize,
    peer: Option<String>,
    received: Vec<u8>,
    held_bytes_max: usize,
}

impl Course<'_> {
    /// Does the same as the broker after each read.
    fn look(&mut self) {
        if let Some(peer) = self.connection.take_peer() {
            assert!(self.peer.is_none(), "a peer is told once");
            self.peer = Some(peer.to_string());
        }
        let held_bytes = self.connection.held_bytes();
        assert!(held_bytes <= self.held_bytes_max, "{held_bytes} bytes are held");
        // The peer takes nothing before the broker has something else to write.
        if self.connection.wants_write()
            && let Err(error) = self.connection.flush()
        {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        }
        if self.connection.wants_write() {
            let held_bytes = self.connection.held_bytes();
            drop(self.connection.flush());
            assert_eq!(
                self.connection.held_bytes(),
                held_bytes,
                "an attempt to write holds more than before"
            );
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() {
            // Two pieces: a frame may end in the middle of the second.
            let (first, second) = left.split_at(left.len() / 2);
            match self.connection.write(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(written) => {
                    assert!(written > 0 && written <= left.len(), "{written} of {}", left.len());
                    left = &left[written..];
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    self.receive();
                }
            }
        }
    }

    fn flush(&mut self) {
        while self.connection.wants_write() {
            if let Err(error) = self.connection.flush() {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
            }
            self.receive();
        }
    }

    fn receive(&mut self) {
        let written = self.link.receive();
        self.received.extend_from_slice(&written);
        self.link.set_room(self.room_bytes);
    }
}
