//! The folders of the workspace, and commands that run in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::log::Log;

/// The folder of the workspace, and the folder of its build results.
#[derive(Debug)]
pub(crate) struct House {
    root: PathBuf,
    target: PathBuf,
}

impl House {
    /// Finds the workspace from which this program was built.
    pub(crate) fn new() -> Self {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned();
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self::at(root, target)
    }

    /// A workspace in this folder.
    pub(crate) fn at(root: PathBuf, target: PathBuf) -> Self {
        Self { root, target }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder into which cargo builds.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The folder of the programs that [`build`](Self::build) makes.
    pub(crate) fn built(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// Builds all tests, and all programs that tests run, in their profile.
    ///
    /// A single build for everything is faster: a build of a part would ask for other features of the same
    /// libraries, and compile them once more.
    ///
    /// # Errors
    /// If a build fails.
    pub(crate) fn build(&self, log: &mut Log) -> Result<(), String> {
        log.run(self.cargo().args(["build", "--workspace", "--bins", "--examples", "--tests"]))
    }

    /// The folder of tools that tests need and this machine may not have.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The folder of the brokers of other authors.
    pub(crate) fn peers(&self) -> PathBuf {
        self.target.join("peers")
    }

    /// Makes a cargo command that runs at the root of the workspace.
    pub(crate) fn cargo(&self) -> Command {
        self.command(cargo())
    }

    /// Makes a cargo command that runs at the root of the workspace, and takes what other programs leave of the processor.
    pub(crate) fn idle_cargo(&self) -> Command {
        let mut command = self.command("nice");
        command.args(["-n", "19"]).arg(cargo());
        command
    }

    /// Makes a command that runs at the root of the workspace.
    pub(crate) fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(&self.root);
        command
    }
}

/// Lets clippy compile the packages of the workspace, as `cargo clippy` does. Other commands can then use the results: a build
/// of these packages, or the documentation.
pub(crate) fn with_lints(mut cargo: Command) -> Command {
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    cargo.env("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    cargo
}

/// The cargo that runs this program.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
