//! Wills (sections 3.1.2.5 to 3.1.2.7 and 3.1.3.2).

use pondhawk_tests::packet::{self, Connect, Will, string};
use pondhawk_tests::{Broker, Client, Version};

use crate::peer::{AN_HOUR, BOTH, Conversation, V5, in_each, lasting, lose, pass_seconds, publish};

fn witness(broker: &Broker, version: Version, options: u8) -> Client {
    let mut witness = broker.client(version, "witness");
    witness.subscribe_with("will", options);
    witness
}

/// None was published so far: a retained message takes the way of wills, and would come behind one.
fn expect_no_will(broker: &Broker, witness: &mut Client) {
    broker.client(witness.version(), "another").retain("will", b"");
    witness.expect_message("will", b"");
}

/// A will with Will Delay Interval.
fn delayed(delay: &[u8; 5]) -> Option<Will<'_>> {
    Some(Will { properties: delay, ..Will::new("will", b"gone") })
}

/// [MQTT-3.1.2-14, MQTT-3.1.2-15, 3.1.1 MQTT-3.1.2-9, 3.1.1 MQTT-3.1.2-16, 3.1.1 MQTT-3.1.2-17]
#[test]
fn a_will_is_published_with_its_qos_and_retained_if_it_says_so() {
    in_each(BOTH, |broker, version| {
        let mut witness = witness(broker, version, 2);
        for (qos, retain) in [(0, 0x20), (1, 0), (2, 0x20), (2, 0), (1, 0x20)] {
            let none: &[u8] = if version.is_5() { &[0x00] } else { &[] };
            let mut body = string("MQTT");
            body.extend([version.protocol_level(), 0x06 | qos << 3 | retain, 0x00, 0x00]);
            let fields = [none, &string("frog"), none, &string("will"), &string("gone")].concat();
            body.extend(fields);
            let mut frog = broker.connect();
            frog.send(&packet::packet(0x10, &body));
            assert!(packet::is_accepted(&frog.read_packet()));
            frog.reset();
            let message = witness.take_message(b"gone");
            assert_eq!((message.qos, message.retain), (qos, false));
            let mut late = broker.client(version, "late");
            late.subscribe_with("will", 2);
            if retain == 0 {
                late.expect_only_pong();
            } else {
                let message = late.take_message(b"gone");
                assert_eq!((message.qos, message.retain), (qos, true));
            }
            late.send(&publish(version, 0x33, 1, "will", &[], b""));
            assert_eq!(witness.take_message(b"").qos, 1);
            drop(late);
        }
    });
}

/// [MQTT-3.1.2-8, MQTT-3.1.2-7]
#[test]
fn a_will_waits_for_its_delay() {
    in_each(V5, |broker, version| {
        let mut witness = witness(broker, version, 0);
        let will = delayed(b"\x18\x00\x00\x00\x02");
        let connect = Connect { will, properties: AN_HOUR, ..Connect::new(version, "frog") };
        lose(broker.client_with(&connect));
        pass_seconds(broker, 1);
        expect_no_will(broker, &mut witness);
        witness.expect_message("will", b"gone");
        witness.expect_only_pong();
    });
}

/// [MQTT-3.1.2-8, MQTT-3.1.3-9]
#[test]
fn a_client_that_comes_back_to_its_session_in_time_has_no_will_published() {
    in_each(V5, |broker, version| {
        let mut witness = witness(broker, version, 0);
        let will = delayed(b"\x18\x00\x00\x00\x01");
        lose(broker.client_with(&Connect { will, ..lasting(version, "frog") }));
        let frog = broker.client_with(&lasting(version, "frog"));
        // Nor when it is taken over by itself.
        let newt = broker.client_with(&Connect { will, ..lasting(version, "newt") });
        let twin = broker.client_with(&lasting(version, "newt"));
        pass_seconds(broker, 2);
        expect_no_will(broker, &mut witness);
        drop((frog, newt, twin));
    });
}

/// The session ends, and with it the delay. [MQTT-3.1.2-8]
#[test]
fn a_clean_start_has_the_delayed_will_published_at_once() {
    in_each(V5, |broker, version| {
        let mut witness = witness(broker, version, 0);
        let will = delayed(b"\x18\x00\x00\x0E\x10");
        let connect = Connect { will, ..lasting(version, "frog") };
        lose(broker.client_with(&connect));
        let twin = broker.client_with(&Connect { clean_start: true, ..connect });
        witness.expect_message("will", b"gone");
        let newest = broker.client_with(&Connect { clean_start: true, ..lasting(version, "frog") });
        witness.expect_message("will", b"gone");
        witness.expect_only_pong();
        drop((twin, newest));
    });
}

/// [MQTT-3.1.2-10, 3.1.1 MQTT-3.1.2-10]
#[test]
fn a_will_that_was_published_is_not_published_again() {
    in_each(BOTH, |broker, version| {
        let mut witness = witness(broker, version, 0);
        let will = Some(Will::new("will", b"gone"));
        lose(broker.client_with(&Connect { will, ..lasting(version, "frog") }));
        witness.expect_message("will", b"gone");
        lose(broker.client_with(&lasting(version, "frog")));
        expect_no_will(broker, &mut witness);
    });
}

/// [MQTT-3.1.2-10, MQTT-3.14.4-3, 3.1.1 MQTT-3.1.2-10, 3.1.1 MQTT-3.14.4-3]
#[test]
fn a_will_that_was_taken_back_is_never_published() {
    in_each(BOTH, |broker, version| {
        let mut witness = witness(broker, version, 0);
        let will =
            if version.is_5() { delayed(b"\x18\x00\x00\x00\x01") } else { Some(Will::new("will", b"gone")) };
        broker.client_with(&Connect { will, ..lasting(version, "frog") }).leave();
        pass_seconds(broker, 2);
        expect_no_will(broker, &mut witness);
    });
}

/// [MQTT-3.1.3-10]
#[test]
fn user_properties_of_a_will_keep_their_order_also_when_it_is_delayed() {
    in_each(V5, |broker, version| {
        let mut witness = witness(broker, version, 1);
        let own =
            [("n", "1"), ("a", "2"), ("n", "1"), ("", "")].map(|(n, v)| packet::user_property(n, v)).concat();
        let properties = [&b"\x18\x00\x00\x00\x01"[..], &own].concat();
        let will = Some(Will { properties: &properties, ..Will::new("will", b"gone") });
        lose(broker.client_with(&Connect { will, ..lasting(version, "frog") }));
        assert_eq!(witness.take_message(b"gone").properties, own);
    });
}
