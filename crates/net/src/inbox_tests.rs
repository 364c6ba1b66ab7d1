//! Letters between real threads. `tests/threads` goes through all schedules.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::inbox::{Inbox, Wake};

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
    let read = AtomicUsize::new(0);
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
