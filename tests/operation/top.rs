//! `pondhawk top` without a terminal, and the figures of shards behind it.

use pondhawk_tests::{Broker, Options, Version, until};
use serde_json::Value;

use crate::admin::Server;

#[test]
fn without_a_terminal_it_prints_once() {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let server = Server::of(&broker);
    let clients: Vec<_> =
        (0..6).map(|number| broker.client(Version::V5, &format!("frog-{number}"))).collect();
    until("all clients are counted", || {
        let shards = server.value("/api/v1/shards");
        let shards = shards["shards"].as_array().expect("a list").clone();
        let connected: u64 = shards.iter().filter_map(|shard| shard["clients"].as_u64()).sum();
        (shards.len() == 2 && connected == 6).then_some(())
    });
    let (is_done, text) = server.run(&["top"]);
    assert!(is_done && !text.contains('\u{1b}'), "{text}");
    for part in ["2 shards  ready", "clients 6 connected", "no warnings", "SHARD", "bytes received"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.lines().skip_while(|line| !line.contains("SHARD")).count(), 3, "{text}");
    let (is_done, json) = server.run(&["top", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("it prints JSON");
    assert!(is_done && json["status"]["ready"] == true && json["counters"]["clients/connected"] == 6);
    drop(clients);
    let (is_done, text) = Server::with("127.0.0.1:1", "0123456789abcdef").run(&["top"]);
    assert!(!is_done && text.contains("no answer from the admin server"), "{text}");
}
