//! The steps of CI: `cargo xtask test`.

use std::process::Command;
use std::thread;

use crate::bench;
use crate::conformance::{self, Aim};
use crate::fuzz;
use crate::house::{self, House};
use crate::log::Log;
use crate::package;
use crate::program;
use crate::report::{BesideOthers, Report};
use crate::sim;
use crate::testing;
use crate::tools;
use crate::words;

type Work = fn(&House, &mut Log) -> Result<(), String>;

/// The steps that a step waits for, and whether the next steps wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The next steps wait for its end.
    Alone,
    /// The same. The step also waits for the end of this earlier step, which runs beside others.
    After(&'static str),
    /// The next steps do not wait. Steps with the same word that follow each other run one after another.
    Beside(&'static str),
}

use Pace::{After, Alone, Beside};

/// The steps, cheap ones first. Every step runs, even if an earlier one has failed.
const STEPS: &[(&str, Pace, Work)] = &[
    ("format", Alone, |house, log| {
        log.run(house.cargo().args(["fmt", "--all", "--check"]))?;
        log.run(house.cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
        log.run(house.cargo().args(["fmt", "--manifest-path", bench::CODEC_MANIFEST, "--check"]))
    }),
    ("conformance", Alone, |house, log| conformance::run(house, Aim::Check, log)),
    ("words", Alone, words::check),
    // The installation often waits for registries.
    ("tools", Beside("tools"), tools::install),
    ("lints", Alone, |house, log| {
        log.run(house::with_lints(house.cargo()).args(["check", "--workspace", "--all-targets"]))?;
        // A separate check of the broker, without the features that its neighbours enable in shared libraries. Later it would
        // keep the folder of all builds locked.
        log.run(house.cargo().args(["check", "--package", "pondhawk"]))
    }),
    // The steps behind it need the tools too.
    ("build", After("tools"), |house, log| house.build(log)),
    // The tests often wait. The next two steps take what the tests, and the steps behind them, leave of the processor.
    ("ahead", Beside("builds"), |house, log| {
        log.run(&mut sim::build(house.idle_cargo()))?;
        fuzz::build_all(house, house.idle_cargo(), log)?;
        bench::check_codecs(house, log)
    }),
    ("rustdoc", Beside("builds"), |house, log| {
        // With examples, rustdoc uses what the lints have checked. Otherwise it would check each crate once more, without
        // the features that tests need. A package belongs in `--exclude` if its binary has the name of its library: both
        // would write the same page.
        for targets in [["--lib"].as_slice(), &["--bins", "--exclude", "pondhawk"]] {
            let mut rustdoc = house::with_lints(house.idle_cargo());
            rustdoc.env("RUSTDOCFLAGS", "--deny warnings");
            log.run(rustdoc.args(["doc", "--workspace", "--no-deps", "--examples"]).args(targets))?;
        }
        Ok(())
    }),
    ("semver", Beside("builds"), tools::semver_since_release),
    // This step takes five minutes, and a fifth of a core.
    ("soak", Beside("soak"), |house, log| program::SOAK.run_in_short(house, log)),
    // A minute, in which it mostly waits for sockets.
    ("fuzz-tcp", Beside("soak"), |house, log| fuzz::run(house, &fuzz::Options::tcp(), log)),
    // Packing takes one processor. Behind the builds above, it would be the last step, and the other processor would wait.
    ("package", Beside("soak"), package::run_in_short),
    // This step covers the tests of every crate, with doc tests and the check of generated pages. The step also runs
    // the real binary against real clients, in the profile that checks arithmetic, and tests architecture and
    // features.
    ("tests", Alone, testing::run),
    ("crash", Alone, |house, log| program::CRASH.run_in_short(house, log)),
    ("bench", Alone, bench::run_in_short),
    ("simulation", Alone, sim::run_in_short),
    ("fuzz", Alone, |house, log| fuzz::run_targets(house, &fuzz::Options::default(), log)),
];

/// Runs the steps with these names, or all steps.
///
/// # Errors
/// If there is no step with one of the names.
pub(crate) fn run(house: &House, names: &[String], report: &mut Report) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|(step, ..)| step != name)) {
        let known: Vec<&str> = STEPS.iter().map(|(step, ..)| *step).collect();
        return Err(format!("there is no step `{unknown}`; there are: {}", known.join(", ")));
    }
    let is_wanted = |step: &str| names.is_empty() || names.iter().any(|name| name == step);
    let steps: Vec<_> = STEPS.iter().filter(|(step, ..)| is_wanted(step)).collect();
    let rows: Vec<_> =
        steps.chunk_by(|(_, one, _), (_, other, _)| matches!(one, Beside(_)) && one == other).collect();
    thread::scope(|scope| {
        let mut beside: Vec<BesideOthers<'_>> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let pace = row[0].1;
            let is_awaited = |others: &mut BesideOthers<'_>| matches!(pace, After(step) if others.has(step));
            beside.extract_if(.., is_awaited).for_each(|others| report.finish(others));
            let steps = row.iter().map(|(name, _, work)| (*name, move |log: &mut Log| work(house, log)));
            if matches!(pace, Beside(_)) && at + 1 < rows.len() {
                beside.push(report.begin(steps.collect(), scope));
            } else {
                steps.for_each(|(name, work)| report.step(name, work));
            }
        }
        beside.into_iter().for_each(|others| report.finish(others));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_waits_for_an_earlier_one_that_runs_beside_others() {
        for (at, (name, pace, _)) in STEPS.iter().enumerate() {
            let After(awaited) = pace else { continue };
            let mut earlier = STEPS[..at].iter();
            assert!(
                earlier.any(|(step, pace, _)| step == awaited && matches!(pace, Beside(_))),
                "{name}: {awaited}"
            );
        }
    }
}
