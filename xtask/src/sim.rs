//! Runs the simulator of `sim/`.

use std::process::{Command, ExitCode};

use crate::house::House;
use crate::log::Log;
use crate::pool::{self, Job};

/// The simulator, in a profile that has the speed of a release and all assertions.
const PROGRAM: &[&str] = &["--profile", "sim", "--package", "pondhawk-sim"];

/// Arguments of the runs that have the same seeds each time, longest run first. `--controls` checks the simulator.
const FIXED_RUNS: [&str; 3] = ["--controls", "--runs 1000", "--only disk --runs 40"];
/// Arguments of the runs with new seeds, longest run first. Runs of the disk have a limited log. In the others, threads do not
/// run for a while, memory is short, many receivers get large messages, the configuration is reloaded, or messages are
/// discarded or moved. Each takes at most half a minute.
const FRESH_RUNS: [&str; 8] = [
    "--only disk --runs 200",
    "--runs 1000",
    "--only reload --runs 600",
    "--only held --runs 400",
    "--only discard --runs 400",
    "--only move --runs 400",
    "--only wide --runs 100",
    "--only memory --runs 200",
];

/// Runs planted faults, fixed seeds and new seeds, one simulator on each processor.
///
/// # Errors
/// If a fault is not found, or a run fails.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    log.run(&mut build(house.cargo()))?;
    // New seeds for every change, and the same seeds for everybody who tests that change.
    let seed = format!("--seed {}", seed_of_tree(house));
    let fresh = FRESH_RUNS.map(|run| format!("{run} {seed}"));
    let jobs = FIXED_RUNS.into_iter().map(str::to_owned).chain(fresh).map(|name| {
        let mut command = house.command(house.target().join("sim/pondhawk-sim"));
        command.args(name.split(' '));
        Job { name, command }
    });
    pool::run(jobs.collect(), pool::processors(), log)
}

/// Makes the command that builds the simulator with this cargo.
pub(crate) fn build(mut cargo: Command) -> Command {
    cargo.arg("build").args(PROGRAM);
    cargo
}

/// Returns a seed that changes with the committed files; 0 without a repository.
pub(crate) fn seed_of_tree(house: &House) -> u64 {
    let asked = house.command("git").args(["rev-parse", "HEAD^{tree}"]).output();
    let name = asked.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    name.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// Runs the simulator with these arguments, and shows its output as it appears.
///
/// # Errors
/// If the simulator cannot be run.
pub(crate) fn run(house: &House, arguments: &[String]) -> Result<ExitCode, String> {
    let mut command = house.cargo();
    command.args(["run", "--quiet"]).args(PROGRAM).arg("--").args(arguments);
    let status = command.status();
    let status = status.map_err(|error| format!("cannot run the simulator: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
