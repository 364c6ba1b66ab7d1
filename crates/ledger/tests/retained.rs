//! The store of retained messages, against a list that is searched from front to back.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Message, Now};
use ledger::{MessageId, Retained, Stored, Stride};
use proptest::prelude::*;
use topic::{TopicFilter, TopicName};
use wire::{MessageProperties, Publish};

const NOW: Now = Now { monotonic_ms: 0, unix_ms: 1_000_000 };

fn message(topic: &str, payload: &[u8], expiry_secs: Option<u32>) -> Arc<Message> {
    let topic = TopicName::new(topic).expect("a topic");
    let properties =
        MessageProperties { message_expiry_interval_secs: expiry_secs, ..MessageProperties::default() };
    let publish = Publish { retain: true, properties, ..Publish::new(topic, payload) };
    Arc::new(Message::new(topic, &publish, None, NOW))
}

/// Returns everything that a filter finds, in steps of this number of visits.
fn find(store: &Retained, filter: &str, visits: usize, now: Now) -> Vec<(String, Vec<u8>)> {
    let mut cursor = store.cursor(TopicFilter::new(filter).expect("a filter"), MessageId(u64::MAX));
    let mut found = Vec::new();
    loop {
        let step = store.step(&mut cursor, Stride { bytes: usize::MAX, visits }, now);
        assert!(step.messages.len() <= visits, "a step keeps to its stride");
        found.extend(
            step.messages
                .iter()
                .map(|found| &found.message)
                .map(|m| (m.topic().as_str().to_owned(), m.payload().to_vec())),
        );
        if step.done {
            return found;
        }
    }
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["", "a", "b", "a-1", "$x", "$SYS"]), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("a topic has a character", |topic| !topic.is_empty())
}

/// Numbers each message behind those that are there; nothing else has a number.
fn set(store: &mut Retained, message: &Arc<Message>) -> Stored {
    store.set(MessageId(store.len() as u64 + 1), message)
}

fn filter() -> impl Strategy<Value = String> {
    let levels = prop::collection::vec(prop::sample::select(vec!["", "a", "b", "a-1", "$x", "+", "+"]), 1..5);
    (levels, any::<bool>())
        .prop_map(|(levels, deep)| levels.join("/") + if deep { "/#" } else { "" })
        .prop_filter("a filter", |filter| TopicFilter::new(filter).is_ok())
}

/// The levels behind `under`, by a search through all topics.
fn levels<'a>(topics: &'a [String], under: Option<&str>) -> BTreeMap<&'a str, (bool, bool)> {
    let mut found = BTreeMap::new();
    for topic in topics {
        let rest = under.map_or(Some(&**topic), |under| topic.strip_prefix(under)?.strip_prefix('/'));
        let Some(rest) = rest else { continue };
        let (name, more) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
        let (is_topic, has_more) = found.entry(name).or_insert((false, false));
        (*is_topic, *has_more) = (*is_topic || !more, *has_more || more);
    }
    found
}

