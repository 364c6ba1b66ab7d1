//! The `pondhawk` binary: reads the command line and hands over.
#![forbid(unsafe_code)]

mod args;
mod banner;
mod check;
mod logging;
mod serve;
mod store;
mod upkeep;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use args::{Arguments, Command, ServeArguments};
use clap::Parser;
use config::{Config, Machine};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        None => start(arguments.serve),
        Some(Command::Serve(serve)) => start(serve),
        Some(Command::Check { file }) => check(&file),
        Some(Command::Journal(command)) => upkeep::run(&command),
        Some(Command::Bench(arguments)) => run_bench(arguments),
    }
}

fn start(arguments: ServeArguments) -> ExitCode {
    let file = arguments.config.clone();
    let config = match Config::load(file.as_deref(), &arguments.into(), &Machine::detect()) {
        Ok(config) => config,
        Err(error) => return fail(&error.render(has_colour())),
    };
    match serve::serve(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("error: {error}")),
    }
}

fn check(file: &Path) -> ExitCode {
    match check::check(file, &Machine::detect()) {
        Ok(checked) => {
            eprint!("{}", checked.verdict);
            print!("{}", checked.settings);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.render(has_colour())),
    }
}

fn run_bench(arguments: bench::BenchArgs) -> ExitCode {
    bench::run(arguments, &["bench"]).unwrap_or_else(|error| fail(&format!("error: {error}")))
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

/// Colour for people who look at a terminal and did not ask for none (<https://no-color.org>).
fn has_colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
