//! Runs `features/*.feature` against the real broker, over TCP and over QUIC: one in a process of its own for each scenario.
//!
//! Words on the command line choose the scenarios whose names contain one of them.

mod bytes;
mod steps;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pondhawk_tests::gherkin::{self, Scenario};
use steps::{Pond, Way};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let features = features(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../features"));
    let (mut passed, mut failed) = (0, 0);
    for (shards, uses_quic) in [(1, false), (4, false), (1, true), (4, true)] {
        let outcome = run(&features, Way { shards, uses_quic }, &words);
        (passed, failed) = (passed + outcome.passed, failed + outcome.failed);
    }
    // An empty folder is no success.
    let is_good = failed == 0 && (passed > 0 || !words.is_empty());
    let verdict = if is_good { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A file, and the scenarios in it.
type Feature = (PathBuf, Vec<Scenario>);

/// Reads all features of a folder.
///
/// # Panics
/// If the folder or a feature cannot be read.
fn features(folder: &Path) -> Vec<Feature> {
    let entries = fs::read_dir(folder).expect("the folder of the features");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let scenarios = gherkin::read(&text).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
        (path, scenarios)
    };
    paths.into_iter().map(read).collect()
}

/// Numbers of scenarios with each result.
struct Outcome {
    passed: usize,
    failed: usize,
}

fn run(features: &[Feature], way: Way, words: &[String]) -> Outcome {
    let is_wanted = |scenario: &Scenario| {
        words.is_empty() || words.iter().any(|word| scenario.name.contains(word.as_str()))
    };
    let each = features.iter().flat_map(|(path, scenarios)| scenarios.iter().map(move |one| (path, one)));
    let (passed, failed): (Vec<_>, Vec<_>) = each
        .filter(|(_, scenario)| is_wanted(scenario))
        .map(|(path, scenario)| passes(path, scenario, way))
        .partition(|passes| *passes);
    let transport = if way.uses_quic { "QUIC" } else { "TCP" };
    let (passed, failed) = (passed.len(), failed.len());
    println!("features over {transport}, {} shard(s): {passed} passed, {failed} failed", way.shards);
    Outcome { passed, failed }
}

/// Plays a scenario. Says which step fails, behind the reason that the step gives itself.
fn passes(path: &Path, scenario: &Scenario, way: Way) -> bool {
    let (file, Scenario { line, name, .. }) = (path.display(), scenario);
    let Ok(mut pond) = catch_unwind(|| Pond::new(way)) else {
        println!("✘ {file}:{line}: {name}\n  the broker does not start");
        return false;
    };
    let failed = scenario.steps.iter().find(|step| {
        let outcome = catch_unwind(AssertUnwindSafe(|| steps::act(&mut pond, step)));
        outcome.is_err()
    });
    if let Some(step) = failed {
        println!("✘ {file}:{line}: {name}\n  {}: {:?} {}", step.line, step.keyword, step.text);
        println!("log of the broker:\n{}", pond.log());
    }
    failed.is_none()
}
