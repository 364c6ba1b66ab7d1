//! Rules of a listener for its clients: their network, number and versions of MQTT, QoS, retained messages, wildcards.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Options, RawClient, Version, until};

use crate::{addresses, brokers};

/// Brokers with a listener with these keys, and a second one that has none.
fn brokers_with(keys: &str) -> impl Iterator<Item = (Broker, SocketAddr)> {
    let plain = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
    brokers(&format!("{plain}{keys}\n{plain}[sys]\ninterval = \"1 s\"\n")).map(|broker| {
        let [_, elsewhere] = addresses(&broker);
        (broker, elsewhere)
    })
}

/// Everything that is sent before the connection is closed.
fn answer(broker: &Broker, bytes: &[u8]) -> Vec<u8> {
    let mut connection = broker.connect();
    connection.send(bytes);
    connection.read_to_end()
}

/// `hey` to `lake`, with packet identifier 9.
fn publish(version: Version, qos: u8) -> Vec<u8> {
    let properties: &[u8] = if version.is_5() { &[0] } else { &[] };
    packet::packet(0x30 | qos << 1, &[&packet::string("lake"), &[0, 9][..], properties, b"hey"].concat())
}

/// Waits until this counter below `$SYS/broker/` is not 0. The client speaks MQTT 5, and subscribes to nothing else.
pub(crate) fn counted(client: &mut Client, name: &str) {
    client.subscribe(&format!("$SYS/broker/{name}"));
    // The length of the properties, which is 0, stands before the payload.
    until("it is counted", || (!client.read_packet().ends_with(b"\x000")).then_some(()));
}

#[test]
fn a_listener_has_as_many_connections_as_it_may() {
    for (broker, elsewhere) in brokers_with("connections = 1") {
        let first = broker.client(Version::V3_1_1, "first");
        assert_eq!(answer(&broker, &Connect::new(Version::V5, "second").bytes()), [0; 0]);
        // Other listeners have room.
        let mut connection = RawClient::connect(elsewhere);
        connection.send(&Connect::new(Version::V5, "elsewhere").bytes());
        assert!(packet::is_accepted(&connection.read_packet()));
        connection.send(&packet::subscribe(Version::V5, 1, "$SYS/broker/refused/listener_connections"));
        until("it is counted", || connection.read_packet().ends_with(b"\x001").then_some(()));
        first.leave();
        let mut third = until("the place of the first is free", || {
            let mut connection = broker.connect();
            connection.offer(&Connect::new(Version::V5, "third").bytes());
            connection.next_packet().map(|_| connection)
        });
        third.expect_only_pong();
    }
}

#[test]
fn a_listener_accepts_the_versions_that_it_names() {
    for (broker, _) in brokers_with("protocol_versions = [\"3.1.1\", \"5.0\"]") {
        // MQTT-3.1.2-2
        let connack = answer(&broker, &Connect::new(Version::V3_1, "old").bytes());
        assert_eq!(connack, [0x20, 0x02, 0x00, 0x01]);
        drop(broker.client(Version::V3_1_1, "frog"));
        let mut frog = broker.client(Version::V5, "frog");
        counted(&mut frog, "refused/protocol_version");
    }
    for (broker, elsewhere) in brokers_with("protocol_versions = \"3.1\"") {
        let connack = answer(&broker, &Connect::new(Version::V5, "new").bytes());
        assert_eq!(connack, [0x20, 0x03, 0x00, 0x84, 0x00]);
        let connack = answer(&broker, &Connect::new(Version::V3_1_1, "new").bytes());
        assert_eq!(connack, [0x20, 0x02, 0x00, 0x01]);
        broker.client(Version::V3_1, "frog").leave();
        let mut connection = RawClient::connect(elsewhere);
        connection.send(&Connect::new(Version::V5, "new").bytes());
        assert!(packet::is_accepted(&connection.read_packet()));
    }
}

/// [MQTT-3.2.2-9], [MQTT-3.2.2-10], [MQTT-3.2.2-11], [MQTT-3.2.2-12]
#[test]
fn a_listener_grants_and_takes_the_qos_that_it_names() {
    for max_qos in [0, 1] {
        for (broker, elsewhere) in brokers_with(&format!("max_qos = {max_qos}")) {
            let (mut watcher, connack) = broker.greet(&Connect::new(Version::V5, "watcher"));
            assert!(has_property(&connack, [0x24, max_qos]), "{connack:02x?}");
            for version in Version::ALL {
                let mut frog = broker.client(version, "frog");
                for asked in 0..=2 {
                    frog.send(&packet::subscribe_with(version, 7, "pond", asked));
                    frog.expect(&packet::suback(version, 7, asked.min(max_qos)));
                }
                frog.send(&publish(version, max_qos + 1));
                frog.expect_disconnect(0x9B);
            }
            let will = Will { qos: max_qos + 1, ..Will::new("pond", b"gone") };
            let connect = Connect { will: Some(will), ..Connect::new(Version::V5, "toad") };
            assert_eq!(answer(&broker, &connect.bytes()), [0x20, 0x03, 0x00, 0x9B, 0x00]);
            // The other listener has no limit, and what is published there goes to subscribers here.
            let mut connection = RawClient::connect(elsewhere);
            connection.send(&Connect::new(Version::V3_1_1, "elsewhere").bytes());
            assert!(packet::is_accepted(&connection.read_packet()));
            watcher.subscribe("lake");
            connection.send(&publish(Version::V3_1_1, 2));
            connection.expect(&[0x50, 0x02, 0x00, 0x09]);
            watcher.expect_message("lake", b"hey");
            counted(&mut watcher, "ended/qos");
        }
    }
}

