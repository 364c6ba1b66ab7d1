//! Letters between real threads. `tests/threads` goes through all schedules.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::inbox::{Inbox, Wake};

#[test]
fn letters_from_many_threads_arrive_once_and_in_the_order_of_each_sender() {
    let inbox = Inbox::new(Wake::Thread(thread::current()));
    let mut received: Vec<(u32, u32)> = Vec::new();
    thread::scope(|scope| {
        for sender in 0..4 {
            let inbox = &inbox;
            scope.spawn(move || (0..1_000).for_each(|number| inbox.post((sender, number))));
        }
        let mut letters = Vec::new();
        while received.len() < 4_000 {
            inbox.take(&mut letters);
            if letters.is_empty() {
                thread::park();
            }
            received.append(&mut letters);
        }
    });
    for sender in 0..4 {
        let numbers: Vec<u32> = received.iter().filter(|l| l.0 == sender).map(|l| l.1).collect();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
    }
}

/// Two senders post a letter each in every round, and wait until the reader has read both. The reader sleeps in between. A
/// letter that wakes nobody, or a wake-up without its letter, ends the test.
#[test]
fn a_reader_that_sleeps_has_no_letters() {
    const ROUNDS: usize = 5_000;
    /// A round takes microseconds, and on a busy machine a little longer.
    const ROUND_MAX: Duration = Duration::from_secs(10);
    let (read, (end, ended)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
    let reader = {
        let read = Arc::clone(&read);
        // Nobody joins the threads: a reader that is not woken sleeps for ever.
        thread::spawn(move || {
            let inbox = Arc::new(Inbox::new(Wake::Thread(thread::current())));
            for sender in 0..2 {
                let (inbox, read) = (Arc::clone(&inbox), Arc::clone(&read));
                thread::spawn(move || {
                    for round in 0..ROUNDS {
                        while read.load(Ordering::Acquire) < 2 * round {
                            thread::yield_now();
                        }
                        inbox.post((sender, round));
                    }
                });
            }
            let mut letters = Vec::new();
            while read.load(Ordering::Acquire) < 2 * ROUNDS {
                inbox.take(&mut letters);
                if letters.is_empty() {
                    thread::park();
                }
                read.fetch_add(letters.drain(..).count(), Ordering::AcqRel);
            }
            end.send(()).expect("the test waits");
        })
    };
    let mut before = 0;
    while let Err(error) = ended.recv_timeout(ROUND_MAX) {
        let after = read.load(Ordering::Acquire);
        assert!(after > before && !reader.is_finished(), "letter {after} is not read: {error}");
        before = after;
    }
}
