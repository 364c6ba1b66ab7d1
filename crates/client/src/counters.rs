//! Counters of messages that a client has dropped.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that the driver increases and the handles read.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// See [`Client::unclaimed_dropped`](crate::Client::unclaimed_dropped).
    pub(crate) unclaimed: AtomicU64,
    /// See [`Client::unacknowledged_dropped`](crate::Client::unacknowledged_dropped).
    pub(crate) unacknowledged: AtomicU64,
    /// See [`Client::restored_lost`](crate::Client::restored_lost).
    pub(crate) restored: AtomicU64,
}

impl Counters {
    pub(crate) fn unclaimed(&self) -> u64 {
        self.unclaimed.load(Ordering::Relaxed)
    }

    pub(crate) fn restored(&self) -> u64 {
        self.restored.load(Ordering::Relaxed)
    }

    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged.load(Ordering::Relaxed)
    }
}
