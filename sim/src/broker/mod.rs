//! The broker as one process: shards, the ledger, and the ways between them.

mod access;
mod doors;
mod journal;
mod ledger;
mod outside;
mod shard;
mod traced;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::broker::{Counters, Parties, Shard};
use ::journal::OpenError;
use ::ledger::{Charged, Keeper, Ledger, Progress, Record};
use auth::Guard;
use base::{Budget, Now, ShardId};
use index::Subscriptions;
use protocol::Gauges;
use turn::{Board, Letter, Note, ToLedger};

pub(crate) use access::{NAMES, PASSWORD, USER};
pub(crate) use doors::Order;
pub(crate) use outside::{Noted, What};

use crate::disk::Disk;
use crate::operator::PLACES;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scene::Scene;
use crate::trace::note;
use doors::Doors;
use journal::JournalThreads;
use ledger::LedgerThread;
use outside::{Addressed, Socket};
use shard::ShardThread;
use traced::Traced;

/// Contents of a process's log, and messages that were refused.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Space {
    pub(crate) live_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) segments: u64,
    pub(crate) spares: u64,
    /// Messages that were recorded.
    pub(crate) taken: u64,
    /// Messages that could not be recorded.
    pub(crate) refused: u64,
}

/// Users that are counted one by one: fewer than there are, so that they displace each other.
const COUNTED_USERS_MAX: usize = 2;

/// A running broker process.
pub(crate) struct Process {
    shards: Vec<ShardThread>,
    ledger: LedgerThread,
    journal: JournalThreads,
    traced: Option<Traced>,
    board: Arc<Board>,
    pub(crate) index: Arc<Subscriptions>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) parties: Arc<Parties>,
    pub(crate) gauges: Arc<Gauges>,
    guard: Arc<Guard>,
}

impl Process {
    /// Starts on what the disk holds.
    ///
    /// # Errors
    /// The journal cannot be opened.
    pub(crate) fn start(
        scenario: &Scenario,
        disk: &mut Disk,
        scene: &mut Scene,
        random: &mut Random,
    ) -> Result<Self, OpenError> {
        let count = scenario.shards;
        let mut opening = ::journal::open(disk.storage(), scenario.journal.clone())?;
        let records: Vec<Record<'static>> = opening.records().map(|found| found.record).collect();
        // Once more, without the bodies of messages where they are not wanted.
        let mut again = ::journal::open(disk.storage(), scenario.journal.clone())?;
        let index = Arc::new(Subscriptions::new([random.next(), random.next()]));
        let budget = Arc::new(Budget::new(scenario.memory_bytes_max));
        let mut charged = Charged::new(&mut again, &budget);
        let guard = Arc::new(access::guard(scenario.rules));
        let settings = ::ledger::Settings { guard: Arc::clone(&guard), ..scenario.ledger.clone() };
        let ledger = Ledger::recover_from(settings, Arc::clone(&index), &mut charged, scene.now);
        let ledger = ledger.with_budget(Arc::clone(&budget));
        let opened = again.finish();
        if !matches!(opened, Err(OpenError::Damaged(_)))
            && let Err(finding) = disk.witness.judge(&records, &scenario.ledger, scene.now)
        {
            scene.oracle.fail(finding);
        }
        let (keeper, committer, preparer, _) = opened?;
        disk.witness.begin(records);
        let gauges = ledger.gauges();
        let addresses = scene.network.addresses();
        let places = if addresses > 0 { usize::from(PLACES) } else { 0 };
        let board = Arc::new(Board::new(count, Arc::clone(&budget)).with_listeners(places));
        let settings = Arc::new(scenario.session.clone());
        let counters: Vec<Arc<Counters>> = (0..count).map(|_| Arc::default()).collect();
        let parties = Arc::new(Parties::new(COUNTED_USERS_MAX));
        let shards = (0..count).map(|number| {
            let (settings, index) = (Arc::clone(&settings), Arc::clone(&index));
            let counters = Arc::clone(&counters[number]);
            let id = ShardId::new(number);
            let brain = Shard::new(id, settings, index, Arc::clone(&counters), None, scene.now)
                .with_budget(Arc::clone(&budget))
                .with_guard(Arc::clone(&guard))
                .with_parties(Arc::clone(&parties));
            let chance = Random::new(random.next());
            ShardThread::new(brain, Arc::clone(&board), (counters, scenario.bounds), chance, scene.now)
        });
        let mut shards: Vec<ShardThread> = shards.collect();
        let traced = Traced::begin(scenario, scene.now);
        if let Some(traced) = &traced {
            shards.iter_mut().for_each(|shard| shard.outside().inbox.push_back(traced.note().into()));
        }
        shards[0].doors = (addresses > 0).then(|| Doors::new(addresses, Arc::clone(&board)));
        Ok(Self {
            shards,
            ledger: LedgerThread::new(
                ledger,
                keeper,
                Arc::clone(&board),
                scenario.bounds,
                Random::new(random.next()),
            ),
            journal: JournalThreads::new(committer, preparer, scene.now.monotonic_ms),
            traced,
            board,
            index,
            counters,
            parties,
            gauges,
            guard,
        })
    }

