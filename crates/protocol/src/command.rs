//! Commands of a shard to the ledger.

use std::sync::Arc;

use base::{ConnectionId, Interest, Message, QueueId, Subscriber, Ticket};
use index::{Generation, Targets};
use wire::{PacketId, ReasonCode};

use crate::{CursorId, Delivered, Durability, EntryId, Origin};

/// A command of a shard. The inbox in which the command arrives identifies the shard.
#[derive(Debug)]
pub enum Command {
    /// Claims the client identifier of a CONNECT. Answered by [`Reply::Claimed`](crate::Reply::Claimed) when no other
    /// connection has the identifier any more.
    Claim(Box<Claim>),
    /// Reports the end of a connection that had claimed an identifier, after all its other commands.
    Left(Left),
    /// Records filters that a lasting session has subscribed to, and that are in the index; or the shared filters of
    /// any session. Answered by [`Reply::Recorded`](crate::Reply::Recorded).
    Subscribe {
        /// The session that has subscribed.
        subscriber: Arc<Subscriber>,
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Packet identifier of SUBSCRIBE, for the answer.
        packet_id: PacketId,
        /// Valid filters, `$share/{group}/` included, with their granted options.
        subscriptions: Vec<(Box<str>, Interest)>,
        /// Indexes of the filters that get retained messages; [`Command::Retained`] follows for each.
        retained: Vec<Box<str>>,
    },
    /// Ends such subscriptions. The index no longer has them, except those of groups. Answered by
    /// [`Reply::Recorded`](crate::Reply::Recorded).
    Unsubscribe {
        /// The session that has unsubscribed.
        subscriber: Arc<Subscriber>,
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Packet identifier of UNSUBSCRIBE, for the answer.
        packet_id: PacketId,
        /// Valid filters, with or without a subscription.
        filters: Vec<Box<str>>,
    },
    /// Publishes a message that must be stored, or that needs one order with others.
    Publish(Publish),
    /// PUBREL for a message of QoS 2 from a lasting session. Answered by [`Reply::Stored`](crate::Reply::Stored) with
    /// [`Ticket::PubComp`].
    Released {
        /// Subscriber of the publishing session.
        origin: Origin,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
    },
    /// PUBREC for a message that was delivered with [`Delivered::Session`]. Answered by
    /// [`Reply::Stored`](crate::Reply::Stored) with [`Ticket::PubRel`].
    Received {
        /// The session that has received the message.
        origin: Origin,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
    },
    /// PUBACK, PUBCOMP, or a refusal in PUBACK or PUBREC: the exchange has ended.
    Acknowledged {
        /// The message that the client has acknowledged.
        what: Delivered,
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Reason code. From 0x80 on, the client has refused the message, which counts as delivered \[MQTT-4.4.0-2\].
        reason: ReasonCode,
    },
    /// Reports that a message of a group has expired before it was written to a member that numbers its own packets.
    Expired {
        /// Queue of the group.
        group: QueueId,
        /// Entry of the message in the queue.
        entry: EntryId,
        /// Connection of the member.
        connection: ConnectionId,
    },
    /// Reports that a message of a group was written to a member that numbers its own packets.
    Sent {
        /// Queue of the group.
        group: QueueId,
        /// Entry of the message in the queue.
        entry: EntryId,
        /// Connection of the member.
        connection: ConnectionId,
    },
    /// Opens a cursor over the retained messages that match a filter. Answered by
    /// [`Reply::Begun`](crate::Reply::Begun).
    Retained {
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Number of the cursor in further commands.
        id: CursorId,
        /// The filter, without `$share`.
        filter: Box<str>,
        /// Queue of a lasting session: the cursor continues at the position of an earlier one for this subscription. If
        /// that one has ended, or there is no such subscription, this cursor ends too.
        queue: Option<QueueId>,
    },
    /// Reports that the messages of a cursor's last step for a lasting session
    /// ([`Reply::Retained`](crate::Reply::Retained)) are on their way to the client. The other messages of the step go
    /// into the session's queue.
    Took {
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Number of the cursor.
        id: CursorId,
    },
    /// Allows the next step of a cursor. Answered by [`Reply::Retained`](crate::Reply::Retained). For a lasting
    /// session, the step is made when little waits in its queue.
    Credit {
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Number of the cursor.
        id: CursorId,
    },
    /// Confirms a piece of a session's state ([`Reply::Restore`](crate::Reply::Restore),
    /// [`Reply::Unfinished`](crate::Reply::Unfinished)): it was applied, or its connection has ended.
    Restored {
        /// Connection that received the piece.
        connection: ConnectionId,
    },
    /// Closes a cursor over retained messages.
    Close {
        /// Connection of the subscriber.
        connection: ConnectionId,
        /// Number of the cursor.
        id: CursorId,
    },
}

