//! Reasons why a file cannot be used.

use std::fmt;

use crate::line::Place;

/// One reason, with its place and the line that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file and the line. `None` if the whole file is meant.
    pub place: Option<Place>,
    /// The line, without secrets. Empty if there is none.
    pub line: String,
    /// The reason, as a sentence without a full stop.
    pub reason: String,
}

/// All reasons why the files cannot be used, in the order of their lines. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reasons, in the order of their lines.
    pub problems: Vec<Problem>,
}

impl Problem {
    pub(crate) fn at(place: Place, line: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: Some(place), line: line.into(), reason: reason.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error: ")?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "{}", self.reason)?;
        if !self.line.is_empty() {
            write!(f, "\n  | {}", self.line)?;
        }
        Ok(())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("\n"))
    }
}

impl std::error::Error for Refusal {}
