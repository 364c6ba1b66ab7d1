//! Names that commands and replies share: cursors, entries of queues, exchanges.

use std::sync::Arc;

use base::{ConnectionId, Message, QueueId};
use wire::PacketId;

/// Tells the cursors of one connection apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub u32);

/// The number of a message. It grows. After a restart, a number may be given again if no record is left with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// A message and its number, which says whether two messages are the same one.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// The number of the message.
    pub id: MessageId,
    /// It is shared by all that have it.
    pub message: Arc<Message>,
}

/// One message in one queue. Grows within a queue and is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

/// A connection with the lasting session on it. Once the connection has left, what it says is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The queue of the session.
    pub queue: QueueId,
    /// The connection that has it.
    pub connection: ConnectionId,
}

/// A message that a client has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// A message with a packet identifier of the ledger.
    Session {
        /// The queue of the session.
        queue: QueueId,
        /// Packet identifier of the message.
        packet_id: PacketId,
    },
    /// A message of a group, to a member that numbers its own packets.
    Group {
        /// The queue of the group.
        group: QueueId,
        /// Number of the message in the queue.
        entry: EntryId,
    },
}