    /// Lets a shard do something, if it has anything to do. A thread that is posting goes on with that first.
    pub(crate) fn run_shard(&mut self, number: usize, scene: &mut Scene, random: &mut Random) -> bool {
        let shard = &mut self.shards[number];
        let posted = shard.post_one();
        if let Some(letter) = posted {
            self.deliver(letter, scene);
            return true;
        }
        let is_awake = shard.is_awake(scene);
        if is_awake {
            shard.turn(scene, random);
            if let Some(Err(finding)) = self.traced.as_mut().map(Traced::read) {
                scene.oracle.fail(finding);
            }
        }
        is_awake
    }

    /// Lets the ledger do something, if it has anything to do.
    pub(crate) fn run_ledger(&mut self, disk: &mut Disk, scene: &mut Scene, random: &mut Random) -> bool {
        if let Some(letter) = self.ledger.outbox.pop() {
            self.deliver(letter, scene);
            return true;
        }
        let is_awake = self.ledger.is_awake(scene.now.monotonic_ms);
        if is_awake {
            self.ledger.turn(&mut disk.witness, scene, random);
        }
        is_awake
    }

    /// Lets the thread commit that does, if it has anything to commit; the disk is slow for `slow_ms` then.
    pub(crate) fn run_committer(&mut self, slow_ms: u64, now_ms: u64) -> bool {
        let has_committed = self.journal.commit(now_ms);
        if has_committed && slow_ms > 0 {
            self.journal.be_busy(now_ms + slow_ms);
        }
        has_committed
    }

    /// Delays the preparing thread by this number of milliseconds.
    pub(crate) fn delay_preparer(&mut self, slow_ms: u64, now_ms: u64) {
        self.journal.prepare_later(now_ms + slow_ms);
    }

    /// Lets the thread do something that sees to the space, if there is anything to do.
    pub(crate) fn run_preparer(&mut self, now_ms: u64) -> bool {
        let had_space = self.has_space();
        let has_prepared = self.journal.prepare(now_ms);
        self.ledger.is_woken |= has_prepared || self.has_space() != had_space;
        has_prepared
    }

