//! Identity of subscribers behind different handles.

use std::sync::Arc;

/// Distinguishes subscribers by a number.
pub trait Identity {
    /// A number that is the same for every clone of a subscriber, and different for different subscribers, while one of
    /// them is in the index. It is not part of any output.
    fn identity(&self) -> u64;
}

/// Two `Arc`s are one subscriber if they share one allocation. No pointer is followed.
impl<T> Identity for Arc<T> {
    fn identity(&self) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }
}

impl Identity for u64 {
    fn identity(&self) -> u64 {
        *self
    }
}
