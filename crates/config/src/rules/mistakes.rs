//! Mistakes in a file with rules. They name no values apart from the names of roles, users and keys.

use std::fmt;

/// Maximum number of mistakes that are shown.
const SHOWN_MAX: usize = 20;

/// All mistakes in a file with rules, in their order. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesProblems(Vec<RulesProblem>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct RulesProblem {
    line: u32,
    /// From 1, in characters.
    column: usize,
    text: String,
}

impl fmt::Display for RulesProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, RulesProblem { line, column, text }) in self.0.iter().take(SHOWN_MAX).enumerate() {
            let before = if number == 0 { "" } else { "\n  " };
            write!(f, "{before}line {line}, column {column}: {text}")?;
        }
        match self.0.len() {
            all if all > SHOWN_MAX => write!(f, "\n  and {} more", all - SHOWN_MAX),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for RulesProblems {}

/// The mistakes that were found so far, and the lines of the file.
pub(super) struct Mistakes<'a> {
    text: &'a str,
    /// The place of the first byte of each line.
    lines: Vec<usize>,
    found: Vec<(usize, String)>,
}

impl<'a> Mistakes<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, lines, found: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether the next mistake may be one of those that are shown.
    pub(super) fn are_shown(&self) -> bool {
        self.found.len() < SHOWN_MAX
    }

    /// The number of the line with a place, from 1.
    pub(super) fn line(&self, place: usize) -> u32 {
        u32::try_from(self.lines.partition_point(|start| *start <= place)).unwrap_or(u32::MAX)
    }

    pub(super) fn note(&mut self, place: usize, text: String) {
        self.found.push((place, text));
    }

    /// Notes that the text is no TOML.
    pub(super) fn note_syntax(&mut self, error: &toml::de::Error) {
        let place = error.span().map_or(self.text.len(), |span| span.start);
        // Further errors in the same line are mostly consequences of the first one.
        if self.found.last().is_none_or(|(last, _)| self.line(*last) != self.line(place)) {
            self.note(place, format!("this is not TOML: {}", error.message()));
        }
    }

    pub(super) fn into_problems(mut self) -> RulesProblems {
        self.found.sort_by_key(|(place, _)| *place);
        let problem = |(place, text): &(usize, String)| {
            let line = self.line(*place);
            let start = self.lines[line as usize - 1];
            let column = 1 + self.text.get(start..*place).map_or(0, |before| before.chars().count());
            RulesProblem { line, column, text: text.clone() }
        };
        RulesProblems(self.found.iter().map(problem).collect())
    }
}
