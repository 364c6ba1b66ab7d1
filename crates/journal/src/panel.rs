//! How a journal is, in numbers for `$SYS`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use protocol::{Durability, Instruments};

use crate::{Log, Status};

/// Instruments of a log.
pub(crate) struct Panel {
    log: Arc<Log>,
    before: Mutex<Before>,
}

/// The values shown last, for rates.
struct Before {
    at: Instant,
    groups: u64,
    commits: u64,
}

impl Panel {
    pub(crate) fn new(log: Arc<Log>) -> Self {
        let Status { groups, commits, .. } = log.status();
        Self { log, before: Mutex::new(Before { at: Instant::now(), groups, commits }) }
    }

    /// Commits per second, and groups of records per commit, since the last time.
    fn rates(&self, status: &Status) -> (f64, f64) {
        let now = Before { at: Instant::now(), groups: status.groups, commits: status.commits };
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let commits = now.commits.saturating_sub(before.commits) as f64;
        let groups = now.groups.saturating_sub(before.groups) as f64;
        let secs = now.at.duration_since(before.at).as_secs_f64();
        *before = now;
        let per = |count: f64, of: f64| if of > 0.0 { count / of } else { 0.0 };
        (per(commits, secs), per(groups, commits))
    }
}

impl Instruments for Panel {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        let (commits_per_second, groups_per_commit) = self.rates(&self.log.status());
        say("journal/commits_per_second", format!("{commits_per_second:.1}"));
        say("journal/groups_per_commit", format!("{groups_per_commit:.1}"));
        self.read_totals(say);
    }

    fn read_totals(&self, say: &mut dyn FnMut(&str, String)) {
        let status = self.log.status();
        say("journal/durability", name(self.log.durability()).to_owned());
        say("journal/commits", status.commits.to_string());
        say("journal/groups", status.groups.to_string());
        say("journal/syncs", status.syncs.to_string());
        say("journal/bytes/written", status.bytes_written.to_string());
        say("journal/bytes/copied", status.copied_bytes.to_string());
        say("journal/bytes/pending", status.pending_bytes.to_string());
        // Before the first report of the ledger, nobody knows.
        if status.live_bytes != u64::MAX {
            say("journal/bytes/live", status.live_bytes.to_string());
        }
        say("journal/bytes/log", status.log_bytes.to_string());
        say("journal/bytes/limit", status.limit_bytes.to_string());
        say("journal/segments", status.segments.to_string());
        say("journal/segments/spare", status.spares.to_string());
        say("journal/segments/recycled", status.recycled.to_string());
        say("journal/segments/beyond_limit", status.beyond_limit.to_string());
        say("journal/messages_read_back", status.fetched.to_string());
        // 0 or 1, so that an alarm can be set on them.
        say("journal/failed", u8::from(status.failure.is_some()).to_string());
        say("journal/no_space", u8::from(status.no_space.is_some()).to_string());
        say("journal/damaged", u8::from(status.damage.is_some()).to_string());
        status.latencies.figures("journal/commit_us", say);
    }
}

fn name(durability: Durability) -> &'static str {
    match durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
        Durability::None => "none",
    }
}

impl fmt::Debug for Panel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panel").field("log", &self.log).finish_non_exhaustive()
    }
}
