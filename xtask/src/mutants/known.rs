//! Mutants that no test can notice, each with the reason.

use std::fs;

use super::mutant::Mutant;
use crate::house::House;

/// The file with the table. Each line has the fields `PATH`, `MUTANT`, `LINE` and `REASON`, separated by tabs.
///
/// `LINE` is the first line of code that the mutant changes. An entry therefore remains valid if that line moves.
pub(crate) const PATH: &str = "tests/mutants/equivalent.tsv";

/// The table of equivalent mutants.
#[derive(Debug)]
pub(crate) struct Known {
    entries: Vec<[String; 4]>,
}

impl Known {
    /// Reads the table.
    ///
    /// # Errors
    /// If the table cannot be read, or a line does not have four fields.
    pub(crate) fn read(house: &House) -> Result<Self, String> {
        let text = fs::read_to_string(house.root().join(PATH)).map_err(|error| format!("{PATH}: {error}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entry = |line: &str| {
            let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
            let fields: Result<[String; 4], _> = fields.try_into();
            let fields = fields.map_err(|_| format!("{PATH}: not four fields: {line}"))?;
            if fields.iter().any(String::is_empty) {
                return Err(format!("{PATH}: a field is empty: {line}"));
            }
            Ok(fields)
        };
        Ok(Self { entries: lines.map(entry).collect::<Result<_, _>>()? })
    }

    /// The reason why a mutant is equivalent, if the table contains it.
    pub(crate) fn reason(&self, mutant: &Mutant) -> Option<&str> {
        self.entries.iter().find(|entry| is_of(entry, mutant)).map(|entry| entry[3].as_str())
    }

    /// Returns the entries that match none of these mutants.
    pub(crate) fn without_mutant<'a>(&'a self, mutants: &'a [Mutant]) -> impl Iterator<Item = String> + 'a {
        let is_stale = |entry: &&[String; 4]| !mutants.iter().any(|mutant| is_of(entry, mutant));
        self.entries.iter().filter(is_stale).map(|entry| entry[..3].join(", "))
    }
}

fn is_of([path, change, line, _]: &[String; 4], mutant: &Mutant) -> bool {
    *path == mutant.path && *change == mutant.change && *line == mutant.line()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_wherever_its_line_stands_until_it_is_changed() {
        let known =
            Known::parse("# why\na.rs\treplace < with <= in f\tif a < b {\tthey are never equal\n").unwrap();
        let mutant = |line: &str| Mutant {
            path: "a.rs".to_owned(),
            position: "7:8".to_owned(),
            change: "replace < with <= in f".to_owned(),
            diff: format!("--- a.rs\n+++ replace\n@@ -6,3 +6,3 @@\n fn f() {{\n-    {line}\n+    b\n }}\n"),
        };
        let [same, other] = [mutant("if a < b {"), mutant("if a < c {")];
        assert_eq!(known.reason(&same), Some("they are never equal"));
        assert_eq!(known.reason(&other), None);
        assert_eq!(known.without_mutant(&[same]).count(), 0);
        assert_eq!(known.without_mutant(&[other]).count(), 1);
        assert!(Known::parse("a.rs\tx\ty\n").is_err());
        assert!(Known::parse("a.rs\tx\ty\t\n").is_err());
    }
}
