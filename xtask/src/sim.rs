//! Runs the simulator of `sim/`.

use std::process::{Command, ExitCode};

use crate::house::House;

/// The simulator, in a profile that has the speed of a release and all assertions.
const PROGRAM: &[&str] = &["--profile", "sim", "--package", "pondhawk-sim"];

/// Makes the command for the simulator, without arguments.
pub(crate) fn command(house: &House) -> Command {
    let mut command = house.cargo();
    command.args(["run", "--quiet"]).args(PROGRAM).arg("--");
    command
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
    let status = command(house).args(arguments).status();
    let status = status.map_err(|error| format!("cannot run the simulator: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
