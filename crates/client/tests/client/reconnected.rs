//! Connections that are lost and replaced.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pondhawk_client::{
    Client, DisconnectError, Ended, Fault, Options, Outgoing, PublishError, Qos, State, SubscribeError,
    Version, filter, topic,
};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::{
    ConnAck, ConnectRefusal, Disconnect, DisconnectReason, PubAck, PubAckReason, Publish, SubAckReason,
};

use crate::peer::{END, Peer, id, pass};

/// A server that accepts one connection after another.
struct Listener {
    version: Version,
    streams: mpsc::UnboundedReceiver<DuplexStream>,
    is_down: Arc<AtomicBool>,
}

impl Listener {
    async fn accept(&mut self) -> Peer {
        Peer::on(self.streams.recv().await.expect("the client tries"), self.version)
    }

    /// Refuses all connections while `is_down` is set.
    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Accepts the next connection of the client, and returns it together with CONNECT.
    async fn accepted(&mut self, session_present: bool) -> (Peer, String) {
        let mut peer = self.accept().await;
        let connect = peer.next().await;
        peer.send(ConnAck::accepted(session_present)).await;
        (peer, connect)
    }
}

async fn connected(version: Version, options: Options) -> (Listener, Peer, Client) {
    let (to, streams) = mpsc::unbounded_channel();
    let is_down = Arc::new(AtomicBool::new(false));
    let mut listener = Listener { version, streams, is_down: Arc::clone(&is_down) };
    let connector = move || {
        let (ours, theirs) = duplex(1 << 16);
        let is_taken = !is_down.load(Ordering::Relaxed) && to.send(ours).is_ok();
        std::future::ready(if is_taken { Ok(theirs) } else { Err(io::ErrorKind::ConnectionRefused.into()) })
    };
    let options = options.reconnect(FIRST, LONGEST);
    let (client, (peer, _)) = tokio::join!(Client::connect_by(connector, options), listener.accepted(false));
    (listener, peer, client.expect("it is accepted"))
}

/// First and maximum delay between two attempts.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

/// Ends the connection, and waits until an attempt to replace it has failed.
async fn suspended(listener: &Listener, peer: Peer, client: &Client) {
    listener.set_down(true);
    drop(peer);
    let mut state = client.state();
    let is_between = |state: &State| matches!(state, State::Reconnecting(Ended::Io(_)));
    drop(state.wait_for(is_between).await.expect("the driver is there"));
}

fn lasting() -> Options {
    Options::new(Version::V5).client_id("me").session_expiry_secs(60)
}

fn reading(qos: Qos) -> Outgoing<'static> {
    Outgoing::new(topic!("a/b"), b"hey").qos(qos)
}

