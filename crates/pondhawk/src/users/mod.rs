//! `pondhawk passwd`, `user` and `acl`: password files, and questions about rules.

mod ask;
mod edit;
mod rules;
mod store;

pub(crate) use ask::{new_password, password as ask_password};
pub(crate) use store::replace_private;

use std::path::Path;
use std::process::ExitCode;

use auth::{PasswordFile, PasswordHash, SALT_BYTES, Scheme};
use config::Machine;

use crate::args::{AclCommand, PasswdArguments, UserCommand};

/// Runs `passwd`, with the flags of mosquitto_passwd.
pub(crate) fn passwd(arguments: &PasswdArguments) -> ExitCode {
    finish(change_file(arguments))
}

/// Runs a command about the users of a configuration.
pub(crate) fn user(command: &UserCommand, machine: &Machine) -> ExitCode {
    finish(match command {
        UserCommand::Add { name, config } => edit::add(name, config, machine),
        UserCommand::Remove { name, config } => edit::remove(name, config, machine),
    })
}

/// Runs a command about rules. The exit code is 0 for yes, 1 for no, and 2 if there is no answer.
pub(crate) fn acl(command: &AclCommand, machine: &Machine) -> ExitCode {
    let AclCommand::Test(question) = command;
    match rules::test(question, machine) {
        Ok(answer) => {
            // The answer is the exit code, with or without a reader of the text.
            _ = crate::write_all(format!("{}\n", answer.text).as_bytes());
            ExitCode::from(u8::from(!answer.is_allowed))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn finish(outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(text) => crate::say(&text),
        Err(error) => crate::fail(&format!("error: {error}")),
    }
}

fn change_file(arguments: &PasswdArguments) -> Result<String, String> {
    let PasswdArguments { batch, create, delete, upgrade, hash, iterations, file, name, password } =
        arguments;
    let scheme = hash.scheme(*iterations);
    if *upgrade {
        let mut users = store::read(file)?;
        let count = users.hash_plain(|password| new_hash(scheme, password))?;
        store::write(file, &users)?;
        return Ok(format!("{count} passwords hashed in {}\n", wire::Shown(file.display())));
    }
    let name = name.as_deref().ok_or("a user name is missing")?;
    let mut users = if *create { PasswordFile::default() } else { store::read(file)? };
    if *delete {
        if !users.remove(name) {
            return Err(format!("{} has no user {name:?}", wire::Shown(file.display())));
        }
        store::write(file, &users)?;
        return Ok(String::new());
    }
    let password = match (batch, password) {
        (true, Some(password)) => password.as_bytes().to_vec(),
        (true, None) => return Err("-b needs the password behind the user name".to_owned()),
        (false, Some(_)) => return Err("a password on the command line needs -b".to_owned()),
        (false, None) => new_password()?,
    };
    set(&mut users, name, scheme, &password)?;
    store::write(file, &users)?;
    Ok(String::new())
}

/// Gives a user a password.
fn set(users: &mut PasswordFile, name: &str, scheme: Scheme, password: &[u8]) -> Result<(), String> {
    let hash = new_hash(scheme, password)?;
    users.set(name, &hash).map_err(|error| error.to_string())
}

fn new_hash(scheme: Scheme, password: &[u8]) -> Result<PasswordHash, String> {
    if password.is_empty() {
        return Err("the password is empty, and nobody could log in with it".to_owned());
    }
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(|error| format!("the system has no random numbers: {error}"))?;
    PasswordHash::new(scheme, password, &salt).map_err(|error| error.to_string())
}

/// The text of a problem with a file.
fn of_file(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", wire::Shown(path.display()))
}
