//! The ledger: the one writer of state that must last, must be unique, or must have one order.
//!
//! Client identifiers, sessions that outlive their connections with their queues, shared subscriptions, retained
//! messages and wills need one answer each. The questions are: which connection has this identifier, which value won,
//! which member got this message, was this will sent, is this queue full. One state machine gives the answer, without
//! locks and without depending on the number of shards that ask. [`Command`]s go in, and replies come out through
//! [`Effects`]. Commands of one shard are handled in the order in which they are posted.
//!
//! State that must survive goes out as [`Record`]s, in groups that are kept whole or not at all. The ledger changes
//! when a group has been taken. A connection is told about a promise once it is as safe as the connection wants it to
//! be ([`progress`](Ledger::progress)). The records alone make the same ledger again: [`Ledger::recover`].
//!
//! # Parts
//! A part is a file with the folder of the same name. A part may import the parts below it, and no others:
//!
//! ```text
//!   recover       a ledger made again from its records; old records on their way to copies
//!   connections   connections claim a client identifier, hold it, and leave it
//!   ask           questions and orders of operators
//!   Ledger        all state; which work is done in a turn, in which order (this file)
//!   restate       copies of old records: Copying, Copied
//!   delivery      messages from lines to clients, and their acknowledgements: Delivery
//!   walks         what cursors find among the retained messages: Walking
//!   publishing    messages into lines, to shards, among the retained ones; wills: Publishing
//!   sessions      claims, subscriptions, timers, wills, ended sessions: Sessions, SessionWork
//!   replies       committed records, and the answers that wait for them: Replies
//!   bodies        messages that are on disk alone: Bodies
//!   lines         sessions and groups with their queues; all work on them that needs no record: Lines
//!   retained      retained messages, and cursors over them: Retained, Cursors
//!   queue         the messages of one queue, and those on their way out of it
//!   record        records, and the trait through which they leave: Effects, Keeper
//!   settings      limits, and the rules about topics
//!   gauges        arithmetic
//! ```
//!
//! State is in `Lines`, `Bodies`, `Sessions`, `Replies`, `Retained`, `Cursors` and `Copied`. Work that needs several of them
//! borrows exactly these: `SessionWork`, `Publishing`, `Walking`, `Delivery`, `Copying`.

#![forbid(unsafe_code)]

mod ask;
mod bodies;
mod connections;
mod delivery;
mod gauges;
mod lines;
mod publishing;
mod queue;
mod record;
mod recover;
mod replies;
mod restate;
mod retained;
mod sessions;
mod settings;
mod walks;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Budget, Fate, Now, Place, Purpose, ShardId, Tally};
use index::Subscriptions;
use protocol::{Command, Delivered, Gauges};
use topic::TopicFilter;

pub use ask::census::{Census, GroupCensus, OverLimits, QueueCensus, SessionCensus};
pub use ask::{
    Answer as OperatorAnswer, Discard, Discarded, Ended, Found as FoundClient, GroupFacts, MemberPiece, Move,
    Moved, MovedPiece, Question, QueueOwner, QueuePiece, QueuedFacts, SessionFacts, Stopped,
    SubscriptionPiece,
};
pub use record::fetch::{Fetched, Found, Wanted};
pub use record::keeper::{InMemory, RecordRoom};
pub use record::room_wait::RoomWait;
pub use record::{
    Address, Addressed, Away, Effects, Granted, Incarnation, Keeper, Lsn, MessageId, Needs, Progress, Queued,
    Record, Refusal, WillFate, WillRecord,
};
pub use recover::turnover::Turnover;
pub use recover::{Charged, Recovered, Source};
pub use retained::{Branch, Cursor, Retained, Step, Stored, Stride};
pub use settings::{QueueFull, Settings, Units};

use bodies::Bodies;
use delivery::Delivery;
use delivery::feed::FirstFates;
use lines::Lines;
use publishing::Publishing;
use publishing::publish::Plan;
use replies::Replies;
use restate::{Copied, Copying, UNITS_AT_A_TIME};
use retained::cursors::Cursors;
use sessions::settle::Restart;
use sessions::subscribe::{Asked, Asker};
use sessions::{SessionWork, Sessions};
use walks::Walking;