/// The claim of a CONNECT.
#[derive(Debug)]
pub struct Claim {
    /// The claimant, as it is if its session ends with this connection.
    pub subscriber: Arc<Subscriber>,
    /// Connection of the claimant.
    pub connection: ConnectionId,
    /// Whether an earlier session is discarded (Clean Start of MQTT 5.0, Clean Session before).
    pub clean_start: bool,
    /// Lifetime of the session after the connection, in seconds: 0 means none, [`u32::MAX`] no end.
    pub expiry_secs: u32,
    /// Maximum number of messages of QoS 1 and 2 in flight to the client.
    pub window: u16,
    /// Maximum size of a packet for the client, in bytes.
    pub packet_bytes_max: u32,
    /// Will of the client.
    pub will: Option<Will>,
    /// Durability for which answers to the connection wait.
    pub durability: Durability,
}

impl Claim {
    /// Memory of the will, in bytes; 0 without one.
    #[must_use]
    pub fn will_bytes(&self) -> usize {
        self.will.as_ref().map_or(0, |will| will.message.size_bytes())
    }
}

/// A message that is published when a connection ends (MQTT 5.0, 3.1.2.5).
#[derive(Debug, Clone)]
pub struct Will {
    /// The message. Its expiry interval begins with its publication.
    pub message: Arc<Message>,
    /// Delay before its publication, in seconds. The end of the session ends the delay.
    pub delay_secs: u32,
}

/// The end of a connection.
#[derive(Debug)]
pub struct Left {
    /// The session whose connection has ended.
    pub subscriber: Arc<Subscriber>,
    /// The connection that has ended.
    pub connection: ConnectionId,
    /// Reason of the end, for the will.
    pub cause: Cause,
    /// New lifetime of the session from DISCONNECT, in seconds.
    pub expiry_secs: Option<u32>,
}

/// Reason for the end of a connection, as far as it concerns the will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// DISCONNECT with 0x00, or a refused CONNECT: the will is not published \[MQTT-3.14.4-3\].
    Normal,
    /// Any other reason: the will is published when it is due, if there is one.
    WithWill,
    /// Another connection has taken the identifier ([`Reply::Evict`](crate::Reply::Evict)).
    TakenOver,
}

/// A PUBLISH for the ledger.
#[derive(Debug)]
pub struct Publish {
    /// Connection of the publisher; `None` for the server's own messages.
    pub connection: Option<ConnectionId>,
    /// Queue of the publisher, if its session is a lasting one.
    pub publisher: Option<QueueId>,
    /// Ticket for [`Reply::Stored`](crate::Reply::Stored), which follows when the promise is durable.
    pub ticket: Option<Ticket>,
    /// Whether an acknowledgement can tell the publisher that its message was refused, which is so from MQTT 5.0 on. Other
    /// publishers send such a message again after the next CONNECT, with all that they sent behind it.
    pub hears_refusals: bool,
    /// The message, with its properties.
    pub message: Arc<Message>,
    /// Targets that the shard found, if it looked. The lookup is repeated if subscriptions have changed since.
    pub route: Option<(Generation, Arc<Targets>)>,
}

impl Publish {
    /// A message of the server itself, for which nobody waits.
    #[must_use]
    pub fn of_server(message: Arc<Message>) -> Self {
        Self { connection: None, publisher: None, ticket: None, hears_refusals: false, message, route: None }
    }
}

impl Command {
    /// Whether there may be millions of such commands. The account of memory is updated later for their changes.
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

    /// Approximate memory of the waiting command, in bytes.
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
