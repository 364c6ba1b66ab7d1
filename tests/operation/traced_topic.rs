//! Traces whose lines are also published into a topic.

use std::process::{Command, Stdio};

use pondhawk_tests::conversation::Message;
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Client, RawClient, Version, data_dir, until};
use serde_json::{Value, json};

use crate::admin::Server;
use crate::trace::{begin, start};
use crate::{addresses, brokers};

const TARGET: &str = "trace/frog";

/// An order to trace the client `frog` into the topic.
fn of_frog() -> Value {
    json!({ "kind": "client_id", "value": "frog", "into": TARGET })
}

/// The next line that a subscriber of the topic receives.
fn line(watcher: &mut Client) -> Value {
    let message = Message::parse(watcher.version(), &watcher.read_packet());
    assert_eq!((message.topic.as_str(), message.qos, message.retain), (TARGET, 0, false));
    serde_json::from_slice(&message.payload).expect("each line is JSON")
}

/// Reads messages with lines until one has this text. Returns all lines.
fn lines_to(watcher: &mut Client, wanted: &str) -> Vec<Value> {
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &Value| text(line).contains(wanted)) {
        lines.push(line(watcher));
    }
    lines
}

fn text(line: &Value) -> &str {
    line["text"].as_str().expect("each line has a text")
}

/// The kinds of the packets and events.
fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| text(line).split([' ', ',', ':']).next().unwrap_or_default()).collect()
}

/// The trace when all its lines were published.
fn published(server: &Server) -> Value {
    until("all lines are published", || {
        let value = server.value("/api/v1/trace?limit=1000");
        (value["has_more"] == false && value["lines_published"] == value["lines"]).then_some(value)
    })
}

#[test]
fn a_subscriber_of_the_topic_receives_each_line_until_the_trace_ends() {
    for version in [Version::V3_1_1, Version::V5] {
        let (broker, server) = start(2);
        let mut watcher = broker.client(Version::V3_1_1, "watcher");
        watcher.subscribe(TARGET);
        assert_eq!(begin(&server, &of_frog()).0, 200);
        let connect = Connect::new(version, "frog").of("ann", "swordfish");
        let mut frog = broker.client_with(&connect);
        frog.publish("pond/x", b"croak");
        frog.leave();
        let lines = lines_to(&mut watcher, "closed");
        let expected = ["opened", "CONNECT", "CONNACK", "PUBLISH", "DISCONNECT", "disconnected", "closed"];
        assert_eq!(kinds(&lines), expected, "{version:?}");
        assert!(text(&lines[3]).contains("croak"), "{lines:?}");
        assert!(text(&lines[1]).contains("ann") && !format!("{lines:?}").contains("swordfish"), "{lines:?}");
        let shown = published(&server);
        let shown_lines = shown["items"].as_array().expect("a list");
        assert_eq!(
            shown_lines.iter().map(text).collect::<Vec<_>>(),
            lines.iter().map(text).collect::<Vec<_>>()
        );
        assert_eq!(shown_lines.last(), lines.last(), "a line has the same form in both places");
        assert_eq!(
            [&shown["into"], &shown["lines_published"], &shown["lines_unpublished"]],
            [&json!(TARGET), &json!(7), &json!(0)]
        );
        assert_eq!(server.send("DELETE", "/api/v1/trace", "", "").status, 200);
        let last = line(&mut watcher);
        assert_eq!(text(&last), "the trace has ended: an operator has ended it");
        assert_eq!([&last["connection"], &last["client_id"], &last["from"]], [&Value::Null; 3]);
        broker.client_with(&connect).leave();
        watcher.expect_only_pong();
    }
}

