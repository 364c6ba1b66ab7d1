//! Every limit: what keeps to it exactly is served, and one more is refused as the version demands.

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Version, until};

use crate::{brokers, listeners::counted};

const CLIENT_IDENTIFIER_NOT_VALID: u8 = 0x85;
const TOPIC_ALIAS_INVALID: u8 = 0x94;
const PACKET_TOO_LARGE: u8 = 0x95;
const QUOTA_EXCEEDED: u8 = 0x97;

/// A broker with one shard and with four, and every version.
fn each(settings: &str) -> impl Iterator<Item = (Broker, Version)> {
    let settings = settings.to_owned();
    Version::ALL.into_iter().flat_map(move |version| brokers(&settings).map(move |broker| (broker, version)))
}

/// Answer to a CONNECT: everything that is sent before the connection is closed.
fn refusal(broker: &Broker, connect: &Connect<'_>) -> Vec<u8> {
    let mut connection = broker.connect();
    connection.send(&connect.bytes());
    connection.read_to_end()
}

/// CONNACK with a reason code, or before MQTT 5 a return code.
fn connack(version: Version, reason: u8, return_code: u8) -> Vec<u8> {
    if version.is_5() { vec![0x20, 0x03, 0x00, reason, 0x00] } else { vec![0x20, 0x02, 0x00, return_code] }
}

/// The value of a four-byte property of a CONNACK, as its bytes.
fn four_bytes_of(connack: &[u8], property: u8) -> Option<&[u8]> {
    let at = connack[5..].windows(5).find(|bytes| bytes[0] == property)?;
    Some(&at[1..])
}

#[test]
fn as_many_connections_as_there_may_be() {
    for (broker, version) in each("[limits]\nconnections = 2\n") {
        let first = broker.client(version, "first");
        let mut second = broker.client(version, "second");
        assert_eq!(refusal(&broker, &Connect::new(version, "third")), [0; 0], "closed without a word");
        second.expect_only_pong();
        first.leave();
        // It is let in when the place of the first is free, which may take a moment.
        let mut third = until("the third is let in", || {
            let mut connection = broker.connect();
            connection.send(&Connect::new(version, "third").bytes());
            let answer = connection.next_packet()?;
            assert!(packet::is_accepted(&answer), "{answer:02x?}");
            Some(connection)
        });
        third.expect_only_pong();
        second.expect_only_pong();
    }
}

/// [MQTT-3.2.2-15]
#[test]
fn a_packet_of_the_maximum_size() {
    const MAX: usize = 2_000;
    for (broker, version) in each("[limits]\npacket_bytes = 2000\n") {
        let mut frog = broker.client(version, "frog");
        frog.subscribe("a");
        let overhead = packet::publish(version, "a", &[0; 1_000]).len() - 1_000;
        let fits = vec![b'x'; MAX - overhead];
        frog.publish("a", &fits);
        frog.expect_message("a", &fits);
        frog.publish("a", &[&fits[..], b"x"].concat());
        frog.expect_disconnect(PACKET_TOO_LARGE);
    }
}

#[test]
fn a_packet_that_only_announces_to_be_too_large_is_refused_at_its_fixed_header() {
    for (broker, version) in each("[limits]\npacket_bytes = 2000\n") {
        let mut frog = broker.client(version, "frog");
        frog.send(&packet::packet(0x30, &[0; 1_998])[..3]);
        frog.expect_disconnect(PACKET_TOO_LARGE);
    }
}

#[test]
fn mqtt_5_clients_are_told_of_limits() {
    let settings = "[limits]\npacket_bytes = 2000\nkeep_alive = \"1 min\"\ntopic_alias_maximum = 3\n";
    for broker in brokers(settings) {
        let mut connection = broker.connect();
        connection.send(&Connect::new(Version::V5, "frog").bytes());
        let connack = connection.read_packet();
        assert_eq!(four_bytes_of(&connack, 0x27), Some(&2_000u32.to_be_bytes()[..]), "Maximum Packet Size");
        let has = |property: [u8; 3]| connack.windows(3).any(|bytes| bytes == property);
        assert!(has([0x13, 0, 60]), "Server Keep Alive: {connack:02x?}");
        assert!(has([0x22, 0, 3]), "Topic Alias Maximum: {connack:02x?}");
    }
}

