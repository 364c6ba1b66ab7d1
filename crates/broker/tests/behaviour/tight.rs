//! Lack of room, and clients that are not fully connected: nothing is lost, and nothing waits for ever.

use session::Settings;
use wire::{
    Connect, Delivery, PubRel, PubRelReason, Publish, Qos, SubscribeProperties, SubscriptionOptions, Version,
};

use crate::exchanges::{id, once_at_least};
use crate::world::{HIGH_WATER_BYTES, Peer, World, bytes, name, settings, utf8};

const LONG: &str = "a/long/topic/name";

fn lasting(version: Version, client_id: &str) -> Connect<'_> {
    let mut connect = Connect::new(version, utf8(client_id));
    connect.clean_start = false;
    if version.is_5() {
        connect.properties.session_expiry_interval_secs = Some(1_000);
        connect.properties.topic_alias_maximum = Some(5);
    }
    connect
}

fn come(world: &mut World, shard: usize, version: Version, client_id: &str) -> Peer {
    let peer = world.accept(shard, version);
    world.send(peer, &lasting(version, client_id).into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    peer
}

fn subscribe(world: &mut World, peer: Peer, filter: &str, qos: Qos) -> Vec<String> {
    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    world.subscribe_with(peer, filter, options, SubscribeProperties::default())
}

fn publish(world: &mut World, peer: Peer, topic: &str, payload: &str, delivery: Delivery) -> Vec<String> {
    world.send(peer, &Publish { delivery, ..Publish::new(name(topic), payload.as_bytes()) }.into());
    world.packets(peer)
}

#[test]
fn nothing_is_sent_before_connack_to_a_session_that_comes_back() {
    let mut world = World::new(2);
    let first = come(&mut world, 0, Version::V5, "lasting");
    subscribe(&mut world, first, "a", Qos::AtLeastOnce);
    world.hang_up(first);
    let publisher = world.connect(1, Version::V5, "publisher");
    let second = world.accept(0, Version::V5);
    world.feed_only(second, &bytes(&lasting(Version::V5, "lasting").into(), Version::V5));
    world.carry_commands_and(|world| {
        world.feed_only(publisher, &bytes(&Publish::new(name("a"), b"early").into(), Version::V5));
        world.carry_mail();
    });
    world.settle();
    assert!(world.packets(second)[0].starts_with("CONNACK"));
    world.assert_account();
}

#[test]
fn queued_messages_wait_and_keep_their_order_while_the_process_is_full() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receiver = come(&mut world, 0, Version::V5, "lasting");
    subscribe(&mut world, receiver, LONG, Qos::AtLeastOnce);
    publish(&mut world, publisher, LONG, "1", once_at_least(1));
    world.outside[0].full = true;
    publish(&mut world, publisher, LONG, "2", once_at_least(1));
    world.outside[0].full = false;
    publish(&mut world, publisher, LONG, "3", once_at_least(1));
    world.wait(1_000);
    let got = world.packets(receiver);
    let payloads: Vec<&str> = got.iter().filter_map(|packet| packet.split('"').nth_back(1)).collect();
    assert_eq!(payloads, ["1", "2", "3"], "{got:?}");
    // An alias is said before it is used.
    let first_alias = got.iter().position(|packet| packet.contains("topic-alias"));
    assert!(first_alias.is_none_or(|first| got[first].contains(LONG)), "{got:?}");
}

#[test]
fn messages_acknowledged_while_the_process_was_full_are_sent_later() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let receiver = world.connect(0, Version::V5, "receiver");
    subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
    world.outside[0].full = true;
    assert_eq!(publish(&mut world, publisher, "a", "x", once_at_least(1)), ["PUBACK id=1 Success"]);
    world.outside[0].full = false;
    world.wait(1_000);
    assert_eq!(world.packets(receiver), [r#"PUBLISH q1 id=1 "a" 1 B "x""#]);
    world.assert_account();
}

/// Nothing waits for the receiver: what waits for others takes neither its time nor its messages.
#[test]
fn a_message_that_is_stored_does_not_wait_because_the_outputs_of_others_are_full() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let [reading, stuck] = ["reading", "stuck"].map(|client_id| {
        let receiver = world.connect(0, Version::V5, client_id);
        subscribe(&mut world, receiver, "a", Qos::AtLeastOnce);
        receiver
    });
    world.socket(stuck).stuck = true;
    publish(&mut world, publisher, "a", "before", once_at_least(1));
    world.packets(reading);
    world.outside[0].full = true;
    world.outside[0].has_memory = true;
    let sent = world.socket(stuck).sent.len();
    publish(&mut world, publisher, "a", "x", once_at_least(1));
    assert_eq!(world.packets(reading), [r#"PUBLISH q1 id=2 "a" 1 B "x""#]);
    assert_eq!(world.socket(stuck).sent.len(), sent, "something waits for it already");
}

#[test]
fn retained_messages_come_when_the_process_is_not_full_any_more() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    world.publish_retained(publisher, "a", "kept");
    let receiver = world.connect(0, Version::V5, "receiver");
    world.outside[0].full = true;
    subscribe(&mut world, receiver, "a", Qos::AtMostOnce);
    world.outside[0].full = false;
    world.wait(1_000);
    assert_eq!(world.packets(receiver).len(), 1);
}

#[test]
fn an_old_client_may_end_an_exchange_whose_topic_was_refused() {
    let mut world = World::new(1);
    let peer = come(&mut world, 0, Version::V3_1_1, "lasting");
    let delivery = Delivery::ExactlyOnce { packet_id: id(1), dup: false };
    assert_eq!(publish(&mut world, peer, "$SYS/x", "1", delivery), ["PUBREC id=1 Success"]);
    world.send(peer, &PubRel::new(id(1), PubRelReason::Success).into());
    assert_eq!(world.packets(peer), ["PUBCOMP id=1 Success"]);
    assert!(!world.socket(peer).closed);
}

#[test]
fn a_member_of_a_group_that_is_ended_for_what_waits_leaves_a_true_account() {
    let mut world = World::with(1, Settings { waiting_messages_max: 3, ..settings() });
    let publisher = world.connect(0, Version::V5, "publisher");
    let member = world.connect(0, Version::V5, "member");
    subscribe(&mut world, member, "$share/group/a", Qos::AtLeastOnce);
    world.socket(member).stuck = true;
    for _ in 0..30 {
        publish(&mut world, publisher, "a", &"x".repeat(200), once_at_least(1));
    }
    world.assert_account();
    assert_eq!(world.total(|counters| counters.waiting.value()), 0);
}

#[test]
fn a_publisher_is_not_read_while_the_only_member_of_a_group_is_full() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, Version::V5, "publisher");
        let member = world.connect(shards - 1, Version::V5, "member");
        subscribe(&mut world, member, "$share/group/a", Qos::AtMostOnce);
        world.socket(member).stuck = true;
        for _ in 0..20 {
            world.publish(publisher, "a", &"x".repeat(200));
        }
        assert!(world.socket(publisher).paused);
        while !world.drain(member).is_empty() {}
        assert!(!world.socket(publisher).paused);
        world.assert_account();
    }
}

