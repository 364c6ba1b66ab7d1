//! The `pondhawk` binary: the library, on the directory as it is.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    pondhawk::run(|directory| Arc::new(directory))
}
