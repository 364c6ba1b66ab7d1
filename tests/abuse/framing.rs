//! F: framing and lengths.

use std::thread;

use pondhawk_tests::packet::{self, Connect, Will, variable_byte_integer};
use pondhawk_tests::{RawClient, Version};
use wire::Role;
use wire::table::{Expected, cases};

use crate::packets::{
    self, connect_with_will_properties, disconnect_with, property, publish_with, subscribe_with, unsubscribe,
};
use crate::stage::{
    ALL, Answer, BEFORE_5, FROM_3_1_1, V3_1, V3_1_1, V5, answers, answers_with, connected, first, play, raw,
};

const PACKET_TOO_LARGE: u8 = 0x95;

/// [MQTT-4.13.1-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn f_01_a_remaining_length_of_five_bytes() {
    answers(
        &[
            connected(ALL, raw(b"\x30\xFF\xFF\xFF\xFF\x01"), &Answer::Malformed),
            connected(ALL, raw(b"\x30\xFF\xFF\xFF\xFF"), &Answer::Malformed),
            first(ALL, raw(b"\x10\x80\x80\x80\x80\x01"), &Answer::Quiet),
            first(ALL, raw(b"\x10\x80\x80\x80\x80"), &Answer::Quiet),
        ]
        .concat(),
    );
}

/// [MQTT-1.5.5-1]
#[test]
fn f_02_a_length_that_is_not_the_shortest() {
    let pong = || Answer::Reply(vec![0xD0, 0x00]);
    answers(
        &[
            connected(V5, raw(b"\xC0\x80\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\xC0\x80\x00"), &pong()),
            connected(V5, raw(b"\x30\x05\x00\x01a\x80\x00"), &Answer::Malformed),
            first(V5, raw(b"\x10\x0E\x00\x04MQTT\x05\x02\x00\x00\x80\x00\x00\x00"), &Answer::Malformed),
        ]
        .concat(),
    );
}

#[test]
fn f_03_memory_follows_what_has_come_and_not_what_is_announced() {
    const SOCKETS: usize = 200;
    let settings = "[limits]\nconnect_timeout = \"1 h\"\n";
    play(settings, |broker| {
        // Above the limit they are refused, below it they wait for the rest of a CONNECT, or of a PUBLISH.
        let refused = || (broker.connect(), &b"\x10\xFF\xFF\xFF\x7F\x00\x04MQTT"[..]);
        let waiting = || (broker.connect(), &b"\x10\xFF\xFF\x0F\x00\x04MQTT"[..]);
        let before = broker.resident_bytes();
        for _ in 0..SOCKETS {
            let (mut peer, bytes) = refused();
            peer.send(bytes);
            peer.expect_closed();
        }
        let begin = |(mut peer, bytes): (RawClient, &[u8])| {
            peer.send(bytes);
            peer
        };
        let half_connected: Vec<RawClient> = (0..SOCKETS).map(|_| begin(waiting())).collect();
        let half_published: Vec<RawClient> = (0..SOCKETS)
            .map(|number| {
                let client = broker.client(Version::V3_1_1, &format!("half {number}"));
                begin((client.into_raw(), b"\x30\xF0\xFF\x7F\x00\x01tthe beginning"))
            })
            .collect();
        if let (Some(before), Some(after)) = (before, broker.resident_bytes()) {
            // Announced are 450 MB.
            let grown = after.saturating_sub(before);
            assert!(grown < 16 << 20, "{grown} bytes for {} sockets", 2 * SOCKETS);
        }
        drop((half_connected, half_published));
    });
}

/// [MQTT-3.1.0-1, 3.1.1 MQTT-3.1.0-1]
#[test]
fn f_04_a_huge_first_packet_that_is_no_connect_is_refused_at_its_first_byte() {
    let first_bytes = [&b"\x82\xFF\xFF\xFF\x7F"[..], b"\x30\xFF\xFF\xFF\x7F", b"\x82", b"\x30"];
    answers(&first_bytes.map(|bytes| first(V3_1_1, raw(bytes), &Answer::Quiet)).concat());
}

/// [MQTT-3.2.2-15]
#[test]
fn f_05_a_packet_of_one_byte_too_many_is_refused_at_its_fixed_header() {
    let fixed_header = raw(b"\x30\xCE\x0F");
    answers_with(
        "[limits]\npacket_bytes = 2000\n",
        &connected(ALL, fixed_header, &Answer::Reason(PACKET_TOO_LARGE)),
    );
    let whole = |version, _: &str| packet::publish(version, "t", &[0; 2_000]);
    answers_with(
        "[limits]\npacket_bytes = 2000\n",
        &connected(ALL, whole, &Answer::Reason(PACKET_TOO_LARGE)),
    );
}

