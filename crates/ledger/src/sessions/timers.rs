//! When which session is to be looked at again.

use std::collections::BTreeSet;

use base::QueueId;

/// Timers of sessions that are offline and wait for something. The times are on the monotonic clock, so that nothing
/// happens because the wall clock jumps.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(u64, QueueId)>,
}

impl Timers {
    /// Moves a session's time, which was `from`, to `to`.
    pub(crate) fn set(&mut self, session: QueueId, from: Option<u64>, to: Option<u64>) {
        if let Some(from) = from {
            self.due.remove(&(from, session));
        }
        if let Some(to) = to {
            self.due.insert((to, session));
        }
    }

    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// The next session whose time has come. It has no time any more.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<QueueId> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.due.pop_first().map(|(_, session)| session)
    }
}
