//! The `pondhawk` binary: the library, with the journal directly on its directory.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    pondhawk::run(|directory| Arc::new(directory))
}
