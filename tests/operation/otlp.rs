//! OTLP: what a collector of OpenTelemetry gets, read with the official messages.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use pondhawk_tests::{Broker, Options, Version, packet, until};
use serde_json::Value;

/// Time in which a request must have come.
const DEADLINE: Duration = Duration::from_secs(20);

/// A collector that prints what it gets.
struct Collector {
    process: Child,
    lines: Receiver<String>,
    port: u16,
}

impl Collector {
    /// The statuses of its first answers; all others are 200.
    fn start(statuses: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/operation/otlp/receiver.py");
        let mut python = pondhawk_tests::python();
        let mut process =
            python.arg(script).args(statuses).stdout(Stdio::piped()).spawn().expect("Python is there");
        let output = BufReader::new(process.stdout.take().expect("it has an output"));
        let (give, lines) = channel();
        // It ends with the process.
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| give.send(line)));
        let port = lines.recv_timeout(DEADLINE).expect("its port").parse().expect("a port");
        Self { process, lines, port }
    }

    /// The next request that has come.
    fn request(&self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE).expect("a request comes");
        serde_json::from_str(&line).expect("JSON")
    }

    /// The next request to this path with this text in it.
    fn request_with(&self, path: &str, text: &str) -> Value {
        let begun = Instant::now();
        loop {
            let request = self.request();
            if request["path"] == path && request.to_string().contains(text) {
                return request;
            }
            assert!(begun.elapsed() < DEADLINE, "no request to {path} has {text}");
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(collector: &Collector, more: &str) -> Broker {
    let settings =
        format!("[otlp]\nurl = \"http://127.0.0.1:{}\"\ninterval = \"1 s\"\n{more}", collector.port);
    Broker::start(&Options { shards: 2, settings, ..Options::default() })
}

#[test]
fn a_collector_gets_metrics_and_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, "Bearer 0123\n").expect("it is ours");
    let collector = Collector::start(&[]);
    let broker = start(&collector, &format!("authorization_file = {file:?}\n"));
    let mut frog = broker.client(Version::V5, "frog");
    frog.publish("pond/x", b"croak");
    frog.expect_only_pong();
    let request = collector.request_with("/v1/metrics", "pondhawk_clients_connected{} 1 gauge\":1.0");
    assert_eq!(request["authorization"], "Bearer 0123");
    assert_eq!(request["resource"]["service.name"], "pondhawk");
    let metrics = &request["metrics"];
    assert_eq!(metrics[concat!("pondhawk_build_info{version=", env!("CARGO_PKG_VERSION"), "} 1 gauge")], 1.0);
    let is_limit =
        metrics["pondhawk_memory_limit_bytes{} By gauge"].as_f64().is_some_and(|bytes| bytes > 1e6);
    assert!(is_limit, "{metrics}");
    let counters =
        ["pondhawk_sockets_accepted_total{} 1 sum", "pondhawk_messages_dropped_total{reason=slow} 1 sum"];
    assert!(counters.iter().all(|name| metrics[*name].is_number()), "{metrics}");
    assert!(metrics["pondhawk_journal_write_seconds{} s histogram"].is_number(), "{metrics}");
    drop(frog);
    let request = collector.request_with("/v1/logs", "disconnected");
    let lines = request["lines"].as_array().expect("a list");
    let line = lines.iter().find(|line| line[1] == "disconnected").expect("it has the line");
    assert_eq!((&line[0], &line[2]["client_id"]), (&Value::from("INFO"), &Value::from("frog")));
    broker.stop();
    collector.request_with("/v1/logs", "stopping");
}

/// 503 says that the same request may be made again, and 400 that it may not.
#[test]
fn lines_are_sent_again_if_that_helps_and_are_counted_otherwise() {
    let collector = Collector::start(&["503", "400"]);
    let broker = start(&collector, "metrics = false\n[admin]\naddress = \"127.0.0.1:0\"\n");
    let server = crate::admin::Server::of(&broker);
    let first = collector.request();
    let again = collector.request();
    assert_eq!((&first["status"], &again["status"]), (&Value::from(503), &Value::from(400)));
    let lines = |request: &Value| request["lines"].as_array().expect("a list").clone();
    // Further lines may have joined them.
    assert!(lines(&again).starts_with(&lines(&first)), "{first}, then {again}");
    let refused = lines(&again).len();
    until("they are counted", || {
        (server.value("/api/v1/counters")["otlp/lines_dropped"] == refused).then_some(())
    });
    broker.wait_for_log("the collector of [otlp] does not take what is sent to /v1/logs: the status is 503");
    broker.client(Version::V5, "frog").expect_only_pong();
    broker.wait_for_log("the collector of [otlp] takes what is sent to /v1/logs again");
}

#[test]
fn a_collector_that_is_gone_harms_nobody() {
    let collector = Collector::start(&[]);
    let port = collector.port;
    drop(collector);
    let settings = format!(
        "[otlp]\nurl = \"http://127.0.0.1:{port}\"\ninterval = \"1 s\"\n[admin]\naddress = \"127.0.0.1:0\"\n"
    );
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let server = crate::admin::Server::of(&broker);
    until("requests have failed", || {
        server.value("/api/v1/counters")["otlp/failed"].as_u64().filter(|failed| *failed > 2)
    });
    broker.client(Version::V3_1_1, "frog").expect_only_pong();
    assert_eq!(broker.log_lines("does not take what is sent to /v1/metrics").len(), 1);
    broker.stop();
}

#[test]
fn a_collector_gets_spans_of_messages() {
    const PARENT: &str = "00f067aa0ba902b7";
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let collector = Collector::start(&[]);
    let broker = start(&collector, "metrics = false\nlogs = false\nspans_by_property = true\n");
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("pond/#");
    let mut toad = broker.client(Version::V5, "toad").into_raw();
    toad.send(&packet::publish(Version::V5, "pond/y", b"nobody asks"));
    let value = format!("00-{TRACE}-{PARENT}-01");
    let mut property = vec![0x26];
    for text in ["traceparent", &value] {
        property.extend(u16::try_from(text.len()).expect("it is short").to_be_bytes());
        property.extend(text.as_bytes());
    }
    toad.send(&packet::publish_with(Version::V5, 0x30, "pond/x", &property, b"croak"));
    let mut spans: Vec<Value> = Vec::new();
    while spans.len() < 2 {
        spans.extend(collector.request()["spans"].as_array().expect("spans").iter().cloned());
    }
    spans.sort_by_key(|span| span["name"].to_string());
    let [deliver, publish] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(
        (&deliver["name"], &publish["name"]),
        (&Value::from("deliver pond/x"), &Value::from("publish pond/x"))
    );
    assert_eq!((&publish["parent"], &deliver["parent"]), (&Value::from(PARENT), &publish["span"]));
    for (span, client_id) in [(publish, "toad"), (deliver, "frog")] {
        assert_eq!((&span["trace"], &span["is_error"]), (&Value::from(TRACE), &Value::from(false)));
        let attributes = &span["attributes"];
        assert_eq!(attributes["messaging.client.id"], client_id);
        assert_eq!(
            (&attributes["mqtt.outcome"], &attributes["mqtt.qos"]),
            (&Value::from("sent"), &Value::from(0))
        );
    }
}
