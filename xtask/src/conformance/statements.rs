//! The normative statements. The file has the identifiers of the standards, and rules in our own words.

use std::fmt;
use std::fs;
use std::path::Path;

const FILE: &str = "tests/conformance/statements.tsv";

/// The standards that number their statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V5,
    V3_1_1,
}

impl Version {
    pub(crate) const ALL: [Self; 2] = [Self::V5, Self::V3_1_1];
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V5 => "5.0",
            Self::V3_1_1 => "3.1.1",
        })
    }
}

/// Identifier of a statement. Both standards have an `MQTT-3.1.2-24`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StatementId {
    pub(crate) version: Version,
    pub(crate) number: String,
}

/// Writes the identifier as in a doc comment, without brackets.
impl fmt::Display for StatementId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::V5 => write!(f, "{}", self.number),
            Version::V3_1_1 => write!(f, "3.1.1 {}", self.number),
        }
    }
}

/// One normative statement of a standard.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) id: StatementId,
    /// The side that has the duty: `client`, `server` or `both`.
    pub(crate) side: String,
    /// The rule in our own words.
    pub(crate) rule: String,
    /// Remarks on the broker's behaviour beyond the rule; may be empty.
    pub(crate) we_do: String,
    /// The reason why no test shows the statement; empty if a test does.
    pub(crate) excuse: String,
}

/// All statements, in the order of the standards.
#[derive(Debug)]
pub(crate) struct Statements(Vec<Statement>);

impl Statements {
    /// Reads the file of statements.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is not valid.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
        Self::parse(&text).map_err(|(line, error)| format!("{FILE}:{line}: {error}"))
    }

    /// Parses the text of the file. An error contains its line, counted from 1.
    pub(crate) fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut statements: Vec<Statement> = Vec::new();
        for (index, line) in text.lines().enumerate().skip(1) {
            let statement = statement(line).map_err(|error| (index + 1, error))?;
            if statements.iter().any(|other| other.id == statement.id) {
                return Err((index + 1, format!("{} is there twice", statement.id)));
            }
            statements.push(statement);
        }
        Ok(Self(statements))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Statement> {
        self.0.iter()
    }

    pub(crate) fn find(&self, id: &StatementId) -> Option<&Statement> {
        self.iter().find(|statement| statement.id == *id)
    }
}

/// Parses a line with the fields `version`, `id`, `side`, `it says`, `we do` and `excused`. Empty fields at the end
/// may be missing.
fn statement(line: &str) -> Result<Statement, String> {
    let mut fields = line.split('\t').map(str::to_owned);
    let mut field = || fields.next().unwrap_or_default();
    let version = match field().as_str() {
        "5.0" => Version::V5,
        "3.1.1" => Version::V3_1_1,
        other => return Err(format!("there is no version `{other}`")),
    };
    let id = StatementId { version, number: field() };
    let statement = Statement { id, side: field(), rule: field(), we_do: field(), excuse: field() };
    if !["client", "server", "both"].contains(&statement.side.as_str()) {
        return Err(format!("there is no side `{}`", statement.side));
    }
    if statement.rule.is_empty() || fields.next().is_some() {
        return Err("a statement has 4 to 6 fields".to_owned());
    }
    Ok(statement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_a_line() {
        let text =
            "heading\n5.0\tMQTT-1.2-3\tboth\tA rule.\n3.1.1\tMQTT-1.2-3\tclient\tA rule.\tMore.\tWhy.\n";
        let statements = Statements::parse(text).unwrap();
        let ids: Vec<String> = statements.iter().map(|statement| statement.id.to_string()).collect();
        assert_eq!(ids, ["MQTT-1.2-3", "3.1.1 MQTT-1.2-3"]);
        assert_eq!(statements.iter().last().map(|statement| statement.excuse.as_str()), Some("Why."));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for line in ["5.1\tMQTT-1-1\tboth\tA.", "5.0\tMQTT-1-1\tboth", "5.0\tMQTT-1-1\tnobody\tA."] {
            assert_eq!(Statements::parse(&format!("heading\n{line}\n")).err().map(|(line, _)| line), Some(2));
        }
        let twice = "heading\n5.0\tMQTT-1-1\tboth\tA.\n5.0\tMQTT-1-1\tboth\tA.\n";
        assert_eq!(Statements::parse(twice).err().map(|(line, _)| line), Some(3));
    }
}
