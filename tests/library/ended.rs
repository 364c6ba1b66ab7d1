//! Ends of connections, and the parties that notice.

use client::{Client, Ended, Fault, Message, MessageProperties, Qos, Version, Will, filter, topic};
use wire::{Binary, DisconnectReason};

use crate::place::{EVERY_QOS, Place, Server, at_each, expect};
use crate::relay::Relay;

fn will(topic: client::TopicName<'static>, qos: Qos) -> Will<'static> {
    let payload = Binary::new(b"gone").expect("it is short");
    let properties = MessageProperties::EMPTY;
    Will { topic, payload, qos, retain: false, delay_interval_secs: None, properties }
}

#[tokio::test]
async fn the_will_of_a_client_that_is_cut_off_is_published() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let frog = place.client("frog").await;
        let mut wills = frog.subscribe(filter!("will/+"), place.qos).await.expect("granted");
        let polite =
            place.connect(place.options("polite").will(&will(topic!("will/polite"), place.qos))).await;
        polite.disconnect().await.expect("nothing is under way");
        let relay = Relay::start(place.server.address(), 0).await;
        let options = place.options("rude").will(&will(topic!("will/rude"), place.qos));
        let rude = Client::connect_tcp(relay.address(), options).await.expect("accepted");
        relay.cut();
        let message: Message = expect(&mut wills, topic!("will/rude"), b"gone").await;
        assert_eq!(message.qos(), place.qos);
        assert_eq!(rude.disconnect().await.expect_err("it is over").fault(), Fault::Network);
        frog.disconnect().await.expect("nothing of its own is under way");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_is_taken_over_hears_so() {
    at_each(&Version::ALL, &EVERY_QOS[..1], async |place: Place<'_>| {
        let first = place.client("twin").await;
        let mut heard = first.subscribe(filter!("a"), place.qos).await.expect("granted");
        let second = place.client("twin").await;
        assert!(heard.next().await.is_none());
        let ended = first.ended().expect("it is over");
        // Mosquitto 2.0.11 closes without a word.
        if place.version.is_5() && matches!(place.server, Server::Pondhawk(_)) {
            assert!(
                matches!(ended, Ended::ByServer { reason: DisconnectReason::SessionTakenOver, .. }),
                "{ended:?}"
            );
        } else {
            assert_eq!(ended.fault(), Fault::Network, "{ended:?}");
        }
        second.disconnect().await.expect("nothing is under way");
    })
    .await;
}

#[tokio::test]
async fn messages_queued_when_the_last_handle_is_dropped_are_sent() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let (frog, toad) = (place.client("frog").await, place.client("toad").await);
        let mut heard = frog.subscribe(filter!("last"), place.qos).await.expect("granted");
        for payload in [b"1", b"2", b"3"] {
            drop(toad.publish(&place.message(topic!("last"), payload)).await.expect("it is queued"));
        }
        drop(toad);
        for payload in [b"1", b"2", b"3"] {
            drop(expect(&mut heard, topic!("last"), payload).await);
        }
        frog.disconnect().await.expect("nothing of its own is under way");
    })
    .await;
}
