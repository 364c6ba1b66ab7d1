//! State of one session in the ledger.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{Budget, Interest, Message, Place, QueueId, Subscriber};
use topic::TopicName;
use wire::PacketId;

use crate::lines::bounds::RoleBounds;
use crate::lines::group::Ring;
use crate::lines::matching::any_matches;
use crate::lines::outputs::Once;
use crate::lines::presence::Moving;
use crate::queue::in_flight::InFlight;
use crate::queue::live::LiveBytes;
use crate::record::{Incarnation, MessageId, WillFate};
use crate::retained::cursors::WalkKey;
use crate::retained::first_key;

/// Maximum bytes of messages in flight to one client, beside the first.
const CREDIT_BYTES: usize = 256 * 1024;

/// How many bytes of messages may be on their way to one client, beside the first: little while memory is short, because
/// its shard has them in memory until the client takes them.
pub(crate) fn credit_bytes(budget: &Budget) -> usize {
    if budget.is_tight_to_keep() { Budget::WAITING_BYTES_ALLOWED } else { CREDIT_BYTES }
}

/// A session that outlives its connection; or one that does not, and is a member of groups.
///
/// ```text
///            Claim                       Claimed posted                    Left
///   (new) ────────► online, not open ──────────────────► online, open ───────────► offline ──► ended
///                          ▲                                                          │
///                          └───────────────────────── Claim ─────────────────────────┘
/// ```
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) subscriber: Arc<Subscriber>,
    /// By filter; of a session that ends with its connection, only those it shares.
    pub(crate) subscriptions: BTreeMap<Box<str>, Interest>,
    pub(crate) shares: BTreeMap<QueueId, Share>,
    /// The session has come or gone, and not all groups know this.
    pub(crate) moving: Option<Moving>,
    pub(crate) online: Option<Box<Online>>,
    pub(crate) in_flight: InFlight,
    /// The bounds of its queue by the roles of its user.
    pub(crate) role_bounds: RoleBounds,
    /// The part that a session has if it outlives its connection. Nothing is recorded of other sessions.
    pub(crate) lasting: Option<Lasting>,
}

/// The part of a session that outlives its connection.
#[derive(Debug)]
pub(crate) struct Lasting {
    pub(crate) incarnation: Incarnation,
    pub(crate) expiry_secs: u32,
    /// Unfinished cursors over retained messages, by filter.
    pub(crate) cursors: BTreeMap<Box<str>, Unfinished>,
    /// Messages of QoS 2 that the client has published and not released.
    pub(crate) unreleased: BTreeSet<PacketId>,
    pub(crate) will: Option<Box<PendingWill>>,
    /// While it is offline: since when, in milliseconds since 1970.
    pub(crate) left_unix_ms: Option<u64>,
    /// The record of that was refused, with this fate of the will. A copy takes its place.
    pub(crate) left_refused: Option<WillFate>,
    /// While it is offline: when it expires, on the monotonic clock.
    pub(crate) expires_ms: Option<u64>,
    /// The time at which the timer is set to expire.
    pub(crate) timer_ms: Option<u64>,
    /// On this connection a change of its subscriptions was refused, which the shard had written to the index: since
    /// then the index is written from here.
    pub(crate) was_refused: bool,
    /// The session was connected when the records that it was made from ended. The end of this connection is not
    /// recorded.
    pub(crate) is_unsettled: bool,
}

/// A session's part in a group.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) interest: Interest,
    /// The connection on which the group counts it as a member who takes something.
    pub(crate) present: Option<Place>,
    /// Position of the member in the group's ring of members that accept messages, if it is in the ring.
    pub(crate) turn: Option<u64>,
    /// Position of the group in the member's list of groups that had a message when the member accepted none.
    pub(crate) hungry: Option<u64>,
}

/// How far a session's retained cursor has come, of what its client has, or has waiting.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) from: Box<[u8]>,
    pub(crate) last: MessageId,
    pub(crate) live: Live,
    /// On this connection it runs under this name.
    pub(crate) running: Option<WalkKey>,
}

/// Since when the subscription of a cursor is live at QoS 0, on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Live {
    /// Since its client came back: the cursor was begun before.
    SinceOpen,
    /// The cursor was begun on this connection, and not opened yet.
    Soon(Place),
    /// Since this was the last message, on this connection.
    Since(Place, MessageId),
}

/// The connection of a session.
#[derive(Debug)]
pub(crate) struct Online {
    pub(crate) place: Place,
    /// The last message before it was open: messages of QoS 0 come live since then.
    pub(crate) opened_behind: MessageId,
    /// Its shard is told its subscriptions bit by bit.
    pub(crate) is_restored: bool,
    /// The shard has been told, and counts the session as connected.
    pub(crate) is_open: bool,
    window: u16,
    pub(crate) packet_bytes_max: u32,
    /// Exchanges of this connection that are not over, and their bytes.
    pub(crate) under_way: usize,
    pub(crate) under_way_bytes: usize,
    pub(crate) once: Once,
    /// Exchanges of earlier connections that are to be begun again, in their order.
    pub(crate) again: VecDeque<PacketId>,
    /// Groups that had something for it when it took nothing, in turn.
    pub(crate) hungry: Ring,
    /// Retained cursors that go on when nothing waits in the queue.
    pub(crate) parked: Vec<WalkKey>,
}

/// The will of a session that lasts.
#[derive(Debug)]
pub(crate) struct PendingWill {
    pub(crate) id: MessageId,
    pub(crate) message: Arc<Message>,
    pub(crate) delay_secs: u32,
    /// Once the client has left: when it is published, on the monotonic clock.
    pub(crate) due_ms: Option<u64>,
    pub(crate) _bytes: LiveBytes,
}

