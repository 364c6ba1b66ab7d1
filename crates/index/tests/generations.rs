//! Guarantees that a route cache may rely on.

use index::{Applied, Change, Index};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use topic::{TopicFilter, TopicName, filter, topic};

type Plain = Index<u64, u32>;

fn apply(index: &Plain, change: Change<'_, u64, u32>) -> Applied<u32> {
    let mut applied = Vec::new();
    index.apply([change], &mut applied);
    applied[0]
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "b", "$a"])
}

proptest! {
    #[test]
    fn a_change_that_affects_a_topic_ends_its_generation(
        name in prop::collection::vec(level(), 1..4),
        wildcards in prop::collection::vec(any::<bool>(), 4),
        open: bool,
        seed: u64,
    ) {
        let mut levels = name.clone();
        for (level, wildcard) in levels.iter_mut().zip(wildcards) {
            *level = if wildcard { "+" } else { *level };
        }
        if open {
            levels.push("#");
        }
        let (name, filter) = (name.join("/"), levels.join("/"));
        let (Ok(topic), Ok(filter)) = (TopicName::new(&name), TopicFilter::new(&filter)) else { return Ok(()) };
        prop_assume!(filter.matches(topic));
        let index = Plain::new([seed, 1]);
        for change in [
            Change::Subscribe { filter, subscriber: &1, options: 1 },
            Change::Subscribe { filter, subscriber: &1, options: 2 },
            Change::Subscribe { filter, subscriber: &2, options: 1 },
            Change::Unsubscribe { filter, subscriber: &1 },
            Change::Unsubscribe { filter, subscriber: &2 },
        ] {
            let before = index.generation(topic);
            prop_assert!(index.is_current(before));
            apply(&index, change);
            prop_assert!(!index.is_current(before));
            prop_assert_ne!(index.generation(topic), before);
        }
    }
}

#[test]
fn changes_below_other_first_levels_leave_a_generation_alone() {
    let index = Plain::new([1, 2]);
    let topic = topic!("house/kitchen");
    let mut ended = 0;
    for number in 0..1_000 {
        let before = index.generation(topic);
        let filter = format!("other-{number}/#");
        apply(
            &index,
            Change::Subscribe { filter: TopicFilter::new(&filter).unwrap(), subscriber: &1, options: 0 },
        );
        ended += u32::from(!index.is_current(before));
    }
    // About one in 1,024 shares the slot.
    assert!(ended <= 4, "{ended} of 1,000");
}

#[test]
fn a_change_without_effect_does_not_end_a_generation() {
    let index = Plain::new([1, 2]);
    let before = index.generation(topic!("a"));
    for filter in [filter!("a"), filter!("#")] {
        assert_eq!(apply(&index, Change::Unsubscribe { filter, subscriber: &1 }), Applied::NotFound);
    }
    assert!(index.is_current(before));
}

/// Two filters for one topic always change in one batch, so that a reader who sees one without the other, or who finds a
/// cached route wrong that its generation calls current, has found a fault. Many others change behind them in the same batch:
/// a reader has time to look between the first change and the last.
#[test]
fn readers_see_whole_batches_and_never_an_outdated_route() {
    const BATCHES: u32 = 1_000;
    let index = Plain::new([1, 2]);
    let topic = topic!("a/b");
    let others: Vec<String> = (0..500).map(|number| format!("other/{number}")).collect();
    let lookup = || {
        let mut route = Vec::new();
        index.for_each_match(topic, |_, options| route.push(*options));
        route
    };
    let done = AtomicBool::new(false);
    // The last batch that the writer has made and told others of, and how often a reader has looked.
    let (told, looks) = (AtomicU32::new(0), AtomicUsize::new(0));
    let wrong = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=BATCHES {
                let both = [filter!("a/b"), filter!("+/b")];
                let subscribe =
                    both.map(|filter| Change::Subscribe { filter, subscriber: &1, options: round });
                let others = others.iter().map(|filter| Change::Subscribe {
                    filter: TopicFilter::new(filter).expect("a filter"),
                    subscriber: &1,
                    options: round,
                });
                index.apply(subscribe.into_iter().chain(others), &mut Vec::new());
                told.store(round, Ordering::Release);
                let seen = looks.load(Ordering::Acquire);
                while looks.load(Ordering::Acquire) < seen + 2 {
                    thread::yield_now();
                }
                if round % 3 == 0 {
                    let leave = both.map(|filter| Change::Unsubscribe { filter, subscriber: &1 });
                    index.apply(leave, &mut Vec::new());
                }
            }
            done.store(true, Ordering::Release);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut generation, mut last) = (index.generation(topic), 0);
                let mut route = lookup();
                while !done.load(Ordering::Acquire) {
                    let told = told.load(Ordering::Acquire);
                    if !index.is_current(generation) {
                        generation = index.generation(topic);
                        route = lookup();
                    }
                    // The writer waits for readers, so that a reader must not end before it.
                    let is_whole = match route[..] {
                        [] => true,
                        [one, other] => one == other && one >= last.max(told),
                        _ => false,
                    };
                    wrong.fetch_add(usize::from(!is_whole), Ordering::Relaxed);
                    last = route.first().copied().unwrap_or(last);
                    looks.fetch_add(1, Ordering::AcqRel);
                }
                if index.is_current(generation) {
                    assert_eq!(route, lookup());
                }
            });
        }
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "halves of batches, and outdated routes");
    assert_eq!(lookup(), [BATCHES, BATCHES]);
}
