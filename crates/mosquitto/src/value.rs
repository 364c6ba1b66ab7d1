//! Values of directives, as Mosquitto reads them.

use crate::directive::{Directive, Form};
use crate::line::words;

/// The value of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Flag(bool),
    Number(i64),
    Text(String),
    Words(Vec<String>),
}

/// Maximum length of a value that is a string, in bytes.
const TEXT_BYTES_MAX: usize = 65_535;

/// Reads the bytes behind the name of a directive.
///
/// # Errors
/// The reason, as a sentence that names the directive.
pub(crate) fn read(directive: &Directive, name: &str, rest: Option<&[u8]>) -> Result<Value, String> {
    let rest = rest.unwrap_or_default();
    let is_empty = rest.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0x0b);
    if is_empty {
        return Err(format!("`{name}` has no value"));
    }
    let text = std::str::from_utf8(rest).map_err(|_| format!("the value of `{name}` is not UTF-8"))?;
    let text_of = || trimmed(text).to_owned();
    match directive.form {
        Form::Flag => flag(name, text).map(Value::Flag),
        Form::Number(low, high) => number(name, text, (low, high)).map(Value::Number),
        Form::Text | Form::Secret if text.len() > TEXT_BYTES_MAX => {
            Err(format!("the value of `{name}` has more than {TEXT_BYTES_MAX} bytes"))
        }
        Form::Text | Form::Secret => Ok(Value::Text(text_of())),
        Form::Words => Ok(Value::Words(words(text).map(str::to_owned).collect())),
    }
}

/// White space in the sense of C, without which strings are stored.
pub(crate) fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\x0b', '\x0c'])
}

fn flag(name: &str, text: &str) -> Result<bool, String> {
    match words(text).next().unwrap_or_default() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        "=" => Err(format!("`{name}` has no `=`: write `{name} true` or `{name} false`")),
        other => Err(format!("`{name}` is `true` or `false`, and not `{}`", other.escape_default())),
    }
}

/// Reads a decimal number. Numbers that Mosquitto 2.0 and 2.1 read as different ones are errors.
fn number(name: &str, text: &str, (low, high): (i64, i64)) -> Result<i64, String> {
    let word = trimmed(words(text).next().unwrap_or_default());
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let escaped = word.escape_default();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let why = "Mosquitto 2.1 refuses it, and 2.0 reads the digits at its beginning, or 0";
        return Err(format!("`{name}` is a whole number, and not `{escaped}`: {why}"));
    }
    if digits.len() > 1 && digits.starts_with('0') {
        let why = "Mosquitto 2.0 reads it as a decimal number, and 2.1 as an octal one";
        return Err(format!("`{name}` is `{escaped}`: {why}; write it without zeros in front"));
    }
    let number = word.trim_start_matches('+').parse().ok();
    let within = number.filter(|number| (low..=high).contains(number));
    within.ok_or_else(|| format!("`{name}` is from {} to {high}, and not {escaped}", low.max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, rest: &str) -> Result<Value, String> {
        read(Directive::find(name).unwrap(), name, Some(rest.as_bytes()))
    }

    #[test]
    fn a_flag_is_one_of_four_words() {
        for (text, flag) in [("true", true), ("  1 # so", true), ("false", false), ("0", false)] {
            assert_eq!(of("persistence", text), Ok(Value::Flag(flag)), "{text}");
        }
        for text in ["True", "yes", "on", "= true", "true\t", "", " "] {
            assert!(of("persistence", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_is_decimal_and_within_bounds() {
        for (text, number) in [("10", 10), ("0", 0), ("-1", -1), ("+7 # so", 7), ("10\t", 10)] {
            assert_eq!(of("max_connections", text), Ok(Value::Number(number)), "{text}");
        }
        for text in ["010", "0x10", "10s", "abc", "-", "99999999999", "1.5"] {
            assert!(of("max_connections", text).is_err(), "{text}");
        }
        assert!(of("max_qos", "3").is_err());
        assert!(of("port", "0").is_err());
    }

    #[test]
    fn a_text_is_the_rest_of_the_line_with_its_comment() {
        assert_eq!(of("pid_file", "\t a b # c \t"), Ok(Value::Text("a b # c".to_owned())));
        assert_eq!(of("pid_file", "\"a\""), Ok(Value::Text("\"a\"".to_owned())));
        let directive = Directive::find("pid_file").unwrap();
        assert!(read(directive, "pid_file", Some(b"\xff")).is_err());
        assert!(read(directive, "pid_file", Some("a".repeat(65_536).as_bytes())).is_err());
        assert!(read(directive, "pid_file", None).is_err());
    }

    #[test]
    fn words_are_separated_by_blanks() {
        let words = |words: &[&str]| Ok(Value::Words(words.iter().map(|word| (*word).to_owned()).collect()));
        assert_eq!(of("log_dest", "file  a\tb"), words(&["file", "a\tb"]));
    }
}
