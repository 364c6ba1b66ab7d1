//! Waiting for a subscriber, on real threads. `tests/threads` goes through all schedules.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pondhawk_base::{Gauge, Level, ShardId};

#[test]
fn a_gauge_tells_each_waiting_shard_once() {
    let gauge = Gauge::default();
    assert!(!gauge.wait(ShardId::new(3), false), "an open gauge keeps nobody waiting");
    gauge.set(Level::Over);
    assert!(gauge.wait(ShardId::new(0), true) && gauge.wait(ShardId::new(63), false));
    assert!(gauge.look_at_others());
    gauge.set(Level::Open);
    assert_eq!(gauge.take_waiting().map(ShardId::number).collect::<Vec<_>>(), [0, 3, 63]);
    assert_eq!(gauge.take_waiting().count(), 0);
    assert!(!gauge.look_at_others(), "nobody waits any more");
}

#[test]
fn that_others_have_room_is_believed_for_a_few_looks() {
    let gauge = Gauge::default();
    gauge.note_others(true);
    gauge.note_others(false);
    assert_eq!((0..5).filter(|_| gauge.look_at_others()).count(), 3);
}

/// Both threads begin each round at the same moment.
#[test]
fn a_publisher_that_has_to_wait_is_told_however_both_threads_run() {
    const ROUNDS: usize = 50_000;
    let (gauge, shard) = (Gauge::default(), ShardId::new(5));
    let [begun, done] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let meet = |round: usize| {
        begun.fetch_add(1, Ordering::AcqRel);
        while begun.load(Ordering::Acquire) < 2 * round {
            std::thread::yield_now();
        }
    };
    let is_told = AtomicBool::new(false);
    let mut lost = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                meet(round);
                gauge.set(Level::Open);
                is_told.store(gauge.take_waiting().count() > 0, Ordering::Release);
                done.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            gauge.set(Level::Over);
            meet(round);
            let waits = gauge.wait(shard, false);
            while done.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
            lost += usize::from(waits && !is_told.load(Ordering::Acquire));
            gauge.take_waiting().for_each(drop);
        }
    });
    assert_eq!(lost, 0, "rounds in which the publisher waits for ever");
}
