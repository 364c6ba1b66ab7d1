//! Rules about topics, on every way of a message.

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, RawClient, Version};

use crate::{Place, connect, expect_nothing_before, publish};

const RULES: &str = "\
topic readwrite open/#
user ann
topic readwrite a/#
topic deny a/secret/#
topic readwrite open/#
user bob
topic read a/#
topic readwrite open/#
user cat
topic read $SYS/#
topic readwrite open/#
pattern readwrite dev/%u/%c
";

fn place() -> (Place, Broker) {
    let place = Place::new(RULES);
    let broker = place.broker("[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n");
    (place, broker)
}

#[test]
fn a_forbidden_message_is_refused_in_mqtt_5_and_acknowledged_before_and_reaches_nobody() {
    let (_place, broker) = place();
    for version in Version::ALL {
        let mut bob = connect(&broker, Version::V3_1_1, "bob");
        bob.subscribe("#");
        let refused = if version.is_5() { 0x87 } else { 0 };
        for (user, topic) in [("ann", "a/secret/x"), ("bob", "a/x"), ("ann", "b"), ("ann", "dev/bob/ann")] {
            let mut client = broker.client_with(&Connect::new(version, "p").of(user, user));
            assert_eq!(publish(&mut client, topic, b"x"), refused, "{user} {topic}");
            // At QoS 0 nothing is said.
            client.publish(topic, b"x");
            client.leave();
        }
        let mut ann = connect(&broker, version, "ann");
        assert_eq!(publish(&mut ann, "a/x", b"seen"), 0);
        bob.expect_message("a/x", b"seen");
        assert!(matches!(publish(&mut ann, "dev/ann/ann", b""), 0 | 0x10));
        expect_nothing_before(&mut bob, &mut ann);
    }
}

#[test]
fn a_subscription_is_granted_and_brings_what_its_client_may_read() {
    let (_place, broker) = place();
    for version in Version::ALL {
        let mut ann = connect(&broker, version, "ann");
        for (topic, payload) in [("a/kept", &b"kept"[..]), ("open/kept", b"open")] {
            let properties: &[u8] = if version.is_5() { &[0] } else { &[] };
            let body = [&packet::string(topic), &[0, 7][..], properties, payload].concat();
            ann.send(&packet::packet(0x33, &body));
            assert_eq!(ann.read_packet()[0], 0x40, "it is retained");
        }
        let mut cat = connect(&broker, version, "cat");
        cat.subscribe("a/#");
        cat.subscribe("open/#");
        cat.expect_retained("open/kept", b"open");
        ann.publish("a/x", b"not for cat");
        expect_nothing_before(&mut cat, &mut ann);
        cat.subscribe("$SYS/broker/version");
        assert_eq!(cat.read_packet()[0] & 0xF0, 0x30, "an explicit rule allows it");
        let mut bob = connect(&broker, version, "bob");
        bob.subscribe("$SYS/#");
        bob.subscribe("open/mark");
        expect_nothing_before(&mut bob, &mut ann);
    }
}

/// The alias stands for a topic, and the topic decides.
#[test]
fn an_alias_gives_no_right() {
    let (_place, broker) = place();
    let mut ann = connect(&broker, Version::V5, "ann");
    let alias = |packet_id: u8, topic: &str| {
        let properties = [3, 0x23, 0, 1];
        packet::packet(0x32, &[&packet::string(topic), &[0, packet_id][..], &properties, b"x"].concat())
    };
    for (packet_id, topic, reason) in
        [(1, "a/secret/x", 0x87), (2, "", 0x87), (3, "a/x", 0x10), (4, "", 0x10)]
    {
        ann.send(&alias(packet_id, topic));
        ann.expect(&[0x40, 3, 0, packet_id, reason]);
    }
}

/// The requester names it, and the answer is a message like others.
#[test]
fn a_response_topic_gives_no_right() {
    let (_place, broker) = place();
    let mut bob = connect(&broker, Version::V5, "bob");
    bob.subscribe("a/#");
    let mut cat = connect(&broker, Version::V5, "cat");
    cat.subscribe("a/#");
    let property = [&[0x08][..], &packet::string("a/answer")].concat();
    let length = u8::try_from(property.len()).expect("short");
    let request = |topic: &str| {
        packet::packet(0x30, &[&packet::string(topic), &[length][..], &property, b"?"].concat())
    };
    let mut ann = connect(&broker, Version::V5, "ann");
    ann.send(&request("a/request"));
    bob.expect(&request("a/request"));
    assert_eq!(publish(&mut ann, "a/answer", b"!"), 0);
    bob.expect_message("a/answer", b"!");
    assert_eq!(publish(&mut cat, "a/answer", b"!"), 0x87);
    cat.subscribe("open/mark");
    expect_nothing_before(&mut cat, &mut ann);
}

