//! A copy of the workspace, in which code is broken on purpose. The sources themselves are never changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::house::House;
use crate::log::Log;

/// The copy, under `target/broken`. Its build results are kept for the next run.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    target: PathBuf,
}

/// Result of a run of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    Green,
    Red,
    /// The tests were still running at the time limit.
    Endless,
    /// The code does not compile.
    Unbuilt,
}

/// Memory limit in KiB, more than any test needs. A mutant that allocates without end aborts before the machine
/// suffers.
const MEMORY_MAX_KIB: &str = "6000000";

/// Time limit for a build in seconds, longer than any build takes.
pub(crate) const BUILD_SECS_MAX: u64 = 1_800;

impl Tree {
    /// Updates the copy. An unchanged file keeps its modification time, and is not built again.
    ///
    /// # Errors
    /// If git cannot list the files of the workspace, or a file cannot be copied.
    pub(crate) fn refresh(house: &House) -> Result<Self, String> {
        let folder = house.target().join("broken");
        let tree = Self { root: folder.join("tree"), target: folder.join("target") };
        let mut list = house.command("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output = list.output().map_err(|error| format!("cannot run git: {error}"))?;
        if !output.status.success() {
            return Err("git does not list the files of the workspace".to_owned());
        }
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = names.split('\0').filter(|name| house.root().join(name).is_file());
        let names: BTreeSet<PathBuf> = names.map(PathBuf::from).collect();
        for name in &names {
            let bytes = fs::read(house.root().join(name)).map_err(|error| at(name, &error))?;
            let copy = tree.root.join(name);
            if fs::read(&copy).is_ok_and(|found| found == bytes) {
                continue;
            }
            let parent = copy.parent().expect("it is below the root");
            fs::create_dir_all(parent).map_err(|error| at(parent, &error))?;
            fs::write(&copy, bytes).map_err(|error| at(&copy, &error))?;
        }
        tree.remove_others(&tree.root, &names)?;
        Ok(tree)
    }

    /// Removes files that are no longer in the workspace.
    fn remove_others(&self, folder: &Path, names: &BTreeSet<PathBuf>) -> Result<(), String> {
        for entry in fs::read_dir(folder).map_err(|error| at(folder, &error))? {
            let path = entry.map_err(|error| at(folder, &error))?.path();
            let name = path.strip_prefix(&self.root).expect("it is below the root");
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if !names.contains(name) {
                fs::remove_file(&path).map_err(|error| at(&path, &error))?;
            }
        }
        Ok(())
    }

    /// Reads a file of the copy.
    ///
    /// # Errors
    /// If there is no such file.
    pub(crate) fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.root.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// Writes a file of the copy.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.root.join(name), text).map_err(|error| format!("{name}: {error}"))
    }

    /// The folder of the programs that are built in the copy.
    pub(crate) fn built(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// Builds tests and runs them.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub(crate) fn test(&self, house: &House, test: &Test<'_>, log: &mut Log) -> Result<Ran, String> {
        let words = [&["test", "--quiet"], test.packages, test.targets].concat();
        let mut build = self.shell(house, "exec \"$@\"", BUILD_SECS_MAX);
        if !status(build.args(&words).arg("--no-run"), log)?.success() {
            return Ok(Ran::Unbuilt);
        }
        let script = format!("ulimit -v {MEMORY_MAX_KIB}; exec \"$@\"");
        let mut run = self.shell(house, &script, test.seconds_max);
        run.args(&words).arg("--").args(test.names).envs(test.environment.iter().copied());
        Ok(match status(&mut run, log)? {
            status if status.success() => Ran::Green,
            // `timeout` is killed together with the program that it kills.
            status if status.code().is_none_or(|code| code == 124 || code == 128 + 9) => Ran::Endless,
            _ => Ran::Red,
        })
    }

    /// Makes a command that runs `cargo` in the copy, started by this script and limited to `seconds_max`. The
    /// caller adds cargo's arguments.
    pub(crate) fn shell(&self, house: &House, script: &str, seconds_max: u64) -> Command {
        let mut command = house.command("timeout");
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command.args(["--signal=KILL", &seconds_max.to_string(), "sh", "-c", script, "sh"]);
        command.arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
    }
}

/// A selection of tests, with limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test<'a> {
    /// Packages as arguments: `-p NAME`, once per package.
    pub(crate) packages: &'a [&'a str],
    /// Targets as arguments: `--lib`, `--tests` or `--test NAME`.
    pub(crate) targets: &'a [&'a str],
    /// Parts of test names. Empty means all tests.
    pub(crate) names: &'a [&'a str],
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// Time limit for running the tests. Building them has a limit of its own.
    pub(crate) seconds_max: u64,
}

fn status(command: &mut Command, log: &mut Log) -> Result<ExitStatus, String> {
    let program = log.start(command)?;
    log.wait(program)
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
