//! Tells Mosquitto's files from our own.

use std::path::Path;

/// The language of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Our own language, which is TOML.
    Toml,
    /// Mosquitto's: a directive and its value on each line.
    Mosquitto,
}

/// Tells the language of a file by its content, and by its name if the content does not say.
///
/// The first line that is neither empty nor a comment decides. A line of TOML begins with `[`, or has `=` behind its first
/// word. Everything else is Mosquitto's. A file without such a line is Mosquitto's if its name ends in `.conf`.
///
/// `allow_anonymous = false` is TOML for this rule. Mosquitto refuses the line.
#[must_use]
pub fn language(path: &Path, text: &[u8]) -> Language {
    let text = String::from_utf8_lossy(text);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_toml = match first {
        Some(line) => {
            let name = line.find(|character: char| character == '=' || character.is_whitespace());
            let behind = name.map_or("", |end| line[end..].trim_start());
            line.starts_with('[') || behind.starts_with('=')
        }
        None => path.extension().is_none_or(|extension| extension != "conf"),
    };
    if is_toml { Language::Toml } else { Language::Mosquitto }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_something_tells_the_language() {
        for text in ["[limits]", "\n# x\n  [[listener]]", "shards = 2", "shards=2", "a.b = 1", "\"a\" = 1"] {
            assert_eq!(language(Path::new("x.conf"), text.as_bytes()), Language::Toml, "{text}");
        }
        for text in ["listener 1883", "# [limits]\nport 1883", "persistence true", "user", "log_dest a=b"] {
            assert_eq!(language(Path::new("x.toml"), text.as_bytes()), Language::Mosquitto, "{text}");
        }
    }

    #[test]
    fn the_name_tells_the_language_of_a_file_without_a_line() {
        for text in ["", "# nothing\n\n"] {
            assert_eq!(language(Path::new("mosquitto.conf"), text.as_bytes()), Language::Mosquitto);
            assert_eq!(language(Path::new("pondhawk.toml"), text.as_bytes()), Language::Toml);
            assert_eq!(language(Path::new("pondhawk"), text.as_bytes()), Language::Toml);
        }
    }
}
