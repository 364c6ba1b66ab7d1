//! Packets that are sent again when a session continues, packets that are not (sections 4.3 and 4.4), and messages that
//! expire meanwhile.

use pondhawk_tests::{Broker, Client, Version};

use crate::peer::{
    BOTH, Conversation, Message, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, ack, expect_nothing_before, filter,
    in_each, lose, pass_seconds, publish, request, resume,
};

/// A client that has got these messages at one QoS and has answered nothing.
fn with_unanswered(broker: &Broker, version: Version, qos: u8, payloads: &[&str]) -> (Client, Vec<Message>) {
    let (mut frog, _) = resume(broker, version, "frog");
    frog.subscribe_with("t", 2);
    let mut toad = broker.client(version, "toad");
    for payload in payloads {
        toad.deliver(qos, "t", payload.as_bytes());
    }
    let messages: Vec<Message> = payloads.iter().map(|_| frog.message()).collect();
    (frog, messages)
}

/// The sent packet, in its form when it is sent again.
fn again(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| Message { dup: true, ..message.clone() }).collect()
}

fn read(client: &mut Client, count: usize) -> Vec<Message> {
    (0..count).map(|_| client.message()).collect()
}

/// [MQTT-3.3.1-1, MQTT-4.3.2-3, MQTT-4.4.0-1, MQTT-4.6.0-1, 3.1.1 MQTT-3.3.1-1, 3.1.1 MQTT-4.3.2-1,
/// 3.1.1 MQTT-4.4.0-1, 3.1.1 MQTT-4.6.0-1]
#[test]
fn qos_1_without_puback_is_sent_again_in_order_with_dup_and_its_identifier() {
    in_each(BOTH, |broker, version| {
        let (frog, messages) = with_unanswered(broker, version, 1, &["one", "two", "three"]);
        assert!(messages.iter().all(|message| !message.dup));
        lose(frog);
        let (mut frog, _) = resume(broker, version, "frog");
        assert_eq!(read(&mut frog, 3), again(&messages));
        frog.expect_only_pong();
        // One is answered now, and the others a third time.
        frog.acknowledge(PUBACK, messages[1].packet_id);
        frog.expect_only_pong();
        lose(frog);
        let (mut frog, _) = resume(broker, version, "frog");
        assert_eq!(read(&mut frog, 2), again(&[messages[0].clone(), messages[2].clone()]));
        frog.expect_only_pong();
    });
}

/// [MQTT-3.3.1-1, MQTT-4.3.3-3, MQTT-4.4.0-1, MQTT-4.6.0-1, 3.1.1 MQTT-3.3.1-1, 3.1.1 MQTT-4.3.3-1,
/// 3.1.1 MQTT-4.4.0-1, 3.1.1 MQTT-4.6.0-1]
#[test]
fn qos_2_without_pubrec_is_sent_again_in_order_with_dup_and_its_identifier() {
    in_each(BOTH, |broker, version| {
        let (frog, messages) = with_unanswered(broker, version, 2, &["one", "two", "three"]);
        lose(frog);
        let (mut frog, _) = resume(broker, version, "frog");
        assert_eq!(read(&mut frog, 3), again(&messages));
        frog.expect_only_pong();
    });
}

/// [MQTT-4.3.3-5, MQTT-4.3.3-6, MQTT-4.4.0-1, 3.1.1 MQTT-4.3.3-1, 3.1.1 MQTT-4.4.0-1]
#[test]
fn after_pubrec_only_pubrel_is_sent_again_until_pubcomp() {
    in_each(BOTH, |broker, version| {
        let (mut frog, messages) = with_unanswered(broker, version, 2, &["one"]);
        let packet_id = messages[0].packet_id;
        frog.acknowledge(PUBREC, packet_id);
        frog.expect(&ack(PUBREL, packet_id));
        for _ in 0..2 {
            lose(frog);
            frog = resume(broker, version, "frog").0;
            frog.expect(&ack(PUBREL, packet_id));
            frog.expect_only_pong();
        }
        frog.acknowledge(PUBCOMP, packet_id);
        frog.expect_only_pong();
        lose(frog);
        resume(broker, version, "frog").0.expect_only_pong();
    });
}

/// [MQTT-4.4.0-1]
#[test]
fn nothing_is_sent_again_while_the_connection_lasts() {
    in_each(BOTH, |broker, version| {
        let (mut frog, _) = with_unanswered(broker, version, 1, &["one", "two"]);
        pass_seconds(broker, 1);
        frog.expect_only_pong();
        // Not when it subscribes once more, either, nor when something new comes.
        frog.send(&request(version, 0x82, 7, &[], &filter("t", 2)));
        assert_eq!(frog.read_packet()[0], 0x90);
        broker.client(version, "newt").deliver(1, "t", b"three");
        assert_eq!(frog.message().payload, b"three");
        frog.expect_only_pong();
    });
}

/// 0x80: the client does not want it. [MQTT-4.4.0-2]
#[test]
fn a_refusal_acknowledges_and_nothing_is_sent_again() {
    in_each(V5, |broker, version| {
        for (qos, first) in [(1, PUBACK), (2, PUBREC)] {
            let (mut frog, messages) = with_unanswered(broker, version, qos, &["one"]);
            let [high, low] = messages[0].packet_id.to_be_bytes();
            frog.send(&[first, 0x03, high, low, 0x80]);
            frog.expect_only_pong();
            lose(frog);
            let (mut frog, _) = resume(broker, version, "frog");
            frog.expect_only_pong();
            expect_nothing_before(&mut frog, &mut broker.client(version, "newt"), "t");
        }
    });
}

/// [MQTT-4.3.3-7]
#[test]
fn messages_sent_at_qos_2_do_not_expire() {
    in_each(V5, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        toad.send(&publish(version, 0x34, 1, "t", b"\x02\x00\x00\x00\x01", b"soon over"));
        let message = frog.message();
        lose(frog);
        pass_seconds(broker, 2);
        let (mut frog, _) = resume(broker, version, "frog");
        let again = frog.message();
        assert_eq!((again.packet_id, again.dup, &again.payload), (message.packet_id, true, &message.payload));
        frog.acknowledge(PUBREC, again.packet_id);
        frog.expect_ack(PUBREL, again.packet_id);
    });
}

/// [MQTT-3.3.2-5, MQTT-3.3.2-6]
#[test]
fn a_message_that_waits_expires_or_comes_with_the_rest_of_its_time() {
    in_each(V5, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 1);
        frog.leave();
        let mut toad = broker.client(version, "toad");
        toad.send(&publish(version, 0x32, 1, "t", b"\x02\x00\x00\x00\x01", b"soon over"));
        toad.expect_ack(PUBACK, 1);
        toad.send(&publish(version, 0x32, 1, "t", b"\x02\x00\x00\x00\x64", b"in time"));
        toad.expect_ack(PUBACK, 1);
        pass_seconds(broker, 2);
        let (mut frog, _) = resume(broker, version, "frog");
        let message = frog.take_message(b"in time");
        let [0x02, 0, 0, 0, left] = message.properties[..] else { panic!("{message:?}") };
        // Two seconds have passed; a slow machine may take some more, but not the rest of the deadline.
        assert!((80..=98).contains(&left), "{left} s of 100");
        frog.expect_only_pong();
    });
}
