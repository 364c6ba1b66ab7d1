//! Requests for messages whose records are read from disk, and the results.

use base::{Message, QueueId};
use wire::PacketId;

use crate::record::{Address, MessageId};

/// A message that is to be read again.
#[derive(Debug)]
pub struct Wanted {
    /// Address of its record, a [`Record::Enqueue`](crate::Record::Enqueue).
    pub address: Address,
    pub(crate) of: Whose,
    pub(crate) size_bytes: usize,
}

/// The queue and message for which a read was requested, and the reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) queue: QueueId,
    pub(crate) message: MessageId,
    pub(crate) need: Need,
}

/// The reason why it is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    /// Its turn in the queue comes.
    Turn,
    /// The message has left the queue, and is to be sent again.
    Again(PacketId),
    /// An operator looks at it.
    Look,
}

/// The result of reading a message again.
#[derive(Debug)]
pub struct Fetched {
    /// The request that this answers.
    pub wanted: Wanted,
    /// The record at that address, or the reason why there is none.
    pub found: Found,
}

/// The result of reading at an address.
#[derive(Debug)]
pub enum Found {
    /// The message that stands there.
    Message(Message),
    /// Something else by now: the record was copied, and its address has changed.
    Moved,
    /// Nothing that can be read, or ever will be: the keeper of records tells the operator. Its queue goes no further.
    Damaged,
}
