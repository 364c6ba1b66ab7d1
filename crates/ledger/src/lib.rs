//! The ledger: the one writer of state that must last, must be unique, or must have one order.
//!
//! Client identifiers, sessions that outlive their connections with their queues, shared subscriptions, retained
//! messages and wills need one answer each. The questions are: which connection has this identifier, which value won,
//! which member got this message, was this will sent, is this queue full. One state machine gives the answer, without
//! locks and without depending on the number of shards that ask. [`Command`]s go in, and [`Reply`]s come out through
//! [`Effects`]. Commands of one shard are handled in the order in which they are posted.
//!
//! State that must survive goes out as [`Record`]s, in groups that are kept whole or not at all. The ledger changes
//! when a group has been taken. A connection is told about a promise once it is as safe as the connection wants it to
//! be ([`progress`](Ledger::progress)). The records alone make the same ledger again: [`Ledger::recover`].

#![forbid(unsafe_code)]

mod acknowledge;
mod ask;
mod blocks;
mod bodies;
mod bounds;
mod brake;
mod census;
mod claims;
mod connect;
mod cursors;
mod effects;
mod end;
mod entry;
mod extent;
mod feed;
mod full;
mod gauges;
mod group;
mod in_flight;
mod keeper;
mod lanes;
mod lines;
mod live;
mod looks;
mod matching;
mod outputs;
mod presence;
mod principal;
mod publish;
mod queue;
mod record;
mod recover;
mod replay;
mod replies;
mod restate;
mod restore;
mod retained;
mod room;
mod room_wait;
mod session;
mod settings;
mod share;
mod state;
mod subscribe;
mod sweep;
mod table;
mod timers;
mod trace;
mod turnover;
mod will;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Budget, ConnectionId, Now, Place, Purpose, QueueId, ShardId, Tally};
use index::Subscriptions;
use protocol::{Command, Delivered, Gauges, Reply};
use topic::TopicFilter;
use wire::ReasonCode;

pub use ask::{
    Answer as OperatorAnswer, Discard, Discarded, Ended, Found as FoundClient, GroupFacts, MemberPiece,
    Question, QueueOf, QueuePiece, QueuedFacts, SessionFacts, SubscriptionPiece,
};
pub use bodies::{Fetched, Found, Wanted};
pub use census::{Census, GroupCensus, OverLimits, QueueCensus, SessionCensus};
pub use effects::{Address, Effects, Lsn, Refusal};
pub use keeper::{InMemory, Keeper, Needs, Progress, Room};
pub use record::{Addressed, Away, Granted, Incarnation, MessageId, Queued, Record, WillFate, WillRecord};
pub use recover::{Charged, Recovered, Source};
pub use retained::{Branch, Cursor, Retained, Step, Stored, Stride};
pub use room_wait::RoomWait;
pub use settings::{QueueFull, Settings};
pub use turnover::Turnover;

use acknowledge::Outcome;
use bodies::Bodies;
use claims::Claims;
use cursors::Cursors;
use end::Ending;
use feed::Turns;
use gauges::add;
use lines::Lines;
use live::Live;
use outputs::FullMembers;
use publish::Planned;
use replies::{Answer, Replies};
use restate::{Copied, Moved};
use restore::Restoring;
use subscribe::Asked;
use sweep::Sweep;
use timers::Timers;
use will::Wills;

/// The units of work that are done for the keeper of records before new commands are looked at.
const UNITS_AT_A_TIME: usize = 1_000;
/// How many claims of members to lanes are worked out in one turn, about. One takes some tens of nanoseconds.
const CLAIMS_AT_A_TIME: usize = 8_192;
/// Maximum number of cursor steps before new commands are handled.
const CURSOR_STEPS_AT_A_TIME: usize = 4;
/// Bytes of memory for a message in a queue or in flight, beside the message; for a session or a group, beside its
/// contents; and for a client identifier in use.
const PLACE_BYTES: usize = 128;
const SESSION_BYTES: usize = 1_024;
const CLIENT_BYTES: usize = 512;
/// Approximate bytes of a record for one queue of a message, and for the identity of a session or a group.
const QUEUED_BYTES: usize = 16;
const NAME_BYTES: usize = 128;
/// Bytes of an open QoS 2 exchange begun by a client.
const UNRELEASED_BYTES: usize = 8;

