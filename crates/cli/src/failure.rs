//! Failures of a program, with the texts and exit codes of Mosquitto's clients.

use std::fmt;
use std::process::ExitCode;

/// Text for standard error, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// Second line with place and remedy. The first line is that of Mosquitto's clients.
    pub(crate) advice: Option<String>,
    pub(crate) code: u8,
    /// The command line is at fault. The text then mentions `--help`, and `--quiet` does not suppress it.
    pub(crate) is_usage: bool,
}

/// Exit code of failures without a code of their own.
const GENERAL: u8 = 1;

/// Exit code when the time of `-W` is over.
pub(crate) const TIMED_OUT: u8 = 27;

impl Failure {
    /// Failure for an invalid command line.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { is_usage: true, ..Self::new(text) }
    }

    /// Failure of any other kind.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::with_code(text, GENERAL)
    }

    pub(crate) fn with_code(text: impl Into<String>, code: u8) -> Self {
        Self { text: text.into(), advice: None, code, is_usage: false }
    }

    /// Adds the place of the failure, or a remedy.
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "\n{advice}"))
    }
}
