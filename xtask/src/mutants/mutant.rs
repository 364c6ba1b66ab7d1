//! A small change to the code, in the format of cargo-mutants.

use std::path::Path;

use crate::house::House;

/// One change to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Path of the file, relative to the root of the workspace.
    pub(crate) path: String,
    /// Line and column, as `LINE:COLUMN`.
    pub(crate) position: String,
    /// Description of the change, such as `replace < with <= in f`.
    pub(crate) change: String,
    /// The change as a diff with one hunk.
    pub(crate) diff: String,
}

/// The comment that cargo-mutants adds to its own code.
const REMARK: &str = " /* ~ changed by cargo-mutants ~ */";

impl Mutant {
    pub(crate) fn place(&self) -> String {
        format!("{}:{}: {}", self.path, self.position, self.change)
    }

    /// The folder name of the mutant's crate.
    pub(crate) fn crate_name(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// The first line that the mutant changes, without indentation.
    pub(crate) fn line(&self) -> &str {
        let is_taken_out = |line: &&str| line.starts_with('-') && !line.starts_with("--- ");
        self.diff.lines().find(is_taken_out).map_or("", |line| line[1..].trim())
    }

    /// Returns the text of the file with the change.
    ///
    /// # Errors
    /// If the text differs from the one for which the mutant was listed.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        let stale = || format!("{}: the file is another one than was listed", self.place());
        let mut hunk = self.diff.lines().skip_while(|line| !line.starts_with("@@ "));
        let begin = hunk.next().and_then(|line| line.strip_prefix("@@ -")?.split([',', ' ']).next());
        let begin: usize = begin.and_then(|begin| begin.parse().ok()).ok_or_else(stale)?;
        let mut old = text.lines();
        let mut lines: Vec<&str> = old.by_ref().take(begin.saturating_sub(1)).collect();
        for line in hunk {
            let (mark, code) = line.split_at_checked(1).unwrap_or((" ", ""));
            if mark != "+" && old.next() != Some(code) {
                return Err(stale());
            }
            if mark != "-" {
                lines.push(code);
            }
        }
        lines.extend(old);
        Ok(lines.join("\n") + "\n")
    }
}

/// Lists all mutants of these crates, except functions that return a default value. Most types have no default, and
/// a build that fails shows nothing.
///
/// # Errors
/// If cargo-mutants cannot be run, or fails.
pub(crate) fn list(house: &House, program: &Path, crates: &[&str]) -> Result<Vec<Mutant>, String> {
    let mut command = house.command(program);
    command.args(["mutants", "--list", "--diff", "--colors", "never"]);
    for name in crates {
        command.args(["--package", &format!("pondhawk-{name}")]);
    }
    let output = command.output().map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo-mutants: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mut mutants = parse(&String::from_utf8_lossy(&output.stdout))?;
    mutants.retain(|mutant| !mutant.change.contains("Default::default()"));
    Ok(mutants)
}

/// Parses a list of mutants. Each is a line `PATH:LINE:COLUMN: CHANGE`, and a diff whose first line names the same
/// path.
fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let begins_at = |at: &usize| {
        let path = lines.get(at + 1).and_then(|line| line.strip_prefix("--- "));
        path.is_some_and(|path| lines[*at].starts_with(path))
    };
    let begins: Vec<usize> = (0..lines.len()).filter(begins_at).chain([lines.len()]).collect();
    begins.windows(2).map(|pair| mutant(&lines[pair[0]..pair[1]])).collect()
}

fn mutant(lines: &[&str]) -> Result<Mutant, String> {
    let head = lines[0];
    let parts: Option<(&str, &str)> = head.split_once(": ");
    let (place, change) = parts.ok_or_else(|| format!("cargo-mutants lists `{head}`"))?;
    let (path, position) = place.split_once(':').ok_or_else(|| format!("cargo-mutants lists `{head}`"))?;
    let diff = lines[1..].join("\n").replace(REMARK, "").trim_end().to_owned() + "\n";
    Ok(Mutant { path: path.to_owned(), position: position.to_owned(), change: change.to_owned(), diff })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "crates/a/src/b.rs:3:7: replace f -> u8 with 0
--- crates/a/src/b.rs
+++ replace f -> u8 with 0
@@ -2,4 +2,3 @@
 fn f() -> u8 {
-    let x = 7;
-    x
+    0 /* ~ changed by cargo-mutants ~ */
 }

crates/a/src/c.rs:1:1: replace < with > in g
--- crates/a/src/c.rs
+++ replace < with > in g
@@ -1,1 +1,1 @@
-a < b
+a > b
";

    #[test]
    fn a_list_is_read_and_applied() {
        let mutants = parse(LIST).unwrap();
        assert_eq!(mutants.len(), 2);
        assert_eq!(mutants[0].place(), "crates/a/src/b.rs:3:7: replace f -> u8 with 0");
        assert_eq!((mutants[0].crate_name(), mutants[0].line()), ("a", "let x = 7;"));
        let text = "// b\nfn f() -> u8 {\n    let x = 7;\n    x\n}\n// end\n";
        assert_eq!(mutants[0].apply(text).unwrap(), "// b\nfn f() -> u8 {\n    0\n}\n// end\n");
        assert_eq!(mutants[1].apply("a < b\nc\n").unwrap(), "a > b\nc\n");
        assert!(mutants[1].apply("a <= b\n").is_err());
    }
}
