//! The file of defaults, such as `$XDG_CONFIG_HOME/mosquitto_pub` or `$HOME/.config/mosquitto_pub`.
//!
//! Each program has its own file. The names are those of Mosquitto's clients, so that existing files apply.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::settings::Tool;

/// Flags with their values, one per line. A missing file has no lines.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn lines(tool: Tool) -> Result<Vec<Vec<OsString>>, Failure> {
    let Some(folder) = folder() else { return Ok(Vec::new()) };
    lines_of(&folder.join(format!("mosquitto_{}", tool.name()))).map(Option::unwrap_or_default)
}

/// The lines of this file, or `None` if it does not exist.
///
/// # Errors
/// The file exists and cannot be read.
pub(crate) fn lines_of(path: &Path) -> Result<Option<Vec<Vec<OsString>>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.split(|byte| *byte == b'\n').filter_map(words).collect())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => {
            Err(Failure::new(format!("Error: Unable to read \"{}\": {error}.", wire::Shown(path.display()))))
        }
    }
}

/// The user's folder for configuration; `None` without a home directory.
pub(crate) fn folder() -> Option<PathBuf> {
    let is_set = |value: &OsString| !value.is_empty();
    let folder = env::var_os("XDG_CONFIG_HOME").filter(is_set).map(PathBuf::from);
    folder.or_else(|| Some(PathBuf::from(env::var_os("HOME").filter(is_set)?).join(".config")))
}

/// Splits a line into a flag and its value; `None` for a comment, which begins with `#`, and an empty line.
///
/// The value is the whole rest of the line, of any bytes. The value of a property is split into words.
fn words(line: &[u8]) -> Option<Vec<OsString>> {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    let line = line[..end].trim_ascii_start();
    if line.is_empty() || line[0] == b'#' {
        return None;
    }
    let (flag, value) = match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &b""[..]),
    };
    let mut words = vec![word(flag)];
    if matches!(flag, b"-D" | b"--property") {
        words.extend(value.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()).map(word));
    } else if !value.is_empty() {
        words.push(word(value));
    }
    Some(words)
}

#[cfg(unix)]
fn word(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).to_owned()
}

/// Converts to text, because arguments are Unicode on these systems.
#[cfg(not(unix))]
fn word(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

#[test]
fn a_line_is_a_flag_and_the_rest_its_value() {
    let words = |line: &str| words(line.as_bytes()).map(|words| words.join(OsString::from("|").as_os_str()));
    assert_eq!(words("-m text with spaces \r"), Some("-m|text with spaces ".into()));
    assert_eq!(words("-D publish user-property a b"), Some("-D|publish|user-property|a|b".into()));
    assert_eq!(words("  -d"), Some("-d".into()));
    assert_eq!(words("-d "), Some("-d".into()));
    assert_eq!(words("# -d"), None);
    assert_eq!(words("\r"), None);
}
