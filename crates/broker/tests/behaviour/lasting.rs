//! Sessions that outlive their connections.

use wire::{
    Connect, ConnectProperties, Delivery, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish, Qos,
    SubscribeProperties, SubscriptionOptions, Version, Will,
};

use crate::exchanges::{id, puback};
use crate::world::{Peer, World, name, utf8};

fn connect_lasting<'a>(version: Version, client_id: &'a str) -> Connect<'a> {
    let properties = match version {
        Version::V5 => {
            ConnectProperties { session_expiry_interval_secs: Some(100), ..ConnectProperties::default() }
        }
        _ => ConnectProperties::default(),
    };
    let mut connect = Connect::new(version, utf8(client_id));
    connect.clean_start = false;
    connect.properties = properties;
    connect
}

fn come(world: &mut World, shard: usize, version: Version, client_id: &str) -> (Peer, Vec<String>) {
    let peer = world.accept(shard, version);
    world.send(peer, &connect_lasting(version, client_id).into());
    (peer, world.packets(peer))
}

fn subscribe(world: &mut World, peer: Peer, filter: &str, qos: Qos) {
    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    let answer = world.subscribe_with(peer, filter, options, SubscribeProperties::default());
    assert!(answer[0].starts_with("SUBACK"), "{answer:?}");
}

fn publish(world: &mut World, peer: Peer, topic: &str, payload: &str, qos: Qos) -> Vec<String> {
    let packet_id = id(9);
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
    };
    world.send(peer, &Publish { delivery, ..Publish::new(name(topic), payload.as_bytes()) }.into());
    if qos == Qos::ExactlyOnce {
        world.send(peer, &PubRel::new(packet_id, PubRelReason::Success).into());
    }
    world.packets(peer)
}

