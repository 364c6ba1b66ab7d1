//! Messages that an application publishes.

use pondhawk_client::{Outgoing, PublishError, Qos, ReasonCode, Version, topic};
use wire::{PubAck, PubAckReason, PubComp, PubRec, PubRelReason};

use crate::peer::{Peer, id};

fn reading(qos: Qos) -> Outgoing<'static> {
    Outgoing::new(topic!("a/b"), b"hey").qos(qos)
}

#[tokio::test]
async fn a_message_goes_the_way_of_its_qos() {
    for version in Version::ALL {
        let (mut peer, client) = Peer::accepted(version).await;
        let done = client.publish(&reading(Qos::AtMostOnce)).await.expect("it is queued");
        assert_eq!(done.await.expect("it is sent"), ReasonCode::Success);
        assert_eq!(peer.next().await, "PUBLISH q0 \"a/b\" 3 B \"hey\"");

        let done = client.publish(&reading(Qos::AtLeastOnce)).await.expect("it is queued");
        assert_eq!(peer.next().await, "PUBLISH q1 id=1 \"a/b\" 3 B \"hey\"");
        peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
        assert_eq!(done.await.expect("it is acknowledged"), ReasonCode::Success);

        let done = client.publish(&reading(Qos::ExactlyOnce)).await.expect("it is queued");
        assert_eq!(peer.next().await, "PUBLISH q2 id=2 \"a/b\" 3 B \"hey\"");
        peer.send(PubRec::new(id(2), PubAckReason::Success)).await;
        assert_eq!(peer.next().await, "PUBREL id=2 Success");
        peer.send(PubComp::new(id(2), PubRelReason::Success)).await;
        assert_eq!(done.await.expect("it is acknowledged"), ReasonCode::Success);
    }
}

#[tokio::test]
async fn an_acknowledgement_has_the_servers_reason() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let nobody = client.publish(&reading(Qos::AtLeastOnce)).await.expect("it is queued");
    let refused = client.publish(&reading(Qos::AtLeastOnce)).await.expect("it is queued");
    for _ in 0..2 {
        assert!(peer.next().await.starts_with("PUBLISH q1"));
    }
    peer.send(PubAck::new(id(1), PubAckReason::NoMatchingSubscribers)).await;
    peer.send(PubAck::new(id(2), PubAckReason::QuotaExceeded)).await;
    assert_eq!(nobody.await.expect("that is no error"), ReasonCode::NoMatchingSubscribers);
    assert!(matches!(refused.await, Err(PublishError::Refused { reason: ReasonCode::QuotaExceeded, .. })));
}

#[tokio::test]
async fn a_publisher_waits_while_the_server_takes_nothing() {
    let options = pondhawk_client::Options::new(Version::V5).client_id("me").commands_max(1);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let payload = vec![0; 1 << 20];
    let large = Outgoing::new(topic!("a"), &payload);
    let mut sent = 0;
    // The loop fills the stream, the driver's buffer and the queue, until nothing moves.
    loop {
        let publish = std::pin::pin!(client.publish(&large));
        tokio::select! {
            biased;
            result = publish => drop(result.expect("it is queued")),
            () = settled() => break,
        }
        sent += 1;
        assert!(sent < 20, "there is a bound");
    }
    for _ in 0..sent {
        assert!(peer.next().await.starts_with("PUBLISH q0"));
    }
    client.publish(&large).await.expect("there is room again").await.expect("it is sent");
}

/// Lets all other tasks run until they wait.
async fn settled() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_that_always_has_something_to_write_says_all_of_it_in_order() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let payloads: Vec<_> = (0..200_u8).map(|number| vec![number; 30_011]).collect();
    let publisher = async {
        for payload in &payloads {
            let message = Outgoing::new(topic!("a/b"), payload).qos(Qos::AtLeastOnce);
            drop(client.publish(&message).await.expect("it is queued"));
        }
    };
    let server = async {
        for number in 1..=200 {
            let line = peer.next().await;
            assert!(line.starts_with(&format!("PUBLISH q1 id={number} \"a/b\" 30011 B")), "{line}");
        }
    };
    tokio::join!(publisher, server);
}
