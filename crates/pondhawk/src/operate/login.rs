//! The proof that a request shows: a token, or a user name with a password.

use std::fs;
use std::io;
use std::path::Path;

use data_encoding::BASE64;

use super::Place;
use super::client::ADDRESS;
use crate::users::ask_password;

/// Maximum size of a file with a password, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The header `Authorization` of a user name with its password, which is the first line of a file, or asked for on the terminal.
///
/// # Errors
/// The file cannot be read, or the name has a colon.
pub(super) fn password(name: &str, place: &Place) -> io::Result<String> {
    if name.is_empty() || name.contains(':') {
        return Err(io::Error::other("a user name for HTTP has no colon, and is not empty"));
    }
    let password = match &place.password_file {
        Some(path) => first_line(path)?,
        None => ask_password().map_err(io::Error::other)?,
    };
    let text = BASE64.encode(format!("{name}:{password}").as_bytes());
    Ok(format!("Basic {text}"))
}

fn first_line(path: &Path) -> io::Result<String> {
    let explain = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("no password in {}: {error}", wire::Shown(path.display())))
    };
    let read = mosquitto::read_regular(path, FILE_BYTES_MAX).map_err(|error| explain(&error))?;
    let text = String::from_utf8(read).map_err(|_| explain(&"the file is no text"))?;
    Ok(text
        .lines()
        .next()
        .filter(|line| !line.is_empty())
        .ok_or_else(|| explain(&"the file is empty"))?
        .to_owned())
}

/// The header `Authorization` with the first token of a file. `is_configured` says whether anything names an admin server.
///
/// # Errors
/// The file cannot be read, or has no token.
pub(super) fn token(path: &Path, is_configured: bool) -> io::Result<String> {
    let explain = |error: &dyn std::fmt::Display| {
        let shown = wire::Shown(path.display());
        io::Error::other(format!("no token in {shown}: {error} (--token-file FILE names another one)"))
    };
    if !is_configured && !path.exists() {
        return Err(io::Error::other(format!(
            "no configuration names an admin server: -c FILE names the broker's configuration; if it has no [admin], \
             add `[admin]` with `address = \"{ADDRESS}\"` and restart the broker"
        )));
    }
    let text = fs::read_to_string(path).map_err(|error| explain(&error))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next().ok_or_else(|| explain(&"the file is empty"))?;
    let token = line.split_whitespace().next().unwrap_or_default();
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(explain(&"a token has ASCII characters only"));
    }
    Ok(format!("Bearer {token}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_has_names_behind_tokens() {
        let path = std::env::temp_dir().join(format!("pondhawk-ctl-token-{}", std::process::id()));
        fs::write(&path, "# people\n\n0123456789abcdef Alice\n").expect("it is ours");
        let read = token(&path, true);
        fs::write(&path, "").expect("it is ours");
        let empty = token(&path, true);
        fs::remove_file(&path).expect("it is ours");
        assert_eq!(read.expect("a token"), "Bearer 0123456789abcdef");
        assert!(empty.is_err());
    }
}
