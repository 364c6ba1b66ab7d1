//! The steps of CI: `cargo xtask test`.

use std::process::Command;
use std::thread;

use crate::bench;
use crate::conformance::{self, Aim};
use crate::fuzz;
use crate::house::House;
use crate::log::Log;
use crate::package;
use crate::program;
use crate::report::Report;
use crate::sim;
use crate::tools;
use crate::words;

type Work = fn(&House, &mut Log) -> Result<(), String>;

/// The steps, cheap ones first. Every step runs, even if an earlier one has failed.
const STEPS: &[(&str, Work)] = &[
    ("format", |house, log| {
        log.run(house.cargo().args(["fmt", "--all", "--check"]))?;
        log.run(house.cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
    }),
    ("lints", |house, log| {
        log.run(house.cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
        // A separate check of the broker, without the features that its neighbours enable in shared libraries.
        log.run(house.cargo().args(["check", "--package", "pondhawk"]))
    }),
    ("conformance", |house, log| conformance::run(house, Aim::Check, log)),
    ("words", words::check),
    ("tools", tools::install),
    // This step covers the tests of every crate, with doc tests and the check of generated pages. The step also runs
    // the real binary against real clients, in the profile that checks arithmetic, and tests architecture and
    // features.
    ("tests", |house, log| {
        house.build(log)?;
        let mut tests = house.cargo();
        tests.env("PONDHAWK_BUILT", house.built()).env("PONDHAWK_TOOLS", house.tools());
        // Most end-to-end tests wait for programs and time limits.
        let threads = 2 * thread::available_parallelism().map_or(1, |cores| cores.get());
        tests.env("RUST_TEST_THREADS", threads.to_string());
        log.run(tests.args(["test", "--workspace", "--no-fail-fast"]))
    }),
    ("package", package::run_in_short),
    ("crash", |house, log| program::CRASH.run_in_short(house, log)),
    ("bench", bench::run_in_short),
    ("rustdoc", |house, log| {
        let mut rustdoc = house.cargo();
        log.run(rustdoc.env("RUSTDOCFLAGS", "--deny warnings").args(["doc", "--workspace", "--no-deps"]))
    }),
    // The last steps use all the time that they are given. This one runs beside the others.
    (BESIDE, |house, log| program::SOAK.run_in_short(house, log)),
    ("simulation", |house, log| {
        log.run(sim::command(house).arg("--controls"))?;
        log.run(sim::command(house).args(["--runs", "1000"]))?;
        // New seeds for every change, and the same seeds for everybody who tests that change.
        let seed = sim::seed_of_tree(house).to_string();
        log.run(sim::command(house).args(["--seed", &seed, "--runs", FRESH_RUNS]))?;
        for (kind, runs) in FRESH_RUNS_OF {
            log.run(sim::command(house).args(["--only", kind, "--seed", &seed, "--runs", runs]))?;
        }
        log.run(sim::command(house).args(["--only", "disk", "--runs", DISK_RUNS]))?;
        log.run(sim::command(house).args(["--only", "disk", "--seed", &seed, "--runs", FRESH_DISK_RUNS]))
    }),
    ("fuzz", |house, log| fuzz::run(house, &fuzz::Options::default(), log)),
];

/// The step that runs beside the later ones. The step takes five minutes and a fifth of a core. The later steps use the
/// processor all the time, and take about as long.
const BESIDE: &str = "soak";

/// Number of new seeds, which take about half a minute.
const FRESH_RUNS: &str = "1000";
/// The same of runs with threads that do not run for a while, with little memory, with many receivers of large messages, and
/// with reloads, and with discarded messages. Each takes about a quarter of a minute.
const FRESH_RUNS_OF: [(&str, &str); 5] =
    [("held", "400"), ("memory", "200"), ("wide", "100"), ("reload", "600"), ("discard", "400")];
/// Number of seeds with a limited log, which take about eight seconds.
const DISK_RUNS: &str = "40";
/// Number of new seeds with a limited log, which take about half a minute.
const FRESH_DISK_RUNS: &str = "200";

/// Runs the steps with these names, or all steps.
///
/// # Errors
/// If there is no step with one of the names.
pub(crate) fn run(house: &House, names: &[String], report: &mut Report) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|(step, _)| step != name)) {
        let known: Vec<&str> = STEPS.iter().map(|(step, _)| *step).collect();
        return Err(format!("there is no step `{unknown}`; there are: {}", known.join(", ")));
    }
    let is_wanted = |step: &str| names.is_empty() || names.iter().any(|name| name == step);
    let steps: Vec<_> = STEPS.iter().filter(|(step, _)| is_wanted(step)).collect();
    thread::scope(|scope| {
        let mut beside = None;
        for (at, (name, work)) in steps.iter().enumerate() {
            if *name == BESIDE && at + 1 < steps.len() {
                beside = Some(report.begin(name, scope, |log| work(house, log)));
            } else {
                report.step(name, |log| work(house, log));
            }
        }
        if let Some(beside) = beside {
            report.finish(beside);
        }
    });
    Ok(())
}

/// Runs the tests of abuse with their large counts, one after another, because each needs the machine for itself.
///
/// # Errors
/// If a test fails.
pub(crate) fn abuse(house: &House, names: &[String], log: &mut Log) -> Result<(), String> {
    log.run(house.cargo().args(["build", "--release", "--package", "pondhawk"]))?;
    let mut tests = house.cargo();
    tests.env("PONDHAWK_BUILT", house.target().join("release")).env("PONDHAWK_ABUSE_LONG", "1");
    tests.args(["test", "--release", "--package", "pondhawk-tests", "--test", "abuse", "--"]);
    log.run(tests.args(["--test-threads", "1"]).args(names))
}

/// Makes the commands that write the generated pages. The tests that compare the pages also write them.
pub(crate) fn write_docs(house: &House) -> [Command; 4] {
    let tests = [
        ("pondhawk-config", "manual", "docs_"),
        ("pondhawk-admin", "manual", "docs_"),
        ("pondhawk-mosquitto", "manual", "docs_"),
        ("pondhawk-tests", "operation", "scan::"),
    ];
    tests.map(|(package, test, name)| {
        let mut command = house.cargo();
        command.env("PONDHAWK_WRITE_DOCS", "1").args(["test", "--package", package, "--test", test, name]);
        command
    })
}