/// The properties of a CONNACK of MQTT 5.
fn has_property(connack: &[u8], property: [u8; 2]) -> bool {
    connack[5..].windows(2).any(|bytes| bytes == property)
}

/// [MQTT-3.2.2-13], [MQTT-3.2.2-14]
#[test]
fn a_listener_without_retained_messages_takes_and_gives_none() {
    for (broker, elsewhere) in brokers_with("retain_available = false") {
        let (mut watcher, connack) = broker.greet(&Connect::new(Version::V5, "watcher"));
        assert!(has_property(&connack, [0x25, 0]), "{connack:02x?}");
        let mut other = RawClient::connect(elsewhere);
        other.send(&Connect::new(Version::V3_1_1, "elsewhere").bytes());
        assert!(packet::is_accepted(&other.read_packet()));
        // RETAIN 1, at QoS 1: when it is acknowledged, it is retained.
        let mut retained = publish(Version::V3_1_1, 1);
        retained[0] |= 1;
        other.send(&retained);
        other.expect(&[0x40, 0x02, 0x00, 0x09]);
        other.send(&packet::subscribe(Version::V3_1_1, 1, "lake"));
        other.expect(&packet::suback(Version::V3_1_1, 1, 0));
        assert!(other.read_packet().ends_with(b"hey"));
        for version in Version::ALL {
            let mut frog = broker.client(version, "frog");
            frog.subscribe("lake");
            frog.subscribe("pond");
            // The first message is one that is retained later.
            other.send(&packet::packet(0x31, &[&packet::string("pond"), &b"hey"[..]].concat()));
            frog.expect_message("pond", b"hey");
            let mut retained = publish(version, 1);
            retained[0] |= 1;
            frog.send(&retained);
            frog.expect_disconnect(0x9A);
        }
        let will = Will { retain: true, ..Will::new("pond", b"gone") };
        let connect = Connect { will: Some(will), ..Connect::new(Version::V5, "toad") };
        assert_eq!(answer(&broker, &connect.bytes()), [0x20, 0x03, 0x00, 0x9A, 0x00]);
        counted(&mut watcher, "ended/retain");
    }
}

#[test]
fn a_listener_without_wildcards_refuses_them() {
    for (broker, elsewhere) in brokers_with("wildcard_subscriptions_available = false") {
        let (mut frog, connack) = broker.greet(&Connect::new(Version::V5, "frog"));
        assert!(has_property(&connack, [0x28, 0]), "{connack:02x?}");
        for filter in ["#", "lake/+", "$share/g/#"] {
            frog.send(&packet::subscribe(Version::V5, 3, filter));
            frog.expect(&packet::suback(Version::V5, 3, 0xA2));
        }
        frog.subscribe("lake");
        let mut toad = broker.client(Version::V3_1_1, "toad");
        toad.send(&packet::subscribe(Version::V3_1_1, 3, "lake/#"));
        toad.expect(&packet::suback(Version::V3_1_1, 3, 0x80));
        let mut other = RawClient::connect(elsewhere);
        other.send(&Connect::new(Version::V3_1_1, "elsewhere").bytes());
        assert!(packet::is_accepted(&other.read_packet()));
        other.send(&packet::subscribe(Version::V3_1_1, 3, "#"));
        other.expect(&packet::suback(Version::V3_1_1, 3, 0));
    }
}

/// A broker with one listener.
fn try_start(listener: &str) -> Result<Broker, String> {
    let settings = format!("[[listener]]\nallow_anonymous = true\n{listener}");
    Broker::try_start(&Options { settings, ..Options::default() })
}

#[test]
fn one_listener_accepts_ipv4_and_ipv6_if_it_is_told_to() {
    let broker = try_start("address = \"[::]:0\"\nipv6_only = false").expect("it starts");
    let port = broker.address().port();
    for (host, client_id) in [("127.0.0.1", "frog-4"), ("::1", "frog-6")] {
        let mut connection = RawClient::connect(SocketAddr::new(host.parse().expect("an address"), port));
        connection.send(&Connect::new(Version::V5, client_id).bytes());
        assert!(packet::is_accepted(&connection.read_packet()));
    }
    let peer = |client_id: &str| {
        let line = broker.wait_for_log(&format!("client_id={client_id} "));
        line.split_whitespace().find_map(|word| word.strip_prefix("peer=")).expect("a peer").to_owned()
    };
    assert!(peer("frog-4").starts_with("127.0.0.1:"), "{}", peer("frog-4"));
    assert!(peer("frog-6").starts_with("[::1]:"), "{}", peer("frog-6"));
}

/// A port that is free for IPv4 may be somebody else's: then another broker is started.
#[test]
fn a_listener_leaves_ipv4_alone_otherwise() {
    until("the same port is free for IPv4", || {
        let broker = try_start("address = \"[::]:0\"").expect("it starts");
        TcpListener::bind(("127.0.0.1", broker.address().port())).ok()
    });
}

#[test]
fn a_listener_hears_its_interface_only() {
    let listener = |interface: &str| format!("address = \"127.0.0.1:0\"\ninterface = {interface:?}");
    let log = try_start(&listener("pond9")).expect_err("there is no such interface");
    assert!(log.contains("the interface pond9 cannot be used"), "{log}");
    let broker = try_start(&listener("lo")).expect("every machine has it");
    drop(broker.client(Version::V5, "frog"));
    // Connections from this machine come over lo, whatever their address.
    let names = fs::read_dir("/sys/class/net").expect("Linux has it").flatten();
    let mut others = names.filter_map(|name| name.file_name().into_string().ok()).filter(|name| name != "lo");
    match others.next() {
        Some(other) => {
            let broker = try_start(&listener(&other)).expect("the interface is there");
            let error = TcpStream::connect(broker.address()).expect_err("it is deaf");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        None => println!("this machine has no other interface"),
    }
}
