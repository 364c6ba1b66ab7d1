//! One account of memory: near its end what is new is refused, what frees memory is not, and all of it comes back.

use std::sync::atomic::Ordering;

use base::{Budget, Charge, Purpose};
use session::Settings;
use wire::{
    Binary, Connect, Delivery, MessageProperties, PacketId, PubAck, PubAckReason, Publish, PublishTopic, Qos,
    SubscribeProperties, SubscriptionOptions, TopicAlias, Version, Will,
};

use crate::world::{Disk, Peer, World, bytes, name, settings, utf8};

const MIB: usize = 1 << 20;

fn world(shards: usize) -> World {
    let settings = Settings { subscriptions_max: 1_000, will_bytes_max: 100_000, ..settings() };
    let settings = Settings { connect_packet_bytes_max: 100_000, ..settings };
    World::with_budget(shards, settings, Budget::new(MIB))
}

/// Somebody else holds nearly everything.
fn make_tight(world: &World) -> Charge {
    let rest = world.budget.tight_bytes() + 10_000 - world.budget.used_bytes();
    world.budget.charge(Purpose::Outputs, rest)
}

fn packet_id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

fn lasting(version: Version, client_id: &str) -> Connect<'_> {
    let mut connect = Connect::new(version, utf8(client_id));
    connect.clean_start = false;
    if version.is_5() {
        connect.properties.session_expiry_interval_secs = Some(1_000);
    }
    connect
}

fn knock(world: &mut World, shard: usize, connect: &Connect<'_>, version: Version) -> (Peer, Vec<String>) {
    let peer = world.accept(shard, version);
    world.send(peer, &(*connect).into());
    let answer = world.packets(peer);
    (peer, answer)
}

fn subscribe(world: &mut World, peer: Peer, filter: &str) -> Vec<String> {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(peer, filter, options, SubscribeProperties::default())
}

fn publish(world: &mut World, peer: Peer, topic: &str, payload: &[u8], retain: bool) -> Vec<String> {
    let delivery = Delivery::AtLeastOnce { packet_id: packet_id(9), dup: false };
    world.send(peer, &Publish { delivery, retain, ..Publish::new(name(topic), payload) }.into());
    world.packets(peer)
}

#[test]
fn a_connect_that_begins_something_new_is_refused() {
    let mut world = world(2);
    let (old, _) = knock(&mut world, 0, &lasting(Version::V5, "old"), Version::V5);
    world.hang_up(old);
    let tight = make_tight(&world);
    for (version, refusal) in [
        (Version::V5, "CONNACK Quota exceeded"),
        (Version::V3_1_1, "CONNACK Server unavailable"),
        (Version::V3_1, "CONNACK Server unavailable"),
    ] {
        let (peer, answer) = knock(&mut world, 1, &Connect::new(version, utf8("new")), version);
        assert!(answer[0].starts_with(refusal), "{version}: {answer:?}");
        assert!(world.socket(peer).closed);
    }
    assert_eq!(world.ledger().connects_refused_memory.load(Ordering::Relaxed), 3);
    let (old, answer) = knock(&mut world, 0, &lasting(Version::V5, "old"), Version::V5);
    assert!(answer[0].starts_with("CONNACK Success"), "who comes back takes what waits: {answer:?}");
    let (_, answer) = knock(&mut world, 1, &Connect::new(Version::V5, utf8("old")), Version::V5);
    assert!(answer[0].starts_with("CONNACK Success"), "who takes a place over needs none: {answer:?}");
    assert!(world.socket(old).closed);
    drop(tight);
    world.connect(0, Version::V5, "new");
}

