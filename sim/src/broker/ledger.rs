//! The thread of the ledger.

use std::collections::VecDeque;
use std::sync::Arc;

use ::journal::Journal;
use ::record::{Decoder, encode_group};
use ledger::{Address, Fetched, Keeper, Ledger, Lsn, Needs, Progress, Record, RecordRoom, Refusal, Wanted};
use turn::{Board, Bounds, LedgerLoop, Sleep, ToLedger};

use super::outside::Outbox;
use crate::random::Random;
use crate::scene::Scene;
use crate::trace::note;
use crate::witness::Witness;

/// Bodies of messages that are read back in one turn, at the most.
const FETCHED_MAX: usize = 40;

/// An event loop, its inbox, and who wakes it.
pub(crate) struct LedgerThread {
    body: LedgerLoop<Observed>,
    pub(crate) inbox: VecDeque<ToLedger>,
    pub(crate) outbox: Outbox,
    /// The progress of the journal that the ledger was told.
    told: Progress,
    /// The journal may have something for it.
    pub(crate) is_woken: bool,
    /// The number of the last reload whose limits are in force.
    pub(super) reloaded: u64,
}

impl LedgerThread {
    pub(crate) fn new(
        ledger: Ledger,
        journal: Journal,
        board: Arc<Board>,
        bounds: Bounds,
        random: Random,
    ) -> Self {
        let keeper = Box::new(Observed {
            journal,
            recorded: Vec::new(),
            said: Vec::new(),
            taken: 0,
            fetches: 0,
            random,
        });
        Self {
            body: LedgerLoop::new(ledger, keeper, board, bounds),
            inbox: VecDeque::new(),
            outbox: Outbox::default(),
            told: Progress::default(),
            is_woken: false,
            reloaded: 0,
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        self.body.ledger()
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.body.keeper().journal
    }

    /// Groups with a message that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.body.keeper().taken
    }

    /// Whether anything would wake the thread, which waits for shards that have much to read.
    pub(crate) fn is_awake(&mut self, now_ms: u64) -> bool {
        if self.body.is_blocked() {
            return false;
        }
        let is_due = match self.body.sleep(now_ms) {
            Sleep::No => true,
            Sleep::Until(at_ms) => at_ms <= now_ms,
            Sleep::Long => false,
        };
        is_due || !self.inbox.is_empty() || self.is_woken || self.journal().progress() != self.told
    }

    /// When it wants to be woken though nothing happens.
    pub(crate) fn poll_timeout(&mut self, now_ms: u64) -> Option<u64> {
        match self.body.sleep(now_ms) {
            Sleep::Until(at_ms) => Some(at_ms),
            Sleep::No | Sleep::Long => None,
        }
    }

    /// Runs one turn, with some of the letters that have arrived.
    pub(crate) fn turn(&mut self, witness: &mut Witness, scene: &mut Scene, random: &mut Random) {
        self.is_woken = false;
        let count = random.some_of(self.inbox.len());
        let mut letters: Vec<ToLedger> = self.inbox.drain(..count).collect();
        for letter in &letters {
            if let ToLedger::Commands { from, commands, .. } = letter {
                note!(scene.trace, ("ledger"), "hears of shard {}: {commands:?}", from.number());
            }
        }
        self.body.receive(&mut letters, &mut self.outbox);
        if let Some(reload) = self.outbox.reloaded.take() {
            note!(scene.trace, ("ledger"), "has the limits of configuration {reload}");
            self.reloaded = reload;
            scene.oracle.ledger_reloaded(reload);
        }
        self.told = self.journal().progress();
        self.body.turn(scene.now, &mut self.outbox);
        let keeper = self.body.keeper_mut();
        for (at, group) in keeper.recorded.drain(..) {
            note!(scene.trace, ("ledger"), "records {group:?} at {at:?}");
            witness.recorded(at, &group);
        }
        for said in keeper.said.drain(..) {
            note!(scene.trace, ("ledger"), "{said}");
        }
    }
}

/// A journal, with a note of all that it was given.
struct Observed {
    journal: Journal,
    recorded: Vec<(Lsn, Vec<Record<'static>>)>,
    said: Vec<String>,
    taken: u64,
    /// Bodies that are still handed out in this turn.
    fetches: usize,
    random: Random,
}

impl Observed {
    fn note(&mut self, outcome: Result<Lsn, Refusal>, group: &[Record<'_>]) {
        match outcome {
            Ok(at) => self.recorded.push((at, copies(group))),
            Err(refusal) => self.said.push(format!("is refused {group:?}: {refusal:?}")),
        }
    }
}

/// Records with messages of their own: those of the broker are on its account of memory as long as anybody has them.
fn copies(group: &[Record<'_>]) -> Vec<Record<'static>> {
    let mut bytes = Vec::new();
    encode_group(group, &mut bytes);
    let mut decoder = Decoder::default();
    let decoded = decoder.records(&bytes).map(|decoded| decoded.expect("what is encoded can be decoded"));
    decoded.filter_map(|decoded| decoded.record).collect()
}

impl Keeper for Observed {
    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        let committed = self.journal.commit(group);
        assert_ne!(committed, Err(Refusal::TooLong), "the ledger keeps to what a frame takes: {group:?}");
        let has_message = matches!(group.first(), Some(Record::Enqueue { .. }));
        self.taken += u64::from(has_message && committed.is_ok());
        self.note(committed, group);
        committed
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        let copied = self.journal.copy(group);
        self.note(copied, group);
        copied
    }

    fn room(&self) -> RecordRoom {
        self.journal.room()
    }

    fn group_bytes_max(&self) -> usize {
        self.journal.group_bytes_max()
    }

    fn address(&mut self) -> Option<Address> {
        self.journal.address()
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.journal.fetch(wanted);
    }

    /// Some of what was read back, in the order in which it stands on the disk.
    fn next_fetched(&mut self) -> Option<Fetched> {
        self.fetches = self.fetches.checked_sub(1)?;
        self.journal.next_fetched()
    }

    fn has_fetched(&self) -> bool {
        self.journal.has_fetched()
    }

    fn begin_turn(&mut self) {
        self.fetches = 1 + self.random.some_of(FETCHED_MAX);
        self.journal.begin_turn();
    }

    fn end_turn(&mut self) {
        self.journal.end_turn();
    }

    fn progress(&self) -> Progress {
        self.journal.progress()
    }

    fn next_to_copy(&mut self, needs: Needs<'_>) -> Option<Vec<Record<'static>>> {
        self.journal.next_to_copy(needs)
    }

    fn set_live_bytes(&mut self, bytes: usize) {
        Keeper::set_live_bytes(&mut self.journal, bytes);
    }

    fn pending_bytes(&self) -> usize {
        Keeper::pending_bytes(&self.journal)
    }
}
