//! Runs the simulator of `sim/`.

use std::process::{Command, ExitCode};

use crate::house::House;

/// The simulator, to be given arguments. Its profile has the speed of a release and all assertions.
pub(crate) fn command(house: &House) -> Command {
    let mut command = house.cargo();
    command.args(["run", "--quiet", "--profile", "sim", "--package", "pondhawk-sim", "--"]);
    command
}

/// Shows what it prints as it prints it.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn run(house: &House, arguments: &[String]) -> Result<ExitCode, String> {
    let status = command(house).args(arguments).status();
    let status = status.map_err(|error| format!("cannot run the simulator: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
