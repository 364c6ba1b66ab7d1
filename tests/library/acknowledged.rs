//! Acknowledgements that the application gives.

use std::num::NonZeroU16;

use client::{Acknowledge, Client, Message, Messages, Options, Version, filter, topic};
use wire::PubAckReason;

use crate::place::{KEPT, Place, at_each, expect, hear, text};

fn by_application(options: Options) -> Options {
    options.acknowledge(Acknowledge::ByApplication)
}

/// A client that acknowledges by itself, with its stream.
async fn subscribed(place: &Place<'_>, options: Options) -> (Client, Messages) {
    let client = place.connect(by_application(options)).await;
    let messages = client.subscribe(filter!("work"), place.qos).await.expect("granted");
    (client, messages)
}

#[tokio::test]
async fn the_server_waits_for_acknowledgements_when_receive_maximum_is_reached() {
    at_each(&[Version::V5], &KEPT, async |place: Place<'_>| {
        let two = NonZeroU16::new(2).expect("not 0");
        let (frog, mut work) = subscribed(&place, place.options("frog").receive_max(two)).await;
        let toad = place.client("toad").await;
        for payload in [b"1", b"2", b"3", b"4"] {
            place.publish(&toad, topic!("work"), payload).await;
        }
        let first = expect(&mut work, topic!("work"), b"1").await;
        let second = expect(&mut work, topic!("work"), b"2").await;
        // Packets that the server sent before this answer would arrive here.
        let mut mark = frog.subscribe(filter!("mark"), place.qos).await.expect("granted");
        tokio::select! {
            biased;
            third = work.next() => panic!("{third:?}"),
            () = std::future::ready(()) => {}
        }
        second.acknowledge();
        first.acknowledge();
        expect(&mut work, topic!("work"), b"3").await.acknowledge();
        expect(&mut work, topic!("work"), b"4").await.acknowledge();
        place.publish(&toad, topic!("mark"), b"").await;
        hear(&mut mark).await.acknowledge();
        frog.disconnect().await.expect("nothing of its own is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn unacknowledged_messages_arrive_again() {
    at_each(&Version::ALL, &KEPT, async |place: Place<'_>| {
        let (frog, mut work) = subscribed(&place, place.lasting("frog")).await;
        let toad = place.client("toad").await;
        for payload in [b"1", b"2", b"3"] {
            place.publish(&toad, topic!("work"), payload).await;
        }
        expect(&mut work, topic!("work"), b"1").await.acknowledge();
        let second = expect(&mut work, topic!("work"), b"2").await;
        drop(expect(&mut work, topic!("work"), b"3").await);
        // The first is acknowledged before DISCONNECT; the third is not acknowledged at all.
        frog.disconnect().await.expect("nothing of its own is under way");
        second.acknowledge();
        let (frog, mut work) = subscribed(&place, place.lasting("frog")).await;
        assert!(expect(&mut work, topic!("work"), b"2").await.dup() || place.qos != client::Qos::AtLeastOnce);
        expect(&mut work, topic!("work"), b"3").await.acknowledge();
        frog.disconnect().await.expect("nothing of its own is under way");
        // Nothing is left behind for the next version.
        place.client("frog").await.disconnect().await.expect("nothing is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn a_message_that_is_refused_does_not_come_again() {
    at_each(&[Version::V5], &KEPT, async |place: Place<'_>| {
        let (frog, mut work) = subscribed(&place, place.lasting("frog")).await;
        let toad = place.client("toad").await;
        place.publish(&toad, topic!("work"), b"1").await;
        place.publish(&toad, topic!("work"), b"2").await;
        expect(&mut work, topic!("work"), b"1").await.refuse(PubAckReason::NotAuthorized);
        let unacknowledged = hear(&mut work).await;
        frog.disconnect().await.expect("nothing of its own is under way");
        drop(unacknowledged);
        let (frog, mut work) = subscribed(&place, place.lasting("frog")).await;
        let again: Message = hear(&mut work).await;
        assert_eq!(text(again.payload()), "2");
        again.acknowledge();
        frog.disconnect().await.expect("nothing of its own is under way");
        place.client("frog").await.disconnect().await.expect("nothing is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}
