//! Records, from which a ledger can be rebuilt.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Claims, Identifiers, Interest, Message};
use protocol::MessageId;
use wire::{PacketId, Qos};

/// A session or a group that lasts, from its beginning to its end. None is given twice as long as a record mentions it, so that
/// it also names the queue, without the client identifier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One change of the state that must survive. The changes of one packet are committed together.
///
/// A record borrows from the ledger; [`into_owned`](Self::into_owned) makes one that can be kept.
#[derive(Clone)]
pub enum Record<'a> {
    /// A session has begun.
    Session {
        /// The incarnation of the session.
        session: Incarnation,
        /// Client identifier of the session.
        client_id: Cow<'a, str>,
    },
    /// Its client is connected.
    Connected {
        /// The incarnation of the session.
        session: Incarnation,
        /// Session Expiry Interval, in seconds; [`u32::MAX`] means that the session never expires.
        expiry_secs: u32,
        /// The will of the client.
        will: Option<WillRecord<'a>>,
    },
    /// A session acts for this user from now on. Without such a record a session is anonymous.
    Principal {
        /// The session that has the user.
        session: Incarnation,
        /// The user name; `None` for an anonymous client.
        user: Option<Cow<'a, str>>,
        /// The client has proved the name.
        is_proved: bool,
        /// The name of the rules that hold for it.
        rules: Cow<'a, str>,
    },
    /// The same for a user who belongs to a tenant, or has rights by a token.
    Owner {
        /// The session that has the user.
        session: Incarnation,
        /// The user name; `None` for an anonymous client.
        user: Option<Cow<'a, str>>,
        /// The client has proved the name.
        is_proved: bool,
        /// The name of the rules that hold for it.
        rules: Cow<'a, str>,
        /// The place of the user name ([`base::Tenant::users`]).
        users: Cow<'a, str>,
        /// The mount point of the listener, empty without one.
        mount: Cow<'a, str>,
        /// The topic prefix of the user's roles, empty without one.
        prefix: Cow<'a, str>,
        /// The rights that the client's token gives it.
        claims: Option<Arc<Claims>>,
    },
    /// Its client is not connected any more.
    Left {
        /// The incarnation of the session.
        session: Incarnation,
        /// Session Expiry Interval from now on, in seconds; [`u32::MAX`] means that the session never expires.
        expiry_secs: u32,
        /// When, in milliseconds since 1970.
        unix_ms: u64,
        /// The fate of the will, if there is one.
        will: WillFate,
    },
    /// A session is over, with everything it had but a will that is due.
    Ended {
        /// The incarnation of the session.
        session: Incarnation,
        /// The fate of the will, if there is one: it does not wait any more.
        will: WillFate,
    },
    /// A subscription, or its new options.
    Subscribed {
        /// The session that has subscribed.
        session: Incarnation,
        /// `$share/{group}/` included.
        filter: Cow<'a, str>,
        /// Granted options of the subscription.
        interest: Interest,
    },
    /// The end of a subscription.
    Unsubscribed {
        /// The session that had the subscription.
        session: Incarnation,
        /// `$share/{group}/` included.
        filter: Cow<'a, str>,
    },
    /// A group has a member that lasts, and is kept from now on.
    Group {
        /// The incarnation of the group.
        group: Incarnation,
        /// With `$share/{group}/`.
        filter: Cow<'a, str>,
    },
    /// A group has lost its last member, and what waited for it.
    GroupEnded {
        /// The incarnation of the group.
        group: Incarnation,
    },
    /// A message is published: it goes into queues, or becomes a retained value.
    Enqueue {
        /// Number of the message.
        message: MessageId,
        /// The message as published.
        body: Cow<'a, Arc<Message>>,
        /// The queues that it waits in.
        queues: Cow<'a, [Queued]>,
        /// The message is the retained value of its topic from now on.
        is_retained: bool,
    },
    /// A topic has no retained value any more.
    Cleared {
        /// The topic without a value.
        topic: Cow<'a, str>,
    },
    /// A session has published a message of QoS 2 and not released it yet.
    Opened {
        /// The session of the publisher.
        session: Incarnation,
        /// Packet identifier of the PUBLISH.
        packet_id: PacketId,
    },
    /// A session has released such a message.
    Closed {
        /// The session of the publisher.
        session: Incarnation,
        /// Packet identifier of the PUBREL.
        packet_id: PacketId,
    },
    /// A message is on its way from a session's queue to its client.
    Sent {
        /// The session of the subscriber.
        session: Incarnation,
        /// Number of the message.
        message: MessageId,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
    },
    /// A message of QoS 2 has gone from a group to one of its members, who alone may get it from now on.
    Moved {
        /// The group that loses the message.
        group: Incarnation,
        /// The session that gets the message.
        session: Incarnation,
        /// Number of the message.
        message: MessageId,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
        /// As which it is sent.
        granted: Cow<'a, Granted>,
    },
    /// PUBREC has come for a message of QoS 2: it is the client's, and only its identifier is still in use.
    Received {
        /// The session of the subscriber.
        session: Incarnation,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
    },
    /// The same as a copy: the first record is gone, and said by its own place which PUBREC came before which. Exchanges
    /// with such a record come before all others of their session, in the order of these numbers.
    ReceivedKept {
        /// The session that has received the message.
        session: Incarnation,
        /// The packet identifier of the exchange.
        packet_id: PacketId,
        /// The place of the exchange among those of its session.
        place: u64,
    },
    /// An exchange with a subscriber is over.
    Finished {
        /// The session of the subscriber.
        session: Incarnation,
        /// Packet identifier of the exchange.
        packet_id: PacketId,
    },
    /// A message is in a queue no more: it expired, was dropped, was too large, or a group's member has it; or an operator has
    /// discarded it, or moved it to another queue, under another number.
    Removed {
        /// A session or a group.
        queue: Incarnation,
        /// Number of the message.
        message: MessageId,
    },
    /// A subscription is to be brought what is retained: a cursor begins.
    Cursor {
        /// The session that has subscribed.
        session: Incarnation,
        /// Filter of the subscription.
        filter: Cow<'a, str>,
        /// Messages of QoS 1 or 2 that are newer than this one go to the subscription when they are published.
        last: MessageId,
    },
    /// A cursor has come further.
    CursorMoved {
        /// The session that has subscribed.
        session: Incarnation,
        /// Filter of the subscription.
        filter: Cow<'a, str>,
        /// The topic at which the cursor continues, with U+0000 in place of `/`.
        from: Cow<'a, [u8]>,
    },
    /// A cursor is at its end.
    CursorDone {
        /// The session that has subscribed.
        session: Incarnation,
        /// Filter of the subscription.
        filter: Cow<'a, str>,
    },
    /// A will has waited long enough, before its session has ended.
    WillDue {
        /// The session of the will.
        session: Incarnation,
    },
    /// A will is due and was not published yet, whatever has become of its session: a will that was recorded when its
    /// client connected, without the connection.
    WillKept {
        /// Its number, as it was recorded when its client connected.
        will: MessageId,
        /// The message to publish.
        message: Cow<'a, Arc<Message>>,
    },
    /// The user for whom a will is published. It follows the record of the will in the same group
    /// ([`Connected`](Self::Connected), [`WillKept`](Self::WillKept)). A will without such a record is one of an anonymous
    /// client without rules.
    ///
    /// A will does not rely on the record of its session's user. The session may end before its will is published, and that
    /// record is not copied then.
    WillPrincipal {
        /// Its number, as it was recorded when its client connected.
        will: MessageId,
        /// The user name; `None` for an anonymous client.
        user: Option<Cow<'a, str>>,
        /// The name of the rules that hold for it.
        rules: Cow<'a, str>,
        /// The rights that the client's token gives it.
        claims: Option<Arc<Claims>>,
    },
    /// A will has been published.
    WillDone {
        /// Its number, as it was recorded when its client connected.
        will: MessageId,
    },
}

