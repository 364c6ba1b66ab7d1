//! A shard: takes in what happened, hands out what is to be done.

use std::io;
use std::sync::Arc;

use auth::{Checked, Guard};
use base::{Budget, ConnectionId, Level, Now, Purpose, ShardId, Tally};
use index::Subscriptions;
use protocol::{Command, Durability, Publish, Reply};
use session::{Session, Settings, Terms};
use wire::{DisconnectReason, ReasonCode};

use crate::beginnings::{Beginnings, BehindLogins};
use crate::client::{Client, Clients, NEVER};
use crate::drain::Draining;
use crate::effects::Outside;
use crate::encode::{Buffers, Source};
use crate::ending::{By, Ending};
use crate::fates::ShardFates;
use crate::login::{Entries, Entry};
use crate::mount::Mount;
use crate::parties::OwnCounts;
use crate::pressure::{Blocker, JUDGE_MS, Judge, Waiting};
use crate::read::CurrentRead;
use crate::relief::Relief;
use crate::requests::UNITS_PER_TURN;
use crate::subscribe::Changes;
use crate::sys::{Facts, Sys};
use crate::wheel::Wheel;
use crate::{ControlAnswer, Counters, Effects, Flush, Mail, Room, Totals};

/// Maximum bytes of answers that a client with a full output may cause before it is not read any more. An output full
/// of messages is no reason: the client must be heard to unsubscribe and to acknowledge.
const UNTAKEN_ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Minimum memory of a connection, in the broker and in the kernel's view of this process, in bytes.
pub(crate) const CONNECTION_BYTES: usize = 1_024;
/// Bytes of a message behind a window, beside the message.
const WAITING_BYTES: usize = 64;

/// Minimum lateness of a timer, in milliseconds, from which the shard was absent: the process was stopped, the machine was
/// suspended, or a turn took very long.
const ABSENCE_MS: u64 = 1_000;

/// No timer is armed further ahead than this.
const ARMED_AHEAD_MS_MAX: u64 = 50_000;

/// One event loop's protocol: see the crate's documentation.
pub struct Shard {
    pub(crate) id: ShardId,
    pub(crate) settings: Arc<Settings>,
    pub(crate) index: Arc<Subscriptions>,
    /// The place from which users and rules come.
    pub(crate) guard: Arc<Guard>,
    /// After a change of users: the first place whose client was not looked at since.
    pub(crate) rechecked: Option<u32>,
    /// Users have changed again since that look began.
    pub(crate) rechecks_again: bool,
    pub(crate) draining: Option<Draining>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) counts: OwnCounts,
    pub(crate) clients: Clients,
    pub(crate) changes: Changes,
    pub(crate) waiting: Waiting,
    pub(crate) judge: Judge,
    pub(crate) relief: Relief,
    pub(crate) beginnings: Beginnings,
    /// Bytes behind CONNECT packets whose passwords are being checked.
    pub(crate) behind_logins: BehindLogins,
    /// Exchanges of SCRAM that wait for their clients, with the bytes of their wills if these are large.
    pub(crate) asked: Beginnings,
    pub(crate) steps: u64,
    /// Memory of this shard in the account of the process, without the buffers of connections.
    pub(crate) tally: Tally,
    /// Clients for which something waits because the process was full.
    pub(crate) stalled: Vec<ConnectionId>,
    /// When that is looked at again.
    stalled_ms: Option<u64>,
    /// How many cursors over retained messages were opened.
    pub(crate) cursors: u32,
    pub(crate) fates: ShardFates,
    /// Buffer in which packets are assembled before they are sent.
    pub(crate) scratch: Vec<u8>,
    pub(crate) current_read: CurrentRead,
    pub(crate) rewritten: Vec<u8>,
    pub(crate) entries: Entries,
    /// A PUBLISH with its whole name, of a client behind a mount point.
    pub(crate) whole: Vec<u8>,
    pub(crate) buffers: Buffers,
    wheel: Wheel<ConnectionId>,
    due: Vec<ConnectionId>,
    /// End of the last absence, in monotonic milliseconds. Silence before it does not count.
    back_ms: u64,
    sys: Option<SysTopics>,
}

/// Data about all shards that one shard needs for reporting.
pub struct Peers {
    /// The counters of all shards.
    pub counters: Vec<Arc<Counters>>,
    /// Levels and counters of the ledger.
    pub ledger: Arc<protocol::Gauges>,
    /// Values of what keeps the records, and of whatever else has some.
    pub instruments: Vec<Arc<dyn protocol::Instruments>>,
    /// How often `$SYS` is brought up to date, in milliseconds.
    pub interval_ms: u64,
}