#[test]
fn messages_published_while_a_client_is_away_wait_for_it() {
    for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
        for shards in [1, 3] {
            let mut world = World::new(shards);
            let (first, answer) = come(&mut world, 0, version, "lasting");
            assert!(answer[0].starts_with("CONNACK Success") && !answer[0].contains("present"), "{answer:?}");
            subscribe(&mut world, first, "a/#", Qos::ExactlyOnce);
            world.hang_up(first);
            let publisher = world.connect(shards - 1, Version::V5, "publisher");
            assert_eq!(publish(&mut world, publisher, "a/1", "1", Qos::AtLeastOnce), ["PUBACK id=9 Success"]);
            publish(&mut world, publisher, "a/0", "0", Qos::AtMostOnce);
            publish(&mut world, publisher, "a/2", "2", Qos::ExactlyOnce);
            let (second, got) = come(&mut world, shards - 1, version, "lasting");
            assert!(got[0].contains("present") || version == Version::V3_1, "{got:?}");
            assert_eq!(got[1..], [r#"PUBLISH q1 id=1 "a/1" 1 B "1""#, r#"PUBLISH q2 id=2 "a/2" 1 B "2""#]);
            world.send(second, &puback(1));
            world.send(second, &PubRec::new(id(2), PubAckReason::Success).into());
            assert_eq!(world.packets(second), ["PUBREL id=2 Success"]);
            world.assert_account();
            world.hang_up(second);
            let (third, got) = come(&mut world, 0, version, "lasting");
            assert_eq!(got[1..], ["PUBREL id=2 Success"], "what was released is not published again");
            world.send(third, &PubComp::new(id(2), PubRelReason::Success).into());
            world.hang_up(third);
            let (_, got) = come(&mut world, 0, version, "lasting");
            assert_eq!(got.len(), 1, "{got:?}");
            world.assert_account();
        }
    }
}

#[test]
fn unacknowledged_messages_are_sent_again_in_order_as_duplicates() {
    let mut world = World::new(1);
    let (first, _) = come(&mut world, 0, Version::V5, "lasting");
    subscribe(&mut world, first, "a", Qos::AtLeastOnce);
    let publisher = world.connect(0, Version::V5, "publisher");
    for payload in ["1", "2", "3"] {
        publish(&mut world, publisher, "a", payload, Qos::AtLeastOnce);
    }
    assert_eq!(world.packets(first).len(), 3);
    world.send(first, &puback(2));
    world.hang_up(first);
    let (_, got) = come(&mut world, 0, Version::V5, "lasting");
    assert_eq!(got[1..], [r#"PUBLISH q1 id=1 dup "a" 1 B "1""#, r#"PUBLISH q1 id=3 dup "a" 1 B "3""#]);
    world.assert_account();
}

#[test]
fn a_message_of_qos_2_that_was_received_is_not_published_again_after_a_reconnect() {
    let mut world = World::new(2);
    let listener = world.connect(1, Version::V5, "listener");
    subscribe(&mut world, listener, "a", Qos::AtMostOnce);
    let (first, _) = come(&mut world, 0, Version::V5, "lasting");
    let delivery = |dup| Delivery::ExactlyOnce { packet_id: id(4), dup };
    let message = |dup| Publish { delivery: delivery(dup), ..Publish::new(name("a"), b"x") };
    world.send(first, &message(false).into());
    assert_eq!(world.packets(first), ["PUBREC id=4 Success"]);
    world.hang_up(first);
    let (second, _) = come(&mut world, 1, Version::V5, "lasting");
    world.send(second, &message(true).into());
    assert_eq!(world.packets(second), ["PUBREC id=4 Success"]);
    world.send(second, &PubRel::new(id(4), PubRelReason::Success).into());
    assert_eq!(world.packets(second), ["PUBCOMP id=4 Success"]);
    world.send(second, &message(false).into());
    assert_eq!(world.packets(second), ["PUBREC id=4 Success"], "the identifier is free for another message");
    assert_eq!(world.packets(listener).len(), 2);
}

#[test]
fn a_session_ends_when_its_time_is_over_or_with_a_clean_start() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    for ends_by_time in [true, false] {
        let (first, answer) = come(&mut world, 0, Version::V5, "lasting");
        assert!(!answer[0].contains("present"));
        subscribe(&mut world, first, "a", Qos::AtLeastOnce);
        world.hang_up(first);
        publish(&mut world, publisher, "a", "x", Qos::AtLeastOnce);
        if ends_by_time {
            world.wait(99_000);
            assert_eq!(publish(&mut world, publisher, "a", "x", Qos::AtLeastOnce), ["PUBACK id=9 Success"]);
            world.wait(2_000);
        } else {
            let peer = world.connect(0, Version::V5, "lasting");
            world.hang_up(peer);
        }
        let answer = publish(&mut world, publisher, "a", "x", Qos::AtLeastOnce);
        assert_eq!(answer, ["PUBACK id=9 No matching subscribers"]);
        world.assert_account();
    }
}

#[test]
fn a_will_waits_for_its_delay_and_a_resumption_takes_it_back() {
    let mut world = World::new(2);
    let listener = world.connect(1, Version::V5, "listener");
    subscribe(&mut world, listener, "will", Qos::AtMostOnce);
    let with_will = |world: &mut World, shard| {
        let will = Will {
            topic: name("will"),
            payload: wire::Binary::new(b"gone").expect("short"),
            qos: Qos::AtMostOnce,
            retain: false,
            delay_interval_secs: Some(10),
            properties: wire::MessageProperties::default(),
        };
        let peer = world.accept(shard, Version::V5);
        let mut connect = connect_lasting(Version::V5, "mortal");
        connect.will = Some(will);
        world.send(peer, &connect.into());
        world.packets(peer);
        peer
    };
    let first = with_will(&mut world, 0);
    world.hang_up(first);
    world.wait(9_000);
    let second = with_will(&mut world, 1);
    world.wait(20_000);
    assert_eq!(world.packets(listener), [""; 0]);
    world.hang_up(second);
    world.wait(11_000);
    assert_eq!(world.packets(listener), [r#"PUBLISH q0 "will" 4 B "gone""#]);
}

#[test]
fn a_client_that_comes_on_another_shard_goes_on_with_its_session() {
    let mut world = World::new(2);
    let (first, _) = come(&mut world, 0, Version::V5, "lasting");
    subscribe(&mut world, first, "a", Qos::AtLeastOnce);
    let publisher = world.connect(0, Version::V5, "publisher");
    publish(&mut world, publisher, "a", "0", Qos::AtMostOnce);
    publish(&mut world, publisher, "a", "1", Qos::AtLeastOnce);
    assert_eq!(world.packets(first).len(), 2);
    let (second, got) = come(&mut world, 1, Version::V5, "lasting");
    assert_eq!(got[1..], [r#"PUBLISH q1 id=1 dup "a" 1 B "1""#]);
    assert_eq!(world.packets(first), ["DISCONNECT Session taken over"]);
    world.send(second, &puback(1));
    publish(&mut world, publisher, "a", "2", Qos::AtMostOnce);
    publish(&mut world, publisher, "a", "3", Qos::AtLeastOnce);
    assert_eq!(world.packets(second), [r#"PUBLISH q0 "a" 1 B "2""#, r#"PUBLISH q1 id=2 "a" 1 B "3""#]);
    world.assert_account();
}

#[test]
fn subscriptions_of_a_lasting_session_are_ended_by_unsubscribing() {
    let mut world = World::new(1);
    let (first, _) = come(&mut world, 0, Version::V5, "lasting");
    subscribe(&mut world, first, "a", Qos::AtLeastOnce);
    world.hang_up(first);
    let (second, _) = come(&mut world, 0, Version::V5, "lasting");
    assert_eq!(world.unsubscribe(second, "a"), ["UNSUBACK id=1 Success"]);
    assert_eq!(world.unsubscribe(second, "a"), ["UNSUBACK id=1 No subscription existed"]);
    let publisher = world.connect(0, Version::V5, "publisher");
    assert_eq!(
        publish(&mut world, publisher, "a", "x", Qos::AtLeastOnce),
        ["PUBACK id=9 No matching subscribers"]
    );
}

#[test]
fn retained_messages_of_qos_1_come_through_the_queue_of_a_lasting_session() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "publisher");
    for number in 0..300 {
        let delivery = Delivery::AtLeastOnce { packet_id: id(1), dup: false };
        let topic = format!("a/{number:03}");
        let publish = Publish { delivery, retain: true, ..Publish::new(name(&topic), b"kept") };
        world.send(publisher, &publish.into());
    }
    assert_eq!(world.packets(publisher).len(), 300);
    let (lasting, _) = come(&mut world, 1, Version::V3_1_1, "lasting");
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    let first = world.subscribe_with(lasting, "a/#", options, SubscribeProperties::default());
    let mut got = first.len() - 1;
    for number in 1..=300 {
        let packets = world.packets(lasting);
        got += packets.len();
        assert!(
            packets.iter().all(|packet| packet.contains("q1") && packet.contains("retain")),
            "{packets:?}"
        );
        world.send(lasting, &puback(number));
    }
    got += world.packets(lasting).len();
    assert_eq!(got, 300);
    world.assert_account();
}

/// The packet identifier, if there is one, and the topic of a PUBLISH as it is printed.
fn parts(packet: &str) -> (Option<u16>, String) {
    let id = packet.split(' ').find_map(|word| word.strip_prefix("id=")).and_then(|id| id.parse().ok());
    (id, packet.split('"').nth(1).expect("a topic").to_owned())
}

#[test]
fn retained_messages_go_on_where_the_connection_was_cut() {
    const MESSAGES: usize = 500;
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let mut world = World::new(2);
        let publisher = world.connect(0, Version::V5, "p");
        let payload = "x".repeat(1_000);
        for number in 0..MESSAGES {
            let (packet_id, topic) = (id(1), format!("t/{number:03}"));
            let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
            let publish =
                Publish { retain: true, delivery, ..Publish::new(name(&topic), payload.as_bytes()) };
            world.send(publisher, &publish.into());
        }
        let mut seen = std::collections::BTreeSet::new();
        let (mut reader, _) = come(&mut world, 0, Version::V5, "lasting");
        world.socket(reader).stuck = true;
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        let mut packets = world.subscribe_with(reader, "t/#", options, SubscribeProperties::default());
        packets.remove(0);
        for shard in [1, 0, 1, 1] {
            world.hang_up(reader);
            for packet in packets.drain(..) {
                let is_new = seen.insert(parts(&packet).1);
                assert!(is_new || packet.contains(" dup "), "{packet}");
            }
            assert!((1..MESSAGES).contains(&seen.len()), "{} before the end", seen.len());
            reader = world.accept(shard, Version::V5);
            world.socket(reader).stuck = true;
            world.send(reader, &connect_lasting(Version::V5, "lasting").into());
            packets = world.packets(reader).split_off(1);
        }
        while !packets.is_empty() {
            let mut taken: Vec<u16> = Vec::new();
            for packet in packets.drain(..) {
                let (packet_id, topic) = parts(&packet);
                assert!(seen.insert(topic) || packet.contains(" dup "), "{packet}");
                taken.extend(packet_id);
            }
            taken.into_iter().for_each(|number| world.send(reader, &puback(number)));
            world.drain(reader);
            packets = world.packets(reader);
        }
        assert_eq!(seen.len(), MESSAGES);
        world.assert_account();
    }
}
