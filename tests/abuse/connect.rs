//! C: CONNECT and AUTH.

use pondhawk_tests::packet::{self, Connect, Will, string};
use pondhawk_tests::{Broker, Client, Innocents, Options, RawClient, Version};

use crate::packets::{connect, connect_with, disconnect_with, property};
use crate::stage::{
    ALL, Answer, BEFORE_5, FROM_3_1_1, PROTOCOL_ERROR, V3_1, V3_1_1, V5, answers, connected, first, play, raw,
};

const BAD_AUTHENTICATION_METHOD: u8 = 0x8C;
const KEEP_ALIVE_TIMEOUT: u8 = 0x8D;

/// [MQTT-3.1.0-1, MQTT-3.14.0-1, 3.1.1 MQTT-3.1.0-1]
#[test]
fn c_01_a_first_packet_that_is_no_connect() {
    let packets: [&[u8]; 16] = [
        b"\x00\x00",
        b"\x20\x02\x00\x00",
        b"\x30\x03\x00\x01a",
        b"\x40\x02\x00\x01",
        b"\x50\x02\x00\x01",
        b"\x62\x02\x00\x01",
        b"\x70\x02\x00\x01",
        b"\x82\x06\x00\x01\x00\x01a\x00",
        b"\x90\x03\x00\x01\x00",
        b"\xA2\x05\x00\x01\x00\x01a",
        b"\xB0\x02\x00\x01",
        b"\xC0\x00",
        b"\xD0\x00",
        b"\xE0\x00",
        b"\xF0\x00",
        b"\x12\x00",
    ];
    answers(&packets.map(|bytes| first(V3_1_1, raw(bytes), &Answer::Quiet)).concat());
}

/// [MQTT-3.1.0-2, MQTT-3.14.4-2, MQTT-4.13.1-1, MQTT-4.13.2-1, 3.1.1 MQTT-3.1.0-2, 3.1.1 MQTT-4.8.0-1]
#[test]
fn c_02_a_second_connect() {
    play("", |broker| {
        for version in Version::ALL {
            for second_id in ["frog", "toad"] {
                let mut witness = broker.client(version, "witness");
                witness.subscribe("will");
                let will = Some(Will::new("will", b"gone"));
                let mut frog = broker.client_with(&Connect { will, ..Connect::new(version, "frog") });
                frog.send(&Connect::new(version, second_id).bytes());
                frog.expect_disconnect(PROTOCOL_ERROR);
                witness.expect_message("will", b"gone");
                witness.expect_only_pong();
            }
        }
        assert!(broker.log_lines(" connected client_id=toad").is_empty(), "no second session was made");
    });
}

/// A CONNECT that names another protocol or level.
fn other_protocol(name: &str, level: u8) -> Vec<u8> {
    packet::packet(0x10, &[string(name), vec![level, 0x02, 0x00, 0x00], string("frog")].concat())
}

/// [MQTT-3.1.2-1, 3.1.1 MQTT-3.1.2-1]
#[test]
fn c_03_another_protocol() {
    let names = ["mqtt", "MQTTX", "HTTP", "", "MQTT\u{feff}", "MQIsdp5"];
    let cases = names.map(|name| first(V3_1_1, raw(&other_protocol(name, 4)), &Answer::Quiet));
    answers(&cases.concat());
}

/// CONNECT with each of these levels gets this answer, and the connection is closed.
fn levels(name: &str, levels: &[u8], answer: &'static [u8]) {
    let answer = Answer::Exactly(answer);
    let cases = levels.iter().flat_map(|level| first(V3_1_1, raw(&other_protocol(name, *level)), &answer));
    answers(&cases.collect::<Vec<_>>());
}

/// CONNACK of 3.1.1, "unacceptable protocol version".
const UNACCEPTABLE: &[u8] = b"\x20\x02\x00\x01";
/// CONNACK of 5.0, Unsupported Protocol Version.
const UNSUPPORTED: &[u8] = b"\x20\x03\x00\x84\x00";

/// [3.1.1 MQTT-3.1.2-2]
#[test]
fn c_04_a_level_before_that_of_3_1_1() {
    levels("MQTT", &[0, 1, 2, 3], UNACCEPTABLE);
}

/// [3.1.1 MQTT-3.1.2-2]
#[test]
fn c_04_the_level_of_a_bridge() {
    levels("MQTT", &[0x83, 0x84], UNACCEPTABLE);
}

/// [3.1.1 MQTT-3.1.2-2]
#[test]
fn c_04_another_level_with_the_name_of_3_1() {
    levels("MQIsdp", &[0, 2, 4, 5, 0x83], UNACCEPTABLE);
}

/// [MQTT-3.1.2-2]
#[test]
fn c_04_a_level_after_that_of_5_0() {
    levels("MQTT", &[6, 7, 0x7F, 0x85, 0xFF], UNSUPPORTED);
}

