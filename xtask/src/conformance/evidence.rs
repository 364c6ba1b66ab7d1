//! The tests for each statement.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::references::{Reference, references};
use super::source::{Test, scenarios_in, tests_in_rust};
use super::statements::{Statement, StatementId, Statements};
use super::table::{Case, cases_in};

/// Folders with tests. The tests of `xtask` itself do not concern MQTT.
const FOLDERS: [&str; 4] = ["crates", "features", "sim", "tests"];

/// A test, or the cases of a table, as evidence for a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) name: String,
    /// Path of the file, relative to the root of the workspace.
    pub(crate) path: String,
}

/// All tests, ordered by statement.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    by_statement: BTreeMap<StatementId, Vec<Shown>>,
    /// Folders of tables, with the tests that run each table.
    pub(crate) tables: BTreeMap<String, Vec<Shown>>,
}

impl Evidence {
    /// Reads all sources.
    ///
    /// # Errors
    /// If a file cannot be read, or names an unknown statement.
    pub(crate) fn collect(root: &Path, statements: &Statements) -> Result<Self, String> {
        let mut evidence = Self::default();
        for folder in FOLDERS {
            for path in files_in(root, folder)? {
                evidence.read_file(root, &path, statements).map_err(|error| format!("{path}: {error}"))?;
            }
        }
        for folder in evidence.tables.keys().cloned().collect::<Vec<_>>() {
            evidence.read_table(root, &folder, statements)?;
        }
        Ok(evidence)
    }

    /// The tests and cases for a statement.
    pub(crate) fn of(&self, id: &StatementId) -> &[Shown] {
        self.by_statement.get(id).map_or(&[], Vec::as_slice)
    }

    fn read_file(&mut self, root: &Path, path: &str, statements: &Statements) -> Result<(), String> {
        let read = if path.ends_with(".rs") {
            tests_in_rust
        } else if path.ends_with(".feature") {
            scenarios_in
        } else {
            return Ok(());
        };
        let text = fs::read_to_string(root.join(path)).map_err(|error| error.to_string())?;
        read(&text).iter().try_for_each(|test| self.add(path, test, statements))
    }

    fn add(&mut self, path: &str, test: &Test, statements: &Statements) -> Result<(), String> {
        let named = |error: String| format!("{}: {error}", test.name);
        let references = references(&test.doc).map_err(named)?;
        if test.is_ignored && !references.is_empty() {
            return Err(named("it is ignored and shows nothing".to_owned()));
        }
        let shown = Shown { name: test.name.clone(), path: path.to_owned() };
        for reference in references {
            match reference {
                Reference::Statement(id) if statements.find(&id).is_none() => {
                    return Err(named(format!("there is no statement {id}")));
                }
                Reference::Statement(id) => self.by_statement.entry(id).or_default().push(shown.clone()),
                Reference::Table(folder) => self.tables.entry(folder).or_default().push(shown.clone()),
            }
        }
        Ok(())
    }

    /// Adds one entry for all cases of the table that concern the same statement.
    fn read_table(&mut self, root: &Path, folder: &str, statements: &Statements) -> Result<(), String> {
        let mut found: BTreeMap<StatementId, Vec<Shown>> = BTreeMap::new();
        for path in files_in(root, folder)? {
            let in_file = |error: String| format!("{path}: {error}");
            let text = fs::read_to_string(root.join(&path)).map_err(|error| in_file(error.to_string()))?;
            for case in cases_in(&text).map_err(in_file)? {
                for id in about(&case, statements).map_err(in_file)? {
                    let shown = Shown { name: format!("\"{}\"", case.name), path: path.clone() };
                    found.entry(id).or_default().push(shown);
                }
            }
        }
        for (id, cases) in found {
            let mut shown = cases[0].clone();
            if cases.len() > 1 {
                shown.name += &format!(" and {} more", cases.len() - 1);
            }
            self.by_statement.entry(id).or_default().push(shown);
        }
        Ok(())
    }
}

/// Returns the statements that a case shows.
///
/// A packet that a server must not send shows the behaviour of a client, and nothing about this server. Such a case
/// is left out, unless the statement is a duty of both sides.
fn about(case: &Case, statements: &Statements) -> Result<Vec<StatementId>, String> {
    let ids =
        case.versions.iter().map(|version| StatementId { version: *version, number: case.number.clone() });
    // A case of all versions may concern a statement that one of the versions does not have.
    let known: Vec<&Statement> = ids.filter_map(|id| statements.find(&id)).collect();
    if known.is_empty() && !case.versions.is_empty() {
        return Err(format!("{}: there is no statement {}", case.name, case.number));
    }
    let counts = |statement: &&Statement| !case.is_of_server || statement.side == "both";
    Ok(known.into_iter().filter(counts).map(|statement| statement.id.clone()).collect())
}

/// Returns the files in a folder and below it, in an order that does not depend on the machine.
fn files_in(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("{folder}: {error}"))?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files.extend(files_in(root, &path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
