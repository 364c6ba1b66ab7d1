//! Bytes under way from one thread to another.

use broker::Room;

use super::sync::{AtomicBool, AtomicUsize, Ordering};

/// The bytes that one sender has under way to one inbox, and whether the sender waits until they are read.
///
/// The sender adds while it routes. The receiver subtracts when it has handled a batch. No thread ever blocks on an
/// inbox: over the bound the sender stops *reading* clients whose packets would add to it.
#[derive(Default)]
pub(crate) struct Way {
    bytes: AtomicUsize,
    waiting: AtomicBool,
}

impl Way {
    /// Adds bytes. Returns whether the way is over its bound now; nothing is refused.
    pub(crate) fn add(&self, bytes: usize, bound: usize) -> Room {
        let under_way = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if under_way > bound { Room::Over } else { Room::Open }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the sender may go on. After `Over` the sender waits, and the receiver tells it when to go on.
    pub(crate) fn room(&self, bound: usize) -> Room {
        if self.bytes() > bound && self.wait_above(bound) { Room::Over } else { Room::Open }
    }

    /// Announces that the sender is going to wait, then looks again, so that the wake-up cannot be missed: rule 10 of
    /// `protocol::order`.
    /// Returns whether the sender has to wait.
    pub(crate) fn wait_above(&self, bound: usize) -> bool {
        self.waiting.store(true, Ordering::SeqCst);
        self.bytes.load(Ordering::SeqCst) > bound
    }

    /// Subtracts `bytes` that the receiver has handled. Returns whether the sender waits, and must be told.
    pub(crate) fn handled(&self, bytes: usize) -> bool {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.waiting.swap(false, Ordering::SeqCst)
    }
}
