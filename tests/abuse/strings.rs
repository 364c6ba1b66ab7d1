//! S: strings and topics.

use pondhawk_tests::packet::{self, Connect, string};
use pondhawk_tests::{Version, in_log, until};

use crate::packets::{
    connect, connect_with, connect_with_will, connect_with_will_properties, disconnect_with, filter,
    property, publish, publish_with, subscribe, unsubscribe,
};
use crate::stage::{ALL, Answer, BEFORE_5, Case, V3_1, V3_1_1, V5, answers, connected, first, play};

const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
const TOPIC_FILTER_INVALID: u8 = 0x8F;
const TOPIC_NAME_INVALID: u8 = 0x90;

/// Versions, and how to make a packet for one of them and a client identifier.
type Made<'a> = (&'a [Version], &'a dyn Fn(Version, &str) -> Vec<u8>);

/// Returns packets with these bytes in each field that is a string.
fn cases_for_each_string_field(text: &[u8]) -> Vec<Case> {
    let field = packet::binary(text);
    let with_user_name = |version, id: &str| connect(version, 0x82, &[&string(id)[..], &field].concat());
    let method = property(0x15, text);
    let pair =
        |name: &[u8], value: &[u8]| [&[0x26], &packet::binary(name)[..], &packet::binary(value)].concat();
    let in_connect: [Made<'_>; 6] = [
        (ALL, &|version, _| connect(version, 0x02, &field)),
        (ALL, &with_user_name),
        (ALL, &|version, id| connect_with_will(version, id, text, b"gone")),
        (V5, &|version, id| connect_with(version, 0x02, &method, &string(id))),
        (V5, &|_, id| connect_with_will_properties(id, &property(0x03, text))),
        (V5, &|_, id| connect_with_will_properties(id, &pair(b"name", text))),
    ];
    let after: [Made<'_>; 8] = [
        (ALL, &|version, _| publish(version, text)),
        (ALL, &|version, _| subscribe(version, &filter(text, 0))),
        (ALL, &|version, _| unsubscribe(version, &field)),
        (V5, &|_, _| publish_with(&property(0x03, text))),
        (V5, &|_, _| publish_with(&property(0x08, text))),
        (V5, &|_, _| publish_with(&pair(text, b"value"))),
        (V5, &|_, _| publish_with(&pair(b"name", text))),
        (V5, &|_, _| disconnect_with(0, &property(0x1F, text))),
    ];
    let in_connect =
        in_connect.into_iter().flat_map(|(versions, bytes)| first(versions, bytes, &Answer::Malformed));
    let after =
        after.into_iter().flat_map(|(versions, bytes)| connected(versions, bytes, &Answer::Malformed));
    in_connect.chain(after).collect()
}

/// Returns packets with these bytes in each field that is binary data.
fn cases_for_each_binary_field(data: &[u8]) -> Vec<Case> {
    let field = packet::binary(data);
    let with_password =
        |version, id: &str| connect(version, 0xC2, &[string(id), string("king"), field.clone()].concat());
    [
        first(ALL, with_password, &Answer::Served),
        first(ALL, |version, id| connect_with_will(version, id, b"w", data), &Answer::Served),
        connected(ALL, |version, _| packet::publish(version, "t", data), &Answer::Served),
        connected(V5, |_, _| publish_with(&property(0x09, data)), &Answer::Served),
    ]
    .concat()
}

/// [MQTT-1.5.4-1, MQTT-1.5.7-1, MQTT-3.1.3-4, MQTT-3.1.3-11, MQTT-3.1.3-12, MQTT-3.3.2-1, MQTT-3.3.2-13,
/// MQTT-3.3.2-19, MQTT-3.8.3-1, MQTT-3.10.3-1, 3.1.1 MQTT-1.5.3-1, 3.1.1 MQTT-3.1.3-4, 3.1.1 MQTT-3.1.3-10,
/// 3.1.1 MQTT-3.1.3-11, 3.1.1 MQTT-3.3.2-1, 3.1.1 MQTT-3.8.3-1, 3.1.1 MQTT-3.10.3-1]
#[test]
fn s_01_ill_formed_utf_8() {
    let ill_formed: [&[u8]; 6] =
        [b"\xFF", b"\xC0\x80", b"a\x80", b"\xE2\x82", b"\xF5\x80\x80\x80", b"\xED\xA0\x80"];
    let bad = ill_formed.into_iter().flat_map(cases_for_each_string_field);
    let good = ill_formed.into_iter().flat_map(cases_for_each_binary_field);
    answers(&bad.chain(good).collect::<Vec<_>>());
}

