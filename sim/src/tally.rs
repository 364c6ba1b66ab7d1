//! Counts of a run.

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
    /// Runs in which the log got more disk in the end, because so much of it was live.
    pub(crate) given_disk: usize,
    /// Steps with so little memory left that nothing new is admitted.
    pub(crate) tight: u64,
    pub(crate) digest: u64,
}
