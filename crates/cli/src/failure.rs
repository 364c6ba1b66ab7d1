//! Why a program ends before its time, in the words and with the exit code of Mosquitto's clients.

use std::fmt;
use std::process::ExitCode;

/// What is printed to standard error, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// Where it happened and what to do, on a line of its own: the first is that of Mosquitto's clients.
    pub(crate) advice: Option<String>,
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
        Self { is_usage: true, ..Self::new(text) }
    }

    /// Anything else.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::with_code(text, GENERAL)
    }

    pub(crate) fn with_code(text: impl Into<String>, code: u8) -> Self {
        Self { text: text.into(), advice: None, code, is_usage: false }
    }

    /// With where it happened, or what to do.
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
