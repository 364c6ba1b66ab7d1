//! The rules of order between threads: each is named in the code that keeps it, and shown by tests that exist.

use crate::source::Source;

/// The list of the rules.
pub(crate) const LIST: &str = "crates/protocol/src/order.rs";

/// A rule of the list, with the places and tests that it names.
#[derive(Debug, Default)]
struct Rule {
    number: usize,
    /// Paths of the files that keep it.
    kept_in: Vec<String>,
    /// Names of the tests that show it.
    shown_by: Vec<String>,
}

/// Each rule that is out of its place in the list, that a file does not name, or that no test shows.
pub(crate) fn findings(list: &str, sources: &[Source]) -> Vec<String> {
    let rules = rules(list);
    let mut findings = Vec::new();
    for (rule, number) in rules.iter().zip(1..) {
        if rule.number != number {
            findings.push(format!("{LIST}: rule {} is where rule {number} should be", rule.number));
        }
        if rule.kept_in.is_empty() || rule.shown_by.is_empty() {
            findings.push(format!("{LIST}: rule {number} is kept nowhere or shown by nothing"));
        }
        let is_named = |path: &&String| {
            let source = sources.iter().find(|source| source.path == **path);
            source.is_some_and(|source| names(&source.text, number))
        };
        let unnamed = rule.kept_in.iter().filter(|path| !is_named(path));
        findings.extend(unnamed.map(|path| format!("{path}: rule {number} is not named here")));
        let is_there = |test: &&String| {
            let head = format!("fn {test}()");
            sources.iter().any(|source| source.text.contains(&head))
        };
        let missing = rule.shown_by.iter().filter(|test| !is_there(test));
        findings.extend(missing.map(|test| format!("{LIST}: rule {number}: there is no test {test}")));
    }
    findings
}

fn rules(list: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut is_of_tests = false;
    for line in list.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim) {
        if let Some(title) = line.strip_prefix("# Rule ") {
            let number = title.split(':').next().and_then(|number| number.parse().ok());
            rules.push(Rule { number: number.expect("a rule has a number"), ..Rule::default() });
        }
        let Some(rule) = rules.last_mut() else { continue };
        is_of_tests = line.starts_with("Shown by ") || (is_of_tests && line.starts_with('`'));
        let quoted = line.split('`').skip(1).step_by(2).map(str::to_owned);
        if is_of_tests {
            rule.shown_by.extend(quoted);
        } else if line.starts_with("Kept in ") {
            rule.kept_in.extend(quoted);
        }
    }
    rules
}

/// Whether a comment says `rule N`, and not only `rule NN`.
fn names(text: &str, number: usize) -> bool {
    let comments = text
        .lines()
        .filter_map(|line| line.split_once("//").map(|(_, comment)| comment.trim_start_matches('/')));
    let words: Vec<&str> = comments.flat_map(str::split_whitespace).collect();
    words.windows(2).any(|pair| {
        let digits = pair[1].trim_matches(|character: char| !character.is_ascii_digit());
        pair[0].trim_matches('(').eq_ignore_ascii_case("rule") && digits.parse() == Ok(number)
    })
}

#[test]
fn a_rule_without_its_number_or_its_test_is_found() {
    let list = "//! # Rule 1: a\n//! Kept in `a.rs`, `b.rs`.\n//! Shown by `one`,\n//! `two`.\n\
        //! # Rule 3: b\n//! Kept in `b.rs`.\n";
    let sources = [
        Source::parse("a.rs", "/// See (rule 1 of the order).\n#[test]\nfn one() {}\n"),
        Source::parse("b.rs", "// Rule 12: it is another one.\n"),
    ];
    let expected = [
        "b.rs: rule 1 is not named here".to_owned(),
        format!("{LIST}: rule 1: there is no test two"),
        format!("{LIST}: rule 3 is where rule 2 should be"),
        format!("{LIST}: rule 2 is kept nowhere or shown by nothing"),
        "b.rs: rule 2 is not named here".to_owned(),
    ];
    assert_eq!(findings(list, &sources), expected);
}
