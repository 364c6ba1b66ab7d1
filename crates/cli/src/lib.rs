//! `pondhawk pub`, `sub` and `rr`: the flags, the output and the exit codes of mosquitto_pub, mosquitto_sub and mosquitto_rr,
//! on the client library.
//!
//! A flag is written down once, in the table of `flags`, which drives the parser, the help, and the test that compares
//! these programs with Mosquitto's. They are not read by clap, which reads the rest of `pondhawk`'s command line: `-h` is a
//! host, `-D` takes as many words as its property has, and `-t` means something else behind `-L` than before it.
//!
//! And two tools that Mosquitto has not: [`probe`](fn@probe) finds out what a broker can do, [`tap`](fn@tap) stands between
//! clients and a broker and prints what they say. Their flags are clap's.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// They panic where a pipe is closed: `say` does not.
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
mod probe;
mod progress;
mod properties;
mod publish;
mod received;
mod request;
mod say;
mod settings;
mod stats;
mod subscribe;
mod tap;
mod trace;
mod transport;
mod url;

use std::ffi::OsString;
use std::process::ExitCode;

use failure::Failure;
use say::{complain, show};
use settings::{Asks, Settings};

pub use help::help;
pub use probe::{ProbeArgs, run as probe};
pub use settings::Tool;
pub use tap::{TapArgs, run as tap};

/// Runs a tool with the words behind its name, to its end: the exit code says how it went.
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
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    outcome
}

/// Says why, unless that is not to be said, and returns the exit code.
fn tell(tool: Tool, failure: &Failure, is_quiet: bool) -> ExitCode {
    if failure.is_usage {
        complain(format_args!("{failure}\n\nUse 'pondhawk {} --help' to see usage.", tool.name()));
    } else if !is_quiet && !failure.text.is_empty() {
        complain(failure);
    }
    failure.exit_code()
}
