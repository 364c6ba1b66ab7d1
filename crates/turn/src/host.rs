//! The traits that a turn calls beside streams: the poller, the ways between threads.

use std::io;

use auth::{Check, Unchecked, Wish};
use base::{ConnectionId, ShardId};
use broker::{ControlBusy, ControlRequest, Notice};
use stream::{Peer, Stream};

use crate::letter::{Answers, Letter, ToLedger};

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
