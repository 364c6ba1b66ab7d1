//! `cargo xtask test`: the steps that CI runs.

use std::process::Command;
use std::thread;

use crate::bench;
use crate::conformance::{self, Aim};
use crate::fuzz;
use crate::house::House;
use crate::log::Log;
use crate::program;
use crate::report::Report;
use crate::sim;
use crate::tools;
use crate::words;

type Work = fn(&House, &mut Log) -> Result<(), String>;

/// Cheap ones first; every step runs even if one before it failed.
const STEPS: &[(&str, Work)] = &[
    ("format", |house, log| {
        log.run(house.cargo().args(["fmt", "--all", "--check"]))?;
        log.run(house.cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
    }),
    ("lints", |house, log| {
        log.run(house.cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
        // By itself, without what its neighbours ask of the same libraries.
        log.run(house.cargo().args(["check", "--package", "pondhawk"]))
    }),
    ("conformance", |house, log| conformance::run(house, Aim::Check, log)),
    ("words", words::check),
    ("tools", tools::install),
    // Of every crate, with doc tests and whether the generated pages are current; then those of the real binary, in the
    // profile that checks arithmetic, against real clients; the architecture; and the features.
    ("tests", |house, log| {
        house.build(log)?;
        let mut tests = house.cargo();
        tests.env("PONDHAWK_BUILT", house.built()).env("PONDHAWK_TOOLS", house.tools());
        log.run(tests.args(["test", "--workspace", "--no-fail-fast"]))
    }),
    ("crash", |house, log| program::CRASH.run_in_short(house, log)),
    ("bench", bench::run_in_short),
    ("rustdoc", |house, log| {
        let mut rustdoc = house.cargo();
        log.run(rustdoc.env("RUSTDOCFLAGS", "--deny warnings").args(["doc", "--workspace", "--no-deps"]))
    }),
    // Last, because they take as long as they are given; this one beside the others.
    (BESIDE, |house, log| program::SOAK.run_in_short(house, log)),
    ("simulation", |house, log| {
        log.run(sim::command(house).args(["--runs", "1000"]))?;
        // New ones for every change, and the same for everybody who looks at that change.
        let seed = sim::seed_of_tree(house).to_string();
        log.run(sim::command(house).args(["--seed", &seed, "--runs", FRESH_RUNS]))?;
        log.run(sim::command(house).args(["--only", "disk", "--runs", DISK_RUNS]))
    }),
    ("fuzz", |house, log| fuzz::run(house, &fuzz::Options::default(), log)),
];

/// It takes five minutes and a fifth of a core: those behind it, which compute all the time, take about as long.
const BESIDE: &str = "soak";

/// So many seeds take about a minute and a half.
const FRESH_RUNS: &str = "3000";
/// So many with a bound on the log take about eight seconds.
const DISK_RUNS: &str = "40";

/// Runs the steps of these names, or all of them.
///
/// # Errors
/// When there is no step of a name.
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

/// The rows of abuse with their large counts, one after the other: each needs the machine for itself.
///
/// # Errors
/// When a row does not end as it should.
pub(crate) fn abuse(house: &House, names: &[String], log: &mut Log) -> Result<(), String> {
    log.run(house.cargo().args(["build", "--release", "--package", "pondhawk"]))?;
    let mut tests = house.cargo();
    tests.env("PONDHAWK_BUILT", house.target().join("release")).env("PONDHAWK_ABUSE_LONG", "1");
    tests.args(["test", "--release", "--package", "pondhawk-tests", "--test", "abuse", "--"]);
    log.run(tests.args(["--test-threads", "1"]).args(names))
}

/// The pages that are generated are written by the tests that compare them.
pub(crate) fn write_docs(house: &House) -> Command {
    let mut command = house.cargo();
    command.env("PONDHAWK_WRITE_DOCS", "1").args([
        "test",
        "--package",
        "pondhawk-config",
        "--test",
        "manual",
    ]);
    command
}
