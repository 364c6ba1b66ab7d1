//! Messages that are on the record and still needed: how much of the disk they take if only what is live was there, and
//! how much of memory.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base::Message;

/// The bytes of messages that are on the record, each counted once, as long as somebody has it.
///
/// Each ledger has one, and a process one ledger, or a test some more. It stays until the process ends: every message
/// has it, and if they counted who has it, each would wait, at its beginning and its end, for everything that was stored
/// before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live(&'static Bytes);

#[derive(Debug, Default)]
struct Bytes {
    /// Bytes of all messages that are needed.
    all: AtomicUsize,
    /// Needed by queues, and in memory.
    in_memory: AtomicUsize,
}

/// The count of one message.
#[derive(Debug)]
pub(crate) struct LiveBytes {
    live: Live,
    bytes: usize,
    /// Milliseconds since 1970.
    expires_unix_ms: Option<u64>,
    /// How many queues have it in memory.
    in_memory: AtomicU32,
    /// Itself, while anybody has: it is not read once for each queue.
    message: Mutex<Weak<Message>>,
}

impl Live {
    /// A new count, which stays for as long as the process.
    pub(crate) fn for_ever() -> Self {
        Self(Box::leak(Box::default()))
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.all.load(Ordering::Relaxed)
    }

    /// Bytes of the needed messages that queues have in memory.
    pub(crate) fn in_memory_bytes(self) -> usize {
        self.0.in_memory.load(Ordering::Relaxed)
    }

    /// Counts a message of this number of bytes, until the count is dropped.
    pub(crate) fn count(self, bytes: usize) -> LiveBytes {
        self.count_until(bytes, None)
    }

    /// Counts a message, which may expire at this time.
    pub(crate) fn count_until(self, bytes: usize, expires_unix_ms: Option<u64>) -> LiveBytes {
        self.add(bytes);
        LiveBytes {
            live: self,
            bytes,
            expires_unix_ms,
            in_memory: AtomicU32::new(0),
            message: Mutex::default(),
        }
    }

    pub(crate) fn add(self, bytes: usize) {
        add(&self.0.all, bytes);
    }

    pub(crate) fn subtract(self, bytes: usize) {
        subtract(&self.0.all, bytes);
    }

    pub(crate) fn add_in_memory(self, bytes: usize) {
        add(&self.0.in_memory, bytes);
    }

    pub(crate) fn subtract_in_memory(self, bytes: usize) {
        subtract(&self.0.in_memory, bytes);
    }
}

/// There is one writer, the ledger: no need for an atomic addition.
fn add(count: &AtomicUsize, bytes: usize) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
}

fn subtract(count: &AtomicUsize, bytes: usize) {
    count.store(count.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
}

impl LiveBytes {
    /// Milliseconds since 1970.
    pub(crate) fn expires_unix_ms(&self) -> Option<u64> {
        self.expires_unix_ms
    }

    /// Remembers a message that somebody may have while all queues have it on disk: then it is not read.
    pub(crate) fn know(&self, message: &Arc<Message>) {
        *self.message() = Arc::downgrade(message);
    }

    /// The message, if anybody has it.
    pub(crate) fn known(&self) -> Option<Arc<Message>> {
        self.message().upgrade()
    }

    /// Returns the copy that all queues share: this one, unless another queue has already read one.
    pub(crate) fn the_one(&self, message: Arc<Message>) -> Arc<Message> {
        let mut known = self.message();
        known.upgrade().unwrap_or_else(|| {
            *known = Arc::downgrade(&message);
            message
        })
    }

    /// One queue more has it in memory.
    pub(crate) fn count_queue(&self) {
        let queues = self.in_memory.load(Ordering::Relaxed);
        self.in_memory.store(queues + 1, Ordering::Relaxed);
        if queues == 0 {
            self.live.add_in_memory(self.bytes);
        }
    }

    /// A queue has the message in memory no more.
    pub(crate) fn uncount_queue(&self) {
        let queues = self.in_memory.load(Ordering::Relaxed);
        self.in_memory.store(queues - 1, Ordering::Relaxed);
        if queues == 1 {
            self.live.subtract_in_memory(self.bytes);
        }
    }

    fn message(&self) -> MutexGuard<'_, Weak<Message>> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        self.live.subtract(self.bytes);
    }
}
