//! Mailboxes: every thread has one inbox; whoever writes to it appends a whole batch under one short lock.

use super::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, Thread, Waker};

/// How a sleeping reader of an inbox is woken.
pub(crate) enum Wake {
    /// A shard, asleep in its poll.
    Poll(Arc<Waker>),
    /// The ledger, asleep in `park`.
    Thread(Thread),
}

/// One thread's mail. Any thread posts, only its owner takes.
pub(crate) struct Inbox<T> {
    letters: Mutex<Vec<T>>,
    /// Set from the first post until the next take, so that a burst of posts costs one wake.
    woken: AtomicBool,
    wake: Wake,
}

impl<T> Inbox<T> {
    pub(crate) fn new(wake: Wake) -> Self {
        Self { letters: Mutex::new(Vec::new()), woken: AtomicBool::new(false), wake }
    }

    /// Appends one letter (rule 1 of `protocol::order`) and wakes the owner if it may sleep (rule 2).
    pub(crate) fn post(&self, letter: T) {
        self.lock().push(letter);
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        match &self.wake {
            // A failed wake means that the poll is gone, and with it the reader.
            Wake::Poll(waker) => drop(waker.wake()),
            Wake::Thread(thread) => thread.unpark(),
        }
    }

    /// Whether something was posted since the last take. An owner that was woken for it sees it.
    pub(crate) fn is_announced(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Moves everything that waits to `into`, which must be empty; its allocation goes back to the inbox.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty(), "letters are handled before new ones are taken");
        // Rule 2 of `protocol::order`: cleared before the look, so that a letter posted after it wakes again. Nothing in the
        // inbox and nothing announced: the common turn pays one load.
        if self.woken.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut *self.lock(), into);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // Nothing in the critical sections can panic half-way, so that a poisoned lock is still whole.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
