//! SUBSCRIBE and UNSUBSCRIBE, and their answers (sections 3.8 to 3.11).

use pondhawk_tests::Version;
use pondhawk_tests::packet::{self, string};

use crate::peer::{
    BOTH, Conversation, Message, PUBACK, PUBCOMP, PUBREC, PUBREL, V3_1_1, ack, expect_nothing_before, filter,
    in_each, in_each_with, lose, publish, request, resume,
};

/// Codes behind a packet identifier.
fn answer(version: Version, first: u8, packet_id: u16, codes: &[u8]) -> Vec<u8> {
    request(version, first, packet_id, &[], codes)
}

/// [MQTT-2.2.1-6, MQTT-2.2.2-1, MQTT-3.8.4-1, MQTT-3.8.4-2, MQTT-3.8.4-5, MQTT-3.8.4-6, MQTT-3.8.4-7, MQTT-3.9.3-1,
/// MQTT-3.9.3-2, 3.1.1 MQTT-2.3.1-7, 3.1.1 MQTT-3.8.4-1, 3.1.1 MQTT-3.8.4-2, 3.1.1 MQTT-3.8.4-4, 3.1.1 MQTT-3.8.4-5,
/// 3.1.1 MQTT-3.9.3-1, 3.1.1 MQTT-3.9.3-2]
#[test]
fn suback_has_a_code_for_each_filter_in_order() {
    in_each_with("[limits]\ntopic_levels = 3\n", BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        let filters = [("a", 2), ("b/c/d/e", 1), ("c", 0), ("d/#", 1), ("+/+/+/+", 0), ("e", 2)];
        let failure = if version.is_5() { 0x8F } else { 0x80 };
        for packet_id in [1, 300, 65_535] {
            let rest: Vec<u8> = filters.iter().flat_map(|(text, qos)| filter(text, *qos)).collect();
            frog.send(&request(version, 0x82, packet_id, &[], &rest));
            frog.expect(&answer(version, 0x90, packet_id, &[2, failure, 0, 1, failure, 2]));
        }
        let mut toad = broker.client(version, "toad");
        for (topic, qos) in [("a", 2), ("c", 0), ("d/x", 1)] {
            toad.deliver(2, topic, b"hey");
            let message = frog.take_message(b"hey");
            assert_eq!((message.topic.as_str(), message.qos), (topic, qos));
        }
        frog.expect_only_pong();
    });
}

/// [MQTT-3.8.4-8, 3.1.1 MQTT-3.8.4-6]
#[test]
fn a_message_comes_at_the_lower_of_its_own_qos_and_the_one_granted() {
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        for granted in [0, 1, 2] {
            let mut frog = broker.client(version, "frog");
            frog.subscribe_with("t", granted);
            for published in [0, 1, 2] {
                toad.deliver(published, "t", b"hey");
                assert_eq!(frog.take_message(b"hey").qos, granted.min(published));
            }
            frog.leave();
        }
    });
}

/// [MQTT-3.8.4-3, MQTT-3.8.4-4, 3.1.1 MQTT-3.8.4-3]
#[test]
fn the_same_filter_replaces_a_subscription_brings_what_is_retained_and_loses_nothing() {
    const MESSAGES: u8 = 50;
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        toad.retain("t/kept", b"kept");
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t/#", 1);
        frog.take_message(b"kept");
        // One client publishes while the other subscribes again.
        let packets = (1..=MESSAGES).flat_map(|n| publish(version, 0x32, u16::from(n), "t/flow", &[], &[n]));
        toad.send(&packets.collect::<Vec<u8>>());
        frog.send(&request(version, 0x82, 7, &[], &filter("t/#", 0)));
        let (mut seen, mut kept, mut granted) = (Vec::new(), 0, false);
        while seen.len() < usize::from(MESSAGES) || kept < 1 || !granted {
            let packet = frog.read_packet();
            if packet[0] == 0x90 {
                granted = true;
                continue;
            }
            let message = Message::parse(version, &packet);
            if message.qos == 1 {
                frog.acknowledge(PUBACK, message.packet_id);
            }
            if message.topic == "t/kept" {
                assert!(message.retain);
                kept += 1;
            } else {
                seen.push(message.payload[0]);
            }
        }
        assert_eq!(seen, (1..=MESSAGES).collect::<Vec<u8>>());
        frog.expect_only_pong();
        toad = broker.client(version, "newt");
        toad.deliver(1, "t/flow", b"hey");
        assert_eq!(frog.take_message(b"hey").qos, 0, "there is one subscription, the new one");
        frog.expect_only_pong();
    });
}

