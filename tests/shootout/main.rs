//! `pondhawk shootout`: its report, and lies that it must notice.

mod agents;
mod balancers;
mod minute;
mod recipes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pondhawk_tests::{Program, liar, node, peers, pondhawk};
use serde_json::Value;

/// The description of a shoot-out of liars in front of this broker, of which one is honest.
fn description(faults: &[&str], workload: &str) -> String {
    let (liar, broker) = (liar().display().to_string(), pondhawk().display().to_string());
    let server = |fault: &&str| {
        format!(
            "[[server]]\nname = \"{fault}\"\nprogram = \"{liar}\"\n\
             command = \"{liar} {fault} {{port}} {broker} serve --in-memory -p BROKER_PORT\"\n\
             [server.durable]\n\
             command = \"{liar} {fault} {{port}} {broker} serve --data-dir {{dir}}/data -p BROKER_PORT\"\n"
        )
    };
    let servers: String = faults.iter().map(server).collect();
    format!(
        "title = \"Liars\"\nservers = {faults:?}\nrounds_min = 2\nrounds_max = 2\nprecision = 0.1\nseconds = 0.5\n\
         warm_up_seconds = 0.1\n{servers}\n[[workload]]\nname = \"load\"\ntitle = \"load\"\n{workload}\n"
    )
}

/// A shoot-out of brokers that are quick to install, over all layers, with one workload for each.
fn over_layers(servers: &[&str], workloads: &[(&str, &str)]) -> String {
    let workload = |(name, bench): &(&str, &str)| {
        format!(
            "[[workload]]\nname = \"{name}\"\ntitle = \"{name}\"\nbench = \"{bench}\"\nwith_relay = true\n"
        )
    };
    let workloads: String = workloads.iter().map(workload).collect();
    format!(
        "title = \"Layers\"\nservers = {servers:?}\nrounds_min = 2\nrounds_max = 2\nprecision = 0.1\n\
         seconds = 0.1\nwarm_up_seconds = 0.1\n{workloads}"
    )
}

/// Runs a shoot-out of one round. Returns its figures, and the report.
fn run(folder: &Path, description: &str) -> (Value, String) {
    Program::start(command(folder, description)).finish();
    read(folder)
}

/// The command for a shoot-out of one round.
fn command(folder: &Path, description: &str) -> Command {
    let file = folder.join("shootout.toml");
    fs::write(&file, description).unwrap();
    let mut command = Command::new(pondhawk());
    command.arg("shootout").arg(file).args(["--rounds", "1", "--output"]).arg(folder.join("report"));
    command.env("PONDHAWK_PEERS", peers());
    command
}

/// The figures of a shoot-out, and its report.
fn read(folder: &Path) -> (Value, String) {
    let figures = fs::read_to_string(folder.join("report/results.json")).unwrap();
    (serde_json::from_str(&figures).unwrap(), fs::read_to_string(folder.join("report/report.md")).unwrap())
}

/// The one run of a server at one size.
fn figures<'a>(results: &'a Value, server: &str, size: u64) -> &'a Value {
    let cells = results["workloads"][0]["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["server"] == server && cell["size"] == size).unwrap();
    assert_eq!(cell["runs"].as_array().unwrap().len(), 1, "{cell}");
    assert!(cell["runs"][0]["failure"].is_null(), "{cell}");
    &cell["runs"][0]
}

#[test]
fn messages_that_are_dropped_repeated_or_swapped_are_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let faults = ["honest", "drop", "repeat", "swap"];
    let workload = "bench = \"loadtest --conns 20 --messages 500\"";
    let (results, report) = run(folder.path(), &description(&faults, workload));
    for server in faults {
        let run = figures(&results, server, 0);
        let counts = ["lost", "duplicated", "out_of_order"].map(|count| run[count].as_u64().unwrap() > 0);
        assert_eq!(counts, ["drop", "repeat", "swap"].map(|fault| fault == server), "{server}: {run}");
    }
    let (findings, _) = report.split_once("## load").unwrap();
    for sentence in ["- drop loses", "- repeat delivers", "- swap delivers"] {
        assert!(findings.contains(sentence), "{sentence:?} is missing in {report}");
    }
    assert!(!findings.contains("- honest"), "{report}");
}