struct SysTopics {
    sys: Sys,
    peers: Peers,
    next_ms: u64,
}

/// How a connection ended without a DISCONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause<'a> {
    /// The peer closed its direction, and everything it had sent was read.
    EndOfStream,
    /// The socket has failed.
    Failed(io::ErrorKind),
    /// A layer below MQTT refuses what the peer has sent, for this reason: TLS, WebSocket, or the PROXY protocol.
    Rejected(&'a str),
}

/// The rules of a listener for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The durability that acknowledgements to them wait for.
    pub durability: Durability,
    /// The features that they are offered.
    pub terms: Terms,
    /// The mount point of the listener, if there is one.
    pub mount: Option<Arc<Mount>>,
    /// The rules about users.
    pub entry: Entry,
    /// The place of the listener among those whose messages are counted. It stays the same when a reload changes the listener.
    pub counted_as: u16,
}

impl From<Durability> for Admission {
    /// Clients are offered everything, everywhere.
    fn from(durability: Durability) -> Self {
        Self { durability, terms: Terms::default(), mount: None, entry: Entry::default(), counted_as: 0 }
    }
}

impl Shard {
    /// The number of this shard.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// A shard without connections. The one that gets `peers` publishes `$SYS`.
    #[must_use]
    pub fn new(
        id: ShardId,
        settings: Arc<Settings>,
        index: Arc<Subscriptions>,
        counters: Arc<Counters>,
        peers: Option<Peers>,
        now: Now,
    ) -> Self {
        let counts = OwnCounts::new(id, Arc::default());
        let fates = ShardFates::new(Arc::clone(&counters), counts.nobody());
        Self {
            id,
            settings,
            index,
            guard: Arc::default(),
            rechecked: None,
            rechecks_again: false,
            draining: None,
            counters,
            counts,
            clients: Clients::default(),
            changes: Changes::default(),
            waiting: Waiting::default(),
            judge: Judge::default(),
            relief: Relief::default(),
            beginnings: Beginnings::default(),
            behind_logins: BehindLogins::default(),
            asked: Beginnings::default(),
            steps: 0,
            tally: Tally::new(Arc::default()),
            stalled: Vec::new(),
            stalled_ms: None,
            cursors: 0,
            fates,
            scratch: Vec::new(),
            current_read: CurrentRead::default(),
            rewritten: Vec::new(),
            entries: Entries::default(),
            whole: Vec::new(),
            buffers: Buffers::default(),
            wheel: Wheel::new(now.monotonic_ms),
            due: Vec::new(),
            back_ms: 0,
            sys: peers.map(|peers| SysTopics { sys: Sys::new(), peers, next_ms: 0 }),
        }
    }

    /// Charges the memory of the shard to this account. Without an account there is no limit.
    #[must_use]
    pub fn with_budget(mut self, budget: Arc<Budget>) -> Self {
        self.tally = Tally::new(budget);
        self
    }

