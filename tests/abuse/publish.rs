//! P: the flow of PUBLISH and its acknowledgements.

use pondhawk_tests::conversation::{
    AN_HOUR, Conversation, Message, PUBACK, PUBCOMP, PUBREC, PUBREL, ack, go_on, pass_seconds, publish,
    resume,
};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Version};

use crate::packets::{connect_with_will_properties, property, publish_with};
use crate::stage::{
    ALL, Answer, BEFORE_5, PROTOCOL_ERROR, V5, answers, answers_with, connected, first, play, raw, sized,
    wait_for_sys,
};

const PACKET_IDENTIFIER_IN_USE: u8 = 0x91;
const PACKET_IDENTIFIER_NOT_FOUND: u8 = 0x92;
const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
const TOPIC_ALIAS_INVALID: u8 = 0x94;
const QUOTA_EXCEEDED: u8 = 0x97;

/// An acknowledgement with a reason, where the version has one.
fn ack_with(version: Version, first: u8, packet_id: u16, reason: u8) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.extend(version.is_5().then_some(reason));
    packet::packet(first, &body)
}

/// [MQTT-3.3.1-2, MQTT-3.3.1-4, 3.1.1 MQTT-3.3.1-2, 3.1.1 MQTT-3.3.1-4]
#[test]
fn p_02_a_qos_that_does_not_exist_and_a_duplicate_of_what_is_never_repeated() {
    answers(
        &[
            connected(ALL, |version, _| publish(version, 0x36, 1, "a", &[], b"hey"), &Answer::Malformed),
            connected(ALL, |version, _| publish(version, 0x38, 1, "a", &[], b"hey"), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// [MQTT-2.2.1-3, 3.1.1 MQTT-2.3.1-1]
#[test]
fn p_03_packet_identifier_0() {
    let mut cases = vec![
        connected(ALL, |version, _| publish(version, 0x32, 0, "a", &[], b""), &Answer::ProtocolError),
        connected(ALL, |version, _| publish(version, 0x34, 0, "a", &[], b""), &Answer::ProtocolError),
        connected(ALL, |version, _| packet::subscribe(version, 0, "a"), &Answer::ProtocolError),
        connected(ALL, |version, _| packet::unsubscribe(version, 0, "a"), &Answer::ProtocolError),
    ];
    for first_byte in [PUBACK, PUBREC, PUBREL, PUBCOMP] {
        cases.push(connected(ALL, raw(&ack(first_byte, 0)), &Answer::ProtocolError));
    }
    answers(&cases.concat());
}

/// [MQTT-4.3.3-10, 3.1.1 MQTT-4.3.3-2]
#[test]
fn p_04_one_identifier_of_qos_2_again_and_again() {
    const BATCH: usize = 100;
    let batches = sized(10, 10_000);
    play("", |broker| {
        for version in Version::ALL {
            let mut witness = broker.client(Version::V5, "witness");
            witness.subscribe("t");
            let (mut peer, _) = resume(broker, version, "peer");
            // Packets before the first record are answered together with it.
            peer.publish_at(2, 7, "t", b"first");
            peer.expect_ack(PUBREC, 7);
            let before = broker.resident_bytes();
            for batch in 0..batches {
                let publish =
                    |n: usize| publish(version, 0x34, 7, "t", &[], format!("{batch} {n}").as_bytes());
                peer.send(&(0..BATCH).flat_map(publish).collect::<Vec<u8>>());
                (0..BATCH).for_each(|_| peer.expect_ack(PUBREC, 7));
            }
            if let (Some(before), Some(after)) = (before, broker.resident_bytes()) {
                let grown = after.saturating_sub(before);
                assert!(grown < 4 << 20, "{grown} bytes for one identifier");
            }
            peer.into_raw().reset();

            let mut peer = go_on(broker, version, "peer");
            peer.publish_at(2, 7, "t", b"after a reset");
            peer.expect_ack(PUBREC, 7);
            witness.expect_message("t", b"first");
            witness.expect_only_pong();
            peer.acknowledge(PUBREL, 7);
            peer.expect_ack(PUBCOMP, 7);
            peer.deliver(2, "t", b"released");
            witness.expect_message("t", b"released");
            peer.leave();
            broker.client(version, "peer").leave();
        }
    });
}

/// [MQTT-3.3.4-7]
#[test]
fn p_05_more_open_messages_in_one_segment_than_were_announced() {
    let settings = "[sessions]\nreceive_maximum = 10\n";
    play(settings, |broker| {
        let mut peer = broker.client(Version::V5, "peer");
        let publish = |packet_id| publish(Version::V5, 0x34, packet_id, "t", &[], b"");
        peer.send(&(1..=20).flat_map(publish).collect::<Vec<u8>>());
        let mut received = Vec::new();
        while let Some(packet) = peer.next_packet() {
            received.push(packet);
        }
        let (last, before) = received.split_last().expect("it is told");
        assert_eq!(*last, packet::disconnect(Version::V5, RECEIVE_MAXIMUM_EXCEEDED));
        assert!(before.len() <= 10);
        // Accepted, whether somebody has subscribed or not.
        assert!(before.iter().all(|packet| packet[0] == PUBREC && packet.get(4).is_none_or(|r| *r < 0x80)));
    });
}

#[test]
fn p_05_clients_before_5_may_have_every_identifier_open() {
    const BATCH: usize = 500;
    let most = u16::try_from(sized(2_500, 65_000)).expect("identifiers have two bytes");
    play("[sessions]\nreceive_maximum = 10\n", |broker| {
        for version in BEFORE_5 {
            let mut peer = broker.client(*version, "peer");
            let ids: Vec<u16> = (1..=most).collect();
            for batch in ids.chunks(BATCH) {
                let publish = |id: &u16| publish(*version, 0x34, *id, "t", &[], b"");
                peer.send(&batch.iter().flat_map(publish).collect::<Vec<u8>>());
                peer.expect(&batch.iter().flat_map(|id| ack(PUBREC, *id)).collect::<Vec<u8>>());
            }
            peer.send(&ids.iter().flat_map(|id| ack(PUBREL, *id)).collect::<Vec<u8>>());
            peer.expect(&ids.iter().flat_map(|id| ack(PUBCOMP, *id)).collect::<Vec<u8>>());
            peer.leave();
        }
    });
}

#[test]
fn p_06_an_identifier_of_an_open_exchange_at_another_qos() {
    play("", |broker| {
        for version in Version::ALL {
            let mut witness = broker.client(Version::V5, "witness");
            witness.subscribe("t");
            let mut peer = broker.client(version, "peer");
            peer.publish_at(2, 7, "t", b"first");
            peer.expect_ack(PUBREC, 7);
            peer.publish_at(1, 7, "t", b"second");
            if version.is_5() {
                peer.expect(&ack_with(version, PUBACK, 7, PACKET_IDENTIFIER_IN_USE));
                peer.acknowledge(PUBREL, 7);
                peer.expect(&ack(PUBCOMP, 7));
                peer.leave();
            } else {
                peer.expect_closed();
            }
            witness.expect_message("t", b"first");
            witness.expect_only_pong();
        }
    });
}

/// [MQTT-4.9.0-1]
#[test]
fn p_07_acknowledgements_of_what_is_not_under_way() {
    let most = u16::try_from(sized(1_000, 65_535)).expect("identifiers have two bytes");
    play("", |broker| {
        for version in Version::ALL {
            let mut peer = broker.client(version, "peer");
            for packet_id in (1..=most).chain([u16::MAX]) {
                for unanswered in [PUBACK, PUBCOMP] {
                    peer.acknowledge(unanswered, packet_id);
                }
                peer.acknowledge(PUBREL, packet_id);
                peer.expect(&ack_with(version, PUBCOMP, packet_id, PACKET_IDENTIFIER_NOT_FOUND));
                peer.acknowledge(PUBREC, packet_id);
                peer.expect(&ack_with(version, PUBREL, packet_id, PACKET_IDENTIFIER_NOT_FOUND));
            }
            peer.expect_only_pong();
            peer.leave();
        }
    });
}

/// [3.1.1 MQTT-4.8.0-1]
#[test]
fn p_08_an_acknowledgement_of_the_wrong_kind_leaves_the_message() {
    play("", |broker| {
        for version in Version::ALL {
            for (qos, wrong) in [(2, PUBACK), (1, PUBREC), (2, PUBCOMP)] {
                let (mut peer, _) = resume(broker, version, "peer");
                peer.subscribe_with("t", qos);
                let mut publisher = broker.client(Version::V5, "publisher");
                publisher.deliver(qos, "t", b"hey");
                let message = peer.message();
                peer.acknowledge(wrong, message.packet_id);
                peer.expect_disconnect(PROTOCOL_ERROR);

                let mut peer = go_on(broker, version, "peer");
                assert_eq!(peer.take_message(b"hey"), Message { dup: true, ..message });
                peer.leave();
                broker.client(version, "peer").leave();
            }
        }
    });
}

#[test]
fn p_09_acknowledgements_of_every_length() {
    let mut cases = Vec::new();
    for first_byte in [PUBACK, PUBREC, PUBREL, PUBCOMP] {
        cases.push(connected(ALL, raw(&[first_byte, 0x01, 0x00]), &Answer::Malformed));
        cases.push(connected(ALL, raw(&[first_byte, 0x00]), &Answer::Malformed));
        cases.push(connected(BEFORE_5, raw(&[first_byte, 0x03, 0x00, 0x01, 0x00]), &Answer::Malformed));
        let unlisted = [first_byte, 0x03, 0x00, 0x01, 0x33];
        cases.push(connected(V5, raw(&unlisted), &Answer::ProtocolError));
    }
    for first_byte in [PUBACK, PUBCOMP] {
        let legal: [&[u8]; 4] = [
            b"\x02\x00\x01",
            b"\x03\x00\x01\x00",
            b"\x04\x00\x01\x00\x00",
            b"\x08\x00\x01\x00\x04\x1F\x00\x01r",
        ];
        cases.extend(legal.map(|rest| connected(V5, raw(&[&[first_byte], rest].concat()), &Answer::Served)));
    }
    answers(&cases.concat());
}

/// A subscriber with this Receive Maximum, at QoS 2 to `t`.
fn with_receive_maximum(broker: &Broker, receive_maximum: u16) -> Client {
    let [high, low] = receive_maximum.to_be_bytes();
    let properties = [0x21, high, low];
    let mut client =
        broker.client_with(&Connect { properties: &properties, ..Connect::new(Version::V5, "deaf") });
    client.subscribe_with("t", 2);
    client
}

/// [MQTT-3.3.4-9, MQTT-4.9.0-3]
#[test]
fn p_10_a_subscriber_that_never_acknowledges() {
    const OURS: u16 = 8;
    const WAITING: u16 = 20;
    let settings = format!(
        "[sessions]\ninflight_messages = {OURS}\nqueue_messages = {WAITING}\n[sys]\ninterval = \"1 s\"\n"
    );
    play(&settings, |broker| {
        for receive_maximum in [1, u16::MAX] {
            let mut deaf = with_receive_maximum(broker, receive_maximum);
            let mut publisher = broker.client(Version::V5, "publisher");
            let publish = |packet_id| publish(Version::V5, 0x32, packet_id, "t", &[], b"hey");
            let window = receive_maximum.min(OURS);
            publisher.send(&(1..=window + WAITING).flat_map(publish).collect::<Vec<u8>>());
            (1..=window + WAITING).for_each(|packet_id| publisher.expect_ack(PUBACK, packet_id));
            let received: Vec<Message> = (0..window).map(|_| deaf.message()).collect();
            assert!(received.iter().all(|message| message.qos == 1 && !message.dup));
            deaf.expect_only_pong();
            publisher.deliver(0, "t", b"at QoS 0");
            assert_eq!(deaf.message().payload, b"at QoS 0");
            deaf.subscribe("u");
            deaf.deliver(2, "nobody's", b"hey");
            // As many wait as may.
            publisher.send(&publish(99));
            deaf.expect_disconnect(QUOTA_EXCEEDED);
            publisher.expect_ack(PUBACK, 99);
            publisher.leave();
        }
        wait_for_sys(broker, "ended/queue_full", |count| count == 2);
    });
}

/// [3.1.1 MQTT-2.3.1-4, MQTT-2.2.1-4]
#[test]
fn p_11_identifiers_are_not_given_twice_while_they_are_in_flight() {
    const WINDOW: usize = 100;
    const BATCH: u16 = 500;
    let batches = sized(2, 140);
    play("", |broker| {
        for version in BEFORE_5 {
            let mut deaf = broker.client(*version, "deaf");
            deaf.subscribe_with("t", 1);
            let mut publisher = broker.client(*version, "publisher");
            let mut kept: Option<Message> = None;
            for _ in 0..batches {
                let publish = |packet_id| publish(*version, 0x32, packet_id, "t", &[], b"hey");
                publisher.send(&(1..=BATCH).flat_map(publish).collect::<Vec<u8>>());
                for number in 0..BATCH {
                    let message = deaf.message();
                    let is_free = kept.as_ref().is_none_or(|kept| kept.packet_id != message.packet_id);
                    assert!(is_free && !message.dup, "{number}: {message:?} while {kept:?} is in flight");
                    // The first is never acknowledged.
                    match &kept {
                        None => kept = Some(message),
                        Some(_) => deaf.acknowledge(PUBACK, message.packet_id),
                    }
                }
                (1..=BATCH).for_each(|packet_id| publisher.expect_ack(PUBACK, packet_id));
            }
            // And now nothing is acknowledged any more.
            let publish = |packet_id| publish(*version, 0x32, packet_id, "t", &[], b"hey");
            publisher.send(&(1..=BATCH).flat_map(publish).collect::<Vec<u8>>());
            let mut open: Vec<u16> = (1..WINDOW).map(|_| deaf.message().packet_id).collect();
            deaf.expect_only_pong();
            open.extend(kept.map(|message| message.packet_id));
            open.sort_unstable();
            open.dedup();
            assert_eq!(open.len(), WINDOW);
            (1..=BATCH).for_each(|packet_id| publisher.expect_ack(PUBACK, packet_id));
            deaf.leave();
        }
    });
}

/// A PUBLISH with a topic alias.
fn aliased(topic: &str, alias: u16) -> Vec<u8> {
    let [high, low] = alias.to_be_bytes();
    publish(Version::V5, 0x30, 0, topic, &[0x23, high, low], b"hey")
}

/// [MQTT-3.3.2-7, MQTT-3.3.2-8, MQTT-3.3.2-9, MQTT-3.2.2-18]
#[test]
fn p_12_topic_aliases_that_stand_for_nothing() {
    let with = |topic, alias| move |_, _: &str| aliased(topic, alias);
    answers(
        &[
            connected(V5, with("t", 0), &Answer::Reason(TOPIC_ALIAS_INVALID)),
            connected(V5, with("", 0), &Answer::Reason(TOPIC_ALIAS_INVALID)),
            connected(V5, with("t", 16), &Answer::Served),
            connected(V5, with("t", 17), &Answer::Reason(TOPIC_ALIAS_INVALID)),
            connected(V5, with("t", u16::MAX), &Answer::Reason(TOPIC_ALIAS_INVALID)),
            connected(V5, with("", 1), &Answer::ProtocolError),
        ]
        .concat(),
    );
    let none = "[limits]\ntopic_alias_maximum = 0\n";
    answers_with(none, &connected(V5, with("t", 1), &Answer::Reason(TOPIC_ALIAS_INVALID)));
    play("", |broker| {
        let (mut peer, _) = resume(broker, Version::V5, "peer");
        peer.send(&aliased("t", 1));
        peer.send(&aliased("", 1));
        peer.expect_only_pong();
        peer.leave();
        let mut peer = go_on(broker, Version::V5, "peer");
        peer.send(&aliased("", 1));
        peer.expect_disconnect(PROTOCOL_ERROR);
    });
}

/// [MQTT-3.1.2-26, MQTT-3.1.2-27]
#[test]
fn p_14_an_alias_stays_with_its_publisher() {
    play("", |broker| {
        for version in Version::ALL {
            let mut subscriber = broker.client(version, "subscriber");
            subscriber.subscribe("t");
            let mut publisher = broker.client(Version::V5, "publisher");
            publisher.send(&[aliased("t", 3), aliased("", 3), aliased("", 3)].concat());
            (0..3).for_each(|_| subscriber.expect_message("t", b"hey"));
            subscriber.expect_only_pong();
        }
    });
}

/// [MQTT-3.3.2-14, MQTT-3.3.4-6]
#[test]
fn p_15_what_only_a_server_says_and_an_answer_to_everybody() {
    let response = |topic: &'static [u8]| move |_, _: &str| publish_with(&property(0x08, topic));
    let in_will =
        |topic: &'static [u8]| move |_, id: &str| connect_with_will_properties(id, &property(0x08, topic));
    answers(
        &[
            connected(V5, |_, _| publish_with(b"\x0B\x01"), &Answer::ProtocolError),
            connected(V5, response(b"a/#"), &Answer::ProtocolError),
            connected(V5, response(b"+"), &Answer::ProtocolError),
            first(V5, in_will(b"a/+"), &Answer::ProtocolError),
            connected(V5, response(b"answers"), &Answer::Served),
        ]
        .concat(),
    );
    play("", |broker| {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("answers");
        let mut peer = broker.client(Version::V5, "peer");
        peer.send(&publish_with(&property(0x08, b"answers")));
        peer.expect_only_pong();
        witness.expect_only_pong();
    });
}

/// A PUBLISH of QoS 1 with an expiry.
fn expiring(first: u8, topic: &str, expiry_secs: u32, payload: &[u8]) -> Vec<u8> {
    let expiry = [&[0x02], &expiry_secs.to_be_bytes()[..]].concat();
    publish(Version::V5, first, 1, topic, &expiry, payload)
}

/// [MQTT-3.3.2-5, MQTT-3.3.2-6]
#[test]
fn p_16_messages_that_may_not_wait_and_others_that_may_for_ever() {
    play("", |broker| {
        let (mut absent, _) = resume(broker, Version::V5, "absent");
        absent.subscribe_with("t", 1);
        absent.leave();
        let mut present = broker.client(Version::V5, "present");
        present.subscribe_with("t", 1);
        let mut peer = broker.client(Version::V5, "peer");
        for expiry_secs in [0, u32::MAX] {
            peer.send(&expiring(0x32, "t", expiry_secs, format!("{expiry_secs}").as_bytes()));
            peer.expect_ack(PUBACK, 1);
        }
        present.take_message(b"0");
        present.take_message(format!("{}", u32::MAX).as_bytes());
        pass_seconds(broker, 1);
        let mut absent = go_on(broker, Version::V5, "absent");
        let message = absent.take_message(format!("{}", u32::MAX).as_bytes());
        let left = message.properties[1..5].try_into().map(u32::from_be_bytes).expect("it has an expiry");
        assert!(left > u32::MAX - 60, "{left} s are left");
        absent.expect_only_pong();
        absent.leave();
        broker.client(Version::V5, "absent").leave();
    });
}

#[test]
fn p_16_what_has_expired_is_gone_without_being_asked_for() {
    const MESSAGES: u64 = 500;
    play("[sys]\ninterval = \"1 s\"\n", |broker| {
        let (mut absent, _) =
            broker.greet(&Connect { properties: AN_HOUR, ..Connect::new(Version::V5, "absent") });
        absent.subscribe_with("r/+", 1);
        absent.leave();
        let mut peer = broker.client(Version::V5, "peer");
        for number in 0..MESSAGES {
            // Retained, and in the queue of a session.
            peer.send(&expiring(0x33, &format!("r/{number}"), 3, &[0; 1_000]));
            peer.expect_ack(PUBACK, 1);
        }
        wait_for_sys(broker, "expired/retained", |count| count == MESSAGES);
        wait_for_sys(broker, "account/queues/queued", |count| count == 0);
        peer.subscribe("r/+");
        peer.expect_only_pong();
        broker.client(Version::V5, "absent").leave();
    });
}

/// [MQTT-3.1.2-24, MQTT-3.1.2-25]
#[test]
fn p_17_a_client_that_takes_hardly_anything() {
    play("", |broker| {
        let mut publisher = broker.client(Version::V5, "publisher");
        for most in (1..60).chain([127, 128, 129, 130, 131, 200]) {
            let mut peer = broker.connect();
            let properties = [&[0x27], &u32::try_from(most).expect("it is small").to_be_bytes()[..]].concat();
            peer.send(&Connect { properties: &properties, ..Connect::new(Version::V5, "peer") }.bytes());
            let Some(connack) = peer.next_packet() else { continue };
            assert!(packet::is_accepted(&connack) && connack.len() <= most, "{most}: {connack:02x?}");
            peer.send(&packet::subscribe(Version::V5, 1, "t"));
            peer.expect(&packet::suback(Version::V5, 1, 0));
            let with_payload = |length| packet::publish(Version::V5, "t", &vec![b'x'; length]);
            let longest =
                (0..most).rfind(|length| with_payload(*length).len() <= most).expect("an empty one fits");
            publisher.send(&[with_payload(longest), with_payload(longest + 1), with_payload(0)].concat());
            peer.expect(&with_payload(longest));
            peer.expect(&with_payload(0));
            peer.expect_only_pong();
            peer.send(&packet::disconnect(Version::V5, 0));
            peer.expect_closed();
        }
    });
}
