//! Arithmetic on gauges, which the ledger alone writes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// There is one writer: no need for an atomic addition, which costs several times as much.
pub(crate) fn add(counter: &AtomicUsize, by: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

pub(crate) fn subtract(counter: &AtomicUsize, by: usize) {
    let before = counter.load(Ordering::Relaxed);
    debug_assert!(before >= by, "nothing is taken away that was not there");
    counter.store(before.wrapping_sub(by), Ordering::Relaxed);
}