    /// Users and rules come from there from now on; without a guard there are none, and everything is allowed.
    #[must_use]
    pub fn with_guard(mut self, guard: Arc<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// A connection was accepted, on a listener that says this about its clients.
    pub fn accepted(&mut self, id: ConnectionId, admission: Admission, now: Now) {
        let Admission { durability, terms, mount, entry, counted_as } = admission;
        let counts = self.counts.door(counted_as);
        self.counters.sockets.add(1);
        counts.sockets.add(1);
        self.tally.add(Purpose::Connections, CONNECTION_BYTES);
        let session = Session::new(now).with_terms(terms);
        let mut client = Client::new(session, counts);
        client.mount = mount;
        client.entry = self.entries.number((entry, durability, counted_as), &self.clients);
        self.clients.insert(id, client);
        self.relief.arm(now);
        self.arm(id, now);
    }

    /// Number of steps that all connections have taken. A step takes in a packet, or several PUBLISH packets in a row, and
    /// costs about the same however short they are: bound the steps of a turn. The look-up of a topic counts one step more
    /// for each subscription that matches, also for those whose rules do not allow the message. A CONNECT counts as 128.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether a connection may be read now. If not, it has been paused.
    pub fn may_read(&mut self, id: ConnectionId, now: Now, to: &mut impl Effects) -> bool {
        let to = &mut Outside::new(now, to);
        match self.clients.get(id) {
            // It does not take what it asks for: `drained` goes on.
            Some(client) if client.aside().untaken_answer_bytes > UNTAKEN_ANSWER_BYTES_MAX => {
                self.block_on_itself(id, to)
            }
            // A client that gets no more answers may still acknowledge.
            Some(client)
                if client.ends_ms().is_none()
                    && client.session.unanswered() > usize::from(client.session.unanswered_max()) =>
            {
                !self.block(id, Blocker::Answers, to)
            }
            Some(client) => {
                let full = client.route.as_ref().and_then(|route| {
                    route.blocker(self.id, to).or_else(|| route.line(self.id, &self.waiting))
                });
                full.is_none_or(|blocker| !self.block_unread(id, blocker, to))
            }
            None => true,
        }
    }

    /// The bytes that waited for a connection are below a quarter of the mark again.
    pub fn drained(&mut self, id: ConnectionId, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        let Some(client) = self.clients.get(id) else { return };
        if let Some(subscriber) = client.subscriber.clone()
            && subscriber.gauge.level() == Level::Over
        {
            self.judge.had_room(id, now.monotonic_ms);
            self.open(&subscriber, to);
        }
        if let Some(client) = self.clients.get_mut(id)
            && let Some(aside) = client.aside_mut()
        {
            aside.untaken_answer_bytes = 0;
            client.tidy();
        }
        self.unblock_itself(id, to);
        self.pull(id, to);
        self.continue_walks(id, to);
        // Outputs are written after the end of a turn, and there may be no other soon.
        self.arm_stalled(now);
    }

    /// A connection is gone without a DISCONNECT. Its will is published.
    pub fn closed(&mut self, id: ConnectionId, cause: &Cause<'_>, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        let why = match cause {
            Cause::Rejected(why) => why,
            Cause::EndOfStream => "the client closed the connection",
            Cause::Failed(io::ErrorKind::ConnectionReset) => "the client reset the connection",
            Cause::Failed(_) => "the connection failed",
        };
        let (reason, by) = match cause {
            Cause::Rejected(_) => {
                self.counters.ended_layer.add(1);
                (ReasonCode::ProtocolError, By::Server)
            }
            Cause::EndOfStream | Cause::Failed(_) => (ReasonCode::UnspecifiedError, By::Peer),
        };
        self.end(id, Ending { reason, why, cause: protocol::Cause::WithWill, by }, to);
        // That may come after the end of a turn, and there may be no other soon.
        self.tally.settle();
    }

