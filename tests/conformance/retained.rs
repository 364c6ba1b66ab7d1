//! Retained messages (sections 3.3.1.3 and 3.8.3.1).

use pondhawk_tests::{Broker, Client, Version};

use crate::peer::{BOTH, Conversation, Message, PUBACK, V3_1_1, V5, expect_nothing_before, in_each, publish};

/// The messages for a new client that subscribes to this filter with these options: exactly this number, by topic.
/// Messages of a later subscription follow them.
fn retained_for(broker: &Broker, version: Version, filter: &str, options: u8, count: usize) -> Vec<Message> {
    let mut keeper = broker.client(version, "keeper");
    retain_at(&mut keeper, 1, "the end", b"");
    retain_at(&mut keeper, 1, "the end", b"end");
    let mut late = broker.client(version, "late");
    late.subscribe_with(filter, options);
    let mut messages: Vec<Message> = (0..count).map(|_| late.message()).collect();
    late.subscribe_with("the end", 0);
    late.expect_retained("the end", b"end");
    late.leave();
    messages.sort_by(|a, b| a.topic.cmp(&b.topic));
    messages
}

fn payloads(messages: &[Message]) -> Vec<&[u8]> {
    messages.iter().map(|message| &message.payload[..]).collect()
}

/// Publishes with RETAIN 1 and waits until it is done.
fn retain_at(client: &mut Client, qos: u8, topic: &str, payload: &[u8]) {
    let version = client.version();
    client.send(&publish(version, 0x31 | qos << 1, 1, topic, &[], payload));
    match qos {
        0 => {
            // QoS 0 has no answer; a retained message at QoS 1 behind it has, and they take one way.
            client.send(&publish(version, 0x33, 2, "another", &[], b""));
            client.expect_ack(PUBACK, 2);
        }
        1 => client.expect_ack(PUBACK, 1),
        _ => {
            client.expect_ack(0x50, 1);
            client.acknowledge(0x62, 1);
            client.expect_ack(0x70, 1);
        }
    }
}

/// [MQTT-3.3.1-5, MQTT-3.3.1-9, 3.1.1 MQTT-3.3.1-5, 3.1.1 MQTT-3.3.1-6, 3.1.1 MQTT-3.3.1-7, 3.1.1 MQTT-3.3.1-8]
#[test]
fn the_last_message_with_retain_is_kept_with_its_qos_for_who_comes_later() {
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        for (qos, next) in [(2, 1), (1, 0), (0, 2)] {
            retain_at(&mut toad, qos, "r/a", b"old");
            retain_at(&mut toad, next, "r/a", b"new");
            retain_at(&mut toad, 1, "r/b", b"other");
            let messages = retained_for(broker, version, "r/+", 2, 2);
            assert_eq!(payloads(&messages), [b"new", &b"other"[..]]);
            assert_eq!((messages[0].qos, messages[0].retain), (next, true));
            assert_eq!((messages[1].qos, messages[1].retain), (1, true));
        }
    });
}

/// [MQTT-3.3.1-6, MQTT-3.3.1-7, 3.1.1 MQTT-3.3.1-10, 3.1.1 MQTT-3.3.1-11]
#[test]
fn an_empty_message_with_retain_is_forwarded_and_leaves_none() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("r", 2);
        let mut toad = broker.client(version, "toad");
        for qos in [0, 1, 2] {
            retain_at(&mut toad, qos, "r", b"kept");
            frog.take_message(b"kept");
            retain_at(&mut toad, qos, "r", b"");
            assert_eq!(frog.take_message(b"").qos, qos);
            assert!(retained_for(broker, version, "r", 2, 0).is_empty());
        }
    });
}

/// [MQTT-3.3.1-8, 3.1.1 MQTT-3.3.1-12]
#[test]
fn a_message_without_retain_leaves_the_retained_one_alone() {
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "r", b"not kept");
        assert!(retained_for(broker, version, "r", 1, 0).is_empty());
        retain_at(&mut toad, 1, "r", b"kept");
        for qos in [0, 1, 2] {
            toad.deliver(qos, "r", b"passing");
            toad.deliver(qos, "r", b"");
        }
        assert_eq!(payloads(&retained_for(broker, version, "r", 1, 1)), [b"kept"]);
    });
}

/// [MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11]
#[test]
fn retain_handling_decides_what_a_subscription_brings() {
    in_each(V5, |broker, version| {
        let mut toad = broker.client(version, "toad");
        retain_at(&mut toad, 1, "r", b"kept");
        // Retain Handling, and whether a first and a second subscription bring the message.
        for (handling, first, second) in [(0x00, true, true), (0x10, true, false), (0x20, false, false)] {
            let mut frog = broker.client(version, "frog");
            for is_sent in [first, second] {
                frog.subscribe_with("r", handling);
                if is_sent {
                    frog.expect_retained("r", b"kept");
                }
                expect_nothing_before(&mut frog, &mut toad, "r");
            }
            frog.unsubscribe("r");
            // Now there is none again.
            frog.subscribe_with("r", 0x10);
            frog.expect_retained("r", b"kept");
            frog.leave();
        }
    });
}

/// [MQTT-3.3.1-12, MQTT-3.3.1-13]
#[test]
fn retain_as_published_keeps_retain_and_nothing_else_does() {
    in_each(V5, |broker, version| {
        let mut keeps = broker.client(version, "keeps");
        keeps.subscribe_with("r", 0x09);
        let mut loses = broker.client(version, "loses");
        loses.subscribe_with("r", 0x01);
        let mut toad = broker.client(version, "toad");
        for qos in [0, 1] {
            retain_at(&mut toad, qos, "r", b"with");
            toad.deliver(qos, "r", b"without");
            assert!(keeps.take_message(b"with").retain);
            assert!(!loses.take_message(b"with").retain);
            assert!(!keeps.take_message(b"without").retain);
            assert!(!loses.take_message(b"without").retain);
        }
    });
}

/// [3.1.1 MQTT-3.3.1-9]
#[test]
fn existing_subscribers_get_retain_0() {
    in_each(V3_1_1, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("r", 2);
        let mut toad = broker.client(version, "toad");
        for qos in [0, 1, 2] {
            retain_at(&mut toad, qos, "r", b"now");
            assert!(!frog.take_message(b"now").retain);
        }
    });
}
