//! The broker as one process: shards, the ledger, and the ways between them.

mod hands;
mod ledger;
mod post;
mod shard;

use std::rc::Rc;
use std::sync::Arc;

use ::broker::{Counters, Shard};
use ::ledger::{Gauges, Ledger};
use index::{ShardId, Subscriptions};

pub(crate) use hands::{Noted, What};
pub(crate) use post::Bounds;

use crate::disk::Disk;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scene::Scene;
use hands::Hands;
use ledger::LedgerThread;
use post::{Addressed, Board};
use shard::ShardThread;

/// A running broker.
pub(crate) struct Process {
    shards: Vec<ShardThread>,
    ledger: LedgerThread,
    board: Rc<Board>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) gauges: Arc<Gauges>,
}

impl Process {
    /// Starts on what the disk holds.
    pub(crate) fn start(scenario: &Scenario, disk: &Disk, scene: &Scene, random: &mut Random) -> Self {
        let count = scenario.shards;
        let index = Arc::new(Subscriptions::new([random.next(), random.next()]));
        let ledger = Ledger::recover(scenario.ledger.clone(), Arc::clone(&index), disk.records(), scene.now);
        let gauges = ledger.gauges();
        let board = Board::new(count, scenario.bounds);
        let settings = Arc::new(scenario.session.clone());
        let counters: Vec<Arc<Counters>> = (0..count).map(|_| Arc::default()).collect();
        let shards = (0..count).map(|number| {
            let (settings, index) = (Arc::clone(&settings), Arc::clone(&index));
            let counters = Arc::clone(&counters[number]);
            let brain = Shard::new(ShardId::new(number), settings, index, counters, None, scene.now);
            let hands = Hands::new(number, count, Rc::clone(&board), Random::new(random.next()));
            ShardThread::new(number, brain, hands)
        });
        Self {
            shards: shards.collect(),
            ledger: LedgerThread::new(ledger, Rc::clone(&board)),
            board,
            counters,
            gauges,
        }
    }

    /// Lets a shard do something, if it has anything to do. A thread that is posting goes on with that first.
    pub(crate) fn run_shard(&mut self, number: usize, scene: &mut Scene, random: &mut Random) -> bool {
        let shard = &mut self.shards[number];
        let posted = shard.post_one();
        if let Some(letter) = posted {
            self.deliver(letter);
            return true;
        }
        let is_awake = shard.is_awake(scene);
        if is_awake {
            shard.turn(scene, random);
        }
        is_awake
    }

    /// Lets the ledger do something, if it has anything to do.
    pub(crate) fn run_ledger(&mut self, disk: &mut Disk, scene: &mut Scene, random: &mut Random) -> bool {
        if let Some(letter) = self.ledger.outbox.pop_front() {
            self.deliver(letter);
            return true;
        }
        let is_awake = self.ledger.is_awake(disk, scene.now.monotonic_ms);
        if is_awake {
            self.ledger.turn(self.shards.len(), disk, scene, random);
        }
        is_awake
    }

    fn deliver(&mut self, letter: Addressed) {
        match letter {
            Addressed::Shard(to, letter) => self.shards[to.number()].inbox.push_back(letter),
            Addressed::Ledger(commands) => self.ledger.inbox.push_back(commands),
        }
    }

    /// When somebody wants to be woken.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let shards = self.shards.iter().filter_map(ShardThread::poll_timeout);
        shards.chain(self.ledger.ledger.poll_timeout()).min()
    }

    /// What somebody did that must not be done.
    pub(crate) fn fault(&self) -> Option<String> {
        self.board.faults.borrow_mut().pop()
    }

    /// The fullest way between shards, the fullest to the ledger, and the fullest output, in bytes.
    pub(crate) fn fullest(&self) -> (usize, usize, usize) {
        let (mail, commands) = self.board.fullest();
        let output = self.shards.iter().map(|shard| shard.hands.fullest()).max().unwrap_or(0);
        (mail, commands, output)
    }

    /// What of the ledger would survive, in words.
    pub(crate) fn durable_state(&self) -> String {
        self.ledger.ledger.durable_state()
    }

    /// Something is kept in memory only, for want of space.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.gauges.unrecorded.load(std::sync::atomic::Ordering::Relaxed) > 0
    }

    /// Who would not sleep, and why.
    pub(crate) fn busy(&self, disk: &Disk, scene: &Scene) -> String {
        let shards = self.shards.iter().map(|shard| format!("{:?}; ", shard.busy(scene)));
        let ledger = self.ledger.is_awake(disk, scene.now.monotonic_ms);
        let now_ms = scene.now.monotonic_ms;
        let timeout = self.ledger.ledger.poll_timeout();
        let work = self.ledger.ledger.has_work();
        format!(
            "{}ledger: {ledger}, work {work}, timeout {timeout:?}, now {now_ms}",
            shards.collect::<String>()
        )
    }
}
