//! Why a program ends before its time, in the words and with the exit code of Mosquitto's clients.

use std::fmt;
use std::process::ExitCode;

/// What is printed to standard error, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
    /// The command line is at fault: where help is to be found is said too, and `--quiet` does not silence it.
    pub(crate) is_usage: bool,
}

/// An exit code for what nobody has made a code for.
const GENERAL: u8 = 1;

/// `-W`: the time is over.
pub(crate) const TIMED_OUT: u8 = 27;

impl Failure {
    /// The command line says what cannot be.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: GENERAL, is_usage: true }
    }

    /// Anything else.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::with_code(text, GENERAL)
    }

    pub(crate) fn with_code(text: impl Into<String>, code: u8) -> Self {
        Self { text: text.into(), code, is_usage: false }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
