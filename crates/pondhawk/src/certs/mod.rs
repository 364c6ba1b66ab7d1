//! `pondhawk certs`: makes certificates for a network of one's own, and explains any certificate.

mod make;
pub(crate) mod show;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use crate::args::CertsCommand;

/// Runs a command, and prints its output.
pub(crate) fn run(command: &CertsCommand) -> ExitCode {
    let text = match command {
        CertsCommand::Init { dir, host } => make::init(dir, host),
        CertsCommand::Client { dir, name } => make::client(dir, name),
        CertsCommand::Show { of } => show::show(of),
    };
    match text {
        Ok(text) => crate::say(&text),
        Err(error) => crate::fail(&format!("error: {error}")),
    }
}

/// The text of a problem with a file.
fn of_file(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", wire::Shown(path.display()))
}
