//! The examples of the client library, as somebody runs them who has just found it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use client::{Client, MessageProperties, Options, Outgoing, Qos, Utf8, Version, filter, topic};
use pondhawk_tests::{Broker, DEADLINE, Program, example};
use tokio::time::timeout;

use crate::place::{EVERY_QOS, Server, deliver, expect, hear};

fn run(name: &str, arguments: &[&str]) -> Program {
    start(&example(name), arguments)
}

fn start(program: &Path, arguments: &[&str]) -> Program {
    let mut command = Command::new(program);
    command.args(arguments);
    Program::start(command)
}

/// Address of a program, which prints it.
fn address(program: &Program) -> SocketAddr {
    let line = program.wait_for("listening on ");
    line.rsplit(' ').next().and_then(|address| address.parse().ok()).expect("an address")
}

async fn connect(address: SocketAddr, version: Version) -> Client {
    Client::connect_tcp(address, Options::new(version).client_id("frog")).await.expect("it is accepted")
}

async fn in_time<T>(course: impl Future<Output = T>) -> T {
    timeout(DEADLINE, course).await.expect("it does not take so long")
}

#[tokio::test]
async fn the_toy_server_serves_every_version() {
    let server = run("toy_server", &["127.0.0.1:0"]);
    let address = address(&server);
    in_time(async {
        for (version, qos) in Version::ALL.into_iter().flat_map(|version| EVERY_QOS.map(|qos| (version, qos)))
        {
            let frog = connect(address, version).await;
            let mut heard = frog.subscribe(filter!("pond/+/depth"), qos).await.expect("granted");
            assert_eq!(heard.granted(), Qos::AtMostOnce);
            for topic in [topic!("pond/depth"), topic!("pond/north/depth")] {
                deliver(&frog, &Outgoing::new(topic, b"7").qos(qos)).await;
            }
            drop(expect(&mut heard, topic!("pond/north/depth"), b"7").await);
            // Receives what the server sends although the subscription has ended.
            let mut others = frog.inbox().await.expect("an inbox");
            frog.unsubscribe(filter!("pond/+/depth")).await.expect("there was one");
            deliver(&frog, &Outgoing::new(topic!("pond/a/depth"), b"8").qos(qos)).await;
            // At QoS 0 the message is only sent so far. The server has handled it when it acknowledges the next
            // message. Otherwise the subscriber of the next round might receive it.
            deliver(&frog, &Outgoing::new(topic!("mark"), b"").qos(Qos::AtLeastOnce)).await;
            assert!(heard.next().await.is_none());
            frog.disconnect().await.expect("everything is acknowledged");
            assert!(others.next().await.is_none(), "the server has ended the subscription");
        }
    })
    .await;
    server.kill();
}

#[tokio::test]
async fn the_small_client_prints_what_is_published() {
    let broker = Broker::start(&pondhawk_tests::Options::default());
    let client = run("small_client", &[&broker.address().to_string(), "news/#"]);
    client.wait_for("SUBACK id=1 Granted QoS 2");
    in_time(async {
        let frog = connect(broker.address(), Version::V3_1_1).await;
        for (topic, qos) in [topic!("news/0"), topic!("news/1"), topic!("news/2")].into_iter().zip(EVERY_QOS)
        {
            deliver(&frog, &Outgoing::new(topic, b"rain").qos(qos)).await;
        }
        frog.disconnect().await.expect("everything is acknowledged");
    })
    .await;
    client.wait_for("PUBLISH q0 \"news/0\" 4 B \"rain\"");
    client.wait_for("\"news/1\" 4 B \"rain\"");
    client.wait_for("\"news/2\" 4 B \"rain\"");
    client.kill();
    assert!(broker.stop().success());
}

#[tokio::test]
async fn the_tracer_prints_both_ways_and_changes_nothing() {
    let broker = Broker::start(&pondhawk_tests::Options::default());
    let tracer = run("tracer", &["127.0.0.1:0", &broker.address().to_string()]);
    let address = address(&tracer);
    in_time(async {
        let frog = connect(address, Version::V5).await;
        let mut heard = frog.subscribe(filter!("a/b"), Qos::AtLeastOnce).await.expect("granted");
        let message = Outgoing::new(topic!("a/b"), b"hey").qos(Qos::AtLeastOnce);
        deliver(&frog, &message).await;
        drop(expect(&mut heard, topic!("a/b"), b"hey").await);
        frog.disconnect().await.expect("everything is acknowledged");
    })
    .await;
    for line in
        ["-> CONNECT", "<- CONNACK", "-> SUBSCRIBE", "<- SUBACK", "<- PUBACK", "-> PUBACK", "-> DISCONNECT"]
    {
        tracer.wait_for(&format!("0 {line}"));
    }
    tracer.wait_for("\"a/b\" 3 B \"hey\"");
    tracer.wait_for("0 -> end");
    tracer.kill();
    assert!(broker.stop().success());
}

#[tokio::test]
async fn the_bridge_carries_messages_with_all_that_belongs_to_them() {
    let [ours, theirs] = Server::each();
    // Built before the time runs.
    let bridge = example("bridge");
    in_time(async {
        let (frog, toad) =
            tokio::join!(connect(ours.address(), Version::V5), connect(theirs.address(), Version::V5));
        for (from, to, here, there) in [(&ours, &theirs, &frog, &toad), (&theirs, &ours, &toad, &frog)] {
            let mut heard = there.subscribe(filter!("news/#"), Qos::ExactlyOnce).await.expect("granted");
            let bridge = start(&bridge, &[&from.address().to_string(), &to.address().to_string(), "news/#"]);
            bridge.wait_for("news/# from");
            for qos in EVERY_QOS {
                let content_type = Some(Utf8::new("text/plain").expect("a string"));
                let properties = MessageProperties { content_type, ..MessageProperties::EMPTY };
                deliver(here, &Outgoing::new(topic!("news/a"), b"rain").qos(qos).properties(properties))
                    .await;
                let message = hear(&mut heard).await;
                assert_eq!(
                    (message.topic(), message.payload(), message.qos()),
                    (topic!("news/a"), &b"rain"[..], qos)
                );
                assert_eq!(message.properties().content_type, content_type);
            }
            bridge.kill();
            there.unsubscribe(filter!("news/#")).await.expect("there was one");
        }
        frog.disconnect().await.expect("everything is acknowledged");
        toad.disconnect().await.expect("everything is acknowledged");
    })
    .await;
}

#[tokio::test]
async fn the_pipeline_publishes_messages_that_match_again() {
    let broker = Broker::start(&pondhawk_tests::Options::default());
    let pipeline = run("pipeline", &[&broker.address().to_string(), "news/#", "(?i)rain", "loud", "2"]);
    pipeline.wait_for("news/# to loud");
    in_time(async {
        let frog = connect(broker.address(), Version::V5).await;
        let mut heard = frog.subscribe(filter!("loud"), Qos::AtLeastOnce).await.expect("granted");
        for text in ["snow", "Rain at noon"] {
            deliver(&frog, &Outgoing::new(topic!("news/a"), text.as_bytes()).qos(Qos::AtLeastOnce)).await;
        }
        drop(expect(&mut heard, topic!("loud"), b"RAIN AT NOON").await);
        frog.disconnect().await.expect("everything is acknowledged");
    })
    .await;
    pipeline.kill();
    assert!(broker.stop().success());
}
