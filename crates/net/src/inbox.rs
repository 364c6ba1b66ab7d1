//! Mailboxes: every thread has one inbox; whoever writes to it appends a whole batch under one short lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

/// How a sleeping reader of an inbox is woken.
pub(crate) enum Wake {
    /// A shard, asleep in its poll.
    Poll(Arc<mio::Waker>),
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        // Nothing in the critical sections can panic half-way, so that a poisoned lock is still whole.
        self.letters.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_from_many_threads_arrive_once_and_in_the_order_of_each_sender() {
        let inbox = Inbox::new(Wake::Thread(std::thread::current()));
        let mut received: Vec<(u32, u32)> = Vec::new();
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let inbox = &inbox;
                scope.spawn(move || (0..1_000).for_each(|number| inbox.post((sender, number))));
            }
            let mut letters = Vec::new();
            while received.len() < 4_000 {
                inbox.take(&mut letters);
                if letters.is_empty() {
                    std::thread::park();
                }
                received.append(&mut letters);
            }
        });
        for sender in 0..4 {
            let numbers: Vec<u32> = received.iter().filter(|l| l.0 == sender).map(|l| l.1).collect();
            assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
        }
    }

    /// Each round the reader sleeps until the letter of the round is there. A letter that wakes nobody, or a wake-up
    /// without its letter, ends the test.
    #[test]
    fn a_reader_that_sleeps_has_no_letters() {
        const ROUNDS: usize = 5_000;
        /// The sender posts within one of these waits, however busy the machine is.
        const WAITS_MAX: usize = 20;
        let inbox = Inbox::new(Wake::Thread(std::thread::current()));
        let read = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for round in 0..ROUNDS {
                    while read.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    inbox.post(round);
                }
            });
            let mut letters = Vec::new();
            for round in 0..ROUNDS {
                let mut waits = 0;
                while letters.is_empty() {
                    inbox.take(&mut letters);
                    if letters.is_empty() {
                        waits += 1;
                        if waits > WAITS_MAX {
                            // The sender waits for this reader, which has failed.
                            read.store(ROUNDS, Ordering::Release);
                            panic!("the letter of round {round} lies in an inbox whose reader sleeps");
                        }
                        std::thread::park_timeout(std::time::Duration::from_millis(500));
                    }
                }
                assert_eq!(std::mem::take(&mut letters), [round]);
                read.store(round + 1, Ordering::Release);
            }
            sender.join().expect("it posts and ends");
        });
    }
}
