//! A census of what a shard reads and writes.

use super::*;
use crate::census::CensusList;

fn counts(bench: &Bench, list: CensusList) -> Vec<(Box<str>, u64, u64)> {
    let first = bench.body.io.census.answer(list).ranking.first(9);
    first.into_iter().map(|ranked| (ranked.name, ranked.count, ranked.bytes)).collect()
}

/// MQTT 5.0, Clean Start 1, no Keep Alive, client identifier `c`.
const CONNECT_V5: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c";

#[test]
fn packets_are_counted_with_their_topics_also_behind_connect_and_before_disconnect() {
    let mut bench = Bench::new(Bounds::default());
    // `t/u` by name, by its new alias, and by the alias alone; a PINGREQ.
    let packets = b"\x30\x07\0\x03t/u\0x\x30\x0a\0\x03t/u\x03\x23\0\x01x\x30\x07\0\0\x03\x23\0\x01x\xc0\0";
    bench.peer.put(&[CONNECT_V5, packets].concat());
    bench.wake(READABLE);
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    assert_eq!(counts(&bench, CensusList::Topics), [("t/u".into(), 3, 9 + 12 + 9)]);
    // The client is gone when the broker is done with these.
    bench.peer.put(b"\x30\x05\0\x01v\0x\xe0\0");
    bench.wake(READABLE);
    assert_eq!(counts(&bench, CensusList::Topics), [("t/u".into(), 3, 30), ("v".into(), 1, 7)]);
    assert_eq!(counts(&bench, CensusList::Branches), [("t/#".into(), 3, 30)]);
    assert_eq!(counts(&bench, CensusList::Publishers), [("c".into(), 4, 37)]);
    assert_eq!(counts(&bench, CensusList::Connects), [("c".into(), 1, 0)]);
    // CONNACK and PINGRESP.
    assert_eq!(counts(&bench, CensusList::Receivers).len(), 1);
}

#[test]
fn the_topics_of_a_read_are_counted_up_to_a_bound_and_its_messages_all() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(CONNECT);
    bench.wake(READABLE);
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    // Two topics in turn: each packet changes the topic.
    bench.peer.put(&b"\x30\x03\0\x01a\x30\x03\0\x01b".repeat(500));
    bench.wake(READABLE);
    assert_eq!(counts(&bench, CensusList::Topics), [("a".into(), 128, 640), ("b".into(), 128, 640)]);
    assert_eq!(counts(&bench, CensusList::Publishers), [("c".into(), 1_000, 5_000)]);
}
