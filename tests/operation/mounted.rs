//! Listeners with a mount point: their clients use short names for the topics below it, and reach no others.

use std::net::SocketAddr;

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, RawClient, Version};

use crate::{addresses, brokers};

/// The listeners of a broker: without a mount point, and with one.
struct Place {
    _broker: Broker,
    everywhere: SocketAddr,
    house: SocketAddr,
    shed: SocketAddr,
}

fn places() -> impl Iterator<Item = Place> {
    let listener = |keys: &str| format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{keys}");
    let mounts = ["", "mount_point = \"house/\"\n", "mount_point = \"shed/\"\n"];
    brokers(&mounts.map(listener).concat()).map(|broker| {
        let [everywhere, house, shed] = addresses(&broker);
        Place { _broker: broker, everywhere, house, shed }
    })
}

fn client(address: SocketAddr, version: Version, client_id: &str) -> Client {
    Client::connect(address, &Connect::new(version, client_id))
}

fn subscribe(client: &mut Client, filter: &str) {
    let version = client.version();
    client.send(&packet::subscribe_with(version, 1, filter, 2));
    client.expect(&packet::suback(version, 1, 2));
}

fn publish(client: &mut Client, qos: u8, topic: &str) {
    let properties: &[u8] = if client.version().is_5() { &[0] } else { &[] };
    let packet_id: &[u8] = if qos > 0 { &[0, 9] } else { &[] };
    let body = [&packet::string(topic), packet_id, properties, b"hey"].concat();
    client.send(&packet::packet(0x30 | qos << 1, &body));
}

/// Publishes at QoS 1, and reads PUBACK.
fn publish_and_wait(client: &mut Client, topic: &str) {
    publish(client, 1, topic);
    assert_eq!(client.read_packet()[0], 0x40);
}

/// The topic of the next message. Everything is acknowledged.
fn heard(client: &mut Client) -> String {
    loop {
        let packet = client.read_packet();
        let at = 2 + packet.iter().skip(1).take_while(|byte| **byte >= 0x80).count();
        let body = &packet[at..];
        match packet[0] >> 4 {
            3 => {
                let end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
                match packet[0] >> 1 & 3 {
                    0 => {}
                    1 => client.send(&[0x40, 2, body[end], body[end + 1]]),
                    _ => client.send(&[0x50, 2, body[end], body[end + 1]]),
                }
                return String::from_utf8(body[2..end].to_vec()).expect("a topic is text");
            }
            5 => client.send(&[0x62, 2, body[0], body[1]]),
            6 => client.send(&[0x70, 2, body[0], body[1]]),
            _ => {}
        }
    }
}

#[test]
fn topics_are_short_on_one_side_and_whole_on_the_other() {
    for place in places() {
        for (version, other) in
            [(Version::V3_1_1, Version::V3_1_1), (Version::V5, Version::V5), (Version::V3_1, Version::V5)]
        {
            let mut frog = client(place.house, version, "frog");
            let mut owner = client(place.everywhere, other, "owner");
            subscribe(&mut frog, "pond/#");
            subscribe(&mut owner, "house/pond/#");
            for qos in 0..=2 {
                publish(&mut owner, qos, "house/pond/a");
                assert_eq!(heard(&mut frog), "pond/a", "{version}, QoS {qos}");
                assert_eq!(heard(&mut owner), "house/pond/a");
                publish(&mut frog, qos, "pond/b");
                assert_eq!(heard(&mut owner), "house/pond/b", "{version}, QoS {qos}");
                assert_eq!(heard(&mut frog), "pond/b");
            }
        }
    }
}

#[test]
fn clients_of_a_mount_point_hear_nothing_from_elsewhere() {
    for place in places() {
        let mut frog = client(place.house, Version::V5, "frog");
        subscribe(&mut frog, "#");
        let mut toad = client(place.shed, Version::V3_1_1, "toad");
        let mut owner = client(place.everywhere, Version::V3_1_1, "owner");
        for topic in ["door", "house/door", "../house/door"] {
            publish_and_wait(&mut toad, topic);
        }
        for topic in ["door", "shed/door", "houses/door", "house/lamp"] {
            publish_and_wait(&mut owner, topic);
        }
        // The first and only one is below the mount point.
        assert_eq!(heard(&mut frog), "lamp");
        frog.expect_only_pong();
    }
}

