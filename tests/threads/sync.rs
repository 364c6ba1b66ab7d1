//! Models of the types that threads share. They stop at each access, so that another thread may go on there.

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;

/// Wakes a thread that sleeps in its poll, as a descriptor that becomes readable and stays so until the poll has seen it.
#[derive(Default)]
pub(crate) struct Waker {
    is_readable: Mutex<bool>,
    changed: Condvar,
}

impl Waker {
    /// Never fails; the real one does when the poll is gone.
    pub(crate) fn wake(&self) -> std::io::Result<()> {
        *self.is_readable.lock().expect("nothing panics with the lock") = true;
        self.changed.notify_one();
        Ok(())
    }

    /// The poll of the reader.
    pub(crate) fn poll(&self) {
        let mut is_readable = self.is_readable.lock().expect("nothing panics with the lock");
        while !std::mem::take(&mut *is_readable) {
            is_readable = self.changed.wait(is_readable).expect("nothing panics with the lock");
        }
    }
}

/// A thread that sleeps in `park`. The real one may also wake up for nothing, which would hide a wake-up that is missing.
#[derive(Clone, Default)]
pub(crate) struct Thread(Arc<Waker>);

impl Thread {
    pub(crate) fn unpark(&self) {
        // It never fails.
        let _ = self.0.wake();
    }

    /// Sleeps until `unpark` is called, or was called since the last time.
    pub(crate) fn park(&self) {
        self.0.poll();
    }
}
