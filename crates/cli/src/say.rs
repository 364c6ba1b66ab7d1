//! What is said to a person. Who closes the other end of a pipe misses it, and nothing else comes of that.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints as much as the reader of standard output wants.
pub(crate) fn show(text: impl Display) {
    let mut to = io::stdout().lock();
    let _ = write!(to, "{text}").and_then(|()| to.flush());
}

/// Says a line on standard error.
pub(crate) fn complain(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
