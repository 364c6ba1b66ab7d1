//! `pondhawk probe`, at a broker that is ours and at one that is not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use pondhawk_tests::{Program, Version, free_port, pondhawk};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::place::Server;

/// With few messages and small ones.
fn probe(server: &Server, arguments: &[&str]) -> String {
    Program::start(command(server, arguments)).finish()
}

fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(pondhawk());
    command.args(["probe", &server.address().to_string(), "--messages", "50", "--payload-max", "65536"]);
    command.args(arguments);
    command
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
        assert!(table.contains("65,536 bytes (no more were tried)"), "{table}");
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
        assert_eq!(found("payload")["measured"]["bytes_at_least"], 65_536);
        assert_eq!(found("Receive Maximum")["measured"], Value::Null);
        assert!(found("Receive Maximum")["said"]["messages"].is_u64(), "{report}");
        for qos in 0..=2 {
            let times = &found(&format!("round trip, QoS {qos}"))["measured"];
            let [p50, p99] = ["p50_ns", "p99_ns"].map(|name| times[name].as_u64().expect("a number"));
            assert!(0 < p50 && p50 <= p99, "{report}");
            let rate = &found(&format!("rate, QoS {qos}"))["measured"];
            let [messages, elapsed_ns, messages_per_second] =
                ["messages", "elapsed_ns", "messages_per_second"]
                    .map(|name| rate[name].as_u64().expect("a number"));
            assert_eq!(messages, 50, "{report}");
            assert_eq!(messages_per_second, messages * 1_000_000_000 / elapsed_ns, "{report}");
        }
    }
}

#[test]
fn a_broker_that_does_not_keep_what_it_says_fails_a_pipeline() {
    let folder = tempfile::tempdir().expect("there is a place for temporary files");
    let access = folder.path().join("access");
    std::fs::write(&access, "topic readwrite elsewhere\n").expect("a temporary file can be written");
    let stingy = Server::mosquitto(&format!("acl_file {}\n", access.display()));
    let output = command(&stingy, &["--patience", "1", "--json"]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(report["clean"], false, "{report}");
}

/// A broker that accepts each client until the first SUBSCRIBE. Then the thread ends, and returns that connection.
fn broker_until_subscribe() -> (SocketAddr, JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let broker = std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("it connects");
            let mut packet = [0; 1_024];
            let _ = stream.read(&mut packet).expect("CONNECT");
            // CONNACK has properties only in MQTT 5.
            let is_5 = packet.windows(5).any(|bytes| bytes == b"MQTT\x05");
            let connack: &[u8] = if is_5 { &[0x20, 3, 0, 0, 0] } else { &[0x20, 2, 0, 0] };
            stream.write_all(connack).expect("CONNACK");
            if stream.read(&mut packet).expect("a packet") > 0 && packet[0] == 0x82 {
                return stream;
            }
        }
    });
    (address, broker)
}

#[test]
fn ctrl_c_prints_the_rows_so_far() {
    let (address, broker) = broker_until_subscribe();
    let mut command = Command::new(pondhawk());
    command.args(["probe", &address.to_string(), "--patience", "3600"]);
    let probe = command.stdout(Stdio::piped()).spawn().expect("it can be run");
    // SUBSCRIBE has no answer, and the check waits.
    let _connection = broker.join().expect("no panic");
    kill_process(Pid::from_child(&probe), Signal::INT).expect("it runs");
    let output = probe.wait_with_output().expect("our own child can be waited for");
    let table = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(130), "{table}");
    let versions = table.lines().filter(|line| line.starts_with("MQTT ") && line.contains("yes"));
    assert_eq!(versions.count(), Version::ALL.len(), "{table}");
    assert!(!table.lines().any(|line| line.starts_with("QoS ")), "{table}");
}

#[test]
fn a_broker_that_disappears_is_told_of_once() {
    let (address, broker) = broker_until_subscribe();
    let mut command = Command::new(pondhawk());
    command.args(["probe", &address.to_string(), "--messages", "1", "--patience", "5"]);
    let probe = command.stdout(Stdio::piped()).spawn().expect("it can be run");
    drop(broker.join().expect("no panic"));
    let output = probe.wait_with_output().expect("our own child can be waited for");
    let table = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(3), "{table}");
    let wrong: Vec<_> = table.lines().filter(|line| line.contains("<- wrong")).collect();
    assert!(wrong.len() == 1 && wrong[0].starts_with("QoS 0 "), "{table}");
    assert!(wrong[0].contains("the broker has disappeared: "), "{table}");
    let rest = table.lines().skip_while(|line| !line.starts_with("QoS 1 "));
    for line in rest {
        assert!(line.contains(" not tried: the broker has disappeared"), "{line} in {table}");
    }
}

#[test]
fn the_probe_finds_nothing_if_nobody_listens() {
    let address = format!("127.0.0.1:{}", free_port());
    let output = Command::new(pondhawk()).args(["probe", &address]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.starts_with(b"error: "), "{output:?}");
}

#[test]
fn features_that_a_broker_says_it_lacks_are_not_tried() {
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