fn shared(broker: &Broker, version: Version, user: &str) -> Client {
    let mut client = connect(broker, version, user);
    client.send(&packet::subscribe_with(version, 1, "$share/g/a/#", 1));
    client.expect(&packet::suback(version, 1, 1));
    client
}

fn next_payload(client: &mut Client) -> Vec<u8> {
    let packet = client.read_packet();
    assert_eq!(packet[0] & 0xF0, 0x30, "{packet:02x?}");
    if packet[0] & 6 != 0 {
        let at = 4 + usize::from(packet[3]);
        client.send(&packet::packet(0x40, &packet[at..at + 2]));
    }
    packet[packet.len() - 1..].to_vec()
}

/// A member that may not read takes no message away from those who may.
#[test]
fn messages_of_a_group_go_to_members_that_may_read_them() {
    for version in Version::ALL {
        // The last message may wait in the group for a member that may read it, so each version has its own broker.
        let (_place, broker) = place();
        let (mut bob, mut cat) = (shared(&broker, version, "bob"), shared(&broker, version, "cat"));
        let mut ann = connect(&broker, version, "ann");
        for number in b'0'..=b'9' {
            assert_eq!(publish(&mut ann, "a/x", &[number]), 0);
            assert_eq!(next_payload(&mut bob), [number], "QoS 1");
            ann.publish("a/x", &[number]);
            assert_eq!(next_payload(&mut bob), [number], "QoS 0");
        }
        cat.subscribe("open/mark");
        expect_nothing_before(&mut cat, &mut ann);
        bob.leave();
        assert_eq!(publish(&mut ann, "a/x", b"x"), 0);
        expect_nothing_before(&mut cat, &mut ann);
    }
}

#[test]
fn a_will_is_published_if_its_user_may_publish_it() {
    let (_place, broker) = place();
    for version in Version::ALL {
        let mut bob = connect(&broker, version, "bob");
        bob.subscribe("#");
        for (topic, is_allowed) in [("a/secret/will", false), ("a/will", true)] {
            let will = Some(Will::new(topic, b"gone"));
            let connect = Connect { will, ..Connect::new(version, "ann").of("ann", "ann") };
            let client: RawClient = broker.client_with(&connect).into_raw();
            client.reset();
            if is_allowed {
                bob.expect_message(topic, b"gone");
            }
        }
        let mut ann = connect(&broker, version, "ann");
        expect_nothing_before(&mut bob, &mut ann);
    }
}

/// A name stands for itself, whatever characters it has.
#[test]
fn names_with_wildcards_match_no_pattern() {
    let place = Place::new("pattern readwrite dev/%c/#\npattern readwrite open/#\n");
    let broker = place.broker("");
    for (client_id, reason) in [("x", 0x10), ("#", 0x87), ("+", 0x87), ("a+b", 0x87)] {
        let mut client = broker.client_with(&Connect::new(Version::V5, client_id).of("ann", "ann"));
        assert_eq!(publish(&mut client, "dev/x/y", b""), if client_id == "x" { 0x10 } else { 0x87 });
        assert_eq!(publish(&mut client, "open/x", b""), reason, "{client_id}");
    }
    let mut client = broker.client_with(&Connect::new(Version::V5, "a/b").of("ann", "ann"));
    assert_eq!(publish(&mut client, "dev/a/b/c", b""), 0x87, "an identifier is one level");
}

/// Rules see whole topics.
#[test]
fn rules_see_the_mount_point() {
    let place = Place::new("user ann\ntopic readwrite house/door\ntopic readwrite garden\n");
    let broker = place.broker("[[listener]]\naddress = \"127.0.0.1:0\"\nmount_point = \"house/\"\n");
    let mut ann = connect(&broker, Version::V5, "ann");
    assert_eq!(publish(&mut ann, "door", b""), 0x10);
    assert_eq!(publish(&mut ann, "garden", b""), 0x87);
    ann.subscribe("#");
    ann.publish("door", b"open");
    ann.expect_message("door", b"open");
}