/// Maximum number of cursor steps before new commands are handled.
const CURSOR_STEPS_AT_A_TIME: usize = 4;
/// Bytes of memory for a message in a queue or in flight, beside the message.
const PLACE_BYTES: usize = 128;
/// Bytes of memory for a client identifier in use.
const CLIENT_BYTES: usize = 512;
/// Approximate bytes of a record for one queue of a message.
const QUEUED_BYTES: usize = 16;
/// Bytes of an open QoS 2 exchange begun by a client.
const UNRELEASED_BYTES: usize = 8;

/// The state machine. See the crate's documentation.
#[derive(Debug)]
pub struct Ledger {
    settings: Settings,
    lines: Lines,
    bodies: Bodies,
    sessions: Sessions,
    replies: Replies,
    retained: Retained,
    cursors: Cursors,
    restart: Restart,
    copied: Copied,
    first_fates: FirstFates,
    /// Nothing is fed before: there was no space for the records.
    stalled_until_ms: Option<u64>,
    /// The queues of the current message.
    plan: Plan,
    /// Memory of the ledger in the account of the process, without messages, which have their own entries.
    tally: Tally,
    gauges: Arc<Gauges>,
}

impl Ledger {
    /// An empty ledger that finds the targets of messages in `index`, and writes the groups into it.
    #[must_use]
    pub fn new(settings: Settings, index: Arc<Subscriptions>) -> Self {
        let gauges = Arc::<Gauges>::default();
        Self {
            lines: Lines::new(&settings, index, Arc::clone(&gauges)),
            bodies: Bodies::new(),
            sessions: Sessions::new(settings.seed),
            replies: Replies::new(Arc::clone(&gauges)),
            retained: Retained::new(settings.retained_bytes_max),
            cursors: Cursors::default(),
            restart: Restart::default(),
            copied: Copied::default(),
            first_fates: FirstFates::default(),
            stalled_until_ms: None,
            plan: Plan::default(),
            tally: Tally::new(Arc::default()),
            gauges,
            settings,
        }
    }

