//! The fields of a PUBLISH, and its receivers (section 3.3).

use pondhawk_tests::packet::{self, string, user_property};

use crate::peer::{
    BOTH, Conversation, PUBACK, V3_1_1, V5, expect_nothing_before, filter, in_each, pass_seconds, publish,
    request, resume,
};

/// Every property of a message but its expiry, User Properties among the others.
fn all_properties() -> Vec<u8> {
    [
        b"\x01\x01".to_vec(),
        [&[0x03][..], &string("text/plain")].concat(),
        [&[0x08][..], &string("answers/here")].concat(),
        b"\x09\x00\x03\x00\xFF\x80".to_vec(),
        user_property("n", "1"),
        user_property("a", ""),
        user_property("n", "1"),
        user_property("", "z"),
    ]
    .concat()
}

/// At every QoS, straight on and out of the session of a client that was away. [MQTT-3.3.2-4, MQTT-3.3.2-15,
/// MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
#[test]
fn properties_reach_every_receiver_unaltered_and_in_order() {
    in_each(V5, |broker, version| {
        let properties = all_properties();
        let (mut away, _) = resume(broker, version, "away");
        away.subscribe_with("t", 2);
        away.leave();
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("+", 2);
        let mut toad = broker.client(version, "toad");
        for qos in [0, 1, 2] {
            toad.send(&publish(version, 0x30 | qos << 1, 1 + u16::from(qos), "t", &properties, b"hey"));
            let message = frog.take_message(b"hey");
            assert_eq!((message.qos, &message.properties), (qos, &properties));
        }
        assert_eq!([toad.read_packet()[0], toad.read_packet()[0]], [0x40, 0x50]);
        let (mut away, _) = resume(broker, version, "away");
        for _ in [1, 2] {
            assert_eq!(away.message().properties, properties);
        }
        away.expect_only_pong();
    });
}

/// [MQTT-3.3.2-4, MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20]
#[test]
fn properties_of_a_retained_message_are_kept() {
    in_each(V5, |broker, version| {
        let properties = all_properties();
        let mut toad = broker.client(version, "toad");
        toad.send(&publish(version, 0x33, 1, "t", &properties, b"hey"));
        toad.expect_ack(PUBACK, 1);
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 1);
        assert_eq!(frog.take_message(b"hey").properties, properties);
    });
}

/// [MQTT-3.3.2-3, 3.1.1 MQTT-3.3.2-3]
#[test]
fn a_message_is_for_those_whose_filter_matches_its_topic() {
    let filters =
        ["pond/north", "pond/+", "pond/#", "+/north", "#", "pond", "pond/south", "pond/+/depth", "+"];
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        for (number, filter) in filters.into_iter().enumerate() {
            let mut frog = broker.client(version, "frog");
            frog.subscribe_with(filter, 1);
            frog.subscribe_with("end", 1);
            toad.deliver(1, "pond/north", b"hey");
            toad.deliver(1, "end", b"over");
            if number < 5 {
                assert_eq!(frog.take_message(b"hey").topic, "pond/north");
            }
            assert_eq!(frog.take_message(b"over").topic, "end");
            frog.leave();
        }
    });
}

/// [MQTT-3.3.4-2, 3.1.1 MQTT-3.3.5-1]
#[test]
fn a_message_arrives_at_the_highest_qos_of_several_matching_subscriptions() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.client(version, "frog");
        for (filter, qos) in [("t/a", 0), ("t/+", 2), ("#", 1)] {
            frog.subscribe_with(filter, qos);
        }
        let mut toad = broker.client(version, "toad");
        for qos in [2, 1, 0] {
            toad.deliver(qos, "t/a", b"hey");
            assert_eq!(frog.take_message(b"hey").qos, qos);
            frog.expect_only_pong();
        }
    });
}

/// [MQTT-3.3.4-3, MQTT-3.3.4-4]
#[test]
fn one_copy_has_the_identifiers_of_all_subscriptions_that_match() {
    in_each(V5, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_as(b"\x0B\x05", "t/a", 0);
        frog.subscribe_as(b"\x0B\xFF\xFF\xFF\x7F", "t/+", 1);
        frog.subscribe_as(b"", "t/#", 0);
        frog.subscribe_as(b"\x0B\x09", "u", 0);
        broker.client(version, "toad").deliver(1, "t/a", b"hey");
        let message = frog.take_message(b"hey");
        let orders = [&b"\x0B\x05\x0B\xFF\xFF\xFF\x7F"[..], b"\x0B\xFF\xFF\xFF\x7F\x0B\x05"];
        assert!(orders.contains(&&message.properties[..]), "{message:?}");
        frog.expect_only_pong();
    });
}

