//! The places where threads meet: small models of each, in all schedules of their threads, or in many.
//!
//! The files of the broker are compiled here once more. Their atomics and locks are models ([`sync`]), whose accesses take
//! place one after the other in an order that the scheduler chooses. A thread that waits for ever ends the test. Orders that
//! only a processor makes, because it delays a write, are not among them: tests with real threads, beside those files, look
//! for these.

#[allow(dead_code, unreachable_pub, reason = "the models need a part of it, inside of this program")]
#[path = "../../crates/base/src/gauge.rs"]
mod gauge;
#[allow(dead_code, unreachable_pub, reason = "the models need a part of it, inside of this program")]
#[path = "../../crates/index/src/generation.rs"]
mod generation;
#[allow(dead_code, unreachable_pub, reason = "the models need a part of it, inside of this program")]
#[path = "../../crates/net/src/inbox.rs"]
mod inbox;
mod sync;
#[allow(dead_code, unreachable_pub, reason = "the models need a part of it, inside of this program")]
#[path = "../../crates/turn/src/way.rs"]
mod way;

use base::ShardId;
use shuttle::scheduler::{DfsScheduler, PctScheduler};
use shuttle::sync::RwLock;
use shuttle::{Config, Runner, thread};

use gauge::{Gauge, Level};
use generation::{Concerns, Generations};
use inbox::{Inbox, Wake};
use sync::{Arc, AtomicBool, Ordering, Thread, Waker};
use way::Way;

/// Runs a model in all schedules of its threads.
fn in_all_schedules(model: impl Fn() + Send + Sync + 'static) {
    const MOST: usize = 100_000;
    let schedules = Runner::new(DfsScheduler::new(Some(MOST), false), config()).run(model);
    assert!(
        (11..MOST).contains(&schedules),
        "{schedules} schedules: too few threads meet, or some were left out"
    );
}

/// Runs a model with too many schedules for all of them: in 20,000 in which threads stop at up to three places that the
/// scheduler chooses. A failure prints its schedule.
fn in_many_schedules(model: impl Fn() + Send + Sync + 'static) {
    Runner::new(PctScheduler::new(3, 20_000), config()).run(model);
}

fn config() -> Config {
    let mut config = Config::new();
    config.silence_warnings = true;
    config
}

/// Two senders post two letters each to a reader that sleeps in `sleep` when it finds nothing.
fn letters(inbox: &Arc<Inbox<(u8, u8)>>, sleep: impl Fn()) {
    let senders: Vec<_> = (0..2)
        .map(|sender| {
            let inbox = Arc::clone(inbox);
            thread::spawn(move || (0..2).for_each(|number| inbox.post((sender, number))))
        })
        .collect();
    let (mut received, mut taken) = (Vec::new(), Vec::new());
    while received.len() < 4 {
        inbox.take(&mut taken);
        if taken.is_empty() {
            sleep();
        }
        received.append(&mut taken);
    }
    for sender in 0..2 {
        let numbers = received.iter().filter(|letter| letter.0 == sender).map(|letter| letter.1);
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1]);
    }
    senders.into_iter().for_each(|sender| sender.join().expect("it posts and ends"));
}

/// Rules 1 and 2 of `protocol::order`, for the ledger.
#[test]
fn a_ledger_that_sleeps_has_no_letters_in_many_schedules() {
    in_many_schedules(|| {
        let reader = Thread::default();
        let inbox = Arc::new(Inbox::new(Wake::Thread(reader.clone())));
        letters(&inbox, || reader.park());
    });
}

/// The same for a shard.
#[test]
fn a_shard_that_sleeps_has_no_letters_in_many_schedules() {
    in_many_schedules(|| {
        let waker = Arc::new(Waker::default());
        let inbox = Arc::new(Inbox::new(Wake::Poll(Arc::clone(&waker))));
        letters(&inbox, || waker.poll());
    });
}

/// Rule 10 of `protocol::order`, for the ways between threads.
#[test]
fn a_sender_that_has_to_wait_is_told_in_any_schedule() {
    in_all_schedules(|| {
        let (way, sender) = (Arc::new(Way::default()), Thread::default());
        way.add(100, 50);
        let receiver = {
            let (way, sender) = (Arc::clone(&way), sender.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    if way.handled(50) {
                        sender.unpark();
                    }
                }
            })
        };
        while way.room(20) == broker::Room::Over {
            sender.park();
        }
        receiver.join().expect("it reads and ends");
    });
}

/// Rule 10 of `protocol::order`, for publishers that wait for a subscriber. `begin` registers the publisher, and `end` ends
/// what it waits for and returns who is to be told.
fn publisher_waits<T: Iterator<Item = ShardId> + 'static>(
    begin: fn(&Gauge, ShardId) -> bool,
    end: fn(&Gauge) -> T,
) {
    in_all_schedules(move || {
        let (gauge, publisher) = (Arc::new(Gauge::default()), Thread::default());
        gauge.set(Level::Over);
        gauge.set_behind(true);
        let subscriber = {
            let (gauge, publisher) = (Arc::clone(&gauge), publisher.clone());
            thread::spawn(move || {
                for shard in end(&gauge) {
                    assert_eq!(shard.number(), 5);
                    publisher.unpark();
                }
            })
        };
        if begin(&gauge, ShardId::new(5)) {
            publisher.park();
        }
        subscriber.join().expect("it opens and ends");
    });
}

#[test]
fn a_publisher_that_has_to_wait_is_told_in_any_schedule() {
    publisher_waits(|gauge, shard| gauge.wait(shard, false), |gauge| gauge.release(Level::Open));
}

#[test]
fn a_publisher_that_waits_for_a_window_is_told_in_any_schedule() {
    publisher_waits(|gauge, shard| gauge.wait_behind(shard, true), Gauge::release_behind);
}

/// A route that is still current after its change was announced is the route after the change.
#[test]
fn a_route_from_before_a_change_is_not_current_behind_it_in_any_schedule() {
    for of_change in [Concerns::FirstLevel(7), Concerns::Everything] {
        in_all_schedules(move || {
            let generations = Arc::new(Generations::new());
            let (routes, is_announced) = (Arc::new(RwLock::new(0)), Arc::new(AtomicBool::new(false)));
            let changing = {
                let (generations, routes) = (Arc::clone(&generations), Arc::clone(&routes));
                let is_announced = Arc::clone(&is_announced);
                thread::spawn(move || {
                    let mut routes = routes.write().expect("nothing panics with the lock");
                    *routes += 1;
                    generations.raise(of_change);
                    drop(routes);
                    is_announced.store(true, Ordering::SeqCst);
                })
            };
            let before = generations.of(7);
            let route = *routes.read().expect("nothing panics with the lock");
            if is_announced.load(Ordering::SeqCst) && generations.is_current(before) {
                assert_eq!(route, 1, "a route that leads nowhere is used");
            }
            changing.join().expect("it changes the routes and ends");
            assert!(route == 1 || !generations.is_current(before));
        });
    }
}
