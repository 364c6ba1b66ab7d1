//! Runs the power cuts and kills of `tests/crash`.

use std::process::{Command, ExitCode};

use crate::house::House;
use crate::log::Log;
use crate::sim;

/// So many images take less than a minute on two cores. Kills are among the end-to-end tests.
const SHORT: &[&str] = &["--images", "60", "--kills", "0"];

/// Builds what it takes, in the profile of the other tests or in that of the simulator, which is as fast as a release and
/// has all assertions; and says how it is run.
fn command(
    house: &House,
    profile: &str,
    build: impl FnOnce(&mut Command) -> Result<(), String>,
) -> Result<Command, String> {
    let mut cargo = house.cargo();
    cargo.args([
        "build",
        "--profile",
        profile,
        "--package",
        "pondhawk",
        "--package",
        "pondhawk-tests",
        "--bins",
    ]);
    build(&mut cargo)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let built = house.target().join(folder);
    let mut crash = house.command(built.join("crash"));
    crash.env("PONDHAWK_BIN", built.join("pondhawk"));
    Ok(crash)
}

/// As much of it as CI has time for.
///
/// # Errors
/// When something acknowledged is lost, or comes twice at QoS 2; or when nothing is lost without syncs.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    let mut crash = command(house, "dev", |build| log.run(build))?;
    log.run(crash.args(SHORT).args(["--seed", &sim::seed_of_tree(house).to_string()]))
}

/// Shows what it prints as it prints it.
///
/// # Errors
/// When it cannot be built or run.
pub(crate) fn run(house: &House, arguments: &[String]) -> Result<ExitCode, String> {
    let status =
        |command: &mut Command| command.status().map_err(|error| format!("cannot run {command:?}: {error}"));
    let build = |cargo: &mut Command| match status(cargo)?.success() {
        true => Ok(()),
        false => Err("the broker cannot be built".to_owned()),
    };
    let is_good = status(command(house, "sim", build)?.args(arguments))?.success();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
