//! Requests and responses of MQTT 5.

use std::collections::HashSet;
use std::time::Duration;

use pondhawk_client::{
    Client, MessageProperties, Outgoing, Qos, RequestError, Requester, RequesterError, Version, topic,
};
use wire::{Binary, PubAck, PubAckReason, Publish, SubAckReason};

use crate::peer::{Peer, id};

const LONG: Duration = Duration::from_secs(60);

async fn requester() -> (Peer, Client, Requester) {
    let (mut peer, client) = Peer::accepted(Version::V5).await;
    let (requester, ()) =
        tokio::join!(client.requester(topic!("answers")), peer.suback(SubAckReason::GrantedQos1));
    (peer, client, requester.expect("granted"))
}

fn question(qos: Qos) -> Outgoing<'static> {
    Outgoing::new(topic!("questions"), b"?").qos(qos)
}

async fn answer(peer: &mut Peer, correlation: &[u8], payload: &[u8]) {
    let correlation_data = Binary::new(correlation).ok();
    let properties = MessageProperties { correlation_data, ..MessageProperties::EMPTY };
    peer.send(Publish { properties, ..Publish::new(topic!("answers"), payload) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_belongs_to_its_question() {
    let (mut peer, _client, requester) = requester().await;
    let late = requester.request(&question(Qos::AtMostOnce), Duration::from_secs(1)).await;
    assert!(matches!(late, Err(RequestError::TimedOut)));
    let first = peer.correlation().await;
    let server = async {
        let second = peer.correlation().await;
        answer(&mut peer, &first, b"too late").await;
        answer(&mut peer, &second, b"in time").await;
    };
    let question = question(Qos::AtMostOnce);
    let (answered, ()) = tokio::join!(requester.request(&question, LONG), server);
    assert_eq!(answered.expect("it came").payload(), b"in time");
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_at_the_same_time_over_one_subscription() {
    let (mut peer, _client, requester) = requester().await;
    let question = question(Qos::AtMostOnce);
    let server = async {
        let (first, second) = (peer.correlation().await, peer.correlation().await);
        answer(&mut peer, &second, b"second").await;
        answer(&mut peer, b"of somebody else", b"third").await;
        answer(&mut peer, &first, b"first").await;
    };
    let other = requester.clone();
    let (first, second, ()) =
        tokio::join!(requester.request(&question, LONG), other.request(&question, LONG), server);
    assert_eq!(first.expect("it came").payload(), b"first");
    assert_eq!(second.expect("it came").payload(), b"second");
    drop(peer);
    let ended = requester.request(&question, LONG).await;
    assert!(matches!(ended, Err(RequestError::Ended(_))), "{ended:?}");
}

/// Several requesters may have the same response topic, and receive each other's answers.
#[tokio::test(start_paused = true)]
async fn no_two_questions_of_anybody_are_taken_for_each_other() {
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let (mut peer, _client, requester) = requester().await;
        for _ in 0..3 {
            let asked = requester.request(&question(Qos::AtMostOnce), Duration::from_secs(1)).await;
            assert!(matches!(asked, Err(RequestError::TimedOut)));
            assert!(seen.insert(peer.correlation().await), "it was there before");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_says_where_its_answer_goes() {
    let (mut peer, _client, requester) = requester().await;
    let asked = requester.request(&question(Qos::AtMostOnce), Duration::from_secs(1)).await;
    assert!(matches!(asked, Err(RequestError::TimedOut)));
    let line = peer.next().await;
    assert!(line.contains("response-topic=\"answers\""), "{line}");
}

#[tokio::test]
async fn a_question_that_nobody_hears_does_not_wait() {
    let (mut peer, _client, requester) = requester().await;
    let server = async {
        assert!(peer.next().await.starts_with("PUBLISH q1 id=2"));
        peer.send(PubAck::new(id(2), PubAckReason::NoMatchingSubscribers)).await;
    };
    let question = question(Qos::AtLeastOnce);
    let (answered, ()) = tokio::join!(requester.request(&question, LONG), server);
    assert!(matches!(answered, Err(RequestError::Nobody)));
}

#[tokio::test(start_paused = true)]
async fn a_question_may_wait_for_ever() {
    let (mut peer, _client, requester) = requester().await;
    let question = question(Qos::AtMostOnce);
    let server = async {
        let correlation = peer.correlation().await;
        answer(&mut peer, &correlation, b"!").await;
    };
    let (answered, ()) = tokio::join!(requester.request(&question, Duration::MAX), server);
    drop(answered.expect("it came"));
}

#[tokio::test]
async fn requests_need_mqtt_5() {
    let (_peer, client) = Peer::accepted(Version::V3_1_1).await;
    assert!(matches!(client.requester(topic!("answers")).await, Err(RequesterError::Version)));
}

#[tokio::test]
async fn a_late_answer_holds_back_nothing() {
    let (mut peer, _client, _requester) = requester().await;
    for number in 1..=1_000 {
        let delivery = wire::Delivery::AtLeastOnce { packet_id: id(number), dup: false };
        peer.send(Publish { delivery, ..Publish::new(topic!("answers"), b"late") }).await;
        assert_eq!(peer.next().await, format!("PUBACK id={number} Success"));
    }
}