#[test]
fn retained_messages_wills_and_groups_are_below_the_mount_point() {
    for place in places() {
        let mut owner = client(place.everywhere, Version::V5, "owner");
        let mut frog = client(place.house, Version::V5, "frog");
        subscribe(&mut owner, "house/lamp");
        owner.retain("house/lamp", b"on");
        // It is retained when it comes.
        assert_eq!(heard(&mut owner), "house/lamp");
        frog.subscribe("lamp");
        frog.expect_retained("lamp", b"on");
        subscribe(&mut owner, "house/gone");
        let will = Some(Will::new("gone", b"croak"));
        Client::connect(place.house, &Connect { will, ..Connect::new(Version::V3_1_1, "toad") })
            .into_raw()
            .reset();
        assert_eq!(heard(&mut owner), "house/gone");
        subscribe(&mut frog, "$share/pond/job");
        for qos in 0..=2 {
            publish(&mut owner, qos, "house/job");
            assert_eq!(heard(&mut frog), "job", "QoS {qos}");
        }
    }
}

#[test]
fn a_session_waits_behind_its_mount_point_and_is_nobody_elses() {
    for place in places() {
        let mut owner = client(place.everywhere, Version::V3_1_1, "owner");
        let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "frog") };
        let mut frog = Client::connect(place.house, &connect);
        subscribe(&mut frog, "mail");
        frog.leave();
        publish_and_wait(&mut owner, "house/mail");
        let mut frog = Client::connect(place.house, &connect);
        assert_eq!(heard(&mut frog), "mail");
        frog.leave();
        publish_and_wait(&mut owner, "house/mail");
        for other in [place.everywhere, place.shed] {
            let mut other = RawClient::connect(other);
            other.send(&connect.bytes());
            assert_eq!(other.read_packet(), [0x20, 2, 0, 5]);
        }
        let mut frog = Client::connect(place.house, &connect);
        assert_eq!(heard(&mut frog), "mail");
        frog.unsubscribe("mail");
        publish_and_wait(&mut owner, "house/mail");
        frog.expect_only_pong();
    }
}

/// An anonymous connection without a session that lasts may be gone already when the next one comes.
#[test]
fn a_connection_without_a_session_gives_way_to_one_behind_another_mount_point() {
    for place in places() {
        let mut before = client(place.house, Version::V5, "frog");
        subscribe(&mut before, "mail");
        for next in [place.shed, place.everywhere, place.house] {
            let after = client(next, Version::V5, "frog");
            // DISCONNECT: Session taken over.
            before.expect_disconnect(0x8E);
            before = after;
            before.expect_only_pong();
        }
    }
}

#[test]
fn aliases_stand_for_names_of_the_listener() {
    for place in places() {
        let mut owner = client(place.everywhere, Version::V5, "owner");
        subscribe(&mut owner, "house/#");
        // Topic Alias Maximum
        let connect = Connect { properties: &[0x22, 0, 5], ..Connect::new(Version::V5, "frog") };
        let mut frog = Client::connect(place.house, &connect);
        frog.subscribe("pond/lilies");
        let alias = [0x23, 0, 1];
        // The broker gives an alias to a topic that comes a second time, and uses it from the third on.
        for (topic, name) in [("pond/lilies", "pond/lilies"), ("", "pond/lilies"), ("", "")] {
            frog.send(&packet::publish_with(Version::V5, 0x30, topic, &alias, b"hey"));
            assert_eq!(heard(&mut owner), "house/pond/lilies");
            assert_eq!(heard(&mut frog), name);
        }
    }
}

/// In a wide fan-out, receivers share what they have in common.
#[test]
fn many_receivers_get_the_names_of_their_listeners() {
    let payload = vec![b'x'; 8 << 10];
    for place in places() {
        let mut all: Vec<(Client, &str)> = Vec::new();
        for number in 0..8 {
            for (address, filter) in [(place.house, "pond"), (place.everywhere, "house/pond")] {
                let mut client = client(address, Version::V5, &format!("{filter}-{number}"));
                subscribe(&mut client, filter);
                all.push((client, filter));
            }
        }
        let mut frog = client(place.house, Version::V5, "frog");
        frog.publish("pond", &payload);
        for (client, topic) in &mut all {
            client.expect_message(topic, &payload);
        }
        frog.publish("pond", b"short");
        for (client, topic) in &mut all {
            client.expect_message(topic, b"short");
        }
    }
}

#[test]
fn names_that_are_too_long_below_the_mount_point_are_refused() {
    let long = "a".repeat(65_530);
    for place in places() {
        for version in [Version::V3_1_1, Version::V5] {
            let mut frog = client(place.house, version, "frog");
            frog.send(&packet::subscribe(version, 1, &long));
            frog.expect(&packet::suback(version, 1, if version.is_5() { 0x8F } else { 0x80 }));
            frog.publish(&long, b"hey");
            frog.expect_disconnect(0x90);
            let will = Some(Will::new(&long, b"croak"));
            let mut toad = RawClient::connect(place.house);
            toad.send(&Connect { will, ..Connect::new(version, "toad") }.bytes());
            let connack: &[u8] = if version.is_5() { &[0x20, 0x03, 0x00, 0x90, 0x00] } else { &[] };
            assert_eq!(toad.read_to_end(), connack, "{version}");
        }
    }
}
