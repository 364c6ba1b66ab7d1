//! Messages that an application subscribes to.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pondhawk_client::{
    Acknowledge, Client, Ended, Fault, Messages, Options, Outgoing, Packet, PublishError, Qos, Role, State,
    SubscribeError, SubscriptionIdentifier, TopicAlias, Version, filter, topic,
};
use tokio::time::timeout;
use wire::{Delivery, PubAck, PubAckReason, Publish, SubAckReason};

use crate::peer::{Peer, id, pass};

/// Time limit far beyond the duration of any step in these tests.
const DEADLINE: Duration = Duration::from_secs(30);

fn publish(qos: Qos, packet_id: u16) -> Publish<'static> {
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: id(packet_id), dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: id(packet_id), dup: false },
    };
    Publish { delivery, ..Publish::new(topic!("a/b"), b"hey") }
}

#[tokio::test]
async fn messages_come_in_the_stream_of_their_filter() {
    for version in Version::ALL {
        let (mut peer, client) = Peer::accepted(version).await;
        let (ours, ()) = tokio::join!(
            client.subscribe(filter!("a/+"), Qos::ExactlyOnce),
            peer.suback(SubAckReason::GrantedQos1)
        );
        let (others, ()) = tokio::join!(
            client.subscribe(filter!("b/#"), Qos::AtMostOnce),
            peer.suback(SubAckReason::GrantedQos0)
        );
        let (mut ours, mut others) = (ours.expect("granted"), others.expect("granted"));
        assert_eq!((ours.granted(), others.granted()), (Qos::AtLeastOnce, Qos::AtMostOnce));
        peer.send(publish(Qos::AtLeastOnce, 1)).await;
        peer.send(Publish::new(topic!("b"), b"2")).await;
        assert_eq!(others.next().await.expect("a message").payload(), b"2");
        let message = ours.next().await.expect("a message");
        assert_eq!(
            (message.topic(), message.payload(), message.qos()),
            (topic!("a/b"), &b"hey"[..], Qos::AtLeastOnce)
        );
        assert_eq!(peer.next().await, "PUBACK id=1 Success");
    }
}

#[tokio::test]
async fn a_message_is_acknowledged_when_it_is_taken() {
    let (mut peer, client) = Peer::accepted(Version::V3_1_1).await;
    let (messages, ()) = tokio::join!(
        client.subscribe(filter!("#"), Qos::ExactlyOnce),
        peer.suback(SubAckReason::GrantedQos2)
    );
    let mut messages = messages.expect("granted");
    peer.send(publish(Qos::AtLeastOnce, 7)).await;
    peer.send(publish(Qos::ExactlyOnce, 8)).await;
    assert_eq!(peer.next().await, "PUBREC id=8 Success", "once there, it may not come again");
    drop(messages.next().await.expect("the first"));
    assert_eq!(peer.next().await, "PUBACK id=7 Success");
    assert_eq!(messages.next().await.expect("the second").qos(), Qos::ExactlyOnce);
}

#[tokio::test]
async fn the_application_may_be_the_one_to_acknowledge() {
    let options = Options::new(Version::V5).client_id("me").acknowledge(Acknowledge::ByApplication);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) = tokio::join!(
        client.subscribe(filter!("#"), Qos::ExactlyOnce),
        peer.suback(SubAckReason::GrantedQos2)
    );
    let mut messages = messages.expect("granted");
    for number in 1..=3 {
        peer.send(publish(Qos::AtLeastOnce, number)).await;
    }
    let first = messages.next().await.expect("the first");
    let second = messages.next().await.expect("the second");
    second.refuse(wire::PubAckReason::QuotaExceeded);
    first.acknowledge();
    assert_eq!(peer.next().await, "PUBACK id=1 Success", "in the order of the messages");
    assert_eq!(peer.next().await, "PUBACK id=2 Quota exceeded");
}

