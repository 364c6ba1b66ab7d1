//! Spans of messages: who has one, when it ends, and how.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::{Span, SpanKind, SpanSettings, SpanSink};
use wire::{
    Connect, Delivery, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish, Qos,
    SubscribeProperties, SubscriptionOptions, UserProperties, UserProperty, Version,
};

use crate::exchanges::id;
use crate::world::{Peer, World, name, utf8};

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

/// A place for spans, whose clock goes on by 1 with each look, and whose identifiers count.
#[derive(Default)]
struct Sink {
    ns: AtomicU64,
    identifiers: AtomicU64,
    spans: Mutex<Vec<Span>>,
    dropped: AtomicU64,
}

impl SpanSink for Sink {
    fn unix_ns(&self) -> u64 {
        self.ns.fetch_add(1, Ordering::Relaxed)
    }

    fn identifier(&self) -> u64 {
        1 + self.identifiers.fetch_add(1, Ordering::Relaxed)
    }

    fn ended(&self, span: Span) {
        self.spans.lock().expect("no test has failed").push(span);
    }

    fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Sink {
    fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.spans.lock().expect("no test has failed"))
    }

    /// The spans that have ended since the last call: kind, client, QoS, outcome.
    fn told(&self) -> Vec<String> {
        let tell = |span: Span| {
            let Span { kind, client_id, qos, fate, .. } = span;
            let fate = fate.map_or("connection_ended", |fate| fate.word());
            format!("{kind:?} {client_id} q{} {fate}", qos as u8)
        };
        self.take().into_iter().map(tell).collect()
    }
}

fn world(shards: usize, one_of: Option<u32>, open_max: usize) -> (World, Arc<Sink>) {
    let mut world = World::new(shards);
    let sink = Arc::new(Sink::default());
    let one_of = one_of.and_then(NonZeroU32::new);
    let place = Arc::clone(&sink) as Arc<dyn SpanSink>;
    world.record_spans(&SpanSettings { one_of, by_property: true, open_max, sink: place });
    (world, sink)
}

fn of(qos: Qos, packet_id: u16) -> Delivery {
    match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: id(packet_id), dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: id(packet_id), dup: false },
    }
}

fn subscribe(world: &mut World, peer: Peer, filter: &str, qos: Qos) {
    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    let answer = world.subscribe_with(peer, filter, options, SubscribeProperties::default());
    assert!(answer[0].starts_with("SUBACK"), "{answer:?}");
}

/// Publishes with a `traceparent` that has these flags.
fn ask(world: &mut World, peer: Peer, flags: &str, delivery: Delivery) {
    let value = format!("00-{TRACE:032x}-{PARENT:016x}-{flags}");
    let pairs = [UserProperty { name: utf8("traceparent"), value: utf8(&value) }];
    let mut publish = Publish { delivery, ..Publish::new(name("pond/x"), b"croak") };
    publish.properties.user_properties = UserProperties::from(&pairs[..]);
    world.send(peer, &publish.into());
}

fn plain(world: &mut World, peer: Peer, delivery: Delivery) {
    world.send(peer, &Publish { delivery, ..Publish::new(name("pond/x"), b"croak") }.into());
}

fn acknowledge(world: &mut World, peer: Peer, packet_id: u16, reason: PubAckReason) {
    world.send(peer, &PubAck::new(id(packet_id), reason).into());
}