/// Each line about a message with a line would be published too, without an end. Topic aliases hide the topic of such a message.
#[test]
fn a_traced_client_that_subscribes_to_the_topic_makes_no_loop() {
    let alias_maximum = [0x22, 0x00, 0x0a];
    let of_address = json!({ "kind": "address", "value": "127.0.0.0/8", "into": TARGET });
    for (version, properties, order) in [
        (Version::V3_1_1, &[][..], of_frog()),
        (Version::V5, &[], of_frog()),
        (Version::V5, &alias_maximum, of_frog()),
        (Version::V3_1_1, &[], of_address),
    ] {
        let (broker, server) = start(2);
        let mut frog = broker.client_with(&Connect { properties, ..Connect::new(version, "frog") });
        assert_eq!(begin(&server, &order).0, 200);
        frog.subscribe("#");
        let mut expected = vec!["followed", "SUBSCRIBE", "SUBACK"];
        let mut aliases = 0;
        let mut expect_lines = |frog: &mut RawClient, count: usize| {
            for _ in 0..count {
                let message = Message::parse(version, &frog.read_packet());
                aliases += usize::from(message.topic.is_empty());
            }
        };
        expect_lines(&mut frog, 3);
        for _ in 0..10 {
            frog.expect_only_pong();
            expected.extend(["PINGREQ", "PINGRESP"]);
            expect_lines(&mut frog, 2);
        }
        assert_eq!(
            aliases > 0,
            !properties.is_empty(),
            "aliases stand for the topic, if the client accepts them"
        );
        let shown = published(&server);
        assert_eq!(kinds(shown["items"].as_array().expect("a list")), expected, "{version:?}");
        let capture = server.send("GET", "/api/v1/trace/capture", "", "").body;
        assert!(capture.contains(TARGET), "the file has all that crosses the connection");
    }
}

/// Clients of a listener with a mount point know the topic by another name.
#[test]
fn a_trace_of_all_topics_does_not_trace_itself() {
    let listeners = "[[listener]]\naddress = \"127.0.0.1:0\"\n\
                     [[listener]]\naddress = \"127.0.0.1:0\"\nmount_point = \"house/\"\n\
                     [admin]\naddress = \"127.0.0.1:0\"\n";
    for broker in brokers(listeners) {
        let server = Server::of(&broker);
        let [everywhere, house] = addresses(&broker);
        let mut watchers = [(everywhere, "house/trace"), (house, "trace")].map(|(address, name)| {
            let mut watcher = Client::connect(address, &Connect::new(Version::V5, name));
            watcher.subscribe("#");
            (watcher, name)
        });
        let body = json!({ "kind": "topic", "value": "#", "into": "house/trace" });
        assert_eq!(begin(&server, &body).0, 200);
        let mut toad = Client::connect(house, &Connect::new(Version::V3_1_1, "toad"));
        for round in 0..5 {
            toad.publish(&format!("pond/{round}"), b"croak");
            let about_clients = if round == 0 { 3 } else { 0 };
            for (watcher, trace) in &mut watchers {
                let mut heard = || Message::parse(Version::V5, &watcher.read_packet()).topic;
                let of_trace = (0..1 + 3 + about_clients).filter(|_| heard() == *trace);
                assert_eq!(of_trace.count(), 3 + about_clients);
            }
        }
        let shown = published(&server);
        let lines = shown["items"].as_array().expect("a list");
        assert_eq!(lines.len(), 3 + 5 * 3);
        let is_of_pond = |line: &Value| text(line).starts_with("followed") || text(line).contains("pond/");
        assert!(lines.iter().all(is_of_pond), "{shown}");
    }
}

/// More lines than one round takes.
#[test]
fn a_burst_of_lines_is_published_in_order_and_whole() {
    let (broker, server) = start(1);
    let mut watcher = broker.client(Version::V5, "watcher");
    watcher.subscribe(TARGET);
    assert_eq!(begin(&server, &of_frog()).0, 200);
    let mut frog = broker.client(Version::V3_1_1, "frog");
    for number in 0..350 {
        frog.publish(&format!("pond/{number}"), b"croak");
    }
    frog.leave();
    let texts: Vec<_> = lines_to(&mut watcher, "closed").iter().map(|line| text(line).to_owned()).collect();
    let shown = published(&server);
    let shown_texts: Vec<_> = shown["items"].as_array().expect("a list").iter().map(text).collect();
    assert_eq!(texts, shown_texts);
    assert_eq!(texts.iter().filter(|text| text.contains("pond/")).count(), 350);
}

