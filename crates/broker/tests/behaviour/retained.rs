//! Retained messages: what a subscription brings, and that everybody agrees on the winner.

use std::num::{NonZeroU16, NonZeroU32};

use base::{AskFates, FateBounds};
use broker::{Answer, Question};
use wire::{
    Connect, Delivery, PacketId, Publish, Qos, RetainHandling, SubscribeProperties, SubscriptionOptions,
    Version,
};

use crate::world::{Peer, World, bytes, name, utf8};

fn with_handling(retain_handling: RetainHandling) -> SubscriptionOptions {
    SubscriptionOptions { retain_handling, ..SubscriptionOptions::default() }
}

fn subscribe(world: &mut World, peer: Peer, filter: &str, handling: RetainHandling) -> Vec<String> {
    let mut packets =
        world.subscribe_with(peer, filter, with_handling(handling), SubscribeProperties::default());
    assert!(packets.remove(0).starts_with("SUBACK"), "SUBACK comes first");
    packets
}

#[test]
fn a_subscription_brings_the_last_value_of_each_matching_topic() {
    for (shards, version) in [(1, Version::V3_1_1), (2, Version::V5), (2, Version::V3_1)] {
        let mut world = World::new(shards);
        let publisher = world.connect(0, version, "p");
        world.publish_retained(publisher, "a/1", "old");
        world.publish_retained(publisher, "a/1", "new");
        world.publish_retained(publisher, "a/2", "two");
        world.publish_retained(publisher, "b/1", "other");
        world.publish_retained(publisher, "a/3", "three");
        world.publish_retained(publisher, "a/3", "");
        let subscriber = world.connect(shards - 1, version, "s");
        let packets = subscribe(&mut world, subscriber, "a/+", RetainHandling::Send);
        assert_eq!(
            packets,
            ["PUBLISH q0 retain \"a/1\" 3 B \"new\"", "PUBLISH q0 retain \"a/2\" 3 B \"two\""]
        );
    }
}

/// As any other message that waits for its client, or never will.
#[test]
fn a_retained_message_behind_the_window_or_too_large_for_its_client_has_a_record() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "p");
    let subscriber = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("s"));
    connect.properties.receive_maximum = NonZeroU16::new(1);
    connect.properties.maximum_packet_bytes = NonZeroU32::new(100);
    world.send(subscriber, &connect.into());
    for (topic, length) in [("a/1", 1), ("a/2", 1), ("a/3", 200)] {
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        let payload = vec![b'x'; length];
        world.send(
            publisher,
            &Publish { delivery, retain: true, ..Publish::new(name(topic), &payload) }.into(),
        );
    }
    let ask = |world: &mut World, ask| {
        let answer = world.shards[0].ask(Question::Fates(ask), world.now, &mut world.outside[0]);
        let Answer::Fates(list) = answer else { panic!("it is asked for fates") };
        list.records
    };
    let bounds = FateBounds { messages: 9, bytes: 1 << 20 };
    ask(&mut world, AskFates::Begin { client_id: "s".into(), for_ms: 1_000, bounds });
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(subscriber, "a/+", options, SubscribeProperties::default());
    let records = ask(&mut world, AskFates::Read { client_id: "s".into() });
    let mut fates: Vec<&str> = records.iter().map(|record| record.fate.word()).collect();
    fates.sort_unstable();
    assert_eq!(fates, ["sent", "too_large", "waits"]);
    world.assert_account();
}

#[test]
fn retain_handling_decides_whether_it_does() {
    let mut world = World::new(1);
    let peer = world.connect(0, Version::V5, "p");
    world.publish_retained(peer, "t", "x");
    assert_eq!(subscribe(&mut world, peer, "t", RetainHandling::DoNotSend).len(), 0);
    assert_eq!(subscribe(&mut world, peer, "t", RetainHandling::SendIfNew).len(), 0, "it is not new");
    assert_eq!(subscribe(&mut world, peer, "t", RetainHandling::Send).len(), 1);
    assert_eq!(subscribe(&mut world, peer, "+", RetainHandling::SendIfNew).len(), 1);
}

