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
    assert_eq!(gauge.release(Level::Open).map(ShardId::number).collect::<Vec<_>>(), [0, 3, 63]);
    assert_eq!(gauge.release(Level::Open).count(), 0);
    assert!(!gauge.look_at_others(), "nobody waits any more");
}

#[test]
fn that_others_have_room_is_believed_for_a_few_looks() {
    let gauge = Gauge::default();
    gauge.note_others(true);
    gauge.note_others(false);
    assert_eq!((0..5).filter(|_| gauge.look_at_others()).count(), 3);
}

/// Both threads begin each round at the same moment, or one of them a little later.
#[test]
fn a_publisher_that_has_to_wait_is_told_however_both_threads_run() {
    const ROUNDS: usize = 50_000;
    let (gauge, shard) = (Gauge::default(), ShardId::new(5));
    let [begun, done] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let meet = |round: usize, spins: usize| {
        begun.fetch_add(1, Ordering::AcqRel);
        await_count(&begun, 2 * round);
        (0..spins).for_each(|_| std::hint::spin_loop());
    };
    let is_told = AtomicBool::new(false);
    let mut lost = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                meet(round, round % 8);
                is_told.store(gauge.release(Level::Open).count() > 0, Ordering::Release);
                done.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            gauge.set(Level::Over);
            meet(round, round / 8 % 8);
            let waits = gauge.wait(shard, false);
            await_count(&done, round);
            lost += usize::from(waits && !is_told.load(Ordering::Acquire));
            gauge.release(Level::Open).for_each(drop);
        }
    });
    assert_eq!(lost, 0, "rounds in which the publisher waits for ever");
}

/// Waits for the other thread. It seldom gives up the processor: a thread that has to get it back does not meet the other.
fn await_count(counter: &AtomicUsize, count: usize) {
    let mut looks = 0_u32;
    while counter.load(Ordering::Acquire) < count {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1_000) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}
