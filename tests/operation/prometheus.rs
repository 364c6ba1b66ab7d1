//! Prometheus, as Debian has it, with the metrics, the rules and the board that we ship.

mod alarms;
mod harness;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, Version, until};
use serde_json::Value;

use harness::{Folder, Prometheus, shipped};

/// Runs promtool, and returns all that it has printed.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut promtool = Command::new("promtool");
    promtool.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = promtool.spawn().expect("promtool is there: run `cargo xtask tools`");
    process.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = process.wait_with_output().expect("our own child can be waited for");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
    text
}

#[test]
fn promtool_finds_nothing_wrong_with_metrics_and_rules() {
    let folder = Folder::new();
    let broker = folder.full_broker();
    let server = folder.server(&broker);
    assert_eq!(promtool(&["check", "metrics"], &server.get("/metrics").body), "", "no lint");
    let rules = shipped("prometheus/pondhawk.rules.yml");
    let told = promtool(&["check", "rules", "--lint-fatal", &rules.to_string_lossy()], "");
    assert!(told.contains("rules found"), "{told}");
}

/// Commands of the program that runs are tried; others, such as `systemctl status`, need a service.
#[test]
fn commands_that_alerts_name_can_be_run() {
    let folder = Folder::new();
    let broker = Broker::start(&Options { settings: folder.admin(), ..Options::default() });
    let server = folder.server(&broker);
    let rules = std::fs::read_to_string(shipped("prometheus/pondhawk.rules.yml")).expect("it is there");
    let quoted = rules.lines().filter(|line| line.trim().starts_with("description:"));
    let quoted = quoted.flat_map(|line| line.split('\'').skip(1).step_by(2));
    let commands: BTreeSet<&str> = quoted.filter_map(|text| text.strip_prefix("pondhawk ")).collect();
    // Those take a file or a directory, and are no question to a broker.
    let of_files = ["check FILE", "journal check"];
    let (others, commands): (BTreeSet<&str>, BTreeSet<&str>) =
        commands.into_iter().partition(|command| !command.starts_with("ctl "));
    assert_eq!(others, of_files.into());
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let command = command.replace("ADDRESS", "192.0.2.1");
        let words: Vec<&str> = command.split(' ').collect();
        let (is_done, text) = server.run(&words);
        assert!(is_done, "{command}: {text}");
    }
}

/// The conditions that no test can create at a broker in time: a broken or slow disk, and a broker that starts again and again.
#[test]
fn rules_for_broken_disks_fire_at_their_limits_and_not_before() {
    let folder = Folder::new();
    let rules =
        std::fs::read_to_string(shipped("prometheus/pondhawk.rules.yml")).expect("it is in the repository");
    folder.write("pondhawk.rules.yml", &rules);
    let told = promtool(&["test", "rules", &folder.write("cases.yml", alarms::CASES)], "");
    assert!(told.contains("SUCCESS"), "{told}");
}

/// All queries of the board, for all instances, and with a short window for rates.
fn queries() -> BTreeSet<String> {
    let text = std::fs::read_to_string(shipped("grafana/pondhawk.json")).expect("it is in the repository");
    let board: Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("a list");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| target["expr"].as_str().expect("a text"));
    queries.map(|query| query.replace("$instance", ".*").replace("$__rate_interval", "20s")).collect()
}

#[test]
fn prometheus_scrapes_a_broker_and_every_query_of_the_board_has_an_answer() {
    let folder = Folder::new();
    let full = folder.full_broker();
    // Figures of tokens are there if there are keys of tokens.
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n";
    let settings = format!("{}[jwt]\nkeys_url = \"{}/keys\"\n{listener}", folder.admin(), folder.nowhere());
    let tokens = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let servers = [&full, &tokens].map(|broker| folder.server(broker));
    let prometheus = Prometheus::start(&folder, &servers, None);
    prometheus.wait_for_all(servers.len());
    // Questions about users have figures when there was one.
    let mut ann = full.connect();
    ann.send(&Connect::new(Version::V5, "ann").of("ann", "secret").bytes());
    ann.read_to_end();
    let mut missing = queries();
    assert!(missing.len() > 80, "{missing:?}");
    let mut asked = 0;
    until("all queries have an answer", || {
        asked += 1;
        missing.retain(|query| prometheus.query(query).is_empty());
        // The list is shown if this never ends.
        if asked % 100 == 0 {
            eprintln!("without an answer: {missing:?}");
        }
        missing.is_empty().then_some(())
    });
    // The broker of the board is a label of each series.
    let instances = prometheus.query("pondhawk_ready == 1");
    assert_eq!(instances.len(), servers.len(), "{instances:?}");
    assert!(prometheus.query("pondhawk_nonsense").is_empty());
}
