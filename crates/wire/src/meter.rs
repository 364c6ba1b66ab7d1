//! How much was read, counted for tests.

use core::sync::atomic::{AtomicUsize, Ordering};

static USER_PROPERTIES: AtomicUsize = AtomicUsize::new(0);

/// How many User Properties this process has read so far.
pub fn user_properties() -> usize {
    USER_PROPERTIES.load(Ordering::Relaxed)
}

pub(crate) fn count_user_property() {
    USER_PROPERTIES.fetch_add(1, Ordering::Relaxed);
}
