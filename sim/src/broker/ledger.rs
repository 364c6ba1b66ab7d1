//! The ledger's thread: carries out commands, does what was put off, and posts its replies.

use std::collections::VecDeque;
use std::rc::Rc;

use ::journal::Journal;
use index::ShardId;
use ledger::{Address, Effects, Keeper, Ledger, Lsn, Progress, Record, Refusal, Reply, Turnover, Wanted};

use super::post::{Addressed, Board, Commands, Letter};
use crate::random::Random;
use crate::scene::Scene;
use crate::trace::{Trace, note};
use crate::witness::Witness;

/// The ledger with its inbox.
pub(crate) struct LedgerThread {
    pub(crate) ledger: Ledger,
    pub(crate) keeper: Journal,
    board: Rc<Board>,
    pub(crate) inbox: VecDeque<Commands>,
    pub(crate) outbox: VecDeque<Addressed>,
    /// Records that are to be copied, as far as they are still true.
    turnover: Turnover,
    has_more_to_copy: bool,
    /// It was told how far the journal has come.
    told: Progress,
    /// The journal may have something for it.
    pub(crate) is_woken: bool,
}

/// What the ledger says in one turn. No shard may hear that a message is decided before all have the message.
struct Replies<'a> {
    shards: Vec<VecDeque<Reply>>,
    decided: Vec<VecDeque<Reply>>,
    keeper: &'a mut Journal,
    witness: &'a mut Witness,
    trace: &'a mut Trace,
    has_room: bool,
}

impl Effects for Replies<'_> {
    fn post(&mut self, to: ShardId, reply: Reply) {
        let replies = match reply {
            Reply::Decided { .. } => &mut self.decided,
            _ => &mut self.shards,
        };
        replies[to.number()].push_back(reply);
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        let committed = self.keeper.commit(group);
        note!(self.trace, ("ledger"), "records {group:?}: {committed:?}");
        committed.inspect(|at| self.witness.recorded(*at, group))
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        let copied = self.keeper.copy(group);
        note!(self.trace, ("ledger"), "copies {group:?}: {copied:?}");
        copied.inspect(|at| self.witness.recorded(*at, group))
    }

    fn address(&mut self) -> Option<Address> {
        self.keeper.address()
    }

    fn fetch(&mut self, wanted: Wanted) {
        note!(self.trace, ("ledger"), "{wanted:?}");
        self.keeper.fetch(wanted);
    }

    fn has_room(&self) -> bool {
        self.has_room
    }
}

impl LedgerThread {
    pub(crate) fn new(ledger: Ledger, keeper: Journal, board: Rc<Board>) -> Self {
        Self {
            ledger,
            keeper,
            board,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            turnover: Turnover::default(),
            has_more_to_copy: false,
            told: Progress::default(),
            is_woken: false,
        }
    }

    /// Whether anything would wake the thread, which waits for shards that have much to read.
    pub(crate) fn is_awake(&self, now_ms: u64) -> bool {
        let is_wanted = !self.inbox.is_empty()
            || self.has_more_to_copy
            || self.ledger.has_work()
            || self.is_woken
            || self.keeper.has_fetched()
            || self.keeper.progress() != self.told
            || self.ledger.poll_timeout().is_some_and(|at_ms| at_ms <= now_ms);
        is_wanted && self.board.has_room_for_answers()
    }

    /// One turn: some commands, possibly of a part of a shard's turn only.
    pub(crate) fn turn(
        &mut self,
        shards: usize,
        witness: &mut Witness,
        scene: &mut Scene,
        random: &mut Random,
    ) {
        let now = scene.now;
        self.is_woken = false;
        let none = || (0..shards).map(|_| VecDeque::new()).collect();
        let mut replies = Replies {
            shards: none(),
            decided: none(),
            keeper: &mut self.keeper,
            witness,
            trace: &mut scene.trace,
            has_room: random.chance(900),
        };
        replies.keeper.begin_turn();
        for _ in 0..random.some_of(self.inbox.len()) {
            let Some(commands) = self.inbox.front_mut() else { break };
            for _ in 0..random.some_of(commands.commands.len()) {
                let Some(command) = commands.commands.pop_front() else { break };
                note!(replies.trace, ("ledger"), "hears of shard {}: {command:?}", commands.from.number());
                self.ledger.handle(commands.from, command, now, &mut replies);
            }
            if commands.commands.is_empty()
                && let Some(Commands { from, bytes, .. }) = self.inbox.pop_front()
                && self.board.commands_read(from, bytes)
            {
                self.outbox.push_back(Addressed::Shard(from, Letter::CommandsRead));
            }
        }
        // Some of what was read back, in the order in which it stands on the disk.
        let fetched = if replies.keeper.has_fetched() { 1 + random.some_of(40) } else { 0 };
        for _ in 0..fetched {
            let Some(fetched) = replies.keeper.next_fetched() else { break };
            note!(replies.trace, ("ledger"), "{fetched:?}");
            self.ledger.fetched(fetched, &mut replies);
        }
        self.ledger.work(now, &mut replies);
        self.has_more_to_copy =
            self.turnover.work(&mut self.ledger, &mut replies, |replies| &mut *replies.keeper);
        replies.keeper.end_turn();
        self.told = replies.keeper.progress();
        self.ledger.progress(self.told, now, &mut replies);
        for all in [replies.shards, replies.decided] {
            for (shard, replies) in all.into_iter().enumerate().filter(|(_, replies)| !replies.is_empty()) {
                let shard = ShardId::new(shard);
                let bytes = replies.iter().map(Reply::weight_bytes).sum();
                self.board.add_answers(shard, bytes);
                self.outbox.push_back(Addressed::Shard(shard, Letter::Replies { replies, bytes }));
            }
        }
    }
}
