//! What shards and the ledger say to each other.

use std::sync::Arc;

use index::{ConnectionId, Generation, Identifiers, Interest, QueueId, Subscriber, Target, Targets};
use session::{Message, Ticket};
use wire::{PacketId, Qos, ReasonCode};

use crate::Durability;

/// Tells the cursors of one connection apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub u32);

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

/// What a shard asks for. The ledger knows the shard by whose inbox it came from.
#[derive(Debug)]
pub enum Command {
    /// A CONNECT wants its client identifier. Answered by [`Reply::Claimed`], when nobody else holds it any more.
    Claim(Box<Claim>),
    /// A connection that had claimed an identifier is over, and everything it posted has been posted.
    Left(Left),
    /// A session that lasts has subscribed, and the index has its filters; or any session has asked for a share.
    /// Answered by [`Reply::Recorded`].
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
    /// [`Reply::Recorded`].
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
    /// PUBREL for a message of QoS 2 that was published by a session that lasts. Answered by [`Reply::Stored`] with
    /// [`Ticket::PubComp`].
    Released {
        /// The publisher.
        origin: Origin,
        /// Of the exchange.
        packet_id: PacketId,
    },
    /// PUBREC for what was delivered with [`Delivered::Session`]. Answered by [`Reply::Stored`] with
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
    /// Opens a cursor over the retained messages that match a filter. Answered by [`Reply::Begun`].
    Retained {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Names the cursor in further commands.
        id: CursorId,
        /// The filter, without `$share`.
        filter: Box<str>,
        /// Its queue, if its session lasts: the cursor goes on where an earlier one for this subscription was, if that
        /// has not come to its end.
        queue: Option<QueueId>,
    },
    /// The step of a cursor has come to a session that lasts: its values of QoS 1 and 2 wait in its queue, with RETAIN 1,
    /// and those of QoS 0 are sent.
    Queue {
        /// The subscriber.
        origin: Origin,
        /// Which of its cursors.
        id: CursorId,
        /// In the order of the cursor.
        messages: Vec<Arc<Message>>,
        /// What its subscription asks for.
        interest: Interest,
    },
    /// The cursor may make its next step. Answered by [`Reply::Retained`].
    Credit {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
        /// Its queue, if its session lasts: the step is made when nothing waits there, and is no larger than half of it.
        queue: Option<QueueId>,
    },
    /// A piece of what a session has was taken in ([`Reply::Restore`], [`Reply::Unfinished`]), or there is nobody any more
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
    /// Another connection has taken the identifier ([`Reply::Evict`]).
    TakenOver,
}

/// A PUBLISH on the ledger's way.
#[derive(Debug)]
pub struct Publish {
    /// The publisher's connection; the server's own messages have none.
    pub connection: Option<ConnectionId>,
    /// The publisher's queue, if its session lasts.
    pub publisher: Option<QueueId>,
    /// [`Reply::Stored`] answers with this, when what it promises is durable.
    pub ticket: Option<Ticket>,
    /// The message.
    pub message: Arc<Message>,
    /// Whom the shard found, unless it did not look. Looked up anew if subscriptions have changed since.
    pub route: Option<(Generation, Arc<Targets>)>,
}

/// What a client has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// A message with a packet identifier of the ledger.
    Session {
        /// The session's queue.
        queue: QueueId,
        /// The identifier.
        packet_id: PacketId,
    },
    /// A message of a group, to a member that numbers its own packets.
    Group {
        /// The group's queue.
        group: QueueId,
        /// Which of its messages.
        entry: EntryId,
    },
}

