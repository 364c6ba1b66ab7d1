//! The beginning and the end of connections.

use std::io;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pondhawk_client::{
    Client, ConnectError, Disconnect, DisconnectError, DisconnectProperties, DisconnectReason, Ended, Fault,
    Options, Outgoing, PublishError, Qos, State, SubscribeError, UserProperties, UserProperty, Utf8, Version,
    filter, topic,
};
use tokio::io::{AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use wire::{ConnAck, ConnAckProperties, ConnectRefusal, Packet, PubAck, PubAckReason, SubAckReason};

use crate::peer::{END, Peer, id, pass};

fn reading(qos: Qos) -> Outgoing<'static> {
    Outgoing::new(topic!("a/b"), b"hey").qos(qos)
}

fn text(text: &str) -> Utf8<'_> {
    Utf8::new(text).expect("a string")
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
    let line_and_password = |packet: &Packet<'_>| {
        let Packet::Connect(connect) = packet else { panic!("{packet}") };
        (connect.to_string(), connect.password().map(|password| password.as_bytes().to_owned()))
    };
    let (connect, password) = peer.next_of(line_and_password).await.expect("CONNECT");
    assert_eq!(password.as_deref(), Some(&b"secret"[..]));
    let words: Vec<_> = connect.split(' ').collect();
    for word in
        ["\"me\"", "user-name=\"ann\"", "keep-alive=7", "session-expiry-interval=9", "receive-maximum=256"]
    {
        assert!(words.contains(&word), "{word} in {connect}");
    }
    assert!(!connect.contains("clean-start"));
    peer.send(ConnAck::accepted(false)).await;
    let client = client.await.expect("no panic").expect("accepted");
    assert_eq!((client.server().client_id.as_str(), client.server().session_present), ("me", false));
}

#[tokio::test]
async fn connect_and_connack_have_all_their_properties() {
    let pairs = [UserProperty { name: text("trace"), value: text("7f") }];
    let options = Options::new(Version::V5)
        .password(b"secret")
        .user_properties(UserProperties::from(&pairs[..]))
        .request_response_information(true)
        .request_problem_information(false)
        .authentication("TOKEN", Some(b"7"));
    let (mut peer, client) = Peer::new(Version::V5, options);
    let connect = peer.next().await;
    for part in ["user-property=\"trace\":\"7f\"", "response-information=true", "problem-information=false"] {
        assert!(connect.contains(part), "{part} in {connect}");
    }
    assert!(connect.contains("authentication-method=\"TOKEN\""), "{connect}");
    assert!(connect.contains("password") && !connect.contains("user-name"), "{connect}");
    let mut accepted = ConnAck::accepted(false);
    accepted.properties = ConnAckProperties {
        session_expiry_interval_secs: Some(7),
        receive_maximum: NonZeroU16::new(8),
        topic_alias_maximum: Some(9),
        server_keep_alive_secs: Some(10),
        assigned_client_identifier: Some(text("you")),
        reason_string: Some(text("welcome")),
        response_information: Some(text("answers/you")),
        server_reference: Some(text("elsewhere")),
        authentication_method: Some(text("TOKEN")),
        user_properties: UserProperties::from(&pairs[..]),
        ..ConnAckProperties::EMPTY
    };
    peer.send(accepted).await;
    let client = client.await.expect("no panic").expect("accepted");
    let server = client.server();
    assert_eq!((server.session_expiry_secs, server.keep_alive_secs), (Some(7), Some(10)));
    assert_eq!((server.receive_max, server.topic_alias_max), (8, 9));
    assert_eq!(server.client_id, "you");
    assert_eq!(server.text.as_deref(), Some("welcome"));
    assert_eq!(server.response_information.as_deref(), Some("answers/you"));
    assert_eq!(server.server_reference.as_deref(), Some("elsewhere"));
    assert_eq!(server.user_properties, [("trace".to_owned(), "7f".to_owned())]);
}

#[tokio::test]
async fn disconnect_has_what_it_is_given() {
    let options = || Options::new(Version::V5).client_id("me");
    let pairs = [UserProperty { name: text("trace"), value: text("7f") }];
    let properties = DisconnectProperties {
        session_expiry_interval_secs: Some(60),
        reason_string: Some(text("enough")),
        user_properties: UserProperties::from(&pairs[..]),
        ..DisconnectProperties::EMPTY
    };
    let packet = Disconnect { reason: DisconnectReason::DisconnectWithWillMessage, properties };
    let (mut peer, client) = Peer::accepted_with(Version::V5, options().session_expiry_secs(7)).await;
    client.disconnect_with(&packet).await.expect("nothing is under way");
    let line = peer.next().await;
    for part in ["DISCONNECT Disconnect with Will Message", "=60", "enough", "\"trace\":\"7f\""] {
        assert!(line.contains(part), "{part} in {line}");
    }

    // A session that ends with its connection cannot be extended. The client disconnects anyway, and reports the error.
    let (mut peer, client) = Peer::accepted_with(Version::V5, options()).await;
    let error = client.disconnect_with(&packet).await.expect_err("no session");
    assert!(matches!(error, DisconnectError::Protocol(_)), "{error}");
    assert_eq!(error.fault(), Fault::Application);
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
}

