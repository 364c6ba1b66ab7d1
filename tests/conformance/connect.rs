//! CONNECT and CONNACK (sections 3.1 and 3.2), and authentication (4.12).

use pondhawk_tests::packet::{self, Connect, Will, string};
use pondhawk_tests::{Broker, RawClient, Version};
use wire::{Connected, Decoded, Limits, Packet, Role, decode};

use crate::peer::{
    BOTH, Conversation, V3_1_1, V5, ack, filter, in_each, in_each_with, lasting, lose, publish, request,
    resume, session_present,
};

/// A CONNECT with these flags and, behind the keep alive and no properties, these bytes.
fn connect(version: Version, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = string("MQTT");
    body.extend([version.protocol_level(), flags, 0x00, 0x00]);
    body.extend(version.is_5().then_some(0x00));
    body.extend(payload);
    packet::packet(0x10, &body)
}

/// Properties, none, where the version has them.
fn no_properties(version: Version) -> &'static [u8] {
    if version.is_5() { &[0x00] } else { &[] }
}

fn greet(broker: &Broker, connect: &[u8]) -> (RawClient, Vec<u8>) {
    let mut connection = broker.connect();
    connection.send(connect);
    let connack = connection.read_packet();
    (connection, connack)
}

/// The CONNACK, as `wire` decodes it.
fn read_connack<T>(version: Version, connack: &[u8], look: impl FnOnce(wire::ConnAck<'_>) -> T) -> T {
    let limits = Limits { max_packet_bytes: connack.len(), sender: Some(Role::Server) };
    match decode(connack, Some(version), &limits) {
        Ok(Decoded::Packet { packet: Packet::ConnAck(connack), .. }) => look(connack),
        other => panic!("no CONNACK: {other:?}"),
    }
}

/// [MQTT-3.1.4-5, MQTT-3.2.0-1, MQTT-3.2.0-2, MQTT-3.2.2-1, 3.1.1 MQTT-3.1.4-4, 3.1.1 MQTT-3.2.0-1]
#[test]
fn connack_comes_first_and_once_whatever_else_is_waiting() {
    in_each(BOTH, |broker, version| {
        let (mut frog, _) = resume(broker, version, "frog");
        frog.subscribe_with("t", 1);
        frog.leave();
        broker.client(version, "toad").deliver(1, "t", b"waiting");
        let mut frog = broker.connect();
        let behind = [request(version, 0x82, 7, &[], &filter("u", 0)), vec![0xC0, 0x00]].concat();
        frog.send(&[lasting(version, "frog").bytes(), behind].concat());
        let connack = frog.read_packet();
        assert!(packet::is_accepted(&connack), "{connack:02x?}");
        assert_eq!(connack[2], 0x01, "Session Present and no other flag");
        let mut firsts = [0; 3].map(|_| frog.read_packet()[0]);
        firsts.sort_unstable();
        assert_eq!(firsts, [0x32, 0x90, 0xD0], "the message, SUBACK and PINGRESP");
    });
}

/// [MQTT-3.1.3-5, 3.1.1 MQTT-3.1.3-5]
#[test]
fn client_identifiers_of_1_to_23_letters_and_digits_are_accepted() {
    let all: String = ('0'..='9').chain('a'..='z').chain('A'..='Z').collect();
    let identifiers = ["a", "7", "Z", &all[..23], &all[20..43], &all[39..]];
    in_each(BOTH, |broker, version| {
        for client_id in identifiers {
            broker.client(version, client_id).leave();
        }
    });
}

/// [MQTT-3.1.3-1, 3.1.1 MQTT-3.1.3-1]
#[test]
fn the_fields_of_the_payload_are_taken_in_their_order() {
    in_each(BOTH, |broker, version| {
        let mut witness = broker.client(version, "witness");
        witness.subscribe("second");
        let none = no_properties(version).to_vec();
        let fields = ["first", "second", "third", "fourth", "fifth"].map(string);
        let [client_id, topic, payload, user_name, password] = fields;
        let all = [client_id, none, topic, payload, user_name, password].concat();
        let (frog, connack) = greet(broker, &connect(version, 0xC6, &all));
        assert!(packet::is_accepted(&connack));
        // Somebody of that identifier ends it, and the will is published.
        let twin = broker.client(version, "first");
        witness.expect_message("second", b"third");
        drop((frog, twin));
    });
}

/// [MQTT-3.1.3-3, MQTT-3.1.4-1, MQTT-3.14.0-1, 3.1.1 MQTT-3.1.3-3, 3.1.1 MQTT-3.1.4-1]
#[test]
fn a_connect_without_a_client_identifier_field_is_refused() {
    in_each(BOTH, |broker, version| {
        let mut frog = broker.connect();
        frog.send(&connect(version, 0x02, &[]));
        frog.expect(if version.is_5() { b"\x20\x03\x00\x81\x00" } else { b"" });
        frog.expect_closed();
    });
}

/// [3.1.1 MQTT-3.1.3-6, MQTT-3.1.3-6]
#[test]
fn clients_without_an_identifier_do_not_take_over_from_each_other() {
    in_each(BOTH, |broker, version| {
        let mut nameless = [0, 1, 2].map(|_| broker.client(version, ""));
        for client in &mut nameless {
            client.subscribe("t");
        }
        broker.client(version, "toad").publish("t", b"hey");
        for client in &mut nameless {
            client.expect_message("t", b"hey");
        }
    });
}

/// [MQTT-3.1.3-7]
#[test]
fn an_assigned_client_identifier_is_as_good_as_an_own_one() {
    in_each(V5, |broker, version| {
        let (mut frog, connack) = broker.greet(&lasting(version, ""));
        let client_id = read_connack(version, &connack, |connack| {
            connack.properties.assigned_client_identifier.expect("it was assigned").as_str().to_owned()
        });
        frog.subscribe_with("t", 1);
        frog.leave();
        let (mut frog, is_present) = resume(broker, version, &client_id);
        assert!(is_present, "the session of {client_id}");
        broker.client(version, "toad").publish("t", b"hey");
        frog.expect_message("t", b"hey");
    });
}

/// The will is too large: a further check that fails, of a client whose session is there. [MQTT-3.1.4-2, MQTT-3.1.4-6,
/// MQTT-3.2.2-6, MQTT-3.2.2-7, MQTT-4.13.2-1, 3.1.1 MQTT-3.1.4-5, 3.1.1 MQTT-3.2.2-4, 3.1.1 MQTT-3.2.2-5]
#[test]
fn a_refusal_says_no_session_present_and_closes() {
    in_each_with("[limits]\nwill_bytes = 100\n", BOTH, |broker, version| {
        let (frog, _) = resume(broker, version, "frog");
        frog.leave();
        let will = Some(Will::new("will", &[b'x'; 200]));
        let connect = Connect { will, ..lasting(version, "frog") }.bytes();
        let mut frog = broker.connect();
        frog.send(&[&connect[..], &[0xC0, 0x00]].concat());
        let refused: &[u8] = if version.is_5() { b"\x20\x03\x00\x97\x00" } else { b"\x20\x02\x00\x03" };
        frog.expect(refused);
        frog.expect_closed();
        assert!(resume(broker, version, "frog").1, "the session has taken no harm");
    });
}

/// [MQTT-3.2.2-9, MQTT-3.2.2-10]
#[test]
fn every_qos_is_served_and_none_is_named_as_the_highest() {
    in_each(V5, |broker, version| {
        let (mut frog, connack) = broker.greet(&Connect::new(version, "frog"));
        read_connack(version, &connack, |connack| assert_eq!(connack.properties.maximum_qos, None));
        for qos in [0, 1, 2] {
            frog.subscribe_with("t", qos);
            broker.client(version, "toad").deliver(qos, "t", b"hey");
            assert_eq!(frog.take_message(b"hey").qos, qos);
        }
    });
}

/// [MQTT-3.2.2-12, MQTT-3.2.2-13]
#[test]
fn a_will_at_every_qos_and_a_retained_one_are_served() {
    in_each(V5, |broker, version| {
        let mut witness = broker.client(version, "witness");
        witness.subscribe_with("will", 0x0A);
        for (qos, retain) in [(0, 0), (1, 0x20), (2, 0x20)] {
            let fields = [string("frog"), vec![0x00], string("will"), string("gone")].concat();
            let (frog, connack) = greet(broker, &connect(version, 0x06 | qos << 3 | retain, &fields));
            read_connack(version, &connack, |connack| {
                assert!(matches!(connack.outcome, Connected::Accepted { .. }));
                assert_eq!(connack.properties.retain_available, None);
            });
            frog.reset();
            let message = witness.take_message(b"gone");
            assert_eq!((message.qos, message.retain), (qos, retain != 0));
        }
    });
}

/// [MQTT-3.1.2-28]
#[test]
fn response_information_is_given_to_nobody_who_did_not_ask() {
    in_each(V5, |broker, version| {
        for properties in [&b""[..], b"\x19\x00"] {
            let (_, connack) = broker.greet(&Connect { properties, ..Connect::new(version, "frog") });
            read_connack(version, &connack, |connack| {
                assert!(connack.properties.response_information.is_none());
            });
        }
    });
}

/// [MQTT-4.12.0-6, MQTT-4.12.0-7]
#[test]
fn without_an_authentication_method_there_is_no_auth() {
    in_each(V5, |broker, version| {
        let (mut frog, connack) = broker.greet(&Connect::new(version, "frog"));
        read_connack(version, &connack, |connack| {
            assert!(connack.properties.authentication_method.is_none());
            assert!(connack.properties.authentication_data.is_none());
        });
        frog.expect_only_pong();
        frog.send(b"\xF0\x00");
        frog.expect_disconnect(0x82);
    });
}

/// [MQTT-4.12.0-1, MQTT-3.1.4-6, MQTT-4.13.2-1]
#[test]
fn an_unknown_authentication_method_is_refused_whatever_comes_behind() {
    in_each(V5, |broker, version| {
        let method = [&[0x15][..], &string("SCRAM-SHA-1")].concat();
        let mut witness = broker.client(version, "witness");
        witness.subscribe("t");
        let connect = Connect { properties: &method, ..Connect::new(version, "frog") }.bytes();
        let mut frog = broker.connect();
        frog.send(&[connect, packet::publish(version, "t", b"hey")].concat());
        frog.expect(b"\x20\x03\x00\x8C\x00");
        frog.expect_closed();
        witness.expect_only_pong();
    });
}

/// As large as the CONNACK is at least, and no larger: a Reason String or a User Property would be too much.
/// [MQTT-3.1.2-24, MQTT-3.2.2-19, MQTT-3.2.2-20]
#[test]
fn a_connack_is_not_larger_than_the_client_takes() {
    in_each_with("[limits]\nwill_bytes = 100\n", V5, |broker, version| {
        let will = Some(Will::new("will", &[b'x'; 200]));
        let refused = Connect { will, properties: b"\x27\x00\x00\x00\x05", ..Connect::new(version, "frog") };
        let (mut frog, connack) = greet(broker, &refused.bytes());
        assert_eq!(connack, b"\x20\x03\x00\x97\x00");
        frog.expect_closed();
        let (_, connack) = broker.greet(&Connect::new(version, "frog"));
        let length = u8::try_from(connack.len()).expect("it is short");
        for (maximum, is_let_in) in [(length, true), (length - 1, false)] {
            let properties = [0x27, 0x00, 0x00, 0x00, maximum];
            let mut frog = broker.connect();
            frog.send(&Connect { properties: &properties, ..Connect::new(version, "frog") }.bytes());
            match frog.next_packet() {
                Some(connack) => {
                    assert!(is_let_in && connack.len() <= usize::from(maximum), "{connack:02x?}");
                }
                None => assert!(!is_let_in),
            }
        }
    });
}

/// Every kind of answer, to a client that takes no larger packet than the CONNACK it got and wants no problem
/// information. [MQTT-3.1.2-29, MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.5.2-2, MQTT-3.5.2-3, MQTT-3.6.2-2, MQTT-3.6.2-3,
/// MQTT-3.7.2-2, MQTT-3.7.2-3, MQTT-3.9.2-1, MQTT-3.9.2-2, MQTT-3.11.2-1, MQTT-3.11.2-2, MQTT-3.14.2-3, MQTT-3.14.2-4]
#[test]
fn answers_have_no_reason_string_and_no_user_property() {
    in_each_with("[limits]\ntopic_levels = 2\n", V5, |broker, version| {
        let (_, connack) =
            broker.greet(&Connect { properties: b"\x17\x00", ..Connect::new(version, "frog") });
        let maximum = u8::try_from(connack.len()).expect("it is short");
        let properties = [0x17, 0x00, 0x27, 0x00, 0x00, 0x00, maximum];
        let mut frog =
            broker.client_with(&Connect { properties: &properties, ..Connect::new(version, "frog") });
        let exchanges: [(Vec<u8>, &[u8]); 8] = [
            (publish(version, 0x32, 1, "$SYS/x", &[], b"hey"), b"\x40\x03\x00\x01\x90"),
            (publish(version, 0x34, 1, "$SYS/x", &[], b"hey"), b"\x50\x03\x00\x01\x90"),
            (publish(version, 0x34, 1, "t", &[], b"hey"), b"\x50\x03\x00\x01\x10"),
            (ack(0x62, 1), b"\x70\x02\x00\x01"),
            (ack(0x62, 7), b"\x70\x03\x00\x07\x92"),
            (ack(0x50, 7), b"\x62\x03\x00\x07\x92"),
            (request(version, 0x82, 7, &[], &filter("a/b/c", 0)), b"\x90\x04\x00\x07\x00\x8F"),
            (request(version, 0xA2, 7, &[], &string("a/b")), b"\xB0\x04\x00\x07\x00\x11"),
        ];
        for (sent, answer) in exchanges {
            frog.send(&sent);
            frog.expect(answer);
        }
        frog.send(b"\x20\x00");
        frog.expect_disconnect(0x82);
    });
}

/// [MQTT-3.1.4-3, MQTT-3.1.4-4, MQTT-3.14.2-2, MQTT-3.14.4-2, 3.1.1 MQTT-3.1.4-2, 3.1.1 MQTT-3.1.4-3]
#[test]
fn a_client_with_the_same_identifier_takes_over_and_clean_start_is_obeyed() {
    in_each(BOTH, |broker, version| {
        let (mut old, _) = resume(broker, version, "frog");
        old.subscribe_with("t", 1);
        let (new, is_present) = resume(broker, version, "frog");
        assert!(is_present, "it goes on with the session");
        old.expect_disconnect(0x8E);
        let clean = Connect { clean_start: true, ..lasting(version, "frog") };
        let (mut newest, connack) = broker.greet(&clean);
        let mut new = new;
        new.expect_disconnect(0x8E);
        assert!(!session_present(&connack), "it begins another");
        newest.subscribe("u");
        let mut toad = broker.client(version, "toad");
        toad.deliver(1, "t", b"for nobody");
        toad.publish("u", b"hey");
        newest.expect_message("u", b"hey");
    });
}

/// TCP carries it. [MQTT-4.2-1, 3.1.1 MQTT-7.1.1-1]
#[test]
fn a_megabyte_arrives_as_it_was_sent_in_both_directions() {
    in_each(BOTH, |broker, version| {
        let payload: Vec<u8> =
            (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        let mut frog = broker.client(version, "frog");
        frog.subscribe("t");
        frog.publish("t", &payload);
        frog.expect_message("t", &payload);
        frog.expect_only_pong();
    });
}

/// Will Flag 0. [3.1.1 MQTT-3.1.2-12]
#[test]
fn without_a_will_nothing_is_published() {
    in_each(V3_1_1, |broker, version| {
        let mut witness = broker.client(version, "witness");
        witness.subscribe("#");
        lose(broker.client(version, "frog"));
        // A retained message takes the way of wills, and would come behind one.
        broker.client(version, "toad").retain("end", b"");
        witness.expect_message("end", b"");
    });
}

/// [MQTT-3.1.3-2, 3.1.1 MQTT-3.1.3-2]
#[test]
fn a_session_belongs_to_its_client_identifier_and_to_no_other() {
    in_each(BOTH, |broker, version| {
        let (frog, _) = resume(broker, version, "frog");
        frog.leave();
        for other in ["Frog", "frog2", "fro", "toad"] {
            assert!(!resume(broker, version, other).1, "{other}");
        }
        assert!(resume(broker, version, "frog").1);
    });
}
