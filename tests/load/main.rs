//! `pondhawk bench` against the real broker, in short: every message is numbered, and none may be lost, repeated,
//! altered, out of order, or left without its acknowledgements.

use std::process::Command;

use pondhawk_tests::{Broker, Options, Program, pondhawk};

/// A load test, in each version and at each QoS.
fn run(test: &[&str]) {
    for shards in [1, 4] {
        let broker = Broker::start(&Options { shards, ..Options::default() });
        for (version, qos) in ["3.1", "3.1.1", "5"].into_iter().flat_map(|v| ["0", "1", "2"].map(|q| (v, q)))
        {
            let mut bench = Command::new(pondhawk());
            bench.arg("bench").args(test).args(["--version", version, "--qos", qos, "--threads", "2"]);
            bench.arg("--server").arg(format!("broker={}:{}", broker.address(), broker.process_id()));
            let report = Program::start(bench).finish();
            assert!(!report.contains("FAILED"), "{report}");
        }
        assert!(broker.stop().success());
    }
}

#[test]
fn every_message_of_a_loadtest_arrives_once_and_in_order() {
    run(&["loadtest", "--conns", "40", "--messages", "500", "--window", "30"]);
}

#[test]
fn every_message_of_a_fanout_arrives_once_and_in_order() {
    run(&["fanout", "--conns", "30", "--messages", "200"]);
}

#[test]
fn every_message_of_a_fanin_arrives_once_and_in_order() {
    run(&["fanin", "--conns", "30", "--messages", "200"]);
}

#[test]
fn every_request_is_answered_once_and_heard_by_all_who_listen_in() {
    run(&["pingtest", "--sizes", "20p5w", "--messages", "50"]);
}

#[test]
fn whoever_publishes_now_and_then_to_itself_hears_it() {
    run(&["many", "--conns", "50", "--interval", "0.05", "--duration", "0.2"]);
}
