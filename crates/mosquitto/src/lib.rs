//! Mosquitto's configuration: reads its files as Mosquitto does, and writes the same configuration for Pondhawk.
//!
//! [`translate`] reads the main file and every file that it includes, in the languages of Mosquitto 2.0 and 2.1. The result
//! is a file of ours, in TOML, that says of each key from which line it comes. Each line of Mosquitto's files has become
//! keys, or has a [`Remark`], or the whole file is refused: no line is skipped in silence, and a line that restricts
//! somebody is never ignored.
//!
//! The crate knows nothing of our own configuration except the names of its keys. [`System`] stands for the files and the
//! machine.
//!
//! ```
//! use std::{collections::HashMap, ffi::OsString, io, net::IpAddr, path::Path};
//!
//! struct OneFile(&'static str);
//! impl mosquitto::System for OneFile {
//!     fn read(&self, _: &Path) -> io::Result<Vec<u8>> { Ok(self.0.into()) }
//!     fn list(&self, _: &Path) -> io::Result<Vec<OsString>> { Ok(Vec::new()) }
//!     fn addresses(&self, _: &str) -> Vec<IpAddr> { Vec::new() }
//!     fn has_ipv6(&self) -> bool { true }
//! }
//!
//! let file = OneFile("listener 1884\nallow_anonymous true\nmax_qos 1\nautosave_interval 60\n");
//! let translated = mosquitto::translate(Path::new("m.conf"), &Default::default(), &file).unwrap();
//! assert!(translated.toml.contains("max_qos = 1 # m.conf:3\n"));
//! assert_eq!(translated.remarks.len(), 1);
//!
//! let refused = mosquitto::translate(Path::new("m.conf"), &Default::default(), &OneFile("psk_file x\n"));
//! assert!(refused.unwrap_err().to_string().starts_with("error: m.conf:1: TLS with pre-shared keys"));
//! ```
#![forbid(unsafe_code)]

pub mod database;
mod detect;
mod directive;
mod line;
mod manual;
mod model;
mod output;
mod problem;
mod read;
mod system;
mod table;
mod translate;
mod value;

use std::path::Path;

pub use detect::{Language, language};
pub use line::Place;
pub use manual::markdown;
pub use output::{Kind, Origin, Remark};
pub use problem::{Problem, Refusal};
pub use system::{System, ThisMachine, read_regular};
pub use translate::Start;

/// A configuration in our own language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translated {
    /// The file of ours.
    pub toml: String,
    /// The origin of each line of `toml`.
    pub origins: Vec<Option<Origin>>,
    /// The lines whose meaning is not exactly kept, in the order of the files.
    pub remarks: Vec<Remark>,
}

/// Translates the main file, with all files that it includes.
///
/// # Errors
/// All reasons for which the broker cannot start with these files: mistakes that Mosquitto refuses too, and lines that
/// cannot be obeyed.
pub fn translate(main: &Path, start: &Start, system: &dyn System) -> Result<Translated, Refusal> {
    let (model, mut problems) = read::read(main, system);
    let mut output = translate::translate(&model, start, system);
    output.remarks.sort_by(|one, other| one.place.cmp(&other.place));
    problems.extend(output.problems.iter().cloned());
    if !problems.is_empty() {
        problems.sort_by(|one, other| one.place.cmp(&other.place));
        problems.dedup();
        return Err(Refusal { problems });
    }
    let (toml, origins) = output.page(&main.display().to_string());
    Ok(Translated { toml, origins, remarks: output.remarks })
}
