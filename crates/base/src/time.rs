//! The time.

/// The time, as the caller read it. Nothing in the core looks at a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Milliseconds since some moment before the process did anything; never goes back. For running timers.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970-01-01 UTC; may jump. For times that must mean something later.
    pub unix_ms: u64,
}
