//! Counts of a run, and of a ledger.

use ledger::{Ledger, QueueCensus};

/// Counts of a run that went well.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) published: usize,
    pub(crate) delivered: usize,
    /// Processes that have ended without warning.
    pub(crate) crashes: usize,
    /// Segments of the journal that were cleaned and used again.
    pub(crate) recycled: u64,
    /// Processes whose journal has failed.
    pub(crate) failures: usize,
    /// Runs in which the log got more disk in the end, because too much of it was live.
    pub(crate) given_disk: usize,
    /// Steps with so little memory left that nothing new is admitted.
    pub(crate) tight: u64,
    /// Steps with an output that is long enough to be written in parts.
    pub(crate) in_parts: u64,
    /// Valid configurations that have replaced others.
    pub(crate) reloads: usize,
    /// Messages that an operator discarded.
    pub(crate) discarded: usize,
    /// Messages that an operator moved from one queue to another.
    pub(crate) moved: usize,
    pub(crate) digest: u64,
}

/// Number and bytes of all messages of a ledger, in memory or not, as text that two ledgers can be compared by.
pub(crate) fn counted(ledger: &Ledger) -> String {
    let census = ledger.census();
    let sessions = census.sessions.iter().map(|session| (&*session.client_id, &session.queue));
    let groups = census.groups.iter().map(|group| (&*group.filter, &group.queue));
    let queues = sessions.chain(groups).map(|(name, queue)| {
        let QueueCensus { messages, bytes, .. } = queue;
        format!("{name}: {messages} messages, {bytes} B\n")
    });
    let total = format!("retained {} B, live {} B\n", census.retained_bytes, ledger.live_bytes());
    queues.chain([total]).collect()
}
