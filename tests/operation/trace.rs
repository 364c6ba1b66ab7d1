//! Traces: what an operator sees of the connections of some clients, and of the messages of some topics.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, Version, until};
use serde_json::{Value, json};

use crate::admin::Server;

pub(super) fn start(shards: u16) -> (Broker, Server) {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { shards, settings, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

/// Begins a trace. Returns the status of the answer, and its text.
pub(super) fn begin(server: &Server, body: &Value) -> (u16, String) {
    let answer =
        server.send("POST", "/api/v1/trace", "Content-Type: application/json\r\n", &body.to_string());
    (answer.status, answer.body)
}

/// The lines so far: client, sender and text.
fn lines(server: &Server) -> Vec<(String, String, String)> {
    let value = server.value("/api/v1/trace?limit=1000");
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let items = value["items"].as_array().expect("a list");
    items.iter().map(|line| (text(line, "client_id"), text(line, "from"), text(line, "text"))).collect()
}

/// Waits for a line with this text. Returns all lines.
fn lines_with(server: &Server, wanted: &str) -> Vec<(String, String, String)> {
    until(wanted, || {
        let lines = lines(server);
        lines.iter().any(|(_, _, text)| text.contains(wanted)).then_some(lines)
    })
}

/// Sender, and the beginning of a text.
fn brief<'a>(lines: &'a [(String, String, String)], client_id: &str) -> Vec<(&'a str, &'a str)> {
    let of = lines.iter().filter(|(client, _, _)| client == client_id);
    of.map(|(_, from, text)| (from.as_str(), text.split([' ', ',', ':']).next().unwrap_or_default()))
        .collect()
}

#[test]
fn a_trace_of_a_client_has_all_its_packets_without_its_password() {
    for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
        let (broker, server) = start(2);
        let mut other = broker.client(version, "toad");
        assert_eq!(begin(&server, &json!({ "kind": "client_id", "value": "frog" })).0, 200);
        let (user, password) = (Some("ann"), Some(&b"swordfish"[..]));
        let mut frog = broker.client_with(&Connect { user, password, ..Connect::new(version, "frog") });
        frog.subscribe("pond/#");
        other.publish("pond/x", b"croak");
        frog.expect_message("pond/x", b"croak");
        frog.expect_only_pong();
        frog.send(&packet::disconnect(version, 0));
        frog.expect_closed();
        let lines = lines_with(&server, "closed");
        let (client, server_said, none) = ("client", "server", "-");
        let expected = [
            (none, "opened"),
            (client, "CONNECT"),
            (server_said, "CONNACK"),
            (client, "SUBSCRIBE"),
            (server_said, "SUBACK"),
            (server_said, "PUBLISH"),
            (client, "PINGREQ"),
            (server_said, "PINGRESP"),
            (client, "DISCONNECT"),
            (none, "disconnected"),
            (none, "closed"),
        ];
        assert_eq!(brief(&lines, "frog"), expected, "{version:?}");
        assert!(brief(&lines, "toad").is_empty());
        let all = format!("{lines:?}{}", server.send("GET", "/api/v1/trace/capture", "", "").body);
        assert!(all.contains("croak") && all.contains("*********") && !all.contains("swordfish"));
    }
}

#[test]
fn a_trace_by_topic_names_the_publisher_and_each_receiver_of_a_message() {
    let (broker, server) = start(2);
    let mut receivers: Vec<_> = (0..4)
        .map(|number| {
            let mut receiver = broker.client(Version::V5, &format!("newt-{number}"));
            receiver.subscribe("pond/#");
            receiver
        })
        .collect();
    assert_eq!(begin(&server, &json!({ "kind": "topic", "value": "pond/+/x" })).0, 200);
    let mut publisher = broker.client(Version::V3_1_1, "toad");
    publisher.publish("pond/a/y", b"another topic");
    publisher.publish("pond/a/x", b"croak");
    // Large enough to be shared by its receivers.
    publisher.publish("pond/a/x", &[b'z'; 20_000]);
    for receiver in &mut receivers {
        receiver.expect_message("pond/a/y", b"another topic");
        receiver.expect_message("pond/a/x", b"croak");
        receiver.expect_message("pond/a/x", &[b'z'; 20_000]);
    }
    let lines = until("all receivers have their lines", || {
        let lines = lines(&server);
        let is_named = |(client, _, _): &(String, String, String)| client != "-";
        let count = lines.iter().filter(|(_, from, _)| from == "server").count();
        (count == 8 && lines.iter().all(is_named)).then_some(lines)
    });
    assert_eq!(brief(&lines, "toad")[1..], [("client", "PUBLISH"); 2]);
    for number in 0..4 {
        assert_eq!(brief(&lines, &format!("newt-{number}"))[1..], [("server", "PUBLISH"); 2]);
    }
    assert!(!format!("{lines:?}").contains("another topic"));
}