#[test]
fn a_connect_of_the_maximum_size() {
    const MAX: usize = 1_024;
    for (broker, version) in each("[limits]\nconnect_packet_bytes = \"1 KiB\"\n") {
        let with_will = |payload: &[u8]| {
            let connect = Connect { will: Some(Will::new("w", payload)), ..Connect::new(version, "frog") };
            (connect.bytes(), broker.connect())
        };
        let overhead = with_will(&[0; 900]).0.len() - 900;
        let (fits, mut connection) = with_will(&vec![b'x'; MAX - overhead]);
        connection.send(&fits);
        assert!(packet::is_accepted(&connection.read_packet()));
        let (one_more, mut connection) = with_will(&vec![b'x'; MAX - overhead + 1]);
        connection.send(&one_more);
        connection.expect_closed();
    }
}

#[test]
fn the_smallest_time_to_connect() {
    for (broker, version) in each("[limits]\nconnect_timeout = \"100 ms\"\n") {
        let mut frog = broker.client(version, "frog");
        let (mut silent, mut slow) = (broker.connect(), broker.connect());
        let connect = Connect::new(version, "slow").bytes();
        slow.send(&connect[..connect.len() - 1]);
        silent.expect_closed();
        slow.expect_closed();
        frog.expect_only_pong();
    }
}

/// [MQTT-3.1.3-8, 3.1.1 MQTT-3.1.3-9]
#[test]
fn the_longest_client_identifier() {
    for (broker, version) in each("[limits]\nclient_id_bytes = 23\n") {
        let longest = "f".repeat(23);
        broker.client(version, &longest).leave();
        let one_more = longest + "f";
        let refused = refusal(&broker, &Connect::new(version, &one_more));
        assert_eq!(refused, connack(version, CLIENT_IDENTIFIER_NOT_VALID, 0x02));
    }
}

#[test]
fn the_deepest_topic_and_filter() {
    for (broker, version) in each("[limits]\ntopic_levels = 3\n") {
        let mut frog = broker.client(version, "frog");
        frog.subscribe("a/b/c");
        frog.subscribe("#");
        frog.publish("a/b/c/d", b"too deep");
        frog.publish("a/b/c", b"deep");
        // Once, though two filters match it.
        frog.expect_message("a/b/c", b"deep");
        frog.send(&packet::subscribe(version, 7, "a/b/c/d"));
        refused_filter(frog, 7, 0x8F);
    }
}

#[test]
fn as_many_subscriptions_as_there_may_be() {
    for (broker, version) in each("[limits]\nsubscriptions_per_client = 2\n") {
        let mut frog = broker.client(version, "frog");
        frog.subscribe("a");
        frog.subscribe("b");
        // One that there is can be made again.
        frog.subscribe("b");
        frog.unsubscribe("a");
        frog.subscribe("c");
        frog.send(&packet::subscribe(version, 7, "d"));
        refused_filter(frog, 7, QUOTA_EXCEEDED);
    }
}

/// A shared filter is refused by the ledger, and those beside it in the packet are not.
#[test]
fn as_many_shared_subscriptions_as_there_may_be() {
    let settings = "[limits]\nshared_subscriptions_per_client = 2\ngroups_per_filter = 4\n";
    for (broker, version) in each(settings) {
        let mut frog = broker.client(version, "frog");
        frog.subscribe("$share/a/t");
        frog.subscribe("$share/b/t");
        frog.subscribe("plain");
        frog.subscribe("$share/b/t");
        frog.unsubscribe("$share/a/t");
        frog.subscribe("$share/c/t");
        let mut toad = broker.client(version, "toad");
        toad.subscribe("$share/d/t");
        toad.subscribe("$share/e/t");
        let mut newt = broker.client(version, "newt");
        newt.subscribe("$share/e/t");
        newt.send(&packet::subscribe(version, 7, "$share/f/t"));
        refused_filter(newt, 7, QUOTA_EXCEEDED);
        frog.send(&packet::subscribe(version, 7, "$share/d/t"));
        refused_filter(frog, 7, QUOTA_EXCEEDED);
    }
}

