//! Values from environment variables, and the origin of each value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use toml::de::{DeTable, DeValue};

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// Beginning of the names of variables that set keys.
const PREFIX: &str = "PONDHAWK_";

/// The end of a sentence about a value with variables. A message has no values of variables, because the wrong variable may
/// have a secret.
const NOT_VALID: &str = "is not valid with the values of its variables";

/// Returns a reason, or `other` instead of a reason that quotes the value.
pub(crate) fn without_quotes(why: String, other: &str) -> String {
    if why.contains('`') { other.to_owned() } else { why }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default of the key.
    Default,
    /// A line, which counts from 1.
    Line {
        /// The file, if it is not the main one.
        included: Option<String>,
        /// The number of the line.
        line: usize,
    },
    /// The environment variable that sets the key.
    Variable(String),
    /// The flag of the command line, with its dashes.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Line { included: None, line } => write!(f, "line {line}"),
            Self::Line { included: Some(file), line } => write!(f, "line {line} of {file}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Returns the name of the variable that sets a key, such as `PONDHAWK_LIMITS_PACKET_BYTES`.
pub(crate) fn variable(prefix: &str, key: &str) -> String {
    format!("{PREFIX}{prefix}{key}").replace('.', "_").to_ascii_uppercase()
}

/// Calls `read` with the value of a variable: first as a value of TOML, and then as a text.
pub(crate) fn read<T>(text: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<T, String> {
    let line = format!("value = {text}");
    let of_toml = DeTable::parse(&line).ok().filter(|table| table.get_ref().len() == 1);
    let value = of_toml.and_then(|table| table.get_ref().values().next().map(|value| read(value.get_ref())));
    let as_text = || read(&DeValue::String(Cow::Borrowed(text)));
    match value {
        Some(Err(why)) => as_text().map_err(|_| why),
        Some(read) => read,
        None => as_text(),
    }
}

/// Replaces `${NAME}` in a text by the variable NAME. `$${` stands for `${`.
///
/// # Errors
/// There is no such variable, or a brace is missing. The text is the end of a sentence about the value.
pub(crate) fn expand(text: &str, environment: &Environment) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, behind) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &behind[2..];
            continue;
        }
        expanded.push_str(before);
        let Some((name, after)) = behind[2..].split_once('}') else {
            return Err("has `${` without `}`".to_owned());
        };
        let value =
            environment.get(name).ok_or_else(|| format!("needs the environment variable `{name}`"))?;
        expanded.push_str(value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Calls `read` with a value whose texts are expanded.
///
/// # Errors
/// As [`expand`], and whatever `read` says.
pub(crate) fn read_expanded<T>(
    value: &DeValue<'_>,
    environment: &Environment,
    read: impl Fn(&DeValue<'_>) -> Result<T, String>,
) -> Result<T, String> {
    match value {
        DeValue::String(text) if text.contains("${") => {
            read(&DeValue::String(Cow::Owned(expand(text, environment)?)))
                .map_err(|why| without_quotes(why, NOT_VALID))
        }
        DeValue::Array(values) if values.iter().any(|value| has_variable(value.get_ref())) => {
            let text = |value: &DeValue<'_>| match value {
                DeValue::String(text) => expand(text, environment).map(|text| crate::unit::quoted(&text)),
                _ => Err("has variables beside other values than texts".to_owned()),
            };
            let texts = values.iter().map(|value| text(value.get_ref())).collect::<Result<Vec<_>, _>>()?;
            let line = format!("value = [{}]", texts.join(", "));
            let table = DeTable::parse(&line).map_err(|_| NOT_VALID.to_owned())?;
            let value = table.get_ref().values().next().expect("the line has a value").get_ref();
            read(value).map_err(|why| without_quotes(why, NOT_VALID))
        }
        value => read(value),
    }
}

fn has_variable(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::String(text) if text.contains("${"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_texts_are_replaced() {
        let environment = Environment::from([("HOST".to_owned(), "pond.example".to_owned())]);
        let expand = |text: &str| expand(text, &environment);
        assert_eq!(expand("${HOST}:1883"), Ok("pond.example:1883".to_owned()));
        assert_eq!(expand("a${HOST}b${HOST}"), Ok("apond.examplebpond.example".to_owned()));
        assert_eq!(expand("$${HOST}$HOST $"), Ok("${HOST}$HOST $".to_owned()));
        assert!(expand("${NONE}").unwrap_err().contains("`NONE`"));
        assert!(expand("${HOST").is_err());
    }
}
