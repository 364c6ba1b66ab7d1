//! QoS 1 and 2 between sessions that end with their connections.

use protocol::Gauges;
use wire::{
    Connect, Delivery, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish, Qos,
    SubscribeProperties, SubscriptionOptions, Version,
};

use crate::exchanges::{exactly_once, id, once_at_least, puback, with_window};
use crate::world::{Peer, World, bytes, name, settings, utf8};

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];

fn subscribe(world: &mut World, peer: Peer, filter: &str, qos: Qos) {
    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    let answer = world.subscribe_with(peer, filter, options, SubscribeProperties::default());
    assert!(answer[0].starts_with("SUBACK"), "{answer:?}");
}

fn publish(world: &mut World, peer: Peer, topic: &str, payload: &str, delivery: Delivery) {
    let publish = Publish { delivery, ..Publish::new(name(topic), payload.as_bytes()) };
    world.send(peer, &publish.into());
}

#[test]
fn a_message_of_qos_1_is_acknowledged_and_delivered_with_an_identifier_of_the_receivers_own() {
    for shards in [1, 4] {
        for version in VERSIONS {
            let mut world = World::new(shards);
            let publisher = world.connect(0, version, "publisher");
            let receiver = world.connect(shards - 1, version, "receiver");
            subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
            publish(&mut world, publisher, "a", "x", once_at_least(77));
            assert_eq!(world.packets(publisher), ["PUBACK id=77 Success"]);
            assert_eq!(world.packets(receiver), [r#"PUBLISH q1 id=1 "a" 1 B "x""#]);
            world.send(receiver, &puback(1));
            assert_eq!(world.packets(receiver), [""; 0]);
            world.assert_account();
        }
    }
}

#[test]
fn a_message_of_qos_2_goes_through_both_handshakes_once() {
    for shards in [1, 4] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, Version::V5, "publisher");
        let receiver = world.connect(shards - 1, Version::V3_1_1, "receiver");
        subscribe(&mut world, receiver, "a", Qos::ExactlyOnce);
        publish(&mut world, publisher, "a", "x", exactly_once(5));
        assert_eq!(world.packets(publisher), ["PUBREC id=5 Success"]);
        assert_eq!(world.packets(receiver), [r#"PUBLISH q2 id=1 "a" 1 B "x""#]);
        let again = Delivery::ExactlyOnce { packet_id: id(5), dup: true };
        publish(&mut world, publisher, "a", "x", again);
        assert_eq!(world.packets(publisher), ["PUBREC id=5 Success"]);
        assert_eq!(world.packets(receiver), [""; 0], "a repeated PUBLISH is no new message");
        world.send(publisher, &PubRel::new(id(5), PubRelReason::Success).into());
        assert_eq!(world.packets(publisher), ["PUBCOMP id=5 Success"]);
        world.send(receiver, &PubRec::new(id(1), PubAckReason::Success).into());
        assert_eq!(world.packets(receiver), ["PUBREL id=1 Success"]);
        world.send(receiver, &PubComp::new(id(1), PubRelReason::Success).into());
        world.assert_account();
        assert_eq!(world.total(|counters| counters.acknowledged.value()), 1);
    }
}

#[test]
fn the_lower_of_published_and_granted_qos_counts() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receivers = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce].map(|qos| {
        let receiver = world.connect(0, Version::V5, &format!("{qos:?}"));
        subscribe(&mut world, receiver, "a", qos);
        receiver
    });
    publish(&mut world, publisher, "a", "x", once_at_least(1));
    let got = receivers.map(|receiver| world.packets(receiver).concat());
    assert_eq!(
        got,
        [r#"PUBLISH q0 "a" 1 B "x""#, r#"PUBLISH q1 id=1 "a" 1 B "x""#, r#"PUBLISH q1 id=1 "a" 1 B "x""#]
    );
}

#[test]
fn a_message_without_subscribers_is_acknowledged_with_that_reason_in_mqtt_5() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    publish(&mut world, publisher, "a", "x", once_at_least(1));
    assert_eq!(world.packets(publisher), ["PUBACK id=1 No matching subscribers"]);
    publish(&mut world, publisher, "a", "x", exactly_once(2));
    assert_eq!(world.packets(publisher), ["PUBREC id=2 No matching subscribers"]);
    let old = world.connect(0, Version::V3_1_1, "old");
    publish(&mut world, old, "a", "x", once_at_least(1));
    assert_eq!(world.packets(old), ["PUBACK id=1 Success"]);
}