/// Delay before a record that was refused for lack of space is tried again, in milliseconds.
const RETRY_MS: u64 = 100;

/// The state machine. See the crate's documentation.
#[derive(Debug)]
pub struct Ledger {
    settings: Settings,
    index: Arc<Subscriptions>,
    claims: Claims,
    lines: Lines,
    moved: Moved,
    copied: Copied,
    live: Live,
    bodies: Bodies,
    retained: Retained,
    cursors: Cursors,
    replies: Replies,
    /// Nothing is fed before: there was no space for the records.
    stalled_until_ms: Option<u64>,
    /// Groups whose lanes are to get their owners, in turn.
    deciding: VecDeque<QueueId>,
    /// How many claims to lanes may still be worked out for them in this turn.
    claims_left: usize,
    timers: Timers,
    wills: Wills,
    endings: VecDeque<Ending>,
    restoring: Restoring,
    /// Sessions that have come or gone, and some of whose groups have not heard.
    moving: VecDeque<QueueId>,
    /// Groups whose queue is full, and whose members are to be ended.
    full_groups: VecDeque<QueueId>,
    full_members: FullMembers,
    /// After a restart: sessions that were connected, and groups that have no member any more.
    unsettled: VecDeque<QueueId>,
    orphans: Vec<Incarnation>,
    sweep: Sweep,
    last_message: MessageId,
    last_incarnation: Incarnation,
    /// The queues of the current message. The buffer is reused.
    plan: Vec<Planned>,
    turns: Turns,
    gauges: Arc<Gauges>,
    /// Memory of the ledger in the account of the process, without messages, which have their own entries.
    tally: Tally,
    /// Bytes of memory for subscriptions in this account.
    subscription_bytes: usize,
    /// Packet identifiers of QoS 2 that sessions have open.
    unreleased: usize,
}

impl Ledger {
    /// An empty ledger that finds the targets of messages in `index`, and writes the groups into it.
    #[must_use]
    pub fn new(settings: Settings, index: Arc<Subscriptions>) -> Self {
        Self {
            index,
            claims: Claims::new(settings.seed),
            lines: Lines::new(&settings),
            moved: Moved::default(),
            copied: Copied::default(),
            live: Live::for_ever(),
            bodies: Bodies::default(),
            retained: Retained::new(settings.retained_bytes_max),
            cursors: Cursors::default(),
            replies: Replies::default(),
            stalled_until_ms: None,
            deciding: VecDeque::new(),
            claims_left: CLAIMS_AT_A_TIME,
            timers: Timers::default(),
            wills: Wills::default(),
            endings: VecDeque::new(),
            restoring: Restoring::default(),
            moving: VecDeque::new(),
            full_groups: VecDeque::new(),
            full_members: FullMembers::default(),
            unsettled: VecDeque::new(),
            orphans: Vec::new(),
            sweep: Sweep::default(),
            last_message: MessageId(0),
            last_incarnation: Incarnation(0),
            plan: Vec::new(),
            turns: Turns::default(),
            gauges: Arc::default(),
            tally: Tally::new(Arc::default()),
            subscription_bytes: 0,
            unreleased: 0,
            settings,
        }
    }

