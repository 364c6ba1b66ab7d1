//! The thread on which the ledger runs.

use std::thread;
use std::time::Duration;

use base::ShardId;
use ledger::{Keeper, Ledger};
use turn::{Answers, Bounds, LedgerHost, LedgerLoop, Letter, Note, Sleep};

use crate::clock::Clock;
use crate::log::LedgerLog;
use crate::switchboard::Switchboard;

/// The outside of the ledger's thread.
struct Outside<'a> {
    switchboard: &'a Switchboard,
    log: LedgerLog,
    /// The time of this turn, for the log.
    now_ms: u64,
}

impl LedgerHost for Outside<'_> {
    fn post_answers(&mut self, to: ShardId, answers: Answers) {
        self.switchboard.shards[to.number()].post(Letter::Answers(answers));
    }

    fn post_commands_read(&mut self, to: ShardId) {
        self.switchboard.shards[to.number()].post(Note::CommandsRead.into());
    }

    fn reloaded(&mut self, reload: u64) {
        self.switchboard.settled.tell(reload);
    }

    fn ended_by_full_queue(&mut self, client_id: &str, messages: usize) {
        self.log.ended_by_full_queue(self.now_ms, client_id, messages);
    }

    fn more_ended_by_full_queues(&mut self, sessions: u64) {
        self.log.more_ended_by_full_queues(sessions);
    }
}

/// Serves commands until the last shard has ended. `keeper` wakes this thread when it has come further.
pub(crate) fn run(ledger: Ledger, keeper: Box<dyn Keeper>, switchboard: &Switchboard, mut clock: Clock) {
    let mut body = LedgerLoop::new(ledger, keeper, switchboard.board.clone(), Bounds::default());
    let mut outside = Outside { switchboard, log: LedgerLog::default(), now_ms: 0 };
    let mut letters = Vec::new();
    loop {
        switchboard.ledger.take(&mut letters);
        body.receive(&mut letters, &mut outside);
        let now_ms = clock.current_ms();
        match body.sleep(now_ms).or_until(outside.log.poll_timeout()) {
            // Other threads that wait for this processor go first.
            Sleep::No => thread::yield_now(),
            Sleep::Until(at_ms) => thread::park_timeout(Duration::from_millis(at_ms.saturating_sub(now_ms))),
            Sleep::Long => thread::park(),
        }
        clock.tick();
        outside.now_ms = clock.now().monotonic_ms;
        outside.log.tell_left_out(outside.now_ms);
        if body.turn(clock.now(), &mut outside) {
            return;
        }
    }
}