#[test]
fn behind_a_full_window_messages_wait_in_order_and_what_is_qos_0_passes() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receiver = with_window(&mut world, 0, "receiver", 2);
    subscribe(&mut world, receiver, "#", Qos::AtLeastOnce);
    for number in 1..=5 {
        publish(&mut world, publisher, "a", &number.to_string(), once_at_least(number));
    }
    world.publish(publisher, "b", "0");
    let got = world.packets(receiver);
    assert_eq!(got.len(), 3, "{got:?}");
    assert_eq!(got[2], r#"PUBLISH q0 "b" 1 B "0""#);
    assert_eq!(world.packets(publisher).len(), 5, "all are acknowledged");
    world.assert_account();
    world.send(receiver, &puback(2));
    assert_eq!(world.packets(receiver), [r#"PUBLISH q1 id=3 "a" 1 B "3""#]);
    world.send(receiver, &puback(1));
    world.send(receiver, &puback(3));
    let got = world.packets(receiver);
    assert_eq!(got, [r#"PUBLISH q1 id=4 "a" 1 B "4""#, r#"PUBLISH q1 id=5 "a" 1 B "5""#]);
    world.assert_account();
    world.hang_up(receiver);
    assert_eq!(world.total(|counters| counters.discarded_session.value()), 2);
    world.assert_account();
}

#[test]
fn a_client_for_which_too_much_waits_is_ended_and_told() {
    let settings = session::Settings { waiting_messages_max: 3, ..settings() };
    let mut world = World::with(1, settings);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receiver = with_window(&mut world, 0, "receiver", 1);
    subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
    for number in 1..=5 {
        publish(&mut world, publisher, "a", "x", once_at_least(number));
    }
    let got = world.packets(receiver);
    assert_eq!(got.last().map(String::as_str), Some("DISCONNECT Quota exceeded"), "{got:?}");
    assert!(world.socket(receiver).closed);
    assert_eq!(world.packets(publisher).len(), 5);
    world.assert_account();
}

/// Publishes messages to one topic, in one piece, as a fast publisher does.
fn publish_many(world: &mut World, peer: Peer, version: Version, count: u16) {
    let publish = |number| Publish { delivery: once_at_least(number), ..Publish::new(name("a"), b"x") };
    let packets = (1..=count).flat_map(|number| bytes(&publish(number).into(), version));
    world.feed(peer, &packets.collect::<Vec<u8>>());
}

#[test]
fn messages_that_come_in_one_piece_are_each_delivered_and_answered() {
    for (shards, version) in [(1, Version::V3_1_1), (1, Version::V5), (2, Version::V3_1), (2, Version::V5)] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, version, "publisher");
        // Those of each kind are served before and after those of the others.
        let mut receivers = |version: Version, qos: Qos| {
            let client_id = format!("{version} {qos:?} {}", world.subscriptions());
            let receiver = world.connect(shards - 1, version, &client_id);
            subscribe(&mut world, receiver, "a", qos);
            receiver
        };
        let kinds = [(version, 0), (Version::V5, 0), (Version::V3_1_1, 0), (version, 1), (Version::V5, 1)];
        let kinds = [&kinds[..], &[(Version::V3_1_1, 1)], &kinds].concat();
        let at = |qos| if qos == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
        let receivers: Vec<_> = kinds.iter().map(|(v, qos)| (receivers(*v, at(*qos)), *qos)).collect();
        let narrow = with_window(&mut world, 0, "narrow", 2);
        subscribe(&mut world, narrow, "a", Qos::AtLeastOnce);

        publish_many(&mut world, publisher, version, 5);
        let numbered = |range: std::ops::RangeInclusive<u16>, packet: &str| -> Vec<String> {
            range.map(|number| packet.replace('#', &number.to_string())).collect()
        };
        assert_eq!(world.packets(publisher), numbered(1..=5, "PUBACK id=# Success"));
        for (receiver, qos) in receivers {
            let packet = [r#"PUBLISH q0 "a" 1 B "x""#, r#"PUBLISH q1 id=# "a" 1 B "x""#][qos];
            assert_eq!(world.packets(receiver), numbered(1..=5, packet));
        }
        // The others come when there is a place for them.
        assert_eq!(world.packets(narrow), numbered(1..=2, r#"PUBLISH q1 id=# "a" 1 B "x""#));
        world.send(narrow, &puback(1));
        world.send(narrow, &puback(2));
        assert_eq!(world.packets(narrow), numbered(3..=4, r#"PUBLISH q1 id=# "a" 1 B "x""#));
        world.assert_account();
    }
}

#[test]
fn a_client_that_is_ended_amid_messages_in_one_piece_gets_none_of_the_rest() {
    let settings = session::Settings { waiting_messages_max: 1, ..settings() };
    let mut world = World::with(1, settings);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receiver = with_window(&mut world, 0, "receiver", 1);
    subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
    publish_many(&mut world, publisher, Version::V5, 6);
    let got = world.packets(receiver);
    assert_eq!(got.last().map(String::as_str), Some("DISCONNECT Quota exceeded"), "{got:?}");
    assert_eq!(world.packets(publisher).len(), 6);
    world.assert_account();
}

#[test]
fn acknowledgements_are_held_back_while_a_subscriber_is_behind_and_not_for_ever() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, Version::V5, "publisher");
        let receiver = with_window(&mut world, shards - 1, "receiver", 1);
        subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
        let large = "x".repeat(50_000);
        let mut sent = 0;
        let mut acknowledged = 0;
        while acknowledged == sent {
            sent += 1;
            publish(&mut world, publisher, "a", &large, once_at_least(sent));
            acknowledged += u16::try_from(world.packets(publisher).len()).expect("few");
            assert!(sent < 20, "some acknowledgement is held back");
        }
        world.wait(2_000);
        assert_eq!(
            world.packets(publisher).len(),
            usize::from(sent - acknowledged),
            "it is slowed, not stopped"
        );
        sent += 1;
        publish(&mut world, publisher, "a", &large, once_at_least(sent));
        assert_eq!(world.packets(publisher), [""; 0]);
        for number in 1..sent {
            world.packets(receiver);
            world.send(receiver, &puback(number));
        }
        assert_eq!(world.packets(publisher), [format!("PUBACK id={sent} Success")]);
        world.assert_account();
    }
}

/// The shard has not run for a while. Then held acknowledgements are due, and so is the end of a publisher whose bytes have
/// arrived and were not read.
#[test]
fn acknowledgements_that_were_held_back_leave_although_their_publisher_seems_silent() {
    let mut world = World::new(1);
    let publisher = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("publisher"));
    connect.keep_alive_secs = 1;
    world.send(publisher, &connect.into());
    world.packets(publisher);
    let receiver = with_window(&mut world, 0, "receiver", 1);
    subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
    let large = "x".repeat(50_000);
    let (mut sent, mut acknowledged) = (0, 0);
    while acknowledged == sent {
        sent += 1;
        publish(&mut world, publisher, "a", &large, once_at_least(u16::try_from(sent).expect("few")));
        acknowledged += world.packets(publisher).len();
        assert!(sent < 20, "some acknowledgement is held back");
    }
    world.wait(900);
    world.socket(publisher).has_unread = true;
    world.now.monotonic_ms += 700;
    world.wait(50);
    assert_eq!(world.packets(publisher).len(), sent - acknowledged);
}

#[test]
fn a_client_may_fill_its_own_window_and_still_gets_its_acknowledgements() {
    let mut world = World::new(1);
    let own = with_window(&mut world, 0, "own", 1);
    subscribe(&mut world, own, "a", Qos::AtLeastOnce);
    let large = "x".repeat(50_000);
    for number in 1..=20 {
        publish(&mut world, own, "a", &large, once_at_least(number));
        let got = world.packets(own);
        assert!(got.contains(&format!("PUBACK id={number} Success")), "{number}");
    }
}

#[test]
fn a_full_output_holds_messages_of_qos_1_back_and_loses_none() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receiver = world.connect(1, Version::V3_1_1, "receiver");
    subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
    world.socket(receiver).stuck = true;
    for number in 1..=50 {
        publish(&mut world, publisher, "a", &format!("{number:0100}"), once_at_least(number));
    }
    assert_eq!(world.packets(publisher).len(), 50);
    let mut got = Vec::new();
    while got.len() < 50 {
        let more = world.drain(receiver);
        assert!(!more.is_empty(), "{} came", got.len());
        got.extend(more);
    }
    let expected: Vec<String> =
        (1..=50).map(|n| format!(r#"PUBLISH q1 id={n} "a" 100 B "{n:0100}""#)).collect();
    let cut = |packets: &[String]| -> Vec<String> {
        packets.iter().map(|packet| packet.chars().take(18).collect()).collect()
    };
    assert_eq!(cut(&got), cut(&expected));
    world.assert_account();
}

#[test]
fn a_shared_subscription_brings_each_message_to_one_member_in_turn() {
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut world = World::new(2);
        let publisher = world.connect(0, Version::V5, "publisher");
        let members = [0, 1].map(|shard| {
            let member = world.connect(shard, Version::V5, &format!("member {shard}"));
            subscribe(&mut world, member, "$share/group/a", qos);
            member
        });
        let other = world.connect(1, Version::V3_1_1, "other");
        subscribe(&mut world, other, "a", qos);
        for number in 1..=6 {
            let delivery = match qos {
                Qos::AtMostOnce => Delivery::AtMostOnce,
                Qos::AtLeastOnce => once_at_least(number),
                Qos::ExactlyOnce => exactly_once(number),
            };
            publish(&mut world, publisher, "a", &number.to_string(), delivery);
        }
        assert_eq!(members.map(|member| world.packets(member).len()), [3, 3], "{qos:?}");
        assert_eq!(world.packets(other).len(), 6);
        world.assert_account();
    }
}

/// [MQTT-3.1.2-24], wherever packets are forwarded as they came, or share their payload with many.
#[test]
fn no_receiver_gets_a_packet_above_its_maximum_however_it_is_forwarded() {
    const OTHERS: usize = 200;
    for (qos, payload_len) in [(Qos::AtLeastOnce, 100), (Qos::AtMostOnce, 100), (Qos::AtMostOnce, 10_000)] {
        let mut world = World::new(1);
        let small = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8("small"));
        connect.properties.maximum_packet_bytes = std::num::NonZeroU32::new(60);
        world.send(small, &connect.into());
        world.packets(small);
        subscribe(&mut world, small, "t", qos);
        for number in 0..OTHERS {
            let other = world.connect(0, Version::V5, &format!("other {number}"));
            subscribe(&mut world, other, "t", qos);
        }
        let publisher = world.connect(0, Version::V5, "publisher");
        let payload = "x".repeat(payload_len);
        let segment: Vec<u8> = [&*payload, "fits", &*payload]
            .iter()
            .zip(1..)
            .flat_map(|(payload, number)| {
                let delivery = match qos {
                    Qos::AtMostOnce => Delivery::AtMostOnce,
                    _ => once_at_least(number),
                };
                let publish = Publish { delivery, ..Publish::new(name("t"), payload.as_bytes()) };
                bytes(&publish.into(), Version::V5)
            })
            .collect();
        world.feed(publisher, &segment);
        let packets = world.packets(small);
        assert!(packets.len() == 1 && packets[0].contains("fits"), "{qos:?}, {payload_len} B: {packets:?}");
    }
}

/// Returns the ledger's account: the number of routed messages, and the sum of their outcomes.
pub(crate) fn ledger_account(gauges: &Gauges) -> (u64, u64) {
    let read =
        |gauge: &std::sync::atomic::AtomicUsize| gauge.load(std::sync::atomic::Ordering::Relaxed) as u64;
    let parts = [
        &gauges.acknowledged,
        &gauges.refused_by_client,
        &gauges.in_flight,
        &gauges.queued,
        &gauges.expired,
        &gauges.too_large,
        &gauges.dropped_oldest,
        &gauges.dropped_newest,
        &gauges.discarded,
    ];
    (read(&gauges.routed), parts.into_iter().map(read).sum())
}
