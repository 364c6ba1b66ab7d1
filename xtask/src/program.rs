//! Programs of `tests/` that start the real broker and check it: `crash` and `soak`.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::house::House;
use crate::log::Log;
use crate::sim;

/// Cargo arguments that build a program in the simulator's profile, which is as fast as a release and has all
/// assertions.
const BUILD: &[&str] =
    &["build", "--profile", "sim", "--package", "pondhawk", "--package", "pondhawk-tests", "--bins"];

/// A program that fails if the broker has broken a promise.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    /// Arguments of the short form, which CI runs.
    short: &'static [&'static str],
}

/// The test of power cuts. 60 images take less than a minute on two cores. Kills are part of the end-to-end tests.
pub(crate) const CRASH: Program = Program { name: "crash", short: &["--images", "60", "--kills", "0"] };

/// The test with a random mixed load. The short form runs beside the longest steps of CI, with a fifth of one core.
pub(crate) const SOAK: Program = Program { name: "soak", short: &["--minutes", "5", "--share", "20"] };

impl Program {
    /// Runs the short form in the profile of the other tests.
    ///
    /// # Errors
    /// If the broker has broken a promise, or the program cannot be built or run.
    pub(crate) fn run_in_short(&self, house: &House, log: &mut Log) -> Result<(), String> {
        house.build(log)?;
        let mut command = self.command(house, &house.built());
        log.run(command.args(self.short).args(["--seed", &sim::seed_of_tree(house).to_string()]))
    }

    /// Runs the program with these arguments, and shows its output as it appears.
    ///
    /// # Errors
    /// If the program cannot be built or run.
    pub(crate) fn run(&self, house: &House, arguments: &[String]) -> Result<ExitCode, String> {
        let status = |command: &mut Command| {
            command.status().map_err(|error| format!("cannot run {command:?}: {error}"))
        };
        if !status(house.cargo().args(BUILD))?.success() {
            return Err("the broker cannot be built".to_owned());
        }
        let built = house.target().join("sim");
        let is_good = status(self.command(house, &built).args(arguments))?.success();
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Makes the command for the program in this folder. The program starts the broker from the same folder.
    fn command(&self, house: &House, built: &Path) -> Command {
        let mut command = house.command(built.join(self.name));
        command.env("PONDHAWK_BUILT", built);
        command
    }
}
