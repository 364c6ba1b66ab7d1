//! Replies of the ledger to a shard.

use std::sync::Arc;

use base::{ConnectionId, Identifiers, Interest, Message, Subscriber, Ticket};
use index::Target;
use wire::{PacketId, Qos, ReasonCode};

use crate::{CursorId, Delivered, MessageId, Numbered};

/// Messages from the ledger to a shard.
#[derive(Debug)]
pub enum Reply {
    /// Another connection has claimed the identifier: close this connection, then answer
    /// [`Command::Left`](crate::Command::Left).
    Evict {
        /// The one that holds the identifier, or waited for it.
        connection: ConnectionId,
    },
    /// The identifier is this connection's.
    Claimed(Box<Claimed>),
    /// Before that, of a session with many subscriptions: some of their filters. Answered by
    /// [`Command::Restored`](crate::Command::Restored).
    Restore {
        /// The connection that claims the session.
        connection: ConnectionId,
        /// Topic filters, including those of groups.
        filters: Vec<Box<str>>,
    },
    /// After it, if [`Claimed::has_more_unfinished`] says so: some of the subscriptions that have not been brought
    /// everything that is retained, as [`Claimed::unfinished`] has them. Answered by
    /// [`Command::Restored`](crate::Command::Restored).
    Unfinished {
        /// The connection that has the session.
        connection: ConnectionId,
        /// [`Command::Retained`](crate::Command::Retained) goes on with them.
        subscriptions: Vec<(Box<str>, Interest)>,
        /// There are no others: the client may be read.
        is_last: bool,
    },
    /// The identifier cannot be had: what would have to be recorded cannot be.
    Refused {
        /// The connection that has claimed the identifier.
        connection: ConnectionId,
        /// 0x88 or 0x97.
        reason: ReasonCode,
    },
    /// Subscriptions are recorded, or their end is.
    Recorded {
        /// The connection of the subscriber.
        connection: ConnectionId,
        /// Packet identifier of the SUBSCRIBE or UNSUBSCRIBE.
        packet_id: PacketId,
        /// Success, or why it could not be: then nothing has changed in the ledger.
        reason: ReasonCode,
        /// Subscriptions that were refused because there are too many groups (0x97): place in the command, and filter.
        refused: Vec<(usize, Box<str>)>,
    },
    /// A publisher's message has got its place in the order; later ones may go straight again.
    Decided {
        /// The connection of the publisher.
        connection: ConnectionId,
    },
    /// The operation of a ticket is durable, or was refused.
    Stored {
        /// The connection that waits for the operation.
        connection: ConnectionId,
        /// The operation, and the packet that answers it.
        ticket: Ticket,
        /// Reason code of the answer.
        reason: ReasonCode,
    },
    /// A message for subscribers on this shard, at once.
    Live {
        /// The message to deliver.
        message: Arc<Message>,
        /// Whom it goes to. Those for whom it is queued too ([`Target::is_queued`]) get it from their queue.
        targets: Arc<[Target]>,
        /// The number of the message, if it is the retained value of its topic now.
        value: Option<MessageId>,
    },
    /// A message out of a queue. Not boxed: an allocation for each message costs more than the larger reply.
    Deliver(Deliver),
    /// After a reconnect: PUBREL is to be sent again \[MQTT-4.4.0-1\].
    Release {
        /// The connection of the subscriber.
        connection: ConnectionId,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
    },
    /// The session has ended while its client was connected, because its queue was full; or what the connection
    /// waits for can never be durable. Close it.
    Ended {
        /// The connection to close.
        connection: ConnectionId,
        /// Reason code for the client: 0x97 or 0x80.
        reason: ReasonCode,
    },
    /// A cursor is open: what is published from now on comes to its subscription live, and the cursor leaves it
    /// out. It waits for [`Command::Credit`](crate::Command::Credit).
    Begun {
        /// The connection of the subscriber.
        connection: ConnectionId,
        /// Number of the cursor.
        id: CursorId,
        /// Nothing matches: the cursor is closed already.
        is_over: bool,
    },
    /// One step of a cursor.
    Retained {
        /// The connection of the subscriber.
        connection: ConnectionId,
        /// Number of the cursor.
        id: CursorId,
        /// Messages found in this step. For a lasting session, only those that are sent at QoS 0: the others go into
        /// its queue.
        messages: Vec<Numbered>,
        /// The cursor is at its end; otherwise it waits for [`Command::Credit`](crate::Command::Credit).
        done: bool,
    },
}