#[test]
fn established_subscriptions_get_retain_0_unless_they_ask_for_it_as_published() {
    let mut world = World::new(1);
    let plain = world.connect(0, Version::V3_1_1, "plain");
    world.subscribe(plain, "t");
    let asking = world.connect(0, Version::V5, "asking");
    let options = SubscriptionOptions { retain_as_published: true, ..SubscriptionOptions::default() };
    world.subscribe_with(asking, "t", options, SubscribeProperties::default());
    let publisher = world.connect(0, Version::V5, "p");
    world.publish_retained(publisher, "t", "x");
    assert_eq!(world.packets(plain), ["PUBLISH q0 \"t\" 1 B \"x\""]);
    assert_eq!(world.packets(asking), ["PUBLISH q0 retain \"t\" 1 B \"x\""]);
}

#[test]
fn a_retained_message_and_the_next_one_without_the_flag_keep_their_order() {
    let mut world = World::new(2);
    let subscriber = world.connect(1, Version::V3_1_1, "s");
    world.subscribe(subscriber, "#");
    let publisher = world.connect(0, Version::V3_1_1, "p");
    let packet = |retain, payload: &[u8]| {
        let publish = wire::Publish { retain, ..wire::Publish::new(name("t"), payload) };
        bytes(&publish.into(), Version::V3_1_1)
    };
    // The second time shows that no more was noted as decided than was.
    for _ in 0..2 {
        // Both in one turn, and the shard's mail is carried before the ledger is asked.
        world.feed_only(publisher, &[packet(true, b"1"), packet(false, b"2")].concat());
        world.carry_mail();
        world.settle();
        world.publish(publisher, "t", "3");
        let payloads: Vec<String> =
            world.packets(subscriber).iter().map(|p| p[p.len() - 2..].to_owned()).collect();
        assert_eq!(payloads, ["1\"", "2\"", "3\""]);
    }
}

/// The route of a topic is looked up again behind a message to another topic, and behind a change of subscriptions.
#[test]
fn a_message_with_a_new_route_does_not_pass_the_one_before_that_is_undecided() {
    for is_other_topic in [true, false] {
        let mut world = World::new(2);
        let subscriber = world.connect(1, Version::V3_1_1, "s");
        world.subscribe(subscriber, "t");
        let publisher = world.connect(0, Version::V3_1_1, "p");
        let packet = |topic, retain, payload: &[u8]| {
            let publish = wire::Publish { retain, ..wire::Publish::new(name(topic), payload) };
            bytes(&publish.into(), Version::V3_1_1)
        };
        world.feed_only(publisher, &packet("t", true, b"1"));
        if is_other_topic {
            world.feed_only(publisher, &packet("u", false, b"x"));
        } else {
            world.index.touch([topic::filter!("t")]);
        }
        world.feed_only(publisher, &packet("t", false, b"2"));
        world.carry_mail();
        world.settle();
        let expected = ["PUBLISH q0 \"t\" 1 B \"1\"", "PUBLISH q0 \"t\" 1 B \"2\""];
        assert_eq!(world.packets(subscriber), expected, "another topic: {is_other_topic}");
    }
}

#[test]
fn subscribers_and_the_store_agree_on_the_winner_of_two_publishers() {
    for first in [0, 1] {
        let mut world = World::new(2);
        let publishers = [world.connect(0, Version::V5, "p0"), world.connect(1, Version::V5, "p1")];
        let watchers = [world.connect(0, Version::V5, "w0"), world.connect(1, Version::V5, "w1")];
        watchers.iter().for_each(|watcher| drop(world.subscribe(*watcher, "t")));
        for number in [first, 1 - first] {
            let payload = [b'0' + u8::try_from(number).expect("0 or 1")];
            let publish = wire::Publish { retain: true, ..wire::Publish::new(name("t"), &payload) };
            world.feed_only(publishers[number], &bytes(&publish.into(), Version::V5));
        }
        world.settle();
        let seen = watchers.map(|watcher| world.packets(watcher));
        assert_eq!(seen[0], seen[1], "both saw them in one order");
        let late = world.connect(0, Version::V5, "late");
        let value = &subscribe(&mut world, late, "t", RetainHandling::Send)[0];
        let last = seen[0].last().expect("two messages");
        assert_eq!(value.replace(" retain", ""), *last);
    }
}

