//! Sessions that outlive their connections, and those that do not (sections 3.1.2.4, 3.1.2.11 and 4.1).

use pondhawk_tests::packet::{Connect, Will};
use pondhawk_tests::{Broker, Client, Version};

use crate::peer::{
    AN_HOUR, BOTH, Conversation, V3_1_1, V5, expect_nothing_before, in_each, lasting, lose, pass_seconds,
    resume, session_present,
};

/// A client that begins with nothing and says whether it was told so.
fn begin_anew(broker: &Broker, version: Version, client_id: &str) -> (Client, bool) {
    let (client, connack) = broker.greet(&Connect { clean_start: true, ..lasting(version, client_id) });
    (client, session_present(&connack))
}

/// [MQTT-3.1.2-6, MQTT-3.2.2-3, 3.1.1 MQTT-3.1.2-4, 3.1.1 MQTT-3.2.2-3]
#[test]
fn a_session_begins_if_none_is_kept() {
    in_each(BOTH, |broker, version| {
        let (mut frog, is_present) = resume(broker, version, "frog");
        assert!(!is_present);
        frog.subscribe("t");
        frog.publish("t", b"hey");
        frog.expect_message("t", b"hey");
    });
}

/// [MQTT-3.1.2-5, MQTT-3.1.2-23, MQTT-3.2.2-3, 3.1.1 MQTT-3.1.2-4, 3.1.1 MQTT-3.2.2-2,
/// 3.1.1 MQTT-4.1.0-1]
#[test]
fn a_kept_session_goes_on_with_its_subscriptions() {
    in_each(BOTH, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 1);
        lose(frog);
        let (mut frog, is_present) = resume(broker, version, "frog");
        assert!(is_present);
        broker.client(version, "toad").deliver(1, "t", b"hey");
        assert_eq!(frog.take_message(b"hey").qos, 1);
    });
}

/// [MQTT-3.1.2-4, MQTT-3.2.2-2, 3.1.1 MQTT-3.1.2-6, 3.1.1 MQTT-3.2.2-1]
#[test]
fn a_clean_start_ends_the_session_there_was() {
    in_each(BOTH, |broker, version| {
        let mut toad = broker.client(version, "toad");
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 1);
        frog.leave();
        toad.deliver(1, "t", b"waiting for nobody");
        let (mut frog, is_present) = begin_anew(broker, version, "frog");
        assert!(!is_present);
        toad.deliver(1, "t", b"to nobody");
        frog.subscribe_with("t", 0);
        expect_nothing_before(&mut frog, &mut toad, "t");
    });
}

/// What a clean session leaves is nothing. [3.1.1 MQTT-3.1.2-6, 3.1.1 MQTT-3.2.2-3]
#[test]
fn a_clean_session_ends_with_its_connection() {
    in_each(V3_1_1, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 1);
        frog.leave();
        let (mut frog, is_present) = resume(broker, version, "frog");
        assert!(!is_present);
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "t", b"to nobody");
        frog.subscribe_with("t", 0);
        expect_nothing_before(&mut frog, &mut toad, "t");
    });
}

/// [MQTT-4.1.0-2, MQTT-3.2.2-3]
#[test]
fn without_an_expiry_interval_a_session_ends_with_its_connection() {
    in_each(V5, |broker, version| {
        let connect = Connect { clean_start: false, ..Connect::new(version, "frog") };
        for properties in [&b""[..], b"\x11\x00\x00\x00\x00"] {
            let (frog, connack) = broker.greet(&Connect { properties, ..connect });
            assert!(!session_present(&connack));
            lose(frog);
        }
        assert!(!resume(broker, version, "frog").1);
    });
}

/// The will, delayed for longer, is published when the session ends. [MQTT-4.1.0-2, MQTT-3.1.2-8]
#[test]
fn a_session_is_discarded_when_its_time_is_over() {
    in_each(V5, |broker, version| {
        let mut witness = broker.client(version, "witness");
        witness.subscribe("will");
        let will = Some(Will { properties: b"\x18\x00\x00\x0E\x10", ..Will::new("will", b"ended") });
        let connect = Connect { will, properties: b"\x11\x00\x00\x00\x01", ..lasting(version, "frog") };
        lose(broker.client_with(&connect));
        witness.expect_message("will", b"ended");
        assert!(!resume(broker, version, "frog").1);
    });
}

/// [MQTT-4.1.0-1, 3.1.1 MQTT-4.1.0-2]
#[test]
fn a_session_lasts_as_long_as_its_connection() {
    in_each(BOTH, |broker, version| {
        let second: &[u8] = if version.is_5() { b"\x11\x00\x00\x00\x01" } else { &[] };
        let mut frog = broker.client_with(&Connect { properties: second, ..Connect::new(version, "frog") });
        frog.subscribe_with("t", 1);
        let mut newt = broker.client(version, "newt");
        newt.subscribe_with("t", 1);
        pass_seconds(broker, 2);
        broker.client(version, "toad").deliver(1, "t", b"hey");
        frog.take_message(b"hey");
        newt.take_message(b"hey");
        if version.is_5() {
            assert!(resume(broker, version, "frog").1, "it is there to be taken over");
        }
    });
}

/// [MQTT-4.5.0-1, MQTT-3.1.2-23, 3.1.1 MQTT-3.1.2-5, 3.1.1 MQTT-4.1.0-1, 3.1.1 MQTT-4.5.0-1]
#[test]
fn messages_wait_for_every_client_that_is_away() {
    in_each(BOTH, |broker, version| {
        for (name, filter) in [("frog", "pond/north"), ("newt", "pond/+"), ("other", "river")] {
            let (mut client, _) = resume(broker, version, name);
            client.subscribe_with(filter, 2);
            client.leave();
        }
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "pond/north", b"one");
        toad.deliver(2, "pond/north", b"two");
        for name in ["frog", "newt"] {
            let (mut client, _) = resume(broker, version, name);
            // Of two levels of QoS either may come first.
            let mut messages =
                [client.message(), client.message()].map(|message| (message.qos, message.payload));
            messages.sort();
            assert_eq!(messages, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
            client.expect_only_pong();
        }
        let (mut other, _) = resume(broker, version, "other");
        expect_nothing_before(&mut other, &mut toad, "river");
    });
}

/// [3.1.1 MQTT-3.1.2-7]
#[test]
fn a_retained_message_outlives_the_session_of_its_publisher() {
    in_each(V3_1_1, |broker, version| {
        let mut toad = broker.client(version, "toad");
        toad.retain("t", b"kept");
        toad.expect_only_pong();
        toad.leave();
        let (toad, _) = begin_anew(broker, version, "toad");
        toad.leave();
        let mut frog = broker.client(version, "frog");
        frog.subscribe("t");
        frog.expect_retained("t", b"kept");
    });
}

/// Session Expiry Interval of DISCONNECT counts. [MQTT-3.1.2-23, MQTT-4.1.0-2]
#[test]
fn a_client_may_change_its_mind_when_it_leaves() {
    in_each(V5, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.send(b"\xE0\x07\x00\x05\x11\x00\x00\x00\x00");
        frog.expect_closed();
        assert!(!resume(broker, version, "frog").1, "it wants it to end");
        let short = Connect { properties: b"\x11\x00\x00\x00\x01", ..lasting(version, "newt") };
        let mut newt = broker.client_with(&short);
        newt.send(&[b"\xE0\x07\x00\x05", AN_HOUR].concat());
        newt.expect_closed();
        pass_seconds(broker, 2);
        assert!(resume(broker, version, "newt").1, "it wants it to last");
    });
}
