//! The exchanges of QoS 0, 1 and 2 (section 4.3), in both directions.

use std::collections::BTreeSet;

use pondhawk_tests::Version;

use crate::peer::{
    BOTH, Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, ack, expect_nothing_before, in_each, lose,
    pass_seconds, publish, resume,
};

/// [MQTT-2.2.1-2, MQTT-3.3.1-2, MQTT-3.3.4-1, MQTT-4.3.1-1, 3.1.1 MQTT-2.3.1-5, 3.1.1 MQTT-3.3.1-2, 3.1.1 MQTT-3.3.4-1,
/// 3.1.1 MQTT-4.3.1-1]
#[test]
fn qos_0_has_no_identifier_no_dup_and_no_answer() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        toad.publish_at(0, 0, "t", b"hey");
        toad.expect_only_pong();
        frog.expect(&publish(version, 0x30, 0, "t", &[], b"hey"));
        frog.expect_only_pong();
    });
}

/// [MQTT-2.2.1-5, MQTT-3.3.4-1, MQTT-4.3.2-4, 3.1.1 MQTT-2.3.1-6, 3.1.1 MQTT-3.3.4-1, 3.1.1 MQTT-4.3.2-2]
#[test]
fn qos_1_is_answered_with_puback_of_its_identifier() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let mut toad = broker.client(version, "toad");
        for packet_id in [1, 7, 65_535] {
            toad.publish_at(1, packet_id, "t", b"hey");
            toad.expect(&ack(PUBACK, packet_id));
            frog.expect_message("t", b"hey");
        }
        toad.expect_only_pong();
    });
}

/// [MQTT-4.3.2-5, 3.1.1 MQTT-4.3.2-2]
#[test]
fn after_puback_the_identifier_stands_for_another_message_whatever_its_dup() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let mut toad = broker.client(version, "toad");
        for (first, payload) in [(0x32, "one"), (0x3A, "two"), (0x3A, "two"), (0x32, "three")] {
            toad.send(&publish(version, first, 7, "t", &[], payload.as_bytes()));
            toad.expect(&ack(PUBACK, 7));
            frog.expect_message("t", payload.as_bytes());
        }
    });
}

/// [MQTT-2.2.1-5, MQTT-3.3.4-1, MQTT-4.3.3-8, MQTT-4.3.3-10, MQTT-4.3.3-11, MQTT-4.3.3-12, 3.1.1 MQTT-2.3.1-6,
/// 3.1.1 MQTT-3.3.4-1, 3.1.1 MQTT-4.3.3-2]
#[test]
fn qos_2_is_delivered_once_until_its_identifier_is_released() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let mut toad = broker.client(version, "toad");
        for payload in ["one", "two"] {
            for first in [0x34, 0x3C, 0x3C] {
                toad.send(&publish(version, first, 7, "t", &[], payload.as_bytes()));
                toad.expect(&ack(PUBREC, 7));
            }
            toad.acknowledge(PUBREL, 7);
            toad.expect(&ack(PUBCOMP, 7));
            frog.expect_message("t", payload.as_bytes());
        }
        expect_nothing_before(&mut frog, &mut toad, "t");
    });
}

/// [MQTT-4.3.3-10, 3.1.1 MQTT-4.3.3-2]
#[test]
fn a_message_that_was_received_is_known_again_in_the_resumed_session() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let (mut toad, _) = resume(broker, version, "toad");
        toad.publish_at(2, 7, "t", b"once");
        toad.expect(&ack(PUBREC, 7));
        frog.expect_message("t", b"once");
        lose(toad);
        let (mut toad, _) = resume(broker, version, "toad");
        toad.send(&publish(version, 0x3C, 7, "t", &[], b"once"));
        toad.expect(&ack(PUBREC, 7));
        lose(toad);
        let (mut toad, _) = resume(broker, version, "toad");
        toad.acknowledge(PUBREL, 7);
        toad.expect(&ack(PUBCOMP, 7));
        expect_nothing_before(&mut frog, &mut toad, "t");
        toad.publish_at(2, 7, "t", b"another");
        toad.expect(&ack(PUBREC, 7));
        frog.expect_message("t", b"another");
    });
}

/// PUBREC 0x90: nobody publishes to the broker's own topics. [MQTT-4.3.3-9]
#[test]
fn after_a_refusal_in_pubrec_the_identifier_stands_for_another_message() {
    in_each(V5, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let mut toad = broker.client(version, "toad");
        toad.publish_at(2, 7, "$SYS/x", b"hey");
        toad.expect(b"\x50\x03\x00\x07\x90");
        toad.publish_at(2, 7, "t", b"hey");
        toad.expect(&ack(PUBREC, 7));
        frog.expect_message("t", b"hey");
    });
}

