//! The thread on which the ledger runs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use index::ShardId;
use ledger::{Command, Ledger, Reply};

use crate::clock::Clock;
use crate::mail::{Letter, Switchboard, ToLedger};

/// Replies, collected while the ledger works through what has come in, posted once per shard.
pub(crate) struct Replies {
    shards: Vec<Vec<Reply>>,
}

impl Replies {
    pub(crate) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| Vec::new()).collect() }
    }

    fn send(&mut self, board: &Switchboard) {
        for (replies, inbox) in self.shards.iter_mut().zip(&board.shards) {
            if !replies.is_empty() {
                inbox.post(Letter::Replies(std::mem::take(replies)));
            }
        }
    }
}

impl ledger::Effects for Replies {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.shards[to.number()].push(reply);
    }
}

/// Serves commands until the last shard has ended.
pub(crate) fn run(mut ledger: Ledger, board: &Arc<Switchboard>, mut clock: Clock) {
    let mut letters = Vec::new();
    let mut replies = Replies::new(board.shards.len());
    loop {
        board.ledger.take(&mut letters);
        if letters.is_empty() && !ledger.has_work() {
            match ledger.poll_timeout() {
                Some(at_ms) => {
                    thread::park_timeout(Duration::from_millis(at_ms.saturating_sub(clock.current_ms())));
                }
                None => thread::park(),
            }
        }
        clock.tick();
        for letter in letters.drain(..) {
            match letter {
                ToLedger::Commands { from, commands, bytes } => {
                    let each = |command: Command| ledger.handle(from, command, &mut replies);
                    commands.into_iter().for_each(each);
                    board.commands_handled(from, bytes);
                }
                ToLedger::Stop => return,
            }
        }
        ledger.work(clock.now(), &mut replies);
        replies.send(board);
    }
}
