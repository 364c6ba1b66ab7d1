//! The thread on which the ledger runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use index::ShardId;
use ledger::{
    Address, Command, Keeper, Ledger, Lsn, Record, Refusal, Reply, Room, RoomWait, Turnover, Wanted,
};

use crate::clock::Clock;
use crate::inbox::UnderWay;
use crate::mail::{ANSWERS_BYTES, Switchboard, ToLedger, UNASKED_BYTES};

/// Commands that are carried out before they are answered, about. Clients wait for the answers, also to commands of other
/// shards. Fewer would be synced in more and smaller parts.
const COMMANDS_PER_TURN: usize = 1_000;

/// Replies, collected while the ledger works through what has come in, posted once or twice per shard.
///
/// A publisher that has heard [`Reply::Decided`] may send the next message of a topic straight, shard to
/// shard. It must not overtake the decided one, which goes from here to each subscriber's shard as
/// [`Reply::Live`]. An inbox keeps the order in which it was posted to, so it is enough that every inbox
/// has its `Live` before any has a `Decided`: whoever acts on the permission posts later. For everything
/// else a shard is told, the order among its own replies is kept; `Decided` says nothing but "from now
/// on", so that it may come after replies it was given before.
///
/// The same holds for [`Reply::Claimed`]: a publisher that has come back on another shard goes on there, and what it
/// published before must have been posted to everybody. So what was posted before it is handed out in a round of its own.
pub(crate) struct Replies {
    /// By round, then by shard.
    rounds: Vec<Vec<Vec<Reply>>>,
    /// The last round has messages.
    has_live: bool,
    decided: Vec<Vec<Reply>>,
    /// What they weigh, by shard, and what the shards have not read of earlier ones.
    weights: Vec<usize>,
    unread: Arc<[UnderWay]>,
    keeper: Box<dyn Keeper>,
}

impl Replies {
    pub(crate) fn new(unread: &Arc<[UnderWay]>, keeper: Box<dyn Keeper>) -> Self {
        let none = || -> Vec<Vec<Reply>> { unread.iter().map(|_| Vec::new()).collect() };
        Self {
            rounds: vec![none()],
            has_live: false,
            decided: none(),
            weights: vec![0; unread.len()],
            unread: Arc::clone(unread),
            keeper,
        }
    }

    /// Whether no shard has more than that to read, what is not posted yet included.
    fn is_within(&self, bound: usize) -> bool {
        let mut shards = self.weights.iter().zip(self.unread.iter());
        shards.all(|(bytes, unread)| bytes + unread.bytes() <= bound)
    }

    /// Hands out everything, in an order in which it may be posted. The first to each shard comes with what they all
    /// weigh.
    fn drain(&mut self, mut post: impl FnMut(ShardId, Vec<Reply>, usize)) {
        for replies in self.rounds.iter_mut().chain([&mut self.decided]) {
            for (shard, replies) in replies.iter_mut().enumerate() {
                if !replies.is_empty() {
                    let bytes = std::mem::take(&mut self.weights[shard]);
                    post(ShardId::new(shard), std::mem::take(replies), bytes);
                }
            }
        }
        self.rounds.truncate(1);
        self.has_live = false;
    }
}

impl ledger::Effects for Replies {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.weights[to.number()] += reply.weight_bytes();
        match reply {
            Reply::Decided { .. } => return self.decided[to.number()].push(reply),
            Reply::Claimed(_) if std::mem::take(&mut self.has_live) => {
                self.rounds.push(self.decided.iter().map(|_| Vec::new()).collect());
            }
            Reply::Live { .. } => self.has_live = true,
            _ => {}
        }
        let last = self.rounds.last_mut().expect("there is a first round");
        last[to.number()].push(reply);
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.keeper.commit(group)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.keeper.copy(group)
    }

    fn group_bytes_max(&self) -> usize {
        self.keeper.group_bytes_max()
    }

    fn address(&mut self) -> Option<Address> {
        self.keeper.address()
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.keeper.fetch(wanted);
    }

    fn has_room(&self) -> bool {
        self.is_within(UNASKED_BYTES)
    }

    fn lacks_space(&self) -> bool {
        self.keeper.room() == Room::None
    }
}

/// What the shards have asked for, in its order.
#[derive(Default)]
struct Letters {
    fresh: Vec<ToLedger>,
    read: VecDeque<ToLedger>,
    /// The commands of the first, as far as they were not carried out, and what they weighed.
    begun: Option<(ShardId, std::vec::IntoIter<Command>, usize)>,
}

