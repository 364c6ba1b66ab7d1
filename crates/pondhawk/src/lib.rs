//! The `pondhawk` program: reads the command line and runs a command.
//!
//! The program is a library for one reason: tests build it again with another file layer below the journal. That
//! layer notes the writes and syncs. Everything else is the same.
#![forbid(unsafe_code)]

mod access;
mod acme;
mod admin;
mod args;
mod banner;
mod certificates;
mod certs;
mod check;
mod control;
mod expiry;
mod fetch;
mod file;
mod files_read;
mod import;
mod jwks;
mod limits;
mod listen;
mod log_line;
mod logging;
mod login_names;
mod login_secret;
mod no_links;
mod operate;
mod origin;
mod otlp;
mod outcomes;
mod passed;
mod privileges;
mod process;
mod recent;
mod reload;
mod roots;
mod running;
mod serve;
mod services;
mod sinks;
mod stack;
mod stamp;
mod store;
mod tls_files;
mod tokens;
mod top;
mod upkeep;
mod users;
mod variables;
mod watch;
mod watchdog;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use args::{Arguments, Command, ConfigCommand, ServeArguments};
use cli::Tool;
use config::{Environment, Flags, Machine};
use files_read::FilesRead;
use journal::{Directory, Storage};
use reload::Reload;

/// Makes the storage of the journal from its directory. Tests wrap the directory to observe it.
pub type FileLayer = fn(Directory) -> Arc<dyn Storage>;

/// Runs the command that the command line of this process names.
#[must_use]
pub fn run(file_layer: FileLayer) -> ExitCode {
    let arguments = Arguments::of(std::env::args_os().collect()).unwrap_or_else(|error| error.exit());
    match arguments.command {
        None => start(arguments.serve, file_layer),
        Some(Command::Serve(serve)) => start(serve, file_layer),
        Some(Command::Pub(arguments)) => cli::run(Tool::Publish, &arguments.words),
        Some(Command::Sub(arguments)) => cli::run(Tool::Subscribe, &arguments.words),
        Some(Command::Rr(arguments)) => cli::run(Tool::Request, &arguments.words),
        Some(Command::Probe(arguments)) => cli::probe(&arguments),
        Some(Command::Tap(arguments)) => cli::tap(&arguments),
        Some(Command::Replay(arguments)) => cli::replay(&arguments),
        Some(Command::Check(arguments)) => check(arguments.file()),
        Some(Command::Config(ConfigCommand::Show { file })) => show(file.as_deref()),
        Some(Command::Config(ConfigCommand::Explain { key })) => explain(&key),
        Some(Command::Import { file, to, snapshot }) => {
            match import::import(&file, to.as_deref(), snapshot, file_layer) {
                Ok(report) => say(&report),
                Err(error) => fail(&format!("error: {error}")),
            }
        }
        Some(Command::Journal(command)) => upkeep::run(&command),
        Some(Command::Certs(command)) => certs::run(&command),
        Some(Command::Passwd(arguments)) => users::passwd(&arguments),
        Some(Command::User(command)) => users::user(&command, &Machine::detect()),
        Some(Command::Acl(command)) => users::acl(&command, &Machine::detect()),
        Some(Command::Ctl(arguments)) => operate::ctl(&arguments),
        Some(Command::Top(arguments)) => top::top(&arguments),
        Some(Command::Explain(arguments)) => operate::explain(&arguments),
        Some(Command::Bench(arguments)) => run_bench(*arguments),
        Some(Command::Shootout(arguments)) => {
            bench::shootout(&arguments).unwrap_or_else(|error| fail(&format!("error: {error}")))
        }
        Some(Command::Completions { shell }) => print_completions(shell),
        Some(Command::Man { dir }) => match clap_mangen::generate_to(args::described(), &dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("error: {}: {error}", wire::Shown(dir.display()))),
        },
    }
}

fn start(arguments: ServeArguments, file_layer: FileLayer) -> ExitCode {
    if arguments.daemon && !process::is_detached() {
        return process::detach().unwrap_or_else(|error| fail(&format!("error: {error}")));
    }
    let file = arguments.config.clone();
    let (flags, machine) = (Flags::from(arguments), Machine::detect());
    let files = FilesRead::default();
    let loaded = match file::load(file.as_deref(), &flags, &machine, &files) {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error.render(has_colour())),
    };
    let reload = Reload::new(file, flags, machine, files);
    match serve::serve(&loaded, reload, file_layer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&origin::with_place(&loaded, &error.to_string())),
    }
}

fn check(file: &Path) -> ExitCode {
    match check::check(file, &Machine::detect()) {
        Ok(checked) => {
            eprint!("{}", checked.verdict);
            say(&checked.settings)
        }
        Err(error) => fail(&error.render(has_colour())),
    }
}

fn show(file: Option<&Path>) -> ExitCode {
    let flags = Flags { environment: environment(), ..Flags::default() };
    match file::show(file, &flags, &Machine::detect()) {
        Ok(text) => say(&text),
        Err(error) => fail(&error.render(has_colour())),
    }
}

fn explain(key: &str) -> ExitCode {
    match config::explain(key).join("\n") {
        text if text.is_empty() => {
            fail(&format!("error: there is no key {key}; `pondhawk serve --help` has all"))
        }
        text => say(&text),
    }
}

/// The environment variables whose names and values are texts.
pub(crate) fn environment() -> Environment {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

fn print_completions(shell: clap_complete::Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut args::described(), "pondhawk", &mut text);
    finish(write_all(&text))
}

fn run_bench(arguments: bench::BenchArgs) -> ExitCode {
    bench::run(arguments, &["bench"]).unwrap_or_else(|error| fail(&format!("error: {error}")))
}

/// Prints the result of a command to standard output.
pub(crate) fn say(text: &str) -> ExitCode {
    finish(write_all(text.as_bytes()))
}

/// Writes to standard output. A reader that has read enough, such as `head`, is no error.
pub(crate) fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

fn finish(done: io::Result<()>) -> ExitCode {
    done.map_or_else(|error| fail(&format!("error: standard output: {error}")), |()| ExitCode::SUCCESS)
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}

/// Whether to print colours: on a terminal, unless `NO_COLOR` (<https://no-color.org>) or `TERM=dumb` forbids it.
fn has_colour() -> bool {
    io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}