#[test]
fn a_trace_by_topic_has_the_publishers_packet_in_front_of_those_of_its_receivers() {
    let (broker, server) = start(1);
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("pond/#");
    assert_eq!(begin(&server, &json!({ "kind": "topic", "value": "#" })).0, 200);
    // The publisher leaves in the same read.
    let mut toad = broker.connect();
    let connect = Connect::new(Version::V3_1_1, "toad").bytes();
    let publish = packet::publish(Version::V3_1_1, "pond/x", b"croak");
    toad.send(&[connect, publish, packet::disconnect(Version::V3_1_1, 0)].concat());
    frog.expect_message("pond/x", b"croak");
    let clients = until("both packets have their lines", || {
        let packets = lines(&server).into_iter().filter(|(_, from, _)| from != "-");
        let clients: Vec<String> = packets.map(|(client, _, _)| client).collect();
        (clients.len() == 2 && clients.iter().all(|client| client != "-")).then_some(clients)
    });
    assert_eq!(clients, ["toad", "frog"]);
}

/// A client that gets its own messages, one whose messages are denied, and all of them in a trace of all topics.
#[test]
fn a_trace_by_topic_says_why_a_message_is_denied_and_begins_each_connection_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let rules = directory.path().join("acl");
    std::fs::write(&rules, "topic readwrite echo\ntopic read #\n").expect("it is ours");
    let settings = format!("[admin]\naddress = \"127.0.0.1:0\"\n[auth]\nacl_file = {rules:?}\n");
    let broker = Broker::start(&Options { shards: 1, settings, ..Options::default() });
    let server = Server::of(&broker);
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("echo");
    assert_eq!(begin(&server, &json!({ "kind": "topic", "value": "#" })).0, 200);
    frog.publish("echo", b"1");
    frog.expect_message("echo", b"1");
    let mut toad = broker.client(Version::V3_1_1, "toad");
    toad.publish("pond/x", b"2");
    let lines = lines_with(&server, "not allowed to publish");
    let (client, server_said, none) = ("client", "server", "-");
    assert_eq!(brief(&lines, "frog"), [(none, "followed"), (client, "PUBLISH"), (server_said, "PUBLISH")]);
    assert_eq!(brief(&lines, "toad"), [(none, "followed"), (client, "PUBLISH"), (none, "not")]);
}

/// The alias of a topic that does not match may be given to one that does.
#[test]
fn a_trace_by_topic_knows_topic_aliases() {
    let (broker, server) = start(2);
    assert_eq!(begin(&server, &json!({ "kind": "topic", "value": "pond/x" })).0, 200);
    let mut publisher = broker.client(Version::V5, "toad");
    let alias = |topic: &str, payload: &[u8]| {
        packet::publish_with(Version::V5, 0x30, topic, b"\x23\x00\x01", payload)
    };
    for (topic, payload) in [("pond/y", "no 1"), ("", "no 2"), ("pond/x", "yes 1"), ("", "yes 2")] {
        publisher.send(&alias(topic, payload.as_bytes()));
    }
    publisher.expect_only_pong();
    let text = format!("{:?}", lines_with(&server, "yes 2"));
    assert!(text.contains("yes 1") && !text.contains("no 1") && !text.contains("no 2"), "{text}");
}

