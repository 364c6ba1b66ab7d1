//! `pondhawk bench` against the real broker, in short: every message is numbered, and none may be lost, repeated,
//! altered, out of order, or left without its acknowledgements.

mod layers;

use std::process::Command;

use pondhawk_tests::{Broker, Options, Program, pondhawk};

/// What is added to a command line.
type Arguments = Vec<&'static str>;

/// A load test with one shard and with four, once with each of these arguments; and what it reports each time.
fn run(test: &[&str], each: &[Arguments]) -> Vec<String> {
    let mut reports = Vec::new();
    for shards in [1, 4] {
        let broker = Broker::start(&Options { shards, ..Options::default() });
        for arguments in each {
            let mut bench = Command::new(pondhawk());
            bench.arg("bench").args(test).args(arguments).args(["--threads", "2"]);
            bench.arg("--server").arg(format!("broker={}:{}", broker.address(), broker.process_id()));
            let report = Program::start(bench).finish();
            assert!(!report.contains("FAILED"), "{report}");
            reports.push(report);
        }
        assert!(broker.stop().success());
    }
    reports
}

fn each_version() -> Vec<Arguments> {
    ["3.1", "3.1.1", "5"].map(|version| vec!["--version", version]).to_vec()
}

fn each_version_and_qos() -> Vec<Arguments> {
    let with = |version: Arguments| ["0", "1", "2"].map(|qos| [&version[..], &["--qos", qos]].concat());
    each_version().into_iter().flat_map(with).collect()
}

#[test]
fn every_message_of_a_loadtest_arrives_once_and_in_order() {
    run(&["loadtest", "--conns", "40", "--messages", "500", "--window", "30"], &each_version_and_qos());
}

#[test]
fn every_message_of_a_fanout_arrives_once_and_in_order() {
    run(&["fanout", "--conns", "30", "--messages", "200"], &each_version_and_qos());
}

#[test]
fn every_message_of_a_fanin_arrives_once_and_in_order() {
    run(&["fanin", "--conns", "30", "--messages", "200"], &each_version_and_qos());
}

#[test]
fn every_request_is_answered_once_and_heard_by_all_who_listen_in() {
    run(&["pingtest", "--sizes", "20p5w", "--messages", "50"], &each_version_and_qos());
}

#[test]
fn clients_that_publish_to_themselves_now_and_then_receive_their_messages() {
    run(&["many", "--conns", "50", "--interval", "0.05", "--duration", "0.2"], &each_version_and_qos());
}

/// Trouble beside innocent clients, and what it brought.
fn make_trouble(test: &[&str], brought: &str) {
    let innocents = ["--innocents", "2", "--rate", "500", "--duration", "0.2"];
    for report in run(&[test, &innocents].concat(), &each_version()) {
        assert!(report.contains(brought), "{report}");
    }
}

#[test]
fn clients_that_were_away_receive_every_acknowledged_message() {
    let load =
        ["offline-sessions", "--sessions", "40", "--publishers", "8", "--duration", "0.2", "--window", "20"];
    run(&load, &each_version());
}

#[test]
fn a_subscriber_that_asks_for_everything_gets_each_retained_message_once() {
    make_trouble(&["retained-flood", "--messages", "5000"], "5000 of 5000");
}

#[test]
fn the_survivor_of_a_group_gets_every_message_once() {
    make_trouble(&["shared-queue", "--messages", "2000"], "2000 of 2000");
}

#[test]
fn all_who_lose_their_connections_at_once_come_back() {
    make_trouble(&["storm", "--clients", "100"], "100 of 100");
}

#[test]
fn nothing_is_lost_beside_subscribers_that_do_not_keep_up() {
    let each = [&each_version()[..], &[vec!["--qos", "1"]]].concat();
    run(&["slow-consumer", "--conns", "20", "--messages", "2000"], &each);
}

/// It has no users, and lets everybody in.
#[test]
fn a_server_without_passwords_is_not_attacked_with_wrong_ones() {
    let broker = Broker::start(&Options::default());
    for attack in ["wrong-passwords", "strangers"] {
        let mut bench = Command::new(pondhawk());
        bench.args(["bench", "hostile", attack, "--short", "--duration", "0.4"]);
        bench.arg("--server").arg(format!("broker={}:{}", broker.address(), broker.process_id()));
        let output = bench.output().expect("the pondhawk binary can be run");
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{report}");
        assert!(report.contains("could not be prepared: the server lets a client with a wrong"), "{report}");
    }
    assert!(broker.stop().success());
}

/// Its limit is so low that the attackers take all connections: nobody else is accepted.
#[test]
fn a_server_that_an_attack_hurts_fails_in_the_short_form_too() {
    let settings = "[limits]\nconnections = 6\n".to_owned();
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let mut bench = Command::new(pondhawk());
    bench.args(["bench", "hostile", "unfinished-packets", "--short", "--duration", "0.4"]);
    bench.arg("--server").arg(format!("broker={}:{}", broker.address(), broker.process_id()));
    let output = bench.output().expect("the pondhawk binary can be run");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{report}");
    assert!(report.contains("FAILED: broker: unfinished-packets: CONNECT keeps"), "{report}");
    assert!(broker.stop().success());
}