// A reply is moved several times on its way. `Deliver` is the largest variant.
const _: () = assert!(size_of::<Reply>() <= 56);

impl Reply {
    /// Whom it is for; a message for many is for nobody in particular.
    #[must_use]
    pub fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Evict { connection }
            | Self::Refused { connection, .. }
            | Self::Recorded { connection, .. }
            | Self::Decided { connection }
            | Self::Stored { connection, .. }
            | Self::Release { connection, .. }
            | Self::Ended { connection, .. }
            | Self::Begun { connection, .. }
            | Self::Restore { connection, .. }
            | Self::Unfinished { connection, .. }
            | Self::Retained { connection, .. } => Some(*connection),
            Self::Claimed(claimed) => Some(claimed.connection),
            Self::Deliver(deliver) => Some(deliver.connection),
            Self::Live { .. } => None,
        }
    }

    /// Approximate memory of the reply while it waits, in bytes.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Live { message, .. } => message.size_bytes(),
                Self::Deliver(deliver) => deliver.message.size_bytes(),
                Self::Retained { messages, .. } => {
                    messages.iter().map(|found| size_of::<Numbered>() + found.message.size_bytes()).sum()
                }
                Self::Claimed(claimed) => size_of::<Claimed>() + weight(&claimed.subscriptions),
                Self::Restore { filters, .. } => {
                    filters.iter().map(|filter| filter.len() + FILTER_WEIGHT).sum::<usize>()
                }
                Self::Unfinished { subscriptions, .. } => weight(subscriptions),
                _ => 0,
            }
    }
}

/// The memory of a filter in a message between threads, beside its text, about.
const FILTER_WEIGHT: usize = 32;

fn weight(subscriptions: &[(Box<str>, Interest)]) -> usize {
    subscriptions.iter().map(|(filter, _)| filter.len() + FILTER_WEIGHT).sum()
}

/// The answer to a connection that has got its identifier.
#[derive(Debug)]
pub struct Claimed {
    /// The connection that has claimed the identifier.
    pub connection: ConnectionId,
    /// The subscriber that other parts use: the one that was claimed with, or the one of the lasting session.
    pub subscriber: Arc<Subscriber>,
    /// There was a session, and this connection goes on with it.
    pub session_present: bool,
    /// Its subscriptions, groups included; none if they have come bit by bit ([`Reply::Restore`]).
    pub subscriptions: Vec<(Box<str>, Interest)>,
    /// Subscriptions that have not received all retained messages: [`Command::Retained`](crate::Command::Retained) goes
    /// on with them.
    pub unfinished: Vec<(Box<str>, Interest)>,
    /// These come bit by bit ([`Reply::Unfinished`]), and the client is not read before the last has come: until then
    /// nothing about its subscriptions changes.
    pub has_more_unfinished: bool,
    /// Messages of QoS 2 that the client has published and not released.
    pub unreleased: Vec<PacketId>,
}

/// A message out of a queue, on its way to one client.
#[derive(Debug)]
pub struct Deliver {
    /// The connection of the subscriber.
    pub connection: ConnectionId,
    /// The message as the ledger knows it.
    pub what: Delivered,
    /// The message to send.
    pub message: Arc<Message>,
    /// QoS of the PUBLISH packet, 1 or 2.
    pub qos: Qos,
    /// RETAIN as it is sent.
    pub retain: bool,
    /// The message was sent before, on an earlier connection.
    pub dup: bool,
    /// The identifiers of the subscriptions that it comes for.
    pub identifiers: Identifiers,
}
