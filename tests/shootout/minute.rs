//! A shoot-out of about a minute with brokers of three other authors: all rows are there, and the report is whole.

use std::fs;
use std::process::Command;

use pondhawk_tests::{Program, peers, pondhawk};
use serde_json::Value;

const SERVERS: [&str; 5] = ["pondhawk", "relay", "mosquitto", "mochi", "nats"];

/// The workloads of `--quick` that start few connections, and of each the columns and the servers that are left out.
const WORKLOADS: [(&str, usize, &[&str]); 3] =
    [("loadtest", 2, &[]), ("latency-equal", 1, &[]), ("qos1", 1, &["relay"])];

#[test]
fn a_minute_with_three_peers_fills_every_row_and_makes_a_whole_report() {
    let folder = tempfile::tempdir().unwrap();
    let names = WORKLOADS.map(|(name, ..)| name).join(",");
    let mut command = Command::new(pondhawk());
    command.args(["shootout", "--quick", "--rounds", "2", "--servers", &SERVERS.join(",")]);
    command.args(["--workloads", &names, "--output"]).arg(folder.path()).env("PONDHAWK_PEERS", peers());
    Program::start(command).finish();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let results: Value = serde_json::from_str(&read("results.json")).unwrap();
    assert!(results["interruption"].is_null(), "{}", results["interruption"]);
    for (workload, (name, sizes, without)) in results["workloads"].as_array().unwrap().iter().zip(WORKLOADS) {
        assert_eq!(workload["name"], name);
        let cells = workload["cells"].as_array().unwrap();
        assert_eq!(cells.len(), sizes * SERVERS.len(), "{name}");
        let (skipped, measured): (Vec<_>, Vec<_>) =
            cells.iter().partition(|cell| cell["skipped"].is_string());
        assert!(
            skipped.iter().all(|cell| without.contains(&cell["server"].as_str().unwrap())),
            "{skipped:?}"
        );
        assert_eq!(skipped.len(), sizes * without.len(), "{name}");
        measured.into_iter().for_each(check_cell);
    }
    assert_eq!(results["workloads"].as_array().unwrap().len(), WORKLOADS.len());
    assert_eq!(results["claims"].as_array().unwrap().len(), 4, "{}", results["claims"]);
    check_report(&read("report.md"), &read("report.html"));
    crate::look_at(&folder.path().join("report.html"));
}

/// Two rounds with figures, and with the memory of the server from its start on.
fn check_cell(cell: &Value) {
    let runs = cell["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{cell}");
    for run in runs {
        assert!(run["failure"].is_null() && run["messages"].as_u64() > Some(0), "{cell}");
        let memory = run["memory"]["bytes"].as_array().unwrap();
        // A run with its warm-up and the half second after it takes longer than a second.
        assert!((2..=240).contains(&memory.len()), "{memory:?}");
        assert!(memory.iter().all(|bytes| bytes.as_u64() > Some(100_000)), "{memory:?}");
        assert!(run["memory"]["interval_secs"].as_f64() >= Some(0.25), "{run}");
    }
}

/// Each server has a row in the table of each workload, and each workload its chart of memory.
fn check_report(markdown: &str, page: &str) {
    let sections: Vec<&str> = markdown.split("\n## ").collect();
    for (name, _, without) in WORKLOADS {
        let command = "\npondhawk bench ";
        let has_name = |section: &&&str| section.starts_with(title(name)) && section.contains(command);
        let section =
            sections.iter().find(has_name).unwrap_or_else(|| panic!("{name} is missing: {markdown}"));
        for server in SERVERS {
            let rows = section.lines().filter(|line| line.starts_with(&format!("| {server} "))).count();
            assert!(rows > 0, "{server} is missing: {section}");
        }
        assert!(!without.contains(&"relay") || section.contains("the relay knows no protocol"), "{section}");
        let charts = page.matches(&format!("<figcaption>{}, ", title(name))).count();
        assert!(charts > 0, "{name} has no chart");
    }
    assert_eq!(
        page.matches(": resident memory over time in the last round</figcaption>").count(),
        WORKLOADS.len()
    );
    assert!(page.trim_end().ends_with("</html>"), "the page has its end");
}

/// The heading of a workload in the report.
fn title(name: &str) -> &str {
    match name {
        "latency-equal" => "Latency at the same rate",
        "qos1" => "loadtest at QoS 1",
        name => name,
    }
}