#[test]
fn a_subscription_is_refused_and_its_end_is_not() {
    let mut world = world(1);
    let new = world.connect(0, Version::V5, "new");
    let old = world.connect(0, Version::V3_1_1, "old");
    for peer in [new, old] {
        subscribe(&mut world, peer, "a");
    }
    let tight = make_tight(&world);
    assert!(subscribe(&mut world, new, "b")[0].contains("Quota exceeded"));
    assert!(subscribe(&mut world, old, "b")[0].contains("Unspecified error"));
    assert!(subscribe(&mut world, new, "a")[0].contains("Granted QoS 1"), "it has that already");
    assert_eq!(world.total(|counters| counters.refused_subscriptions_memory.value()), 2);
    world.unsubscribe(new, "a");
    drop(tight);
    assert!(subscribe(&mut world, new, "b")[0].contains("Granted QoS 1"));
}

/// Subscriptions stay as long as their client is connected: they must never be all there is.
#[test]
fn subscriptions_of_one_client_leave_room_for_others() {
    let mut world = world(1);
    let many = world.connect(0, Version::V5, "many");
    let rest = world.budget.charge(Purpose::Outputs, world.budget.limit_bytes() / 4 * 3);
    let refused = (0..1_000).find(|number| {
        let filter = format!("{number}/{}", "x".repeat(500));
        subscribe(&mut world, many, &filter)[0].contains("Quota exceeded")
    });
    assert!((50..300).contains(&refused.expect("there is not as much memory")), "{refused:?}");
    let new = world.connect(0, Version::V5, "new");
    assert!(subscribe(&mut world, new, "a")[0].contains("Granted QoS 1"));
    drop(rest);
}