impl Unfinished {
    /// Makes a cursor that has not begun.
    pub(crate) fn new(filter: &str, last: MessageId) -> Self {
        Self { from: first_key(filter), last, live: Live::SinceOpen, running: None }
    }

    /// The last message before the subscription became live at QoS 0 on this connection. `last` is the last of all.
    pub(crate) fn live_behind(&mut self, online: &Online, last: MessageId) -> MessageId {
        let behind = match self.live {
            Live::Since(place, behind) if place == online.place => behind,
            Live::Soon(place) if place == online.place => last,
            // Messages of QoS 0 came to nobody while the client was away.
            Live::SinceOpen | Live::Soon(_) | Live::Since(..) => online.opened_behind,
        };
        self.live = Live::Since(online.place, behind);
        behind
    }
}

impl Session {
    /// Makes a session that ends with its connection.
    pub(crate) fn clean(subscriber: Arc<Subscriber>, online: Online) -> Self {
        Self { online: Some(Box::new(online)), ..Self::new(subscriber) }
    }

    /// Makes a session that outlives its connection.
    pub(crate) fn lasting(subscriber: Arc<Subscriber>, incarnation: Incarnation) -> Self {
        Self { lasting: Some(Lasting::new(incarnation)), ..Self::new(subscriber) }
    }

    fn new(subscriber: Arc<Subscriber>) -> Self {
        Self {
            subscriber,
            subscriptions: BTreeMap::new(),
            shares: BTreeMap::new(),
            moving: None,
            online: None,
            in_flight: InFlight::default(),
            role_bounds: RoleBounds::default(),
            lasting: None,
        }
    }

    /// As what records name it, if it lasts.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.lasting.as_ref().map(|lasting| lasting.incarnation)
    }

    /// Its connection, if its shard knows that it has it.
    pub(crate) fn open(&self) -> Option<&Online> {
        self.online.as_deref().filter(|online| online.is_open)
    }

    /// Whether its connection accepts a new message, with at most this number of bytes in flight.
    pub(crate) fn takes_new(&self, credit_bytes: usize) -> bool {
        let takes_new = |online: &Online| online.takes_new_behind(0, 0, &self.in_flight, credit_bytes);
        self.online.as_deref().is_some_and(takes_new)
    }

    /// Whether one of the subscriptions that match the topic has come here already. The index may lead to one that has
    /// not: a retained message that is decided before is older than the cursor of this subscription, which will find
    /// it.
    ///
    /// If the subscriptions are too many and too similar for a bounded number of look-ups, one is assumed to be known.
    pub(crate) fn knows_subscription_to(&self, topic: TopicName<'_>) -> bool {
        self.subscriptions.contains_key(topic.as_str())
            || any_matches(&self.subscriptions, topic).unwrap_or(true)
    }
}

impl Lasting {
    fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            expiry_secs: 0,
            cursors: BTreeMap::new(),
            unreleased: BTreeSet::new(),
            will: None,
            left_unix_ms: None,
            left_refused: None,
            expires_ms: None,
            timer_ms: None,
            was_refused: false,
            is_unsettled: false,
        }
    }

    /// The fate of its will when it ends.
    pub(crate) fn fate_at_end(&self) -> WillFate {
        if self.will.is_some() { WillFate::Due } else { WillFate::Dropped }
    }

    /// When something is to happen to it while it is offline.
    pub(crate) fn next_timer_ms(&self) -> Option<u64> {
        let will = self.will.as_ref().and_then(|will| will.due_ms);
        [will, self.expires_ms].into_iter().flatten().min()
    }
}

impl Online {
    pub(crate) fn new(place: Place, window: u16, packet_bytes_max: u32) -> Self {
        Self {
            place,
            opened_behind: MessageId(0),
            is_restored: false,
            is_open: false,
            window,
            packet_bytes_max,
            under_way: 0,
            under_way_bytes: 0,
            once: Once::default(),
            again: VecDeque::new(),
            hungry: Ring::default(),
            parked: Vec::new(),
        }
    }

    /// Whether one more message may be sent: always at least one.
    pub(crate) fn has_room(&self, credit_bytes: usize) -> bool {
        self.has_room_behind(0, 0, credit_bytes)
    }

    /// Whether a new message may be sent when others have been sent before. None is while exchanges of earlier
    /// connections are to be begun again, and never are more open than the client has room for: one that does not
    /// acknowledge has no more of them, however often it comes back.
    pub(crate) fn takes_new_behind(
        &self,
        messages: usize,
        bytes: usize,
        in_flight: &InFlight,
        credit_bytes: usize,
    ) -> bool {
        self.again.is_empty()
            && in_flight.len() + messages < usize::from(self.window.max(1))
            && self.has_room_behind(messages, bytes, credit_bytes)
    }

    fn has_room_behind(&self, messages: usize, bytes: usize, credit_bytes: usize) -> bool {
        let under_way = self.under_way + messages;
        self.is_open
            && under_way < usize::from(self.window.max(1))
            && (under_way == 0 || self.under_way_bytes + bytes < credit_bytes)
    }

    pub(crate) fn begun(&mut self, bytes: usize) {
        self.under_way += 1;
        self.under_way_bytes += bytes;
    }

    pub(crate) fn finished(&mut self, bytes: usize) {
        self.under_way = self.under_way.saturating_sub(1);
        self.under_way_bytes = self.under_way_bytes.saturating_sub(bytes);
    }
}