/// Whether a queue still needs a message that was put into it.
pub type Needs<'a> = &'a mut dyn FnMut(Incarnation, MessageId) -> bool;

/// A message that is put in queues ([`Record::Enqueue`]) and stays on the disk. It is no topic's retained value.
#[derive(Debug, Clone)]
pub struct Away {
    /// Number of the message.
    pub message: MessageId,
    /// The queue in which the message waits. Nearly every message waits in one queue, which needs no allocation.
    pub queue: Queued,
    /// Further queues in which the message waits.
    pub others: Vec<Queued>,
    /// Size of the message in memory, in bytes: as [`Message::size_bytes`].
    pub size_bytes: usize,
    /// When it expires, in milliseconds since 1970: as [`Message::expires_unix_ms`].
    pub expires_unix_ms: Option<u64>,
}

impl Away {
    /// All queues that it waits in.
    pub fn queues(&self) -> impl Iterator<Item = &Queued> {
        std::iter::once(&self.queue).chain(&self.others)
    }
}

/// A will, as it is recorded.
#[derive(Clone)]
pub struct WillRecord<'a> {
    /// Its number until it is published: then it gets another as a message.
    pub id: MessageId,
    /// The message to publish.
    pub message: Cow<'a, Arc<Message>>,
    /// Will Delay Interval after the connection, in seconds.
    pub delay_secs: u32,
}

