//! `pondhawk pub`, `sub` and `rr`: replacements for mosquitto_pub, mosquitto_sub and mosquitto_rr, with the same
//! flags, output and exit codes.
//!
//! The table in `flags` defines each flag once. The parser, the help, and the test that compares these programs
//! with Mosquitto's use it. Clap, which parses the rest of `pondhawk`'s command line, is no fit for these flags.
//! `-h` is a host, `-D` takes as many words as its property has, and `-t` has another meaning after `-L` than
//! before it.
//!
//! Three further tools have no counterpart in Mosquitto. [`probe`](fn@probe) finds out the abilities of a broker.
//! [`tap`](fn@tap) forwards bytes between clients and a broker, prints their packets, and records them.
//! [`replay`](fn@replay) plays such a recording against a broker, and compares its answers. Their flags are parsed by
//! clap.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// These macros panic when a pipe is closed; the functions in `say` do not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod arguments;
mod clock;
mod connection;
mod defaults;
mod end;
mod failure;
mod flags;
mod format;
mod help;
mod json;
mod output;
mod place;
mod presets;
mod probe;
mod progress;
mod properties;
mod publish;
mod received;
mod replay;
mod request;
mod say;
mod settings;
mod stats;
mod stdout;
mod subscribe;
mod tap;
mod trace;
mod transport;
mod trust;
mod url;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use failure::Failure;
use say::{complain, show};
use settings::{Asks, Settings};

pub use help::{command, help};
pub use presets::variables;
pub use probe::{ProbeArgs, run as probe};
pub use replay::{ReplayArgs, run as replay};
pub use settings::Tool;
pub use tap::{TapArgs, run as tap};
pub use tap::{create_capture, time_of_day};

/// Runs a tool to its end. `arguments` are the words after its name. Returns the exit code.
#[must_use]
pub fn run(tool: Tool, arguments: &[OsString]) -> ExitCode {
    let settings = match arguments::parse(tool, arguments) {
        Ok(settings) => settings,
        Err(failure) => return tell(tool, &failure, false),
    };
    match settings.asks {
        Some(Asks::Help) => show(help(tool)),
        Some(Asks::Version) => show(format_args!("pondhawk {} {}\n", tool.name(), env!("CARGO_PKG_VERSION"))),
        None => {
            if let Err(failure) = run_to_end(&settings) {
                return tell(tool, &failure, settings.quiet);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Maximum time for the lines of `--debug` to be written after the end.
const WRITE_MAX: Duration = Duration::from_secs(1);

fn run_to_end(settings: &Settings) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("Error: {error}")))?;
    let outcome = runtime.block_on(async {
        match settings.tool {
            Tool::Publish => publish::run(settings).await,
            Tool::Subscribe => subscribe::run(settings).await,
            Tool::Request => request::run(settings).await,
        }
    });
    // Lines of `--debug` may wait to be written. Messages of `sub` and `rr` do not wait here.
    let written = async { tokio::time::timeout(WRITE_MAX, stdout::output().finish()).await };
    if settings.debug {
        let _ = runtime.block_on(written);
    }
    // Does not wait for a pending name lookup, which blocks a thread.
    runtime.shutdown_background();
    outcome
}

/// Reports a failure, unless `--quiet` suppresses it, and returns the exit code.
fn tell(tool: Tool, failure: &Failure, is_quiet: bool) -> ExitCode {
    if failure.is_usage {
        complain(format_args!("{failure}\n\nUse 'pondhawk {} --help' to see usage.", tool.name()));
    } else if !is_quiet && !failure.text.is_empty() {
        complain(failure);
    }
    failure.exit_code()
}
