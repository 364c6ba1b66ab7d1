//! The machines for which there are packages.

use std::env;

/// A kind of machine. Packages for others than this one are made with a compiler that builds for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine(&'static str);

/// The machines that `--also` names.
const KNOWN: [&str; 2] = ["x86_64", "aarch64"];

impl Machine {
    /// The machine that runs this program.
    pub(crate) const HERE: Self = Self(env::consts::ARCH);

    /// The machine with this name.
    ///
    /// # Errors
    /// There is no such machine.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let known = KNOWN.iter().find(|known| **known == name);
        known.map(|name| Self(name)).ok_or_else(|| format!("--also takes one of: {}", KNOWN.join(", ")))
    }

    /// The name of Rust and RPM.
    pub(crate) fn name(self) -> &'static str {
        self.0
    }

    /// The name of Debian and OCI.
    pub(crate) fn architecture(self) -> &'static str {
        match self.0 {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    /// The target of a program that needs no library of the system.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.0)
    }
}
