//! Old records on their way from their keeper to the ledger, which copies the facts that are still true.

use std::collections::VecDeque;

use base::Now;

use crate::Ledger;
use crate::record::{Effects, Keeper, Record};

/// Old records that were handed out for copying and not examined yet. Each [`Keeper`] has its own.
#[derive(Debug, Default)]
pub struct Turnover {
    old: VecDeque<Record<'static>>,
}

impl Turnover {
    /// Continues with old records whose space is wanted, about a thousand units of work. It requests more records only
    /// when all earlier ones are done with, because the request tells the keeper so. It tells the keeper the number of
    /// live bytes, by which the keeper decides whether there are more records. It also charges the records that wait to
    /// be written to the ledger's account. Returns whether it is to be called again at once.
    ///
    /// A record that can never be copied stays, and nobody waits for it. `keeper` keeps the records that go `to` the
    /// world.
    pub fn work<E: Effects, K: Keeper + ?Sized>(
        &mut self,
        ledger: &mut Ledger,
        now: Now,
        to: &mut E,
        keeper: for<'a> fn(&'a mut E) -> &'a mut K,
    ) -> bool {
        keeper(to).set_live_bytes(ledger.live_bytes());
        ledger.settle_pending(keeper(to).pending_bytes());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Budget, Purpose, ShardId};

    use super::*;
    use crate::record::Needs;
    use crate::record::keeper::InMemory;
    use crate::record::{Lsn, Progress, Refusal};
    use crate::settings::Settings;
    use protocol::Reply;

    /// A keeper with records that wait to be written.
    struct Slow {
        pending_bytes: usize,
        rest: InMemory,
    }

    impl Keeper for Slow {
        fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
            self.rest.commit(group)
        }

        fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
            self.rest.commit(group)
        }

        fn progress(&self) -> Progress {
            self.rest.progress()
        }

        fn next_to_copy(&mut self, _: Needs<'_>) -> Option<Vec<Record<'static>>> {
            None
        }

        fn pending_bytes(&self) -> usize {
            self.pending_bytes
        }
    }

    impl Effects for Slow {
        fn post(&mut self, _: ShardId, _: Reply) {}

        fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
            self.rest.commit(group)
        }

        fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
            self.rest.commit(group)
        }
    }

    #[test]
    fn records_that_wait_to_be_written_are_on_the_account() {
        let budget = Arc::new(Budget::new(1_600));
        let index = Arc::new(index::Subscriptions::new([1, 2]));
        let mut ledger = Ledger::new(Settings::default(), index).with_budget(Arc::clone(&budget));
        let mut turnover = Turnover::default();
        for (pending_bytes, is_tight) in [(1_000, false), (1_550, true), (0, false)] {
            let mut slow = Slow { pending_bytes, rest: InMemory::default() };
            assert!(!turnover.work(&mut ledger, Now { monotonic_ms: 0, unix_ms: 0 }, &mut slow, |slow| slow));
            assert_eq!(budget.held_bytes(Purpose::Journal), pending_bytes);
            assert_eq!(budget.is_tight(), is_tight, "while much waits, nothing new is admitted");
        }
    }
}
