//! Routing of messages: their receivers, their order, and their encoding.

use std::num::NonZeroU32;
use std::sync::{Arc, Barrier};
use std::thread;

use base::{ConnectionId, Interest, ShardId, Subscriber};
use index::Change;

use crate::world::{Peer, World, bytes, name, utf8};
use wire::{
    Connect, MessageProperties, OneOrMore, PacketId, Publish, PublishTopic, Subscribe, SubscribeProperties,
    Subscription, SubscriptionIdentifier, SubscriptionOptions, TopicAlias, UserProperties, UserProperty,
    Version,
};

const ALL: [Version; 3] = Version::ALL;

#[test]
fn a_message_goes_to_every_matching_subscriber_on_every_shard_in_its_own_version() {
    for shards in [1, 2, 4] {
        let mut world = World::new(shards);
        let subscribers: Vec<_> = (0..12)
            .map(|number| {
                let peer = world.connect(number % shards, ALL[number % 3], &format!("s{number}"));
                world.subscribe(peer, ["a/+", "a/b", "#", "b/#"][number % 4]);
                (peer, number % 4 != 3)
            })
            .collect();
        for (number, version) in ALL.into_iter().enumerate() {
            let publisher = world.connect(number % shards, version, &format!("p{number}"));
            world.publish(publisher, "a/b", "hey");
            for (subscriber, matches) in &subscribers {
                let expected: &[&str] = if *matches { &["PUBLISH q0 \"a/b\" 3 B \"hey\""] } else { &[] };
                assert_eq!(
                    world.packets(*subscriber),
                    expected,
                    "{shards} shards, {version} to {subscriber:?}"
                );
            }
        }
    }
}

/// Another thread writes the subscription, as another shard does. The topic has many subscribers that are not connected: most
/// of a look-up is their sorting, after the index was read.
#[test]
fn a_subscription_that_is_written_while_its_topic_is_looked_up_gets_the_next_message() {
    const ROUNDS: usize = 100;
    let (mut world, filter, at_most_once) =
        (World::new(1), topic::filter!("t"), Interest::new(wire::Qos::AtMostOnce));
    let late = world.connect(0, Version::V5, "late");
    world.subscribe(late, "other");
    let publisher = world.connect(0, Version::V5, "publisher");
    let index = Arc::clone(&world.index);
    let mut found = None;
    index.for_each_match(name("other"), |subscriber, _| found = Some(Arc::clone(subscriber)));
    let late_one = found.expect("it has subscribed");
    for slot in 0..500 {
        let connection = ConnectionId { slot, generation: 0 };
        let absent = Arc::new(Subscriber::new("absent".into(), ShardId::new(0), connection));
        absent.move_to(None);
        let change = Change::Subscribe { filter, subscriber: &absent, options: at_most_once };
        index.apply([change], &mut Vec::new());
    }
    for round in 0..ROUNDS {
        let meet = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                meet.wait();
                (0..round * 20).for_each(|_| std::hint::spin_loop());
                let change = Change::Subscribe { filter, subscriber: &late_one, options: at_most_once };
                index.apply([change], &mut Vec::new());
            });
            meet.wait();
            world.publish(publisher, "t", "meanwhile");
        });
        world.packets(late);
        world.publish(publisher, "t", "behind");
        assert_eq!(world.packets(late), ["PUBLISH q0 \"t\" 6 B \"behind\""], "round {round}");
        index.apply([Change::Unsubscribe { filter, subscriber: &late_one }], &mut Vec::new());
    }
}

#[test]
fn connect_subscribe_and_publish_in_one_segment_bring_the_client_its_own_message() {
    for shards in [1, 2] {
        for version in ALL {
            let mut world = World::new(shards);
            let peer = world.accept(shards - 1, version);
            let subscription = Subscription::with_qos(topic::filter!("own/#"), wire::Qos::AtMostOnce);
            let subscribe = Subscribe {
                packet_id: PacketId::MIN,
                properties: SubscribeProperties::default(),
                subscriptions: OneOrMore::one(&subscription),
            };
            let segment = [
                bytes(&Connect::new(version, utf8("me")).into(), version),
                bytes(&subscribe.into(), version),
                bytes(&Publish::new(name("own/x"), b"1").into(), version),
                bytes(&Publish::new(name("own/x"), b"2").into(), version),
            ];
            world.feed(peer, &segment.concat());
            let packets = world.packets(peer);
            assert_eq!(packets.len(), 4, "{packets:?}");
            assert!(packets[0].starts_with("CONNACK") && packets[1].starts_with("SUBACK"), "{packets:?}");
            assert_eq!(packets[2..], ["PUBLISH q0 \"own/x\" 1 B \"1\"", "PUBLISH q0 \"own/x\" 1 B \"2\""]);
        }
    }
}

