//! `pondhawk user`: the users of a configuration.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use auth::{PasswordFile, Scheme};
use config::Machine;

use super::{ask, of_file, set, store};
use crate::file;

/// Adds a user, or gives a user another password. Makes the password file, and the lines of the configuration that name it, if
/// there are none. Returns what was done.
pub(super) fn add(name: &str, config: &Path, machine: &Machine) -> Result<String, String> {
    let text = match fs::read_to_string(config) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(of_file(config, error)),
    };
    let known = if text.is_some() { password_file(config, machine)? } else { None };
    let (file, is_new) = match known {
        Some(file) => (file, false),
        None => (beside(config)?, true),
    };
    let mut users = match fs::read_to_string(&file) {
        Ok(text) => PasswordFile::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => PasswordFile::default(),
        Err(error) => return Err(of_file(&file, error)),
    };
    set(&mut users, name, Scheme::DEFAULT, &ask::new_password()?)?;
    store::write(&file, &users)?;
    let mut said = format!("{} has the user {name}\n", wire::Shown(file.display()));
    if is_new {
        let line = format!("password_file = {:?}\n", file.display().to_string());
        store::replace(config, &with_line(text.as_deref().unwrap_or(""), &line), 0o644)?;
        said += &format!("{} has the line {line}", wire::Shown(config.display()));
        said += "a broker that runs uses it after SIGHUP, as from `systemctl reload`\n";
    } else {
        said += "a broker that runs reads it within seconds, or at once after SIGHUP\n";
    }
    Ok(said)
}

/// Removes a user. Returns what was done.
pub(super) fn remove(name: &str, config: &Path, machine: &Machine) -> Result<String, String> {
    let none = || format!("{} names no password file", wire::Shown(config.display()));
    let file = password_file(config, machine)?.ok_or_else(none)?;
    let mut users = store::read(&file)?;
    if !users.remove(name) {
        return Err(format!("{} has no user {name:?}", wire::Shown(file.display())));
    }
    store::write(&file, &users)?;
    Ok(format!("{} has no user {name} any more\n", wire::Shown(file.display())))
}

fn password_file(config: &Path, machine: &Machine) -> Result<Option<PathBuf>, String> {
    Ok(file::load_ours(config, machine)?.auth.password_file)
}

/// The password file beside a configuration file, with an absolute path, because the broker may run anywhere.
fn beside(config: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(config).map_err(|error| of_file(config, error))?;
    Ok(path.with_extension("users"))
}

/// A configuration with a line in its table `[auth]`.
fn with_line(text: &str, line: &str) -> String {
    let is_header = |text: &&str| text.trim().strip_prefix("[auth]").is_some_and(is_comment);
    match text.split_inclusive('\n').position(|text| is_header(&text)) {
        Some(header) => {
            let end: usize = text.split_inclusive('\n').take(header + 1).map(str::len).sum();
            let (before, behind) = text.split_at(end);
            let newline = if before.ends_with('\n') { "" } else { "\n" };
            format!("{before}{newline}{line}{behind}")
        }
        None if text.is_empty() => format!("[auth]\n{line}"),
        None => format!("{}\n\n[auth]\n{line}", text.trim_end()),
    }
}

fn is_comment(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_into_the_table_that_is_there_or_into_a_new_one() {
        let line = "password_file = \"u\"\n";
        let rows = [
            ("", "[auth]\npassword_file = \"u\"\n"),
            ("shards = 1\n", "shards = 1\n\n[auth]\npassword_file = \"u\"\n"),
            ("[auth] # users\nacl_file = \"a\"", "[auth] # users\npassword_file = \"u\"\nacl_file = \"a\""),
            ("[auth]", "[auth]\npassword_file = \"u\"\n"),
            ("[authors]\n", "[authors]\n\n[auth]\npassword_file = \"u\"\n"),
        ];
        for (text, expected) in rows {
            assert_eq!(with_line(text, line), expected);
        }
    }
}
