//! Commands of a shard to the ledger.

use std::sync::Arc;

use base::{ConnectionId, Interest, Message, QueueId, Subscriber, Ticket};
use index::{Generation, Targets};
use wire::{PacketId, ReasonCode};

use crate::{CursorId, Delivered, Durability, EntryId, Origin};

/// What a shard asks for. The ledger knows the shard by whose inbox it came from.
#[derive(Debug)]
pub enum Command {
    /// A CONNECT wants its client identifier. Answered by [`Reply::Claimed`](crate::Reply::Claimed), when nobody else holds it any more.
    Claim(Box<Claim>),
    /// A connection that had claimed an identifier is over, and everything it posted has been posted.
    Left(Left),
    /// A session that lasts has subscribed, and the index has its filters; or any session has asked for a share.
    /// Answered by [`Reply::Recorded`](crate::Reply::Recorded).
    Subscribe {
        /// Whose.
        subscriber: Arc<Subscriber>,
        /// Its connection.
        connection: ConnectionId,
        /// Of the SUBSCRIBE, for the answer.
        packet_id: PacketId,
        /// Valid filters, `$share/{group}/` included, with what was granted.
        subscriptions: Vec<(Box<str>, Interest)>,
        /// Those of them that are to be brought what is retained; [`Command::Retained`] follows for each.
        retained: Vec<Box<str>>,
    },
    /// The end of subscriptions of those kinds; the index has them no more, but for groups. Answered by
    /// [`Reply::Recorded`](crate::Reply::Recorded).
    Unsubscribe {
        /// Whose.
        subscriber: Arc<Subscriber>,
        /// Its connection.
        connection: ConnectionId,
        /// Of the UNSUBSCRIBE, for the answer.
        packet_id: PacketId,
        /// Valid filters, subscribed to or not.
        filters: Vec<Box<str>>,
    },
    /// A message that needs one order with others, or that must last.
    Publish(Publish),
    /// PUBREL for a message of QoS 2 that was published by a session that lasts. Answered by [`Reply::Stored`](crate::Reply::Stored) with
    /// [`Ticket::PubComp`].
    Released {
        /// The publisher.
        origin: Origin,
        /// Of the exchange.
        packet_id: PacketId,
    },
    /// PUBREC for what was delivered with [`Delivered::Session`]. Answered by [`Reply::Stored`](crate::Reply::Stored) with
    /// [`Ticket::PubRel`].
    Received {
        /// The subscriber.
        origin: Origin,
        /// Of the exchange.
        packet_id: PacketId,
    },
    /// PUBACK, PUBCOMP, or a refusal in PUBACK or PUBREC: the exchange has ended.
    Acknowledged {
        /// What it was about.
        what: Delivered,
        /// The subscriber's connection.
        connection: ConnectionId,
        /// From 0x80 on the client has refused it; it counts as delivered \[MQTT-4.4.0-2\].
        reason: ReasonCode,
    },
    /// A message of a group has expired before it was written to a member that numbers its own packets.
    Expired {
        /// The group's queue.
        group: QueueId,
        /// Which of its messages.
        entry: EntryId,
        /// The member's connection.
        connection: ConnectionId,
    },
    /// A message of a group was written to a member that numbers its own packets.
    Sent {
        /// The group's queue.
        group: QueueId,
        /// Which of its messages.
        entry: EntryId,
        /// The member's connection.
        connection: ConnectionId,
    },
    /// Opens a cursor over the retained messages that match a filter. Answered by [`Reply::Begun`](crate::Reply::Begun).
    Retained {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Names the cursor in further commands.
        id: CursorId,
        /// The filter, without `$share`.
        filter: Box<str>,
        /// Its queue, if its session lasts: the cursor goes on where an earlier one for this subscription was. If that has
        /// come to its end, or there is no such subscription, so has this one.
        queue: Option<QueueId>,
    },
    /// What the last step of a cursor brought to a session that lasts ([`Reply::Retained`](crate::Reply::Retained)) is on its way to the client.
    /// What the step found beside goes into the session's queue.
    Took {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
    },
    /// The cursor may make its next step. Answered by [`Reply::Retained`](crate::Reply::Retained). For a session that lasts, the step is made when little waits in its queue.
    Credit {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
    },
    /// A piece of what a session has was taken in ([`Reply::Restore`](crate::Reply::Restore), [`Reply::Unfinished`](crate::Reply::Unfinished)), or there is nobody any more
    /// to whom it would matter.
    Restored {
        /// The connection that was told.
        connection: ConnectionId,
    },
    /// The cursor is not wanted any more.
    Close {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
    },
}