fn connect(world: &mut World, shard: usize, client_id: &str, (expiry_secs, window): (u32, u16)) -> Peer {
    let mut connect = Connect::new(Version::V5, utf8(client_id));
    connect.clean_start = false;
    connect.properties.session_expiry_interval_secs = Some(expiry_secs);
    connect.properties.receive_maximum = NonZeroU16::new(window);
    let peer = world.accept(shard, Version::V5);
    world.send(peer, &connect.into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    peer
}

#[test]
fn a_publisher_that_asks_gets_a_span_for_its_message_and_for_each_copy() {
    for shards in [1, 3] {
        let (mut world, sink) = world(shards, None, 100);
        let toad = world.connect(0, Version::V5, "toad");
        let frog = world.connect(shards - 1, Version::V5, "frog");
        let newt = world.connect(0, Version::V3_1_1, "newt");
        subscribe(&mut world, frog, "pond/#", Qos::AtLeastOnce);
        subscribe(&mut world, newt, "pond/x", Qos::AtMostOnce);
        plain(&mut world, toad, of(Qos::AtLeastOnce, 1));
        ask(&mut world, toad, "00", of(Qos::AtLeastOnce, 2));
        acknowledge(&mut world, frog, 1, PubAckReason::Success);
        acknowledge(&mut world, frog, 2, PubAckReason::Success);
        assert_eq!(sink.told(), [""; 0], "nobody has asked");
        ask(&mut world, toad, "01", of(Qos::AtLeastOnce, 3));
        acknowledge(&mut world, frog, 3, PubAckReason::Success);
        let mut spans = sink.take();
        spans.sort_by_key(|span| (span.kind == SpanKind::Deliver, span.qos));
        let [publish, once, deliver] = &spans[..] else { panic!("{spans:?}") };
        assert!(
            spans.iter().all(|span| span.mark.identifiers.trace == TRACE && &*span.mark.topic == "pond/x")
        );
        assert_eq!(
            (publish.kind, publish.parent, &*publish.client_id),
            (SpanKind::Publish, Some(PARENT), "toad")
        );
        for (span, client_id, fate) in [(once, "newt", "sent"), (deliver, "frog", "acknowledged")] {
            assert_eq!((span.parent, &*span.client_id), (Some(publish.identifier), client_id));
            assert_eq!((&span.mark, span.mark.payload_bytes), (&publish.mark, 5));
            assert_eq!(span.fate.as_ref().map(base::Fate::word), Some(fate));
            assert!(span.end_unix_ns > span.mark.start_unix_ns);
        }
        assert!(once.identifier != deliver.identifier);
    }
}

#[test]
fn qos_0_and_2_have_spans_too() {
    for shards in [1, 2] {
        let (mut world, sink) = world(shards, None, 100);
        let toad = world.connect(0, Version::V5, "toad");
        let frog = world.connect(shards - 1, Version::V5, "frog");
        subscribe(&mut world, frog, "pond/x", Qos::ExactlyOnce);
        ask(&mut world, toad, "01", of(Qos::AtMostOnce, 0));
        let mut told = sink.told();
        told.sort();
        assert_eq!(told, ["Deliver frog q0 sent", "Publish toad q0 sent"]);
        ask(&mut world, toad, "01", of(Qos::ExactlyOnce, 4));
        assert_eq!(sink.told(), ["Publish toad q2 acknowledged"]);
        world.send(toad, &PubRel::new(id(4), PubRelReason::Success).into());
        world.send(frog, &PubRec::new(id(1), PubAckReason::Success).into());
        assert_eq!(sink.told(), [""; 0], "the exchange goes on");
        world.send(frog, &PubComp::new(id(1), PubRelReason::Success).into());
        assert_eq!(sink.told(), ["Deliver frog q2 acknowledged"]);
    }
}

#[test]
fn copies_that_wait_behind_a_window_or_in_a_queue_end_when_they_are_acknowledged() {
    let (mut world, sink) = world(2, None, 100);
    let toad = world.connect(0, Version::V5, "toad");
    let frog = connect(&mut world, 1, "frog", (0, 1));
    let newt = connect(&mut world, 1, "newt", (1_000, 1));
    let [member] = ["worker"].map(|client_id| world.connect(1, Version::V5, client_id));
    subscribe(&mut world, frog, "pond/x", Qos::AtLeastOnce);
    subscribe(&mut world, newt, "pond/x", Qos::AtLeastOnce);
    subscribe(&mut world, member, "$share/g/pond/x", Qos::AtLeastOnce);
    plain(&mut world, toad, of(Qos::AtLeastOnce, 1));
    ask(&mut world, toad, "01", of(Qos::AtLeastOnce, 2));
    assert_eq!(sink.told(), ["Publish toad q1 acknowledged"]);
    for peer in [frog, newt] {
        acknowledge(&mut world, peer, 1, PubAckReason::Success);
        assert_eq!(sink.told(), [""; 0], "that was the one before");
    }
    let last = |packets: Vec<String>| {
        let packet = packets.last().cloned().expect("a message has come");
        let number = packet.split("id=").nth(1).and_then(|rest| rest.split(' ').next()).expect("its number");
        number.parse().expect("a number")
    };
    let packet_id = last(world.packets(frog));
    acknowledge(&mut world, frog, packet_id, PubAckReason::QuotaExceeded);
    assert_eq!(sink.told(), ["Deliver frog q1 refused"]);
    let packet_id = last(world.packets(newt));
    acknowledge(&mut world, newt, packet_id, PubAckReason::Success);
    assert_eq!(sink.told(), ["Deliver newt q1 acknowledged"]);
    let packet_id = last(world.packets(member));
    acknowledge(&mut world, member, packet_id, PubAckReason::Success);
    assert_eq!(sink.told(), ["Deliver worker q1 acknowledged"]);
}

#[test]
fn spans_end_with_their_connection_and_are_bounded() {
    let (mut world, sink) = world(1, None, 2);
    let toad = world.connect(0, Version::V5, "toad");
    let frog = connect(&mut world, 0, "frog", (0, 2));
    subscribe(&mut world, frog, "pond/x", Qos::AtLeastOnce);
    for packet_id in 1..=3 {
        ask(&mut world, toad, "01", of(Qos::AtLeastOnce, packet_id));
    }
    // With the first copy under way and the second PUBLISH there is no room for the second copy. The third waits.
    let publishes = ["Publish toad q1 acknowledged"; 3].map(str::to_owned);
    assert_eq!((&sink.told()[..], sink.dropped.load(Ordering::Relaxed)), (&publishes[..], 1));
    acknowledge(&mut world, frog, 1, PubAckReason::Success);
    // The third copy has its place now.
    assert_eq!(sink.told(), ["Deliver frog q1 acknowledged"]);
    world.hang_up(frog);
    assert_eq!(sink.told(), ["Deliver frog q1 connection_ended"]);
    world.hang_up(toad);
    assert_eq!(sink.told(), [""; 0]);
}

#[test]
fn one_of_many_messages_is_drawn() {
    let (mut world, sink) = world(2, Some(4), 1_000);
    let toad = world.connect(0, Version::V5, "toad");
    let frog = world.connect(1, Version::V5, "frog");
    subscribe(&mut world, frog, "pond/x", Qos::AtMostOnce);
    // Also those that are read together.
    let one = crate::world::bytes(&Publish::new(name("pond/x"), b"croak").into(), Version::V5);
    for _ in 0..100 {
        world.feed(toad, &one.repeat(4));
    }
    let spans = sink.take();
    let of_kind = |kind| spans.iter().filter(|span| span.kind == kind).count();
    assert_eq!(of_kind(SpanKind::Publish), of_kind(SpanKind::Deliver));
    assert!((50..200).contains(&of_kind(SpanKind::Publish)), "{}", of_kind(SpanKind::Publish));
    let publish = spans.iter().find(|span| span.kind == SpanKind::Publish).expect("one is drawn");
    assert_eq!(publish.parent, None);
    assert!(publish.mark.identifiers.trace != 0 && publish.identifier != 0);
    assert_eq!(world.packets(frog).len(), 400);
}

#[test]
fn a_message_that_is_refused_or_dropped_has_a_span_that_says_so() {
    let (mut world, sink) = world(1, Some(1), 100);
    let toad = world.connect(0, Version::V5, "toad");
    let deep = Publish { delivery: of(Qos::AtMostOnce, 0), ..Publish::new(name("a/b/c/d/e/f/g/h/i"), b"x") };
    world.send(toad, &deep.into());
    assert_eq!(sink.told(), ["Publish toad q0 refused"]);
    let mut small = Connect::new(Version::V5, utf8("frog"));
    small.properties.maximum_packet_bytes = NonZeroU32::new(20);
    let frog = world.accept(0, Version::V5);
    world.send(frog, &small.into());
    assert!(world.packets(frog)[0].starts_with("CONNACK Success"));
    subscribe(&mut world, frog, "pond/#", Qos::AtLeastOnce);
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let publish = Publish { delivery: of(qos, 7), ..Publish::new(name("pond/x"), &[b'x'; 100]) };
        world.send(toad, &publish.into());
        let qos = qos as u8;
        let mut told = sink.told();
        told.sort();
        let publish = if qos == 0 { "sent" } else { "acknowledged" };
        assert_eq!(
            told,
            [format!("Deliver frog q{qos} too_large"), format!("Publish toad q{qos} {publish}")]
        );
    }
}

#[test]
fn a_retained_message_has_no_span_for_those_that_subscribe_later() {
    let (mut world, sink) = world(1, None, 100);
    let toad = world.connect(0, Version::V5, "toad");
    let value = format!("00-{TRACE:032x}-{PARENT:016x}-01");
    let pairs = [UserProperty { name: utf8("traceparent"), value: utf8(&value) }];
    let mut publish =
        Publish { retain: true, delivery: of(Qos::AtLeastOnce, 1), ..Publish::new(name("pond/x"), b"croak") };
    publish.properties.user_properties = UserProperties::from(&pairs[..]);
    world.send(toad, &publish.into());
    assert_eq!(sink.told(), ["Publish toad q1 acknowledged"]);
    for (client_id, qos) in [("frog", Qos::AtMostOnce), ("newt", Qos::AtLeastOnce)] {
        let peer = world.connect(0, Version::V5, client_id);
        subscribe(&mut world, peer, "pond/x", qos);
        acknowledge(&mut world, peer, 1, PubAckReason::Success);
        assert_eq!(sink.told(), [""; 0]);
    }
}