    /// Returns the use of space, and the messages recorded and refused.
    pub(crate) fn space(&self) -> Space {
        let ::journal::Status { log_bytes, segments, spares, .. } = self.ledger.journal().status();
        let load = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed) as u64;
        Space {
            live_bytes: self.ledger.ledger().live_bytes() as u64,
            log_bytes,
            segments,
            spares,
            taken: self.ledger.taken(),
            refused: load(&self.gauges.commits_refused) + load(&self.gauges.unrecorded),
        }
    }

    /// Has the first shard do something with its listeners.
    pub(crate) fn order(&mut self, order: Order) {
        self.shards[0].doors.iter_mut().for_each(|doors| doors.orders.push_back(order));
    }

    /// Whether the first shard has not done what it was told to.
    pub(crate) fn has_orders(&self) -> bool {
        self.shards[0].doors.as_ref().is_some_and(|doors| !doors.orders.is_empty())
    }

    /// Listens before the first turn.
    pub(crate) fn listen(&mut self, scene: &mut Scene) {
        self.shards[0].doors.iter_mut().for_each(|doors| doors.obey(scene));
    }

    /// Posts a letter of the thread that reloads.
    pub(crate) fn post(&mut self, shard: usize, note: Note<Socket>) {
        self.shards[shard].outside().inbox.push_back(note.into());
    }

    /// The same to the ledger.
    pub(crate) fn post_to_ledger(&mut self, letter: ToLedger) {
        self.ledger.inbox.push_back(letter);
    }

    /// Gives the rules of the clients the name with this number.
    pub(crate) fn rename_rules(&self, rules: usize) {
        access::rename(&self.guard, rules);
        self.index.touch_all();
    }

    /// Whether the limits of a reload are in force everywhere.
    pub(crate) fn has_reloaded(&self, reload: u64) -> bool {
        self.ledger.reloaded >= reload && self.shards.iter().all(|shard| shard.reloaded >= reload)
    }

    /// Connections that were accepted under a number and are not gone.
    pub(crate) fn connections_of(&self, number: u16) -> usize {
        self.board.connections_of(number)
    }

    /// Connections that were ended because of a reload.
    pub(crate) fn ended_by_reload(&self) -> u64 {
        self.counters.iter().map(|counters| counters.ended_reload.value()).sum()
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    fn has_space(&self) -> bool {
        self.ledger.journal().log().trouble().no_space.is_none()
    }

    /// How many messages are retained, and how many bytes of them.
    pub(crate) fn retained(&self) -> (usize, usize) {
        let load = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed);
        (load(&self.gauges.retained_messages), load(&self.gauges.retained_bytes))
    }

    /// The account of memory.
    pub(crate) fn budget(&self) -> &Budget {
        self.board.budget()
    }

    /// How far the journal has come.
    pub(crate) fn progress(&self) -> Progress {
        self.ledger.journal().progress()
    }

    /// Segments of the journal that were used again.
    pub(crate) fn recycled(&self) -> u64 {
        self.ledger.journal().status().recycled
    }

    /// Returns the problems that the journal reports.
    pub(crate) fn trouble(&self) -> ::journal::Trouble {
        self.ledger.journal().log().trouble()
    }

    fn deliver(&mut self, letter: Addressed, scene: &mut Scene) {
        match letter {
            Addressed::Shard(to, letter) => {
                if let Letter::Answers(answers) = &letter {
                    for reply in answers.replies() {
                        note!(scene.trace, ("shard {}", to.number()), "is told {reply:?}");
                    }
                }
                self.shards[to.number()].outside().inbox.push_back(letter);
            }
            Addressed::Ledger(letter) => self.ledger.inbox.push_back(letter),
        }
    }

    /// When somebody wants to be woken.
    pub(crate) fn poll_timeout(&mut self, now_ms: u64) -> Option<u64> {
        let shards = self.shards.iter().filter_map(ShardThread::poll_timeout);
        shards.chain(self.ledger.poll_timeout(now_ms)).min()
    }

    /// The fullest way between shards, the fullest to the ledger, and the fullest output, in bytes.
    pub(crate) fn fullest(&self) -> (usize, usize, usize) {
        let (mail, commands) = self.board.fullest();
        let output = self.shards.iter().map(ShardThread::fullest_output_bytes).max().unwrap_or(0);
        (mail, commands, output)
    }

    /// Returns the part of the ledger that would survive a restart, as text.
    pub(crate) fn durable_state(&self) -> String {
        self.ledger.ledger().durable_state()
    }

    /// How many messages wait in the ledger though they have expired.
    pub(crate) fn expired_waiting(&self, now: Now) -> usize {
        self.ledger.ledger().expired_waiting(now)
    }

    /// Something is kept in memory only, for want of space.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.gauges.unrecorded.load(Ordering::Relaxed) > 0
    }

    /// Returns the threads that would not sleep, and the reasons.
    pub(crate) fn busy(&mut self, scene: &Scene) -> String {
        let shards = self.shards.iter().map(|shard| format!("{:?}; ", shard.busy(scene)));
        let ledger = self.ledger.is_awake(scene.now.monotonic_ms);
        let now_ms = scene.now.monotonic_ms;
        let timeout = self.ledger.ledger().poll_timeout();
        let work = self.ledger.ledger().has_work();
        format!(
            "{}ledger: {ledger}, work {work}, timeout {timeout:?}, now {now_ms}",
            shards.collect::<String>()
        )
    }
}
