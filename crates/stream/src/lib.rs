//! The connection that an event loop reads and writes, whatever carries it: a socket, or a layer over another stream.
//!
//! A [`Stream`] never blocks, and says whether it has been read to its end for now ([`Received`]). A poller announces changes
//! ([`Readiness`]). The other end has a name for the log ([`Peer`]).

#![forbid(unsafe_code)]

mod peer;

use std::io::{self, IoSlice};

use base::CertificateName;

pub use peer::Peer;

/// The broker's end of a connection: two streams of bytes, neither of which ever blocks.
pub trait Stream {
    /// Reads bytes that have arrived, as many as `buffer` takes.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing now, [`Interrupted`](io::ErrorKind::Interrupted) if
    /// the call is to be repeated; any other error ends the connection.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Whether a read would give anything but [`WouldBlock`](io::ErrorKind::WouldBlock): bytes, the end, or an error.
    fn has_arrived(&mut self) -> bool;

    /// Writes the pieces, in their order, or a part of them. Returns how many bytes were written.
    ///
    /// # Errors
    /// As for [`read`](Self::read); [`WouldBlock`](io::ErrorKind::WouldBlock) if the stream takes nothing now.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Writes what the stream has taken and still keeps for itself: an answer that a layer owes its peer, or the rest of a
    /// record. A socket keeps nothing.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether [`flush`](Self::flush) has something to write.
    fn wants_write(&self) -> bool {
        false
    }

    /// Whether a read costs much more than its bytes say, as one of a handshake does.
    fn is_costly(&mut self) -> bool {
        false
    }

    /// Whether the peer expects an answer to its end, or to what it did wrong, although nobody writes any more.
    fn owes_goodbye(&self) -> bool {
        false
    }

    /// Bytes of memory that the stream holds beyond its own size.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The peer, if the stream has learned of another one than it was accepted with. Told once.
    fn take_peer(&mut self) -> Option<Peer> {
        None
    }

    /// The user name in the certificate that the peer has shown; `None` without a certificate, and without exactly one such
    /// name in it.
    fn certificate_name(&mut self, _name: CertificateName) -> Option<String> {
        None
    }

    /// The channel binding of the connection (`tls-exporter` of RFC 9266); `None` without TLS 1.3.
    fn channel_binding(&mut self) -> Option<[u8; 32]> {
        None
    }

    /// Tells the peer that nothing more is written, behind what the stream still keeps. The peer may be gone already.
    fn shut_down_write(&mut self);
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes that were read; 0 is the end of the stream.
    pub bytes: usize,
    /// There was nothing more to read: bytes that arrive from now on are announced anew.
    pub is_drained: bool,
}

/// A change of a stream, as the poller reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes have arrived, or the peer has closed its direction.
    pub readable: bool,
    /// The stream takes bytes again.
    pub writable: bool,
    /// The peer has closed its direction, or the stream has failed.
    pub ending: bool,
    /// The stream has failed, as after a reset: nobody reads an answer any more. A stream may fail without this.
    pub failed: bool,
}
