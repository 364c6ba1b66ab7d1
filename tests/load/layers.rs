//! `pondhawk bench` over TLS, WebSocket and QUIC, against listeners that accept nothing else.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pondhawk_tests::{Broker, Options, Program, pondhawk};
use tempfile::TempDir;

/// The layers, with the keys of a listener that has them.
const LAYERS: [(&str, &str); 4] = [
    ("tls", "address = \"127.0.0.1:0\"\nprotocol = \"mqtt\"\n"),
    ("ws", "address = \"127.0.0.1:0\"\nprotocol = \"websocket\"\n"),
    ("wss", "address = \"127.0.0.1:0\"\nprotocol = \"websocket\"\n"),
    ("quic", "address = \"quic://127.0.0.1:0\"\n"),
];

/// A certificate for 127.0.0.1, with its key.
struct Certificate(TempDir);

impl Certificate {
    fn make() -> Self {
        let made = Self(TempDir::new().expect("a temporary directory"));
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        fs::write(made.chain(), own.cert.pem()).expect("a temporary file");
        fs::write(made.key(), own.signing_key.serialize_pem()).expect("a temporary file");
        made
    }

    fn chain(&self) -> PathBuf {
        self.0.path().join("server.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("server.key")
    }

    /// A broker with a listener that accepts these layers only.
    fn broker(&self, shards: u16, layers: &str, keys: &str) -> Broker {
        let mut settings = format!("[[listener]]\n{keys}");
        if layers != "ws" {
            settings += &format!("tls_certificate = {:?}\ntls_key = {:?}\n", self.chain(), self.key());
        }
        Broker::start(&Options { shards, settings, ..Options::default() })
    }
}

/// Runs a load test over all layers, with one shard and with four, once with each of these arguments. Returns the
/// reports.
fn run(test: &[&str], each: &[&[&str]]) -> Vec<String> {
    let certificate = Certificate::make();
    let mut reports = Vec::new();
    for (shards, (layers, protocol)) in
        [1, 4].into_iter().flat_map(|shards| LAYERS.map(|kind| (shards, kind)))
    {
        let broker = certificate.broker(shards, layers, protocol);
        for arguments in each {
            let mut bench = Command::new(pondhawk());
            bench.arg("bench").args(test).args(*arguments).args(["--threads", "2", "--over", layers]);
            bench.arg("--cafile").arg(certificate.chain());
            bench.arg("--server").arg(format!("broker={}:{}", broker.address(), broker.process_id()));
            let report = Program::start(bench).finish();
            assert!(!report.contains("FAILED"), "{report}");
            assert!(report.contains(&format!("over {layers}")), "{report}");
            reports.push(report);
        }
        assert!(broker.stop().success());
    }
    reports
}

#[test]
fn every_message_of_a_loadtest_arrives_once_and_in_order_over_all_layers() {
    let each: [&[&str]; 4] = [
        &["--qos", "0"],
        &["--qos", "1"],
        &["--qos", "2", "--version", "5"],
        &["--payload", "20000", "--qos", "1"],
    ];
    run(&["loadtest", "--conns", "20", "--messages", "200", "--window", "30"], &each);
}

#[test]
fn every_message_of_other_patterns_arrives_once_and_in_order_over_all_layers() {
    for test in ["fanout", "fanin"] {
        run(&[test, "--conns", "10", "--messages", "200", "--per-write", "7"], &[&[]]);
    }
    run(&["pingtest", "--sizes", "10p5w", "--messages", "50"], &[&["--qos", "1"]]);
    run(&["many", "--conns", "20", "--interval", "0.05", "--duration", "0.2"], &[&[]]);
}

#[test]
fn clients_come_back_over_all_layers() {
    let innocents = ["--innocents", "2", "--rate", "500", "--duration", "0.2"];
    for report in run(&[&["storm", "--clients", "40"][..], &innocents].concat(), &[&[]]) {
        assert!(report.contains("40 of 40"), "{report}");
    }
    let load = ["offline-sessions", "--sessions", "20", "--publishers", "4", "--duration", "0.2"];
    run(&load, &[&["--window", "20"]]);
    run(&["slow-consumer", "--conns", "10", "--messages", "1000"], &[&[]]);
    for report in run(&["idle", "30"], &[&["--subscribe"]]) {
        assert!(report.contains("memory per connection"), "{report}");
    }
}

/// Runs a load test with a server that is started for it, with a certificate that is made for it.
fn run_started(test: &[&str], more: &[&str]) -> String {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("tls.toml");
    let listener = "[[listener]]\naddress = \"127.0.0.1:${PORT}\"\n\
                    tls_certificate = \"${CERTIFICATE}\"\ntls_key = \"${KEY}\"\n";
    fs::write(&file, listener).expect("a temporary file");
    let serve = format!("{} serve --in-memory -c {}", pondhawk().display(), file.display());
    let mut bench = Command::new(pondhawk());
    bench.arg("bench").args(test).args(more);
    bench.arg("--spawn").arg(format!("broker=env PORT={{port}} CERTIFICATE={{cert}} KEY={{key}} {serve}"));
    let report = Program::start(bench).finish();
    assert!(!report.contains("FAILED"), "{report}");
    report
}

#[test]
fn started_servers_and_the_relay_have_a_certificate_that_clients_trust() {
    for layers in ["tls", "wss"] {
        let test = ["loadtest", "--conns", "10", "--messages", "100", "--over", layers];
        for version in ["1.2", "1.3"] {
            let report = run_started(&test, &["--with-relay", "--tls-version", version]);
            assert!(report.contains(&format!("over {layers} (TLS {version})")), "{report}");
        }
    }
}

#[test]
fn handshakes_are_counted_alone_and_beside_innocent_clients() {
    let report = run_started(&["handshakes", "--count", "100", "--at-once", "8"], &["--with-relay"]);
    assert!(report.contains("handshakes per CPU second") && report.contains("resumed"), "{report}");
    let innocents = ["--innocents", "2", "--innocent-rate", "500", "--duration", "0.2"];
    let report = run_started(&["handshakes", "--count", "100", "--rate", "500"], &innocents);
    assert_eq!(report.matches("100 of 100").count(), 2, "{report}");
}

/// Its authority is not that of this machine.
#[test]
fn a_server_that_nobody_vouches_for_fails() {
    let certificate = Certificate::make();
    let broker = certificate.broker(1, "tls", LAYERS[0].1);
    let address = broker.address();
    let outcome = |arguments: &[&str]| {
        let mut bench = Command::new(pondhawk());
        bench.args(["bench", "loadtest", "--conns", "2", "--messages", "1"]).args(arguments);
        let output = bench.output().expect("the pondhawk binary can be run");
        assert!(!output.status.success());
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    let other = Certificate::make();
    let chain = other.chain();
    let url = format!("mqtts://{address}");
    let report = outcome(&[&url, "--cafile", chain.to_str().expect("a path of ours")]);
    assert!(report.contains("FAILED") && report.contains("invalid peer certificate"), "{report}");
    // A client without TLS is refused.
    let report = outcome(&[&format!("mqtt://{address}")]);
    assert!(report.contains("FAILED"), "{report}");
    assert!(broker.stop().success());
}