#[tokio::test]
async fn the_end_comes_in_the_servers_own_words() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let mut packet = Disconnect::new(DisconnectReason::UseAnotherServer);
    packet.properties.reason_string = Some(text("too many of you"));
    packet.properties.server_reference = Some(text("elsewhere"));
    peer.send(packet).await;
    assert_eq!(peer.next().await, END);
    let error = client.publish(&reading(Qos::AtMostOnce)).await.expect_err("it is over");
    let said = "the server has ended the connection: Use another server (too many of you); use elsewhere";
    assert!(error.to_string().contains(said), "{error}");
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
async fn options_may_be_as_large_as_their_types() {
    let options = Options::new(Version::V5)
        .client_id("me")
        .messages_max(usize::MAX)
        .commands_max(usize::MAX)
        .connect_timeout(Duration::MAX)
        .request_timeout(Duration::MAX)
        .flush_timeout(Duration::MAX)
        .reconnect(Duration::MAX, Duration::MAX);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("a"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let _messages = messages.expect("granted");
    client.disconnect().await.expect("nothing is under way");
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
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

#[tokio::test(start_paused = true)]
async fn a_packet_that_takes_long_is_no_sign_of_a_server_that_is_gone() {
    let options = Options::new(Version::V5).client_id("me").keep_alive_secs(10);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let payload = vec![b'x'; 2 << 20];
    drop(client.publish(&Outgoing::new(topic!("a"), &payload)).await.expect("queued"));
    for _ in 0..30 {
        pass(Duration::from_secs(9)).await;
        peer.sip(50).await;
    }
    assert!(client.ended().is_none(), "{:?}", client.ended());
    assert!(peer.next().await.starts_with("PUBLISH q0 \"a\" 2097152 B"));
    assert_eq!(peer.next().await, "PINGREQ", "it is due, and not late");
    peer.send(wire::PingResp).await;
    assert_eq!(peer.next().await, "PINGREQ");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_any_more_is_given_up() {
    let options = Options::new(Version::V5).client_id("me").keep_alive_secs(10);
    let (_peer, client) = Peer::accepted_with(Version::V5, options).await;
    let payload = vec![b'x'; 2 << 20];
    let queued = Instant::now();
    let stuck = Outgoing::new(topic!("a"), &payload).qos(Qos::AtLeastOnce);
    let acknowledgement = client.publish(&stuck).await.expect("queued");
    let error = acknowledgement.await.expect_err("it is over");
    assert!(matches!(error, PublishError::Ended(Ended::TimedOut(_))), "{error}");
    // 7.5 s, three quarters of the keep alive; 10 s in which the server reads nothing; 1 s for the last bytes.
    assert_eq!(queued.elapsed().as_secs(), 18);
}

/// PINGRESP may wait behind messages that nobody takes.
#[tokio::test(start_paused = true)]
async fn a_slow_application_does_not_cost_the_connection() {
    let options = Options::new(Version::V5).client_id("me").keep_alive_secs(10);
    let options = options.messages_max(1).receive_max(NonZeroU16::MIN);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("#"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let mut messages = messages.expect("granted");
    for _ in 0..3 {
        peer.send(wire::Publish::new(topic!("a"), b"hey")).await;
    }
    for _ in 0..5 {
        assert_eq!(peer.next().await, "PINGREQ");
        peer.send(wire::PingResp).await;
    }
    let subscribed = client.subscribe(filter!("b"), Qos::AtMostOnce);
    let taken = async {
        peer.suback(SubAckReason::GrantedQos0).await;
        // Just under the 10 s for which the answer may wait behind messages that nobody takes.
        pass(Duration::from_secs(9)).await;
        for _ in 0..3 {
            drop(messages.next().await.expect("all are there"));
        }
    };
    tokio::join!(subscribed, taken).0.expect("its answer had come");
    assert!(client.ended().is_none());
    while peer.next().await != "PINGREQ" {}
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

#[tokio::test(start_paused = true)]
async fn disconnect_waits_until_a_slow_server_has_taken_everything() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let payload = vec![b'x'; 3 << 20];
    let large = Outgoing::new(topic!("a"), &payload);
    drop(client.publish(&large).await.expect("queued"));
    let server = async {
        peer.begin().await;
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(peer.next().await.starts_with("PUBLISH q0 \"a\" 3145728 B"));
        assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
        assert_eq!(peer.next().await, END);
    };
    let (disconnected, ()) = tokio::join!(client.disconnect(), server);
    disconnected.expect("the server has everything");
}

#[tokio::test(start_paused = true)]
async fn disconnect_fails_if_the_server_does_not_read_the_queued_bytes() {
    let (_peer, client) = Peer::accepted(Version::V5).await;
    let payload = vec![b'x'; 3 << 20];
    drop(client.publish(&Outgoing::new(topic!("a"), &payload)).await.expect("queued"));
    let error = client.disconnect().await.expect_err("nothing is taken");
    assert!(matches!(error, DisconnectError::Ended(Ended::Io(_))), "{error}");
}

/// Publishes until the stream and the driver have no room, and the queue is full.
async fn fill(client: &Client) {
    let payload = vec![b'x'; 1 << 20];
    let large = Outgoing::new(topic!("a"), &payload);
    while let Ok(queued) = tokio::time::timeout(Duration::from_millis(1), client.publish(&large)).await {
        drop(queued.expect("there is a connection"));
    }
}

#[tokio::test(start_paused = true)]
async fn disconnect_ends_in_time_though_the_server_takes_nothing() {
    let options = Options::new(Version::V5).client_id("me").keep_alive_secs(0).commands_max(2);
    let options = options.flush_timeout(Duration::from_secs(3));
    let (_peer, client) = Peer::accepted_with(Version::V5, options).await;
    fill(&client).await;
    let ended = tokio::time::timeout(Duration::from_secs(5), client.disconnect()).await;
    let error = ended.expect("it ends").expect_err("nothing is taken");
    assert!(matches!(error, DisconnectError::Ended(Ended::Io(_))), "{error}");
}

#[tokio::test(start_paused = true)]
async fn disconnect_says_how_much_was_not_even_sent() {
    let options = Options::new(Version::V5).client_id("me").inflight_max(NonZeroU16::MIN);
    let options = options.flush_timeout(Duration::from_secs(3));
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    for _ in 0..1_100 {
        drop(client.publish(&reading(Qos::AtLeastOnce)).await.expect("queued"));
    }
    let error = client.disconnect().await.expect_err("nothing is acknowledged");
    assert!(matches!(error, DisconnectError::Unacknowledged { messages: 1_100 }), "{error}");
    assert!(peer.next().await.starts_with("PUBLISH q1 id=1"));
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_connection_in_time() {
    let options = Options::new(Version::V5).client_id("me").keep_alive_secs(0).commands_max(2);
    let (_peer, client) = Peer::accepted_with(Version::V5, options).await;
    fill(&client).await;
    let mut state = client.state();
    drop(client);
    let is_over = state.wait_for(|state| matches!(state, State::Ended(_)));
    let is_over = tokio::time::timeout(Duration::from_secs(12), is_over).await;
    drop(is_over.expect("it ends").expect("the driver says so"));
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
    assert_eq!(peer.next().await, "DISCONNECT Protocol Error");
    assert_eq!(peer.next().await, END);
    let ended = ended(&client).await;
    assert!(matches!(ended, Ended::Violation(_)), "{ended}");
    assert_eq!(ended.fault(), Fault::Server);
    let error = client.publish(&reading(Qos::AtMostOnce)).await;
    assert!(matches!(error, Err(PublishError::Ended(Ended::Violation(_)))));
}

/// Waits for the end of the connection, and returns its reason.
async fn ended(client: &Client) -> Ended {
    let mut state = client.state();
    let state = state.wait_for(|state| matches!(state, State::Ended(_))).await.expect("it ends");
    let State::Ended(why) = &*state else { panic!("{state:?}") };
    why.clone()
}

#[tokio::test]
async fn a_subscription_is_removed_if_the_caller_stopped_waiting_for_it() {
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

/// A stream whose peer has sent some bytes, and reads no more.
struct Broken(tokio::io::DuplexStream, bool);

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.1 { Pin::new(&mut self.0).poll_read(task, into) } else { Poll::Pending }
    }
}

impl tokio::io::AsyncWrite for Broken {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.1 = true;
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn the_answer_of_the_server_is_read_even_if_writing_fails() {
    let (mut ours, theirs) = tokio::io::duplex(1 << 10);
    let mut refused = Vec::new();
    let packet = ConnAck::refused(ConnectRefusal::Banned);
    packet.encode(Version::V5, &mut refused).expect("in order");
    ours.write_all(&refused).await.expect("in memory");
    let error = Client::connect(Broken(theirs, false), Options::new(Version::V5)).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Refused { reason: ConnectRefusal::Banned, .. }), "{error}");
}