/// SUBACK with the reason code; 3.1.1 has one code for every failure, and 3.1, which has none, is closed.
fn refused_filter(mut client: Client, packet_id: u16, reason: u8) {
    let version = client.version();
    match version {
        Version::V3_1 => return client.expect_closed(),
        Version::V3_1_1 => client.expect(&packet::suback(version, packet_id, 0x80)),
        Version::V5 => client.expect(&packet::suback(version, packet_id, reason)),
    }
    client.expect_only_pong();
}

/// [MQTT-3.2.2-17, MQTT-3.3.2-9, MQTT-3.3.2-12]
#[test]
fn the_highest_topic_alias() {
    for broker in brokers("[limits]\ntopic_alias_maximum = 3\n") {
        let mut frog = broker.client(Version::V5, "frog");
        frog.subscribe("a");
        let aliased =
            |topic, alias| packet::publish_with(Version::V5, 0x30, topic, &[0x23, 0, alias], b"hey");
        frog.send(&aliased("a", 3));
        frog.send(&aliased("", 3));
        frog.expect_message("a", b"hey");
        frog.expect_message("a", b"hey");
        frog.send(&aliased("a", 4));
        frog.expect_disconnect(TOPIC_ALIAS_INVALID);
    }
}

#[test]
fn the_largest_will() {
    for (broker, version) in each("[limits]\nwill_bytes = 100\n") {
        let mut witness = broker.client(version, "witness");
        witness.subscribe("will");
        let longest = [b'x'; 96];
        let connect =
            |payload| Connect { will: Some(Will::new("will", payload)), ..Connect::new(version, "frog") };
        broker.client_with(&connect(&longest)).finish();
        witness.expect_message("will", &longest);
        let refused = refusal(&broker, &connect(&[b'x'; 97]));
        assert_eq!(refused, connack(version, QUOTA_EXCEEDED, 0x03));
    }
}

#[test]
fn as_much_retained_as_there_is_room_for() {
    for (broker, version) in each("[limits]\nretained_bytes = \"4 KiB\"\n[sys]\ninterval = \"off\"\n") {
        let mut frog = broker.client(version, "frog");
        frog.subscribe("#");
        frog.retain("large", &[b'x'; 3_000]);
        frog.expect_message("large", &[b'x'; 3_000]);
        // Subscribers get what there is no room to keep.
        frog.retain("more", &[b'y'; 3_000]);
        frog.expect_message("more", &[b'y'; 3_000]);
        frog.retain("large", b"");
        frog.expect_message("large", b"");
        frog.retain("last", &[b'z'; 3_000]);
        frog.expect_message("last", &[b'z'; 3_000]);
        let mut late = broker.client(version, "late");
        late.subscribe("#");
        late.expect_retained("last", &[b'z'; 3_000]);
        late.expect_only_pong();
    }
}

/// The test connects until a connection is one too many for the second that runs.
#[test]
fn connections_beyond_the_rate_of_a_listener_are_closed() {
    for key in ["connection_rate = 1", "connection_rate_per_address = 1"] {
        let settings = format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{key}\n[sys]\ninterval = \"1 s\"\n");
        for broker in brokers(&settings) {
            let mut staying = broker.client(Version::V5, "staying");
            until("a connection is refused", || {
                let mut connection = broker.connect();
                connection.offer(&Connect::new(Version::V3_1_1, "hasty").bytes());
                // Closed without a word.
                connection.next_packet().is_none().then_some(())
            });
            let line = broker.wait_for_log("connections in this second");
            assert!(line.contains("0x9F (Connection rate exceeded)"), "{line}");
            counted(&mut staying, "refused/connection_rate");
        }
    }
}
