//! Stages behind a subscription at a server.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::pipeline::{Failed, Pipeline, Workers};
use client::{Acknowledge, Message, PubAckReason, Version, filter, topic};
use tokio::sync::Semaphore;

use crate::place::{EVERY_QOS, KEPT, Place, at_each, expect};

#[tokio::test]
async fn each_message_is_published_again_once_and_in_order() {
    at_each(&Version::ALL, &EVERY_QOS, async |place: Place<'_>| {
        let options = place.options("frog").acknowledge(Acknowledge::ByApplication);
        let (frog, toad) = (place.connect(options).await, place.client("toad").await);
        let work = frog.subscribe(filter!("work"), place.qos).await.expect("granted");
        let mut copies = toad.subscribe(filter!("copies"), place.qos).await.expect("granted");
        let (out, qos) = (toad.clone(), place.qos);
        let mut pipeline = Pipeline::new(work)
            .filter(Workers::ordered(3), |message: &Message| message.payload() != b"2")
            .map(Workers::ordered(3).buffer(2), |message: Message| [message.payload(), b"!"].concat())
            .then(Workers::ordered(1), move |payload: Vec<u8>| {
                let out = out.clone();
                async move {
                    let copy = client::Outgoing::new(topic!("copies"), &payload).qos(qos);
                    out.publish(&copy).await?.await.map(Some)
                }
            });
        for payload in [b"1", b"2", b"3", b"4"] {
            place.publish(&toad, topic!("work"), payload).await;
        }
        for copy in [b"1!", b"3!", b"4!"] {
            let job = pipeline.next().await.expect("a result").expect("it is published");
            job.acknowledge();
            drop(expect(&mut copies, topic!("copies"), copy).await);
        }
        frog.unsubscribe(filter!("work")).await.expect("there was one");
        assert!(pipeline.next().await.is_none(), "the subscription has ended");
        assert_eq!(frog.unacknowledged_dropped(), 0);
        frog.disconnect().await.expect("nothing of its own is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn messages_of_a_dropped_pipeline_arrive_again() {
    at_each(&Version::ALL, &KEPT, async |place: Place<'_>| {
        let options = || place.lasting("frog").acknowledge(Acknowledge::ByApplication);
        let (frog, toad) = (place.connect(options()).await, place.client("toad").await);
        let work = frog.subscribe(filter!("work"), place.qos).await.expect("granted");
        let mut pipeline = Pipeline::new(work).then(Workers::ordered(4), async |message: Message| {
            if message.payload() == b"2" { Err("refused") } else { Ok(Some(())) }
        });
        for payload in [b"1", b"2", b"3", b"4"] {
            place.publish(&toad, topic!("work"), payload).await;
        }
        pipeline.next().await.expect("a result").expect("no error").acknowledge();
        let Some(Err(Failed { message, error })) = pipeline.next().await else {
            panic!("the second is refused")
        };
        assert_eq!(error, "refused");
        message.refuse(PubAckReason::UnspecifiedError);
        drop(pipeline.next().await.expect("a result").expect("no error"));
        drop(pipeline);
        frog.disconnect().await.expect("nothing of its own is under way");
        let frog = place.connect(options()).await;
        let mut work = frog.inbox().await.expect("an inbox");
        for payload in [b"3", b"4"] {
            let message = work.next().await.expect("a message");
            assert_eq!(message.payload(), payload);
            message.acknowledge();
        }
        frog.unsubscribe(filter!("work")).await.expect("there was one");
        frog.disconnect().await.expect("nothing of its own is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn a_full_pipeline_leaves_messages_at_the_server() {
    at_each(&[Version::V5], &KEPT, async |place: Place<'_>| {
        let two = NonZeroU16::new(2).expect("not 0");
        let options = place.options("frog").receive_max(two).acknowledge(Acknowledge::ByApplication);
        let (frog, toad) = (place.connect(options).await, place.client("toad").await);
        let work = frog.subscribe(filter!("work"), place.qos).await.expect("granted");
        let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (begun, inside) = (Arc::clone(&calls), Arc::clone(&gate));
        let mut pipeline =
            Pipeline::<_, ()>::new(work).then(Workers::unordered(8), move |message: Message| {
                let (begun, gate) = (Arc::clone(&begun), Arc::clone(&inside));
                async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    gate.acquire().await.map_err(|_| ())?.forget();
                    Ok(Some(message))
                }
            });
        for payload in [b"1", b"2", b"3", b"4"] {
            place.publish(&toad, topic!("work"), payload).await;
        }
        // Messages that the server sent before this answer would be in the stage after the next one.
        for _ in 0..2 {
            drop(frog.subscribe(filter!("mark"), place.qos).await.expect("granted"));
            tokio::task::yield_now().await;
        }
        assert!(calls.load(Ordering::Relaxed) <= 2, "Receive Maximum is 2");
        gate.add_permits(4);
        for _ in 0..4 {
            pipeline.next().await.expect("a result").expect("no error").acknowledge().acknowledge();
        }
        frog.disconnect().await.expect("nothing of its own is under way");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}
