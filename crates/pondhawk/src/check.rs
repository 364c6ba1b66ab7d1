//! `pondhawk check FILE`: is a configuration good, and what does it come to?

use std::fmt::Write;
use std::path::Path;

use config::{Config, Flags, LoadError, Machine};

/// What is said of a good file.
pub(crate) struct Checked {
    /// For the person who asked: that it is good, and what he should know.
    pub(crate) verdict: String,
    /// The whole configuration as a file again.
    pub(crate) settings: String,
}

/// # Errors
/// When the file cannot be read or is not good.
pub(crate) fn check(file: &Path, machine: &Machine) -> Result<Checked, LoadError> {
    let config = Config::load(Some(file), &Flags::default(), machine)?;
    let mut verdict = format!("{} is good; with the defaults of this machine it comes to:\n", file.display());
    for notice in config.notices() {
        let _ = writeln!(verdict, "note: {notice}");
    }
    Ok(Checked { verdict, settings: config.to_toml() })
}