#[test]
fn delays_and_stalls_are_in_the_latency_of_messages_that_are_due_on_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let workload = "bench = \"pingtest --sizes 20p0w --messages 200\"\nshares_of_best = [0.2]";
    let description = description(&["delay", "stall"], workload).replace("seconds = 0.5", "seconds = 3.0");
    let (results, _) = run(folder.path(), &description);
    let latency_ms = |server: &str, size: u64, percentile: f64| {
        let latencies = figures(&results, server, size)["latency_ms"].as_array().unwrap().clone();
        let at = latencies.iter().find(|at| at[0].as_f64() == Some(percentile)).unwrap();
        at[1].as_f64().unwrap()
    };
    // One message in a thousand waits, and those behind it.
    assert!(latency_ms("delay", 0, 100.0) >= 100.0);
    // One stall takes a fifth of each second. With requests only when the one before was answered, each pair meets a stall
    // once, which hides it behind thousands of quick answers. On schedule, a fifth of all requests is due during a stall.
    assert!(latency_ms("stall", 1, 90.0) >= 50.0, "{:?}", figures(&results, "stall", 1));
    assert!(latency_ms("stall", 1, 90.0) > latency_ms("stall", 0, 90.0));
}

#[test]
fn an_acknowledged_message_that_was_never_stored_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let workload = "bench = \"idle 1\"";
    let description = description(&["honest", "forget"], workload).replace("seconds = 0.5", "seconds = 2.0");
    let (results, report) = run(folder.path(), &format!("check_claims = true\n{description}"));
    let lost = |server: &str| {
        let claims = results["claims"].as_array().unwrap();
        let claim = claims.iter().find(|claim| claim["server"] == server).unwrap();
        assert!(claim["failure"].is_null() && claim["acknowledged"].as_u64().unwrap() > 1_000, "{claim}");
        claim["lost"].as_u64().unwrap()
    };
    assert_eq!(lost("honest"), 0);
    assert!(lost("forget") > 0, "{report}");
}

#[test]
fn brokers_are_compared_over_all_layers() {
    let folder = tempfile::tempdir().unwrap();
    let servers = ["pondhawk", "relay", "mosquitto", "mochi", "nats", "aedes"];
    let load = "loadtest --conns 4 --messages 50 --over";
    let benches = ["tls", "ws", "wss", "quic"].map(|over| (over, format!("{load} {over}")));
    let workloads = benches.each_ref().map(|(over, bench)| (*over, &**bench));
    let (results, report) = run(folder.path(), &over_layers(&servers, &workloads));
    for workload in results["workloads"].as_array().unwrap() {
        for cell in workload["cells"].as_array().unwrap() {
            if workload["name"] == "quic" && cell["server"] != "pondhawk" {
                assert_eq!(cell["skipped"], "no recipe over quic");
                continue;
            }
            let run = &cell["runs"][0];
            assert!(run["failure"].is_null() && run["messages"].as_u64() > Some(0), "{cell}");
            assert_eq!(run["lost"], 0, "{cell}");
        }
        assert_eq!(workload["cells"].as_array().unwrap().len(), servers.len());
    }
    for line in ["mosquitto, over tls:", "mosquitto, over ws:", "protocol websockets"] {
        assert!(report.contains(line), "{line:?} is missing in {report}");
    }
}

#[test]
fn a_broker_without_a_recipe_for_layers_is_skipped_and_the_report_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let workload = "bench = \"loadtest --conns 4 --over tls\"";
    let (results, report) = run(folder.path(), &description(&["honest"], workload));
    assert_eq!(results["workloads"][0]["cells"][0]["skipped"], "no recipe over tls");
    assert!(report.contains("(no recipe over tls)"), "{report}");
}

/// Reports of earlier versions are made again, too. `before.json` is the one of a version that did not look at memory over time.
#[test]
fn the_figures_in_the_pages_can_be_read_and_their_report_is_shown_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["before.json", "results.json"] {
        let figures = docs().join("shootout").join(name);
        let mut command = Command::new(pondhawk());
        command.args(["shootout", "--report-of"]).arg(figures).arg("--output").arg(folder.path());
        Program::start(command).finish();
        assert!(
            fs::read_to_string(folder.path().join("report.md")).unwrap().contains("## loadtest"),
            "{name}"
        );
    }
    look_at(&folder.path().join("report.html"));
    let figures = docs().join("shootout/balancers/results.json");
    let mut command = Command::new(pondhawk());
    command.args(["shootout", "--report-of"]).arg(figures).arg("--output").arg(folder.path());
    Program::start(command).finish();
    let page = |folder: &Path| fs::read_to_string(folder.join("report.md")).expect("the page is there");
    assert_eq!(page(folder.path()), page(&docs().join("shootout/balancers")));
}

