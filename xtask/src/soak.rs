//! Runs the load and the quiet points of `tests/soak`.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::house::House;
use crate::log::Log;
use crate::sim;

/// As long as CI has time for beside its longest steps, and with so much of one core.
const SHORT: &[&str] = &["--minutes", "5", "--share", "20"];

/// Builds what it takes, in the profile of the simulator, which is as fast as a release and has all assertions.
const BUILD: &[&str] =
    &["build", "--profile", "sim", "--package", "pondhawk", "--package", "pondhawk-tests", "--bins"];

/// What was built in this folder, to be given arguments.
fn command(house: &House, built: &Path) -> Command {
    let mut soak = house.command(built.join("soak"));
    soak.env("PONDHAWK_BUILT", built);
    soak
}

/// As much of it as CI has time for, in the profile of the other tests.
///
/// # Errors
/// When the broker holds anything that its clients do not explain, or has broken a promise.
pub(crate) fn run_in_short(house: &House, log: &mut Log) -> Result<(), String> {
    house.build(log)?;
    let mut soak = command(house, &house.built());
    log.run(soak.args(SHORT).args(["--seed", &sim::seed_of_tree(house).to_string()]))
}

/// Shows what it prints as it prints it.
///
/// # Errors
/// When it cannot be built or run.
pub(crate) fn run(house: &House, arguments: &[String]) -> Result<ExitCode, String> {
    let status =
        |command: &mut Command| command.status().map_err(|error| format!("cannot run {command:?}: {error}"));
    if !status(house.cargo().args(BUILD))?.success() {
        return Err("the broker cannot be built".to_owned());
    }
    let is_good = status(command(house, &house.target().join("sim")).args(arguments))?.success();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