impl Letters {
    fn take(&mut self, board: &Switchboard) {
        board.ledger.take(&mut self.fresh);
        self.read.extend(self.fresh.drain(..));
    }

    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.begun.is_none()
    }

    /// At the end nobody is left who reads.
    fn is_last(&self) -> bool {
        self.read.iter().any(|letter| matches!(letter, ToLedger::Stop))
    }

    /// Carries out what one turn does, or until there is no room for more. Returns whether that was the end.
    fn handle(
        &mut self,
        board: &Switchboard,
        mut has_room: impl FnMut(&mut Replies) -> bool,
        replies: &mut Replies,
        mut each: impl FnMut(ShardId, Command, &mut Replies),
    ) -> bool {
        let mut left = COMMANDS_PER_TURN;
        loop {
            if let Some((from, commands, bytes)) = &mut self.begun {
                while left > 0 && has_room(replies) {
                    let Some(command) = commands.next() else { break };
                    left -= 1;
                    each(*from, command, replies);
                }
                if commands.len() > 0 {
                    return false;
                }
                board.commands_handled(*from, *bytes);
                self.begun = None;
            }
            match self.read.pop_front() {
                Some(ToLedger::Commands { from, commands, bytes }) => {
                    self.begun = Some((from, commands.into_iter(), bytes));
                }
                Some(ToLedger::RepliesRead) => {}
                Some(ToLedger::Stop) => return true,
                None => return false,
            }
        }
    }
}

/// Serves commands until the last shard has ended. `keeper` wakes this thread when records have become safe, when there is
/// space again, and when old records are to be copied.
///
/// Commands wait while a shard has more than [`ANSWERS_BYTES`] of answers to read. Wills and steps of cursors, which no
/// client waits for, are put off above [`UNASKED_BYTES`]. Shards read their answers whatever else they wait for, so this
/// wait is short.
///
/// Commands also wait while the journal has no space for their records, for a bounded time ([`RoomWait`]). Old records
/// are copied meanwhile, and answers whose records are safe are sent.
pub(crate) fn run(mut ledger: Ledger, keeper: Box<dyn Keeper>, board: &Arc<Switchboard>, mut clock: Clock) {
    let (mut letters, mut room_wait) = (Letters::default(), RoomWait::default());
    let mut replies = Replies::new(&board.answers, keeper);
    // Of records whose space is wanted, and whether there is more to do about them at once.
    let (mut turnover, mut is_copying) = (Turnover::default(), false);
    // Without it nothing is cleaned, and commands may wait for that.
    replies.keeper.set_live_bytes(ledger.live_bytes());
    loop {
        letters.take(board);
        let is_last = letters.is_last();
        if !is_last && !board.has_room_for_replies(ANSWERS_BYTES) {
            thread::park();
            continue;
        }
        let may_add = board.has_room_for_replies(UNASKED_BYTES);
        let now_ms = clock.current_ms();
        let waits = room_wait.waits(replies.keeper.room(), now_ms);
        let has_work = if may_add { ledger.has_work() } else { ledger.has_work_without_room() };
        let may_go_on = !waits && (!letters.is_empty() || has_work);
        if !(may_go_on || is_last || is_copying || replies.keeper.has_fetched()) {
            let timeout_ms = match waits {
                true => room_wait.poll_timeout(now_ms),
                // It is woken when the shards have read: timers may ask for what is put off.
                false => ledger.poll_timeout().filter(|_| may_add),
            };
            match timeout_ms {
                Some(at_ms) => thread::park_timeout(Duration::from_millis(at_ms.saturating_sub(now_ms))),
                None => thread::park(),
            }
        }
        clock.tick();
        let now = clock.now();
        replies.keeper.begin_turn();
        let mut has_room = |replies: &mut Replies| {
            let has_space = !room_wait.waits(replies.keeper.room(), now.monotonic_ms);
            is_last || (has_space && replies.is_within(ANSWERS_BYTES))
        };
        let each = |from, command, replies: &mut Replies| ledger.handle(from, command, now, replies);
        if letters.handle(board, &mut has_room, &mut replies, each) {
            return;
        }
        while let Some(fetched) = replies.keeper.next_fetched() {
            ledger.fetched(fetched, &mut replies);
        }
        if has_room(&mut replies) {
            ledger.work(now, &mut replies);
        }
        is_copying = turnover.work(&mut ledger, now, &mut replies, |replies| &mut *replies.keeper);
        replies.keeper.end_turn();
        let progress = replies.keeper.progress();
        ledger.progress(progress, now, &mut replies);
        replies.drain(|shard, replies, bytes| board.post_replies(shard, replies, bytes));
    }
}

#[cfg(test)]
mod tests {
    use index::ConnectionId;
    use ledger::{Effects, InMemory};

    use super::*;
    use crate::inbox::{Inbox, Wake};