/// [MQTT-4.3.3-13]
#[test]
fn a_received_message_is_released_even_if_it_has_expired() {
    in_each(V5, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let mut toad = broker.client(version, "toad");
        let message = publish(version, 0x34, 7, "t", b"\x02\x00\x00\x00\x01", b"hey");
        toad.send(&message);
        toad.expect(&ack(PUBREC, 7));
        frog.take_message(b"hey");
        pass_seconds(broker, 2);
        toad.send(&message);
        toad.expect(&ack(PUBREC, 7));
        toad.acknowledge(PUBREL, 7);
        toad.expect(&ack(PUBCOMP, 7));
    });
}

/// [MQTT-3.3.1-3, MQTT-4.3.2-2, MQTT-4.3.3-2, 3.1.1 MQTT-3.3.1-3, 3.1.1 MQTT-4.3.2-1, 3.1.1 MQTT-4.3.3-1]
#[test]
fn forwarded_messages_have_dup_0_whatever_the_publisher_sent() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        for (packet_id, first) in [(1, 0x32), (2, 0x3A), (3, 0x34), (4, 0x3C)] {
            toad.send(&publish(version, first, packet_id, "t", &[], b"hey"));
            let message = frog.take_message(b"hey");
            assert_eq!((message.dup, message.qos), (false, first >> 1 & 0x03));
        }
    });
}

/// Twenty are unfinished at a time, and each new one gets another identifier. [MQTT-2.2.1-4, MQTT-4.3.2-1,
/// MQTT-4.3.3-1, 3.1.1 MQTT-2.3.1-4, 3.1.1 MQTT-4.3.2-1, 3.1.1 MQTT-4.3.3-1]
#[test]
fn no_identifier_that_is_in_use_is_given_to_another_message() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        let mut in_use = BTreeSet::new();
        for number in 0..100_u8 {
            toad.deliver(1 + number % 2, "t", &[number]);
            let message = frog.message();
            assert_ne!(message.packet_id, 0);
            assert!(in_use.insert((message.packet_id, message.qos)), "{message:?}");
            let identifiers: BTreeSet<u16> = in_use.iter().map(|(packet_id, _)| *packet_id).collect();
            assert_eq!(identifiers.len(), in_use.len(), "one identifier at two levels of QoS");
            if in_use.len() == 20 {
                // The middle one is finished.
                let middle = *in_use.iter().nth(10).expect("there are twenty");
                in_use.remove(&middle);
                finish(&mut frog, middle);
            }
        }
    });
}

/// Answers everything about a message that is under way.
fn finish(client: &mut pondhawk_tests::Client, (packet_id, qos): (u16, u8)) {
    if qos == 1 {
        client.acknowledge(PUBACK, packet_id);
    } else {
        client.acknowledge(PUBREC, packet_id);
        client.expect_ack(PUBREL, packet_id);
        client.acknowledge(PUBCOMP, packet_id);
    }
    client.expect_only_pong();
}

/// [MQTT-4.3.3-4, MQTT-2.2.1-5, 3.1.1 MQTT-4.3.3-1, 3.1.1 MQTT-2.3.1-6]
#[test]
fn pubrec_is_answered_with_pubrel_of_its_identifier() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        toad.deliver(2, "t", b"one");
        toad.deliver(2, "t", b"two");
        let identifiers = [frog.message(), frog.message()].map(|message| message.packet_id);
        for packet_id in identifiers.into_iter().rev() {
            frog.acknowledge(PUBREC, packet_id);
            frog.expect(&ack(PUBREL, packet_id));
        }
        frog.expect_only_pong();
    });
}

/// The client may not do that. [MQTT-2.2.1-3, 3.1.1 MQTT-2.3.1-2]
#[test]
fn an_identifier_of_an_open_exchange_cannot_begin_one_at_another_qos() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        let mut toad = broker.client(version, "toad");
        toad.publish_at(2, 7, "t", b"one");
        toad.expect(&ack(PUBREC, 7));
        frog.expect_message("t", b"one");
        toad.publish_at(1, 7, "t", b"two");
        if version == Version::V5 {
            toad.expect(b"\x40\x03\x00\x07\x91");
            toad.acknowledge(PUBREL, 7);
            toad.expect(&ack(PUBCOMP, 7));
            expect_nothing_before(&mut frog, &mut toad, "t");
        } else {
            toad.expect_closed();
            expect_nothing_before(&mut frog, &mut broker.client(version, "newt"), "t");
        }
    });
}