#[test]
fn overlapping_subscriptions_bring_one_copy_with_all_identifiers() {
    let mut world = World::new(1);
    let subscriber = world.connect(0, Version::V5, "s");
    for (filter, number) in [("a/#", 3), ("a/+", 1)] {
        let subscription_identifier = SubscriptionIdentifier::new(number);
        let properties = SubscribeProperties { subscription_identifier, ..SubscribeProperties::default() };
        world.subscribe_with(subscriber, filter, SubscriptionOptions::default(), properties);
    }
    let publisher = world.connect(0, Version::V3_1_1, "p");
    world.publish(publisher, "a/b", "x");
    let [packet] = &world.packets(subscriber)[..] else { panic!("one copy") };
    assert!(packet.contains('1') && packet.contains('3'), "{packet}");
}

#[test]
fn no_local_leaves_out_the_clients_own_messages() {
    let mut world = World::new(1);
    let me = world.connect(0, Version::V5, "me");
    let options = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    world.subscribe_with(me, "t", options, SubscribeProperties::default());
    world.publish(me, "t", "own");
    assert!(world.packets(me).is_empty());
    let other = world.connect(0, Version::V5, "other");
    world.publish(other, "t", "foreign");
    assert_eq!(world.packets(me).len(), 1);
}

#[test]
fn properties_reach_an_mqtt_5_subscriber_unaltered_and_no_other() {
    let mut world = World::new(2);
    let five = world.connect(0, Version::V5, "five");
    let three = world.connect(1, Version::V3_1_1, "three");
    world.subscribe(five, "t");
    world.subscribe(three, "t");
    let users = [("b", "2"), ("a", "1"), ("b", "2")]
        .map(|(name, value)| UserProperty { name: utf8(name), value: utf8(value) });
    let properties = MessageProperties {
        content_type: Some(utf8("text/plain")),
        message_expiry_interval_secs: Some(60),
        user_properties: UserProperties::from(&users[..]),
        ..MessageProperties::default()
    };
    let publisher = world.connect(1, Version::V5, "p");
    let publish = Publish { properties, ..Publish::new(name("t"), b"x") };
    world.send(publisher, &publish.into());
    assert_eq!(world.packets(five), [publish.to_string()]);
    assert_eq!(world.packets(three), ["PUBLISH q0 \"t\" 1 B \"x\""]);
}

#[test]
fn a_topic_alias_stands_for_its_topic_and_stays_on_its_connection() {
    let mut world = World::new(1);
    let subscriber = world.connect(0, Version::V5, "s");
    world.subscribe(subscriber, "#");
    let publisher = world.connect(0, Version::V5, "p");
    let alias = TopicAlias::new(2).expect("not 0");
    let named =
        Publish { topic: PublishTopic::NameWithAlias(name("t/u"), alias), ..Publish::new(name("t/u"), b"1") };
    let short = Publish { topic: PublishTopic::Alias(alias), ..Publish::new(name("t/u"), b"2") };
    world.send(publisher, &named.into());
    world.send(publisher, &short.into());
    let expected = ["PUBLISH q0 \"t/u\" 1 B \"1\"", "PUBLISH q0 \"t/u\" 1 B \"2\""];
    assert_eq!(world.packets(subscriber), expected);
    // The next connection starts without aliases.
    let next = world.connect(0, Version::V5, "next");
    world.send(next, &short.into());
    assert_eq!(world.packets(next), ["DISCONNECT Protocol Error"]);
    assert!(world.socket(next).closed);
}

#[test]
fn an_alias_above_the_maximum_ends_the_connection() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "p");
    let alias = TopicAlias::new(3).expect("not 0");
    let publish =
        Publish { topic: PublishTopic::NameWithAlias(name("t"), alias), ..Publish::new(name("t"), b"") };
    world.send(publisher, &publish.into());
    assert_eq!(world.packets(publisher), ["DISCONNECT Topic Alias invalid"]);
}

#[test]
fn a_packet_larger_than_the_client_takes_is_left_out_and_counted() {
    let mut world = World::new(1);
    let subscriber = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("s"));
    connect.properties.maximum_packet_bytes = NonZeroU32::new(60);
    world.send(subscriber, &connect.into());
    world.subscribe(subscriber, "t");
    world.packets(subscriber);
    let publisher = world.connect(0, Version::V3_1_1, "p");
    // 2 bytes of fixed header, 3 of topic, 1 of properties: 54 bytes of payload make 60.
    let payloads = ["x".repeat(54), "x".repeat(55), "y".repeat(10)];
    let segment: Vec<u8> = payloads
        .iter()
        .flat_map(|p| bytes(&Publish::new(name("t"), p.as_bytes()).into(), Version::V3_1_1))
        .collect();
    world.feed(publisher, &segment);
    let packets = world.packets(subscriber);
    assert_eq!(packets.len(), 2, "{packets:?}");
    assert!(packets[0].contains("54 B") && packets[1].contains("10 B"), "{packets:?}");
    assert_eq!(world.counters[0].dropped_too_large.value(), 1);
}

