//! Output for people. A closed pipe is ignored.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints text to standard output.
pub(crate) fn show(text: impl Display) {
    let mut to = io::stdout().lock();
    let _ = write!(to, "{text}").and_then(|()| to.flush());
}

/// Prints a line to standard error.
pub(crate) fn complain(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
