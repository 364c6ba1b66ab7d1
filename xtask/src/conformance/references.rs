//! References in the brackets of doc comments.
//!
//! Examples are `[MQTT-3.1.2-24, 3.1.1 MQTT-3.1.2-24]` and `[each case of crates/wire/src/table]`.

use super::statements::{StatementId, Version};

/// A statement or a table that a test shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    Statement(StatementId),
    /// The statements of the cases in this folder's table.
    Table(String),
}

const TABLE: &str = "each case of ";

/// Returns all references in brackets. Brackets with other content are ignored.
///
/// # Errors
/// If a list begins with a statement and continues with something else.
pub(crate) fn references(text: &str) -> Result<Vec<Reference>, String> {
    let mut found = Vec::new();
    for bracket in text.split('[').skip(1).filter_map(|rest| rest.split_once(']')).map(|(inside, _)| inside) {
        if let Some(folder) = bracket.strip_prefix(TABLE) {
            found.push(Reference::Table(folder.to_owned()));
        } else if bracket.split(',').next().is_some_and(|first| statement(first).is_some()) {
            for item in bracket.split(',') {
                let id = statement(item).ok_or_else(|| format!("`{}` is no statement", item.trim()))?;
                found.push(Reference::Statement(id));
            }
        }
    }
    Ok(found)
}

fn statement(text: &str) -> Option<StatementId> {
    let text = text.trim();
    let (version, number) = match text.strip_prefix("3.1.1 ") {
        Some(number) => (Version::V3_1_1, number),
        None => (Version::V5, text),
    };
    number.starts_with("MQTT-").then(|| StatementId { version, number: number.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let name = |reference| match reference {
            Reference::Statement(id) => id.to_string(),
            Reference::Table(folder) => format!("table {folder}"),
        };
        references(text).unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn statements_stand_in_brackets_alone_or_with_others() {
        assert_eq!(found("So it is. [MQTT-3.1-1]"), ["MQTT-3.1-1"]);
        assert_eq!(
            found("[MQTT-3.1-1, 3.1.1 MQTT-3.1-2] [MQTT-4-1]"),
            ["MQTT-3.1-1", "3.1.1 MQTT-3.1-2", "MQTT-4-1"]
        );
        assert_eq!(found("[each case of crates/a/table]"), ["table crates/a/table"]);
    }

    #[test]
    fn other_brackets_are_left_alone() {
        assert!(found("[`Session`] has MQTT-3.1-1 in [a list](b), and [").is_empty());
        assert!(references("[MQTT-3.1-1, and so on]").is_err());
    }
}
