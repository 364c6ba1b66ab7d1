//! Stages behind a subscription.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pondhawk_client::pipeline::{Failed, Job, Pipeline, Workers};
use pondhawk_client::{
    Acknowledge, Client, Message, Messages, Options, PubAckReason, Qos, Version, filter, topic,
};
use tokio::sync::{Barrier, Semaphore, mpsc};
use tokio::time::timeout;
use wire::{Delivery, Publish, SubAckReason};

use crate::peer::{Peer, id, pass};

/// Time limit far beyond the duration of any step in these tests.
const DEADLINE: Duration = Duration::from_secs(30);

/// A client that acknowledges by itself, and its subscription to everything.
async fn subscribed() -> (Peer, Client, Messages) {
    let options = Options::new(Version::V5).client_id("me").acknowledge(Acknowledge::ByApplication);
    let (mut peer, client) = Peer::accepted_with(Version::V5, options).await;
    let (messages, ()) = tokio::join!(
        client.subscribe(filter!("#"), Qos::AtLeastOnce),
        peer.suback(SubAckReason::GrantedQos1)
    );
    (peer, client, messages.expect("granted"))
}

/// Sends messages of QoS 1, with these packet identifiers, which are their payloads too.
async fn send(peer: &mut Peer, numbers: impl IntoIterator<Item = u16>) {
    for number in numbers {
        let delivery = Delivery::AtLeastOnce { packet_id: id(number), dup: false };
        let payload = number.to_string();
        peer.send(Publish { delivery, ..Publish::new(topic!("a"), payload.as_bytes()) }).await;
    }
}

fn number(message: &Message) -> u16 {
    std::str::from_utf8(message.payload()).ok().and_then(|text| text.parse().ok()).expect("a number")
}

async fn result<T, E: std::fmt::Debug>(pipeline: &mut Pipeline<T, E>) -> Job<T>
where
    T: std::fmt::Debug,
{
    timeout(DEADLINE, pipeline.next()).await.expect("in time").expect("not the end").expect("no error")
}

