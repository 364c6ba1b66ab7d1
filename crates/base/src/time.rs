//! The time, which the caller reads.

/// The time, as the caller read it. No code in the core reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Milliseconds since some moment before the start of the process. Never goes back. For timers.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970-01-01 UTC. May jump. For times that must mean something later.
    pub unix_ms: u64,
}