    #[test]
    fn no_shard_hears_that_a_message_is_decided_before_all_have_the_message() {
        let live = || live_of(1);
        let [first, second] = [ShardId::new(0), ShardId::new(1)];
        let unread: Arc<[UnderWay]> = Arc::new([UnderWay::default(), UnderWay::default()]);
        let mut replies = Replies::new(&unread, Box::new(InMemory::default()));
        replies.post(first, Reply::Evict { connection: connection(1) });
        replies.post(first, Reply::Decided { connection: connection(2) });
        replies.post(
            first,
            Reply::Refused { connection: connection(3), reason: wire::ReasonCode::QuotaExceeded },
        );
        replies.post(second, live());
        replies.post(first, Reply::Decided { connection: connection(4) });
        let mut posted = Vec::new();
        replies.drain(|shard, replies, _| posted.extend(replies.into_iter().map(|reply| (shard, reply))));
        let told: Vec<(ShardId, &str, u32)> =
            posted.iter().map(|(shard, reply)| describe(*shard, reply)).collect();
        let expected = [
            (first, "evict", 1),
            (first, "refused", 3),
            (second, "live", 0),
            (first, "decided", 2),
            (first, "decided", 4),
        ];
        assert_eq!(told, expected);
        replies.drain(|_, _, _| panic!("everything was handed out"));
    }

    #[test]
    fn there_is_room_again_when_a_shard_has_read_what_it_was_answered() {
        let unread: Arc<[UnderWay]> = Arc::new([UnderWay::default(), UnderWay::default()]);
        let mut replies = Replies::new(&unread, Box::new(InMemory::default()));
        assert!(replies.has_room());
        replies.post(ShardId::new(1), live_of(UNASKED_BYTES));
        assert!(!replies.has_room(), "what is not posted yet counts");
        assert!(replies.is_within(ANSWERS_BYTES), "what is waited for goes on");
        let mut posted = 0;
        replies.drain(|shard, _, bytes| {
            unread[shard.number()].add(bytes);
            posted += bytes;
        });
        assert!(!replies.has_room() && unread[1].wait_above(UNASKED_BYTES));
        assert!(unread[1].handled(posted), "the ledger waits, and is told");
        assert!(replies.has_room());
    }

    /// One command may have an answer of a megabyte, and a shard handles all that it finds in its inbox in one turn.
    #[test]
    fn commands_wait_while_a_shard_has_much_to_read() {
        let wake = || Wake::Thread(thread::current());
        let board = Switchboard::new(vec![Inbox::new(wake())], Inbox::new(wake()), Arc::default());
        let mut replies = Replies::new(&board.answers, Box::new(InMemory::default()));
        let shard = ShardId::new(0);
        let close = |slot| Command::Close { connection: connection(slot), id: ledger::CursorId(1) };
        let commands = (0..100).map(close).collect();
        board.ledger.post(ToLedger::Commands { from: shard, commands, bytes: 0 });
        let mut letters = Letters::default();
        letters.take(&board);
        let mut carried_out = Vec::new();
        for _ in 0..2 {
            let mut count = 0;
            let each = |shard, _, replies: &mut Replies| {
                count += 1;
                replies.post(shard, live_of(1 << 20));
            };
            letters.handle(&board, |replies| replies.is_within(ANSWERS_BYTES), &mut replies, each);
            carried_out.push(count);
            replies.drain(|shard, replies, bytes| board.post_replies(shard, replies, bytes));
            assert!(!board.has_room_for_replies(ANSWERS_BYTES));
            board.replies_handled(shard, 4 << 20);
        }
        assert_eq!(carried_out, [4, 4], "and the rest waits");
        assert!(!letters.is_empty());
    }

    /// Whoever waits for an answer does not wait for all that the shards have sent meanwhile.
    #[test]
    fn a_turn_of_the_ledger_carries_out_a_bounded_number_of_commands() {
        let wake = || Wake::Thread(thread::current());
        let board = Switchboard::new(vec![Inbox::new(wake())], Inbox::new(wake()), Arc::default());
        let mut replies = Replies::new(&board.answers, Box::new(InMemory::default()));
        let close = |slot| Command::Close { connection: connection(slot), id: ledger::CursorId(1) };
        for _ in 0..8 {
            let commands = (0..300).map(close).collect();
            board.ledger.post(ToLedger::Commands { from: ShardId::new(0), commands, bytes: 0 });
        }
        board.ledger.post(ToLedger::Stop);
        let mut letters = Letters::default();
        letters.take(&board);
        let mut carried_out = Vec::new();
        let mut is_last = false;
        while !is_last {
            let mut count = 0;
            is_last = letters.handle(&board, |_| true, &mut replies, |_, _, _| count += 1);
            carried_out.push(count);
        }
        assert_eq!(carried_out, [COMMANDS_PER_TURN, COMMANDS_PER_TURN, 400]);
    }

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn live_of(bytes: usize) -> Reply {
        let message = session::Message::of_server("t", &vec![0; bytes]).expect("a topic");
        Reply::Live { message: Arc::new(message), targets: Arc::new([]), stored: false }
    }

    fn describe(shard: ShardId, reply: &Reply) -> (ShardId, &'static str, u32) {
        match reply {
            Reply::Evict { connection } => (shard, "evict", connection.slot),
            Reply::Refused { connection, .. } => (shard, "refused", connection.slot),
            Reply::Decided { connection } => (shard, "decided", connection.slot),
            Reply::Live { .. } => (shard, "live", 0),
            _ => unreachable!("no other reply was posted"),
        }
    }
}