/// The good packets of clients, each cut after each byte, with a Remaining Length that fits.
fn cut_packets() -> Vec<(Version, bool, Vec<u8>)> {
    let good = cases()
        .filter(|case| case.sender == Role::Client && matches!(case.expected, Expected::Packet { .. }));
    let mut all = Vec::new();
    for case in good {
        let header = 1 + case.bytes[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
        for version in case.versions {
            for end in header..case.bytes.len() {
                let cut = packet::packet(case.bytes[0], &case.bytes[header..end]);
                all.push((*version, case.is_first, cut));
            }
        }
    }
    all
}

#[test]
fn f_06_a_packet_that_was_cut_is_never_waited_for() {
    const PEERS: usize = 16;
    let cut_packets = cut_packets();
    play("", |broker| {
        thread::scope(|scope| {
            for peer in 0..PEERS {
                let own = cut_packets.iter().skip(peer).step_by(PEERS);
                scope.spawn(move || {
                    for (version, is_first, cut) in own {
                        let mut peer = if *is_first {
                            broker.connect()
                        } else {
                            broker.client(*version, &format!("peer {peer}")).into_raw()
                        };
                        peer.send(cut);
                        peer.send(&[0xC0, 0x00]);
                        // The PINGREQ is answered, or the connection is closed: nothing swallows it.
                        while peer.next_packet().is_some_and(|packet| packet != [0xD0, 0x00]) {}
                    }
                });
            }
        });
    });
}

/// [MQTT-3.1.4-1, MQTT-4.13.1-1, 3.1.1 MQTT-3.1.4-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn f_06_fields_beyond_their_packet() {
    answers(
        &[
            connected(ALL, raw(b"\x30\x07\xFF\xFFABCDE"), &Answer::Malformed),
            connected(ALL, raw(b"\x32\x05\x00\x03abc"), &Answer::Malformed),
            connected(ALL, raw(b"\x30\x01\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\x82\x05\x00\x01\x00\x01a"), &Answer::Malformed),
            connected(V5, raw(b"\x82\x06\x00\x01\x00\x00\x01a"), &Answer::Malformed),
            connected(ALL, raw(b"\x40\x01\x00"), &Answer::Malformed),
            first(BEFORE_5, raw(b"\x10\x04\x00\x06MQ"), &Answer::Quiet),
            first(BEFORE_5, |version, _| packets::connect(version, 0x02, b"\x00\x05frog"), &Answer::Quiet),
            first(V5, |version, _| packets::connect(version, 0x02, b"\x00\x05frog"), &Answer::Malformed),
        ]
        .concat(),
    );
}

#[test]
fn f_06_at_the_edges_of_a_read() {
    play("", |broker| {
        for edge in [1_024, 65_536] {
            for before in 1..12 {
                let mut frog = broker.client(Version::V5, "frog");
                frog.subscribe("t");
                // The second packet begins `before` bytes before the edge; the third is malformed.
                let overhead = packet::publish(Version::V5, "t", &[b'x'; 900]).len() - 900
                    + variable_byte_integer(edge).len()
                    - 2;
                let filler = vec![b'x'; edge - before - overhead];
                let packets = [&filler[..], b"hey"].map(|payload| packet::publish(Version::V5, "t", payload));
                frog.send(&[&packets.concat()[..], b"\x30\x07\xFF\xFFABCDE"].concat());
                frog.expect_message("t", &filler);
                frog.expect_message("t", b"hey");
                frog.expect_disconnect(0x81);
            }
        }
    });
}