#[tokio::test]
async fn messages_accepted_before_the_end_are_acknowledged_before_disconnect() {
    // Repeated, because the driver's choice between simultaneous events is random.
    for _ in 0..20 {
        let (mut peer, client) = Peer::accepted(Version::V5).await;
        let (messages, ()) = tokio::join!(
            client.subscribe(filter!("#"), Qos::AtLeastOnce),
            peer.suback(SubAckReason::GrantedQos1)
        );
        let mut messages = messages.expect("granted");
        peer.send(publish(Qos::AtLeastOnce, 7)).await;
        drop(messages.next().await.expect("a message"));
        client.disconnect().await.expect("nothing is under way");
        assert_eq!(peer.next().await, "PUBACK id=7 Success");
        assert!(peer.next().await.starts_with("DISCONNECT"));
    }
}

/// A stream for one message makes both ends wait for each other all the time.
#[tokio::test]
async fn a_stream_may_be_read_on_another_thread() {
    const COUNT: u32 = 10_000;
    let options = Options::new(Version::V5).client_id("me").messages_max(1);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("#"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let mut messages = messages.expect("granted");
    let (done, read) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for number in 0..COUNT {
                let message = messages.next().await.expect("a message");
                assert_eq!(message.payload(), number.to_be_bytes());
            }
        });
        done.send(()).expect("somebody waits");
    });
    for number in 0..COUNT {
        peer.send(Publish::new(topic!("a"), &number.to_be_bytes())).await;
    }
    timeout(DEADLINE, read).await.expect("neither waits for ever").expect("all have come");
}

/// Messages of QoS 2 are acknowledged before the application takes them. The client then has the only copy.
#[tokio::test]
async fn messages_for_a_full_stream_remain_readable_after_the_connection_ends() {
    let options = Options::new(Version::V5).client_id("me").messages_max(1);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) = tokio::join!(
        client.subscribe(filter!("#"), Qos::ExactlyOnce),
        peer.suback(SubAckReason::GrantedQos2)
    );
    let mut messages = messages.expect("granted");
    for number in 1..=3 {
        peer.send(publish(Qos::ExactlyOnce, number)).await;
        assert_eq!(peer.next().await, format!("PUBREC id={number} Success"));
    }
    drop(peer);
    let mut state = client.state();
    state.wait_for(|state| matches!(state, State::Ended(_))).await.expect("it is told");
    for number in 1..=3 {
        assert_eq!(messages.next().await.expect("it was acknowledged").packet_id(), Some(id(number)));
    }
    assert!(messages.next().await.is_none());
}

/// Repeated, because the driver's choice between simultaneous events is random.
#[tokio::test]
async fn an_inbox_that_takes_what_reading_had_stopped_for_lets_it_go_on() {
    for _ in 0..20 {
        let options = Options::new(Version::V5).client_id("me").keep_alive_secs(0);
        let options = options.messages_max(1).receive_max(nonzero(1));
        let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
        let (messages, ()) = tokio::join!(
            client.subscribe(filter!("#"), Qos::AtMostOnce),
            peer.suback(SubAckReason::GrantedQos0)
        );
        let mut messages = messages.expect("granted");
        peer.send_at_once([b"1", b"2", b"3"].map(|payload| Publish::new(topic!("a"), payload))).await;
        let first = timeout(DEADLINE, messages.next()).await.expect("it has come");
        assert_eq!(first.expect("a message").payload(), b"1");
        let _inbox = client.inbox().await;
        for payload in [b"2", b"3"] {
            let next = timeout(DEADLINE, messages.next()).await.expect("it has come");
            assert_eq!(next.expect("a message").payload(), payload);
        }
    }
}

