//! How connections begin and end.

use std::time::Duration;

use client::{
    ConnectError, DisconnectError, Ended, Fault, Options, Outgoing, PublishError, Qos, SubscribeError,
    Version, filter, topic,
};
use wire::{ConnAck, ConnectRefusal, Disconnect, DisconnectReason, PubAck, PubAckReason};

use crate::peer::{END, Peer, id};

fn reading(qos: Qos) -> Outgoing<'static> {
    Outgoing { qos, ..Outgoing::new(topic!("a/b"), b"hey") }
}

#[tokio::test]
async fn options_are_what_connect_says() {
    let options = Options::new(Version::V5)
        .client_id("me")
        .credentials("ann", Some(b"secret"))
        .keep_alive_secs(7)
        .session_expiry_secs(9)
        .clean_start(false);
    assert!(!format!("{options:?}").contains("115"), "the password is not printed");
    let (mut peer, client) = Peer::new(Version::V5, options);
    let connect = peer.next().await;
    for part in
        ["\"me\"", "user-name=\"ann\"", "keep-alive=7", "session-expiry-interval=9", "receive-maximum=256"]
    {
        assert!(connect.contains(part), "{part} in {connect}");
    }
    assert!(!connect.contains("clean-start"));
    peer.send(ConnAck::accepted(false)).await;
    let client = client.await.expect("no panic").expect("accepted");
    assert_eq!((client.server().client_id.as_str(), client.server().session_present), ("me", false));
}

#[tokio::test]
async fn a_refusal_says_why() {
    let (mut peer, client) = Peer::new(Version::V3_1_1, Options::new(Version::V3_1_1));
    peer.next().await;
    peer.send(ConnAck::refused(ConnectRefusal::NotAuthorized)).await;
    let error = client.await.expect("no panic").expect_err("refused");
    assert!(matches!(error, ConnectError::Refused { reason: ConnectRefusal::NotAuthorized, .. }));
    assert_eq!(error.fault(), Fault::Server);
    assert_eq!(peer.next().await, END);
}

#[tokio::test]
async fn options_that_make_no_connect_are_the_applications_fault() {
    let (_peer, client) = Peer::new(Version::V5, Options::new(Version::V5).client_id("a\0b"));
    let error = client.await.expect("no panic").expect_err("no string");
    assert_eq!(error.fault(), Fault::Application);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_given_up() {
    let (mut peer, client) = Peer::new(Version::V5, Options::new(Version::V5));
    peer.next().await;
    let error = client.await.expect("no panic").expect_err("no answer");
    assert!(matches!(error, ConnectError::Ended(Ended::TimedOut(_))), "{error}");
    assert_eq!(peer.next().await, END);

    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let subscribed = client.subscribe(filter!("a"), Qos::AtMostOnce).await;
    assert!(matches!(subscribed, Err(SubscribeError::Ended(Ended::RequestTimedOut))));
    assert!(peer.next().await.starts_with("SUBSCRIBE"));
    assert_eq!(peer.next().await, END, "it is closed, and not in a state that nobody knows");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_kept_alive() {
    let options = Options::new(Version::V3_1_1).client_id("me").keep_alive_secs(10);
    let (mut peer, client) = Peer::accepted_with(Version::V3_1_1, options).await;
    for _ in 0..3 {
        assert_eq!(peer.next().await, "PINGREQ");
        peer.send(wire::PingResp).await;
    }
    assert_eq!(peer.next().await, "PINGREQ");
    assert_eq!(peer.next().await, "PINGREQ", "7.5 s later; it is given up after 10 s");
    assert_eq!(peer.next().await, END);
    assert!(matches!(client.ended(), Some(Ended::TimedOut(_))));
}

#[tokio::test]
async fn disconnect_waits_for_what_is_under_way() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let acknowledgement = client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued");
    let server = async {
        assert!(peer.next().await.starts_with("PUBLISH q1 id=1"));
        peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
        assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
        assert_eq!(peer.next().await, END);
    };
    let (disconnected, ()) = tokio::join!(client.disconnect(), server);
    disconnected.expect("all is acknowledged");
    acknowledgement.await.expect("it was acknowledged");
    assert!(matches!(client.publish(&reading(Qos::AtMostOnce)).await, Err(PublishError::Ended(Ended::ByUs))));
}

#[tokio::test(start_paused = true)]
async fn disconnect_does_not_wait_for_ever() {
    let options = Options::new(Version::V5).client_id("me").flush_timeout(Duration::from_secs(3));
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let acknowledgement = client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued");
    let error = client.disconnect().await.expect_err("nothing is acknowledged");
    assert!(matches!(error, DisconnectError::Unacknowledged { messages: 1 }));
    assert!(matches!(acknowledgement.await, Err(PublishError::Ended(Ended::ByUs))));
    assert!(peer.next().await.starts_with("PUBLISH"));
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
    assert_eq!(peer.next().await, END);
}

#[tokio::test]
async fn the_last_handle_takes_the_connection_with_it() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let clone = client.clone();
    drop(client);
    drop(clone.publish(&reading(Qos::AtMostOnce)).await.expect("queued"));
    drop(clone);
    assert!(peer.next().await.starts_with("PUBLISH q0"), "what was asked for is done");
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
    assert_eq!(peer.next().await, END);
}

#[tokio::test]
async fn the_end_answers_everything_that_waits() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let acknowledgement = client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued");
    assert!(peer.next().await.starts_with("PUBLISH"));
    peer.send(Disconnect::new(DisconnectReason::ServerShuttingDown)).await;
    let error = acknowledgement.await.expect_err("it was not acknowledged");
    assert!(matches!(
        error,
        PublishError::Ended(Ended::ByServer { reason: DisconnectReason::ServerShuttingDown, .. })
    ));
    assert_eq!(peer.next().await, END);
    assert!(matches!(client.disconnect().await, Err(DisconnectError::Ended(Ended::ByServer { .. }))));
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_told_so() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    peer.send(wire::PingReq).await;
    assert!(peer.next().await.starts_with("DISCONNECT"));
    assert_eq!(peer.next().await, END);
    assert!(client.ended().is_none_or(|ended| ended.fault() == Fault::Server));
    let error = client.publish(&reading(Qos::AtMostOnce)).await;
    assert!(matches!(error, Err(PublishError::Ended(Ended::Violation(_)))));
}

#[tokio::test]
async fn whoever_does_not_wait_for_a_subscription_does_not_have_it() {
    let (mut peer, client) = Peer::accepted(Version::V3_1_1).await;
    {
        let subscribe = std::pin::pin!(client.subscribe(filter!("a"), Qos::AtMostOnce));
        tokio::select! {
            _ = subscribe => panic!("nobody has answered"),
            line = peer.next() => assert_eq!(line, "SUBSCRIBE id=1 \"a\" q0"),
        }
    }
    let granted = [wire::SubAckReason::GrantedQos0];
    let reasons = wire::OneOrMore::new(&granted).expect("one");
    peer.send(wire::SubAck { packet_id: id(1), properties: wire::AckProperties::EMPTY, reasons }).await;
    assert_eq!(peer.next().await, "UNSUBSCRIBE id=2 \"a\"");
}
