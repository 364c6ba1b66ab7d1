//! Tells Mosquitto's files from our own.

use std::path::Path;

use crate::directive::Directive;

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
/// Mosquitto refuses a line such as `allow_anonymous = false`. A file with the ending `.conf` is nevertheless meant for Mosquitto
/// if a directive of Mosquitto begins a line without `=`, or if it has `=` and is no key of ours.
#[must_use]
pub fn language(path: &Path, text: &[u8]) -> Language {
    let text = String::from_utf8_lossy(text);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_conf = path.extension().is_some_and(|extension| extension == "conf");
    let is_toml = match lines.next() {
        Some(line) if line.starts_with('[') => true,
        Some(line) => has_equals(line) && !(is_conf && (is_theirs(line) || lines.any(is_theirs))),
        None => !is_conf,
    };
    if is_toml { Language::Toml } else { Language::Mosquitto }
}

/// Keys at the top of our file that are directives of Mosquitto too.
const SHARED: [&str; 3] = ["allow_anonymous", "pid_file", "user"];

/// Splits a line behind its first word.
fn split(line: &str) -> (&str, &str) {
    let end = line.find(|character: char| character == '=' || character.is_whitespace());
    let (word, rest) = line.split_at(end.unwrap_or(line.len()));
    (word, rest.trim_start())
}

fn has_equals(line: &str) -> bool {
    split(line).1.starts_with('=')
}

/// Whether a line can only be meant for Mosquitto.
fn is_theirs(line: &str) -> bool {
    let (word, _) = split(line);
    Directive::find(word).is_some() && !(has_equals(line) && SHARED.contains(&word))
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
    fn a_file_for_mosquitto_is_one_with_its_mistakes_too() {
        for text in [
            "listener=1883",
            "persistence = true\n",
            "# x\nallow_anonymous = true\nlistener 1883\n",
            "user=mosquitto\npersistence_location /data\n",
        ] {
            assert_eq!(language(Path::new("mosquitto.conf"), text.as_bytes()), Language::Mosquitto, "{text}");
            assert_eq!(language(Path::new("pondhawk.toml"), text.as_bytes()), Language::Toml, "{text}");
        }
        for text in
            ["allow_anonymous = true\n[limits]\n", "user = \"a\"\nshards = 2\n", "[log]\nlistener 1\n"]
        {
            assert_eq!(language(Path::new("pond.conf"), text.as_bytes()), Language::Toml, "{text}");
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
