//! Reads acceptance features in Gherkin, the language of Cucumber: the part of it that our features use.
//!
//! These are `Feature`, `Scenario`, `Scenario Outline` with one table of `Examples`, the steps `Given`, `When`, `Then` and
//! `And`, tables below steps, and comments. Everything else is an error, so that no line is passed over in silence.
//!
//! # Why not a library
//! Cucumber for Rust brings 62 crates, which take longer to compile than all scenarios take to run.

use std::fmt;

/// The word before a step. `And` stands for the word of the step before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyword {
    /// The state that a scenario begins with.
    Given,
    /// The event that a scenario is about.
    When,
    /// The result that is seen from outside.
    Then,
}

/// One line of a scenario, with its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file; the first one is 1.
    pub line: usize,
    /// The word before it.
    pub keyword: Keyword,
    /// The words behind the keyword.
    pub text: String,
    /// The rows below it, cell by cell; empty if it has no table.
    pub table: Vec<Vec<String>>,
}

/// A scenario that can be run. An outline makes one of each row of its examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its line in the file, or the line of the example.
    pub line: usize,
    /// The words behind `Scenario:`.
    pub name: String,
    /// Its steps, in order; at least one.
    pub steps: Vec<Step>,
}

/// A line that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The number of the line; the first one is 1.
    pub line: usize,
    /// The words that are wrong there, and why.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Fault {}

/// Reads the scenarios of a feature, in order.
///
/// # Errors
/// If the text has a line that is no part of a feature, a table with rows of different lengths, a scenario without steps, an
/// outline without examples, or a name in angle brackets that the examples do not have.
pub fn read(text: &str) -> Result<Vec<Scenario>, Fault> {
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        let line_number = at + 1;
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            reader.line(line_number, line).map_err(|reason| Fault { line: line_number, reason })?;
        }
    }
    reader.end()
}

/// The parts of a scenario, before its examples are put in.
#[derive(Debug)]
struct Outline {
    line: usize,
    name: String,
    has_examples: bool,
    steps: Vec<Step>,
    /// The first row has the names of the columns.
    examples: Vec<(usize, Vec<String>)>,
}

#[derive(Debug, Default)]
struct Reader {
    has_feature: bool,
    outlines: Vec<Outline>,
    /// The next rows belong to the examples.
    in_examples: bool,
}

impl Reader {
    fn line(&mut self, line_number: usize, line: &str) -> Result<(), String> {
        if line.starts_with("Feature:") {
            return match std::mem::replace(&mut self.has_feature, true) {
                false => Ok(()),
                true => Err("a file has one feature".to_owned()),
            };
        }
        if !self.has_feature {
            return Err("a file begins with `Feature:`".to_owned());
        }
        let begins = |word| line.strip_prefix(word).map(str::trim);
        let scenario = begins("Scenario Outline:").map(|name| (name, true));
        if let Some((name, has_examples)) = scenario.or(begins("Scenario:").map(|name| (name, false))) {
            let (name, steps, examples) = (name.to_owned(), Vec::new(), Vec::new());
            self.outlines.push(Outline { line: line_number, name, has_examples, steps, examples });
            self.in_examples = false;
            return Ok(());
        }
        let Some(outline) = self.outlines.last_mut() else { return describe(line) };
        if line == "Examples:" {
            self.in_examples = outline.has_examples && outline.examples.is_empty();
            return self.in_examples.then_some(()).ok_or("an outline has one table of examples".to_owned());
        }
        if line.starts_with('|') {
            return outline.row(line_number, cells(line)?, self.in_examples);
        }
        if self.in_examples {
            return Err("examples are the last part of an outline".to_owned());
        }
        outline.step(line_number, line)
    }

    fn end(self) -> Result<Vec<Scenario>, Fault> {
        if self.outlines.is_empty() {
            return Err(Fault {
                line: 1,
                reason: "a file has a feature with at least one scenario".to_owned(),
            });
        }
        let scenarios = self.outlines.into_iter().map(Outline::scenarios).collect::<Result<Vec<_>, _>>()?;
        Ok(scenarios.into_iter().flatten().collect())
    }
}

