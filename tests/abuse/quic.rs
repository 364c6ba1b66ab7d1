//! Q: QUIC. Peers that attack it, without and with proved addresses.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use client::{Endpoint, TlsOptions};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, DEADLINE, RawClient, Relay, Version};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, EndpointConfig};
use tempfile::TempDir;
use tokio_rustls::rustls;

use crate::stage::{play, sized, wait_for_sys};

/// Datagrams are small next to what the kernel keeps for a socket: the broker has time to read them.
const BATCH: usize = 64;

/// Handshakes that are not complete, at most, of a listener. One address has at most an eighth of them.
const HANDSHAKES_MAX: usize = 40;
/// The same by default, for rows that open many connections at the same time from one address.
const HANDSHAKES_BY_DEFAULT: usize = 1_000;

/// A broker with a listener for QUIC, and the way to it over TCP.
struct Stage {
    quic: SocketAddr,
    relay: Relay,
}

impl Stage {
    /// Connects an honest client over QUIC.
    fn client(&self, client_id: &str) -> Client {
        Client::connect(self.relay.address(), &Connect::new(Version::V5, client_id))
    }
}

/// Plays a row against brokers with TCP for the innocent clients, and QUIC with few handshakes at a time.
fn play_quic(settings: &str, row: impl Fn(&Broker, &Stage)) {
    play_quic_with(HANDSHAKES_MAX, settings, row);
}

fn play_quic_with(handshakes_max: usize, settings: &str, row: impl Fn(&Broker, &Stage)) {
    let directory = TempDir::new().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    fs::write(file("server.pem"), made.cert.pem()).expect("a temporary file");
    fs::write(file("server.key"), made.signing_key.serialize_pem()).expect("a temporary file");
    let listeners = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"quic://127.0.0.1:0\"\nquic_handshakes = {handshakes_max}\n\
         tls_certificate = {:?}\ntls_key = {:?}\n",
        file("server.pem"),
        file("server.key")
    );
    play(&format!("{settings}{listeners}"), |broker| {
        let quic = broker.address_of("quic");
        let tls = TlsOptions::new().root_file(file("server.pem")).server_name("localhost").build();
        let endpoint = Endpoint::tcp("127.0.0.1", quic.port()).quic(tls.expect("all is there"));
        row(broker, &Stage { quic, relay: Relay::start(endpoint) });
    });
}

/// First datagrams of handshakes, each of another client.
fn initials(to: SocketAddr, count: usize) -> Vec<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"mqtt".to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a cipher suite")));
    let mut endpoint = quinn_proto::Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
    let mut initial = || {
        let now = Instant::now();
        let (_, mut connection) =
            endpoint.connect(now, config.clone(), to, "localhost").expect("it can be connected to");
        let mut datagram = Vec::new();
        let transmit = connection.poll_transmit(now, 1, &mut datagram).expect("ClientHello");
        datagram.truncate(transmit.size);
        datagram
    };
    (0..count).map(|_| initial()).collect()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
    socket
}

/// Most of them are asked to prove their addresses, and nothing is kept for those.
#[test]
fn q_01_handshakes_that_stop_after_their_first_datagram() {
    play_quic("[limits]\nconnect_timeout = \"1 s\"\n[sys]\ninterval = \"1 s\"\n", |broker, stage| {
        let socket = socket();
        let mut sent = 0;
        for batch in initials(stage.quic, sized(1_000, 100_000)).chunks(BATCH) {
            for initial in batch {
                socket.send_to(initial, stage.quic).expect("the kernel takes it");
                sent += initial.len();
            }
            // An answer shows that the broker reads.
            socket.recv(&mut [0; 2_000]).expect("an answer");
        }
        socket.set_nonblocking(true).expect("it can be told so");
        let mut received = 0;
        while let Ok(length) = socket.recv(&mut [0; 2_000]) {
            received += length;
        }
        assert!(received < 3 * sent, "{received} bytes for {sent}");
        stage.client("frog").expect_only_pong();
        wait_for_sys(broker, "quic/retries", |count| count > 500);
    });
}

#[test]
fn q_02_datagrams_that_are_no_packets_or_changed_ones() {
    play_quic("", |_, stage| {
        let socket = socket();
        let initial = initials(stage.quic, 1).remove(0);
        for at in 0..initial.len() {
            let mut changed = initial.clone();
            changed[at] ^= 1 << (at % 8);
            socket.send_to(&changed, stage.quic).expect("the kernel takes it");
            socket.send_to(&initial[..at], stage.quic).expect("the kernel takes it");
        }
        for first in 0..=255 {
            socket.send_to(&[first; 1_300], stage.quic).expect("the kernel takes it");
        }
        stage.client("frog").expect_only_pong();
    });
}

/// The client is gone in the middle of a packet, or has sent only a part of what it began.
#[test]
fn q_03_connections_that_end_in_the_middle() {
    play_quic_with(HANDSHAKES_BY_DEFAULT, "", |broker, stage| {
        let mut toad = broker.client(Version::V5, "toad");
        toad.subscribe("will");
        let connect = Connect::new(Version::V5, "frog").bytes();
        for end in 0..connect.len() {
            let mut peer = RawClient::connect(stage.relay.address());
            peer.send(&connect[..end]);
            if end % 2 == 0 { peer.reset() } else { peer.finish() }
        }
        for number in 0..sized(20, 1_000) {
            let mut peer = stage.client(&format!("frog {number}"));
            let publish = packet::publish(Version::V5, "will", &[7; 5_000]);
            peer.send(&publish);
            peer.send(&publish[..publish.len() / 2]);
            // A reset loses what has not arrived.
            toad.expect_message("will", &[7; 5_000]);
            peer.into_raw().reset();
        }
        toad.expect_only_pong();
    });
}

/// The messages wait in a bounded part of the memory.
#[test]
fn q_04_a_subscriber_that_does_not_read() {
    play_quic("", |broker, stage| {
        let mut frog = stage.client("frog");
        frog.subscribe("flood");
        let mut toad = broker.client(Version::V5, "toad");
        for _ in 0..sized(50, 10_000) {
            toad.publish("flood", &[7; 60_000]);
        }
        toad.expect_only_pong();
        // It has not read, and is none the worse for it.
        let mut newt = stage.client("newt");
        newt.expect_only_pong();
    });
}
