//! Turns of the ledger.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Now, ShardId};
use ledger::{Keeper, Ledger, RoomWait, Turnover};
use protocol::Command;

use crate::Sleep;
use crate::ask::AskLedger;
use crate::board::Board;
use crate::bounds::Bounds;
use crate::faults::Fault;
use crate::host::LedgerHost;
use crate::letter::ToLedger;
use crate::replies::Replies;

/// Commands that are carried out before they are answered, about. Clients wait for the answers, also to commands of other
/// shards. Fewer would be synced in more and smaller parts.
const COMMANDS_PER_TURN: usize = 1_000;
/// Questions of operators that a turn answers. An answer costs at most about 50 microseconds.
const QUESTIONS_PER_TURN: usize = 4;

/// The event loop of the ledger: a turn carries out commands, does work that was put off, and posts replies.
///
/// Commands wait while a shard has many answers to read ([`Bounds::answers`]); work that nobody waits for is put off
/// earlier ([`Bounds::unasked`]). Shards always read their inboxes, so this wait is short. Commands also wait, for a
/// bounded time ([`RoomWait`]), while the log has no space for records; copies and answers to durable records do not.
pub struct LedgerLoop<K: ?Sized> {
    ledger: Ledger,
    letters: Letters,
    replies: Replies<K>,
    room_wait: RoomWait,
    /// Old records whose space is wanted.
    turnover: Turnover,
    /// The next turn goes on with these records at once.
    is_copying: bool,
    board: Arc<Board>,
    bounds: Bounds,
}

impl<K: Keeper + ?Sized> LedgerLoop<K> {
    /// `keeper` stores the records that follow those from which `ledger` was recovered.
    pub fn new(ledger: Ledger, mut keeper: Box<K>, board: Arc<Board>, bounds: Bounds) -> Self {
        // Without it nothing is cleaned, and commands may wait for that.
        keeper.set_live_bytes(ledger.live_bytes());
        Self {
            ledger,
            letters: Letters::default(),
            replies: Replies::new(Arc::clone(&board), bounds, keeper),
            room_wait: RoomWait::default(),
            turnover: Turnover::default(),
            is_copying: false,
            board,
            bounds,
        }
    }

    /// The ledger that this loop drives.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The keeper of its records.
    pub fn keeper(&self) -> &K {
        &self.replies.keeper
    }

    /// The keeper of its records.
    pub fn keeper_mut(&mut self) -> &mut K {
        &mut self.replies.keeper
    }

    /// Appends letters that have arrived. Other limits hold at once.
    pub fn receive(&mut self, letters: &mut Vec<ToLedger>, host: &mut impl LedgerHost) {
        for letter in letters.drain(..) {
            match letter {
                ToLedger::Ask(ask) => self.letters.asked.push_back(*ask),
                ToLedger::Settings { settings, durability, reload } => {
                    self.replies.keeper.raise_durability(durability);
                    if !Fault::ForgottenSettings.is_planted() {
                        self.ledger.change_settings(&settings);
                    }
                    host.reloaded(reload);
                }
                letter => self.letters.read.push_back(letter),
            }
        }
    }

    /// How long the thread may sleep. Wake it when a letter arrives, when the keeper has made progress, and when the
    /// keeper has records to copy.
    pub fn sleep(&mut self, now_ms: u64) -> Sleep {
        if self.is_blocked() {
            // It is woken when the shards have read.
            return Sleep::Long;
        }
        let may_add = self.board.has_room_for_answers(self.bounds.unasked);
        let waits = self.room_wait.waits(self.replies.keeper.room(), now_ms);
        let has_work = if may_add { self.ledger.has_work() } else { self.ledger.has_work_without_room() };
        let may_go_on = !waits && (!self.letters.is_empty() || has_work);
        if may_go_on
            || !self.letters.asked.is_empty()
            || self.letters.is_last()
            || self.is_copying
            || self.replies.keeper.has_fetched()
        {
            return Sleep::No;
        }
        match waits {
            true => Sleep::until([self.room_wait.poll_timeout(now_ms)]),
            // It is woken when the shards have read: timers may ask for what is put off.
            false => Sleep::until([self.ledger.poll_timeout().filter(|_| may_add)]),
        }
    }

    /// Runs one turn. Returns whether it was the last one, because all shards have ended.
    pub fn turn(&mut self, now: Now, host: &mut impl LedgerHost) -> bool {
        if self.is_blocked() {
            return false;
        }
        let Self { ledger, letters, replies, room_wait, .. } = self;
        replies.keeper.begin_turn();
        let is_last = letters.is_last();
        let mut has_room = |replies: &mut Replies<K>| {
            let has_space = !room_wait.waits(replies.keeper.room(), now.monotonic_ms);
            is_last || (has_space && replies.may_answer())
        };
        let each = |from, command, replies: &mut Replies<K>| ledger.handle(from, command, now, replies);
        let read = |from, bytes| {
            if self.board.commands(from).handled(bytes) {
                host.post_commands_read(from);
            }
        };
        if letters.handle(replies, &mut has_room, each, read) {
            return true;
        }
        for ask in letters.next_asked() {
            (ask.answer)(ledger.ask(ask.question, now, replies));
        }
        while let Some(fetched) = replies.keeper.next_fetched() {
            ledger.fetched(fetched, replies);
        }
        if has_room(replies) {
            ledger.work(now, replies);
        }
        self.is_copying = self.turnover.work(ledger, now, replies, |replies| &mut *replies.keeper);
        replies.keeper.end_turn();
        let progress = replies.keeper.progress();
        ledger.progress(progress, now, replies);
        replies.post_all(host);
        false
    }

