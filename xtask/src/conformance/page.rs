//! Renders the page of statements and tests.

use std::fmt::Write as _;

use super::evidence::{Evidence, Shown};
use super::statements::{Statement, Statements, Version};

const HEAD: &str = "\
# Conformance

<!-- Written by `cargo xtask docs` from tests/conformance/statements.tsv and the doc comments of tests. -->

Every normative statement of MQTT 5.0 and of 3.1.1, in our own words; the identifiers are those of the standards, where
the exact text stands. *We do* says what is to be said beyond the rule. A test is listed if it fails when the rule is
broken; [CONTRIBUTING.md](../CONTRIBUTING.md) says how a test names its statements. Where a statement is the client's
duty, the test shows what the broker does to a client that breaks it, or what the client role of the session does.

MQTT 3.1 has no numbered statements. It is served by the rules of 3.1.1, but for what *we do* says.
";

/// Returns the text of the page.
pub(crate) fn render(statements: &Statements, evidence: &Evidence) -> String {
    let mut page = HEAD.to_owned();
    for (folder, tests) in &evidence.tables {
        let tests: Vec<String> = tests.iter().map(link).collect();
        line(&mut page, &format!("\nThe cases of `{folder}` are run by {}.", tests.join(", ")));
    }
    for version in Version::ALL {
        let of_version = || statements.iter().filter(|statement| statement.id.version == version);
        let excused = of_version().filter(|statement| !statement.excuse.is_empty()).count();
        line(&mut page, &format!("\n## MQTT {version}\n"));
        line(&mut page, &format!("{} statements, {excused} of them excused.\n", of_version().count()));
        line(&mut page, "| statement | whose | it says | we do | shown by |\n|---|---|---|---|---|");
        of_version().for_each(|statement| line(&mut page, &row(statement, evidence)));
    }
    page
}

fn line(page: &mut String, line: &str) {
    writeln!(page, "{line}").expect("a string takes everything");
}

fn row(statement: &Statement, evidence: &Evidence) -> String {
    let Statement { id, side, rule, we_do, excuse } = statement;
    let shown: Vec<String> = evidence.of(id).iter().map(link).collect();
    let shown = match (excuse.is_empty(), shown.is_empty()) {
        (true, true) => "**nothing**".to_owned(),
        (true, false) => shown.join("<br>"),
        (false, _) => format!("excused: {excuse}"),
    };
    format!("| {} | {side} | {rule} | {we_do} | {shown} |", id.number)
}

/// Returns a link to a test or a case. The name of a case may contain any characters, and a bar or a bracket would
/// end the table cell or the link.
fn link(shown: &Shown) -> String {
    let Shown { name, path } = shown;
    let is_function = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let (text, target) = if is_function {
        (format!("`{name}`"), format!("{path}#{name}"))
    } else {
        (name.replace(['[', ']', '|', '<', '>', '`'], " "), path.clone())
    };
    format!("[{text}](../{target})")
}
