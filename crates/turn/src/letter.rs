//! The letters that threads send each other.

use std::sync::Arc;

use auth::Checked;
use base::{Charge, ConnectionId, ShardId};
use broker::{Admission, ControlAnswer, Dismissal, Settings};
use protocol::{Command, Durability, Reply};
use stream::Peer;

use crate::ask::{AskLedger, AskShard};
use crate::batch::Batch;
use crate::board::Board;
use crate::census::AskCensus;
use crate::trace::Trace;

/// A letter to a shard.
pub enum Letter<S> {
    /// Replies of the ledger.
    Answers(Answers),
    /// A letter without replies, which is handled in one piece.
    Note(Note<S>),
}

/// Replies of the ledger to one shard, in their order.
pub struct Answers {
    pub(crate) replies: Vec<Reply>,
    /// Weight of all replies, in bytes.
    pub(crate) bytes: usize,
    pub(crate) charge: Charge,
}

impl Answers {
    /// The replies in their order.
    #[must_use]
    pub fn replies(&self) -> &[Reply] {
        &self.replies
    }

    /// Takes out the replies, for a reader that is no [`ShardLoop`](crate::ShardLoop). The board then knows that the shard
    /// has read them. A ledger that waits for this goes on with its next turn, and is not woken.
    #[must_use]
    pub fn read(self, by: ShardId, board: &Board) -> Vec<Reply> {
        board.answers(by).handled(self.bytes);
        self.replies
    }
}

/// A letter without replies of the ledger.
pub enum Note<S> {
    /// The mail of one turn of another shard.
    Mail {
        /// The shard that sent it.
        from: ShardId,
        /// Its mail for this shard.
        batch: Box<Batch>,
    },
    /// A new connection for this shard.
    Accepted(Accepted<S>),
    /// That shard has read this one's mail; publishers that waited for this go on.
    MailRead(ShardId),
    /// The ledger has read this shard's commands.
    CommandsRead,
    /// The password of a connection was checked ([`Host::verify`](crate::Host::verify)).
    Verified {
        /// The connection, which may be gone.
        connection: ConnectionId,
        /// The outcome of the check.
        checked: Checked,
    },
    /// A question of an operator, or an order.
    Ask(Box<AskShard>),
    /// A question of an operator about the busiest.
    Census(AskCensus),
    /// Commands of a connection were carried out ([`Host::control`](crate::Host::control)).
    Controlled {
        /// The connection, which may be gone.
        connection: ConnectionId,
        /// The message with the answers, for everybody who may read them.
        answer: ControlAnswer,
    },
    /// Users have changed: clients whose user was removed go.
    UsersChanged,
    /// Other limits, see [`Limits`].
    Limits(Limits),
    /// Begin a trace, in the place of the last one.
    Trace(Arc<Trace>),
    /// The trace of this number has ended.
    TraceEnded(u32),
    /// A reload has removed a listener, or has changed its rules. The listener gives this number to no more connections.
    Dismiss {
        /// The place of the listener among all.
        listener: u16,
        /// The clients that are to leave.
        whom: Dismissal,
    },
    /// Say goodbye to all clients and end.
    Shutdown,
}

/// Limits of a shard that a reload can change.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Features and limits of the protocol.
    pub settings: Arc<Settings>,
    /// See [`Bounds::output`](crate::Bounds::output).
    pub output_bytes: usize,
    /// See [`Bounds::outputs`](crate::Bounds::outputs).
    pub outputs_bytes: usize,
    /// The number of the reload, for [`Host::reloaded`](crate::Host::reloaded).
    pub reload: u64,
}

/// A connection that a listener has accepted.
pub struct Accepted<S> {
    /// The broker's end of the connection.
    pub stream: S,
    /// The address of the other end.
    pub peer: Peer,
    /// The rules of its listener.
    pub admission: Admission,
    /// The place of its listener among all, see [`Board::charge_listener`](crate::Board::charge_listener).
    pub listener: u16,
}

/// A letter to the ledger.
pub enum ToLedger {
    /// The commands of one turn of a shard.
    Commands {
        /// The shard that sent them.
        from: ShardId,
        /// The commands in the order in which the shard gave them.
        commands: Vec<Command>,
        /// Weight of all commands, in bytes.
        bytes: usize,
    },
    /// A question of an operator, or an order.
    Ask(Box<AskLedger>),
    /// Other limits. They hold from here on, also for commands that wait.
    Settings {
        /// The limits, of which the ledger takes those that may change.
        settings: Box<ledger::Settings>,
        /// The most that anybody waits for.
        durability: Durability,
        /// The number of the reload, for [`LedgerHost::reloaded`](crate::LedgerHost::reloaded).
        reload: u64,
    },
    /// A shard has read answers, and the ledger waits for that.
    AnswersRead,
    /// All shards have ended.
    Stop,
}

impl<S> From<Note<S>> for Letter<S> {
    fn from(note: Note<S>) -> Self {
        Self::Note(note)
    }
}