#[test]
fn a_new_subscription_gets_a_value_once_however_the_answers_cross() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "p");
    world.publish_retained(publisher, "t", "1");
    let subscriber = world.connect(1, Version::V5, "s");
    // The ledger hears of the new value after the subscription is written, and before it hears of that.
    subscribe_unheard(&mut world, subscriber, wire::Qos::AtMostOnce);
    let publish = wire::Publish { retain: true, ..wire::Publish::new(name("t"), b"2") };
    world.feed_only(publisher, &bytes(&publish.into(), Version::V5));
    world.settle();
    let packets = world.packets(subscriber);
    assert_eq!(packets[1..], ["PUBLISH q0 retain \"t\" 1 B \"2\""], "{packets:?}");
}

#[test]
fn answers_to_a_filter_that_was_taken_back_are_not_those_of_the_next_one() {
    // All in one read: the ledger's answers to the first come when the second has been asked for.
    for packets in [
        &[
            &b"\x82\x06\x00\x01\x00\x01a\x00"[..],
            b"\xA2\x05\x00\x02\x00\x01a",
            b"\x82\x06\x00\x03\x00\x01b\x00",
        ][..],
        &[b"\x82\x0E\x00\x01\x00\x01b\x00\x00\x01b\x00\x00\x01b\x00"],
    ] {
        let mut world = World::new(1);
        let publisher = world.connect(0, Version::V5, "p");
        world.publish_retained(publisher, "a", "1");
        world.publish_retained(publisher, "b", "2");
        let subscriber = world.connect(0, Version::V3_1_1, "s");
        world.feed_only(subscriber, &packets.concat());
        world.settle();
        let retained = world.packets(subscriber).into_iter().filter(|packet| packet.starts_with("PUBLISH"));
        assert_eq!(retained.collect::<Vec<_>>(), ["PUBLISH q0 retain \"b\" 1 B \"2\""]);
    }
}

#[test]
fn many_retained_messages_come_at_the_pace_of_the_reader() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V3_1_1, "p");
    let payload = "x".repeat(1_000);
    for number in 0..500 {
        world.publish_retained(publisher, &format!("t/{number:03}"), &payload);
    }
    let subscriber = world.connect(0, Version::V3_1_1, "s");
    world.socket(subscriber).stuck = true;
    let mut received = world.subscribe(subscriber, "#");
    received.remove(0);
    assert!(received.len() < 150, "only one step has come: {}", received.len());
    while received.len() < 500 {
        world.drain(subscriber);
        let more = world.packets(subscriber);
        assert!(!more.is_empty(), "the walk goes on");
        received.extend(more);
    }
    received.sort_unstable();
    received.dedup();
    assert_eq!(received.len(), 500);
    assert!(world.drain(subscriber).is_empty());
}

#[test]
fn unsubscribing_ends_what_would_still_have_come() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V3_1_1, "p");
    let payload = "x".repeat(1_000);
    for number in 0..200 {
        world.publish_retained(publisher, &format!("t/{number}"), &payload);
    }
    let subscriber = world.connect(0, Version::V5, "s");
    world.socket(subscriber).stuck = true;
    world.subscribe(subscriber, "#");
    world.feed(subscriber, b"\xA2\x06\x00\x05\x00\x00\x01#");
    world.socket(subscriber).sent.clear();
    world.drain(subscriber);
    let rest = world.packets(subscriber);
    assert!(rest.is_empty(), "{} messages", rest.len());
}

#[test]
fn no_local_holds_for_retained_messages_too() {
    let mut world = World::new(1);
    let me = world.connect(0, Version::V5, "me");
    let other = world.connect(0, Version::V5, "other");
    world.publish_retained(me, "t/mine", "x");
    world.publish_retained(other, "t/other", "x");
    let options = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    let packets = world.subscribe_with(me, "t/+", options, SubscribeProperties::default());
    assert_eq!(packets[1..], ["PUBLISH q0 retain \"t/other\" 1 B \"x\""]);
}

