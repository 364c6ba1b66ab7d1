//! The index of ARCHITECTURE.md: each row names a function that is in its file.

use crate::source::Source;

/// The page with the index.
pub(crate) const PAGE: &str = "ARCHITECTURE.md";
const TITLE: &str = "## Where is …?";

/// Every row whose file or function is not there, and an index that is too short.
pub(crate) fn findings(page: &str, sources: &[Source]) -> Vec<String> {
    let section = page.split(TITLE).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    let rows: Vec<Vec<&str>> = section.lines().filter(|line| line.contains(".rs`")).map(quoted).collect();
    let is_there = |path: &str, function: &str| {
        let path = format!("crates/{path}");
        let source = sources.iter().find(|source| source.path == path);
        source.is_some_and(|source| source.functions().iter().any(|found| found.name == function))
    };
    let missing = rows.iter().filter(|row| !matches!(row[..], [path, function] if is_there(path, function)));
    let mut findings: Vec<String> =
        missing.map(|row| format!("{PAGE}: {} is not there", row.join(" "))).collect();
    if rows.len() < 30 {
        findings.push(format!("{PAGE}: {} questions, at least 30", rows.len()));
    }
    findings
}

fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

#[test]
fn a_row_whose_function_has_moved_is_found() {
    let sources = [Source::parse("crates/a/src/lib.rs", "fn one() {}")];
    let page = format!(
        "{TITLE}\n| a? | `a/src/lib.rs` | `one` |\n| b? | `a/src/lib.rs` | `two` |\n\n## Next\n`x.rs`"
    );
    let expected =
        [format!("{PAGE}: a/src/lib.rs two is not there"), format!("{PAGE}: 2 questions, at least 30")];
    assert_eq!(findings(&page, &sources), expected);
}