/// A shared subscription is apart from the others of its client. [MQTT-3.3.4-3, MQTT-3.3.4-5]
#[test]
fn several_copies_have_one_identifier_each() {
    in_each(V5, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_as(b"\x0B\x01", "t", 1);
        frog.subscribe_as(b"\x0B\x02", "$share/g/t", 1);
        broker.client(version, "toad").deliver(1, "t", b"hey");
        let mut properties =
            [frog.take_message(b"hey"), frog.take_message(b"hey")].map(|message| message.properties);
        properties.sort();
        assert_eq!(properties, [b"\x0B\x01".to_vec(), b"\x0B\x02".to_vec()]);
        frog.expect_only_pong();
    });
}

/// [MQTT-3.3.2-7]
#[test]
fn a_topic_alias_means_nothing_on_the_next_connection() {
    in_each(V5, |broker, version| {
        let (mut toad, _) = resume(broker, version, "toad");
        toad.subscribe("t");
        toad.send(&packet::publish_with(version, 0x30, "t", b"\x23\x00\x01", b"hey"));
        toad.expect_message("t", b"hey");
        toad.leave();
        let (mut toad, is_present) = resume(broker, version, "toad");
        assert!(is_present);
        toad.send(&packet::publish_with(version, 0x30, "", b"\x23\x00\x01", b"hey"));
        toad.expect_disconnect(0x82);
    });
}

/// [MQTT-3.8.3-3]
#[test]
fn no_local_keeps_a_clients_own_messages_away_also_after_it_has_come_back() {
    in_each(V5, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 0x05);
        frog.deliver(1, "t", b"my own");
        frog.leave();
        let (mut frog, _) = resume(broker, version, "frog");
        frog.deliver(1, "t", b"my own");
        frog.expect_only_pong();
        broker.client(version, "toad").deliver(1, "t", b"hey");
        frog.take_message(b"hey");
        frog.expect_only_pong();
    });
}

/// The broker's own topics are nobody else's. [3.1.1 MQTT-3.3.5-2]
#[test]
fn messages_that_a_client_may_not_publish_are_acknowledged_and_dropped() {
    in_each(V3_1_1, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("$SYS/x", 2);
        let mut toad = broker.client(version, "toad");
        for (qos, retain) in [(1, 0), (2, 0), (1, 1), (0, 0)] {
            let first = 0x30 | qos << 1 | retain;
            toad.send(&publish(version, first, 1, "$SYS/x", &[], b"not mine"));
            match qos {
                1 => toad.expect_ack(PUBACK, 1),
                2 => {
                    toad.expect_ack(0x50, 1);
                    toad.acknowledge(0x62, 1);
                    toad.expect_ack(0x70, 1);
                }
                _ => toad.expect_only_pong(),
            }
        }
        frog.expect_only_pong();
        frog.send(&request(version, 0x82, 7, &[], &filter("$SYS/+", 0)));
        frog.expect(&packet::suback(version, 7, 0));
        frog.subscribe_with("t", 0);
        expect_nothing_before(&mut frog, &mut toad, "t");
    });
}

/// An interval of 0 is over before anybody can wait. [MQTT-3.3.2-5]
#[test]
fn a_message_that_may_not_wait_reaches_who_can_have_it_at_once() {
    in_each(V5, |broker, version| {
        let (mut away, _) = resume(broker, version, "away");
        away.subscribe_with("t", 1);
        away.leave();
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 1);
        let mut toad = broker.client(version, "toad");
        toad.send(&publish(version, 0x32, 1, "t", b"\x02\x00\x00\x00\x00", b"now"));
        toad.expect_ack(PUBACK, 1);
        frog.take_message(b"now");
        toad.deliver(1, "t", b"later");
        // Clocks count milliseconds: within the first of them it is still now.
        pass_seconds(broker, 1);
        let (mut away, _) = resume(broker, version, "away");
        away.take_message(b"later");
        away.expect_only_pong();
    });
}
