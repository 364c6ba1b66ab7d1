//! A copy of the workspace, in which code is broken on purpose. The sources themselves are never touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::house::House;
use crate::log::Log;

/// The copy, under `target/broken`. What was built there is kept for the next run.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    target: PathBuf,
}

/// How a run of tests has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    Green,
    Red,
    /// The tests were still running at the time limit.
    Endless,
    /// The code does not compile.
    Unbuilt,
}

/// More memory than any test needs; a mutant that allocates without end aborts before the machine suffers.
const MEMORY_MAX_KIB: &str = "6000000";

/// Longer than any build takes.
pub(crate) const BUILD_SECS_MAX: u64 = 1_800;

impl Tree {
    /// Brings the copy up to date. A file that is the same keeps its time, and is not built again.
    ///
    /// # Errors
    /// When git cannot list the files of the workspace, or a file cannot be copied.
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

    /// Removes files that the workspace does not have any more.
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

    /// # Errors
    /// When there is no such file.
    pub(crate) fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.root.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.root.join(name), text).map_err(|error| format!("{name}: {error}"))
    }

    /// Where the programs of the copy are.
    pub(crate) fn built(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// Builds tests and runs them.
    ///
    /// # Errors
    /// When cargo cannot be run.
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
            // `timeout` is killed with the program that it kills.
            status if status.code().is_none_or(|code| code == 124 || code == 128 + 9) => Ran::Endless,
            _ => Ran::Red,
        })
    }

    /// `cargo`, in the copy, started by this script and for at most so long; its words come next.
    pub(crate) fn shell(&self, house: &House, script: &str, seconds_max: u64) -> Command {
        let mut command = house.command("timeout");
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command.args(["--signal=KILL", &seconds_max.to_string(), "sh", "-c", script, "sh"]);
        command.arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
    }
}

/// Tests to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test<'a> {
    /// `-p NAME`, as often as is needed.
    pub(crate) packages: &'a [&'a str],
    /// `--lib`, `--tests`, `--test NAME`.
    pub(crate) targets: &'a [&'a str],
    /// What names of tests contain; all tests if there is none.
    pub(crate) names: &'a [&'a str],
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// For running them, not for building.
    pub(crate) seconds_max: u64,
}

fn status(command: &mut Command, log: &mut Log) -> Result<ExitStatus, String> {
    log.start(command)?.wait().map_err(|error| error.to_string())
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
