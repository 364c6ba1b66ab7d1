//! Limits of clients and servers: packet sizes and topic aliases (sections 3.1.2.11 and 3.3.2.3.4).

use std::collections::BTreeMap;

use pondhawk_tests::packet::{self, Connect, string};
use pondhawk_tests::{Broker, Client};

use crate::peer::{
    BOTH, Conversation, PUBACK, PUBREC, PUBREL, V5, ack, in_each, in_each_with, lasting, lose, publish,
    request,
};

/// [MQTT-3.1.2-24, MQTT-3.1.2-25]
#[test]
fn a_message_that_is_too_large_for_the_client_counts_as_delivered() {
    const MAXIMUM: usize = 200;
    in_each(V5, |broker, version| {
        let properties = b"\x11\x00\x00\x0E\x10\x27\x00\x00\x00\xC8";
        let connect = Connect { properties, ..lasting(version, "frog") };
        let (mut frog, connack) = broker.greet(&connect);
        assert!(connack.len() <= MAXIMUM);
        frog.subscribe_with("t", 2);
        let mut toad = broker.client(version, "toad");
        for qos in [0, 1, 2] {
            let overhead = publish(version, 0x30 | qos << 1, 1, "t", &[], &[0; 150]).len() - 150;
            let fits = vec![b'x'; MAXIMUM - overhead];
            toad.deliver(qos, "t", &[&fits[..], b"y"].concat());
            toad.deliver(qos, "t", &fits);
            assert_eq!(frog.take_message(&fits).qos, qos);
        }
        frog.expect_only_pong();
        lose(frog);
        let (mut frog, _) = broker.greet(&connect);
        frog.expect_only_pong();
        // And for who was away when it came.
        frog.leave();
        toad.deliver(1, "t", &[b'x'; MAXIMUM]);
        toad.deliver(1, "t", b"small");
        let (mut frog, _) = broker.greet(&connect);
        frog.take_message(b"small");
        frog.expect_only_pong();
    });
}

/// Reads a PUBLISH and says which topic it is for, with the aliases of its connection.
fn resolve(client: &mut Client, aliases: &mut BTreeMap<u16, String>, maximum: u16) -> String {
    let message = client.message();
    let Some(alias) = alias_of(&message.properties) else { return message.topic };
    assert!((1..=maximum).contains(&alias), "alias {alias}");
    if !message.topic.is_empty() {
        aliases.insert(alias, message.topic);
    }
    aliases.get(&alias).expect("an alias that was explained").clone()
}

fn alias_of(properties: &[u8]) -> Option<u16> {
    match properties {
        [] => None,
        [0x23, high, low] => Some(u16::from_be_bytes([*high, *low])),
        other => panic!("no properties but an alias were sent: {other:02x?}"),
    }
}

/// Topics as sensors have them: few, long, and again and again.
const TOPICS: [&str; 4] = [
    "a/rather/long/topic/of/sensor/1",
    "a/rather/long/topic/of/sensor/2",
    "a/rather/long/topic/of/sensor/3",
    "a/rather/long/topic/of/sensor/4",
];

fn subscriber(broker: &Broker, properties: &[u8]) -> Client {
    let mut frog = broker.client_with(&Connect { properties, ..Connect::new(V5[0], "frog") });
    frog.subscribe_with("#", 0);
    frog
}

/// [MQTT-3.1.2-26, MQTT-3.3.2-8, MQTT-3.3.2-11]
#[test]
fn topic_aliases_towards_a_client_stay_within_its_maximum_and_mean_what_they_said() {
    in_each(V5, |broker, version| {
        let mut frog = subscriber(broker, b"\x22\x00\x02");
        let mut toad = broker.client(version, "toad");
        let mut aliases = BTreeMap::new();
        for round in 0..40 {
            let topic = TOPICS[(round * 7 + round / 3) % TOPICS.len()];
            toad.publish(topic, b"hey");
            assert_eq!(resolve(&mut frog, &mut aliases, 2), topic);
        }
        assert!(!aliases.is_empty(), "without any, this has shown nothing");
    });
}