/// [MQTT-2.2.1-6, MQTT-3.10.4-4, MQTT-3.10.4-5, MQTT-3.10.4-6, MQTT-3.11.3-1, MQTT-3.11.3-2, 3.1.1 MQTT-2.3.1-7,
/// 3.1.1 MQTT-3.10.4-4, 3.1.1 MQTT-3.10.4-5, 3.1.1 MQTT-3.10.4-6]
#[test]
fn unsuback_has_a_code_for_each_filter_in_order() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        for filter in ["a", "b", "c"] {
            frog.subscribe(filter);
        }
        let filters: Vec<u8> = ["a", "x", "c", "c", "+"].iter().flat_map(|filter| string(filter)).collect();
        frog.send(&request(version, 0xA2, 777, &[], &filters));
        let codes: &[u8] = if version.is_5() { &[0x00, 0x11, 0x00, 0x11, 0x11] } else { &[] };
        frog.expect(&answer(version, 0xB0, 777, codes));
        let mut toad = broker.client(version, "toad");
        for topic in ["a", "c", "b"] {
            toad.publish(topic, b"hey");
        }
        frog.expect_message("b", b"hey");
        frog.expect_only_pong();
    });
}

/// [MQTT-3.10.4-1, MQTT-3.10.4-2, 3.1.1 MQTT-3.10.4-1, 3.1.1 MQTT-3.10.4-2]
#[test]
fn only_the_very_same_filter_is_taken_back_and_nothing_new_comes_after_it() {
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("pond/+", 1);
        frog.subscribe_with("end", 1);
        for other in ["pond/#", "pond/north", "Pond/+", "pond/+/", "+/+", "pond/\u{ff0b}"] {
            frog.send(&request(version, 0xA2, 7, &[], &string(other)));
            frog.expect(&packet::unsuback(version, 7, 0x11));
        }
        toad.deliver(1, "pond/north", b"hey");
        frog.take_message(b"hey");
        frog.unsubscribe("pond/+");
        toad.deliver(1, "pond/north", b"too late");
        expect_nothing_before(&mut frog, &mut toad, "end");
        frog.subscribe_with("pond/north", 0);
        expect_nothing_before(&mut frog, &mut toad, "pond/north");
    });
}

/// [MQTT-3.10.4-3, 3.1.1 MQTT-3.10.4-3]
#[test]
fn deliveries_that_have_begun_are_finished_after_unsubscribe() {
    in_each(BOTH, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "t", b"one");
        toad.deliver(2, "t", b"two");
        toad.deliver(2, "t", b"three");
        let [one, two, three] = [0; 3].map(|_| frog.message());
        frog.acknowledge(PUBREC, three.packet_id);
        frog.expect(&ack(PUBREL, three.packet_id));
        frog.unsubscribe("t");
        lose(frog);
        let (mut frog, _) = resume(broker, version, "frog");
        // The standard does not say where among them PUBREL comes.
        let mut again = [0; 3].map(|_| frog.read_packet());
        again.sort();
        assert_eq!(Message::parse(version, &again[0]).packet_id, one.packet_id);
        assert_eq!(Message::parse(version, &again[1]).packet_id, two.packet_id);
        assert_eq!(again[2], ack(PUBREL, three.packet_id));
        frog.acknowledge(PUBACK, one.packet_id);
        frog.acknowledge(PUBREC, two.packet_id);
        frog.expect(&ack(PUBREL, two.packet_id));
        frog.acknowledge(PUBCOMP, two.packet_id);
        frog.acknowledge(PUBCOMP, three.packet_id);
        frog.expect_only_pong();
    });
}

/// [3.1.1 MQTT-3.8.3-2]
#[test]
fn filters_with_wildcards_are_served() {
    in_each(V3_1_1, |broker, version| {
        let mut frog = broker.client(version, "frog");
        let mut toad = broker.client(version, "toad");
        for filter in ["#", "+/+", "pond/#", "pond/+"] {
            frog.subscribe_with(filter, 1);
            toad.deliver(1, "pond/north", b"hey");
            frog.take_message(b"hey");
            frog.unsubscribe(filter);
        }
    });
}