/// [MQTT-3.1.2-3, MQTT-3.1.2-11, MQTT-3.1.2-12, MQTT-3.1.2-13, 3.1.1 MQTT-3.1.2-3, 3.1.1 MQTT-3.1.2-11,
/// 3.1.1 MQTT-3.1.2-13, 3.1.1 MQTT-3.1.2-14, 3.1.1 MQTT-3.1.2-15]
#[test]
fn c_05_connect_flags_that_contradict_each_other() {
    let flagged = |flags| move |version, id: &str| connect(version, flags, &string(id));
    let will_at_qos_3 = |version: Version, id: &str| {
        let properties: &[u8] = if version.is_5() { &[0x00] } else { &[] };
        connect(version, 0x1E, &[&string(id)[..], properties, &string("w"), &string("gone")].concat())
    };
    answers(
        &[
            first(FROM_3_1_1, flagged(0x03), &Answer::Malformed),
            first(V3_1, flagged(0x03), &Answer::Served),
            first(ALL, will_at_qos_3, &Answer::Malformed),
            // No will: a QoS, both bits of it, a retained one.
            first(ALL, flagged(0x0A), &Answer::Malformed),
            first(ALL, flagged(0x1A), &Answer::Malformed),
            first(ALL, flagged(0x22), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// [MQTT-3.1.2-9, MQTT-3.1.2-16, MQTT-3.1.2-17, MQTT-3.1.2-19, 3.1.1 MQTT-3.1.2-9, 3.1.1 MQTT-3.1.2-11,
/// 3.1.1 MQTT-3.1.2-18, 3.1.1 MQTT-3.1.2-19, 3.1.1 MQTT-3.1.2-21]
#[test]
fn c_06_fields_that_flags_announce_and_others_that_they_do_not() {
    let flagged = |flags| move |version, id: &str| connect(version, flags, &string(id));
    let one_more =
        |flags| move |version, id: &str| connect(version, flags, &[string(id), string("more")].concat());
    answers(
        &[
            first(ALL, flagged(0x06), &Answer::Malformed),
            first(FROM_3_1_1, flagged(0x82), &Answer::Malformed),
            first(FROM_3_1_1, one_more(0xC2), &Answer::Malformed),
            // In 3.1 a user name or password that is missing at the end is none.
            first(V3_1, flagged(0x82), &Answer::Served),
            first(V3_1, one_more(0xC2), &Answer::Served),
            first(ALL, one_more(0x02), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// [3.1.1 MQTT-3.1.2-22]
#[test]
fn c_07_a_password_without_a_user_name() {
    let password = |version, id: &str| connect(version, 0x42, &[string(id), string("ribbit")].concat());
    answers(&[first(BEFORE_5, password, &Answer::Quiet), first(V5, password, &Answer::Served)].concat());
}

/// [3.1.1 MQTT-3.1.3-7, 3.1.1 MQTT-3.1.3-8]
#[test]
fn c_08_an_empty_client_identifier() {
    let nameless = |flags| move |version, _: &str| connect(version, flags, &string(""));
    let refused = Answer::Exactly(b"\x20\x02\x00\x02");
    answers(
        &[
            first(V3_1_1, nameless(0x00), &refused),
            first(V3_1, nameless(0x00), &refused),
            first(V3_1, nameless(0x02), &refused),
            first(V3_1_1, nameless(0x02), &Answer::Served),
            first(V5, nameless(0x00), &Answer::Served),
            first(V5, nameless(0x02), &Answer::Served),
        ]
        .concat(),
    );
}

/// The Assigned Client Identifier of a CONNACK.
fn assigned(connack: &[u8]) -> String {
    let begins = |bytes: &[u8]| bytes[0] == 0x12 && bytes[3..].starts_with(b"auto-");
    let place = connack.windows(8).position(begins).expect("an identifier was assigned");
    let length = usize::from(u16::from_be_bytes([connack[place + 1], connack[place + 2]]));
    String::from_utf8(connack[place + 3..][..length].to_vec()).expect("an identifier is text")
}

/// [MQTT-3.1.3-6, MQTT-3.1.3-7, MQTT-3.2.2-16]
#[test]
fn c_08_an_assigned_client_identifier_cannot_be_guessed_and_is_not_in_use() {
    play("", |broker| {
        let connections: Vec<(RawClient, String)> = (0..20)
            .map(|_| {
                let mut connection = broker.connect();
                connection.send(&Connect::new(Version::V5, "").bytes());
                let client_id = assigned(&connection.read_packet());
                (connection, client_id)
            })
            .collect();
        for (number, (_, client_id)) in connections.iter().enumerate() {
            let others = connections[..number].iter().map(|(_, other)| other);
            // Two of them have hardly more in common than any two random numbers.
            let alike = |other: &String| other.chars().zip(client_id.chars()).filter(|(a, b)| a == b).count();
            assert!(
                client_id.len() >= 32 && others.into_iter().all(|other| alike(other) < 20),
                "{client_id}"
            );
        }
    });
}

/// [MQTT-3.1.3-8, MQTT-3.1.4-6, MQTT-3.2.2-7, MQTT-4.13.2-1, 3.1.1 MQTT-3.1.3-9, 3.1.1 MQTT-3.1.4-5,
/// 3.1.1 MQTT-3.2.2-5]
#[test]
fn c_09_nothing_behind_a_refused_connect_is_processed() {
    play("", |broker| {
        for version in Version::ALL {
            let mut witness = broker.client(version, "witness");
            witness.subscribe("t/#");
            let client_id = "f".repeat(2_000);
            let will = Some(Will::new("t/will", b"gone"));
            let connect = Connect { will, ..Connect::new(version, &client_id) }.bytes();
            let behind = [packet::subscribe(version, 1, "t/#"), packet::publish(version, "t/a", b"hey")];
            let mut peer = broker.connect();
            peer.send(&[&connect, &behind[0], &behind[1]].map(Vec::as_slice).concat());
            peer.expect(if version.is_5() { b"\x20\x03\x00\x85\x00" } else { b"\x20\x02\x00\x02" });
            peer.expect_closed();
            witness.expect_only_pong();
        }
    });
}

/// [MQTT-4.13.1-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn c_10_packets_that_only_a_server_sends() {
    let packets: [&[u8]; 6] = [
        b"\x20\x02\x00\x00",
        b"\x20\x03\x00\x00\x00",
        b"\x29\x02\x00\x01",
        b"\x90\x03\x00\x01\x00",
        b"\xB0\x02\x00\x01",
        b"\xD0\x00",
    ];
    answers(&packets.map(|bytes| connected(ALL, raw(bytes), &Answer::ProtocolError)).concat());
}

/// [MQTT-4.12.0-1, MQTT-4.12.0-7]
#[test]
fn c_11_authentication_that_nobody_has_asked_for() {
    let with =
        |properties: Vec<u8>| move |version, id: &str| connect_with(version, 0x02, &properties, &string(id));
    let method = || property(0x15, b"SCRAM-SHA-1");
    let data = || property(0x16, b"n,,n=frog");
    answers(
        &[
            first(V5, with(data()), &Answer::ProtocolError),
            first(V5, with(method()), &Answer::Reason(BAD_AUTHENTICATION_METHOD)),
            first(V5, with([method(), data()].concat()), &Answer::Reason(BAD_AUTHENTICATION_METHOD)),
            connected(V5, raw(b"\xF0\x00"), &Answer::ProtocolError),
            connected(
                V5,
                raw(&packet::packet(0xF0, &[&[0x19, 0x0E][..], &method()].concat())),
                &Answer::ProtocolError,
            ),
            connected(BEFORE_5, raw(b"\xF0\x00"), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// The broker has no methods, so that every AUTH is one too many, whatever it says. [MQTT-4.12.0-6, MQTT-4.12.0-7]
#[test]
fn c_12_authentication_on_a_connection_without_a_method() {
    let auth = |reason: u8, properties: &[u8]| {
        let length = u8::try_from(properties.len()).expect("they are short");
        packet::packet(0xF0, &[&[reason, length][..], properties].concat())
    };
    let (method, data) = (property(0x15, b"PLAIN"), property(0x16, &[0; 100]));
    let both = [method.clone(), data].concat();
    answers(
        &[
            connected(V5, raw(&auth(0x00, &[])), &Answer::ProtocolError),
            connected(V5, raw(&auth(0x18, &both)), &Answer::ProtocolError),
            connected(V5, raw(&auth(0x19, &both)), &Answer::ProtocolError),
            connected(V5, raw(&auth(0x18, &method)), &Answer::ProtocolError),
            // No AUTH has this reason. [MQTT-3.15.2-1]
            connected(V5, raw(&auth(0x55, &method)), &Answer::ProtocolError),
        ]
        .concat(),
    );
    // Packets behind a CONNECT with a method are not handled.
    play("", |broker| {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("pond");
        let mut frog = broker.connect();
        let connect = connect_with(Version::V5, 0x02, &method, &string("frog"));
        let rounds = packet::packet(0xF0, &[&[0x18, 8][..], &method].concat()).repeat(100);
        frog.send(&[connect, packet::publish(Version::V5, "pond", b"fish"), rounds].concat());
        assert_eq!(frog.read_packet()[3], BAD_AUTHENTICATION_METHOD);
        frog.expect_closed();
        witness.expect_only_pong();
    });
}

/// [MQTT-3.14.2-1]
#[test]
fn c_14_a_disconnect_that_is_not_valid_leaves_the_will() {
    // A session expiry after none in CONNECT, a reason that only servers have, one that nobody has.
    let packets =
        [disconnect_with(0x00, b"\x11\x00\x00\x00\x05"), vec![0xE0, 0x01, 0x8E], vec![0xE0, 0x01, 0x33]];
    play("", |broker| {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("will");
        for bytes in &packets {
            let will = Some(Will::new("will", b"gone"));
            let mut frog = broker.client_with(&Connect { will, ..Connect::new(Version::V5, "frog") });
            frog.send(bytes);
            frog.expect_disconnect(PROTOCOL_ERROR);
            witness.expect_message("will", b"gone");
            witness.expect_only_pong();
        }
    });
}

/// Clients in all versions that say this after CONNECT, and nothing more: all are ended for their keep alive.
fn end_for_silence(broker: &Broker, keep_alive_secs: u16, last_words: &[u8]) {
    let mut witness = broker.client(Version::V3_1_1, "witness");
    witness.subscribe("will/+");
    let mut clients = Version::ALL.map(|version| {
        let (client_id, topic) = (format!("silent {version}"), format!("will/{version}"));
        let will = Some(Will::new(&topic, b"gone"));
        let mut client =
            broker.client_with(&Connect { will, keep_alive_secs, ..Connect::new(version, &client_id) });
        client.send(last_words);
        client
    });
    clients.iter_mut().for_each(|client| client.expect_disconnect(KEEP_ALIVE_TIMEOUT));
    let mut wills = [(); 3].map(|()| witness.read_packet());
    wills.sort();
    let mut expected =
        Version::ALL.map(|version| packet::publish(Version::V3_1_1, &format!("will/{version}"), b"gone"));
    expected.sort();
    assert_eq!(wills, expected);
    witness.expect_only_pong();
}

/// [MQTT-3.1.2-22, MQTT-3.2.2-22, 3.1.1 MQTT-3.1.2-24]
#[test]
fn c_15_silence_for_one_and_a_half_times_the_keep_alive() {
    play("", |broker| end_for_silence(broker, 1, b""));
}

/// [MQTT-3.1.2-22, 3.1.1 MQTT-3.1.2-24]
#[test]
fn c_15_the_beginning_of_a_packet_is_no_sign_of_life() {
    play("", |broker| end_for_silence(broker, 1, b"\x30\xFF\x7F\x00"));
}

/// [MQTT-3.1.2-21, MQTT-3.2.2-21]
#[test]
fn c_16_no_keep_alive_and_a_long_one_where_there_is_a_maximum() {
    let settings = "[limits]\nkeep_alive = \"1 s\"\n".to_owned();
    for shards in [1, 4] {
        // Without innocent clients: they would have to ping for their lives.
        let broker = Broker::start(&Options { shards, settings: settings.clone(), ..Options::default() });
        let mut clients: Vec<Client> = Version::ALL
            .into_iter()
            .flat_map(|version| [0, u16::MAX].map(|keep_alive_secs| (version, keep_alive_secs)))
            .map(|(version, keep_alive_secs)| {
                let client_id = format!("silent {version} {keep_alive_secs}");
                broker.client_with(&Connect { keep_alive_secs, ..Connect::new(version, &client_id) })
            })
            .collect();
        clients.iter_mut().for_each(|client| client.expect_disconnect(KEEP_ALIVE_TIMEOUT));
    }
}

/// [MQTT-3.12.4-1, 3.1.1 MQTT-3.12.4-1]
#[test]
fn c_17_pings_whose_answers_are_never_read() {
    /// While the broker reads, it makes progress in each of this number of rounds.
    const ROUNDS_IN_VAIN: u32 = 500;
    play("", |broker| {
        let before = broker.resident_bytes();
        let mut deaf = broker.client(Version::V3_1_1, "deaf");
        deaf.narrow();
        let mut innocents = Innocents::connect(broker, "others");
        let pings = [0xC0, 0x00].repeat(32 * 1_024);
        let (mut sent, mut in_vain) = (0, 0);
        while in_vain < ROUNDS_IN_VAIN {
            // From where the last round stopped: inside a packet, perhaps.
            let taken = innocents.notice_nothing_of(|| deaf.send_what_fits(&pings[sent % 2..]));
            sent += taken;
            in_vain = if taken == 0 { in_vain + 1 } else { 0 };
        }
        if let (Some(before), Some(after)) = (before, broker.resident_bytes()) {
            let grown = after.saturating_sub(before);
            assert!(grown < 4 << 20, "{grown} bytes for {} pings", sent / 2);
        }
        // Now they are read.
        deaf.expect(&[0xD0, 0x00].repeat(sent / 2));
        deaf.send(&pings[sent % 2..2]);
        deaf.expect(&[0xD0, 0x00].repeat(sent % 2));
    });
}