    /// Charges the memory of the ledger to this account. Without an account there is no limit. Messages are charged by
    /// their creators ([`Message::charged_to`](base::Message::charged_to)).
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<Budget>) -> Self {
        self.bodies.budget = Arc::clone(&budget);
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
        let places = self.lines.fates.places() * QUEUED_BYTES;
        self.bodies.live.bytes()
            + places
            + self.lines.name_bytes()
            + self.sessions.subscription_bytes / 4
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
                let asker = Asker { subscriber: &subscriber, place, packet_id };
                let asked = Asked { subscriptions: &subscriptions, retained: &retained };
                self.session_work().subscribe(asker, asked, now, to);
            }
            Command::Unsubscribe { subscriber, connection, packet_id, filters } => {
                let place = Place { shard: from, connection };
                let asker = Asker { subscriber: &subscriber, place, packet_id };
                self.session_work().unsubscribe(asker, &filters, now, to);
            }
            Command::Publish(publish) => self.publishing().publish(from, publish, now, to),
            Command::Released { origin, packet_id } => {
                self.delivery().released(from, origin, packet_id, now, to);
            }
            Command::Received { origin, packet_id } => {
                self.delivery().received(from, origin, packet_id, now, to);
            }
            Command::Acknowledged { what, connection, reason } => {
                self.delivery().acknowledged(
                    Place { shard: from, connection },
                    what,
                    Fate::answered(reason),
                    to,
                );
            }
            Command::Expired { group, entry, connection } => {
                let what = Delivered::Group { group, entry };
                self.delivery().acknowledged(Place { shard: from, connection }, what, Fate::Expired, to);
            }
            Command::Sent { group, entry, connection } => {
                self.delivery().sent(Place { shard: from, connection }, group, entry, to);
            }
            Command::Retained { connection, id, filter, queue } => {
                let filter = TopicFilter::new(&filter).expect("shards ask with filters that were decoded");
                self.walking().open_cursor((from, connection, id), filter, queue, now, to);
            }
            Command::Took { connection, id } => self.walking().took((from, connection, id), to),
            Command::Credit { connection, id } => self.walking().credit((from, connection, id), now),
            Command::Restored { .. } => self.replies.restoring.confirm(from),
            Command::Close { connection, id } => self.cursors.close((from, connection, id)),
        }
        self.replies.tell_if_poisoned(to);
        self.show();
        if !is_message {
            self.settle_account();
        }
    }

    /// Takes over other limits. Whatever is above a lower limit stays, as after a restart: what comes next meets the limit.
    ///
    /// The rule that chooses members of groups, the marks of slow readers, the seed and the guard stay as they are.
    pub fn change_settings(&mut self, new: &Settings) {
        self.retained.set_bytes_max(new.retained_bytes_max);
        self.settings.change(new);
    }

    /// Reports how far the records are written and durable. Releases the answers that waited for this, as the
    /// [`Durability`](protocol::Durability) of each connection requires. After a failure, no other record will become
    /// safe: every waiting connection is told.
    pub fn progress(&mut self, progress: Progress, now: Now, to: &mut impl Effects) {
        self.look_at_clock(now);
        self.replies.set_progress(progress);
        self.sessions.claims.set_durable(progress.durable);
        while let Some(answer) = self.replies.next_safe() {
            self.replies.release(&mut self.lines, answer, now, to);
        }
        if progress.has_failed {
            self.replies.poison(to);
        }
    }

    /// Does postponed work, at most about a thousand units of it: sends messages to readers that accept them, ends
    /// sessions and messages that have expired, publishes wills whose time has come, continues cursors.
    pub fn work(&mut self, now: Now, to: &mut impl Effects) {
        self.look_at_clock(now);
        self.replies.withheld.release_due(now.monotonic_ms, to);
        self.lines.deciding.begin_turn();
        self.lines.decide_lanes();
        self.session_work().restore_some(now, to);
        // For these alone, so that no traffic puts them off.
        let mut units = self.settings.units.at_a_time;
        self.lines.move_some(&mut units);
        self.cursors.close_some(&mut units);
        let mut units = self.settings.units.at_a_time;
        self.session_work().settle_some(&mut units, now, to);
        self.delivery().look_at_outputs(&mut units, now, to);
        self.delivery().feed_all(&mut units, now, to);
        self.bodies.want_put_off(&mut self.lines, now, to);
        self.session_work().look_at_timers(&mut units, now, to);
        self.publishing().end_some_members(&mut units, to);
        self.session_work().end_some(&mut units, to);
        self.publishing().fire_wills(&mut units, now, to);
        self.walking().step_cursors(CURSOR_STEPS_AT_A_TIME, now, to);
        self.sweep(now, to);
        self.replies.tell_if_poisoned(to);
        self.show();
        self.settle_account();
    }

    /// Whether [`work`](Self::work) has something to do at once.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.has_work_without_room() || self.cursors.has_work() || self.sessions.wills.has_work()
    }

    /// The same while the shards [have no room](Effects::has_room), so that steps of cursors and wills are put off.
    #[must_use]
    pub fn has_work_without_room(&self) -> bool {
        let feeds = self.lines.has_ready() && self.stalled_until_ms.is_none();
        let settles = !self.restart.is_settled();
        let decides = !self.lines.deciding.is_empty();
        let ends = !(self.sessions.endings.is_empty() && self.lines.full_groups.is_empty());
        let tells = self.replies.restoring.has_work() || !self.lines.moving.is_empty();
        let looks = self.lines.full_members.has_work() || self.lines.sweep.is_under_way();
        feeds || settles || decides || ends || tells || looks
    }

    /// When [`work`](Self::work) wants to be called again at the latest, on the monotonic clock.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let sweeps = !self.retained.is_empty() || self.lines.sweep.has_queues();
        [
            self.sessions.timers.next_ms(),
            self.sessions.wills.poll_timeout(),
            self.replies.withheld.poll_timeout(),
            self.stalled_until_ms,
            self.bodies.poll_timeout(),
            self.cursors.poll_timeout(),
            self.lines.full_members.poll_timeout(),
            sweeps.then(|| self.lines.sweep.next_ms()),
        ]
        .into_iter()
        .flatten()
        .min()
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
        let places = self.lines.fates.places() * PLACE_BYTES;
        let sessions = self.lines.size_bytes() + self.sessions.claims.len() * CLIENT_BYTES;
        self.tally.set(Purpose::Places, places + self.retained.places_bytes());
        self.tally.set(Purpose::Sessions, sessions);
        self.tally.set(Purpose::Subscriptions, self.sessions.subscription_bytes);
        self.tally.set(Purpose::Inbound, self.sessions.unreleased * UNRELEASED_BYTES);
        self.tally.settle();
    }

    /// Makes one step of the sweep through the retained messages, and one of the round through the queues.
    fn sweep(&mut self, now: Now, to: &mut impl Effects) {
        if self.lines.sweep.is_due(now) {
            let has_found = self.publishing().sweep_retained(now, to);
            self.lines.sweep.begin_round(has_found, now);
        }
        if let Some((queue, after)) = self.lines.sweep.take_place() {
            let after = self.delivery().sweep_queue(queue, after, now, to);
            self.lines.sweep.go_on(queue, after);
        }
    }

    /// A message that was [asked for](Effects::fetch) has come, or is to be asked for again.
    pub fn fetched(&mut self, fetched: Fetched, to: &mut impl Effects) {
        self.bodies.fetched(&mut self.lines, fetched, to);
    }

    /// Copies what is still true of the oldest of some old records, about a thousand units of work; the others stay in
    /// `old`. Returns whether it is to be called again at once, because there are others.
    ///
    /// Nothing is copied while the ends of what was there at the last restart are not on the record yet, nor when nothing
    /// can be recorded any more: then the rest stays in `old` for good.
    #[must_use = "what is left in `old` for good is not to be waited for"]
    pub fn copy_some(&mut self, old: &mut VecDeque<Record<'static>>, to: &mut impl Effects) -> bool {
        self.copying().copy_some(old, to)
    }

    /// Whether the record of a message is still needed for this queue, into which it was put.
    pub fn needs(&mut self, queue: Incarnation, message: MessageId) -> bool {
        self.copying().needs(queue, message)
    }

    /// The same where nothing is copied before all are settled: one piece of it, when the last one is durable.
    pub(crate) fn settle_before_copies(&mut self, now: Now, to: &mut impl Effects) {
        if self.replies.is_all_durable() {
            self.session_work().settle_some(&mut { UNITS_AT_A_TIME }, now, to);
        }
    }

    /// Notes the time of a call, and whether the process was absent before it.
    fn look_at_clock(&mut self, now: Now) {
        self.lines.fates.now = now;
        if let Some(seen_ms) = self.lines.patience_clock.see(now) {
            let awaited_ms = if self.has_work() { Some(seen_ms) } else { self.poll_timeout() };
            let late_ms = awaited_ms.map_or(0, |at_ms| now.monotonic_ms.saturating_sub(at_ms.max(seen_ms)));
            self.lines.patience_clock.excuse(late_ms);
        }
    }

    fn session_work(&mut self) -> SessionWork<'_> {
        let Self { settings, sessions, lines, bodies, replies, cursors, restart, gauges, .. } = self;
        SessionWork { settings, sessions, lines, bodies, replies, cursors, restart, gauges }
    }

    fn publishing(&mut self) -> Publishing<'_> {
        let Self { settings, sessions, lines, bodies, replies, retained, plan, gauges, .. } = self;
        Publishing { settings, sessions, lines, bodies, replies, retained, plan, gauges }
    }

    fn walking(&mut self) -> Walking<'_> {
        let Self { settings, sessions, lines, bodies, replies, retained, cursors, plan, gauges, .. } = self;
        let publishing = Publishing { settings, sessions, lines, bodies, replies, retained, plan, gauges };
        Walking { cursors, publishing }
    }

    fn delivery(&mut self) -> Delivery<'_> {
        let Self {
            settings, sessions, lines, bodies, replies, cursors, first_fates, stalled_until_ms, ..
        } = self;
        Delivery { settings, sessions, lines, bodies, replies, cursors, first_fates, stalled_until_ms }
    }

    fn copying(&mut self) -> Copying<'_> {
        let Self { settings, restart, copied, sessions, lines, replies, retained, .. } = self;
        Copying { settings, restart, copied, sessions, lines, replies, retained }
    }
}