#[tokio::test(start_paused = true)]
async fn messages_in_flight_are_sent_again_if_the_session_is_present() {
    let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
    let acknowledgement = client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued");
    assert_eq!(peer.next().await, "PUBLISH q1 id=1 \"a/b\" 3 B \"hey\"");
    drop(peer);
    let (mut peer, connect) = listener.accepted(true).await;
    assert!(!connect.contains("clean-start"), "{connect}");
    assert_eq!(peer.next().await, "PUBLISH q1 id=1 dup \"a/b\" 3 B \"hey\"");
    peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
    acknowledgement.await.expect("acknowledged after all");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_go_on() {
    for session_present in [true, false] {
        let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
        let (messages, ()) = tokio::join!(
            client.subscribe(filter!("a/#"), Qos::AtLeastOnce),
            peer.suback(SubAckReason::GrantedQos1)
        );
        let mut messages = messages.expect("granted");
        drop(peer);
        let (mut peer, _) = listener.accepted(session_present).await;
        if !session_present {
            peer.suback(SubAckReason::GrantedQos1).await;
        }
        peer.send(Publish::new(topic!("a/b"), b"hey")).await;
        assert_eq!(messages.next().await.expect("a message").payload(), b"hey");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_in_flight_fail_if_their_session_is_lost() {
    let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
    let acknowledgement = client.publish(&reading(Qos::ExactlyOnce)).await.expect("queued");
    assert!(peer.next().await.starts_with("PUBLISH"));
    drop(peer);
    let (_peer, _) = listener.accepted(false).await;
    let error = acknowledgement.await.expect_err("the session is over");
    assert!(matches!(error, PublishError::Protocol(session::client::PublishError::SessionEnded)));
}

#[tokio::test(start_paused = true)]
async fn between_connections_messages_wait_and_requests_are_refused() {
    let (mut listener, peer, client) = connected(Version::V5, lasting()).await;
    suspended(&listener, peer, &client).await;
    let error = client.subscribe(filter!("a"), Qos::AtMostOnce).await.expect_err("there is no connection");
    let not_connected = session::client::RequestError::NotConnected;
    assert!(matches!(&error, SubscribeError::Protocol(why) if *why == not_connected), "{error}");
    assert_eq!(error.fault(), Fault::Network);
    let lost = client.publish(&reading(Qos::AtMostOnce)).await.expect("queued").await;
    let not_connected = session::client::PublishError::NotConnected;
    assert!(matches!(&lost, Err(PublishError::Protocol(why)) if *why == not_connected), "{lost:?}");
    let kept = client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued");
    listener.set_down(false);
    let (mut peer, _) = listener.accepted(true).await;
    assert_eq!(peer.next().await, "PUBLISH q1 id=1 \"a/b\" 3 B \"hey\"");
    peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
    kept.await.expect("it has waited");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_taken_over_is_left_alone() {
    let (_listener, mut peer, client) = connected(Version::V5, lasting()).await;
    peer.send(Disconnect::new(DisconnectReason::SessionTakenOver)).await;
    assert_eq!(peer.next().await, END);
    let error = client.publish(&reading(Qos::AtMostOnce)).await;
    let Err(PublishError::Ended(Ended::ByServer { reason, .. })) = error else { panic!("{error:?}") };
    assert_eq!(reason, DisconnectReason::SessionTakenOver);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_pass_is_waited_for() {
    use ConnectRefusal as Why;
    let passing = [
        Why::UnspecifiedError,
        Why::ImplementationSpecificError,
        Why::ServerUnavailable,
        Why::ServerBusy,
        Why::QuotaExceeded,
        Why::UseAnotherServer,
        Why::ConnectionRateExceeded,
    ];
    let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
    for why in passing {
        drop(peer);
        let mut refusing = listener.accept().await;
        assert!(refusing.next().await.starts_with("CONNECT"));
        refusing.send(ConnAck::refused(why)).await;
        peer = listener.accepted(true).await.0;
    }
    for why in [Why::NotAuthorized, Why::Banned, Why::ServerMoved, Why::ClientIdentifierNotValid] {
        let (mut listener, peer, client) = connected(Version::V5, lasting()).await;
        drop(peer);
        let mut refusing = listener.accept().await;
        assert!(refusing.next().await.starts_with("CONNECT"));
        refusing.send(ConnAck::refused(why)).await;
        let over = client.publish(&reading(Qos::AtLeastOnce)).await.expect("it may be queued").await;
        assert!(
            matches!(over, Err(PublishError::Ended(Ended::Refused(reason))) if reason == why),
            "{over:?}"
        );
    }
    drop(client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued"));
    assert!(peer.next().await.starts_with("PUBLISH"));
}

#[tokio::test(start_paused = true)]
async fn it_may_take_for_ever_until_the_next_attempt() {
    let (to, mut streams) = mpsc::unbounded_channel();
    let connector = move || {
        let (ours, theirs) = duplex(1 << 16);
        std::future::ready(
            to.send(ours).map(|()| theirs).map_err(|_| io::ErrorKind::ConnectionRefused.into()),
        )
    };
    let options = lasting().reconnect(Duration::MAX, Duration::MAX);
    let server = async {
        let mut peer = Peer::on(streams.recv().await.expect("the client tries"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::accepted(false)).await;
        peer
    };
    let (client, peer) = tokio::join!(Client::connect_by(connector, options), server);
    let client = client.expect("accepted");
    drop(peer);
    let mut state = client.state();
    drop(state.wait_for(|state| matches!(state, State::Reconnecting(_))).await.expect("it is there"));
    client.disconnect().await.expect("there is nothing to deliver");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_closes_is_tried_less_and_less_often() {
    let (mut listener, mut peer, _client) = connected(Version::V5, lasting()).await;
    let mut again = async |peer: Peer| {
        let lost = Instant::now();
        drop(peer);
        let (peer, _) = listener.accepted(true).await;
        (lost.elapsed(), peer)
    };
    for _ in 0..5 {
        peer = again(peer).await.1;
    }
    let (delay, peer) = again(peer).await;
    assert!(delay >= LONGEST / 2, "{delay:?}");
    pass(LONGEST).await;
    let (delay, _peer) = again(peer).await;
    assert!((FIRST / 2..=FIRST).contains(&delay), "it has lasted: {delay:?}");
}

#[tokio::test(start_paused = true)]
async fn disconnect_does_not_need_a_connection() {
    let (listener, peer, client) = connected(Version::V5, lasting()).await;
    suspended(&listener, peer, &client).await;
    client.disconnect().await.expect("there is nothing to deliver");
    assert!(matches!(client.ended(), Some(Ended::ByUs)));
}

#[tokio::test(start_paused = true)]
async fn disconnect_between_connections_delivers_what_waits() {
    let (mut listener, peer, client) = connected(Version::V5, lasting()).await;
    suspended(&listener, peer, &client).await;
    let acknowledgement = client.publish(&reading(Qos::AtLeastOnce)).await.expect("it waits");
    listener.set_down(false);
    let server = async {
        let (mut peer, _) = listener.accepted(true).await;
        assert!(peer.next().await.starts_with("PUBLISH q1 id=1"));
        peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
        assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
        assert_eq!(peer.next().await, END);
    };
    let (disconnected, ()) = tokio::join!(client.disconnect(), server);
    disconnected.expect("everything is acknowledged");
    acknowledgement.await.expect("acknowledged after all");
}

#[tokio::test(start_paused = true)]
async fn waiting_messages_are_delivered_if_the_connection_is_lost_during_disconnect() {
    let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
    drop(client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued"));
    let server = async {
        assert!(peer.next().await.starts_with("PUBLISH q1 id=1"));
        // The client has begun to disconnect.
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(peer);
        let (mut peer, _) = listener.accepted(true).await;
        assert!(peer.next().await.starts_with("PUBLISH q1 id=1 dup"));
        peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
        assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
    };
    let (disconnected, ()) = tokio::join!(client.disconnect(), server);
    disconnected.expect("everything is acknowledged");
}

#[tokio::test(start_paused = true)]
async fn disconnect_reports_messages_that_were_not_delivered_in_time() {
    let options = lasting().flush_timeout(Duration::from_secs(3));
    let (listener, peer, client) = connected(Version::V5, options).await;
    suspended(&listener, peer, &client).await;
    let acknowledgement = client.publish(&reading(Qos::AtLeastOnce)).await.expect("it waits");
    let asked = Instant::now();
    let error = client.disconnect().await.expect_err("nobody takes it");
    assert!(matches!(error, DisconnectError::Unacknowledged { messages: 1 }), "{error:?}");
    assert_eq!(asked.elapsed().as_secs(), 3);
    assert!(matches!(acknowledgement.await, Err(PublishError::Ended(Ended::ByUs))));
}

#[tokio::test(start_paused = true)]
async fn disconnect_reports_messages_that_a_new_session_does_not_know() {
    let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
    drop(client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued"));
    assert!(peer.next().await.starts_with("PUBLISH q1 id=1"));
    suspended(&listener, peer, &client).await;
    listener.set_down(false);
    let (disconnected, _) = tokio::join!(client.disconnect(), listener.accepted(false));
    assert!(matches!(disconnected, Err(DisconnectError::Unacknowledged { messages: 1 })));
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_leaves_what_waits_to_another_connection() {
    let (mut listener, peer, client) = connected(Version::V5, lasting()).await;
    suspended(&listener, peer, &client).await;
    drop(client.publish(&reading(Qos::AtLeastOnce)).await.expect("it waits"));
    drop(client);
    listener.set_down(false);
    let (mut peer, _) = listener.accepted(true).await;
    assert!(peer.next().await.starts_with("PUBLISH q1 id=1"));
    peer.send(PubAck::new(id(1), PubAckReason::Success)).await;
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_was_not_made_again_in_time_is_made_on_the_next_connection() {
    let (mut listener, mut peer, client) = connected(Version::V5, lasting()).await;
    let mut inbox = client.inbox().await.expect("it is there");
    let options = pondhawk_client::SubscriptionOptions::default();
    let many = [(filter!("b"), options), (filter!("c"), options)];
    let properties = pondhawk_client::SubscribeProperties::EMPTY;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("a"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let _messages = messages.expect("granted");
    let (granted, ()) = tokio::join!(client.subscribe_many(&many, &properties), async {
        assert!(peer.next().await.starts_with("SUBSCRIBE id=2"));
        peer.send(two_granted(2)).await;
    });
    granted.expect("granted");
    drop(peer);
    let (mut peer, _) = listener.accepted(false).await;
    assert!(peer.next().await.starts_with("SUBSCRIBE"), "the session is new");
    drop(peer);
    let (mut peer, _) = listener.accepted(true).await;
    peer.suback(SubAckReason::GrantedQos0).await;
    let line = peer.next().await;
    assert!(line.starts_with("SUBSCRIBE id=") && line.contains("\"b\"") && line.contains("\"c\""), "{line}");
    let number = line["SUBSCRIBE id=".len()..].split(' ').next().and_then(|number| number.parse().ok());
    peer.send(two_granted(number.expect("a number"))).await;
    peer.send(Publish::new(topic!("b"), b"hey")).await;
    drop(inbox.next().await.expect("a message"));
    drop(peer);
    let (mut peer, _) = listener.accepted(true).await;
    drop(client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued"));
    assert!(peer.next().await.starts_with("PUBLISH"), "nothing is subscribed to twice");
}

fn two_granted(number: u16) -> wire::SubAck<'static> {
    const GRANTED: [SubAckReason; 2] = [SubAckReason::GrantedQos0; 2];
    let reasons = wire::OneOrMore::new(&GRANTED).expect("two");
    wire::SubAck { packet_id: id(number), properties: wire::AckProperties::EMPTY, reasons }
}

#[tokio::test(start_paused = true)]
async fn mqtt_3_1_does_not_say_whether_there_is_a_session() {
    let options = Options::new(Version::V3_1).client_id("me").clean_start(false);
    let (mut listener, mut peer, client) = connected(Version::V3_1, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("a"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let mut messages = messages.expect("granted");
    drop(peer);
    let (mut peer, _) = listener.accepted(false).await;
    peer.suback(SubAckReason::GrantedQos0).await;
    peer.send(Publish::new(topic!("a"), b"hey")).await;
    drop(messages.next().await.expect("a message"));
}
