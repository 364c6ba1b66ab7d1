//! The file of defaults: `$XDG_CONFIG_HOME/mosquitto_pub`, or `$HOME/.config/mosquitto_pub`; so for each program, and with the
//! same name, so that what was there for Mosquitto's clients counts for these.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::settings::Tool;

/// Flags with their values, one for each line. A file that is not there says nothing.
pub(crate) fn lines(tool: Tool) -> Vec<Vec<OsString>> {
    let text = path(tool).and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().filter_map(words).collect()
}

fn path(tool: Tool) -> Option<PathBuf> {
    let is_set = |value: &OsString| !value.is_empty();
    let folder = env::var_os("XDG_CONFIG_HOME").filter(is_set).map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(env::var_os("HOME").filter(is_set)?).join(".config")));
    Some(folder?.join(format!("mosquitto_{}", tool.name())))
}

/// A flag, and all that follows it on its line as one value; for a property, word by word. Comments begin with `#`.
fn words(line: &str) -> Option<Vec<OsString>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (flag, value) = line.split_once(' ').map_or((line, None), |(flag, value)| (flag, Some(value)));
    let mut words = vec![OsString::from(flag)];
    match value {
        Some(value) if matches!(flag, "-D" | "--property") => {
            words.extend(value.split_whitespace().map(OsString::from));
        }
        Some(value) => words.push(value.into()),
        None => {}
    }
    Some(words)
}

#[test]
fn a_line_is_a_flag_and_the_rest_its_value() {
    let words = |line: &str| words(line).map(|words| words.join(OsString::from("|").as_os_str()));
    assert_eq!(words("-m text with spaces "), Some("-m|text with spaces".into()));
    assert_eq!(words("-D publish user-property a b"), Some("-D|publish|user-property|a|b".into()));
    assert_eq!(words("  -d"), Some("-d".into()));
    assert_eq!(words("# -d"), None);
    assert_eq!(words(""), None);
}