#[test]
fn a_trace_of_an_address_says_why_a_client_is_refused() {
    let (broker, server) = start(2);
    let address = json!({ "kind": "address", "value": "127.0.0.0/8" });
    assert_eq!(begin(&server, &address).0, 200);
    let mut stranger = broker.connect();
    stranger.send(b"SSH-2.0-frog\r\n");
    stranger.expect_closed();
    let lines = lines_with(&server, "refused: ");
    assert_eq!(lines.iter().filter(|(_, _, text)| text.contains("refused")).count(), 1);
    assert!(lines[0].2.starts_with("opened by 127.0.0.1:"), "{lines:?}");
    assert!(lines[1].2.contains("what follows is not read"), "{lines:?}");
    assert!(lines[2].2.starts_with("refused: 0x"), "{lines:?}");
}

/// The first trace ends before its time, because its records have no room; the second is ended by the operator.
#[test]
fn a_trace_ends_with_its_room_and_gives_its_memory_back() {
    let (broker, server) = start(2);
    let used = || server.value("/api/v1/counters")["memory/traces"].as_u64().expect("a number");
    let mut frog = broker.client(Version::V5, "frog");
    let body = json!({ "kind": "client_id", "value": "frog", "bytes": 8_192 });
    assert_eq!((begin(&server, &body).0, used()), (200, 3 * 8_192));
    let (status, text) = begin(&server, &body);
    assert!(status == 409 && text.contains("a trace is under way"), "{text}");
    for _ in 0..40 {
        frog.expect_only_pong();
    }
    let value = until("it is full", || {
        let value = server.value("/api/v1/trace?limit=1000");
        (value["is_complete"] == true).then_some(value)
    });
    assert_eq!((&value["state"], &value["seconds_left"]), (&json!("full"), &json!(0)));
    assert!((20..80).contains(&value["items"].as_array().expect("a list").len()), "{value}");
    // Another one may begin, because this one has ended.
    assert_eq!(begin(&server, &json!({ "kind": "user", "value": "nobody", "bytes": 4_096 })).0, 200);
    assert_eq!(server.send("DELETE", "/api/v1/trace", "", "").status, 200);
    assert_eq!(server.send("GET", "/api/v1/trace", "", "").status, 404);
    frog.expect_only_pong();
    until("the shards have let it go", || (used() == 0).then_some(()));
}

#[test]
fn a_trace_is_there_on_the_command_line_and_its_file_can_be_replayed() {
    let (broker, server) = start(2);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("frog.pcap").display().to_string();
    let address: SocketAddr = broker.address();
    let words = ["ctl", "trace", "--client", "frog", "--seconds", "3600", "--capture", &file];
    let mut command = server.command(&words, directory.path());
    let traced = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run");
    until("the trace has begun", || {
        (server.send("GET", "/api/v1/trace", "", "").status == 200).then_some(())
    });
    let mut frog = broker.client(Version::V3_1_1, "frog");
    frog.subscribe("pond/#");
    frog.publish("pond/x", b"croak");
    frog.expect_message("pond/x", b"croak");
    frog.send(&packet::disconnect(Version::V3_1_1, 0));
    frog.expect_closed();
    lines_with(&server, "closed");
    let kill = Command::new("kill").args(["-INT", &traced.id().to_string()]).status().expect("it can be run");
    assert!(kill.success());
    let output = traced.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" 1 frog -> CONNECT ") && text.contains(" 1 frog <- SUBACK "), "{text}");
    assert!(text.contains("the trace has ended: it was interrupted"), "{text}");
    assert_eq!(server.send("GET", "/api/v1/trace", "", "").status, 404, "it is forgotten");
    let mut replay = Command::new(pondhawk_tests::pondhawk());
    replay.args(["replay", &file, "--to", &address.to_string(), "--speed", "max"]);
    let output = replay.output().expect("it can be run");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{told}");
    let (is_done, text) = server.run(&["ctl", "trace", "--client", "a", "--capture", "/nowhere/x.pcap"]);
    assert!(!is_done && text.starts_with("error: /nowhere/x.pcap: "), "{text}");
    assert_eq!(server.send("GET", "/api/v1/trace", "", "").status, 404, "nothing has begun");
    let (is_done, text) = server.run(&["ctl", "trace"]);
    assert!(
        !is_done && text.contains("--client <ID>|--user <NAME>|--address <ADDRESS>|--topic <FILTER>"),
        "{text}"
    );
}
