//! Lookups, compared with a matcher that is too simple to be wrong.

use index::{Change, Index};
use proptest::prelude::*;
use topic::{TopicFilter, TopicName, filter, topic};

type Plain = Index<u64, u32>;

/// Section 4.7, word for word.
fn matches(filter: &[&str], name: &[&str]) -> bool {
    match (filter, name) {
        (["#"], _) | ([], []) => true,
        (["+", filter @ ..], [_, name @ ..]) => matches(filter, name),
        ([level, filter @ ..], [same, name @ ..]) => level == same && matches(filter, name),
        _ => false,
    }
}

fn naive(filter: &str, name: &str) -> bool {
    let hidden = name.starts_with('$') && filter.starts_with(['+', '#']);
    !hidden && matches(&filter.split('/').collect::<Vec<_>>(), &name.split('/').collect::<Vec<_>>())
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "b", "$a", "long level"])
}

fn valid_name() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..12)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("empty", |name| !name.is_empty())
}

fn valid_filter() -> impl Strategy<Value = String> {
    let level = prop_oneof![3 => level(), 2 => Just("+")];
    (prop::collection::vec(level, 0..12), any::<bool>())
        .prop_map(|(mut levels, open)| {
            if open || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("not a filter", |filter| TopicFilter::new(filter).is_ok())
}

fn index_of(filters: &[impl AsRef<str>], seed: u64) -> Plain {
    let index = Plain::new([seed, !seed]);
    let subscribers: Vec<u64> = (0..filters.len() as u64).collect();
    let changes = filters.iter().zip(&subscribers).map(|(filter, subscriber)| Change::Subscribe {
        filter: TopicFilter::new(filter.as_ref()).unwrap(),
        subscriber,
        options: 7,
    });
    index.apply(changes, &mut Vec::new());
    index
}

fn found(index: &Plain, name: &str) -> Vec<u64> {
    let mut found = Vec::new();
    index.for_each_match(TopicName::new(name).unwrap(), |subscriber, _| found.push(*subscriber));
    found.sort_unstable();
    for count in [1, 3, 1_000] {
        assert_eq!(found_in_pieces(index, name, count), found, "in pieces of {count}");
    }
    found
}

fn found_in_pieces(index: &Plain, name: &str, count: usize) -> Vec<u64> {
    let topic = TopicName::new(name).unwrap();
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(first) = from {
        let (piece, next) = index.matches(topic, first, count);
        assert!(piece.len() <= count && next.is_none_or(|next| next == first + count));
        let matches = |one: &index::Match<u64, u32>| TopicFilter::new(&one.filter).unwrap().matches(topic);
        assert!(piece.iter().all(matches));
        found.extend(piece.iter().map(|one| one.subscriber));
        from = next;
    }
    found.sort_unstable();
    found
}

proptest! {
    /// [MQTT-3.3.2-3, MQTT-4.7.2-1, 3.1.1 MQTT-3.3.2-3, 3.1.1 MQTT-4.7.2-1]
    #[test]
    fn a_topic_reaches_what_the_naive_matcher_says(
        filters in prop::collection::vec(valid_filter(), 0..60),
        names in prop::collection::vec(valid_name(), 1..20),
        seed: u64,
    ) {
        let index = index_of(&filters, seed);
        for name in &names {
            let expected: Vec<u64> =
                (0..).zip(&filters).filter(|(_, filter)| naive(filter, name)).map(|(number, _)| number).collect();
            prop_assert_eq!(found(&index, name), expected, "{:?}", name);
        }
    }

    #[test]
    fn the_hashes_of_the_filters_that_match_are_those_that_the_naive_matcher_says(
        filters in prop::collection::vec(valid_filter(), 0..60),
        names in prop::collection::vec(valid_name(), 1..20),
        seed: u64,
    ) {
        let index = index_of(&filters, seed);
        for name in &names {
            let name = TopicName::new(name).unwrap();
            let hashes = index.matching_filters(name);
            prop_assert_eq!(hashes.topic(), index.hash_of_topic(name));
            prop_assert!(hashes.all().is_sorted());
            for filter in &filters {
                let hash = index.hash_of_filter(TopicFilter::new(filter).unwrap());
                prop_assert_eq!(hashes.contains(hash), naive(filter, name.as_str()), "{:?} {:?}", filter, name);
            }
        }
    }
}

#[test]
fn a_subscriber_is_visited_for_each_filter_with_its_options() {
    let index = Plain::new([1, 2]);
    let all = [(filter!("a/b"), 1), (filter!("a/+"), 2), (filter!("a/#"), 3), (filter!("a/c"), 4)];
    let changes = all.map(|(filter, options)| Change::Subscribe { filter, subscriber: &9, options });
    index.apply(changes, &mut Vec::new());
    let mut visits = Vec::new();
    index.for_each_match(topic!("a/b"), |subscriber, options| visits.push((*subscriber, *options)));
    visits.sort_unstable();
    assert_eq!(visits, [(9, 1), (9, 2), (9, 3)]);
}

#[test]
fn of_a_shared_filter_only_what_follows_the_group_counts() {
    let index = index_of(&["$share/group/a/+", "$share/group/+/b"], 1);
    assert_eq!(found(&index, "a/b"), [0, 1]);
    assert_eq!(found(&index, "$share/group/a/b"), []);
    assert_eq!(found(&index, "$SYS/b"), []);
}

#[test]
fn the_deepest_topics_are_matched() {
    let deep = "/".repeat(topic::MAX_BYTES);
    let half = "+/".repeat(topic::MAX_BYTES / 2) + "+";
    let index = index_of(&["#", "/#", &deep, &half, &("/".repeat(topic::MAX_BYTES - 1) + "#")], 1);
    assert_eq!(found(&index, &deep), [0, 1, 2, 4]);
    assert_eq!(found(&index, &"/".repeat(topic::MAX_BYTES / 2)), [0, 1, 3]);
}
