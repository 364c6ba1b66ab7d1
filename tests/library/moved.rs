//! Clients over QUIC that change their address, as telephones do between networks.

use std::net::SocketAddr;

use client::{Client, Endpoint, Options, Outgoing, TlsOptions, Version, filter, topic};
use pondhawk_tests::{Broker, DEADLINE, Options as BrokerOptions};
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::place::{EVERY_QOS, deliver, expect};
use crate::transports::certify;

/// Passes the datagrams of one client on. With each message of `moves`, they come from another address.
async fn network(to: SocketAddr, mut moves: mpsc::Receiver<()>) -> SocketAddr {
    let bound = async || UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let (inside, mut outside) = (bound().await, bound().await);
    let address = inside.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut client = None;
        let (mut from_client, mut from_broker) = ([0; 2_000], [0; 2_000]);
        loop {
            tokio::select! {
                Ok((length, from)) = inside.recv_from(&mut from_client) => {
                    client = Some(from);
                    // A datagram that is lost is sent again.
                    let _ = outside.send_to(&from_client[..length], to).await;
                }
                Ok((length, _)) = outside.recv_from(&mut from_broker) => {
                    if let Some(client) = client {
                        let _ = inside.send_to(&from_broker[..length], client).await;
                    }
                }
                moved = moves.recv() => match moved {
                    Some(()) => outside = bound().await,
                    None => return,
                },
            }
        }
    });
    address
}

async fn wander(shards: u16) {
    let directory = TempDir::new().expect("a temporary directory");
    certify(directory.path());
    let file = |name: &str| directory.path().join(name);
    let settings = format!(
        "[[listener]]\naddress = \"quic://127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n",
        file("server.pem"),
        file("server.key")
    );
    let broker = Broker::start(&BrokerOptions { shards, settings, ..BrokerOptions::default() });
    let (move_on, moves) = mpsc::channel(1);
    let address = network(broker.address(), moves).await;
    let tls = TlsOptions::new().root_file(file("ca.pem")).server_name("localhost").build();
    let endpoint = Endpoint::tcp("127.0.0.1", address.port()).quic(tls.expect("all is there"));
    timeout(DEADLINE, speak(endpoint, &move_on)).await.expect("it is heard everywhere");
    broker.wait_for_log("the client disconnected");
    assert_eq!(broker.log_lines(" connected client_id=").len(), 1, "{}", broker.log());
}

/// Hears itself, and moves after each message.
async fn speak(endpoint: Endpoint, move_on: &mpsc::Sender<()>) {
    let options = Options::new(Version::V5).client_id("frog");
    let frog = Client::connect_to(endpoint, options).await.expect("accepted");
    let mut heard = frog.subscribe(filter!("pond/#"), client::Qos::ExactlyOnce).await.expect("granted");
    for number in 0..5_u8 {
        for qos in EVERY_QOS {
            let payload = [number; 3_000];
            deliver(&frog, &Outgoing::new(topic!("pond/depth"), &payload).qos(qos)).await;
            assert_eq!(expect(&mut heard, topic!("pond/depth"), &payload).await.qos(), qos);
        }
        move_on.send(()).await.expect("the network is there");
    }
    frog.disconnect().await.expect("everything is acknowledged");
}

#[tokio::test]
async fn a_client_over_quic_keeps_its_session_when_its_address_changes() {
    for shards in [1, 4] {
        wander(shards).await;
    }
}
