//! Sequences of changes, compared with a map.

use index::{Applied, Change, Index};
use proptest::prelude::*;
use std::collections::BTreeMap;
use topic::{TopicFilter, TopicName, filter};

type Plain = Index<u64, u32>;

const FILTERS: [&str; 9] = ["a", "a/b", "a/+", "+/b", "a/#", "#", "+/+", "/", "$a/+"];
const NAMES: [&str; 6] = ["a", "a/b", "a/b/c", "/", "$a/b", "b/b"];

/// Filter, subscriber, and the options or none for Unsubscribe.
type Step = (&'static str, u64, Option<u32>);

fn step() -> impl Strategy<Value = Step> {
    (prop::sample::select(&FILTERS), 0_u64..40, prop::option::of(0_u32..3))
}

fn change(step: &Step) -> Change<'_, u64, u32> {
    let (filter, subscriber) = (TopicFilter::new(step.0).unwrap(), &step.1);
    match step.2 {
        Some(options) => Change::Subscribe { filter, subscriber, options },
        None => Change::Unsubscribe { filter, subscriber },
    }
}

#[derive(Default)]
struct Model(BTreeMap<(&'static str, u64), u32>);

impl Model {
    fn apply(&mut self, (filter, subscriber, options): Step) -> Applied<u32> {
        match options {
            Some(options) => {
                self.0.insert((filter, subscriber), options).map_or(Applied::New, Applied::Replaced)
            }
            None => self.0.remove(&(filter, subscriber)).map_or(Applied::NotFound, Applied::Removed),
        }
    }

    fn matches(&self, name: TopicName<'_>) -> Vec<(u64, u32)> {
        let matching =
            self.0.iter().filter(|((filter, _), _)| TopicFilter::new(filter).unwrap().matches(name));
        let mut all: Vec<_> = matching.map(|((_, subscriber), options)| (*subscriber, *options)).collect();
        all.sort_unstable();
        all
    }

    fn filters(&self) -> usize {
        let mut filters: Vec<_> = self.0.keys().map(|(filter, _)| filter).collect();
        filters.dedup();
        filters.len()
    }
}

fn found(index: &Plain, name: TopicName<'_>) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    index.for_each_match(name, |subscriber, options| found.push((*subscriber, *options)));
    found.sort_unstable();
    found
}

proptest! {
    /// [MQTT-3.8.4-3, MQTT-3.10.4-1, 3.1.1 MQTT-3.10.4-1]
    #[test]
    fn every_change_does_what_it_does_to_a_map(
        batches in prop::collection::vec(prop::collection::vec(step(), 1..40), 1..30),
    ) {
        let (index, mut model) = (Plain::new([1, 2]), Model::default());
        for batch in &batches {
            let mut applied = Vec::new();
            index.apply(batch.iter().map(change), &mut applied);
            prop_assert_eq!(applied, batch.iter().map(|step| model.apply(*step)).collect::<Vec<_>>());
            prop_assert_eq!((index.len(), index.filters()), (model.0.len(), model.filters()));
            for name in NAMES.map(|name| TopicName::new(name).unwrap()) {
                prop_assert_eq!(found(&index, name), model.matches(name));
            }
            for filter in FILTERS {
                let of = |subscriber| index.options_of(TopicFilter::new(filter).unwrap(), &subscriber);
                for subscriber in 0..40 {
                    prop_assert_eq!(of(subscriber), model.0.get(&(filter, subscriber)).copied());
                }
            }
        }
    }

    #[test]
    fn an_emptied_index_is_as_small_as_a_new_one(
        steps in prop::collection::vec((0_u32..3_000, 0_u64..3), 0..3_000),
        seed: u64,
    ) {
        let index = Plain::new([seed, seed]);
        let empty = index.bytes();
        let mut subscriptions: Vec<(String, u64)> =
            steps.iter().map(|(number, subscriber)| (numbered_filter(*number), *subscriber)).collect();
        subscribe(&index, &subscriptions);
        prop_assert!(index.bytes() >= empty + subscriptions.iter().map(|(filter, _)| filter.len()).max().unwrap_or(0));
        subscriptions.reverse();
        unsubscribe(&index, &subscriptions);
        prop_assert_eq!((index.len(), index.filters(), index.shapes(), index.bytes()), (0, 0, 0, empty));
    }
}

#[test]
fn a_crowd_comes_and_goes_in_another_order() {
    const CROWD: u64 = 10_000;
    let index = Plain::new([1, 2]);
    let empty = index.bytes();
    let crowd: Vec<(String, u64)> = (0..CROWD).map(|number| ("a/+".into(), number)).collect();
    subscribe(&index, &crowd);
    let full = index.bytes();
    let every_third =
        |rest| crowd.iter().filter(move |(_, number)| number % 3 == rest).cloned().collect::<Vec<_>>();
    unsubscribe(&index, &every_third(1));
    unsubscribe(&index, &every_third(0));
    let left: Vec<_> = every_third(2).into_iter().map(|(_, number)| (number, 5)).collect();
    assert_eq!(found(&index, topic::topic!("a/b")), left);
    unsubscribe(&index, &every_third(2)[1..]);
    assert!(index.bytes() - empty < (full - empty) / 500, "{empty} {full} {}", index.bytes());
    unsubscribe(&index, &every_third(2));
    assert_eq!((index.len(), index.bytes()), (0, empty));
}

#[test]
fn subscribers_are_told_apart_by_their_arc() {
    use std::sync::Arc;
    let (first, second) = (Arc::new("same"), Arc::new("same"));
    let index: Index<Arc<&str>, ()> = Index::new([1, 2]);
    let mut applied = Vec::new();
    let filter = filter!("a");
    let subscribe = |subscriber| Change::Subscribe { filter, subscriber, options: () };
    index.apply([subscribe(&first), subscribe(&first.clone()), subscribe(&second)], &mut applied);
    assert_eq!(applied, [Applied::New, Applied::Replaced(()), Applied::New]);
    applied.clear();
    index.apply([Change::Unsubscribe { filter, subscriber: &first }], &mut applied);
    assert_eq!((applied.as_slice(), Arc::strong_count(&first)), ([Applied::Removed(())].as_slice(), 1));
}

fn numbered_filter(number: u32) -> String {
    let levels =
        (0..number % 5).map(|bit| if number >> bit & 4 == 0 { "+".into() } else { format!("{number}") });
    let levels: Vec<String> = levels.collect();
    if number.is_multiple_of(7) || levels.is_empty() { levels.join("/") + "/#" } else { levels.join("/") }
}

fn subscribe(index: &Plain, subscriptions: &[(String, u64)]) {
    let changes = subscriptions.iter().map(|(filter, subscriber)| Change::Subscribe {
        filter: TopicFilter::new(filter).unwrap(),
        subscriber,
        options: 5,
    });
    index.apply(changes, &mut Vec::new());
}

fn unsubscribe(index: &Plain, subscriptions: &[(String, u64)]) {
    let changes = subscriptions.iter().map(|(filter, subscriber)| Change::Unsubscribe {
        filter: TopicFilter::new(filter).unwrap(),
        subscriber,
    });
    index.apply(changes, &mut Vec::new());
}

#[test]
fn deep_shapes_are_counted_for_who_would_add_one() {
    let index: Index<u64, ()> = Index::new([1, 2]);
    let filter = |text| TopicFilter::new(text).expect("a filter");
    let mut applied = Vec::new();
    let mut subscribe = |text| {
        index.apply([Change::Subscribe { filter: filter(text), subscriber: &1, options: () }], &mut applied);
    };
    // Without wildcards, or with few levels.
    for shallow in ["1/2/3/4/5/6/7", "+/2/3/4/5/6", "1/+/3/4/5/6/#", "#"] {
        assert_eq!(index.would_deepen(filter(shallow)), None, "{shallow}");
        subscribe(shallow);
    }
    assert_eq!(index.would_deepen(filter("+/2/3/4/5/6/7")), Some(0));
    subscribe("+/2/3/4/5/6/7");
    subscribe("$share/group/1/2/3/4/5/6/7/#");
    // Other names make no other shape.
    assert_eq!(index.would_deepen(filter("+/b/c/d/e/f/g")), None);
    assert_eq!(index.would_deepen(filter("a/b/c/d/e/f/g/#")), None);
    assert_eq!(index.would_deepen(filter("a/+/c/d/e/f/g")), Some(2));
    index.apply([Change::Unsubscribe { filter: filter("+/2/3/4/5/6/7"), subscriber: &1 }], &mut applied);
    assert_eq!(index.would_deepen(filter("+/b/c/d/e/f/g")), Some(1));
}