#[test]
fn topics_of_the_server_and_topics_too_deep_go_nowhere_and_are_counted() {
    let mut world = World::new(1);
    let subscriber = world.connect(0, Version::V5, "s");
    world.subscribe(subscriber, "$SYS/#");
    world.subscribe(subscriber, "#");
    for topic in ["$SYS/broker/version", "$share/g/t", "1/2/3/4/5/6/7/8/9"] {
        world.publish(subscriber, topic, "mine");
        world.publish_retained(subscriber, topic, "mine");
    }
    assert!(world.packets(subscriber).is_empty());
    assert_eq!(world.counters[0].dropped_topic.value(), 6);
    world.publish(subscriber, "1/2/3/4/5/6/7/8", "deep enough");
    assert_eq!(world.packets(subscriber).len(), 1);
}

#[test]
fn a_subscription_made_by_somebody_else_changes_a_cached_route() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V3_1_1, "p");
    world.publish(publisher, "t", "nobody");
    assert_eq!(world.counters[0].no_subscribers.value(), 1);
    let subscriber = world.connect(1, Version::V3_1_1, "s");
    world.subscribe(subscriber, "+");
    world.publish(publisher, "t", "somebody");
    assert_eq!(world.packets(subscriber), ["PUBLISH q0 \"t\" 8 B \"somebody\""]);
    world.hang_up(subscriber);
    world.publish(publisher, "t", "nobody again");
    assert_eq!(world.counters[0].no_subscribers.value(), 2);
}

#[test]
fn properties_are_checked_packet_by_packet() {
    // A packet in order, then one like it whose property is none that PUBLISH has, or has another meaning here.
    let good = [0x30, 7, 0, 1, b't', 3, 3, 0, 0];
    for property in [[0x23, 0, 1], [0x7f, 0, 0], [0x0b, 1, 0x0b]] {
        let mut world = World::new(1);
        let subscriber = world.connect(0, Version::V5, "s");
        world.subscribe(subscriber, "t");
        let publisher = world.connect(0, Version::V5, "p");
        let bad = [&good[..6], &property].concat();
        world.feed(publisher, &[&good[..], &good, &bad, &good].concat());
        let alias_is_legal = property[0] == 0x23;
        let packets = world.packets(subscriber);
        assert_eq!(packets.len(), if alias_is_legal { 4 } else { 2 }, "{packets:?}");
        assert!(!packets.iter().any(|packet| packet.contains("alias")), "{packets:?}");
        assert_eq!(world.socket(publisher).closed, !alias_is_legal);
    }
}

#[test]
fn a_large_message_to_many_arrives_whole_in_every_shape() {
    let mut world = World::new(2);
    let subscribers: Vec<_> = (0..24)
        .map(|number| {
            let peer = world.connect(number % 2, ALL[number % 3], &format!("s{number}"));
            let subscription_identifier = SubscriptionIdentifier::new(u32::from(number % 6 == 2));
            let properties =
                SubscribeProperties { subscription_identifier, ..SubscribeProperties::default() };
            world.subscribe_with(peer, "t", SubscriptionOptions::default(), properties);
            peer
        })
        .collect();
    for version in ALL {
        let publisher = world.connect(0, version, "p");
        let payloads = ["x".repeat(20_000), "y".repeat(9_000)];
        payloads.iter().for_each(|payload| world.publish(publisher, "t", payload));
        for subscriber in &subscribers {
            let sent = std::mem::take(&mut world.socket(*subscriber).sent);
            let trace = crate::world::trace(&sent, subscriber.version);
            assert_eq!(trace.len(), 2, "{trace:?}");
            assert!(trace[0].contains("20000 B") && trace[1].contains("9000 B"), "{trace:?}");
        }
    }
}

/// Key-ordered groups keep the order of QoS 0 too: each publisher has one member, on whatever shard they are.
#[test]
fn a_publisher_of_qos_0_keeps_to_one_member_of_an_ordered_group() {
    let dispatch = base::Dispatch::KeyOrdered(base::Key::Publisher);
    let mut world = World::with_ledger(2, ledger::Settings { dispatch, ..ledger::Settings::default() });
    let members: Vec<Peer> = (0..4)
        .map(|number| {
            let member = world.connect(number % 2, Version::V5, &format!("m{number}"));
            world.subscribe(member, "$share/g/t");
            member
        })
        .collect();
    let mut busy = std::collections::BTreeSet::new();
    for number in 0..20 {
        let publisher = world.connect(number % 2, Version::V5, &format!("p{number}"));
        (0..5).for_each(|payload| world.publish(publisher, "t", &payload.to_string()));
        let got: Vec<usize> = members.iter().map(|member| world.packets(*member).len()).collect();
        let position = got.iter().position(|count| *count == 5);
        busy.insert(position.unwrap_or_else(|| panic!("one member gets all five: {got:?}")));
    }
    assert!(busy.len() > 1, "publishers are shared out");
}
