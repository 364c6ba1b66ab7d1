//! Servers that send more than the client can keep, or do not read its answers. The client's memory stays bounded.

use std::num::NonZeroU32;
use std::time::Duration;

use pondhawk_client::{
    Acknowledge, Client, ConnectError, Ended, Inbox, Options, PubAckReason, Qos, State, Version, filter,
    topic,
};
use tokio::time::timeout;
use wire::{
    ConnAck, Delivery, Disconnect, DisconnectReason, Packet, PubRel, PubRelReason, Publish, SubAckReason,
    UserProperties, UserProperty, Utf8,
};

use crate::peer::{END, Peer, id, pass};

/// Larger than all buffers between the server and the client, and the client's own.
const FLOOD_BYTES: usize = 8 << 20;

/// Repeats packets until they have [`FLOOD_BYTES`].
fn flood<'p>(version: Version, packet: impl Fn(u16) -> Packet<'p>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in (1..=u16::MAX).cycle() {
        packet(number).encode(version, &mut bytes).expect("a vector has room");
        if bytes.len() >= FLOOD_BYTES {
            break;
        }
    }
    bytes
}

fn large(qos: Qos, number: u16) -> Publish<'static> {
    static PAYLOAD: [u8; 100_000] = [b'x'; 100_000];
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        _ => Delivery::AtLeastOnce { packet_id: id(number), dup: false },
    };
    Publish { delivery, ..Publish::new(topic!("a"), &PAYLOAD) }
}