impl Outline {
    fn step(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (word, text) = text.split_once(' ').unwrap_or((text, ""));
        let keyword = match word {
            "Given" => Some(Keyword::Given),
            "When" => Some(Keyword::When),
            "Then" => Some(Keyword::Then),
            "And" => self.steps.last().map(|step| step.keyword),
            _ => None,
        };
        let keyword = keyword.ok_or_else(|| format!("no step begins with `{word}` here"))?;
        if text.is_empty() {
            return Err(format!("`{word}` needs words behind it"));
        }
        self.steps.push(Step { line, keyword, text: text.trim().to_owned(), table: Vec::new() });
        Ok(())
    }

    fn row(&mut self, line: usize, row: Vec<String>, is_example: bool) -> Result<(), String> {
        let (columns, of_what) = if is_example {
            (self.examples.first().map(|(_, row)| row.len()), "the examples")
        } else {
            let step = self.steps.last().ok_or("a table follows a step")?;
            (step.table.first().map(Vec::len), "the table")
        };
        if let Some(columns) = columns.filter(|columns| *columns != row.len()) {
            return Err(format!("the row has {} cells, and {of_what} {columns} columns", row.len()));
        }
        if is_example {
            let is_twice = |at: usize| row[..at].contains(&row[at]);
            if self.examples.is_empty() && (1..row.len()).any(is_twice) {
                return Err("two columns have the same name".to_owned());
            }
            self.examples.push((line, row));
        } else if let Some(step) = self.steps.last_mut() {
            step.table.push(row);
        }
        Ok(())
    }

    fn scenarios(self) -> Result<Vec<Scenario>, Fault> {
        let fault = |line, reason: &str| Fault { line, reason: reason.to_owned() };
        if self.steps.is_empty() {
            return Err(fault(self.line, "a scenario without steps shows nothing"));
        }
        let rows: Vec<(usize, Vec<(&str, &str)>)> = match self.examples.split_first() {
            None if self.has_examples => return Err(fault(self.line, "an outline needs examples")),
            None => vec![(self.line, Vec::new())],
            Some((_, [])) => return Err(fault(self.line, "the examples have no row")),
            Some(((_, names), rows)) => rows.iter().map(|(line, row)| (*line, pairs(names, row))).collect(),
        };
        rows.iter().map(|(line, values)| self.with(*line, values)).collect()
    }

    /// The scenario with these values for the names in angle brackets.
    fn with(&self, line: usize, values: &[(&str, &str)]) -> Result<Scenario, Fault> {
        let put = |line, text: &str| put_in(text, values).map_err(|reason| Fault { line, reason });
        let step = |step: &Step| -> Result<Step, Fault> {
            let row = |row: &Vec<String>| row.iter().map(|cell| put(step.line, cell)).collect();
            let table = step.table.iter().map(row).collect::<Result<_, _>>()?;
            Ok(Step { text: put(step.line, &step.text)?, table, ..*step })
        };
        let steps = self.steps.iter().map(step).collect::<Result<_, _>>()?;
        Ok(Scenario { line, name: put(self.line, &self.name)?, steps })
    }
}

/// Lines between a feature and its first scenario describe it, in sentences. Anything else would be passed over here.
fn describe(line: &str) -> Result<(), String> {
    let first_words = line.split(' ').take(2);
    let is_keyword = |word: &str| ["Given", "When", "Then", "And", "But", "*"].contains(&word);
    let is_sentence = !["|", "@", "\"\"\""].iter().any(|mark| line.starts_with(mark))
        && !first_words.clone().any(|word| word.ends_with(':'))
        && !first_words.take(1).any(is_keyword);
    is_sentence
        .then_some(())
        .ok_or("a description is in sentences, and ends at the first scenario".to_owned())
}

fn pairs<'a>(names: &'a [String], row: &'a [String]) -> Vec<(&'a str, &'a str)> {
    names.iter().map(String::as_str).zip(row.iter().map(String::as_str)).collect()
}

/// The cells of a row such as `| 82 len | SUBSCRIBE |`.
fn cells(line: &str) -> Result<Vec<String>, String> {
    let inner = line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|'));
    let inner = inner.ok_or("a row begins and ends with `|`")?;
    if inner.contains('\\') {
        return Err("escapes in tables are not supported".to_owned());
    }
    Ok(inner.split('|').map(|cell| cell.trim().to_owned()).collect())
}