/// [MQTT-3.1.2-27]
#[test]
fn a_client_that_takes_no_topic_aliases_gets_none() {
    in_each(V5, |broker, version| {
        let mut toad = broker.client(version, "toad");
        for properties in [&b""[..], b"\x22\x00\x00"] {
            let mut frog = subscriber(broker, properties);
            for round in 0..40 {
                let topic = TOPICS[round % 2];
                toad.send(&packet::publish_with(version, 0x30, topic, b"\x23\x00\x01", b"hey"));
                frog.expect_message(topic, b"hey");
            }
            frog.leave();
        }
    });
}

/// [MQTT-3.3.2-12]
#[test]
fn every_topic_alias_up_to_the_servers_maximum_is_accepted() {
    in_each_with("[limits]\ntopic_alias_maximum = 50\n", V5, |broker, version| {
        let mut toad = broker.client(version, "toad");
        toad.subscribe("#");
        for alias in 1..=50 {
            let topic = format!("t/{alias}");
            toad.send(&packet::publish_with(version, 0x30, &topic, &[0x23, 0x00, alias], b"first"));
            toad.expect_message(&topic, b"first");
        }
        for alias in (1..=50).rev() {
            toad.send(&packet::publish_with(version, 0x30, "", &[0x23, 0x00, alias], b"again"));
            toad.expect_message(&format!("t/{alias}"), b"again");
        }
    });
}

/// [MQTT-3.2.2-17, MQTT-3.2.2-18, MQTT-3.3.2-9]
#[test]
fn a_topic_alias_above_the_servers_maximum_ends_the_connection() {
    for (settings, alias) in
        [("[limits]\ntopic_alias_maximum = 0\n", 1), ("[limits]\ntopic_alias_maximum = 5\n", 6)]
    {
        in_each_with(settings, V5, |broker, version| {
            let mut toad = broker.client(version, "toad");
            toad.send(&packet::publish_with(version, 0x30, "t", &[0x23, 0x00, alias], b"hey"));
            toad.expect_disconnect(0x94);
        });
    }
}

/// The Server Keep Alive is absent, and the client's own counts: nobody else is disconnected. [MQTT-3.2.2-22,
/// MQTT-3.1.2-22, 3.1.1 MQTT-3.1.2-24]
#[test]
fn a_client_that_is_silent_for_too_long_is_disconnected_and_nobody_else() {
    in_each(BOTH, |broker, version| {
        let connect =
            |client_id, keep_alive_secs| Connect { keep_alive_secs, ..Connect::new(version, client_id) };
        let mut silent = broker.client_with(&connect("silent", 1));
        let mut patient = broker.client_with(&connect("patient", 60));
        let mut without = broker.client_with(&connect("without", 0));
        silent.expect_disconnect(0x8D);
        patient.expect_only_pong();
        without.expect_only_pong();
    });
}

/// Every acknowledgement has the identifier it was asked with, in the shortest form. [MQTT-2.2.1-5, MQTT-2.2.2-1]
#[test]
fn acknowledgements_of_success_are_as_short_as_they_may_be() {
    in_each(V5, |broker, version| {
        let mut frog = broker.client(version, "frog");
        frog.subscribe_with("t", 0);
        frog.send(&publish(version, 0x32, 258, "t", &[], b"one"));
        let mut answers = [frog.read_packet(), frog.read_packet()];
        answers.sort();
        assert_eq!(answers, [packet::publish(version, "t", b"one"), ack(PUBACK, 258)]);
        frog.send(&publish(version, 0x34, 258, "u", &[], b"two"));
        frog.expect_ack(PUBREC, 258);
        frog.send(&ack(PUBREL, 258));
        frog.expect(&ack(0x70, 258));
        frog.send(&request(version, 0xA2, 258, &[], &string("t")));
        frog.expect(b"\xB0\x04\x01\x02\x00\x00");
    });
}
