//! `$SYS/broker/…`, under the names that Mosquitto gave them.

use std::collections::BTreeSet;

use pondhawk_tests::{Client, Version, until};

use crate::brokers;

/// Topics below `$SYS/broker/` that Mosquitto 2.0 publishes and dashboards read.
const MOSQUITTO: &[&str] = &[
    "bytes/received",
    "bytes/sent",
    "clients/active",
    "clients/connected",
    "clients/disconnected",
    "clients/expired",
    "clients/inactive",
    "clients/maximum",
    "clients/total",
    "messages/received",
    "messages/sent",
    "messages/stored",
    "publish/bytes/received",
    "publish/bytes/sent",
    "publish/messages/dropped",
    "publish/messages/received",
    "publish/messages/sent",
    "retained messages/count",
    "shared_subscriptions/count",
    "store/messages/bytes",
    "store/messages/count",
    "subscriptions/count",
    "uptime",
    "version",
];

/// Those that stand below `$SYS/broker/load/` with an average over 1, 5 and 15 minutes each.
const MOSQUITTO_LOADS: &[&str] = &[
    "bytes/received",
    "bytes/sent",
    "connections",
    "messages/received",
    "messages/sent",
    "publish/dropped",
    "publish/received",
    "publish/sent",
    "sockets",
];

/// The next message of a 3.1.1 client at QoS 0: its topic and payload.
fn message(client: &mut Client) -> (String, String) {
    let packet = client.read_packet();
    let body = match packet[1] {
        0..0x80 => &packet[2..],
        _ => &packet[3..],
    };
    let (length, rest) = body.split_at(2);
    let (topic, payload) = rest.split_at(usize::from(u16::from_be_bytes([length[0], length[1]])));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("$SYS is text");
    (text(topic), text(payload))
}

#[test]
fn every_topic_of_mosquitto_is_there() {
    let plain = MOSQUITTO.iter().map(|name| format!("$SYS/broker/{name}"));
    let loads = MOSQUITTO_LOADS
        .iter()
        .flat_map(|name| [1, 5, 15].map(|minutes| format!("$SYS/broker/load/{name}/{minutes}min")));
    let all: BTreeSet<String> = plain.chain(loads).collect();
    for broker in brokers("") {
        let mut missing = all.clone();
        let mut frog = broker.client(Version::V3_1_1, "frog");
        frog.subscribe("$SYS/#");
        until("every topic is there", || {
            let (topic, payload) = message(&mut frog);
            missing.remove(&topic);
            match topic.as_str() {
                "$SYS/broker/version" => assert!(payload.starts_with("Pondhawk "), "{payload}"),
                "$SYS/broker/uptime" => assert!(payload.ends_with(" seconds"), "{payload}"),
                "$SYS/broker/journal/durability" => assert_eq!(payload, "fsync"),
                _ => assert!(payload.parse::<f64>().is_ok(), "{topic} {payload}"),
            }
            missing.is_empty().then_some(())
        });
    }
}

#[test]
fn counters_follow_what_happens() {
    for broker in brokers("[sys]\ninterval = \"1 s\"\n") {
        let mut frog = broker.client(Version::V3_1_1, "frog");
        let mut toads =
            [Version::V3_1, Version::V5].map(|version| broker.client(version, &version.to_string()));
        toads.iter_mut().for_each(|toad| toad.subscribe("a"));
        let mut publisher = broker.client(Version::V5, "publisher");
        publisher.publish("a", b"hey");
        toads.iter_mut().for_each(|toad| toad.expect_message("a", b"hey"));
        publisher.send(&[0x30, 0x00]);
        publisher.expect_disconnect(0x81);
        let mut missing: BTreeSet<String> = [
            "clients/connected 3",
            "clients/maximum 3",
            "subscriptions/count 3",
            "publish/messages/received 1",
            "ended/malformed 1",
        ]
        .map(|line| format!("$SYS/broker/{line}"))
        .into();
        frog.subscribe("$SYS/broker/#");
        until("the counters are right", || {
            let (topic, payload) = message(&mut frog);
            missing.remove(&format!("{topic} {payload}"));
            missing.is_empty().then_some(())
        });
    }
}