/// The fate of the will of a client that has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WillFate {
    /// The will is not published, or there is none.
    Dropped,
    /// The will waits for its delay.
    Waits,
    /// The will is published as soon as possible.
    Due,
}

/// A message in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// A session or a group.
    pub queue: Incarnation,
    /// The delivery options, which do not change any more. Each member of a group has its own options instead.
    pub granted: Granted,
}

/// As what a message is sent to a subscriber, fixed when it is queued, because the subscription may change.
#[derive(Clone, PartialEq, Eq)]
pub struct Granted {
    /// 1 or 2.
    pub qos: Qos,
    /// The RETAIN flag of the PUBLISH packet.
    pub retain: bool,
    /// The identifiers of the subscriptions that it comes for.
    pub identifiers: Identifiers,
}

impl Granted {
    /// As what a message waits in a group: as it was published. The subscription of each member decides the rest.
    #[must_use]
    pub fn of_group(message: &Message) -> Self {
        Self { qos: message.qos(), retain: message.retain(), identifiers: Identifiers::new() }
    }
}

impl Record<'_> {
    /// Whether this record begins a fact that is copied as long as it is true. A fact that a record only changes or
    /// ends is in the copy of the record that has begun it.
    #[must_use]
    pub fn begins_something(&self) -> bool {
        match self {
            Self::Session { .. }
            | Self::Connected { .. }
            | Self::Principal { .. }
            | Self::Owner { .. }
            | Self::Left { .. }
            | Self::Subscribed { .. }
            | Self::Group { .. }
            | Self::Enqueue { .. }
            | Self::Opened { .. }
            | Self::Received { .. }
            | Self::ReceivedKept { .. }
            | Self::Cursor { .. }
            | Self::WillKept { .. } => true,
            Self::Ended { .. }
            | Self::Unsubscribed { .. }
            | Self::GroupEnded { .. }
            | Self::Cleared { .. }
            | Self::Closed { .. }
            | Self::Sent { .. }
            | Self::Moved { .. }
            | Self::Finished { .. }
            | Self::Removed { .. }
            | Self::CursorMoved { .. }
            | Self::CursorDone { .. }
            | Self::WillDue { .. }
            | Self::WillPrincipal { .. }
            | Self::WillDone { .. } => false,
        }
    }

    /// Whether it is one of those for which the last space is reserved: afterwards less has to be kept, or a message
    /// is on its way out.
    #[must_use]
    pub fn frees_space(&self) -> bool {
        match self {
            Self::Left { .. }
            | Self::Ended { .. }
            | Self::Unsubscribed { .. }
            | Self::GroupEnded { .. }
            | Self::Cleared { .. }
            | Self::Closed { .. }
            | Self::Sent { .. }
            | Self::Moved { .. }
            | Self::Received { .. }
            | Self::ReceivedKept { .. }
            | Self::Finished { .. }
            | Self::Removed { .. }
            | Self::CursorDone { .. }
            | Self::WillDue { .. }
            | Self::WillDone { .. } => true,
            Self::Session { .. }
            | Self::Connected { .. }
            | Self::Principal { .. }
            | Self::Owner { .. }
            | Self::WillPrincipal { .. }
            | Self::Subscribed { .. }
            | Self::Group { .. }
            | Self::Enqueue { .. }
            | Self::Cursor { .. }
            | Self::CursorMoved { .. }
            | Self::WillKept { .. }
            | Self::Opened { .. } => false,
        }
    }

    /// The same, borrowing nothing.
    #[must_use]
    pub fn into_owned(self) -> Record<'static> {
        let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Session { session, client_id } => Record::Session { session, client_id: text(client_id) },
            Self::Connected { session, expiry_secs, will } => {
                Record::Connected { session, expiry_secs, will: will.map(WillRecord::into_owned) }
            }
            Self::Principal { session, user, is_proved, rules } => {
                Record::Principal { session, user: user.map(text), is_proved, rules: text(rules) }
            }
            Self::Owner { session, user, is_proved, rules, users, mount, prefix, claims } => Record::Owner {
                session,
                user: user.map(text),
                is_proved,
                rules: text(rules),
                users: text(users),
                mount: text(mount),
                prefix: text(prefix),
                claims,
            },
            Self::WillPrincipal { will, user, rules, claims } => {
                Record::WillPrincipal { will, user: user.map(text), rules: text(rules), claims }
            }
            Self::Subscribed { session, filter, interest } => {
                Record::Subscribed { session, filter: text(filter), interest }
            }
            Self::Cursor { session, filter, last } => Record::Cursor { session, filter: text(filter), last },
            Self::CursorMoved { session, filter, from } => {
                let from = Cow::Owned(from.into_owned());
                Record::CursorMoved { session, filter: text(filter), from }
            }
            Self::CursorDone { session, filter } => Record::CursorDone { session, filter: text(filter) },
            Self::Unsubscribed { session, filter } => Record::Unsubscribed { session, filter: text(filter) },
            Self::Group { group, filter } => Record::Group { group, filter: text(filter) },
            Self::Enqueue { message, body, queues, is_retained } => Record::Enqueue {
                message,
                body: Cow::Owned(body.into_owned()),
                queues: Cow::Owned(queues.into_owned()),
                is_retained,
            },
            Self::Cleared { topic } => Record::Cleared { topic: text(topic) },
            Self::Moved { group, session, message, packet_id, granted } => {
                let granted = Cow::Owned(granted.into_owned());
                Record::Moved { group, session, message, packet_id, granted }
            }
            Self::Left { session, expiry_secs, unix_ms, will } => {
                Record::Left { session, expiry_secs, unix_ms, will }
            }
            Self::Ended { session, will } => Record::Ended { session, will },
            Self::GroupEnded { group } => Record::GroupEnded { group },
            Self::Opened { session, packet_id } => Record::Opened { session, packet_id },
            Self::Closed { session, packet_id } => Record::Closed { session, packet_id },
            Self::Sent { session, message, packet_id } => Record::Sent { session, message, packet_id },
            Self::Received { session, packet_id } => Record::Received { session, packet_id },
            Self::ReceivedKept { session, packet_id, place } => {
                Record::ReceivedKept { session, packet_id, place }
            }
            Self::Finished { session, packet_id } => Record::Finished { session, packet_id },
            Self::Removed { queue, message } => Record::Removed { queue, message },
            Self::WillDue { session } => Record::WillDue { session },
            Self::WillKept { will, message } => {
                Record::WillKept { will, message: Cow::Owned(message.into_owned()) }
            }
            Self::WillDone { will } => Record::WillDone { will },
        }
    }
}

impl<'a> Record<'a> {
    /// The message or the will that it has.
    pub fn message_mut(&mut self) -> Option<&mut Cow<'a, Arc<Message>>> {
        match self {
            Self::Enqueue { body, .. } => Some(body),
            Self::WillKept { message, .. } => Some(message),
            Self::Connected { will, .. } => will.as_mut().map(|will| &mut will.message),
            _ => None,
        }
    }
}

impl WillRecord<'_> {
    fn into_owned(self) -> WillRecord<'static> {
        WillRecord {
            id: self.id,
            message: Cow::Owned(self.message.into_owned()),
            delay_secs: self.delay_secs,
        }
    }
}
