//! Old records on their way from whoever keeps them to the ledger, which copies what is still true of them.

use std::collections::VecDeque;

use session::Now;

use crate::{Effects, Keeper, Ledger, Record};

/// What was handed out to be copied and was not looked at yet. One for each [`Keeper`].
#[derive(Debug, Default)]
pub struct Turnover {
    old: VecDeque<Record<'static>>,
}

impl Turnover {
    /// Goes on with old records whose space is wanted, about a thousand units of work: takes more when all that it has are
    /// done with, since that is what asking for more means. It tells the keeper what is live, by which that decides whether
    /// there is more. Returns whether it is to be called again at once.
    ///
    /// What can never be copied stays, and nobody waits for it. `keeper` is who keeps the records that go `to` the world.
    pub fn work<E: Effects>(
        &mut self,
        ledger: &mut Ledger,
        now: Now,
        to: &mut E,
        keeper: for<'a> fn(&'a mut E) -> &'a mut (dyn Keeper + 'a),
    ) -> bool {
        keeper(to).set_live_bytes(ledger.live_bytes());
        let mut is_handed = !self.old.is_empty();
        if self.old.is_empty()
            && let Some(records) = keeper(to).next_to_copy(&mut |queue, id| ledger.needs(queue, id))
        {
            // Mostly none of them is needed: then the next are asked for.
            is_handed = true;
            self.old.extend(records);
        }
        if !self.old.is_empty() {
            // Nothing else may be done before there is space, and there is none before this.
            ledger.settle_before_copies(now, to);
        }
        ledger.copy_some(&mut self.old, to) || (is_handed && self.old.is_empty())
    }
}
