//! Messages between connected clients.

use client::{Qos, ReasonCode, RetainHandling, SubscriptionOptions, Version, filter, topic};

use crate::place::{EVERY_QOS, Place, Server, at_each, expect, hear, text};

/// More than are under way at a time, in any version.
const COUNT: u32 = 1_200;

/// Larger than every buffer on the way.
const LARGE_BYTES: usize = 1 << 20;

#[tokio::test]
async fn messages_arrive_in_order_and_are_acknowledged() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let (frog, toad) = (place.client("frog").await, place.client("toad").await);
        let mut heard = frog.subscribe(filter!("count/#"), place.qos).await.expect("granted");
        assert_eq!(heard.granted(), place.qos);
        let published = async {
            let mut acknowledgements = Vec::new();
            for number in 0..COUNT {
                let payload = number.to_string();
                let message = place.message(topic!("count/all"), payload.as_bytes());
                acknowledgements.push(toad.publish(&message).await.expect("it is queued"));
            }
            for acknowledgement in acknowledgements {
                assert_eq!(acknowledgement.await.expect("it is taken"), ReasonCode::Success);
            }
        };
        let received = async {
            for number in 0..COUNT {
                let message = expect(&mut heard, topic!("count/all"), number.to_string().as_bytes()).await;
                assert_eq!((message.qos(), message.retain(), message.dup()), (place.qos, false, false));
            }
        };
        tokio::join!(published, received);
        frog.unsubscribe(filter!("count/#")).await.expect("it was subscribed");
        assert!(heard.next().await.is_none());
        frog.disconnect().await.expect("nothing is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn each_stream_has_what_its_filter_matches() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let frog = place.client("frog").await;
        let mut depths = frog.subscribe(filter!("pond/+/depth"), place.qos).await.expect("granted");
        let mut skies = frog.subscribe(filter!("sky/#"), place.qos).await.expect("granted");
        let mut end = frog.subscribe(filter!("end"), place.qos).await.expect("granted");
        for topic in [
            topic!("pond/depth"),
            topic!("pond/north/depth"),
            topic!("skyline"),
            topic!("sky"),
            topic!("pond/a/b/depth"),
            topic!("sky/sun/height"),
            topic!("pond//depth"),
            topic!("end"),
        ] {
            place.publish(&frog, topic, b"7").await;
        }
        drop(expect(&mut depths, topic!("pond/north/depth"), b"7").await);
        drop(expect(&mut depths, topic!("pond//depth"), b"7").await);
        drop(expect(&mut skies, topic!("sky"), b"7").await);
        drop(expect(&mut skies, topic!("sky/sun/height"), b"7").await);
        drop(expect(&mut end, topic!("end"), b"7").await);
        frog.disconnect().await.expect("everything is acknowledged");
        assert!(depths.next().await.is_none() && skies.next().await.is_none());
    })
    .await;
}

/// Before MQTT 5 a server may send a copy for each subscription, as Mosquitto does, and does not say which is for which.
#[tokio::test]
async fn a_message_is_once_in_each_of_the_streams_that_it_matches() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        if matches!(place.server, Server::Mosquitto(_)) && !place.version.is_5() {
            return;
        }
        let frog = place.client("frog").await;
        let mut streams = Vec::new();
        for filter in [filter!("sky/#"), filter!("sky/+"), filter!("sky/sun")] {
            streams.push(frog.subscribe(filter, place.qos).await.expect("granted"));
        }
        for payload in [b"rise", b"fall"] {
            place.publish(&frog, topic!("sky/sun"), payload).await;
        }
        for stream in &mut streams {
            drop(expect(stream, topic!("sky/sun"), b"rise").await);
            drop(expect(stream, topic!("sky/sun"), b"fall").await);
        }
        frog.disconnect().await.expect("everything is acknowledged");
        for stream in &mut streams {
            assert!(stream.next().await.is_none());
        }
    })
    .await;
}

#[tokio::test]
async fn a_retained_message_waits_until_it_is_cleared() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let (frog, toad) = (place.client("frog").await, place.client("toad").await);
        place.retain(&toad, topic!("leaf/a"), b"green").await;
        place.retain(&toad, topic!("leaf/b"), b"brown").await;
        let mut leaf = frog.subscribe(filter!("leaf/a"), place.qos).await.expect("granted");
        assert!(expect(&mut leaf, topic!("leaf/a"), b"green").await.retain());
        place.retain(&toad, topic!("leaf/a"), b"").await;
        assert!(!expect(&mut leaf, topic!("leaf/a"), b"").await.retain());
        let mut leaves = toad.subscribe(filter!("leaf/+"), place.qos).await.expect("granted");
        let message = expect(&mut leaves, topic!("leaf/b"), b"brown").await;
        assert_eq!((message.retain(), message.qos()), (true, place.qos));
        place.retain(&toad, topic!("leaf/b"), b"").await;
        drop(expect(&mut leaves, topic!("leaf/b"), b"").await);
        frog.disconnect().await.expect("everything is acknowledged");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn subscriptions_have_the_options_they_ask_for() {
    at_each(&[Version::V5], &EVERY_QOS, async |place: Place<'_>| {
        let (frog, toad) = (place.client("frog").await, place.client("toad").await);
        place.retain(&toad, topic!("leaf"), b"old").await;
        let options = SubscriptionOptions {
            qos: place.qos,
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::DoNotSend,
        };
        let mut leaf = frog.subscribe_with(filter!("leaf"), options).await.expect("granted");
        place.retain(&frog, topic!("leaf"), b"my own").await;
        place.retain(&toad, topic!("leaf"), b"new").await;
        assert!(expect(&mut leaf, topic!("leaf"), b"new").await.retain());
        place.retain(&toad, topic!("leaf"), b"").await;
        frog.disconnect().await.expect("everything is acknowledged");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn members_of_a_group_share_what_comes() {
    at_each(&[Version::V5], &EVERY_QOS, async |place: Place<'_>| {
        let (frog, toad) = (place.client("frog").await, place.client("toad").await);
        let mut frogs = frog.subscribe(filter!("$share/pond/work/#"), place.qos).await.expect("granted");
        let mut toads = toad.subscribe(filter!("$share/pond/work/#"), place.qos).await.expect("granted");
        for number in 0..100_u8 {
            place.publish(&frog, topic!("work/now"), &[number]).await;
        }
        let mut numbers = Vec::new();
        while numbers.len() < 100 {
            let message = tokio::select! { message = hear(&mut frogs) => message, message = hear(&mut toads) => message };
            numbers.extend_from_slice(message.payload());
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
        frog.disconnect().await.expect("everything is acknowledged");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn a_large_message_arrives_whole() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let frog = place.client("frog").await;
        let mut heard = frog.subscribe(filter!("large"), Qos::ExactlyOnce).await.expect("granted");
        let payload: Vec<u8> = (0..=u8::MAX).cycle().take(LARGE_BYTES).collect();
        place.publish(&frog, topic!("large"), &payload).await;
        let message = hear(&mut heard).await;
        assert!(message.payload() == payload, "{}", text(&message.payload()[..100]));
        frog.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}