/// A message goes to two streams. One is dropped, and the message is acknowledged on the other.
#[tokio::test]
async fn a_message_is_acknowledged_by_those_who_are_left() {
    let options = Options::new(Version::V5).client_id("me").acknowledge(Acknowledge::ByApplication);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (all, ()) = tokio::join!(
        client.subscribe(filter!("#"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    let (some, ()) = tokio::join!(
        client.subscribe(filter!("a/+"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    let mut some = some.expect("granted");
    peer.send(publish(Qos::AtLeastOnce, 1)).await;
    let message = some.next().await.expect("a message");
    drop(all.expect("granted"));
    message.acknowledge();
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
}

/// The awaited answer is behind messages that nobody takes, and the time limit of the end is short.
#[tokio::test(start_paused = true)]
async fn disconnect_receives_acknowledgements_behind_messages_that_nobody_takes() {
    let options = Options::new(Version::V5).client_id("me").messages_max(1).receive_max(nonzero(1));
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("#"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let _messages = messages.expect("granted");
    let outgoing = Outgoing::new(topic!("b"), b"").qos(Qos::AtLeastOnce);
    let _acknowledgement = client.publish(&outgoing).await.expect("it is queued");
    assert!(peer.next().await.contains("id=2"), "SUBSCRIBE had the first");
    for _ in 0..3 {
        peer.send(Publish::new(topic!("a"), b"")).await;
    }
    peer.send(PubAck::new(id(2), PubAckReason::Success)).await;
    let begun = tokio::time::Instant::now();
    client.disconnect().await.expect("everything is acknowledged");
    assert!(begun.elapsed() < Duration::from_secs(1), "there is something to do all the time");
}

#[tokio::test(start_paused = true)]
async fn a_full_stream_stops_reading_and_nothing_else() {
    let read = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&read);
    let options = Options::new(Version::V5).client_id("me").messages_max(2).receive_max(nonzero(3));
    let options = options.trace(move |sender, packet| {
        let is_message = sender == Role::Server && matches!(packet, Packet::Publish(_));
        seen.fetch_add(is_message.into(), Ordering::Relaxed);
    });
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) =
        tokio::join!(client.subscribe(filter!("#"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let mut messages = messages.expect("granted");
    for _ in 0..10 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    // Longer than any time limit.
    pass(Duration::from_secs(40)).await;
    assert_eq!(read.load(Ordering::Relaxed), 2 + 3, "what the stream holds, and what waits behind it");
    client.publish(&Outgoing::new(topic!("mark"), b"")).await.expect("queued").await.expect("sent");
    assert!(peer.next().await.starts_with("PUBLISH"));
    for _ in 0..10 {
        assert_eq!(messages.next().await.expect("all are there").payload(), b"hey");
    }
    assert_eq!(read.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn a_full_stream_holds_back_others_only_when_receive_maximum_is_used_up() {
    let options = Options::new(Version::V5).client_id("me").messages_max(1);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options.receive_max(nonzero(3))).await;
    let (mut full, mut other) = streams(&mut peer, &client).await;
    for _ in 0..3 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    for _ in 0..10 {
        peer.send(Publish::new(topic!("b"), b"2")).await;
        assert_eq!(other.next().await.expect("it is not held back").payload(), b"2");
    }
    for _ in 0..3 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    peer.send(Publish::new(topic!("b"), b"2")).await;
    for _ in 0..6 {
        drop(full.next().await.expect("nothing is lost"));
    }
    drop(other.next().await.expect("it came behind them"));
    assert_eq!(full.dropped(), 0);
}

/// The task publishes inside the loop over its own stream, and waits there for the acknowledgement.
#[tokio::test(start_paused = true)]
async fn an_acknowledgement_comes_through_messages_that_its_own_task_does_not_take() {
    let options = Options::new(Version::V5).client_id("me").messages_max(1).receive_max(nonzero(1));
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (mut messages, _other) = streams(&mut peer, &client).await;
    for _ in 0..50 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    drop(messages.next().await.expect("a message"));
    let message = Outgoing::new(topic!("c"), b"you").qos(Qos::AtLeastOnce);
    let acknowledgement = client.publish(&message).await.expect("queued");
    assert_eq!(peer.next().await, "PUBLISH q1 id=3 \"c\" 3 B \"you\"");
    peer.send(PubAck::new(id(3), PubAckReason::Success)).await;
    let acknowledged = timeout(Duration::from_secs(11), acknowledgement).await;
    acknowledged.expect("it is bounded").expect("it is acknowledged");
    // Messages that arrive from now on are no longer skipped, but wait for room.
    for _ in 0..5 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    let mut taken = 1;
    while timeout(Duration::from_secs(1), messages.next()).await.is_ok() {
        taken += 1;
    }
    assert_eq!(taken + messages.dropped(), 55, "each is taken or counted");
    assert!((40..50).contains(&messages.dropped()), "{}", messages.dropped());
}

#[tokio::test(start_paused = true)]
async fn unread_qos_1_messages_end_a_connection_that_waits_for_packets_behind_them() {
    let options = Options::new(Version::V3_1_1).client_id("me").messages_max(1).receive_max(nonzero(2));
    let (mut peer, client) = Peer::accepted_with(Version::V3_1_1, options).await;
    let (_messages, _other) = streams(&mut peer, &client).await;
    for number in 1..=10 {
        peer.send(publish(Qos::AtLeastOnce, number)).await;
    }
    let message = Outgoing::new(topic!("c"), b"you").qos(Qos::AtLeastOnce);
    let acknowledgement = client.publish(&message).await.expect("queued");
    assert!(peer.next().await.starts_with("PUBLISH q1 id=3"));
    peer.send(PubAck::new(id(3), PubAckReason::Success)).await;
    let over = timeout(Duration::from_secs(21), acknowledgement).await.expect("it is bounded");
    let error = over.expect_err("it could not be read");
    assert!(matches!(error, PublishError::Ended(Ended::Unread)), "{error}");
    assert_eq!(error.fault(), Fault::Application);
}

/// The server does not read until the client has read the server's own packets.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_before_it_is_read_is_read() {
    let options = Options::new(Version::V5).client_id("me").messages_max(1).receive_max(nonzero(1));
    let options = options.keep_alive_secs(0).commands_max(1);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (_messages, _other) = streams(&mut peer, &client).await;
    let large = [b'x'; 10_000];
    let served = async {
        // Ten times the capacity of the stream in memory.
        for _ in 0..1_000 {
            peer.send(Publish::new(topic!("a/b"), &large)).await;
        }
        for _ in 0..1_000 {
            assert!(peer.next().await.starts_with("PUBLISH q0"));
        }
    };
    let published = async {
        for _ in 0..1_000 {
            drop(client.publish(&Outgoing::new(topic!("c"), &large)).await.expect("queued"));
        }
    };
    let both = async { tokio::join!(served, published) };
    timeout(Duration::from_secs(60), both).await.expect("it goes on");
}

#[tokio::test]
async fn a_full_stream_drops_and_counts_qos_0_messages_if_asked_to() {
    let options = Options::new(Version::V5).client_id("me").messages_max(2).drop_when_full(true);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options.receive_max(nonzero(1))).await;
    let (mut full, mut other) = streams(&mut peer, &client).await;
    for _ in 0..2 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    peer.send(publish(Qos::AtLeastOnce, 1)).await;
    for _ in 0..10 {
        peer.send(publish(Qos::AtMostOnce, 0)).await;
    }
    drop(full.next().await.expect("the first"));
    drop(full.next().await.expect("the second"));
    assert_eq!(full.next().await.expect("it waited").qos(), Qos::AtLeastOnce);
    peer.send(Publish::new(topic!("b"), b"2")).await;
    drop(other.next().await.expect("all before it have been looked at"));
    let left = drain(&mut full).await;
    assert_eq!(full.dropped() + left, 10, "each is there or counted");
}

fn nonzero(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("not 0")
}

/// Subscribes to `a/b` with QoS 1 and to `b` with QoS 0.
async fn streams(peer: &mut Peer, client: &Client) -> (Messages, Messages) {
    let (one, ()) = tokio::join!(
        client.subscribe(filter!("a/b"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    let (other, ()) =
        tokio::join!(client.subscribe(filter!("b"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    (one.expect("granted"), other.expect("granted"))
}

/// Takes all messages that are in a stream now, and returns their number.
async fn drain(messages: &mut Messages) -> u64 {
    let mut count = 0;
    loop {
        tokio::select! {
            biased;
            _ = messages.next() => count += 1,
            () = std::future::ready(()) => return count,
        }
    }
}

#[tokio::test]
async fn a_message_knows_how_it_came() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let (mut messages, _other) = streams(&mut peer, &client).await;
    let identifiers = [SubscriptionIdentifier::new(1).expect("a number")];
    let mut packet = publish(Qos::AtLeastOnce, 7);
    packet.topic = wire::PublishTopic::NameWithAlias(topic!("a/b"), TopicAlias::new(3).expect("a number"));
    packet.subscription_identifiers = identifiers[..].into();
    packet.retain = true;
    peer.send(packet).await;
    packet.topic = wire::PublishTopic::Alias(TopicAlias::new(3).expect("a number"));
    packet.delivery = Delivery::ExactlyOnce { packet_id: id(8), dup: true };
    peer.send(packet).await;
    let (first, second) = (messages.next().await.expect("one"), messages.next().await.expect("two"));
    assert_eq!((first.packet_id(), second.packet_id()), (Some(id(7)), Some(id(8))));
    assert_eq!((first.dup(), second.dup()), (false, true));
    assert_eq!((first.topic(), second.topic()), (topic!("a/b"), topic!("a/b")));
    assert_eq!(first.topic_alias(), second.topic_alias());
    assert_eq!((first.subscription_identifiers(), first.retain()), (&identifiers[..], true));
}

#[tokio::test]
async fn a_subscription_may_be_refused_or_there_already() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let (refused, ()) = tokio::join!(
        client.subscribe(filter!("a"), Qos::AtMostOnce),
        peer.suback(SubAckReason::NotAuthorized)
    );
    assert!(matches!(
        refused,
        Err(SubscribeError::Refused { reason: pondhawk_client::ReasonCode::NotAuthorized, .. })
    ));
    let (granted, ()) =
        tokio::join!(client.subscribe(filter!("a"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    let _messages = granted.expect("granted");
    let again = client.subscribe(filter!("a"), Qos::AtMostOnce).await;
    assert!(matches!(again, Err(SubscribeError::Subscribed)));
}

#[tokio::test]
async fn a_stream_ends_with_its_subscription() {
    let (mut peer, client) = Peer::accepted(Version::V3_1_1).await;
    let (messages, ()) = tokio::join!(
        client.subscribe(filter!("a/b"), Qos::AtMostOnce),
        peer.suback(SubAckReason::GrantedQos0)
    );
    let mut messages = messages.expect("granted");
    peer.send(publish(Qos::AtMostOnce, 0)).await;
    let ended = async {
        assert_eq!(peer.next().await, "UNSUBSCRIBE id=2 \"a/b\"");
        let properties = wire::AckProperties::EMPTY;
        peer.send(wire::UnsubAck { packet_id: id(2), properties, reasons: None }).await;
    };
    let (unsubscribed, ()) = tokio::join!(client.unsubscribe(filter!("a/b")), ended);
    unsubscribed.expect("it is ended");
    assert!(messages.next().await.is_some(), "what had come before");
    assert!(messages.next().await.is_none());
}

/// Messages of an existing session may arrive before their subscription.
#[tokio::test]
async fn messages_that_arrive_before_their_subscription_wait_for_it() {
    let options = Options::new(Version::V5).client_id("me");
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    peer.send(publish(Qos::AtLeastOnce, 1)).await;
    let (messages, ()) = tokio::join!(
        client.subscribe(filter!("a/#"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    let mut messages = messages.expect("granted");
    assert_eq!(messages.next().await.expect("a message").payload(), b"hey");
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
}

#[tokio::test]
async fn a_late_unsuback_ends_no_newer_stream_of_its_filter() {
    let (mut peer, client) = Peer::accepted(Version::V3_1_1).await;
    let (old, ()) =
        tokio::join!(client.subscribe(filter!("a"), Qos::AtMostOnce), peer.suback(SubAckReason::GrantedQos0));
    drop(old.expect("granted"));
    let server = async {
        assert_eq!(peer.next().await, "UNSUBSCRIBE id=2 \"a\"");
        let line = peer.next().await;
        assert_eq!(line, "SUBSCRIBE id=3 \"a\" q0");
        let properties = wire::AckProperties::EMPTY;
        peer.send(wire::UnsubAck { packet_id: id(2), properties, reasons: None }).await;
        let reasons = [SubAckReason::GrantedQos0];
        let reasons = wire::OneOrMore::new(&reasons).expect("one");
        peer.send(wire::SubAck { packet_id: id(3), properties, reasons }).await;
        peer.send(Publish::new(topic!("a"), b"hey")).await;
    };
    let (ended, new, ()) = tokio::join!(
        client.unsubscribe(filter!("a")),
        client.subscribe(filter!("a"), Qos::AtMostOnce),
        server
    );
    ended.expect("it is ended");
    drop(new.expect("granted").next().await.expect("a message"));
}

/// Subscribes to `a/b` and to `c`, both with QoS 1.
async fn two_streams(peer: &mut Peer, client: &Client) -> (Messages, Messages) {
    let (one, ()) = tokio::join!(
        client.subscribe(filter!("a/b"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    let (other, ()) = tokio::join!(
        client.subscribe(filter!("c"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    (one.expect("granted"), other.expect("granted"))
}

fn other(packet_id: u16) -> Publish<'static> {
    let delivery = Delivery::AtLeastOnce { packet_id: id(packet_id), dup: false };
    Publish { delivery, ..Publish::new(topic!("c"), b"hey") }
}

#[tokio::test(start_paused = true)]
async fn unread_messages_of_a_dropped_stream_do_not_hold_back_acknowledgements() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let (dropped, mut kept) = two_streams(&mut peer, &client).await;
    peer.send(publish(Qos::AtLeastOnce, 1)).await;
    peer.send(other(2)).await;
    drop(kept.next().await.expect("a message"));
    drop(dropped);
    peer.send(publish(Qos::AtLeastOnce, 3)).await;
    peer.send(other(4)).await;
    drop(kept.next().await.expect("a message"));
    for number in 1..=4 {
        assert_eq!(peer.next().await, format!("PUBACK id={number} Success"));
    }
    // After the first 10 s, an unread message is acknowledged at once.
    peer.send(publish(Qos::AtLeastOnce, 5)).await;
    assert_eq!(peer.next().await, "PUBACK id=5 Success");
}

#[tokio::test(start_paused = true)]
async fn unread_messages_of_a_dropped_stream_are_not_acknowledged_at_disconnect() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let (dropped, mut kept) = two_streams(&mut peer, &client).await;
    peer.send(other(1)).await;
    peer.send(publish(Qos::AtLeastOnce, 2)).await;
    peer.send(other(3)).await;
    for _ in 0..2 {
        drop(kept.next().await.expect("a message"));
    }
    drop(dropped);
    client.disconnect().await.expect("nothing is under way");
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
    assert!(peer.next().await.starts_with("DISCONNECT"));
}

#[tokio::test(start_paused = true)]
async fn unclaimed_messages_do_not_hold_back_acknowledgements() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    peer.send(publish(Qos::AtLeastOnce, 1)).await;
    peer.send(publish(Qos::ExactlyOnce, 2)).await;
    let (kept, ()) = tokio::join!(
        client.subscribe(filter!("c"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    let mut kept = kept.expect("granted");
    peer.send(other(3)).await;
    drop(kept.next().await.expect("a message"));
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
    assert_eq!(peer.next().await, "PUBACK id=3 Success");
    assert_eq!(peer.next().await, "PUBREC id=2 Success");
}

#[tokio::test]
async fn messages_for_a_refused_stream_go_to_the_inbox() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    peer.send(publish(Qos::ExactlyOnce, 1)).await;
    let server = async {
        assert!(peer.next().await.starts_with("SUBSCRIBE id=1"));
        peer.send(publish(Qos::AtLeastOnce, 2)).await;
        let reasons = [SubAckReason::NotAuthorized];
        let reasons = wire::OneOrMore::new(&reasons).expect("one");
        peer.send(wire::SubAck { packet_id: id(1), properties: wire::AckProperties::EMPTY, reasons }).await;
    };
    let (refused, ()) = tokio::join!(client.subscribe(filter!("a/+"), Qos::ExactlyOnce), server);
    refused.expect_err("it is refused");
    let mut inbox = client.inbox().await.expect("it is there");
    assert_eq!(peer.next().await, "PUBREC id=1 Success");
    assert_eq!(inbox.next().await.expect("the first").qos(), Qos::ExactlyOnce);
    assert_eq!(inbox.next().await.expect("the second").qos(), Qos::AtLeastOnce);
    assert_eq!(peer.next().await, "PUBACK id=2 Success");
}
