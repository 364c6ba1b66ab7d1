//! The thread on which the ledger runs.

use std::thread;
use std::time::Duration;

use ledger::{Keeper, Ledger};
use turn::{Bounds, LedgerLoop, Sleep};

use crate::clock::Clock;
use crate::switchboard::Switchboard;

/// Serves commands until the last shard has ended. `keeper` wakes this thread when it has come further.
pub(crate) fn run(ledger: Ledger, keeper: Box<dyn Keeper>, switchboard: &Switchboard, mut clock: Clock) {
    let mut body = LedgerLoop::new(ledger, keeper, switchboard.board.clone(), Bounds::default());
    let mut letters = Vec::new();
    loop {
        switchboard.ledger.take(&mut letters);
        body.receive(&mut letters, &mut &*switchboard);
        let now_ms = clock.current_ms();
        match body.sleep(now_ms) {
            // Other threads that wait for this processor go first.
            Sleep::No => thread::yield_now(),
            Sleep::Until(at_ms) => thread::park_timeout(Duration::from_millis(at_ms.saturating_sub(now_ms))),
            Sleep::Long => thread::park(),
        }
        clock.tick();
        if body.turn(clock.now(), &mut &*switchboard) {
            return;
        }
    }
}
