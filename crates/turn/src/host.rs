//! The traits that a turn calls: streams, the poller, the ways between threads.

use core::net::SocketAddr;
use std::fmt;
use std::io::{self, IoSlice};

use auth::{Check, Unchecked, Wish};
use base::{ConnectionId, ShardId};
use broker::{CertificateName, ControlBusy, ControlRequest, Notice};

use crate::letter::{Answers, Letter, ToLedger};

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
    /// There was nothing more to read: bytes that arrive from now on are announced anew, see [`Host::watch`].
    pub is_drained: bool,
}

/// The outside of a shard beside its streams: the poller, the ways to other threads, random numbers, the log.
pub trait Host {
    /// Connections of this shard.
    type Stream: Stream;

    /// Begins to watch a stream. Each change is announced once ([`ShardLoop::woken`](crate::ShardLoop::woken)): bytes have
    /// arrived, the peer has closed its direction, or the stream takes bytes again after it would have blocked.
    ///
    /// # Errors
    /// The stream cannot be watched.
    fn watch(&mut self, stream: &mut Self::Stream, id: ConnectionId) -> io::Result<()>;

    /// Stops watching a stream, which is dropped next.
    fn unwatch(&mut self, stream: &mut Self::Stream);

    /// Appends a letter to a shard's inbox, and wakes the shard.
    fn post(&mut self, to: ShardId, letter: Letter<Self::Stream>);

    /// The same for the ledger.
    fn post_to_ledger(&mut self, letter: ToLedger);

    /// Moves the letters that have arrived to the end of `into`, in the order in which they were posted.
    fn take_letters(&mut self, into: &mut Vec<Letter<Self::Stream>>);

    /// Has a password of a connection of this shard checked elsewhere. The outcome comes as a
    /// [`Note::Verified`](crate::Note::Verified), unless the returned wish ends before.
    ///
    /// # Errors
    /// The password is not checked, and no note comes.
    fn verify(
        &mut self,
        now_ms: u64,
        connection: ConnectionId,
        peer: &Peer,
        check: Check,
    ) -> Result<Wish, Unchecked>;

    /// Has the commands of an administrator carried out elsewhere. The outcome comes as a
    /// [`Note::Controlled`](crate::Note::Controlled).
    ///
    /// # Errors
    /// The commands are not carried out, and no note comes.
    fn control(&mut self, _connection: ConnectionId, _request: ControlRequest) -> Result<(), ControlBusy> {
        Err(ControlBusy)
    }

    /// A number that nobody can guess.
    fn random(&mut self) -> u128;

    /// A line for the log, at this moment of the monotonic clock.
    fn notice(&mut self, now_ms: u64, connection: ConnectionId, peer: &Peer, notice: Notice<'_>);

    /// A new connection cannot be watched; it is closed.
    fn not_watched(&mut self, peer: &Peer, error: &io::Error);

    /// The limits of this reload are in force on the shard.
    fn reloaded(&mut self, _reload: u64) {}
}

/// The outside of the ledger: the ways to the shards.
pub trait LedgerHost {
    /// Appends answers to a shard's inbox, and wakes the shard.
    fn post_answers(&mut self, to: ShardId, answers: Answers);

    /// The same for [`Note::CommandsRead`](crate::Note::CommandsRead).
    fn post_commands_read(&mut self, to: ShardId);

    /// The limits of this reload are in force in the ledger.
    fn reloaded(&mut self, _reload: u64) {}

    /// A lasting session has ended because its queue, or that of its group, was full, and this number of messages with it. The
    /// client identifier may be cut.
    fn ended_by_full_queue(&mut self, _client_id: &str, _messages: usize) {}

    /// This number of further sessions has ended in the same turn for the same reason.
    fn more_ended_by_full_queues(&mut self, _sessions: u64) {}
}

/// The other end of a connection, as the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// An address and port of a network.
    Inet(SocketAddr),
    /// A process of this machine, with its user and process ids as far as the system tells them.
    Process {
        /// Number of its user.
        uid: Option<u32>,
        /// Number of the process.
        pid: Option<u32>,
    },
    /// A connection of a simulated network.
    Simulated(usize),
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Process { uid: Some(uid), pid: Some(pid) } => write!(f, "unix:uid={uid},pid={pid}"),
            Self::Process { uid: Some(uid), pid: None } => write!(f, "unix:uid={uid}"),
            Self::Process { uid: None, .. } => f.write_str("unix"),
            Self::Simulated(link) => write!(f, "link {link}"),
        }
    }
}
