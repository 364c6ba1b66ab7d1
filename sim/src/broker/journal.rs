//! The journal's threads, which do one piece of their work when it is their turn: one commits, one prepares.

use ::journal::{Committer, Pace, Preparer, REST_MS};

/// When nothing was committed for this long, nobody else uses the disk much, in milliseconds.
const IDLE_MS: u64 = 1_000;

/// The two threads of a journal.
#[derive(Debug)]
pub(super) struct JournalThreads {
    committer: Committer,
    preparer: Preparer,
    /// Since when there was nothing that somebody waits for.
    rests_since_ms: Option<u64>,
    committed_ms: u64,
    /// When something was last prepared.
    prepared_ms: u64,
    /// Time at which the last commit ends, in milliseconds.
    busy_until_ms: u64,
    /// The same for what sees to the space.
    prepares_from_ms: u64,
}

impl JournalThreads {
    pub(super) fn new(committer: Committer, preparer: Preparer, now_ms: u64) -> Self {
        Self {
            committer,
            preparer,
            rests_since_ms: None,
            committed_ms: now_ms,
            prepared_ms: now_ms,
            busy_until_ms: now_ms,
            prepares_from_ms: now_ms,
        }
    }

    /// Commits what somebody waits for, and the rest when that was put off for long enough. Whether there was anything.
    pub(super) fn commit(&mut self, now_ms: u64) -> bool {
        if now_ms < self.busy_until_ms {
            return false;
        }
        let rests_since_ms = *self.rests_since_ms.get_or_insert(now_ms);
        let has_rested = now_ms >= rests_since_ms + REST_MS;
        let has_committed = self.committer.commit_once() || has_rested && self.committer.commit_rest();
        if has_committed {
            self.rests_since_ms = None;
            self.committed_ms = now_ms;
        }
        has_committed
    }

    /// The disk takes its time for what comes next.
    pub(super) fn be_busy(&mut self, until_ms: u64) {
        self.busy_until_ms = until_ms;
    }

    /// The disk takes its time for the next segment.
    pub(super) fn prepare_later(&mut self, from_ms: u64) {
        self.prepares_from_ms = from_ms;
    }

    /// Whether there was anything to prepare.
    pub(super) fn prepare(&mut self, now_ms: u64) -> bool {
        if now_ms < self.prepares_from_ms {
            return false;
        }
        let pace = if now_ms >= self.committed_ms + IDLE_MS {
            Pace::Idle
        } else if now_ms >= self.prepared_ms + IDLE_MS {
            Pace::Slow
        } else {
            Pace::Busy
        };
        let has_prepared = self.preparer.prepare_once(pace);
        if has_prepared {
            self.prepared_ms = now_ms;
        }
        has_prepared
    }
}
