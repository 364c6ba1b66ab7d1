//! The thread on which the ledger runs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use index::ShardId;
use ledger::{Command, Ledger, Lsn, Record, Refusal, Reply};

use crate::clock::Clock;
use crate::mail::{Letter, Switchboard, ToLedger};

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
    committed: Lsn,
}

impl Replies {
    pub(crate) fn new(shards: usize) -> Self {
        let none = || -> Vec<Vec<Reply>> { (0..shards).map(|_| Vec::new()).collect() };
        Self { rounds: vec![none()], has_live: false, decided: none(), committed: Lsn::default() }
    }

    /// Hands out everything, in an order in which it may be posted.
    fn drain(&mut self, mut post: impl FnMut(ShardId, Vec<Reply>)) {
        for replies in self.rounds.iter_mut().chain([&mut self.decided]) {
            for (shard, replies) in replies.iter_mut().enumerate() {
                if !replies.is_empty() {
                    post(ShardId::new(shard), std::mem::take(replies));
                }
            }
        }
        self.rounds.truncate(1);
        self.has_live = false;
    }
}

impl ledger::Effects for Replies {
    fn post(&mut self, to: ShardId, reply: Reply) {
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

    /// Everything is kept in memory, where what was taken is as safe as it gets.
    fn commit(&mut self, _: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.committed.0 += 1;
        Ok(self.committed)
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
                    let each = |command: Command| ledger.handle(from, command, clock.now(), &mut replies);
                    commands.into_iter().for_each(each);
                    board.commands_handled(from, bytes);
                }
                ToLedger::Stop => return,
            }
        }
        ledger.work(clock.now(), &mut replies);
        ledger.durable(replies.committed, clock.now(), &mut replies);
        replies.drain(|shard, replies| board.shards[shard.number()].post(Letter::Replies(replies)));
    }
}

#[cfg(test)]
mod tests {
    use index::ConnectionId;
    use ledger::Effects;

    use super::*;

    #[test]
    fn no_shard_hears_that_a_message_is_decided_before_all_have_the_message() {
        let connection = |slot| ConnectionId { slot, generation: 0 };
        let live = || Reply::Live {
            message: Arc::new(session::Message::of_server("t", b"1").expect("a topic")),
            targets: Arc::new([]),
            stored: false,
        };
        let [first, second] = [ShardId::new(0), ShardId::new(1)];
        let mut replies = Replies::new(2);
        replies.post(first, Reply::Evict { connection: connection(1) });
        replies.post(first, Reply::Decided { connection: connection(2) });
        replies.post(
            first,
            Reply::Refused { connection: connection(3), reason: wire::ReasonCode::QuotaExceeded },
        );
        replies.post(second, live());
        replies.post(first, Reply::Decided { connection: connection(4) });
        let mut posted = Vec::new();
        replies.drain(|shard, replies| posted.extend(replies.into_iter().map(|reply| (shard, reply))));
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
        replies.drain(|_, _| panic!("everything was handed out"));
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
