//! Checks that the committed pages, rules and board are those that the table of metrics generates.

mod alerts;
mod board;

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use alerts::{ALERTS, Alert};
use pondhawk_admin::metrics::METRICS;

/// Environment variable of `cargo xtask docs`: the test writes the file instead of comparing it.
const WRITE: &str = "PONDHAWK_WRITE_DOCS";

/// Compares a file of the repository with the generated text, or writes the file.
fn check(path: &str, generated: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(file.parent().expect("a file has a folder")).expect("the folder is made");
        std::fs::write(&file, generated).expect("the file is written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == generated, "{path} is not current: run `cargo xtask docs`");
}

#[test]
fn docs_metrics_md_is_what_the_table_generates() {
    check("docs/METRICS.md", &pondhawk_admin::metrics::markdown());
}

#[test]
fn docs_alerts_md_is_what_the_alerts_generate() {
    check("docs/ALERTS.md", &alerts::page());
}

#[test]
fn docs_rules_are_what_the_alerts_generate() {
    check("packaging/prometheus/pondhawk.rules.yml", &alerts::rules());
}

#[test]
fn docs_board_is_what_the_table_generates() {
    check("packaging/grafana/pondhawk.json", &board::board());
}

/// A new metric without a panel would be a figure that nobody looks at.
#[test]
fn every_metric_has_a_panel() {
    let shown: HashSet<&str> = board::shown().into_iter().collect();
    let hidden: Vec<_> = board::names().into_iter().filter(|name| !shown.contains(name)).collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}: add them to crates/admin/tests/manual/board.rs");
}

#[test]
fn no_two_panels_share_a_place() {
    let board: serde_json::Value = serde_json::from_str(&board::board()).expect("JSON");
    let (mut taken, mut ids) = (HashSet::new(), HashSet::new());
    for panel in board["panels"].as_array().expect("a list") {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{panel}");
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(x + width <= 24, "{panel}");
        for place in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{place:?}: {panel}");
        }
    }
}

/// The names of metrics in a condition, each with its matchers between braces.
fn selectors(expr: &str) -> Vec<(&str, &str)> {
    let starts = expr.match_indices("pondhawk_").map(|(at, _)| &expr[at + "pondhawk_".len()..]);
    starts
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            let matchers = behind.strip_prefix('{').and_then(|behind| behind.split('}').next());
            (name, matchers.unwrap_or_default())
        })
        .collect()
}

#[test]
fn conditions_have_names_and_labels_of_the_table_only() {
    for Alert { name: alert, expr, .. } in ALERTS {
        for (name, matchers) in selectors(expr) {
            let metric = METRICS.iter().find(|metric| metric.name == name);
            let metric = metric.unwrap_or_else(|| panic!("{alert}: the table has no {name}"));
            let Some((label, values)) = matchers.split_once(['=']) else { continue };
            assert_eq!(metric.label, Some(label), "{alert}");
            for value in values.trim_start_matches('~').trim_matches('"').split('|') {
                let begins = value.trim_end_matches(".*");
                let fits = |found: &str| found == value || (begins != value && found.starts_with(begins));
                assert!(
                    metric.samples.iter().any(|sample| fits(sample.value)),
                    "{alert}: no {label} is {value}"
                );
            }
        }
    }
}

#[test]
fn every_alert_names_a_command() {
    let mut names = BTreeSet::new();
    for Alert { name, summary, action, .. } in ALERTS {
        assert!(names.insert(name), "{name} is there twice");
        assert!(!summary.ends_with('.') && action.ends_with('.'), "{name}");
        // The file of rules has apostrophes around commands.
        assert!(!action.contains('\''), "{name}");
        let mut quoted = action.split('`').skip(1).step_by(2);
        let programs = ["pondhawk ", "journalctl ", "systemctl "];
        assert!(quoted.any(|text| programs.iter().any(|program| text.starts_with(program))), "{name}");
    }
}