#[test]
fn messages_that_would_wait_are_refused_and_messages_sent_at_once_are_not() {
    let mut world = world(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let old_publisher = world.connect(0, Version::V3_1_1, "old publisher");
    let (away, _) = knock(&mut world, 0, &lasting(Version::V5, "away"), Version::V5);
    let (here, _) = knock(&mut world, 0, &lasting(Version::V5, "here"), Version::V5);
    let clean = world.connect(0, Version::V5, "clean");
    subscribe(&mut world, away, "away/#");
    subscribe(&mut world, here, "here/#");
    subscribe(&mut world, clean, "clean");
    world.hang_up(away);
    let tight = make_tight(&world);
    assert_eq!(publish(&mut world, publisher, "away/1", b"x", false), ["PUBACK id=9 Quota exceeded"]);
    assert_eq!(publish(&mut world, publisher, "here/1", b"x", false), ["PUBACK id=9 Success"]);
    assert_eq!(publish(&mut world, publisher, "clean", b"x", false), ["PUBACK id=9 Success"]);
    assert_eq!((world.packets(here).len(), world.packets(clean).len()), (1, 1));
    assert_eq!(world.ledger().publishes_refused_memory.load(Ordering::Relaxed), 1);
    // Before MQTT 5 nothing says no.
    assert!(publish(&mut world, old_publisher, "away/1", b"x", false).is_empty());
    world.wait(4_900);
    assert!(!world.socket(old_publisher).closed);
    world.wait(200);
    assert!(world.socket(old_publisher).closed);
    drop(tight);
    assert_eq!(publish(&mut world, publisher, "away/1", b"x", false), ["PUBACK id=9 Success"]);
    world.assert_account();
}

#[test]
fn a_new_topic_is_not_retained_and_an_old_one_is_replaced_and_cleared() {
    let mut world = world(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let reader = world.connect(0, Version::V5, "reader");
    subscribe(&mut world, reader, "#");
    publish(&mut world, publisher, "a", b"long", true);
    publish(&mut world, publisher, "b", b"long", true);
    world.packets(reader);
    let tight = make_tight(&world);
    assert_eq!(publish(&mut world, publisher, "c", b"long", true), ["PUBACK id=9 Quota exceeded"]);
    assert_eq!(publish(&mut world, publisher, "a", b"longer", true), ["PUBACK id=9 Quota exceeded"]);
    assert_eq!(world.packets(reader).len(), 0, "refused means that nobody gets it");
    assert_eq!(publish(&mut world, publisher, "a", b"new", true), ["PUBACK id=9 Success"]);
    assert_eq!(publish(&mut world, publisher, "b", b"", true), ["PUBACK id=9 Success"]);
    // Nobody can be told that a message of QoS 0 is not retained: it is given out, and counted.
    world.publish_retained(publisher, "d", "once");
    assert_eq!(world.packets(reader).len(), 3);
    assert_eq!(world.ledger().retained_messages.load(Ordering::Relaxed), 1);
    assert_eq!(world.ledger().retained_refused.load(Ordering::Relaxed), 1);
    drop(tight);
}

/// A million retained topics are too many; then the process goes on with those that it has.
#[test]
fn a_flood_of_retained_messages_ends_at_the_limit() {
    let mut world = world(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let mut stored = 0;
    for number in 0..1_000 {
        let topic = format!("flood/{number}");
        let answer = publish(&mut world, publisher, &topic, &[7; 4_096], true);
        stored += usize::from(answer[0].starts_with("PUBACK id=9 No matching subscribers"));
    }
    assert!((150..250).contains(&stored), "{stored} of 4 KiB each");
    assert!(!world.budget.is_full(), "{:?}", world.budget);
    for number in 0..stored {
        publish(&mut world, publisher, &format!("flood/{number}"), b"", true);
    }
    world.hang_up(publisher);
    assert_eq!(world.budget.used_bytes(), 0, "{:?}", world.budget);
}

#[test]
fn wills_are_on_the_account() {
    let mut world = world(1);
    let payload = vec![7; 60_000];
    let will = Will {
        topic: name("will"),
        payload: Binary::new(&payload).expect("short"),
        qos: Qos::AtMostOnce,
        retain: false,
        delay_interval_secs: Some(u32::MAX),
        properties: MessageProperties::default(),
    };
    let mut let_in = Vec::new();
    for number in 0..50 {
        let client_id = format!("client {number}");
        let mut connect = lasting(Version::V5, &client_id);
        connect.will = Some(will);
        let (peer, answer) = knock(&mut world, 0, &connect, Version::V5);
        if answer[0].starts_with("CONNACK Success") {
            let_in.push(client_id);
            world.hang_up(peer);
        } else {
            assert!(answer[0].starts_with("CONNACK Quota exceeded"), "{answer:?}");
        }
    }
    assert!((12..18).contains(&let_in.len()), "{} wills", let_in.len());
    for client_id in let_in {
        let (peer, _) = knock(&mut world, 0, &Connect::new(Version::V5, utf8(&client_id)), Version::V5);
        world.hang_up(peer);
    }
    assert_eq!(world.budget.used_bytes(), 0, "{:?}", world.budget);
}

/// Lasting sessions stay when their clients have left. They must never use all memory.
#[test]
fn those_who_are_away_leave_room_for_who_comes() {
    let mut world = world(1);
    let ids: Vec<String> = (0..1_000).map(|number| format!("client {number}")).collect();
    let mut let_in = 0;
    for client_id in &ids {
        let (peer, answer) = knock(&mut world, 0, &lasting(Version::V5, client_id), Version::V5);
        if answer[0].starts_with("CONNACK Quota exceeded") {
            break;
        }
        subscribe(&mut world, peer, client_id);
        world.hang_up(peer);
        let_in += 1;
    }
    assert!((100..1_000).contains(&let_in), "{let_in} sessions");
    let payload = vec![7; 60_000];
    for client_id in &ids[..let_in] {
        let mut again = lasting(Version::V5, client_id);
        again.will = Some(Will {
            topic: name("will"),
            payload: Binary::new(&payload).expect("short"),
            qos: Qos::AtMostOnce,
            retain: false,
            delay_interval_secs: Some(u32::MAX),
            properties: MessageProperties::default(),
        });
        let (_, answer) = knock(&mut world, 0, &again, Version::V5);
        assert!(answer[0].starts_with("CONNACK Quota exceeded"), "a larger will is new: {answer:?}");
    }
    let new = world.connect(0, Version::V5, "new");
    assert!(subscribe(&mut world, new, "a")[0].contains("Granted QoS 1"));
    let (_, answer) = knock(&mut world, 0, &lasting(Version::V5, &ids[0]), Version::V5);
    assert!(answer[0].starts_with("CONNACK Success"), "{answer:?}");
}

/// A queue may be the reason why memory is short: its client must be able to come and take it.
#[test]
fn a_client_that_comes_back_may_bring_a_will_no_longer_than_what_waits_for_it() {
    let mut world = world(1);
    let (peer, _) = knock(&mut world, 0, &lasting(Version::V5, "c"), Version::V5);
    subscribe(&mut world, peer, "a");
    world.hang_up(peer);
    let publisher = world.connect(0, Version::V5, "publisher");
    publish(&mut world, publisher, "a", &[7; 10_000], false);
    let _held = make_tight(&world);
    let long = vec![7; 20_000];
    for (payload, reason) in [(&long[..], "Quota exceeded"), (&long[..5_000], "Success")] {
        let mut again = lasting(Version::V5, "c");
        again.will = Some(Will {
            topic: name("will"),
            payload: Binary::new(payload).expect("short"),
            qos: Qos::AtMostOnce,
            retain: false,
            delay_interval_secs: None,
            properties: MessageProperties::default(),
        });
        let (_, answer) = knock(&mut world, 0, &again, Version::V5);
        assert!(answer[0].starts_with(&format!("CONNACK {reason}")), "{answer:?}");
    }
}

/// They are taken in over many turns. The rest of them is no packet that is not sent to its end.
#[test]
fn a_client_with_many_short_packets_is_not_ended_while_memory_is_short() {
    let mut world = world(1);
    let peer = world.connect(0, Version::V3_1_1, "peer");
    let _held = make_tight(&world);
    world.feed(peer, &b"\xc0\x00".repeat(30_000));
    assert_eq!(world.packets(peer), vec!["PINGRESP"; 30_000]);
}

#[test]
fn exchanges_of_qos_2_are_on_the_account() {
    let mut world = world(1);
    let peer = world.connect(0, Version::V3_1_1, "peer");
    let begin = |world: &mut World, number| {
        let delivery = Delivery::ExactlyOnce { packet_id: packet_id(number), dup: false };
        world.send(peer, &Publish { delivery, ..Publish::new(name("t"), b"x") }.into());
    };
    (1..=1_000).for_each(|number| begin(&mut world, number));
    assert!(world.budget.held_bytes(Purpose::Inbound) > 1_000 * 4);
    let tight = make_tight(&world);
    (1_001..=3_000).for_each(|number| begin(&mut world, number));
    assert!(world.socket(peer).closed);
    assert_eq!(world.total(|counters| counters.ended_memory.value()), 1);
    drop(tight);
    assert_eq!(world.budget.used_bytes(), 0, "{:?}", world.budget);
}

#[test]
fn topic_aliases_are_on_the_account() {
    let mut world = world(1);
    let topic = "a".repeat(60_000);
    let alias = |number| PublishTopic::NameWithAlias(name(&topic), TopicAlias::new(number).expect("not 0"));
    let peer = world.connect(0, Version::V5, "peer");
    world.send(peer, &Publish { topic: alias(1), ..Publish::new(name("t"), b"x") }.into());
    assert!(world.budget.held_bytes(Purpose::Inbound) > 60_000);
    world.send(peer, &Publish { topic: alias(1), ..Publish::new(name("t"), b"x") }.into());
    assert!(world.budget.held_bytes(Purpose::Inbound) < 61_000, "one took the place of the other");
    let tight = make_tight(&world);
    world.send(peer, &Publish { topic: alias(2), ..Publish::new(name("t"), b"x") }.into());
    assert!(world.packets(peer)[0].starts_with("DISCONNECT Quota exceeded"));
    assert_eq!(world.total(|counters| counters.ended_memory.value()), 1);
    drop(tight);
    assert_eq!(world.budget.used_bytes(), 0, "{:?}", world.budget);
}

#[test]
fn the_beginning_of_a_large_packet_is_not_kept() {
    let mut world = world(1);
    let peer = world.connect(0, Version::V5, "peer");
    let stranger = world.accept(0, Version::V5);
    let packet = bytes(&Publish::new(name("t"), &[7; 50_000]).into(), Version::V5);
    world.feed(peer, &packet[..20_000]);
    let tight = make_tight(&world);
    world.feed(peer, &packet[20_000..30_000]);
    assert!(world.packets(peer)[0].starts_with("DISCONNECT Quota exceeded"));
    assert!(world.socket(peer).closed);
    world.feed(stranger, &[&[0x10, 0xFF, 0x7F][..], &[0; 18_000]].concat());
    assert!(world.socket(stranger).closed && world.packets(stranger).is_empty());
    drop(tight);
}

/// The last sixteenth is for what had been admitted: what waits for a client is not waited for until it is used up.
#[test]
fn a_client_that_lets_messages_wait_is_ended_before_all_memory_is_used() {
    let mut world = World::with_budget(1, Settings { inflight_max: 1, ..settings() }, Budget::new(MIB));
    let publisher = world.connect(0, Version::V5, "publisher");
    let stuck = world.connect(0, Version::V5, "stuck");
    subscribe(&mut world, stuck, "t");
    for _ in 0..3 {
        publish(&mut world, publisher, "t", &[7; 10_000], false);
    }
    let tight = make_tight(&world);
    publish(&mut world, publisher, "t", b"one more", false);
    assert!(world.socket(stuck).closed && !world.budget.is_full(), "{:?}", world.budget);
    assert_eq!(world.total(|counters| counters.ended_memory.value()), 1);
    drop(tight);
    world.assert_account();
}

/// When all memory is used, no queue accepts a message, not even one that would leave at once.
#[test]
fn nothing_enters_a_queue_when_all_memory_is_used() {
    let mut world = world(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let (here, _) = knock(&mut world, 0, &lasting(Version::V5, "here"), Version::V5);
    subscribe(&mut world, here, "here/#");
    let tight = make_tight(&world);
    assert_eq!(publish(&mut world, publisher, "here/1", b"x", false), ["PUBACK id=9 Success"]);
    let rest = world.budget.charge(Purpose::Outputs, MIB + 1 - world.budget.used_bytes());
    assert_eq!(publish(&mut world, publisher, "here/1", b"x", false), ["PUBACK id=9 Quota exceeded"]);
    assert_eq!(world.packets(here).len(), 1);
    drop((tight, rest));
    assert_eq!(publish(&mut world, publisher, "here/1", b"x", false), ["PUBACK id=9 Success"]);
}

/// Exchanges of QoS 2 that a lasting session has open stay when its client has left: they must never be all there is.
#[test]
fn open_exchanges_of_those_who_are_away_leave_room_for_who_comes() {
    let mut world = world(1);
    let (peer, _) = knock(&mut world, 0, &lasting(Version::V3_1_1, "peer"), Version::V3_1_1);
    let kept = MIB / 16 * 14;
    let rest = world.budget.charge(Purpose::Messages, kept - 2_000 - world.budget.used_bytes());
    for number in 1..=5_000 {
        if world.socket(peer).closed {
            break;
        }
        let delivery = Delivery::ExactlyOnce { packet_id: packet_id(number), dup: false };
        world.send(peer, &Publish { delivery, ..Publish::new(name("t"), b"x") }.into());
    }
    world.wait(6_000);
    assert!(world.socket(peer).closed, "what was not stored is not acknowledged");
    let held = world.budget.held_bytes(Purpose::Inbound);
    assert!((100..4_000).contains(&held), "{held} bytes of open exchanges");
    assert!(!world.budget.is_tight());
    world.connect(0, Version::V5, "new");
    drop(rest);
}

/// A client that comes back begins its exchanges again, and has to stay for what waits for it.
#[test]
fn a_few_exchanges_of_qos_2_are_begun_while_memory_is_short() {
    let mut world = world(1);
    let peer = world.connect(0, Version::V3_1_1, "peer");
    let tight = make_tight(&world);
    for number in 1..=20 {
        let delivery = Delivery::ExactlyOnce { packet_id: packet_id(number), dup: true };
        world.send(peer, &Publish { delivery, ..Publish::new(name("t"), b"x") }.into());
    }
    assert_eq!(world.packets(peer).len(), 20, "it gets a PUBREC for each");
    let _rest = world.budget.charge(Purpose::Outputs, MIB + 1 - world.budget.used_bytes());
    for number in 21..=40 {
        let delivery = Delivery::ExactlyOnce { packet_id: packet_id(number), dup: true };
        world.send(peer, &Publish { delivery, ..Publish::new(name("t"), b"x") }.into());
    }
    assert!(world.socket(peer).closed, "all memory is used");
    drop(tight);
}

/// Before MQTT 5 a message that is refused gets no answer. The client's acknowledgements come behind the messages that
/// it sends again, and may be what frees the memory.
#[test]
fn a_client_whose_messages_are_refused_is_read_on_while_memory_is_short() {
    let settings = Settings { receive_max: 2, ..settings() };
    for versions in [Version::V3_1, Version::V3_1_1] {
        let mut world = World::with_budget(1, settings.clone(), Budget::new(MIB));
        let publisher = world.connect(0, Version::V5, "publisher");
        let (away, _) = knock(&mut world, 0, &lasting(Version::V5, "away"), Version::V5);
        subscribe(&mut world, away, "away");
        world.hang_up(away);
        let (peer, _) = knock(&mut world, 0, &lasting(versions, "peer"), versions);
        subscribe(&mut world, peer, "t");
        publish(&mut world, publisher, "t", &[7; 10_000], false);
        assert_eq!(world.packets(peer).len(), 1);
        let _tight = make_tight(&world);
        let mut sent = Vec::new();
        for number in 1..=10 {
            let delivery = match number % 2 {
                0 => Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false },
                _ => Delivery::ExactlyOnce { packet_id: packet_id(number), dup: false },
            };
            let again = Publish { delivery, ..Publish::new(name("away"), b"refused") };
            sent.extend(bytes(&again.into(), versions));
        }
        sent.extend(bytes(&PubAck::new(packet_id(1), PubAckReason::Success).into(), versions));
        world.feed(peer, &sent);
        assert_eq!(world.ledger().in_flight.load(Ordering::Relaxed), 0, "PUBACK was read");
        assert!(world.packets(peer).is_empty() && !world.socket(peer).closed);
        world.wait(6_000);
        assert!(world.socket(peer).closed, "it has to hear that its messages were not stored");
        assert_eq!(world.ledger().queued.load(Ordering::Relaxed), 0, "none of them was");
        world.assert_account();
    }
}

/// The second message has room, because its subscriber is there. Before MQTT 5 the client sends both again, in order. The
/// second one needs the ledger if a lasting session gets it, or the first one may not be answered yet.
#[test]
fn what_comes_behind_a_refused_message_is_not_delivered_before_it_comes_again() {
    let versions = [Version::V3_1, Version::V3_1_1, Version::V5];
    for (version, is_answered) in versions.into_iter().flat_map(|version| [(version, true), (version, false)])
    {
        let mut world = World::with_budget(1, settings(), Budget::new(MIB));
        let (away, _) = knock(&mut world, 0, &lasting(Version::V5, "away"), Version::V5);
        subscribe(&mut world, away, "away");
        world.hang_up(away);
        let here = if is_answered {
            knock(&mut world, 0, &lasting(Version::V5, "here"), Version::V5).0
        } else {
            world.connect(0, Version::V5, "here")
        };
        subscribe(&mut world, here, "here");
        let publisher = world.connect(0, version, "publisher");
        if !is_answered {
            // Its record is not durable, and the answers to others wait behind it.
            world.disk = Disk::Slow;
            let other = world.connect(0, Version::V5, "other");
            publish(&mut world, other, "away", b"x", false);
        }
        let _tight = make_tight(&world);
        let message = |topic, number| {
            let delivery = Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false };
            bytes(&Publish { delivery, ..Publish::new(name(topic), b"x") }.into(), version)
        };
        if is_answered {
            world.feed(publisher, &[message("away", 1), message("here", 2)].concat());
        } else {
            world.feed(publisher, &message("away", 1));
            world.feed(publisher, &message("here", 2));
        }
        let delivered = usize::from(version.is_5());
        assert_eq!(world.packets(here).len(), delivered, "{version:?}, answered: {is_answered}");
        let answers = world.packets(publisher).len();
        assert_eq!(answers, if version.is_5() && is_answered { 2 } else { 0 }, "{version:?}");
        world.assert_account();
    }
}

/// The client that holds the memory is ended: not its publishers, nor other subscribers of the same topic.
#[test]
fn a_client_that_lets_messages_wait_is_ended_when_memory_is_short() {
    for shards in [1, 2] {
        let mut world =
            World::with_budget(shards, Settings { inflight_max: 10, ..settings() }, Budget::new(MIB));
        let publisher = world.connect(0, Version::V5, "publisher");
        let stuck = world.connect(shards - 1, Version::V5, "stuck");
        let well = world.connect(0, Version::V5, "well");
        for peer in [stuck, well] {
            subscribe(&mut world, peer, "t");
        }
        let mut received = 0_u16;
        for _ in 0..100 {
            publish(&mut world, publisher, "t", &[7; 20_000], false);
            for _ in world.packets(well) {
                received += 1;
                world.send(well, &PubAck::new(packet_id(received), PubAckReason::Success).into());
            }
            world.wait(200);
        }
        assert_eq!(received, 100);
        assert!(world.socket(stuck).closed && !world.socket(well).closed && !world.socket(publisher).closed);
        assert_eq!(world.total(|counters| counters.ended_memory.value()), 1);
        world.assert_account();
        for peer in [publisher, well] {
            world.hang_up(peer);
        }
        assert_eq!(world.budget.used_bytes(), 0, "{:?}", world.budget);
    }
}

#[test]
fn when_everybody_has_left_nothing_is_held() {
    for shards in [1, 2] {
        let mut world = World::with_budget(shards, settings(), Budget::default());
        let publisher = world.connect(0, Version::V5, "publisher");
        let (member, _) = knock(&mut world, shards - 1, &lasting(Version::V5, "member"), Version::V5);
        let clean = world.connect(shards - 1, Version::V3_1_1, "clean");
        for (peer, filter) in [(member, "$share/group/a"), (member, "b"), (clean, "#"), (clean, "b")] {
            subscribe(&mut world, peer, filter);
        }
        world.hang_up(member);
        for topic in ["a", "b", "c"] {
            (0..20).for_each(|_| drop(publish(&mut world, publisher, topic, b"some", false)));
        }
        publish(&mut world, publisher, "b", b"kept", true);
        assert!(
            world.budget.held_bytes(Purpose::Messages) > 0 && world.budget.held_bytes(Purpose::Routes) > 0
        );
        publish(&mut world, publisher, "b", b"", true);
        let (member, _) = knock(&mut world, 0, &Connect::new(Version::V5, utf8("member")), Version::V5);
        [publisher, clean, member].into_iter().for_each(|peer| world.hang_up(peer));
        assert_eq!(world.budget.used_bytes(), 0, "{:?}", world.budget);
    }
}

/// Memory is not short.
#[test]
fn a_message_over_the_limit_of_what_is_retained_is_counted_there_at_every_qos() {
    let limit = ledger::Settings { retained_bytes_max: 500, ..ledger::Settings::default() };
    let mut world = World::with_ledger(1, limit);
    let publisher = world.connect(0, Version::V5, "p");
    let payload = [b'x'; 1_000];
    for (refused, delivery) in [
        (1, wire::Delivery::AtMostOnce),
        (2, wire::Delivery::AtLeastOnce { dup: false, packet_id: PacketId::MIN }),
    ] {
        let publish = Publish { retain: true, delivery, ..Publish::new(name("t"), &payload) };
        world.send(publisher, &publish.into());
        let gauges = world.ledger();
        let counts = [&gauges.retained_refused, &gauges.publishes_refused_memory];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [refused, 0]);
    }
}
