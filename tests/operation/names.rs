//! Names that clients choose, at the places where an operator sees them.

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, Version, until};
use serde_json::Value;

use crate::admin::Server;

/// Names that are markup, change the colours of a terminal, and forge a line of the log or of metrics.
const NAMES: [&str; 4] = [
    "<script>alert('frog')</script>",
    "\u{1b}[2J\u{1b}[31mtadpole\u{7}",
    "toad\r\n2026-01-01T00:00:00Z INFO admin server on http://127.0.0.1:1",
    "newt\"} 1\npondhawk_journal_failed 1\n",
];

const SETTINGS: &str = "[admin]\naddress = \"127.0.0.1:0\"\n\n[limits]\nclient_id_bytes = 65535\n";

/// The longest text of a line of the log that names a client with a long name.
const LINE_BYTES_MAX: usize = 2_000;

/// As client identifier, user name and topic.
#[test]
fn names_of_clients_forge_nothing_in_the_log_and_in_the_answers_of_the_api() {
    let broker = Broker::start(&Options { settings: SETTINGS.into(), ..Options::default() });
    let server = Server::of(&broker);
    let long = "x".repeat(65_535);
    let mut connected = Vec::new();
    for name in NAMES.into_iter().chain([long.as_str()]) {
        let mut client = broker.client_with(&Connect { user: Some(name), ..Connect::new(Version::V5, name) });
        client.retain(name, b"croak");
        client.subscribe(name);
        client.expect_retained(name, b"croak");
        connected.push(client);
    }
    let clients = until("all are listed", || {
        let clients = server.value("/api/v1/clients?limit=100");
        (clients["clients"].as_array()?.len() == NAMES.len() + 1).then_some(clients)
    });
    let listed = |name: &str| {
        let mut all = clients["clients"].as_array().expect("a list").iter();
        all.any(|client| client["client_id"] == name && client["user"] == name)
    };
    assert!(NAMES.into_iter().chain([long.as_str()]).all(listed), "the API names them as they are");
    let retained = server.value("/api/v1/retained?limit=100").to_string();
    assert!(retained.contains("alert('frog')"), "{retained}");

    let metrics = server.send("GET", "/metrics", "", "").body;
    assert!(metrics.contains("pondhawk_clients_connected"), "{metrics}");
    for part in ["frog", "tadpole", "toad", "newt", "xxxx"] {
        assert!(!metrics.contains(part), "no metric has the name of a client: {part}");
    }
    broker.wait_for_log("client_id=xxxx");
    let log = broker.log();
    assert!(log.contains("alert('frog')") && log.contains("toad"), "the log names clients: {log}");
    let is_raw = |c: char| c.is_control() && c != '\n';
    assert!(!log.contains(is_raw), "{:?}", log.lines().find(|line| line.contains(is_raw)));
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01") || line.starts_with("pondhawk_")));
    let longest = log.lines().map(str::len).max().unwrap_or(0);
    assert!(longest <= LINE_BYTES_MAX, "a line has {longest} bytes");
}

/// The same where the log is for programs.
#[test]
fn names_of_clients_are_one_text_in_a_log_of_json() {
    let settings = "[log]\nformat = \"json\"\n";
    let broker = Broker::start(&Options { settings: settings.into(), ..Options::default() });
    for name in NAMES {
        broker.client_with(&Connect::new(Version::V5, name)).leave();
    }
    broker.wait_for_log("newt");
    // The words of the start are for people.
    for line in broker.log().lines().filter(|line| !line.starts_with(char::is_alphabetic)) {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let client_id = value["client_id"].as_str().unwrap_or_default();
        assert!(!client_id.contains(char::is_control), "{line}");
    }
}