async fn drain(mut inbox: Inbox) {
    while let Some(message) = inbox.next().await {
        message.acknowledge();
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_the_server_does_not_read_stop_the_reading() {
    for version in [Version::V3_1_1, Version::V5] {
        let (mut peer, client) = Peer::accepted(version).await;
        let pubrels = flood(version, |number| PubRel::new(id(number), PubRelReason::Success).into());
        assert!(!peer.flood(&pubrels).await, "{version}: the client reads without end");
        // Once the server reads the answers, the client goes on. The flood was cut at any byte.
        let first = peer.next().await;
        assert!(first.starts_with("PUBCOMP id=1 "), "{first}");
        drop(client);
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_the_server_does_not_read_stop_the_reading() {
    let (mut peer, client) = Peer::accepted(Version::V3_1_1).await;
    tokio::spawn(drain(client.inbox().await.expect("a driver")));
    let publishes = flood(Version::V3_1_1, |number| {
        let delivery = Delivery::AtLeastOnce { packet_id: id(number), dup: false };
        Publish { delivery, ..Publish::new(topic!("a"), b"") }.into()
    });
    assert!(!peer.flood(&publishes).await, "the client reads without end");
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_the_server_to_read_gives_up_after_the_keep_alive() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let pubrels = flood(Version::V5, |number| PubRel::new(id(number), PubRelReason::Success).into());
    assert!(!peer.flood(&pubrels).await);
    let mut state = client.state();
    let ended = state.wait_for(|state| matches!(state, State::Ended(_))).await.expect("it ends");
    assert!(matches!(&*ended, State::Ended(Ended::TimedOut(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_bounded_in_bytes() {
    let options = Options::new(Version::V5).client_id("me").message_bytes_max(1 << 20);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("#"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let mut messages = messages.expect("granted");
    let publishes = flood(Version::V5, |_| large(Qos::AtMostOnce, 1).into());
    assert!(!peer.flood(&publishes).await, "the client keeps all");
    // The flood was cut, and no message is lost before that byte.
    drop(peer);
    let mut kept = 0;
    while let Some(message) = messages.next().await {
        kept += message.payload().len();
    }
    // The stream and the messages behind it with one of them beyond each bound, and the buffer of the connection.
    assert!((2 << 20..(3 << 20) + 300_000).contains(&kept), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn messages_that_nobody_wants_are_bounded_in_bytes() {
    for version in [Version::V3_1_1, Version::V5] {
        let options = Options::new(version).client_id("me").message_bytes_max(1 << 20);
        let (mut peer, client) = Peer::accepted_with(version, options).await;
        let server = async {
            for number in 1..=100 {
                peer.send(large(Qos::AtLeastOnce, number)).await;
            }
            assert_eq!(peer.next().await, "PUBACK id=1 Success", "the oldest is accepted and dropped");
        };
        timeout(Duration::from_secs(5), server).await.expect("the client reads on");
        // Time passes only when the client has read everything.
        pass(Duration::from_secs(1)).await;
        assert_eq!(client.unclaimed_dropped(), 90, "{version}");
        let mut inbox = client.inbox().await.expect("a driver");
        for number in 91..=100 {
            let message = inbox.next().await.expect("one of the newest");
            assert_eq!(message.packet_id(), Some(id(number)));
        }
    }
}

/// Before MQTT 5 there is no Receive Maximum. More unacknowledged messages than packet identifiers are a flood.
#[tokio::test(start_paused = true)]
async fn no_version_allows_more_messages_than_identifiers() {
    let options = Options::new(Version::V3_1_1).client_id("me").acknowledge(Acknowledge::ByApplication);
    let (mut peer, client) = Peer::accepted_with(Version::V3_1_1, options).await;
    let mut inbox = client.inbox().await.expect("a driver");
    // The application takes messages, and never acknowledges one.
    let count = async {
        let mut count = 0_u64;
        while let Some(message) = inbox.next().await {
            drop(message);
            count += 1;
        }
        count
    };
    let publishes = flood(Version::V3_1_1, |number| {
        let delivery = Delivery::AtLeastOnce { packet_id: id(number), dup: false };
        Publish { delivery, ..Publish::new(topic!("a"), b"") }.into()
    });
    let (count, _) = tokio::join!(count, peer.flood(&publishes));
    assert_eq!(count, u64::from(u16::MAX));
    assert!(matches!(client.ended(), Some(Ended::Violation(_))), "{:?}", client.ended());
}

#[tokio::test]
async fn a_message_that_is_dropped_unacknowledged_is_counted() {
    let options = Options::new(Version::V5).client_id("me").acknowledge(Acknowledge::ByApplication);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let mut inbox = client.inbox().await.expect("a driver");
    for number in 1..=4 {
        peer.send(large(Qos::AtLeastOnce, number)).await;
    }
    inbox.next().await.expect("the first").acknowledge();
    // The inbox is there now. Without one, a message of QoS 0 is dropped.
    peer.send(large(Qos::AtMostOnce, 0)).await;
    inbox.next().await.expect("the second").refuse(PubAckReason::QuotaExceeded);
    drop(inbox.next().await.expect("the third"));
    let fourth = inbox.next().await.expect("the fourth");
    drop(inbox.next().await.expect("a message of QoS 0"));
    drop((fourth.clone(), fourth));
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
    assert_eq!(peer.next().await, "PUBACK id=2 Quota exceeded");
    client.disconnect().await.expect("nothing is under way");
    assert_eq!(client.unacknowledged_dropped(), 2);
}

#[tokio::test]
async fn a_packet_that_is_no_message_is_small() {
    let name = Utf8::new("a").expect("a string");
    let pairs = vec![UserProperty { name, value: name }; 200_000];
    let (mut peer, client) = Peer::new(Version::V5, Options::new(Version::V5).client_id("me"));
    assert!(peer.next().await.starts_with("CONNECT"));
    let mut accepted = ConnAck::accepted(false);
    accepted.properties.user_properties = UserProperties::from(&pairs[..]);
    peer.send_or_fail(accepted).await;
    let refused = client.await.expect("no panic").expect_err("it is too large");
    assert!(matches!(refused, ConnectError::Ended(Ended::Violation(_))), "{refused}");
}

#[tokio::test]
async fn the_largest_packet_is_the_same_in_each_version() {
    for version in [Version::V3_1_1, Version::V5] {
        let bytes = NonZeroU32::new(50_000).expect("not 0");
        let options = Options::new(version).client_id("me").packet_bytes_max(bytes);
        let (mut peer, client) = Peer::accepted_with(version, options).await;
        peer.send(large(Qos::AtMostOnce, 0)).await;
        let mut state = client.state();
        let ended = state.wait_for(|state| matches!(state, State::Ended(_))).await.expect("it ends");
        assert!(matches!(&*ended, State::Ended(Ended::Violation(_))), "{ended:?}");
    }
}

#[tokio::test]
async fn text_of_the_server_stays_on_one_line() {
    const TEXT: &str = "bye\nConnected\r\u{1b}[2J\u{9b}1m\u{202e}";
    let text = Utf8::new(TEXT).expect("a string");
    let is_hidden = |line: &str| line.chars().any(|c| c.is_control() || c == '\u{202e}');
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let mut goodbye = Disconnect::new(DisconnectReason::ServerMoved);
    goodbye.properties.reason_string = Some(text);
    goodbye.properties.server_reference = Some(text);
    peer.send(goodbye).await;
    let mut state = client.state();
    drop(state.wait_for(|state| matches!(state, State::Ended(_))).await.expect("it ends"));
    let ended = client.ended().expect("it has ended").to_string();
    assert!(ended.contains("bye\\nConnected") && !is_hidden(&ended), "{ended:?}");

    let (mut peer, client) = Peer::new(Version::V5, Options::new(Version::V5).client_id("me"));
    assert!(peer.next().await.starts_with("CONNECT"));
    let mut refused = ConnAck::refused(pondhawk_client::ConnectRefusal::ServerMoved);
    refused.properties.reason_string = Some(text);
    refused.properties.server_reference = Some(text);
    peer.send(refused).await;
    let refused = client.await.expect("no panic").expect_err("refused").to_string();
    assert!(refused.contains("bye\\nConnected") && !is_hidden(&refused), "{refused:?}");
}

/// The caller of `subscribe` gives up after the answer has arrived, and before it sees the answer.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_nobody_received_is_ended() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let mut subscribing = Box::pin(client.subscribe(filter!("a"), Qos::AtMostOnce));
    let polled = timeout(Duration::ZERO, &mut subscribing).await;
    assert!(polled.is_err(), "the server has not answered");
    peer.suback(SubAckReason::GrantedQos0).await;
    // Time passes only when the driver has nothing to do, and has therefore handled the answer.
    pass(Duration::from_secs(1)).await;
    drop(subscribing);
    let line = timeout(Duration::from_secs(10), peer.next()).await;
    assert!(line.as_ref().is_ok_and(|line| line.starts_with("UNSUBSCRIBE")), "{line:?}");
}

#[tokio::test(start_paused = true)]
async fn the_subscription_of_the_last_requester_is_ended() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let (requester, ()) =
        tokio::join!(client.requester(topic!("answers")), peer.suback(SubAckReason::GrantedQos1));
    let requester = requester.expect("granted");
    drop(requester.clone());
    let nothing = timeout(Duration::from_secs(1), peer.begin()).await;
    assert!(nothing.is_err(), "another clone is there");
    drop(requester);
    let line = timeout(Duration::from_secs(10), peer.next()).await;
    assert!(line.as_ref().is_ok_and(|line| line.starts_with("UNSUBSCRIBE")), "{line:?}");
    client.disconnect().await.expect("nothing is under way");
    assert_eq!(peer.next().await, "DISCONNECT Normal disconnection");
    assert_eq!(peer.next().await, END);
}

/// An attempt that fails, one that is refused, and one that succeeds.
#[tokio::test(start_paused = true)]
async fn the_first_connection_can_be_waited_for_like_later_ones() {
    let (streams, mut server) = tokio::sync::mpsc::unbounded_channel();
    let mut attempts = 0;
    let connector = move || {
        attempts += 1;
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let outcome = if attempts == 1 {
            Err(std::io::ErrorKind::ConnectionRefused.into())
        } else {
            streams.send(ours).map(|()| theirs).map_err(std::io::Error::other)
        };
        std::future::ready(outcome)
    };
    let options = Options::new(Version::V5)
        .client_id("me")
        .reconnect(Duration::from_secs(1), Duration::from_secs(60))
        .wait_for_server(true);
    let server = async {
        let mut peer = Peer::on(server.recv().await.expect("an attempt"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::refused(pondhawk_client::ConnectRefusal::ServerBusy)).await;
        let at_once = timeout(Duration::from_millis(400), server.recv()).await;
        assert!(at_once.is_err(), "only the caller tries again, after at least half a second");
        let mut peer = Peer::on(server.recv().await.expect("an attempt"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::accepted(false)).await;
        // Time passes only when the client has nothing to do, and has therefore seen the answer.
        pass(Duration::from_secs(1)).await;
        peer.send(Disconnect::new(DisconnectReason::ServerShuttingDown)).await;
        drop(peer);
        let mut peer =
            Peer::on(server.recv().await.expect("a connection in place of the lost one"), Version::V5);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::refused(pondhawk_client::ConnectRefusal::NotAuthorized)).await;
    };
    let (client, ()) = tokio::join!(Client::connect_by(connector, options), server);
    let client = client.expect("accepted at last");
    let mut state = client.state();
    drop(state.wait_for(|state| matches!(state, State::Ended(Ended::Refused(_)))).await.expect("it ends"));
}