#[test]
fn many_subscriptions_at_once_bring_their_messages_one_step_at_a_time() {
    let mut world = World::with(1, session::Settings { subscriptions_max: 200, ..crate::world::settings() });
    let publisher = world.connect(0, Version::V3_1_1, "p");
    let payload = "x".repeat(1_000);
    for number in 0..200 {
        world.publish_retained(publisher, &format!("t/{number}"), &payload);
    }
    let subscriber = world.connect(0, Version::V3_1_1, "s");
    world.socket(subscriber).stuck = true;
    let filters: Vec<String> = (0..10).map(|number| format!("t/+{}", "/#".repeat(number % 2))).collect();
    let mut received = 0;
    for filter in &filters {
        world.subscribe(subscriber, filter);
        let waiting = world.socket(subscriber).sent.len();
        assert!(waiting < 100_000, "{waiting} bytes wait");
    }
    loop {
        world.drain(subscriber);
        match world.packets(subscriber).len() {
            0 => break,
            count => received += count,
        }
    }
    assert!(received > 200, "{received}");
}

/// SUBSCRIBE to `t`, of which the ledger has not heard when it hears of what is published after it.
fn subscribe_unheard(world: &mut World, subscriber: Peer, qos: wire::Qos) {
    let subscription = wire::Subscription::with_qos(topic::filter!("t"), qos);
    let subscribe = wire::Subscribe {
        packet_id: wire::PacketId::MIN,
        properties: SubscribeProperties::default(),
        subscriptions: wire::OneOrMore::one(&subscription),
    };
    world.feed_only(subscriber, &bytes(&subscribe.into(), Version::V5));
}

#[test]
fn retained_messages_of_a_replaced_subscription_follow_the_new_options() {
    let mut world = World::new(1);
    let publisher = world.connect(0, Version::V5, "p");
    world.publish_retained(publisher, "t", "1");
    let subscriber = world.connect(0, Version::V5, "s");
    // Both in one read: the cursor of the first is opened when there is the second.
    let numbered = b"\x82\x09\x00\x01\x02\x0b\x07\x00\x01t\x00";
    let do_not_send = b"\x82\x07\x00\x02\x00\x00\x01t\x20";
    world.feed(subscriber, &[&numbered[..], do_not_send].concat());
    let packets = world.packets(subscriber);
    assert_eq!(packets[2..], ["PUBLISH q0 retain \"t\" 1 B \"1\""], "{packets:?}");
}

#[test]
fn an_acknowledged_value_that_another_replaces_at_once_is_not_left_out() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "p");
    let subscriber = world.connect(1, Version::V5, "s");
    subscribe_unheard(&mut world, subscriber, wire::Qos::AtLeastOnce);
    for (number, payload) in [(1, b"1"), (2, b"2")] {
        let packet_id = wire::PacketId::new(number).expect("not 0");
        let delivery = wire::Delivery::AtLeastOnce { dup: false, packet_id };
        let publish = wire::Publish { retain: true, delivery, ..wire::Publish::new(name("t"), payload) };
        world.feed_only(publisher, &bytes(&publish.into(), Version::V5));
    }
    world.settle();
    let packets = world.packets(subscriber);
    // Each of them once, and in their order.
    assert_eq!(
        packets[1..],
        ["PUBLISH q1 id=1 \"t\" 1 B \"1\"", "PUBLISH q1 id=2 \"t\" 1 B \"2\""],
        "{packets:?}"
    );
}

#[test]
fn a_live_copy_of_what_is_not_kept_is_not_left_out() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "p");
    let subscriber = world.connect(1, Version::V5, "s");
    subscribe_unheard(&mut world, subscriber, wire::Qos::AtMostOnce);
    // An empty payload clears: there is nothing that could come later.
    let publish = wire::Publish { retain: true, ..wire::Publish::new(name("t"), b"") };
    world.feed_only(publisher, &bytes(&publish.into(), Version::V5));
    world.settle();
    let packets = world.packets(subscriber);
    assert_eq!(packets[1..], ["PUBLISH q0 \"t\" 0 B"], "{packets:?}");
}