#[test]
fn the_last_message_says_why_the_trace_has_ended() {
    let (broker, server) = start(2);
    let mut watcher = broker.client(Version::V3_1_1, "watcher");
    watcher.subscribe(TARGET);
    let with = |name: &str, value: u64| {
        let mut order = of_frog();
        order[name] = json!(value);
        order
    };
    assert_eq!(begin(&server, &with("seconds", 1)).0, 200);
    assert_eq!(text(&line(&mut watcher)), "the trace has ended: its time is over");
    assert_eq!(begin(&server, &with("bytes", 4_096)).0, 200);
    let mut frog = broker.client(Version::V3_1_1, "frog");
    (0..20).for_each(|_| frog.expect_only_pong());
    let lines = lines_to(&mut watcher, "has ended");
    assert!(text(&lines[lines.len() - 1]).contains("as many bytes as they may"), "{lines:?}");
    let shown = until("it is complete", || {
        let shown = server.value("/api/v1/trace");
        (shown["is_complete"] == true).then_some(shown)
    });
    assert_eq!(shown["lines_published"], lines.len() - 1);
}

/// A topic to which an operator may not publish is refused, and the order has a record with the topic.
#[test]
fn a_topic_that_nobody_may_publish_to_is_refused() {
    let directory = data_dir();
    let (_broker, [admin, operator, _]) = Server::with_roles(1, "", directory.path());
    let levels = "/".repeat(300);
    let long = "x".repeat(1_025);
    let wrong = [("a/#", 400), ("+", 400), ("", 400), (&*levels, 400), (&*long, 400), ("$SYS/frog", 403)];
    for (into, status) in wrong {
        let (told, text) = begin(&admin, &json!({ "kind": "user", "value": "ann", "into": into }));
        assert_eq!(told, status, "{into}: {text}");
    }
    let of_itself = json!({ "kind": "topic", "value": TARGET, "into": TARGET });
    assert_eq!(begin(&admin, &of_itself).0, 400);
    assert_eq!(begin(&operator, &of_frog()).0, 403);
    assert_eq!(admin.get("/api/v1/trace").status, 404, "nothing has begun");
    assert_eq!(begin(&admin, &of_frog()).0, 200);
    let change = &admin.value("/api/v1/audit")["changes"][0];
    assert_eq!((&change["action"], &change["on"]), (&json!("Trace"), &json!("client_id frog trace/frog")));
}

#[test]
fn a_trace_of_the_command_line_goes_into_a_topic_too() {
    let (broker, server) = start(2);
    let mut watcher = broker.client(Version::V3_1_1, "watcher");
    watcher.subscribe(TARGET);
    let directory = tempfile::tempdir().expect("a directory");
    let words = ["ctl", "trace", "--client", "frog", "--into", TARGET];
    let mut command = server.command(&words, directory.path());
    let traced = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run");
    until("the trace has begun", || (server.get("/api/v1/trace").status == 200).then_some(()));
    broker.client(Version::V5, "frog").leave();
    lines_to(&mut watcher, "closed");
    published(&server);
    let kill = Command::new("kill").args(["-INT", &traced.id().to_string()]).status().expect("it can be run");
    assert!(kill.success());
    let output = traced.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && told.contains("6 of 6 lines were published to trace/frog"), "{told}");
    assert_eq!(text(&line(&mut watcher)), "the trace has ended: an operator has ended it");
    let (is_done, told) = server.run(&["ctl", "trace", "--client", "frog", "--into", "a/#"]);
    assert!(!is_done && told.contains("a/# is no topic name"), "{told}");
}

/// A trace that is full is complete when the lines that wait were published too.
#[test]
fn the_command_line_waits_for_lines_that_are_not_published_yet() {
    let (broker, server) = start(2);
    let mut watcher = broker.client(Version::V5, "watcher");
    watcher.subscribe(TARGET);
    let directory = tempfile::tempdir().expect("a directory");
    let words = ["ctl", "trace", "--client", "frog", "--bytes", "262144", "--into", TARGET];
    let mut command = server.command(&words, directory.path());
    let traced = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it can be run");
    until("the trace has begun", || (server.get("/api/v1/trace").status == 200).then_some(()));
    let mut frog = broker.client(Version::V3_1_1, "frog");
    let publish = packet::publish(Version::V3_1_1, "pond/x", b"croak");
    frog.send(&publish.repeat(2_000));
    until("there is no room for more", || {
        frog.expect_only_pong();
        (server.value("/api/v1/trace?limit=1")["state"] == "full").then_some(())
    });
    let output = traced.wait_with_output().expect("it ends");
    // The reason is not that the command has ended the trace.
    let lines = lines_to(&mut watcher, "has ended");
    assert!(text(&lines[lines.len() - 1]).contains("as many bytes as they may"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let counts: Vec<usize> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(counts[..], [.., published, lines] if published == lines && lines > 1_000), "{told}");
}
