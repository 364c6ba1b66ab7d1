//! Outcomes of the last messages for a client.

use std::fs;

use pondhawk_tests::conversation::{Conversation as _, PUBACK, lasting, lose, pass_seconds, publish};
use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, Version, data_dir, until};
use serde_json::{Value, json};

use crate::admin::Server;

const SETTINGS: &str = "[admin]\naddress = \"127.0.0.1:0\"\n";
/// Clients on two shards take turns: a publisher is on the other shard than the client that connected before.
const SHARDS: u16 = 2;
/// Receive Maximum 1, as an encoded property.
const ONE_AT_A_TIME: &[u8] = b"\x21\x00\x01";

fn broker(settings: &str) -> (Broker, Server) {
    let settings = format!("{settings}{SETTINGS}");
    let broker = Broker::start(&Options { shards: SHARDS, settings, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

fn path(client: &str) -> String {
    format!("/api/v1/clients/{client}/outcomes")
}

fn record(server: &Server, client: &str, seconds: u64) -> u16 {
    let body = json!({ "seconds": seconds }).to_string();
    server.send("POST", &path(client), "Content-Type: application/json\r\n", &body).status
}

/// Waits until these are the outcomes, the oldest message first, each with its topic.
fn expect(server: &Server, client: &str, wanted: &[(&str, &str)]) -> Vec<Value> {
    until(&format!("{client} has the outcomes {wanted:?}"), || {
        let mut messages = server.value(&path(client))["messages"].as_array().expect("a list").clone();
        messages.reverse();
        let field = |message: &Value, name: &str| message[name].as_str().unwrap_or_default().to_owned();
        let found = messages.iter().map(|message| (field(message, "topic"), field(message, "outcome")));
        let wanted = wanted.iter().map(|(topic, outcome)| ((*topic).to_owned(), (*outcome).to_owned()));
        found.eq(wanted).then_some(messages)
    })
}

#[test]
fn each_message_for_a_connected_client_has_its_outcome() {
    let (broker, server) = broker("");
    let mut toad = broker.client(Version::V5, "toad");
    let mut frog =
        broker.client_with(&Connect { properties: ONE_AT_A_TIME, ..Connect::new(Version::V5, "frog") });
    frog.subscribe_with("pond/#", 2);
    toad.publish("pond/before", b"");
    frog.expect_message("pond/before", b"");
    assert_eq!(server.get(&path("frog")).status, 404);
    assert_eq!(record(&server, "frog", 60), 200);
    toad.publish("pond/0", b"croak");
    frog.expect_message("pond/0", b"croak");
    toad.deliver(1, "pond/1", b"");
    let first = frog.message();
    toad.deliver(1, "pond/2", b"");
    toad.deliver(2, "pond/3", b"");
    let seen = expect(
        &server,
        "frog",
        &[("pond/0", "sent"), ("pond/1", "sent"), ("pond/2", "waits"), ("pond/3", "waits")],
    );
    assert_eq!(
        (&seen[0]["publisher"], &seen[0]["qos"], &seen[0]["bytes"]),
        (&json!("toad"), &json!(0), &json!(5))
    );
    assert_eq!(seen[1]["packet_id"], first.packet_id);
    frog.acknowledge(PUBACK, first.packet_id);
    let second = frog.message();
    // PUBACK with 0x97: Quota exceeded.
    let [high, low] = second.packet_id.to_be_bytes();
    frog.send(&[PUBACK, 0x03, high, low, 0x97]);
    frog.take_message(b"");
    let last = expect(
        &server,
        "frog",
        &[("pond/0", "sent"), ("pond/1", "acknowledged"), ("pond/2", "refused"), ("pond/3", "acknowledged")],
    );
    let text = last[2]["text"].as_str().expect("a text");
    assert!(text.contains("0x97 (Quota exceeded)"), "{text}");
    assert!(last[3]["changed_unix_ms"].as_u64() >= last[3]["unix_ms"].as_u64());
    toad.deliver(1, "pond/4", b"");
    frog.message();
    lose(frog);
    expect(
        &server,
        "frog",
        &[
            ("pond/0", "sent"),
            ("pond/1", "acknowledged"),
            ("pond/2", "refused"),
            ("pond/3", "acknowledged"),
            ("pond/4", "session_ended"),
        ],
    );
}

/// The queue is in the ledger, and the client is not connected.
#[test]
fn each_message_for_a_session_without_a_connection_has_its_outcome() {
    let (broker, server) = broker("[sessions]\nqueue_full = \"drop-oldest\"\nqueue_messages = 2\n");
    let mut frog = broker.client_with(&lasting(Version::V5, "frog"));
    frog.subscribe_with("pond/#", 1);
    frog.leave();
    assert_eq!(record(&server, "frog", 60), 200);
    let mut toad = broker.client(Version::V5, "toad");
    toad.publish("pond/0", b"");
    for topic in ["pond/1", "pond/2"] {
        toad.deliver(1, topic, b"");
    }
    expect(&server, "frog", &[("pond/0", "absent"), ("pond/1", "queued"), ("pond/2", "queued")]);
    // Message Expiry Interval of one second.
    toad.send(&publish(Version::V5, 0x32, 9, "pond/3", &[0x02, 0, 0, 0, 1], b""));
    toad.expect_ack(PUBACK, 9);
    expect(
        &server,
        "frog",
        &[("pond/0", "absent"), ("pond/1", "dropped_oldest"), ("pond/2", "queued"), ("pond/3", "queued")],
    );
    pass_seconds(&broker, 3);
    let mut frog = broker.client_with(&lasting(Version::V5, "frog"));
    let second = frog.message();
    assert_eq!(second.topic, "pond/2");
    let seen = expect(
        &server,
        "frog",
        &[("pond/0", "absent"), ("pond/1", "dropped_oldest"), ("pond/2", "sent"), ("pond/3", "expired")],
    );
    assert_eq!((&seen[2]["packet_id"], &seen[2]["publisher"]), (&json!(second.packet_id), &json!("toad")));
    frog.acknowledge(PUBACK, second.packet_id);
    let last = [
        ("pond/0", "absent"),
        ("pond/1", "dropped_oldest"),
        ("pond/2", "acknowledged"),
        ("pond/3", "expired"),
    ];
    expect(&server, "frog", &last);
}

#[test]
fn a_full_queue_and_a_refused_publisher_have_their_outcomes() {
    for (queue_full, outcome, reason) in [("drop-newest", "queue_full", 0x00), ("refuse", "not_stored", 0x97)]
    {
        let (broker, server) =
            broker(&format!("[sessions]\nqueue_full = {queue_full:?}\nqueue_messages = 1\n"));
        let mut frog = broker.client_with(&lasting(Version::V5, "frog"));
        frog.subscribe_with("pond/#", 1);
        frog.leave();
        assert_eq!(record(&server, "frog", 60), 200);
        let mut toad = broker.client(Version::V5, "toad");
        toad.deliver(1, "pond/1", b"");
        toad.publish_at(1, 7, "pond/2", b"");
        let answer = toad.read_packet();
        assert_eq!((answer[0], answer.get(4).copied().unwrap_or(0)), (PUBACK, reason), "{queue_full}");
        expect(&server, "frog", &[("pond/1", "queued"), ("pond/2", outcome)]);
    }
}

#[test]
fn a_message_that_goes_nowhere_has_its_reason() {
    let directory = data_dir();
    let rules = directory.path().join("rules");
    fs::write(&rules, "topic readwrite pond/#\ntopic write secret/#\ntopic read told/#\n")
        .expect("it is ours");
    let (broker, server) = broker(&format!("[auth]\nacl_file = {rules:?}\n"));
    let mut toad = broker.client(Version::V5, "toad");
    let mut frog = broker.client(Version::V5, "frog");
    // QoS 1 with No Local.
    frog.subscribe_with("pond/#", 5);
    frog.subscribe("#");
    frog.subscribe("told/#");
    assert_eq!(record(&server, "frog", 60), 200);
    toad.publish("secret/x", b"");
    toad.publish("told/x", b"");
    expect(&server, "frog", &[("secret/x", "may_not_read"), ("told/x", "may_not_publish")]);
    frog.unsubscribe("#");
    frog.publish("pond/own", b"");
    expect(
        &server,
        "frog",
        &[("secret/x", "may_not_read"), ("told/x", "may_not_publish"), ("pond/own", "no_local")],
    );
}

#[test]
fn a_message_of_a_group_names_the_member_that_has_received_it() {
    let (broker, server) = broker("");
    for qos in [0, 1] {
        let members = ["frog", "newt"].map(|name| {
            let mut member = broker.client(Version::V5, &format!("{name}{qos}"));
            member.subscribe_with(&format!("$share/g/pond/{qos}"), qos);
            member
        });
        let [mut frog, mut newt] = members;
        let name = format!("frog{qos}");
        assert_eq!(record(&server, &name, 60), 200);
        let mut toad = broker.client(Version::V5, &format!("toad{qos}"));
        let topic = format!("pond/{qos}");
        for _ in 0..2 {
            toad.deliver(qos, &topic, b"");
        }
        frog.take_message(b"");
        newt.take_message(b"");
        let own = if qos == 0 { "sent" } else { "acknowledged" };
        let outcomes = until("both have their outcomes", || {
            let list = server.value(&path(&name));
            let messages = list["messages"].as_array().expect("a list").clone();
            let has = |outcome: &str| messages.iter().any(|message| message["outcome"] == outcome);
            (messages.len() == 2 && has(own) && has("taken_by")).then_some(messages)
        });
        let taken = outcomes.iter().find(|message| message["outcome"] == "taken_by").expect("it was found");
        let text = taken["text"].as_str().expect("a text");
        assert!(text.ends_with(&format!("newt{qos}")), "{text}");
    }
}

#[test]
fn an_explanation_has_the_last_messages_on_its_path() {
    let (broker, server) = broker("");
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("pond/#");
    let mut toad = broker.client(Version::V5, "toad");
    let mut newt = broker.client(Version::V5, "newt");
    let explain = || {
        let path = "/api/v1/explain?publisher=toad&topic=pond/x&subscriber=frog";
        server.value(path)["last_messages"].clone()
    };
    assert_eq!(explain(), Value::Null);
    assert_eq!(record(&server, "frog", 60), 200);
    assert_eq!(explain()["messages"], json!([]));
    for (client, topic) in [(&mut toad, "pond/x"), (&mut newt, "pond/x")] {
        client.publish(topic, b"croak");
        frog.expect_message(topic, b"croak");
    }
    toad.publish("pond/y", b"");
    frog.expect_message("pond/y", b"");
    let found = explain();
    let messages = found["messages"].as_array().expect("a list");
    let [message] = &messages[..] else { panic!("{found}") };
    assert_eq!((&message["publisher"], &message["outcome"]), (&json!("toad"), &json!("sent")));
    assert!(found["seconds_left"].as_u64().is_some_and(|left| (1..=60).contains(&left)), "{found}");
    let (_, text) =
        server.run(&["explain", "--publisher", "toad", "--topic", "pond/x", "--subscriber", "frog"]);
    assert!(
        text.contains("The last messages on this path:\n") && text.contains("pond/x q0 from toad: sent"),
        "{text}"
    );
}

#[test]
fn records_are_bounded_and_end() {
    let settings = format!("{SETTINGS}recorded_clients = 1\nrecorded_messages = 2\n");
    let broker = Broker::start(&Options { shards: SHARDS, settings, ..Options::default() });
    let server = Server::of(&broker);
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("#");
    let memory = || server.value("/api/v1/counters")["memory/traces"].clone();
    assert_eq!((memory(), record(&server, "frog", 60), record(&server, "frog", 60)), (json!(0), 200, 200));
    assert_eq!(record(&server, "toad", 60), 507);
    assert_eq!(server.value("/api/v1/counters")["admin/refused/recordings"], 1);
    assert_eq!(memory(), 2 * 512 * 3, "two messages on two shards and in the ledger");
    for topic in ["a", "b"] {
        frog.publish(topic, b"");
        frog.expect_message(topic, b"");
    }
    frog.unsubscribe("#");
    frog.retain("c", b"x");
    frog.subscribe("#");
    frog.expect_retained("c", b"x");
    expect(&server, "frog", &[("b", "sent"), ("c", "sent")]);
    let shown = server.value(&path("frog"));
    assert_eq!(shown["earlier"], 1);
    assert_eq!(
        server.value(&format!("{}?topic=b", path("frog")))["messages"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(server.value("/api/v1/outcomes")["clients"][0]["client_id"], "frog");
    assert_eq!(server.send("DELETE", &path("frog"), "", "").status, 200);
    assert_eq!(server.send("DELETE", &path("frog"), "", "").status, 404);
    assert_eq!((memory(), record(&server, "toad", 60)), (json!(0), 200));
    for wrong in [0, 3_601] {
        assert_eq!(record(&server, "toad", wrong), 400);
    }
}
