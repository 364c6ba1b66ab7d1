//! Sessions that outlive their connections, and the processes that made them.

use std::time::Duration;

use client::{Client, Outgoing, Version, filter, topic};

use crate::place::{KEPT, Place, Server, at_each, deliver, expect, text};
use crate::relay::Relay;

/// More than a stream holds, and more than Receive Maximum.
const MANY: u32 = 500;

/// Fewer: Mosquitto 2.0.11 sends more than Receive Maximum allows when a session is resumed that has more.
const FEW: u32 = 200;

#[tokio::test]
async fn a_session_waits_for_its_client_to_come_back() {
    at_each(&Version::ALL, &KEPT, async |place: Place<'_>| {
        let count = if matches!(place.server, Server::Mosquitto(_)) { FEW } else { MANY };
        let frog = place.connect(place.lasting("frog")).await;
        // MQTT 3.1 does not say: it is as it was asked for.
        assert!(place.version == Version::V3_1 || !frog.server().session_present);
        frog.subscribe(filter!("away/+"), place.qos).await.expect("granted");
        frog.disconnect().await.expect("nothing is under way");

        let toad = place.client("toad").await;
        for number in 0..count {
            place.publish(&toad, topic!("away/now"), number.to_string().as_bytes()).await;
        }
        toad.disconnect().await.expect("everything is acknowledged");

        let frog = place.connect(place.lasting("frog")).await;
        assert!(frog.server().session_present);
        let mut away = frog.subscribe(filter!("away/+"), place.qos).await.expect("granted");
        for number in 0..count {
            let message = away.next().await;
            let message =
                message.unwrap_or_else(|| panic!("{:?} before {number} at {place:?}", frog.ended()));
            assert_eq!(text(message.payload()), number.to_string());
        }
        frog.disconnect().await.expect("nothing of its own is under way");
        let clean = place.client("frog").await;
        assert!(!clean.server().session_present);
        clean.disconnect().await.expect("nothing is under way");
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_is_made_anew_with_its_session() {
    // With QoS 1 what was not acknowledged in time would come again.
    at_each(&Version::ALL, &KEPT[1..], async |place: Place<'_>| {
        let relay = Relay::start(place.server.address(), 0).await;
        let again =
            |name: &str| place.lasting(name).reconnect(Duration::from_millis(1), Duration::from_millis(20));
        let frog = Client::connect_tcp(relay.address(), again("frog")).await.expect("accepted");
        let toad = place.client("toad").await;
        let mut heard = frog.subscribe(filter!("count"), place.qos).await.expect("granted");
        for number in 0..20_u32 {
            relay.cut();
            let payload = number.to_string();
            // One comes from outside while there may be no connection, ...
            place.publish(&toad, topic!("count"), payload.as_bytes()).await;
            drop(expect(&mut heard, topic!("count"), payload.as_bytes()).await);
            // ... and one that waits for a connection.
            deliver(&frog, &Outgoing::new(topic!("count"), b"own").qos(place.qos)).await;
            drop(expect(&mut heard, topic!("count"), b"own").await);
        }
        frog.disconnect().await.expect("everything is acknowledged");
        place.client("frog").await.disconnect().await.expect("nothing is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn a_session_that_ends_with_its_connection_is_subscribed_again() {
    at_each(&Version::ALL, &KEPT[..1], async |place: Place<'_>| {
        let relay = Relay::start(place.server.address(), 0).await;
        let options = place.options("frog").reconnect(Duration::from_millis(1), Duration::from_millis(20));
        let frog = Client::connect_tcp(relay.address(), options).await.expect("accepted");
        let toad = place.client("toad").await;
        let mut heard = frog.subscribe(filter!("count"), place.qos).await.expect("granted");
        relay.cut();
        // Messages that are published without a subscriber reach nobody.
        let told = async {
            loop {
                place.publish(&toad, topic!("count"), b"there?").await;
            }
        };
        tokio::select! {
            _ = expect(&mut heard, topic!("count"), b"there?") => {}
            () = told => {}
        }
        frog.disconnect().await.expect("nothing of its own is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}