/// Opens a report in Chromium: wide and narrow, light and dark, and as it is printed. `PONDHAWK_PICTURES` names a directory for a
/// picture of each.
fn look_at(report: &Path) {
    let profile = tempfile::tempdir().unwrap();
    let mut node = node();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/shootout/look.mjs");
    node.args(["--experimental-websocket", script]).arg(profile.path()).arg(report);
    let output = node.args(std::env::var_os("PONDHAWK_PICTURES")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 5);
}

#[test]
fn a_demand_that_is_not_met_is_a_failure_and_one_that_is_has_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let workload = "bench = \"retained-flood --messages 2000 --duration 0.2\"";
    let (results, report) = run(folder.path(), &description(&["honest", "drop"], workload));
    let of = |server: &str| {
        let cells = results["workloads"][0]["cells"].as_array().unwrap();
        let is_it = |cell: &&Value| cell["server"] == server && cell["size"] == 2;
        cells.iter().find(is_it).unwrap()["runs"][0].clone()
    };
    let honest = of("honest");
    assert!(honest["failure"].is_null() && honest["completion_secs"].as_f64() > Some(0.0), "{honest}");
    let why = of("drop")["failure"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("completed ") && why.contains(" of 2000"), "{why}");
    assert!(report.contains("time until the demand is met"), "{report}");
}

#[test]
fn a_report_is_one_file_without_anything_to_load() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(pondhawk());
    command.args([
        "shootout",
        "--quick",
        "--rounds",
        "1",
        "--seconds",
        "0.1",
        "--servers",
        "pondhawk,relay,mosquitto",
    ]);
    command.args(["--workloads", "loadtest,qos1", "--output"]).arg(folder.path());
    let said = Program::start(command).finish();
    assert!(said.contains("report.html"), "{said}");
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    for name in ["pondhawk", "relay", "mosquitto", "<svg", "max_queued_messages 0"] {
        assert!(page.contains(name), "{name} is missing");
    }
    for foreign in ["<script", "http://", "https://", "@import", "<link"] {
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(foreign), "{foreign} is in the page");
    }
    // Made again from its figures, the report is the same.
    let again = tempfile::tempdir().unwrap();
    let mut command = Command::new(pondhawk());
    command.args(["shootout", "--report-of"]).arg(folder.path().join("results.json"));
    command.arg("--output").arg(again.path());
    Program::start(command).finish();
    assert_eq!(fs::read_to_string(again.path().join("report.html")).unwrap(), page);
}

/// The findings about load balancers in the manual are those of the report, word by word.
#[test]
fn the_manual_quotes_the_findings_about_load_balancers() {
    let page = fs::read_to_string(docs().join("SHOOTOUT.md")).expect("the page is there");
    let report =
        fs::read_to_string(docs().join("shootout/balancers/report.md")).expect("the report is there");
    let (_, behind) = page.split_once("From its findings:\n\n```\n").expect("the findings begin");
    let (quoted, _) = behind.split_once("```").expect("the findings end");
    assert!(quoted.lines().count() > 5, "{quoted}");
    let wrong: Vec<&str> =
        quoted.lines().filter(|line| !report.lines().any(|known| known == *line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The table of README.md is the overview of the report, row by row.
#[test]
fn the_readme_quotes_the_overview_of_the_report() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let rows = |page: &str, from: &str, to: &str| {
        let text = fs::read_to_string(root.join(page)).expect("the page is there");
        let (_, behind) = text.split_once(from).expect("the part begins");
        let (part, _) = behind.split_once(to).expect("the part ends");
        let cells = part.lines().filter(|line| line.starts_with('|') && !line.starts_with("|-"));
        let cells = cells.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        cells.filter(|row| !row.starts_with("| **")).collect::<Vec<_>>()
    };
    let overview = rows("docs/shootout/report.md", "## Overview", "## How to read");
    assert!(overview.len() > 9, "{overview:?}");
    assert_eq!(rows("README.md", "A [shoot-out](docs/SHOOTOUT.md)", "## The parts"), overview);
}
