//! Flow control: Receive Maximum in both directions (sections 3.3.4 and 4.9).

use pondhawk_tests::packet::{Connect, string};
use pondhawk_tests::{Broker, Client, Version};

use crate::peer::{
    BOTH, Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, ack, filter, in_each, in_each_with, publish,
    request, resume,
};

/// A subscriber to `t` with this Receive Maximum.
fn subscriber(broker: &Broker, receive_maximum: u8) -> Client {
    let properties = [0x21, 0x00, receive_maximum];
    let mut frog =
        broker.client_with(&Connect { properties: &properties, ..Connect::new(Version::V5, "frog") });
    frog.subscribe_with("t", 2);
    frog
}

/// [MQTT-3.3.4-9, MQTT-4.9.0-1, MQTT-4.9.0-2]
#[test]
fn no_more_messages_are_under_way_than_the_client_takes() {
    in_each(V5, |broker, version| {
        for maximum in [1, 3] {
            let mut frog = subscriber(broker, maximum);
            let mut toad = broker.client(version, "toad");
            for number in 0..10 {
                toad.deliver(1 + number % 2, "t", &[number]);
            }
            let mut open = Vec::new();
            for number in 0..10 {
                open.push(frog.message());
                assert_eq!(open.last().map(|message| message.payload[0]), Some(number));
                if open.len() == usize::from(maximum) {
                    frog.expect_only_pong();
                    let first = open.remove(0);
                    if first.qos == 1 {
                        frog.acknowledge(PUBACK, first.packet_id);
                    } else {
                        frog.acknowledge(PUBREC, first.packet_id);
                        frog.expect(&ack(PUBREL, first.packet_id));
                        // It counts until PUBCOMP.
                        frog.expect_only_pong();
                        frog.acknowledge(PUBCOMP, first.packet_id);
                    }
                }
            }
            frog.leave();
        }
    });
}

/// [MQTT-3.3.4-10, MQTT-4.9.0-3]
#[test]
fn while_the_client_takes_no_more_everything_else_goes_on() {
    in_each(V5, |broker, version| {
        let mut frog = subscriber(broker, 1);
        let mut toad = broker.client(version, "toad");
        toad.deliver(2, "t", b"one");
        toad.deliver(1, "t", b"two");
        let one = frog.message();
        toad.deliver(0, "t", b"at QoS 0");
        let message = frog.message();
        assert_eq!((message.qos, &message.payload[..]), (0, &b"at QoS 0"[..]));
        frog.send(&request(version, 0x82, 7, &[], &filter("u", 1)));
        assert_eq!(frog.read_packet()[0], 0x90);
        frog.deliver(2, "nobody's", b"hey");
        frog.expect_only_pong();
        frog.acknowledge(PUBREC, one.packet_id);
        frog.expect(&ack(PUBREL, one.packet_id));
        frog.send(&request(version, 0xA2, 7, &[], &string("u")));
        assert_eq!(frog.read_packet()[0], 0xB0);
        frog.acknowledge(PUBCOMP, one.packet_id);
        assert_eq!(frog.message().payload, b"two");
    });
}

/// A PUBACK for what is not under way is no permission. [MQTT-4.9.0-1]
#[test]
fn the_quota_does_not_grow_above_receive_maximum() {
    in_each(V5, |broker, version| {
        let mut frog = subscriber(broker, 1);
        let stray =
            (1..=200).flat_map(|packet_id| [ack(PUBACK, packet_id), ack(PUBCOMP, packet_id)].concat());
        frog.send(&stray.collect::<Vec<u8>>());
        frog.expect_only_pong();
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "t", b"one");
        toad.deliver(1, "t", b"two");
        assert_eq!(frog.message().payload, b"one");
        frog.expect_only_pong();
    });
}

/// The maximum is as CONNACK says, or 65,535. [MQTT-3.3.4-7]
#[test]
fn a_client_with_more_open_messages_than_the_server_takes_is_told_and_closed() {
    in_each(V5, |broker, version| {
        let (mut toad, connack) = broker.greet(&Connect::new(version, "toad"));
        let at =
            connack[5..].windows(3).position(|bytes| bytes[0] == 0x21).expect("Receive Maximum is there");
        let maximum = u16::from_be_bytes([connack[5 + at + 1], connack[5 + at + 2]]);
        for packet_id in 1..=maximum {
            toad.publish_at(2, packet_id, "t", b"");
            toad.expect_ack(PUBREC, packet_id);
        }
        toad.expect_only_pong();
        // One that is finished makes room for another.
        toad.acknowledge(PUBREL, 1);
        toad.expect_ack(PUBCOMP, 1);
        toad.publish_at(2, maximum + 1, "t", b"");
        toad.expect_ack(PUBREC, maximum + 1);
        toad.send(&publish(version, 0x34, maximum + 2, "t", &[], b""));
        toad.expect_disconnect(0x93);
    });
}

/// A full queue, where the operator has chosen that publishers are to be refused. [3.1.1 MQTT-4.8.0-2, MQTT-3.4.2-1]
#[test]
fn a_publisher_that_cannot_be_served_now_is_told_or_closed() {
    let settings = "[sessions]\nqueue_messages = 1\nqueue_full = \"refuse\"\n";
    in_each_with(settings, BOTH, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 1);
        frog.leave();
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "t", b"one");
        toad.publish_at(1, 7, "t", b"two");
        if version.is_5() {
            toad.expect(b"\x40\x03\x00\x07\x97");
            toad.expect_only_pong();
        } else {
            toad.expect_closed();
        }
        let (mut frog, is_present) = resume(broker, version, "frog");
        assert!(is_present);
        frog.take_message(b"one");
        frog.expect_only_pong();
    });
}