proptest! {
    #[test]
    fn the_topics_are_a_tree(
        topics in prop::collection::vec((topic(), prop::option::of(1_u32..3)), 0..60),
        under in prop::option::of(topic()),
        count in 1_usize..5,
    ) {
        let mut store = Retained::new(1 << 20);
        for (topic, expiry_secs) in &topics {
            set(&mut store, &message(topic, b"x", *expiry_secs));
        }
        let now = Now { unix_ms: NOW.unix_ms + 1_500, ..NOW };
        let last: BTreeMap<&String, &Option<u32>> = topics.iter().map(|(topic, expiry)| (topic, expiry)).collect();
        // The tree also goes through topics whose messages have expired, and are not swept yet.
        let is_there = |topic: &str| last.iter().any(|(known, expiry)| **known == topic && **expiry != Some(1));
        let topics: Vec<String> = last.keys().map(|topic| (*topic).clone()).collect();
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let (piece, next) = store.branches(under.as_deref(), after.as_deref(), count, now);
            assert!(piece.len() <= count);
            found.extend(piece.iter().map(|one| (one.name.clone(), (one.message.is_some(), one.has_more_levels))));
            after = next;
            if after.is_none() {
                break;
            }
        }
        let wanted = levels(&topics, under.as_deref()).into_iter().filter_map(|(name, (is_topic, has_more))| {
            let topic = under.as_ref().map_or_else(|| name.to_owned(), |under| format!("{under}/{name}"));
            let facts = (is_topic && is_there(&topic), has_more);
            (facts.0 || facts.1).then(|| (name.to_owned(), facts))
        });
        assert_eq!(found, wanted.collect::<Vec<_>>());
    }

    #[test]
    fn a_filter_finds_what_matches_however_small_the_steps(
        topics in prop::collection::vec((topic(), 0_u8..3), 0..60),
        filters in prop::collection::vec(filter(), 1..20),
        visits in 1_usize..5,
    ) {
        let mut store = Retained::new(usize::MAX);
        let mut model = BTreeMap::new();
        for (topic, payload) in topics {
            // 0 stands for an empty payload, which clears.
            let payload = vec![payload; usize::from(payload > 0)];
            prop_assert_eq!(set(&mut store, &message(&topic, &payload, None)), Stored::Done);
            if payload.is_empty() { model.remove(&topic) } else { model.insert(topic, payload) };
        }
        prop_assert_eq!(store.len(), model.len());
        for text in filters.iter().map(String::as_str).chain(["#", "+/+", "$x/#"]) {
            let filter = TopicFilter::new(text).expect("a filter");
            let matches = |topic: &&String| filter.matches(TopicName::new(topic).expect("a topic"));
            let mut expected: Vec<_> =
                model.iter().filter(|(t, _)| matches(t)).map(|(t, p)| (t.clone(), p.clone())).collect();
            let mut found = find(&store, text, visits, NOW);
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected, "filter {}", text);
        }
        let topics: Vec<String> = model.keys().cloned().collect();
        for topic in &topics {
            set(&mut store, &message(topic, b"", None));
        }
        prop_assert_eq!((store.len(), store.bytes()), (0, 0), "nothing is left behind");
    }
}

#[test]
fn a_cursor_leaves_out_what_was_set_after_it_began() {
    let mut store = Retained::new(usize::MAX);
    for topic in ["a", "b", "c"] {
        set(&mut store, &message(topic, b"old", None));
    }
    let mut cursor = store.cursor(topic::filter!("#"), MessageId(3));
    let one = Stride { bytes: usize::MAX, visits: 1 };
    assert_eq!(store.step(&mut cursor, one, NOW).messages.len(), 1);
    set(&mut store, &message("b", b"new", None));
    set(&mut store, &message("d", b"new", None));
    let rest = store.step(&mut cursor, Stride { bytes: usize::MAX, visits: 10 }, NOW);
    let topics: Vec<_> =
        rest.messages.iter().map(|found| found.message.topic().as_str().to_owned()).collect();
    assert!(rest.done && topics == ["c"], "b and d are newer: {topics:?}");
}

#[test]
fn expired_values_are_not_found_and_are_swept() {
    let mut store = Retained::new(usize::MAX);
    for number in 0..10 {
        set(&mut store, &message(&format!("t/{number}"), b"x", (number % 2 == 0).then_some(1)));
    }
    let later = Now { unix_ms: NOW.unix_ms + 1_001, ..NOW };
    assert_eq!(find(&store, "#", 3, later).len(), 5);
    assert_eq!((0..4).map(|_| store.sweep(3, later)).sum::<usize>(), 5);
    assert_eq!(store.len(), 5);
}

#[test]
fn without_room_a_topic_has_no_value_rather_than_an_old_one() {
    let mut store = Retained::new(1_000);
    assert_eq!(set(&mut store, &message("t", b"old", None)), Stored::Done);
    assert_eq!(set(&mut store, &message("t", &[7; 2_000], None)), Stored::Full);
    assert!(store.is_empty() && store.bytes() == 0);
    assert_eq!(set(&mut store, &message("t", b"new", None)), Stored::Done);
}

/// The server's own values neither need the room of those of clients, nor lack it.
#[test]
fn the_servers_own_values_do_not_count() {
    let of_server =
        |payload: &[u8]| Arc::new(Message::of_server("$SYS/broker/uptime", payload).expect("a topic"));
    let mut store = Retained::new(300);
    assert_eq!(set(&mut store, &of_server(&[b'1'; 1_000])), Stored::Done);
    assert_eq!((store.bytes(), store.len()), (0, 1));
    assert_eq!(set(&mut store, &message("t", b"of a client", None)), Stored::Done);
    assert_eq!(set(&mut store, &message("u", &[7; 300], None)), Stored::Full);
    assert_eq!(set(&mut store, &of_server(&[b'2'; 2_000])), Stored::Done);
    let bytes = store.bytes();
    set(&mut store, &of_server(b""));
    assert_eq!((store.bytes(), store.len()), (bytes, 1));
}