/// [MQTT-1.5.4-2, MQTT-4.7.3-2, 3.1.1 MQTT-1.5.3-2, 3.1.1 MQTT-4.7.3-2]
#[test]
fn s_02_u_0000() {
    let bad = cases_for_each_string_field(b"fr\0g");
    answers(&[bad, cases_for_each_binary_field(b"fr\0g")].concat());
}

#[test]
fn s_03_control_characters_and_noncharacters_are_forwarded_unaltered() {
    let odd = "\u{1}\u{1f}\u{7f}\u{9f}\u{fffe}\r\n";
    play("", |broker| {
        for version in Version::ALL {
            let client_id = format!("{odd}{version}");
            let mut frog = broker.client(version, &client_id);
            frog.subscribe(odd);
            frog.subscribe("+");
            frog.publish(odd, b"hey");
            frog.expect_message(odd, b"hey");
            frog.leave();
            let line = broker.wait_for_log(&format!("disconnected client_id={}", in_log(&client_id)));
            assert!(line.ends_with("why=\"the client disconnected\""), "one line: {line}");
        }
    });
}

/// [MQTT-1.5.4-3, MQTT-4.7.3-4, 3.1.1 MQTT-1.5.3-3, 3.1.1 MQTT-4.7.3-4]
#[test]
fn s_04_names_that_look_alike_are_different() {
    // A byte order mark, one letter or two code points for it, cases, empty levels.
    let names = ["\u{feff}a", "a", "\u{e9}", "e\u{301}", "E\u{301}", "A", "/", "//", "a/", "/a"];
    play("", |broker| {
        for version in Version::ALL {
            for own in names {
                let mut frog = broker.client(version, "frog");
                frog.subscribe(own);
                for name in names {
                    frog.publish(name, name.as_bytes());
                }
                frog.expect_message(own, own.as_bytes());
                frog.expect_only_pong();
                frog.leave();
            }
            let mut frog = broker.client(version, "frog");
            frog.subscribe("a/#");
            frog.subscribe("+/+");
            for (name, is_for_frog) in [("a", true), ("/", true), ("a/", true), ("//", false), ("A", false)] {
                frog.publish(name, b"hey");
                if is_for_frog {
                    frog.expect_message(name, b"hey");
                }
                frog.expect_only_pong();
            }
        }
    });
}

/// [MQTT-4.7.3-1, 3.1.1 MQTT-4.7.3-1]
#[test]
fn s_05_an_empty_topic() {
    let empty = |version, _: &str| publish(version, b"");
    answers(&connected(ALL, empty, &Answer::ProtocolError));
}

/// [MQTT-3.3.2-2, MQTT-4.7.0-1, 3.1.1 MQTT-3.3.2-2, 3.1.1 MQTT-4.7.1-1]
#[test]
fn s_06_a_wildcard_in_a_topic() {
    let names: [&[u8]; 4] = [b"#", b"a/+", b"a+b", b"+/a#"];
    let in_publish =
        names.map(|name| connected(ALL, |version, _| publish(version, name), &Answer::Malformed));
    let in_will = names.map(|name| {
        first(ALL, |version, id| connect_with_will(version, id, name, b"gone"), &Answer::Malformed)
    });
    answers(&[in_publish.concat(), in_will.concat()].concat());
}

