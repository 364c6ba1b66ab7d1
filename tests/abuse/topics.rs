//! H: shared subscriptions. D: the broker's own topics.

use pondhawk_tests::Version;
use pondhawk_tests::packet;

use crate::packets::{filter, publish, subscribe};
use crate::stage::{ALL, Answer, V3_1, V3_1_1, V5, answers, connected, play};

/// [MQTT-4.8.2-1, MQTT-4.8.2-2]
#[test]
fn h_01_shared_filters_that_are_none() {
    let malformed: [&[u8]; 6] =
        [b"$share/", b"$share//t", b"$share/g", b"$share/g/", b"$share/+/t", b"$share/a#/t"];
    let granted = |version| Answer::Reply(packet::suback(version, 1, 0x00));
    let to = |text| move |version, _: &str| subscribe(version, &filter(text, 0));
    let mut cases: Vec<_> = Version::ALL
        .iter()
        .flat_map(|version| connected(&[*version], to(b"$share"), &granted(*version)))
        .collect();
    for text in malformed {
        cases.extend(connected(V5, to(text), &Answer::Malformed));
        cases.extend(connected(V3_1_1, to(text), &Answer::Reply(packet::suback(Version::V3_1_1, 1, 0x80))));
        // 3.1 has no code for failure.
        cases.extend(connected(V3_1, to(text), &Answer::Quiet));
    }
    answers(&cases);
}

#[test]
fn h_01_a_shared_filter_is_granted_in_every_version() {
    let to = |version, _: &str| subscribe(version, &filter(b"$share/g/t", 2));
    let granted =
        |version: &Version| connected(&[*version], to, &Answer::Reply(packet::suback(*version, 1, 2)));
    answers(&Version::ALL.iter().flat_map(granted).collect::<Vec<_>>());
}

#[test]
fn h_01_nobody_publishes_to_a_shared_filter() {
    let to = |version, _: &str| publish(version, b"$share/g/t");
    answers(&connected(ALL, to, &Answer::Served));
    play("", |broker| {
        let mut frog = broker.client(Version::V5, "frog");
        frog.subscribe("$share");
        frog.subscribe("t");
        frog.publish("$share/g/t", b"hey");
        frog.retain("$share/g/t", b"hey");
        frog.expect_only_pong();
    });
}

#[test]
fn d_01_the_brokers_own_topics_are_its_own() {
    play("", |broker| {
        for version in Version::ALL {
            let mut frog = broker.client(version, "frog");
            frog.subscribe("$SYS/x/#");
            frog.subscribe("end");
            for topic in ["$SYS", "$SYS/x", "$SYS/x/y", "$SYS/broker/version"] {
                frog.publish(topic, b"mine");
                frog.retain(topic, b"mine");
            }
            frog.retain("$SYS/broker/version", b"");
            frog.retain("end", b"");
            frog.expect_message("end", b"");
            frog.expect_only_pong();
            frog.send(&packet::subscribe(version, 7, "$SYS/broker/version"));
            frog.expect(&packet::suback(version, 7, 0));
            let told = frog.read_packet();
            assert_eq!(told[0], 0x31, "it is retained");
            assert!(
                String::from_utf8_lossy(&told).contains("Pondhawk "),
                "and nobody has changed it: {told:02x?}"
            );
            frog.expect_only_pong();
        }
    });
}
