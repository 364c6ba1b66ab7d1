//! `pondhawk check FILE`: checks a configuration, and prints it with all defaults.

use std::fmt::Write;
use std::path::Path;

use config::{Config, Flags, LoadError, Machine};

/// Output for a valid file.
pub(crate) struct Checked {
    /// Message for the user: the file is valid, with notices.
    pub(crate) verdict: String,
    /// The complete configuration, again as a file.
    pub(crate) settings: String,
}

/// Checks a configuration file.
///
/// # Errors
/// The file cannot be read or is not valid.
pub(crate) fn check(file: &Path, machine: &Machine) -> Result<Checked, LoadError> {
    let config = Config::load(Some(file), &Flags::default(), machine)?;
    let mut verdict = format!("{} is good; with the defaults of this machine it comes to:\n", file.display());
    for notice in config.notices() {
        let _ = writeln!(verdict, "note: {notice}");
    }
    Ok(Checked { verdict, settings: config.to_toml() })
}