/// Waits until all tasks wait. Needs the paused clock of a test.
async fn settle() {
    pass(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_stage_has_at_most_its_workers_and_its_buffer() {
    for (workers, calls_max, messages_max) in [
        (Workers::unordered(3), 3, 3),
        (Workers::ordered(3), 3, 3),
        (Workers::unordered(2).buffer(3), 2, 5),
        (Workers::ordered(0), 1, 1),
    ] {
        let (mut peer, _client, messages) = subscribed().await;
        let (taken, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let gate = Arc::new(Semaphore::new(0));
        let mut counted = {
            let (taken, calls, gate) = (Arc::clone(&taken), Arc::clone(&calls), Arc::clone(&gate));
            let messages = futures_util::StreamExt::inspect(messages, move |_| {
                taken.fetch_add(1, Ordering::Relaxed);
            });
            Pipeline::<_, ()>::new(messages).then(workers, move |message: Message| {
                let (calls, gate) = (Arc::clone(&calls), Arc::clone(&gate));
                async move {
                    calls.fetch_add(1, Ordering::Relaxed);
                    gate.acquire().await.map_err(|_| ())?.forget();
                    Ok(Some(number(&message)))
                }
            })
        };
        send(&mut peer, 1..=20).await;
        assert!(timeout(Duration::from_secs(1), counted.next()).await.is_err(), "nothing is done");
        let numbers = || (calls.load(Ordering::Relaxed), taken.load(Ordering::Relaxed));
        assert_eq!(numbers(), (calls_max, calls_max), "{workers:?}");
        gate.add_permits(20);
        settle().await;
        assert_eq!(numbers(), (messages_max, messages_max), "as much as the stage has room for: {workers:?}");
        let mut seen = Vec::new();
        while seen.len() < 20 {
            assert!(taken.load(Ordering::Relaxed) - seen.len() <= messages_max, "{workers:?}");
            seen.push(result(&mut counted).await.acknowledge());
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(1..=20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_caller_holds_up_all_stages() {
    let (mut peer, _client, messages) = subscribed().await;
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let mut last = Pipeline::<_, ()>::new(futures_util::StreamExt::inspect(messages, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }))
    .map(Workers::ordered(2), |message: Message| number(&message))
    .map(Workers::ordered(3), |number| number);
    send(&mut peer, 1..=20).await;
    let first = result(&mut last).await;
    settle().await;
    assert!(taken.load(Ordering::Relaxed) <= 1 + 2 + 3, "{taken:?}");
    assert_eq!(first.acknowledge(), 1);
}

#[tokio::test(start_paused = true)]
async fn results_keep_the_order_of_the_messages_if_wanted() {
    for (workers, expected) in [(Workers::ordered(3), [1, 2, 3]), (Workers::unordered(3), [3, 2, 1])] {
        let (mut peer, _client, messages) = subscribed().await;
        // Each call waits for the call of the next message.
        let done: Arc<[Semaphore]> = (0..5).map(|_| Semaphore::new(0)).collect();
        done[4].add_permits(1);
        let mut pipeline = Pipeline::<_, ()>::new(messages).then(workers, move |message: Message| {
            let (done, number) = (Arc::clone(&done), number(&message));
            async move {
                done[usize::from(number) + 1].acquire().await.map_err(|_| ())?.forget();
                // The caller takes this result before the next one exists.
                pass(Duration::from_millis(1)).await;
                done[usize::from(number)].add_permits(1);
                Ok(Some(number))
            }
        });
        send(&mut peer, 1..=3).await;
        for expected in expected {
            assert_eq!(result(&mut pipeline).await.acknowledge(), expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn the_calls_of_a_stage_run_in_parallel() {
    let (mut peer, _client, messages) = subscribed().await;
    // Each of the first four calls ends when all four have begun, and occupies a thread until then.
    let begun = (Mutex::new(0), Condvar::new());
    let mut pipeline =
        Pipeline::<_, ()>::new(messages).map(Workers::unordered(4), move |message: Message| {
            let mut count = begun.0.lock().expect("no panic");
            *count += 1;
            begun.1.notify_all();
            let waited = begun.1.wait_timeout_while(count, DEADLINE, |count| *count < 4);
            assert!(!waited.expect("no panic").1.timed_out(), "the other calls do not begin");
            number(&message)
        });
    send(&mut peer, 1..=8).await;
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.push(result(&mut pipeline).await.acknowledge());
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=8));
}

#[tokio::test]
async fn stages_run_beside_each_other() {
    let (mut peer, _client, messages) = subscribed().await;
    // A call of one stage ends when the other stage has one too.
    let barrier = Arc::new(Barrier::new(2));
    let second = Arc::clone(&barrier);
    let mut pipeline = Pipeline::<_, ()>::new(messages)
        .then(Workers::ordered(1), move |message: Message| {
            let barrier = Arc::clone(&barrier);
            async move {
                if number(&message) == 2 {
                    barrier.wait().await;
                }
                Ok(Some(message))
            }
        })
        .then(Workers::ordered(1), move |message: Message| {
            let barrier = Arc::clone(&second);
            async move {
                if number(&message) == 1 {
                    barrier.wait().await;
                }
                Ok(Some(message))
            }
        });
    send(&mut peer, 1..=2).await;
    for expected in 1..=2 {
        assert_eq!(number(&result(&mut pipeline).await.acknowledge()), expected);
    }
}

#[tokio::test]
async fn a_message_is_acknowledged_when_the_last_stage_is_done_with_it() {
    let (mut peer, client, messages) = subscribed().await;
    let mut pipeline = Pipeline::<_, ()>::new(messages)
        .filter(Workers::ordered(2), |message| number(message) != 2)
        .map(Workers::ordered(2), |message: Message| number(&message));
    send(&mut peer, 1..=3).await;
    let first = result(&mut pipeline).await;
    let third = result(&mut pipeline).await;
    // The next packet would be PUBACK if any message were acknowledged.
    client
        .publish(&pondhawk_client::Outgoing::new(topic!("mark"), b""))
        .await
        .expect("queued")
        .await
        .expect("sent");
    assert!(peer.next().await.starts_with("PUBLISH q0 \"mark\""));
    assert_eq!((first.acknowledge(), third.acknowledge()), (1, 3));
    for number in 1..=3 {
        assert_eq!(peer.next().await, format!("PUBACK id={number} Success"));
    }
    assert_eq!(client.unacknowledged_dropped(), 0);
}

#[tokio::test]
async fn an_error_reaches_the_caller_with_its_message_and_the_others_continue() {
    for workers in [Workers::ordered(2), Workers::unordered(2)] {
        let (mut peer, _client, messages) = subscribed().await;
        let mut pipeline = Pipeline::new(messages)
            .then(workers, async |message: Message| match number(&message) {
                2 => Err("two"),
                _ => Ok(Some(message)),
            })
            .map(workers, |message: Message| number(&message));
        send(&mut peer, 1..=4).await;
        let (mut seen, mut errors) = (Vec::new(), 0);
        for _ in 0..4 {
            match timeout(DEADLINE, pipeline.next()).await.expect("in time").expect("not the end") {
                Ok(job) => seen.push(job.acknowledge()),
                Err(Failed { message, error }) => {
                    assert_eq!((number(&message), error), (2, "two"));
                    message.refuse(PubAckReason::UnspecifiedError);
                    errors += 1;
                }
            }
        }
        seen.sort_unstable();
        assert_eq!((seen, errors), (vec![1, 3, 4], 1));
        for line in ["1 Success", "2 Unspecified error", "3 Success", "4 Success"] {
            assert_eq!(peer.next().await, format!("PUBACK id={line}"));
        }
    }
}

#[tokio::test]
#[should_panic(expected = "the stage is broken")]
async fn a_panic_of_a_stage_continues_in_the_caller() {
    let (mut peer, _client, messages) = subscribed().await;
    let mut pipeline = Pipeline::<_, ()>::new(messages).map(Workers::unordered(2), |message: Message| {
        assert_eq!(number(&message), 0, "the stage is broken");
    });
    send(&mut peer, [1]).await;
    result(&mut pipeline).await.acknowledge();
}

#[tokio::test]
async fn the_pipeline_ends_after_the_last_message_of_the_subscription() {
    let (mut peer, client, messages) = subscribed().await;
    let mut pipeline = Pipeline::<_, ()>::new(messages)
        .map(Workers::ordered(2), |message: Message| number(&message))
        .map(Workers::unordered(2), |number| number);
    send(&mut peer, 1..=5).await;
    assert_eq!(result(&mut pipeline).await.acknowledge(), 1);
    drop(peer);
    client
        .state()
        .wait_for(|state| matches!(state, pondhawk_client::State::Ended(_)))
        .await
        .expect("a state");
    let mut seen = Vec::new();
    while let Some(outcome) = timeout(DEADLINE, pipeline.next()).await.expect("in time") {
        seen.push(outcome.expect("no error").acknowledge());
    }
    seen.sort_unstable();
    assert_eq!(seen, [2, 3, 4, 5]);
    assert!(pipeline.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_loses_nothing_and_a_dropped_pipeline_cancels_its_calls() {
    let (mut peer, client, messages) = subscribed().await;
    let (begun, mut begins) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let inside = Arc::clone(&gate);
    let mut pipeline = Pipeline::<_, ()>::new(messages).then(Workers::ordered(2), move |message: Message| {
        let (begun, gate) = (begun.clone(), Arc::clone(&inside));
        async move {
            // The sender ends with the call.
            begun.send(number(&message)).map_err(|_| ())?;
            gate.acquire().await.map_err(|_| ())?.forget();
            Ok(Some(number(&message)))
        }
    });
    send(&mut peer, 1..=5).await;
    assert!(timeout(Duration::from_secs(1), pipeline.next()).await.is_err(), "nothing is done");
    gate.add_permits(1);
    assert_eq!(result(&mut pipeline).await.acknowledge(), 1);
    assert_eq!(peer.next().await, "PUBACK id=1 Success");
    drop(pipeline);
    let mut all = Vec::new();
    while let Some(number) = timeout(DEADLINE, begins.recv()).await.expect("all calls end") {
        all.push(number);
    }
    assert_eq!(all, [1, 2, 3], "the later messages were not begun");
    // The server has to send these messages again in another connection.
    client
        .publish(&pondhawk_client::Outgoing::new(topic!("mark"), b""))
        .await
        .expect("queued")
        .await
        .expect("sent");
    assert!(peer.next().await.starts_with("PUBLISH q0 \"mark\""));
    assert_eq!(client.unacknowledged_dropped(), 2);
}
