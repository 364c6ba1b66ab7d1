//! Counters for tests that check how much was read.

use core::sync::atomic::{AtomicUsize, Ordering};

static USER_PROPERTIES: AtomicUsize = AtomicUsize::new(0);

/// Number of User Properties that this process has read.
pub fn user_properties() -> usize {
    USER_PROPERTIES.load(Ordering::Relaxed)
}

pub(crate) fn count_user_property() {
    USER_PROPERTIES.fetch_add(1, Ordering::Relaxed);
}