impl Command {
    /// Whether it is one of those that come by the million: what it changes, the account hears in a while.
    pub(crate) fn is_about_a_message(&self) -> bool {
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
                Self::Queue { messages, .. } => messages.iter().map(|message| message.size_bytes()).sum(),
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

/// What the ledger tells a shard.
#[derive(Debug)]
pub enum Reply {
    /// Somebody else has claimed the identifier: close this connection, then answer [`Command::Left`].
    Evict {
        /// The one that holds the identifier, or waited for it.
        connection: ConnectionId,
    },
    /// The identifier is this connection's.
    Claimed(Box<Claimed>),
    /// Before that, of a session with many subscriptions: some of their filters. Answered by [`Command::Restored`].
    Restore {
        /// The connection that claims the session.
        connection: ConnectionId,
        /// Groups included.
        filters: Vec<Box<str>>,
    },
    /// After it, if [`Claimed::has_more_unfinished`] says so: some of the subscriptions that have not been brought
    /// everything that is retained, as [`Claimed::unfinished`] has them. Answered by [`Command::Restored`].
    Unfinished {
        /// The connection that has the session.
        connection: ConnectionId,
        /// [`Command::Retained`] goes on with them.
        subscriptions: Vec<(Box<str>, Interest)>,
        /// There are no others: the client may be read.
        is_last: bool,
    },
    /// The identifier cannot be had: what would have to be recorded cannot be.
    Refused {
        /// The claimant.
        connection: ConnectionId,
        /// 0x88 or 0x97.
        reason: ReasonCode,
    },
    /// Subscriptions are recorded, or their end is.
    Recorded {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Of the packet that is to be answered.
        packet_id: PacketId,
        /// Success, or why it could not be: then nothing has changed in the ledger.
        reason: ReasonCode,
        /// Of what was to be subscribed to, what is refused because there are too many groups (0x97): its place in the
        /// command, and its filter.
        refused: Vec<(usize, Box<str>)>,
    },
    /// A publisher's message has got its place in the order; later ones may go straight again.
    Decided {
        /// The publisher.
        connection: ConnectionId,
    },
    /// What a ticket stands for is durable, or was refused.
    Stored {
        /// Who waits.
        connection: ConnectionId,
        /// For what.
        ticket: Ticket,
        /// What the answer says.
        reason: ReasonCode,
    },
    /// A message for subscribers on this shard, at once.
    Live {
        /// The message.
        message: Arc<Message>,
        /// Whom it goes to. Those for whom it is queued too ([`Target::is_queued`]) get it from their queue.
        targets: Arc<[Target]>,
        /// It is the retained value of its topic now.
        stored: bool,
    },
    /// A message out of a queue.
    Deliver(Box<Deliver>),
    /// After a reconnect: PUBREL is to be sent again \[MQTT-4.4.0-1\].
    Release {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Of the exchange.
        packet_id: PacketId,
    },
    /// The session has ended while its client was connected, because its queue was full; or what the connection
    /// waits for can never be durable. Close it.
    Ended {
        /// The connection.
        connection: ConnectionId,
        /// What it is told: 0x97 or 0x80.
        reason: ReasonCode,
    },
    /// A cursor is open: what is published from now on comes to its subscription live, and the cursor leaves it
    /// out. It waits for [`Command::Credit`].
    Begun {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
        /// Nothing matches: the cursor is closed already.
        is_over: bool,
    },
    /// One step of a cursor.
    Retained {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
        /// What it found.
        messages: Vec<Arc<Message>>,
        /// The cursor is at its end; otherwise it waits for [`Command::Credit`].
        done: bool,
    },
}

impl Reply {
    /// Whom it is for; a message for many is for nobody in particular.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
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

    /// What it holds of memory while it waits, about.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Live { message, .. } => message.size_bytes(),
                Self::Deliver(deliver) => size_of::<Deliver>() + deliver.message.size_bytes(),
                Self::Retained { messages, .. } => {
                    messages.iter().map(|message| size_of::<Arc<Message>>() + message.size_bytes()).sum()
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

/// What a connection gets with its identifier.
#[derive(Debug)]
pub struct Claimed {
    /// The claimant.
    pub connection: ConnectionId,
    /// It as others see it: the one that was claimed with, or that of the session which lasts.
    pub subscriber: Arc<Subscriber>,
    /// There was a session, and this connection goes on with it.
    pub session_present: bool,
    /// Its subscriptions, groups included; none if they have come bit by bit ([`Reply::Restore`]).
    pub subscriptions: Vec<(Box<str>, Interest)>,
    /// Those that have not been brought everything that is retained: [`Command::Retained`] goes on with them.
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
    /// The subscriber's connection.
    pub connection: ConnectionId,
    /// What it is in the ledger.
    pub what: Delivered,
    /// The message.
    pub message: Arc<Message>,
    /// What it is sent with, 1 or 2.
    pub qos: Qos,
    /// RETAIN as it is sent.
    pub retain: bool,
    /// It was sent before, on an earlier connection.
    pub dup: bool,
    /// The identifiers of the subscriptions that it comes for.
    pub identifiers: Identifiers,
}
