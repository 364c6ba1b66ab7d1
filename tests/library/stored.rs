//! Sessions that outlive their programs, and programs that end without a word.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use client::{Client, FileStore, Options, Outgoing, Qos, Version, filter, topic};
use pondhawk_tests::{Broker, DEADLINE};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::place::text;

/// Programs, one after the other. Each but the last ends in the middle of its work.
const PROGRAMS: u32 = 12;

/// Messages that each program publishes.
const EACH: u32 = 30;

fn options(version: Version, store: &Path) -> Options {
    Options::new(version).client_id("sensor").session_expiry_secs(600).session_store(FileStore::new(store))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// At QoS 2 each message arrives once, and in its order.
#[test]
fn messages_arrive_once_though_their_programs_end_before_the_acknowledgements() {
    for version in [Version::V3_1_1, Version::V5] {
        let broker = Broker::start(&pondhawk_tests::Options::default());
        let folder = tempfile::tempdir().expect("there is a place for temporary files");
        let store = folder.path().join("session");
        let (subscribed, is_subscribed) = mpsc::channel();
        let address = broker.address();
        let hearing = thread::spawn(move || {
            runtime().block_on(async {
                let listener = Client::connect_tcp(address, Options::new(version)).await.expect("accepted");
                let heard = listener.subscribe(filter!("count"), Qos::ExactlyOnce).await;
                let mut heard = heard.expect("granted");
                subscribed.send(()).expect("the test waits for this");
                for number in 0..PROGRAMS * EACH {
                    let message = timeout(DEADLINE, heard.next()).await.expect("it comes in time");
                    assert_eq!(
                        text(message.expect("a message").payload()),
                        number.to_string(),
                        "{version:?}"
                    );
                }
            });
        });
        is_subscribed.recv().expect("the subscription is made");
        for program in 0..PROGRAMS {
            let run = runtime();
            run.block_on(async {
                let client = Client::connect_tcp(broker.address(), options(version, &store)).await;
                let client = client.expect("accepted");
                for number in 0..EACH {
                    let payload = (program * EACH + number).to_string();
                    let message = Outgoing::new(topic!("count"), payload.as_bytes()).qos(Qos::ExactlyOnce);
                    drop(client.publish(&message).await.expect("queued"));
                }
                client.stored().await.expect("the disk has room");
                if program + 1 == PROGRAMS {
                    client.disconnect().await.expect("everything is acknowledged");
                }
            });
            // Tasks end where they are, as in a program that is killed.
            run.shutdown_timeout(Duration::from_secs(10));
        }
        hearing.join().expect("each message came once, in its order");
    }
}