/// The text, with a value for each name in angle brackets.
fn put_in(text: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let (name, behind) =
            after.split_once('>').ok_or_else(|| format!("`{text}` has a `<` without `>`"))?;
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        out.extend([before, value.ok_or_else(|| format!("the examples have no column `{name}`"))?]);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEATURE: &str = "\
Feature: Croak
  Those who listen hear it.

  # The simplest case
  Scenario: Nobody listens
    When frog sends
      | 30 | PUBLISH |
      | 00 |         |

  Scenario Outline: <who> listens in <what version>
    Given <who> is there
    And <who> has received
      | 90 <what version> |
    When frog leaves
    Then <who> stays

    Examples:
      | who  | what version |
      | toad | 5            |
      | newt |              |
";

    #[test]
    fn an_outline_makes_a_scenario_of_each_example() {
        let scenarios = read(FEATURE).unwrap();
        let names: Vec<_> = scenarios.iter().map(|scenario| (scenario.line, &scenario.name[..])).collect();
        assert_eq!(names, [(5, "Nobody listens"), (19, "toad listens in 5"), (20, "newt listens in ")]);
        assert_eq!(scenarios[0].steps[0].table, [["30", "PUBLISH"], ["00", ""]]);
        let steps: Vec<_> = scenarios[2].steps.iter().map(|step| (step.keyword, &step.text[..])).collect();
        let expected = [
            (Keyword::Given, "newt is there"),
            (Keyword::Given, "newt has received"),
            (Keyword::When, "frog leaves"),
            (Keyword::Then, "newt stays"),
        ];
        assert_eq!(steps, expected);
        assert_eq!((&scenarios[1].steps[1].table[0][0][..], scenarios[1].steps[1].line), ("90 5", 12));
    }

    /// Each change of the feature, and the line and words of its fault.
    #[test]
    fn no_line_is_passed_over() {
        let faults = [
            ("Feature: Croak", "Croak", 1, "begins with `Feature:`"),
            ("When frog sends", "If frog sends", 6, "begins with `If`"),
            ("When frog sends", "And frog sends", 6, "begins with `And`"),
            ("    When frog sends\n", "", 6, "follows a step"),
            ("      | 00 |         |", "      | 00 |", 8, "1 cells"),
            ("      | 00 |         |", "      | 00 | a", 8, "ends with `|`"),
            ("| 00 |", "| \\| |", 8, "escapes"),
            ("      | 00 |         |", "    Examples:", 8, "one table of examples"),
            ("      | newt |              |", "      | newt |", 20, "1 cells"),
            ("      | newt |              |", "    Then it goes on", 20, "last part"),
            ("      | newt |              |", "    Examples:", 20, "one table of examples"),
            ("      | newt |              |", "Feature: Two", 20, "one feature"),
            ("Given <who> is", "Given <whom> is", 11, "no column `whom`"),
            ("Given <who> is", "Given <who is", 11, "without `>`"),
            ("When frog sends", "When <frog> sends", 6, "no column `frog`"),
            ("When frog sends", "When", 6, "needs words"),
            ("| who  | what version |", "| who  | who |", 18, "the same name"),
            ("      | toad | 5            |\n      | newt |              |\n", "", 10, "have no row"),
        ];
        for (from, to, line, reason) in faults {
            let changed = FEATURE.replacen(from, to, 1);
            assert_ne!(changed, FEATURE, "{from}");
            let fault = read(&changed).expect_err(to);
            assert!(fault.line == line && fault.reason.contains(reason), "{from} → {to}: {fault}");
        }
        let before_the_first = [
            "Scenaro: x",
            "Scenario outline: x",
            "Background:",
            "@skip",
            "Given a",
            "And a",
            "| 00 |",
            "* a",
        ];
        for line in before_the_first {
            let fault = read(&FEATURE.replacen("  # The simplest case", line, 1)).expect_err(line);
            assert!(fault.line == 4 && fault.reason.contains("in sentences"), "{line}: {fault}");
        }
        for empty in ["", "# nothing\n", "Feature: F\n"] {
            let fault = read(empty).expect_err(empty);
            assert!(fault.reason.contains("at least one scenario"), "{empty}: {fault}");
        }
        let without_steps = read("Feature: F\nScenario: S\n").unwrap_err();
        assert_eq!(without_steps.to_string(), "line 2: a scenario without steps shows nothing");
        let without_examples = read("Feature: F\nScenario Outline: S\nWhen a\n").unwrap_err();
        assert_eq!(without_examples.to_string(), "line 2: an outline needs examples");
    }
}
