//! Where things are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::log::Log;

/// The workspace and what is built in it.
#[derive(Debug)]
pub(crate) struct House {
    root: PathBuf,
    target: PathBuf,
}

impl House {
    /// The workspace this program was built from.
    pub(crate) fn new() -> Self {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned();
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root, target }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What cargo builds.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Where the programs are that [`build`](Self::build) builds.
    pub(crate) fn built(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// Builds everything that tests are and run, in their profile. All at once, because a part of it by itself would
    /// ask for other features of the same libraries, and all of those would be compiled once more.
    ///
    /// # Errors
    /// When something cannot be built.
    pub(crate) fn build(&self, log: &mut Log) -> Result<(), String> {
        log.run(self.cargo().args(["build", "--workspace", "--bins", "--examples", "--tests"]))
    }

    /// What tests need and this machine may not have.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// Cargo, at the root of the workspace.
    pub(crate) fn cargo(&self) -> Command {
        self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// A program, run at the root of the workspace.
    pub(crate) fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(&self.root);
        command
    }
}