/// SUBSCRIBE to two filters, of which the ledger has not heard. Both match the topic `t`.
fn subscribe_twice_unheard(world: &mut World, subscriber: Peer, options: [SubscriptionOptions; 2]) {
    let [first, second] = options;
    let all = [(topic::filter!("+"), first), (topic::filter!("t"), second)];
    let all = all.map(|(filter, options)| wire::Subscription::new(filter, options).expect("a subscription"));
    let subscriptions = wire::OneOrMore::new(&all).expect("two");
    let properties = SubscribeProperties::default();
    let packet_id = wire::PacketId::MIN;
    let subscribe = wire::Subscribe { packet_id, properties, subscriptions };
    world.feed_only(subscriber, &bytes(&subscribe.into(), Version::V5));
}

fn publish_retained_only(world: &mut World, publisher: Peer, payload: &[u8], qos: wire::Qos) {
    let packet_id = wire::PacketId::MIN;
    let delivery = match qos {
        wire::Qos::AtMostOnce => wire::Delivery::AtMostOnce,
        _ => wire::Delivery::AtLeastOnce { dup: false, packet_id },
    };
    let publish = wire::Publish { retain: true, delivery, ..wire::Publish::new(name("t"), payload) };
    world.feed_only(publisher, &bytes(&publish.into(), Version::V5));
}

#[test]
fn two_new_subscriptions_bring_a_value_once_each_or_it_comes_live_once() {
    for (qos, expected) in [
        (wire::Qos::AtMostOnce, &["PUBLISH q0 retain \"t\" 1 B \"1\""; 2][..]),
        (wire::Qos::AtLeastOnce, &["PUBLISH q1 id=1 \"t\" 1 B \"1\""]),
    ] {
        let mut world = World::new(2);
        let publisher = world.connect(0, Version::V5, "p");
        let subscriber = world.connect(1, Version::V5, "s");
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        subscribe_twice_unheard(&mut world, subscriber, [options; 2]);
        publish_retained_only(&mut world, publisher, b"1", qos);
        world.settle();
        let packets = world.packets(subscriber);
        assert_eq!(packets[1..], *expected, "{packets:?}");
    }
}

#[test]
fn a_clients_own_value_comes_once_for_a_new_subscription_beside_one_with_no_local() {
    let mut world = World::new(1);
    let client = world.connect(0, Version::V5, "client");
    let quiet = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    // The ledger hears of the message first, and finds both subscriptions in the index.
    publish_retained_only(&mut world, client, b"1", wire::Qos::AtMostOnce);
    subscribe_twice_unheard(&mut world, client, [quiet, SubscriptionOptions::default()]);
    world.settle();
    let packets = world.packets(client);
    assert_eq!(packets[1..], ["PUBLISH q0 retain \"t\" 1 B \"1\""], "{packets:?}");
}

#[test]
fn a_value_that_came_for_an_older_subscription_comes_for_a_new_one_too() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "p");
    let subscriber = world.connect(1, Version::V5, "s");
    world.subscribe(subscriber, "+");
    publish_retained_only(&mut world, publisher, b"1", wire::Qos::AtMostOnce);
    // The ledger decides who gets it before the second subscription is there. Its copy arrives after that.
    world.carry_commands_and(|world| subscribe_unheard(world, subscriber, wire::Qos::AtMostOnce));
    world.settle();
    let mut packets = world.packets(subscriber);
    packets.retain(|packet| packet.starts_with("PUBLISH"));
    assert_eq!(packets, ["PUBLISH q0 \"t\" 1 B \"1\"", "PUBLISH q0 retain \"t\" 1 B \"1\""]);
}

#[test]
fn a_member_of_a_group_gets_its_copy_beside_what_a_new_subscription_brings() {
    let mut world = World::new(2);
    let publisher = world.connect(0, Version::V5, "p");
    let subscriber = world.connect(1, Version::V5, "s");
    world.subscribe(subscriber, "$share/g/t");
    subscribe_unheard(&mut world, subscriber, wire::Qos::AtMostOnce);
    publish_retained_only(&mut world, publisher, b"1", wire::Qos::AtMostOnce);
    world.settle();
    let mut packets = world.packets(subscriber);
    packets.retain(|packet| packet.starts_with("PUBLISH"));
    assert_eq!(packets, ["PUBLISH q0 \"t\" 1 B \"1\"", "PUBLISH q0 retain \"t\" 1 B \"1\""]);
}