    /// Charges the memory of the ledger to this account. Without an account there is no limit. Messages are charged by
    /// their creators ([`Message::charged_to`](base::Message::charged_to)).
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<Budget>) -> Self {
        self.tally = Tally::new(budget);
        self.settle_account();
        self
    }

    /// Returns the levels and counters, which the ledger updates while it works.
    #[must_use]
    pub fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    /// Approximate size of the records that are still true, in bytes on disk. A message counts once for all its queues,
    /// and once more if it is retained.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        let read = |gauge: &std::sync::atomic::AtomicUsize| gauge.load(Ordering::Relaxed);
        let places = (read(&self.gauges.queued) + read(&self.gauges.in_flight)) * QUEUED_BYTES;
        self.live.bytes()
            + places
            + self.lines.name_bytes()
            + self.subscription_bytes / 4
            + self.retained.recorded_bytes()
    }

    /// Carries out one command of a shard.
    pub fn handle(&mut self, from: ShardId, command: Command, now: Now, to: &mut impl Effects) {
        let is_message = command.is_about_a_message();
        self.look_at_clock(now);
        match command {
            Command::Claim(claim) => self.claim(from, claim, now, to),
            Command::Left(left) => self.left(from, &left, now, to),
            Command::Subscribe { subscriber, connection, packet_id, subscriptions, retained } => {
                let place = Place { shard: from, connection };
                let asked = Asked { subscriptions: &subscriptions, retained: &retained };
                self.subscribe(&subscriber, place, packet_id, asked, now, to);
            }
            Command::Unsubscribe { subscriber, connection, packet_id, filters } => {
                let place = Place { shard: from, connection };
                self.unsubscribe(&subscriber, place, packet_id, &filters, now, to);
            }
            Command::Publish(publish) => self.publish(from, publish, now, to),
            Command::Released { origin, packet_id } => self.released(from, origin, packet_id, now, to),
            Command::Received { origin, packet_id } => self.received(from, origin, packet_id, now, to),
            Command::Acknowledged { what, connection, reason } => {
                self.acknowledged(Place { shard: from, connection }, what, reason.into(), to);
            }
            Command::Expired { group, entry, connection } => {
                let what = Delivered::Group { group, entry };
                self.acknowledged(Place { shard: from, connection }, what, Outcome::Expired, to);
            }
            Command::Sent { group, entry, connection } => {
                self.sent(Place { shard: from, connection }, group, entry, to);
            }
            Command::Retained { connection, id, filter, queue } => match TopicFilter::new(&filter) {
                Ok(filter) => self.open_cursor((from, connection, id), filter, queue, now, to),
                Err(_) => debug_assert!(false, "shards ask with filters that were decoded"),
            },
            Command::Took { connection, id } => self.took((from, connection, id), to),
            Command::Credit { connection, id } => self.credit((from, connection, id), now),
            Command::Restored { .. } => self.restoring.confirm(from),
            Command::Close { connection, id } => self.cursors.close((from, connection, id)),
        }
        self.tell_if_poisoned(to);
        self.show();
        if !is_message {
            self.settle_account();
        }
    }

    /// Reports how far the records are written and durable. Releases the answers that waited for this, as the
    /// [`Durability`](protocol::Durability) of each connection requires. After a failure, no other record will become
    /// safe: every waiting connection is told.
    pub fn progress(&mut self, progress: Progress, now: Now, to: &mut impl Effects) {
        self.look_at_clock(now);
        self.replies.set_progress(progress);
        self.claims.set_durable(progress.durable);
        while let Some(answer) = self.replies.next_safe() {
            self.release(answer, now, to);
        }
        if progress.has_failed {
            self.poison(to);
        }
    }

    fn poison(&mut self, to: &mut impl Effects) {
        for Answer { shard, reply, .. } in self.replies.poison() {
            if let Some(reply) = instead(&reply) {
                to.post(shard, reply);
            }
        }
    }

    /// Does postponed work, at most about a thousand units of it: sends messages to readers that accept them, ends
    /// sessions and messages that have expired, publishes wills whose time has come, continues cursors.
    pub fn work(&mut self, now: Now, to: &mut impl Effects) {
        self.look_at_clock(now);
        self.replies.withheld.release_due(now.monotonic_ms, to);
        self.claims_left = CLAIMS_AT_A_TIME;
        self.decide_lanes();
        self.restore_some(now, to);
        // For these alone, so that no traffic puts them off.
        let mut units = self.settings.units_at_a_time;
        self.move_some(&mut units);
        self.cursors.close_some(&mut units);
        let mut units = self.settings.units_at_a_time;
        self.settle_some(&mut units, now, to);
        self.look_at_outputs(&mut units, now, to);
        self.feed_all(&mut units, now, to);
        self.want_put_off(now, to);
        self.look_at_timers(&mut units, now, to);
        self.end_some_members(&mut units, to);
        self.end_some(&mut units, to);
        self.fire_wills(&mut units, now, to);
        self.step_cursors(CURSOR_STEPS_AT_A_TIME, now, to);
        self.sweep(now, to);
        self.tell_if_poisoned(to);
        self.show();
        self.settle_account();
    }

    /// Whether [`work`](Self::work) has something to do at once.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.has_work_without_room() || self.cursors.has_work() || self.wills.has_work()
    }

    /// The same while the shards [have no room](Effects::has_room), so that steps of cursors and wills are put off.
    #[must_use]
    pub fn has_work_without_room(&self) -> bool {
        let feeds = self.lines.has_ready() && self.stalled_until_ms.is_none();
        let settles = !self.unsettled.is_empty() || !self.orphans.is_empty();
        let decides = !self.deciding.is_empty();
        let ends = !(self.endings.is_empty() && self.full_groups.is_empty());
        let tells = self.restoring.has_work() || !self.moving.is_empty();
        let looks = self.full_members.has_work() || self.sweep.is_under_way();
        feeds || settles || decides || ends || tells || looks
    }

    /// When [`work`](Self::work) wants to be called again at the latest, on the monotonic clock.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let sweeps = !self.retained.is_empty() || self.sweep.has_queues();
        [
            self.timers.next_ms(),
            self.wills.poll_timeout(),
            self.replies.withheld.poll_timeout(),
            self.stalled_until_ms,
            self.bodies.poll_timeout(),
            self.cursors.poll_timeout(),
            self.full_members.poll_timeout(),
            sweeps.then(|| self.sweep.next_ms()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Posts an answer when all records committed before it are safe. Answers to one connection thus keep their order.
    fn answer(&mut self, answer: Answer, now: Now, to: &mut impl Effects) {
        let connection = answer.reply.connection();
        let place = connection.map(|connection| Place { shard: answer.shard, connection });
        match place {
            Some(place) => self.answer_to(place, answer, now, to),
            None => self.release(answer, now, to),
        }
    }

    fn answer_to(&mut self, place: Place, answer: Answer, now: Now, to: &mut impl Effects) {
        // When nothing will be durable any more, what still succeeds promises nothing.
        if self.replies.is_all_safe(place) || self.replies.is_poisoned() {
            self.release(answer, now, to);
        } else {
            self.replies.hold(place, answer);
        }
    }

    /// Posts an answer whose record is safe: rule 11 of `protocol::order`.
    fn release(&mut self, answer: Answer, now: Now, to: &mut impl Effects) {
        let Answer { shard, reply, brake } = answer;
        match &reply {
            Reply::Claimed(claimed) if claimed.subscriber.queue.is_some() => {
                let place = Place { shard, connection: claimed.connection };
                let queue = claimed.subscriber.queue;
                to.post(shard, reply);
                if let Some(queue) = queue {
                    self.open(queue, place, to);
                }
            }
            Reply::Stored { connection, ticket, .. } if acknowledges_publish(*ticket) => {
                let place = Place { shard, connection: *connection };
                let now_ms = now.monotonic_ms;
                let braked = brake.filter(|brake| {
                    self.replies.withheld.may_wait(place, *brake, now_ms)
                        && self.lines.is_braked(brake.queue, now)
                });
                if let Some(queue) = self.replies.withheld.queue_of(place) {
                    self.release_brake(queue, now, to);
                }
                if braked.is_some() || self.replies.withheld.queue_of(place).is_some() {
                    add(&self.gauges.withheld, 1);
                    self.replies.withheld.push(braked, place, reply, now_ms);
                } else {
                    to.post(shard, reply);
                }
            }
            Reply::Deliver(deliver) => {
                if let Delivered::Session { queue, packet_id } = deliver.what
                    && let Some(session) = self.lines.session_mut(queue)
                {
                    session.in_flight.sent(packet_id);
                }
                to.post(shard, reply);
            }
            _ => to.post(shard, reply),
        }
    }

    fn tell_if_poisoned(&mut self, to: &mut impl Effects) {
        if self.replies.is_poisoned() && self.replies.has_held() {
            self.poison(to);
        }
    }

    fn next_message(&mut self) -> MessageId {
        self.last_message.0 += 1;
        self.last_message
    }

    fn next_incarnation(&mut self) -> Incarnation {
        self.last_incarnation.0 += 1;
        self.last_incarnation
    }

    /// Returns the reason code for a client when a group of records was refused.
    fn reason(&self, refusal: Refusal) -> ReasonCode {
        add(&self.gauges.commits_refused, 1);
        match refusal {
            Refusal::NoSpace => ReasonCode::QuotaExceeded,
            Refusal::TooLong | Refusal::Poisoned => ReasonCode::ImplementationSpecificError,
        }
    }

    fn show(&self) {
        let set = |gauge: &std::sync::atomic::AtomicUsize, value| gauge.store(value, Ordering::Relaxed);
        set(&self.gauges.retained_messages, self.retained.len());
        set(&self.gauges.retained_bytes, self.retained.bytes());
        set(&self.gauges.retained_over_bytes, self.retained.over_bytes());
        set(&self.gauges.groups, self.lines.groups_len());
    }

    /// Sets the memory of committed records that wait to be written, in bytes.
    pub(crate) fn settle_pending(&mut self, bytes: usize) {
        if bytes != self.tally.held_bytes(Purpose::Journal) {
            self.tally.set(Purpose::Journal, bytes);
            self.tally.settle();
        }
    }

    /// Tells the account what is held by now.
    fn settle_account(&mut self) {
        let read = |gauge: &std::sync::atomic::AtomicUsize| gauge.load(Ordering::Relaxed);
        let places = (read(&self.gauges.queued) + read(&self.gauges.in_flight)) * PLACE_BYTES;
        let sessions = self.lines.size_bytes() + self.claims.len() * CLIENT_BYTES;
        self.tally.set(Purpose::Places, places + self.retained.places_bytes());
        self.tally.set(Purpose::Sessions, sessions);
        self.tally.set(Purpose::Subscriptions, self.subscription_bytes);
        self.tally.set(Purpose::Inbound, self.unreleased * UNRELEASED_BYTES);
        self.tally.settle();
    }
}

/// Whether PUBACK or PUBREC waits, which are the publisher's signal to go on.
fn acknowledges_publish(ticket: base::Ticket) -> bool {
    matches!(ticket, base::Ticket::PubAck(_) | base::Ticket::PubRec(_))
}

/// Returns the reply that replaces an answer that can never be given.
fn instead(reply: &Reply) -> Option<Reply> {
    let ended =
        |connection: ConnectionId| Some(Reply::Ended { connection, reason: ReasonCode::UnspecifiedError });
    match reply {
        Reply::Claimed(claimed) => {
            let connection = claimed.connection;
            Some(Reply::Refused { connection, reason: ReasonCode::ServerUnavailable })
        }
        Reply::Stored { connection, .. } | Reply::Recorded { connection, .. } => ended(*connection),
        // Its message waits for another day.
        _ => None,
    }
}