/// The ledger chooses the member for a retained message.
#[test]
fn a_publisher_of_retained_messages_is_not_read_while_the_only_member_of_a_group_is_full() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, Version::V5, "publisher");
        let member = world.connect(shards - 1, Version::V5, "member");
        subscribe(&mut world, member, "$share/group/a", Qos::AtMostOnce);
        world.socket(member).stuck = true;
        for _ in 0..20 {
            world.publish_retained(publisher, "a", &"x".repeat(200));
        }
        assert!(world.socket(publisher).paused, "{shards} shards");
        let waiting = world.socket(member).sent.len();
        assert!(waiting < 2 * HIGH_WATER_BYTES, "{waiting} bytes, {shards} shards");
        let mut received = 0;
        while !world.socket(member).sent.is_empty() {
            received += world.drain(member).len();
        }
        assert_eq!(received, 20);
        assert!(!world.socket(publisher).paused);
        world.assert_account();
    }
}

/// Messages of QoS 1 wait in the queue of the group, and not in the output of a member that gets them at QoS 0.
#[test]
fn messages_of_qos_1_wait_in_a_group_while_the_output_of_its_only_member_is_full() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, Version::V5, "publisher");
        let member = world.connect(shards - 1, Version::V5, "member");
        subscribe(&mut world, member, "$share/group/a", Qos::AtMostOnce);
        world.socket(member).stuck = true;
        for _ in 0..20 {
            let answer = publish(&mut world, publisher, "a", &"x".repeat(200), once_at_least(1));
            assert_eq!(answer, ["PUBACK id=1 Success"]);
        }
        let waiting = world.socket(member).sent.len();
        assert!(waiting < 2 * HIGH_WATER_BYTES, "{waiting} bytes, {shards} shards");
        let mut received = 0;
        while !world.socket(member).sent.is_empty() {
            received += world.drain(member).len();
            world.wait(50);
        }
        assert_eq!(received, 20);
        world.assert_account();
    }
}

#[test]
fn a_full_member_of_a_group_leaves_its_turn_to_others() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    let [stuck, well] = ["stuck", "well"].map(|client_id| {
        let member = world.connect(0, Version::V5, client_id);
        subscribe(&mut world, member, "$share/group/a", Qos::AtMostOnce);
        member
    });
    world.socket(stuck).stuck = true;
    for _ in 0..50 {
        world.publish(publisher, "a", &"x".repeat(200));
    }
    assert!(!world.socket(publisher).paused || world.socket(stuck).sent.len() < 2_000);
    assert!(world.packets(well).len() > 40);
}

#[test]
fn a_retained_message_without_subscribers_is_counted_as_any_other() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "publisher");
    world.publish_retained(publisher, "a", "x");
    assert_eq!(world.total(|counters| counters.no_subscribers.value()), 1);
}

#[test]
fn more_retained_messages_than_may_wait_do_not_end_who_asks_for_them() {
    let settings = Settings { waiting_messages_max: 10, inflight_max_3: 5, ..settings() };
    let mut world = World::with(1, settings);
    let publisher = world.connect(0, Version::V5, "publisher");
    for number in 0..100 {
        let topic = format!("a/{number}");
        let publish =
            Publish { retain: true, delivery: once_at_least(1), ..Publish::new(name(&topic), b"x") };
        world.send(publisher, &publish.into());
    }
    let receiver = world.connect(0, Version::V3_1_1, "receiver");
    let mut got = subscribe(&mut world, receiver, "a/#", Qos::AtLeastOnce).len() - 1;
    for number in 1..=100 {
        world.send(receiver, &wire::PubAck::new(id(number), wire::PubAckReason::Success).into());
        got += world.packets(receiver).len();
    }
    assert_eq!(got, 100);
    assert!(!world.socket(receiver).closed);
    world.assert_account();
}