    /// Whether a shard has so many answers to read that the ledger may add none.
    pub fn is_blocked(&self) -> bool {
        !self.letters.is_last() && !self.board.has_room_for_answers(self.bounds.answers)
    }
}

/// Commands of the shards, in the order in which they arrived.
#[derive(Default)]
struct Letters {
    read: VecDeque<ToLedger>,
    /// The rest of a letter of which some commands were carried out, and the weight of the whole letter.
    begun: Option<(ShardId, std::vec::IntoIter<Command>, usize)>,
    /// Questions of operators. They do not wait behind commands that wait for room.
    asked: VecDeque<AskLedger>,
}

impl Letters {
    fn is_empty(&self) -> bool {
        self.read.is_empty() && self.begun.is_none()
    }

    /// Takes the questions that this turn answers.
    fn next_asked(&mut self) -> Vec<AskLedger> {
        let count = self.asked.len().min(QUESTIONS_PER_TURN);
        self.asked.drain(..count).collect()
    }

    /// Whether all shards have ended, so that nobody reads answers.
    fn is_last(&self) -> bool {
        self.read.iter().any(|letter| matches!(letter, ToLedger::Stop))
    }

    /// Carries out the commands of one turn, or until there is no room for more answers. `read` is called with the shard and the weight of each
    /// letter that is done. Returns whether [`ToLedger::Stop`] was reached.
    fn handle<R>(
        &mut self,
        replies: &mut R,
        mut has_room: impl FnMut(&mut R) -> bool,
        mut each: impl FnMut(ShardId, Command, &mut R),
        mut read: impl FnMut(ShardId, usize),
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
                read(*from, *bytes);
                self.begun = None;
            }
            match self.read.pop_front() {
                Some(ToLedger::Commands { from, commands, bytes }) => {
                    self.begun = Some((from, commands.into_iter(), bytes));
                }
                Some(ToLedger::AnswersRead | ToLedger::Ask(_) | ToLedger::Settings { .. }) => {}
                Some(ToLedger::Stop) => return true,
                None => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::ConnectionId;
    use protocol::CursorId;

    use super::*;

    /// One command may have an answer of a megabyte, and a shard handles all that it finds in its inbox in one turn.
    #[test]
    fn commands_wait_while_a_shard_has_much_to_read() {
        let close =
            |slot| Command::Close { connection: ConnectionId { slot, generation: 0 }, id: CursorId(1) };
        let commands = (0..100).map(close).collect();
        let mut letters = Letters::default();
        letters.read.push_back(ToLedger::Commands { from: ShardId::new(0), commands, bytes: 100 });
        let mut carried_out = Vec::new();
        let mut read = 0;
        for _ in 0..2 {
            let mut answers = 0;
            let has_room = |answers: &mut usize| *answers < 4;
            let was_last = letters.handle(
                &mut answers,
                has_room,
                |_, _, answers| *answers += 1,
                |_, bytes| read += bytes,
            );
            assert!(!was_last);
            carried_out.push(answers);
        }
        assert_eq!((&carried_out[..], read), (&[4, 4][..], 0), "and the rest waits");
        assert!(!letters.is_empty());
        letters.handle(&mut (), |()| true, |_, _, ()| {}, |_, bytes| read += bytes);
        assert_eq!((letters.is_empty(), read), (true, 100));
    }

    #[test]
    fn a_turn_of_the_ledger_answers_a_bounded_number_of_questions() {
        let ask = || AskLedger { question: ledger::Question::Ping, answer: Box::new(|_| {}) };
        let mut letters = Letters { asked: (0..9).map(|_| ask()).collect(), ..Letters::default() };
        let turns: Vec<usize> = (0..4).map(|_| letters.next_asked().len()).collect();
        assert_eq!(turns, [QUESTIONS_PER_TURN, QUESTIONS_PER_TURN, 1, 0]);
    }

    /// Whoever waits for an answer does not wait for all that the shards have sent meanwhile.
    #[test]
    fn a_turn_of_the_ledger_carries_out_a_bounded_number_of_commands() {
        let mut letters = Letters::default();
        let connection = ConnectionId { slot: 0, generation: 0 };
        for _ in 0..8 {
            let commands = (0..300).map(|_| Command::Close { connection, id: CursorId(1) }).collect();
            letters.read.push_back(ToLedger::Commands { from: ShardId::new(0), commands, bytes: 0 });
        }
        letters.read.push_back(ToLedger::Stop);
        let mut carried_out = Vec::new();
        let mut is_last = false;
        while !is_last {
            let mut count = 0;
            is_last = letters.handle(&mut count, |_| true, |_, _, count| *count += 1, |_, _| {});
            carried_out.push(count);
        }
        assert_eq!(carried_out, [COMMANDS_PER_TURN, COMMANDS_PER_TURN, 400]);
    }
}