    /// Mail from another shard.
    pub fn mail(&mut self, mail: Mail<'_>, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        match mail {
            Mail::Forward(run, targets) => {
                self.deliver(Source::Run(run), &targets, Flush::of(targets.len()), to);
                self.set_publisher(None);
                self.set_mark(None);
            }
            Mail::Publisher(publisher) => self.set_publisher(Some(publisher)),
            Mail::Marked(mark) => self.set_mark(Some(mark)),
            Mail::Resume(subscriber) => self.wake_for(&subscriber, to),
        }
    }

    /// The password of a connection was checked, for [`Effects::verify`].
    pub fn verified(&mut self, id: ConnectionId, checked: Checked, now: Now, to: &mut impl Effects) {
        self.checked(id, checked, &mut Outside::new(now, to));
    }

    /// Commands of a connection were carried out, for [`Effects::control`].
    pub fn controlled(&mut self, id: ConnectionId, answer: &ControlAnswer, now: Now, to: &mut impl Effects) {
        self.was_controlled(id, answer, &mut Outside::new(now, to));
    }

    /// Another shard has read its mail.
    pub fn mail_resumed(&mut self, shard: ShardId, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        for publisher in self.waiting.take_for_shard(shard) {
            self.unblock_from(publisher, |blocker| matches!(blocker, Blocker::Shard(of) if *of == shard), to);
        }
    }

    /// The ledger has read its commands.
    pub fn ledger_resumed(&mut self, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        self.changes.waits_for_ledger = false;
        for publisher in self.waiting.take_for_ledger() {
            self.unblock_from(publisher, |blocker| matches!(blocker, Blocker::Ledger), to);
        }
    }

    /// An answer of the ledger.
    pub fn reply(&mut self, reply: Reply, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        match reply {
            Reply::Evict { connection } => self.evict(connection, to),
            Reply::Claimed(claimed) => self.claimed(*claimed, to),
            Reply::Refused { connection, reason } => self.refused(connection, reason, to),
            Reply::Restore { connection, filters } => {
                self.restore(connection, filters.iter().map(|filter| &**filter));
                to.command(Command::Restored { connection });
            }
            Reply::Unfinished { connection, subscriptions, is_last } => {
                self.unfinished(connection, subscriptions, is_last, to);
                to.command(Command::Restored { connection });
            }
            Reply::Recorded { connection, packet_id, reason, refused } => {
                self.recorded(connection, packet_id, (reason, refused), to);
            }
            Reply::Decided { connection } => {
                if let Some(client) = self.clients.get_mut(connection) {
                    // At most one for each command of `post`: rule 6 of `protocol::order`, and rule 13.
                    client.decided = client.decided.wrapping_add(1);
                }
            }
            Reply::Stored { connection, ticket, reason } => {
                self.stored(connection, ticket, reason, to);
            }
            Reply::Live { message, targets, value } => {
                let source = Source::Message { message: &message, value };
                self.deliver(source, &targets, Flush::of(targets.len()), to);
            }
            Reply::Deliver(deliver) => self.deliver_queued(deliver, to),
            Reply::Release { connection, packet_id } => self.release_again(connection, packet_id, to),
            Reply::Ended { connection, reason } => {
                let reason = DisconnectReason::try_from(reason).unwrap_or(DisconnectReason::QuotaExceeded);
                let is_full = reason == DisconnectReason::QuotaExceeded;
                self.counters.ended_queue_full.add(u64::from(is_full));
                let why = if is_full {
                    "more messages wait for the session than may"
                } else {
                    "what the client waits for cannot be recorded"
                };
                self.give_up(connection, reason, why, to);
            }
            Reply::Begun { connection, id, is_over } => self.begin_walk(connection, id, is_over, to),
            Reply::Retained { connection, id, messages, done } => {
                self.retained(connection, id, (messages, done), to);
            }
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        if self.was_absent(now) {
            self.return_from_absence(now);
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.fire(now.monotonic_ms, &mut due);
        for id in due.drain(..) {
            self.timer(id, to);
        }
        self.due = due;
        if self.stalled_ms.is_some_and(|at| at <= now.monotonic_ms) {
            self.stalled_ms = None;
            self.retry_stalled(to);
        }
        if self.waiting.poll_timeout().is_some_and(|at| at <= now.monotonic_ms) {
            self.look_at_others(now);
        }
        if self.judge.poll_timeout().is_some_and(|at| at <= now.monotonic_ms) {
            self.judge(to);
        }
        self.relieve(to);
        self.look_at_drain(now.monotonic_ms);
        if self.sys.as_ref().is_some_and(|sys| sys.next_ms <= now.monotonic_ms) {
            self.publish_sys(to);
        }
    }

    /// Whether nobody has looked at the clock for a long time, although a timer was due.
    fn was_absent(&self, now: Now) -> bool {
        let timers = [self.wheel.next_ms(), self.judge.poll_timeout(), self.relief.poll_timeout()];
        let awaited_ms = timers.into_iter().flatten().min();
        awaited_ms.is_some_and(|awaited_ms| awaited_ms + ABSENCE_MS <= now.monotonic_ms)
    }

    /// Restarts all measurements of progress and silence: during an absence no client could be heard, and none could
    /// make progress. Deadlines that the standard counts on the clock (session expiry, Will Delay Interval, message
    /// expiry) are not changed.
    fn return_from_absence(&mut self, now: Now) {
        self.back_ms = now.monotonic_ms;
        self.judge.restart(now.monotonic_ms);
        self.relief.restart(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called, in monotonic milliseconds.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let sys = self.sys.as_ref().map(|sys| sys.next_ms);
        let drain = self.draining.as_ref().map(Draining::poll_timeout);
        let timers = [
            self.wheel.next_ms(),
            self.judge.poll_timeout(),
            self.waiting.poll_timeout(),
            self.stalled_ms,
            self.relief.poll_timeout(),
            sys,
            drain,
        ];
        timers.into_iter().flatten().min()
    }

    /// Everything of this turn was handed in: subscriptions are written and answered.
    pub fn end_turn(&mut self, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        self.continue_requests(to);
        self.write_changes(to);
        // While the ledger has enough to do, all filters wait in line, also those of short packets.
        let is_held = self.changes.opens_enough() || to.command_room() == Room::Over;
        self.changes.units = if is_held { 0 } else { UNITS_PER_TURN };
        self.forget_some_filters();
        self.recheck_some(to);
        self.drain_some(to);
        self.arm_stalled(now);
        let waiting = usize::try_from(self.counters.waiting.value()).unwrap_or_default();
        self.tally.set(Purpose::Places, waiting * WAITING_BYTES);
        self.tally.settle();
    }

    /// Arms the timer for messages that could not be sent because the process is full.
    fn arm_stalled(&mut self, now: Now) {
        if !self.stalled.is_empty() {
            self.stalled_ms.get_or_insert(now.monotonic_ms + JUDGE_MS);
        }
    }

    /// Replaces the features and limits. Connected clients keep the limits that CONNACK has announced to them.
    pub fn change_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
    }

    /// Whether the next turn has something to do even if nothing happens.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.changes.has_work()
            || self.rechecked.is_some()
            || self.draining.as_ref().is_some_and(Draining::has_work)
    }

    /// Ends all connections with the reason that the server shuts down.
    pub fn shutdown(&mut self, now: Now, to: &mut impl Effects) {
        let to = &mut Outside::new(now, to);
        self.sys = None;
        self.draining = None;
        for id in self.clients.ids() {
            self.disconnect(id, DisconnectReason::ServerShuttingDown, to);
            let ending = Ending {
                reason: ReasonCode::ServerShuttingDown,
                why: "the broker shuts down",
                cause: protocol::Cause::Normal,
                by: By::Shutdown,
            };
            self.end(id, ending, to);
            to.close(id);
        }
    }

    /// A timer of a connection fired; it counts only if it is the one that was armed last.
    fn timer(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.due_ms > now.monotonic_ms {
            return;
        }
        client.due_ms = NEVER;
        if client.ends_ms().is_some_and(|ends| ends <= now.monotonic_ms) {
            let why = "a message could not be stored";
            return self.give_up(id, DisconnectReason::QuotaExceeded, why, to);
        }
        if client.is_in && client.expires_ms(now).is_some_and(|expires| expires <= now.monotonic_ms) {
            return self.end_expired(id, to);
        }
        self.end_pace(id, to);
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.blocked.is_some() || client.is_resuming {
            // We do not read it: what it may have sent is not its fault.
            client.session.touch(now);
        }
        client.session.excuse_until(self.back_ms);
        self.scratch.clear();
        match client.session.handle_timeout(&self.settings, now, &mut self.scratch) {
            Err(violation) if !to.has_unread(id) => {
                if !client.session.is_connected() {
                    self.counters.refused_connect_timeout.add(1);
                }
                self.violated(id, &violation, to);
            }
            // Bytes that have arrived are read before a client is ended for silence. Each delay costs the peer a byte
            // of a packet at least, and the length of a packet is bounded. Answers that were held back leave all the same.
            Ok(()) | Err(_) => {
                client.is_held &= client.session.is_holding_answers();
                self.send_scratch(id, to);
                self.unblock_answered(id, to);
                self.arm(id, now);
            }
        }
    }

    /// Arms the connection's timer if it should fire earlier than it would. At most a minute ahead: then it is
    /// armed again, and what a connection that is gone has left in the wheel is gone soon too.
    pub(crate) fn arm(&mut self, id: ConnectionId, now: Now) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let silent_ms = client.session.poll_timeout(&self.settings);
        let others = [client.ends_ms(), client.expires_ms(now), client.paced_until_ms(now)];
        let at = others.into_iter().chain([silent_ms]).flatten().min();
        let Some(at) = at else { return };
        let at = at.min(now.monotonic_ms + ARMED_AHEAD_MS_MAX);
        if at < client.due_ms {
            client.due_ms = at;
            self.wheel.arm(at, id);
        }
    }

    fn publish_sys(&mut self, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        let Some(topics) = &mut self.sys else { return };
        topics.next_ms = now.monotonic_ms + topics.peers.interval_ms;
        let totals = Totals::of(topics.peers.counters.iter().map(|counters| &**counters));
        let facts = Facts {
            ledger: &topics.peers.ledger,
            instruments: &topics.peers.instruments,
            subscriptions: self.index.len(),
            filters: self.index.filters(),
            shapes: self.index.shapes(),
            budget: self.tally.budget(),
            uptime_secs: now.monotonic_ms / 1_000,
        };
        for (topic, value) in topics.sys.changes(totals, facts, now.monotonic_ms) {
            if let Some(message) = base::Message::of_server(&topic, value.as_bytes()) {
                let message = Arc::new(message.charged_to(self.tally.budget()));
                to.command(Command::Publish(Publish::of_server(message)));
            }
        }
    }
}