/// What a CONNECT asks for.
#[derive(Debug)]
pub struct Claim {
    /// The claimant, as it is if its session ends with this connection.
    pub subscriber: Arc<Subscriber>,
    /// Its connection.
    pub connection: ConnectionId,
    /// An earlier session is not wanted (Clean Start of MQTT 5.0, Clean Session before).
    pub clean_start: bool,
    /// How long the session is kept after the connection, in seconds: 0 not at all, [`u32::MAX`] for ever.
    pub expiry_secs: u32,
    /// So many messages of QoS 1 and 2 may be under way to the client at a time.
    pub window: u16,
    /// The largest packet the client takes.
    pub packet_bytes_max: u32,
    /// What it leaves behind.
    pub will: Option<Will>,
    /// What answers to the connection wait for.
    pub durability: Durability,
}

/// A message that is published when a connection ends (MQTT 5.0, 3.1.2.5).
#[derive(Debug, Clone)]
pub struct Will {
    /// Its expiry begins when it is published.
    pub message: Arc<Message>,
    /// It waits for so long, or until the session ends, in seconds.
    pub delay_secs: u32,
}

/// The end of a connection.
#[derive(Debug)]
pub struct Left {
    /// Who left.
    pub subscriber: Arc<Subscriber>,
    /// Its connection.
    pub connection: ConnectionId,
    /// Why.
    pub cause: Cause,
    /// The session's expiry as DISCONNECT has changed it, in seconds.
    pub expiry_secs: Option<u32>,
}

/// Why a connection ended, as far as it matters to its will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// DISCONNECT with 0x00: the will is not published \[MQTT-3.14.4-3\]. So it is when CONNECT was refused.
    Normal,
    /// Anything else.
    WithWill,
    /// Another connection has taken the identifier ([`Reply::Evict`](crate::Reply::Evict)).
    TakenOver,
}

/// A PUBLISH on the ledger's way.
#[derive(Debug)]
pub struct Publish {
    /// The publisher's connection; the server's own messages have none.
    pub connection: Option<ConnectionId>,
    /// The publisher's queue, if its session lasts.
    pub publisher: Option<QueueId>,
    /// [`Reply::Stored`](crate::Reply::Stored) answers with this, when what it promises is durable.
    pub ticket: Option<Ticket>,
    /// The message.
    pub message: Arc<Message>,
    /// Whom the shard found, unless it did not look. Looked up anew if subscriptions have changed since.
    pub route: Option<(Generation, Arc<Targets>)>,
}

impl Command {
    /// Whether the command is one of those that come by the million. The account of memory hears later of the changes that
    /// such commands make.
    #[must_use]
    pub fn is_about_a_message(&self) -> bool {
        matches!(
            self,
            Self::Publish(_)
                | Self::Acknowledged { .. }
                | Self::Received { .. }
                | Self::Released { .. }
                | Self::Sent { .. }
                | Self::Credit { .. }
        )
    }

    /// What it holds of memory while it waits, about.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        let filters = |filters: &[Box<str>]| filters.iter().map(|filter| filter.len() + 32).sum::<usize>();
        size_of::<Self>()
            + match self {
                Self::Publish(publish) => publish.message.size_bytes(),
                Self::Retained { filter, .. } => filter.len(),
                Self::Claim(claim) => {
                    size_of::<Claim>() + claim.will.as_ref().map_or(0, |will| will.message.size_bytes())
                }
                Self::Subscribe { subscriptions, retained, .. } => {
                    let all: usize = subscriptions.iter().map(|(filter, _)| filter.len() + 32).sum();
                    all + filters(retained)
                }
                Self::Unsubscribe { filters: all, .. } => filters(all),
                _ => 0,
            }
    }
}
