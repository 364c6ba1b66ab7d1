//! `pondhawk probe`, at a broker that is ours and at one that is not.

use std::process::Command;

use pondhawk_tests::{Program, pondhawk};
use serde_json::Value;

use crate::place::Server;

/// With few messages and small ones.
fn probe(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::new(pondhawk());
    command.args(["probe", &server.address().to_string(), "--messages", "50", "--payload-max", "65536"]);
    command.args(arguments);
    Program::start(command).finish()
}

#[test]
fn a_broker_that_keeps_what_it_says_is_found_to() {
    for server in &Server::each() {
        let table = probe(server, &[]);
        for row in
            ["MQTT 3.1 ", "MQTT 3.1.1 ", "MQTT 5.0 ", "QoS 2 ", "shared subscriptions ", "order, QoS 2 "]
        {
            let line = table.lines().find(|line| line.starts_with(row));
            assert!(line.is_some_and(|line| line.contains(" yes")), "{row}: {table}");
        }
        assert!(table.contains("65,536 (no more were tried)"), "{table}");
        assert!(!table.contains("wrong"), "{table}");
    }
}

#[test]
fn programs_get_what_was_found_as_json() {
    for server in &Server::each() {
        let report: Value = serde_json::from_str(&probe(server, &["--json"])).expect("an object");
        assert_eq!(report["clean"], true, "{report}");
        let findings = report["findings"].as_array().expect("a list");
        let found =
            |what: &str| findings.iter().find(|finding| finding["what"] == what).expect("it is there");
        assert_eq!(found("retained messages")["measured"], true);
        assert_eq!(found("payload, bytes")["measured"], 65_536);
        assert_eq!(found("Receive Maximum")["measured"], Value::Null);
    }
}

#[test]
fn where_nobody_listens_nothing_is_found() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = nobody.expect("there was a free port").to_string();
    let output = Command::new(pondhawk()).args(["probe", &address]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.starts_with(b"error: "), "{output:?}");
}

#[test]
fn what_a_broker_says_it_has_not_is_not_tried() {
    let modest = Server::mosquitto("max_qos 0\nretain_available false\n");
    let table = probe(&modest, &[]);
    assert!(!table.contains("wrong"), "{table}");
    for row in
        ["QoS 1 ", "QoS 2 ", "retained messages ", "order, QoS 1 ", "message expiry ", "round trip, QoS 1 "]
    {
        let line = table.lines().find(|line| line.starts_with(row));
        assert!(line.is_some_and(|line| line.contains(" not tried: ")), "{row}: {table}");
    }
}

#[test]
fn nothing_is_tried_that_would_say_nothing_or_take_all_memory() {
    for arguments in [["--messages", "0"], ["--payload-max", "99999999999"], ["--patience", "0"]] {
        let output = Command::new(pondhawk()).args(["probe", "localhost"]).args(arguments).output();
        let output = output.expect("it can be run");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("invalid value"), "{output:?}");
    }
}
