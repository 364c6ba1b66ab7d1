//! The ledger's thread: carries out commands, does what was put off, and posts its replies.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ::journal::Journal;
use index::ShardId;
use ledger::{
    Address, Effects, Keeper, Ledger, Lsn, Progress, Record, Refusal, Reply, Room, RoomWait, Turnover, Wanted,
};

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
    /// Commands wait while there is no space just now.
    room_wait: RefCell<RoomWait>,
    has_more_to_copy: bool,
    /// It was told how far the journal has come.
    told: Progress,
    /// Groups with a message that were taken.
    pub(crate) taken: u64,
    /// The journal may have something for it.
    pub(crate) is_woken: bool,
}

/// What the ledger says in one turn. No shard may hear that a message is decided before all have the message.
struct Replies<'a> {
    shards: Vec<VecDeque<Reply>>,
    decided: Vec<VecDeque<Reply>>,
    keeper: &'a mut Journal,
    taken: &'a mut u64,
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
        assert_ne!(committed, Err(Refusal::TooLong), "the ledger keeps to what a frame takes: {group:?}");
        let has_message = matches!(group.first(), Some(Record::Enqueue { .. }));
        *self.taken += u64::from(has_message && committed.is_ok());
        committed.inspect(|at| self.witness.recorded(*at, group))
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        let copied = self.keeper.copy(group);
        note!(self.trace, ("ledger"), "copies {group:?}: {copied:?}");
        copied.inspect(|at| self.witness.recorded(*at, group))
    }

    fn group_bytes_max(&self) -> usize {
        self.keeper.group_bytes_max()
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

    fn lacks_space(&self) -> bool {
        self.keeper.room() == Room::None
    }
}

impl LedgerThread {
    pub(crate) fn new(ledger: Ledger, mut keeper: Journal, board: Rc<Board>) -> Self {
        Keeper::set_live_bytes(&mut keeper, ledger.live_bytes());
        Self {
            ledger,
            keeper,
            board,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            turnover: Turnover::default(),
            room_wait: RefCell::default(),
            has_more_to_copy: false,
            told: Progress::default(),
            taken: 0,
            is_woken: false,
        }
    }

    /// Whether anything would wake the thread, which waits for shards that have much to read.
    pub(crate) fn is_awake(&self, now_ms: u64) -> bool {
        let has_come = |at_ms: Option<u64>| at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let waits = self.waits(now_ms);
        let may_go_on = !self.inbox.is_empty() || self.ledger.has_work();
        let is_wanted = may_go_on && !waits
            || self.has_more_to_copy
            || self.is_woken
            || self.keeper.has_fetched()
            || self.keeper.progress() != self.told
            || has_come(self.ledger.poll_timeout()) && !waits;
        is_wanted && self.board.has_room_for_answers()
    }

    /// Whether commands wait for space.
    fn waits(&self, now_ms: u64) -> bool {
        self.room_wait.borrow_mut().waits(self.keeper.room(), now_ms)
    }

    /// When it wants to be woken though nothing happens.
    pub(crate) fn poll_timeout(&self, now_ms: u64) -> Option<u64> {
        if self.waits(now_ms) {
            self.room_wait.borrow().poll_timeout(now_ms)
        } else {
            self.ledger.poll_timeout()
        }
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
            taken: &mut self.taken,
            witness,
            trace: &mut scene.trace,
            has_room: random.chance(900),
        };
        let room_wait = &self.room_wait;
        let waits =
            |replies: &Replies<'_>| room_wait.borrow_mut().waits(replies.keeper.room(), now.monotonic_ms);
        replies.keeper.begin_turn();
        for _ in 0..random.some_of(self.inbox.len()) {
            let Some(commands) = self.inbox.front_mut() else { break };
            for _ in 0..random.some_of(commands.commands.len()) {
                if waits(&replies) {
                    break;
                }
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
        if !waits(&replies) {
            self.ledger.work(now, &mut replies);
        }
        self.has_more_to_copy =
            self.turnover.work(&mut self.ledger, now, &mut replies, |replies| &mut *replies.keeper);
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
