//! Finds tests in source files, with their doc comments.

/// A test and its doc comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// The doc comment as one line.
    pub(crate) doc: String,
    pub(crate) is_ignored: bool,
}

/// Returns the test functions of a Rust file. The file must be formatted, with attributes and doc comments on lines
/// of their own. Doc comments of other items are ignored.
pub(crate) fn tests_in_rust(text: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut above = Above::default();
    for line in text.lines().map(str::trim) {
        if above.is_inside_attribute || line.starts_with("#[") {
            above.attribute(line);
        } else if let Some(doc) = line.strip_prefix("///") {
            above.doc.push(doc.trim());
        } else {
            let finished = std::mem::take(&mut above);
            if let Some(name) = line.strip_prefix("fn ").filter(|_| finished.is_test) {
                let end = name.find(['(', '<']).unwrap_or(name.len());
                let is_ignored = finished.is_ignored;
                tests.push(Test { name: name[..end].to_owned(), doc: finished.doc.join(" "), is_ignored });
            }
        }
    }
    tests
}

/// Attributes and doc comments above the current line.
#[derive(Debug, Default)]
struct Above<'a> {
    doc: Vec<&'a str>,
    is_test: bool,
    is_ignored: bool,
    is_inside_attribute: bool,
}

impl Above<'_> {
    fn attribute(&mut self, line: &str) {
        self.is_test |= line == "#[test]";
        self.is_ignored |= line.starts_with("#[ignore");
        self.is_inside_attribute = !line.ends_with(']');
    }
}

/// Returns the scenarios of a feature file, with the comment directly above each of them.
pub(crate) fn scenarios_in(text: &str) -> Vec<Test> {
    let mut scenarios = Vec::new();
    let mut comment = Vec::new();
    for line in text.lines().map(str::trim) {
        let title = line.strip_prefix("Scenario Outline:").or_else(|| line.strip_prefix("Scenario:"));
        if let Some(said) = line.strip_prefix('#') {
            comment.push(said.trim());
            continue;
        }
        if let Some(title) = title {
            let name = title.trim().to_owned();
            scenarios.push(Test { name, doc: comment.join(" "), is_ignored: false });
        }
        comment.clear();
    }
    scenarios
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_docs(tests: Vec<Test>) -> Vec<(String, String)> {
        tests.into_iter().map(|test| (test.name, test.doc)).collect()
    }

    fn pair(name: &str, doc: &str) -> (String, String) {
        (name.to_owned(), doc.to_owned())
    }

    #[test]
    fn only_what_stands_directly_above_a_test_counts() {
        let text = "\
/// Not a test. [MQTT-1-1]
fn plain() {}

/// Lost. [MQTT-1-2]

/// Shows something. [MQTT-2-1,
/// MQTT-2-2]
#[test]
fn a_test() {}

#[test]
#[expect(
    clippy::unwrap_used,
    reason = \"it is a test\"
)]
/// Behind the attribute. [MQTT-3-1]
fn another<T>() {}
";
        assert_eq!(
            names_and_docs(tests_in_rust(text)),
            [
                pair("a_test", "Shows something. [MQTT-2-1, MQTT-2-2]"),
                pair("another", "Behind the attribute. [MQTT-3-1]")
            ]
        );
    }

    #[test]
    fn an_ignored_test_is_told_apart() {
        let tests = tests_in_rust("#[test]\n#[ignore = \"slow\"]\nfn a() {}\n#[test]\nfn b() {}\n");
        assert_eq!(tests.iter().map(|test| test.is_ignored).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_scenario_has_the_comment_directly_above_it() {
        let text = "\
Feature: Ping

  # Lost.

  # [MQTT-1-1]
  Scenario: A ping
    Given frog

  Scenario Outline: Another in <version>
";
        assert_eq!(
            names_and_docs(scenarios_in(text)),
            [pair("A ping", "[MQTT-1-1]"), pair("Another in <version>", "")]
        );
    }
}