/// [MQTT-4.7.1-1, MQTT-4.7.1-2, MQTT-4.7.3-1, 3.1.1 MQTT-4.7.1-2, 3.1.1 MQTT-4.7.1-3, 3.1.1 MQTT-4.7.3-1]
#[test]
fn s_07_a_filter_that_is_none() {
    let filters: [&[u8]; 7] = [b"a#", b"#/a", b"a/#/b", b"a+", b"+a/b", b"++", b""];
    let subscribed = filters
        .map(|text| connected(ALL, |version, _| subscribe(version, &filter(text, 0)), &Answer::Malformed));
    let unsubscribed = filters.map(|text| {
        connected(ALL, |version, _| unsubscribe(version, &packet::binary(text)), &Answer::Malformed)
    });
    // One bad filter among good ones spoils all of them.
    let among = [filter(b"a", 0), filter(b"a#", 0), filter(b"b", 0)].concat();
    let among = connected(ALL, |version, _| subscribe(version, &among), &Answer::Malformed);
    answers(&[subscribed.concat(), unsubscribed.concat(), among].concat());
}

/// [MQTT-4.7.2-1, 3.1.1 MQTT-4.7.2-1]
#[test]
fn s_08_topics_that_begin_with_a_dollar_are_hidden_from_leading_wildcards() {
    play("", |broker| {
        for version in Version::ALL {
            let mut frog = broker.client(version, "frog");
            frog.subscribe("+/x");
            frog.subscribe("+");
            // From here on the innocent ones are heard too.
            frog.send(&packet::subscribe(version, 3, "#"));
            let mut heard = || {
                let packet = frog.read_packet();
                let is_innocent = packet.windows(9).any(|bytes| bytes == b"innocent/");
                (!is_innocent).then_some(packet)
            };
            assert_eq!(until("SUBACK", &mut heard), packet::suback(version, 3, 0));
            let mut toad = broker.client(version, "toad");
            toad.subscribe("$foo/#");
            for topic in ["$foo/x", "$", "$/x", "$foo"] {
                toad.publish(topic, b"hey");
            }
            toad.expect_message("$foo/x", b"hey");
            toad.expect_message("$foo", b"hey");
            toad.publish("end", b"");
            assert_eq!(until("the end", &mut heard), packet::publish(version, "end", b""));
        }
    });
}

#[test]
fn s_09_more_levels_than_there_may_be() {
    let deep = "/".repeat(65_535);
    let deep = deep.as_bytes();
    let deep_will = |version, id: &str| connect_with_will(version, id, &deep[..30_000], b"gone");
    let subscribed = |version, _: &str| subscribe(version, &filter(deep, 0));
    let failure = |version, code| Answer::Reply(packet::suback(version, 1, code));
    answers(
        &[
            connected(ALL, |version, _| publish(version, deep), &Answer::Served),
            connected(V5, subscribed, &failure(V5[0], TOPIC_FILTER_INVALID)),
            connected(V3_1_1, subscribed, &failure(V3_1_1[0], 0x80)),
            connected(V3_1, subscribed, &Answer::Quiet),
            first(V5, deep_will, &Answer::Reason(TOPIC_NAME_INVALID)),
            first(BEFORE_5, deep_will, &Answer::Quiet),
        ]
        .concat(),
    );
}

/// [MQTT-3.1.3-8, 3.1.1 MQTT-3.1.3-9]
#[test]
fn s_10_a_client_identifier_is_opaque_and_has_a_bound() {
    play("", |broker| {
        let kilobyte = "k".repeat(1_000);
        let odd = ["../../x", "'; --", "<b>", "#", "+", "$SYS", "a/b", "%n", " ", kilobyte.as_str()];
        for version in Version::ALL {
            let mut clients = odd.map(|client_id| (client_id, broker.client(version, client_id)));
            for (client_id, client) in &mut clients {
                client.subscribe("t");
                client.publish("t", client_id.as_bytes());
                client.expect_message("t", client_id.as_bytes());
                client.unsubscribe("t");
                client.expect_only_pong();
            }
        }
    });
    let longest = "k".repeat(65_535);
    let refused = Answer::Refused(CLIENT_IDENTIFIER_NOT_VALID, 0x02);
    let user_name = |version, id: &str| connect(version, 0x82, &[string(id), string(&longest)].concat());
    answers(
        &[
            first(ALL, |version, _| Connect::new(version, &longest).bytes(), &refused),
            first(ALL, user_name, &Answer::Served),
        ]
        .concat(),
    );
}