/// [MQTT-3.1.4-1, MQTT-4.13.1-1, 3.1.1 MQTT-3.1.4-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn f_07_bytes_behind_the_last_field() {
    answers(
        &[
            connected(ALL, raw(b"\xC0\x01\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\xE0\x01\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\x40\x03\x00\x01\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\x50\x03\x00\x01\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\x62\x03\x00\x01\x00"), &Answer::Malformed),
            connected(BEFORE_5, raw(b"\x70\x03\x00\x01\x00"), &Answer::Malformed),
            connected(V5, raw(b"\x40\x05\x00\x01\x00\x00\x00"), &Answer::Malformed),
            connected(ALL, |version, _| unsubscribe(version, b"\x00\x01a\x00"), &Answer::Malformed),
            first(BEFORE_5, |version, _| packets::connect(version, 0x02, b"\x00\x01c\x00"), &Answer::Quiet),
            first(V5, |version, _| packets::connect(version, 0x02, b"\x00\x01c\x00"), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// [MQTT-4.13.1-1]
#[test]
fn f_08_properties_that_do_not_end_where_they_should() {
    answers(
        &[
            // A Property Length of five bytes, then a Subscription Identifier of five bytes.
            connected(V5, raw(b"\x30\x08\x00\x01a\x80\x80\x80\x80\x01"), &Answer::Malformed),
            connected(
                V5,
                |v, _| subscribe_with(v, b"\x0B\xFF\xFF\xFF\xFF\x01", b"\x00\x01a\x00"),
                &Answer::Malformed,
            ),
            // A block beyond the packet.
            connected(V5, raw(b"\x30\x06\x00\x01a\x20\x01\x01"), &Answer::Malformed),
            first(V5, raw(b"\x10\x0D\x00\x04MQTT\x05\x02\x00\x00\x7F\x00\x00"), &Answer::Malformed),
            // A block that ends inside a value.
            connected(V5, |_, _| publish_with(b"\x02\x00\x00"), &Answer::Malformed),
            connected(V5, |_, _| publish_with(b"\x26\x00\x01n\x00"), &Answer::Malformed),
            connected(V5, |_, _| publish_with(b"\x03\x00\x05text"), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// [MQTT-4.13.1-1]
#[test]
fn f_09_a_property_that_does_not_exist_or_not_here() {
    let server_reference = property(0x1C, b"elsewhere");
    answers(
        &[
            connected(V5, |_, _| publish_with(b"\x7F\x00"), &Answer::Malformed),
            connected(V5, |_, _| publish_with(b"\x00"), &Answer::Malformed),
            connected(V5, |_, _| publish_with(b"\xFF\xFF\xFF\x7F"), &Answer::Malformed),
            connected(V5, |_, _| publish_with(&server_reference), &Answer::Malformed),
            connected(V5, |v, _| subscribe_with(v, &server_reference, b"\x00\x01a\x00"), &Answer::Malformed),
            first(V5, |_, id| connect_with_will_properties(id, &server_reference), &Answer::Malformed),
            first(V5, |_, id| connect_with_will_properties(id, b"\x23\x00\x01"), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// [MQTT-4.13.1-1]
#[test]
fn f_10_a_property_that_may_be_there_once() {
    // Of CONNECT: session expiry, receive maximum, packet size, aliases, response and problem information, method, data.
    let of_connect: [&[u8]; 8] = [
        b"\x11\x00\x00\x00\x05",
        b"\x21\x00\x05",
        b"\x27\x00\x00\x05\x00",
        b"\x22\x00\x05",
        b"\x19\x01",
        b"\x17\x01",
        b"\x15\x00\x01m",
        b"\x15\x00\x01m\x16\x00\x01d\x16\x00\x01d",
    ];
    // Of a message: payload format, expiry, content type, response topic, correlation data.
    let of_message: [&[u8]; 5] =
        [b"\x01\x01", b"\x02\x00\x00\x00\x05", b"\x03\x00\x01c", b"\x08\x00\x01r", b"\x09\x00\x01d"];
    let twice = |property: &[u8]| property.repeat(2);
    let mut cases = vec![
        connected(V5, |_, _| publish_with(&twice(b"\x23\x00\x01")), &Answer::ProtocolError),
        connected(
            V5,
            |v, _| subscribe_with(v, &twice(b"\x0B\x01"), b"\x00\x01a\x00"),
            &Answer::ProtocolError,
        ),
        connected(V5, |_, _| disconnect_with(0, &twice(b"\x1F\x00\x01r")), &Answer::ProtocolError),
        connected(V5, |_, _| publish_with(&twice(b"\x26\x00\x01n\x00\x01v")), &Answer::Served),
        first(
            V5,
            |_, id| connect_with_will_properties(id, &twice(b"\x18\x00\x00\x00\x05")),
            &Answer::ProtocolError,
        ),
    ];
    for property in of_connect {
        let connect =
            |version, id: &str| packets::connect_with(version, 0x02, &twice(property), &packet::string(id));
        cases.push(first(V5, connect, &Answer::ProtocolError));
    }
    for property in of_message {
        cases.push(connected(V5, |_, _| publish_with(&twice(property)), &Answer::ProtocolError));
        let will = |_, id: &str| connect_with_will_properties(id, &twice(property));
        cases.push(first(V5, will, &Answer::ProtocolError));
    }
    answers(&cases.concat());
}

/// [MQTT-4.13.1-1]
#[test]
fn f_11_a_value_out_of_range() {
    // Receive maximum, packet size, response and problem information.
    let of_connect: [&[u8]; 4] = [b"\x21\x00\x00", b"\x27\x00\x00\x00\x00", b"\x19\x02", b"\x17\x02"];
    let mut cases = vec![
        connected(V5, |_, _| publish_with(b"\x01\x02"), &Answer::ProtocolError),
        connected(V5, |v, _| subscribe_with(v, b"\x0B\x00", b"\x00\x01a\x00"), &Answer::ProtocolError),
        first(V5, |_, id| connect_with_will_properties(id, b"\x01\x02"), &Answer::ProtocolError),
    ];
    for property in of_connect {
        let connect = |version, id: &str| packets::connect_with(version, 0x02, property, &packet::string(id));
        cases.push(first(V5, connect, &Answer::ProtocolError));
    }
    answers(&cases.concat());
}

/// [MQTT-2.1.3-1, MQTT-3.6.1-1, MQTT-3.8.1-1, MQTT-3.10.1-1, MQTT-3.14.1-1, MQTT-3.15.1-1,
/// 3.1.1 MQTT-2.2.2-1, 3.1.1 MQTT-2.2.2-2, 3.1.1 MQTT-3.6.1-1, 3.1.1 MQTT-3.8.1-1, 3.1.1 MQTT-3.10.1-1,
/// 3.1.1 MQTT-3.14.1-1]
#[test]
fn f_12_a_packet_type_that_does_not_exist_or_wrong_flags() {
    let mut cases = vec![
        connected(ALL, raw(b"\x00"), &Answer::Malformed),
        connected(BEFORE_5, raw(b"\xF0"), &Answer::Malformed),
        connected(V5, raw(b"\xF1"), &Answer::Malformed),
    ];
    // At the first byte.
    for byte in [0x41, 0x60, 0x80, 0xA0, 0xC1, 0xE1] {
        cases.push(connected(FROM_3_1_1, raw(&[byte]), &Answer::Malformed));
    }
    // 3.1 has DUP in some of them, and does not look at the rest.
    cases.push(connected(
        V3_1,
        raw(b"\x8A\x06\x00\x01\x00\x01a\x00"),
        &Answer::Reply(packet::suback(V3_1[0], 1, 0)),
    ));
    cases.push(connected(V3_1, raw(b"\xC1\x00"), &Answer::Reply(vec![0xD0, 0x00])));
    answers(&cases.concat());
}

#[test]
fn f_13_whole_packets_before_the_end_of_the_stream_are_processed() {
    const PACKETS: u32 = 1_000;
    play("", |broker| {
        for version in Version::ALL {
            let mut witness = broker.client(Version::V5, "witness");
            witness.subscribe("t/#");
            let will = Some(Will::new("t/will", b"gone"));
            let mut peer = broker.client_with(&Connect { will, ..Connect::new(version, "peer") });
            let publish = |number: u32| packet::publish(version, "t/count", number.to_string().as_bytes());
            let whole: Vec<u8> = (0..PACKETS).flat_map(publish).collect();
            peer.send(&[&whole[..], &publish(PACKETS)[..5]].concat());
            peer.finish();
            for number in 0..PACKETS {
                witness.expect_message("t/count", number.to_string().as_bytes());
            }
            witness.expect_message("t/will", b"gone");
            witness.expect_only_pong();
            peer.expect_closed();
        }
    });
}

/// [MQTT-3.14.4-1, MQTT-3.14.4-3, 3.1.1 MQTT-3.14.4-2, 3.1.1 MQTT-3.14.4-3]
#[test]
fn f_14_nothing_behind_a_disconnect_is_processed() {
    play("", |broker| {
        for version in Version::ALL {
            let mut witness = broker.client(Version::V5, "witness");
            witness.subscribe("t/#");
            let will = Some(Will::new("t/will", b"gone"));
            let mut peer = broker.client_with(&Connect { will, ..Connect::new(version, "peer") });
            let publish = |payload: &[u8]| packet::publish(version, "t/last", payload);
            peer.send(&[publish(b"before"), packet::disconnect(version, 0), publish(b"after")].concat());
            peer.finish();
            peer.expect_closed();
            witness.expect_message("t/last", b"before");
            // A retained message takes the way of wills, and would come behind one.
            broker.client(version, "another").retain("t/end", b"");
            witness.expect_message("t/end", b"");
        }
    });
}

#[test]
fn f_15_noise() {
    // A browser gets a page that says what listens there:
    // `protocols_that_a_listener_does_not_speak_are_refused_with_a_reason`.
    let noise: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 1883\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x00\x00\x00",
        b"\xFF\xFE\xFD\xFC\xFB",
    ];
    answers(&noise.map(|bytes| first(V3_1_1, raw(bytes), &Answer::Quiet)).concat());
}
