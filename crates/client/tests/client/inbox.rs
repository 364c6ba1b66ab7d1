//! Several filters in one request, and one stream for all messages.

use pondhawk_client::{
    Options, Qos, SubscribeProperties, SubscriptionIdentifier, SubscriptionOptions, Version, filter,
};
use pondhawk_client::{TopicFilter, UnsubscribeProperties, topic};
use wire::{AckProperties, ConnAck, Delivery, OneOrMore, Publish, ReasonCode, SubAck, SubAckReason};

use crate::peer::{Peer, id};

const FILTERS: [(TopicFilter<'static>, SubscriptionOptions); 2] =
    [(filter!("a/#"), SubscriptionOptions { qos: Qos::AtLeastOnce, ..OPTIONS }), (filter!("#"), OPTIONS)];

const OPTIONS: SubscriptionOptions = SubscriptionOptions {
    qos: Qos::AtMostOnce,
    no_local: false,
    retain_as_published: false,
    retain_handling: pondhawk_client::RetainHandling::Send,
};

fn suback<'a>(packet_id: u16, reasons: &'a [SubAckReason]) -> SubAck<'a> {
    let reasons = OneOrMore::new(reasons).expect("some");
    SubAck { packet_id: id(packet_id), properties: AckProperties::EMPTY, reasons }
}

#[tokio::test]
async fn a_message_that_matches_several_filters_comes_once_and_in_its_turn() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let mut inbox = client.inbox().await.expect("connected");
    let properties =
        SubscribeProperties { subscription_identifier: SubscriptionIdentifier::new(5), ..Default::default() };
    let answer = async {
        let line = peer.next().await;
        assert!(line.contains("\"a/#\"") && line.contains("\"#\"") && line.contains('5'), "{line}");
        peer.send(suback(1, &[SubAckReason::GrantedQos1, SubAckReason::NotAuthorized])).await;
    };
    let (reasons, ()) = tokio::join!(client.subscribe_many(&FILTERS, &properties), answer);
    assert_eq!(reasons.expect("answered"), [ReasonCode::GrantedQos1, ReasonCode::NotAuthorized]);
    let delivery = Delivery::AtLeastOnce { packet_id: id(9), dup: true };
    peer.send(Publish { delivery, ..Publish::new(topic!("a"), b"first") }).await;
    peer.send(Publish::new(topic!("b"), b"second")).await;
    let first = inbox.next().await.expect("a message");
    assert_eq!((first.payload(), first.packet_id(), first.dup()), (&b"first"[..], Some(id(9)), true));
    assert_eq!(inbox.next().await.expect("a message").payload(), b"second");
    assert_eq!(peer.next().await, "PUBACK id=9 Success");
}

/// A server may send a message once for each subscription, with the identifier of that subscription.
#[tokio::test]
async fn a_message_that_is_named_for_the_inbox_comes_there_though_a_stream_matches() {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let mut inbox = client.inbox().await.expect("connected");
    let subscribe = client.subscribe(filter!("a/+"), Qos::AtMostOnce);
    let (messages, own) = tokio::join!(subscribe, async {
        let line = peer.next().await;
        let rest = line.split("subscription-identifier=").nth(1).expect("it has one");
        let own: String = rest.chars().take_while(char::is_ascii_digit).collect();
        peer.send(suback(1, &[SubAckReason::GrantedQos0])).await;
        SubscriptionIdentifier::new(own.parse().expect("a number")).expect("in bounds")
    });
    let mut messages = messages.expect("granted");
    let of_inbox = SubscriptionIdentifier::new(1).expect("in bounds");
    assert_ne!(own, of_inbox, "applications begin at 1");
    let properties =
        SubscribeProperties { subscription_identifier: Some(of_inbox), ..SubscribeProperties::EMPTY };
    let (reasons, ()) = tokio::join!(client.subscribe_many(&FILTERS, &properties), async {
        assert!(peer.next().await.starts_with("SUBSCRIBE id=2"));
        peer.send(suback(2, &[SubAckReason::GrantedQos1, SubAckReason::GrantedQos0])).await;
    });
    reasons.expect("answered");
    for (name, payload) in [(own, b"stream"), (of_inbox, b"inbox!")] {
        let identifiers = [name];
        let subscription_identifiers = identifiers[..].into();
        peer.send(Publish { subscription_identifiers, ..Publish::new(topic!("a/b"), payload) }).await;
    }
    peer.send(Publish::new(topic!("c"), b"last")).await;
    assert_eq!(inbox.next().await.expect("a message").payload(), b"inbox!");
    assert_eq!(inbox.next().await.expect("a message").payload(), b"last");
    assert_eq!(messages.next().await.expect("a message").payload(), b"stream");
    client.disconnect().await.expect("nothing is under way");
    assert!(messages.next().await.is_none(), "it has come once");
}

#[tokio::test]
async fn several_subscriptions_end_with_one_request() {
    let (mut peer, client) = Peer::accepted(Version::V3_1_1).await;
    let filters = [filter!("a"), filter!("b/+")];
    let answer = async {
        assert_eq!(peer.next().await, "UNSUBSCRIBE id=1 \"a\", \"b/+\"");
        let properties = AckProperties::EMPTY;
        peer.send(wire::UnsubAck { packet_id: id(1), properties, reasons: None }).await;
    };
    let (reasons, ()) =
        tokio::join!(client.unsubscribe_many(&filters, &UnsubscribeProperties::EMPTY), answer);
    assert!(reasons.expect("answered").is_empty(), "before MQTT 5 nothing is said");
    let none = client.unsubscribe_many(&[], &UnsubscribeProperties::EMPTY).await;
    assert!(matches!(none, Err(pondhawk_client::UnsubscribeError::NoFilter)));
}

#[tokio::test]
async fn a_session_that_an_earlier_program_has_left_goes_on() {
    for version in Version::ALL {
        let options = Options::new(version).client_id("me").clean_start(false).session_expiry_secs(60);
        let (mut peer, client) = Peer::new(version, options);
        assert!(peer.next().await.starts_with("CONNECT"));
        peer.send(ConnAck::accepted(version != Version::V3_1)).await;
        let delivery = Delivery::AtLeastOnce { packet_id: id(3), dup: false };
        peer.send(Publish { delivery, ..Publish::new(topic!("a"), b"kept") }).await;
        let client = client.await.expect("no panic").expect("it is accepted");
        assert!(client.server().session_present);
        let mut inbox = client.inbox().await.expect("connected");
        assert_eq!(inbox.next().await.expect("a message").payload(), b"kept");
        assert_eq!(peer.next().await, "PUBACK id=3 Success");
    }
}
