//! The page of costs names tests: they have to exist.

use std::collections::BTreeSet;

use crate::source::Source;

/// The page.
pub(crate) const PAGE: &str = "docs/COSTS.md";

/// Each test that a table of the page names in its last column, and that no source has.
pub(crate) fn findings(page: &str, sources: &[Source]) -> Vec<String> {
    let functions: BTreeSet<&str> = sources.iter().flat_map(|source| functions_of(&source.text)).collect();
    let rows = page.lines().zip(1..).filter(|(line, _)| line.starts_with("| ") && line.ends_with(" |"));
    let mut findings = Vec::new();
    for (row, line) in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let named = last.split('`').skip(1).step_by(2).filter(|name| !functions.contains(name));
        findings.extend(named.map(|name| format!("{PAGE}:{line}: there is no test {name}")));
    }
    findings
}

fn functions_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split(['(', '<']).next())
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let sources = [Source::parse("a.rs", "#[test]\nfn one_is_there() {}\n")];
    let page =
        "| step | cost | bound | test |\n|---|---|---|---|\n| a | `b` | `c` | `one_is_there`, `another` |\n";
    assert_eq!(findings(page, &sources), ["docs/COSTS.md:3: there is no test another"]);
    assert!(findings("| a | `b` | `c` | - |\n", &sources).is_empty());
}
