//! R: resources. T: transports. And what is counted of all abuse.

use std::thread;

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Options, RawClient, Version, until};

use crate::stage::play;

#[test]
fn r_01_more_connections_than_there_may_be() {
    const MAX: usize = 50;
    play(&format!("[limits]\nconnections = {MAX}\n"), |broker| {
        // Two are the innocent ones.
        let served: Vec<RawClient> = (2..MAX)
            .map(|number| broker.client(Version::V5, &format!("served {number}")).into_raw())
            .collect();
        for _ in 0..200 {
            broker.connect().expect_closed();
        }
        served.into_iter().for_each(|mut client| client.expect_only_pong());
    });
}

#[test]
fn r_02_silence_and_connects_that_never_end() {
    const SOCKETS: usize = 200;
    play("[limits]\nconnect_timeout = \"100 ms\"\n", |broker| {
        let connect = Connect::new(Version::V5, "slow").bytes();
        let mut peers: Vec<RawClient> = (0..SOCKETS)
            .map(|number| {
                let mut peer = broker.connect();
                peer.send(&connect[..number % connect.len()]);
                peer
            })
            .collect();
        peers.iter_mut().for_each(RawClient::expect_closed);
    });
}

#[test]
fn t_01_a_client_that_finishes_after_connect_is_answered() {
    play("", |broker| {
        for version in Version::ALL {
            let mut witness = broker.client(Version::V5, "witness");
            witness.subscribe("will");
            let will = Some(Will::new("will", b"gone"));
            let mut peer = broker.connect();
            peer.send(&Connect { will, ..Connect::new(version, "peer") }.bytes());
            peer.finish();
            assert!(packet::is_accepted(&peer.read_packet()));
            peer.expect_closed();
            witness.expect_message("will", b"gone");
            witness.expect_only_pong();
        }
    });
}

#[test]
fn t_01_resets_at_every_moment() {
    const ROUNDS: usize = 500;
    play("", |broker| {
        thread::scope(|scope| {
            for peer in 0..4 {
                scope.spawn(move || {
                    for round in 0..ROUNDS / 4 {
                        let version = Version::ALL[round % 3];
                        let connect = Connect::new(version, &format!("peer {peer}")).bytes();
                        let mut connection = broker.connect();
                        match round % 4 {
                            0 => {}
                            1 => connection.send(&connect[..connect.len() / 2]),
                            2 => connection.send(&connect),
                            _ => {
                                connection.send(&connect);
                                connection.read_packet();
                                connection.send(&[0x30, 0x7F, 0x00]);
                            }
                        }
                        connection.reset();
                    }
                });
            }
        });
    });
}

#[test]
fn each_kind_of_abuse_is_counted() {
    let settings = "[limits]\nconnections = 6\nconnect_timeout = \"100 ms\"\npacket_bytes = 2000\n\
        [sys]\ninterval = \"1 s\"\n";
    for shards in [1, 4] {
        let broker = Broker::start(&Options { shards, settings: settings.to_owned(), ..Options::default() });
        let mut watcher = broker.client(Version::V3_1_1, "watcher");
        offend(&broker);
        watcher.subscribe("$SYS/broker/+/+");
        let mut missing = vec![
            "ended/malformed1",
            "ended/protocol_error1",
            "ended/packet_too_large1",
            "ended/keep_alive1",
            "ended/taken_over1",
            "refused/connect_timeout1",
            "refused/connections_max1",
            "refused/subscriptions1",
            "dropped/topic1",
        ];
        until("everything is counted", || {
            let packet = watcher.read_packet();
            missing.retain(|counted| !packet.ends_with(counted.as_bytes()));
            missing.is_empty().then_some(())
        });
    }
}

/// One offence of each kind.
fn offend(broker: &Broker) {
    let with = |client_id: &str, bytes: &[u8], reason: u8| {
        let mut client = broker.client(Version::V5, client_id);
        client.send(bytes);
        client.expect_disconnect(reason);
    };
    with("malformed", b"\x30\x00", 0x81);
    with("protocol error", b"\x82\x03\x00\x01\x00", 0x82);
    with("packet too large", b"\x30\xFF\x7F", 0x95);
    let silent = Connect { keep_alive_secs: 1, ..Connect::new(Version::V5, "silent") };
    broker.client_with(&silent).expect_disconnect(0x8D);
    broker.connect().expect_closed();

    let mut robbed = broker.client(Version::V5, "twin");
    let mut twin = broker.client(Version::V5, "twin");
    robbed.expect_disconnect(0x8E);
    twin.publish("$SYS/x", b"mine");
    twin.send(&packet::subscribe(Version::V5, 1, &"/".repeat(1_000)));
    twin.expect(&packet::suback(Version::V5, 1, 0x8F));

    // As many as there may be, and one more.
    let mut others = Vec::new();
    let is_let_in = |number: usize| {
        let mut connection = broker.connect();
        connection.send(&Connect::new(Version::V5, &format!("other {number}")).bytes());
        connection.next_packet().map(|_| connection)
    };
    while let Some(connection) = is_let_in(others.len()) {
        others.push(connection);
    }
}
