//! The result of a translation: keys with their origins, remarks, and problems.

use std::fmt::{self, Write};

use crate::line::Place;
use crate::model::Given;
use crate::problem::Problem;

/// The fate of a line whose meaning is not exactly kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The line has become a key with another meaning.
    Changed,
    /// Nothing of the line is needed.
    Ignored,
    /// The broker cannot do this yet, and starts without it.
    NotYet,
}

/// A sentence about one line of Mosquitto's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The file and the line.
    pub place: Place,
    /// The line, without secrets.
    pub line: String,
    /// The fate of the line.
    pub kind: Kind,
    /// The sentence, without a full stop.
    pub text: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Changed => "changed",
            Kind::Ignored => "ignored",
            Kind::NotYet => "not yet",
        };
        write!(f, "{}: {}: {kind}: {}", self.place, self.line, self.text)
    }
}

/// A table of our file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Top,
    Auth,
    Listener(usize),
    Limits,
    Sessions,
    Log,
    Sys,
}

impl Table {
    const fn header(self) -> &'static str {
        match self {
            Self::Top => "",
            Self::Auth => "[auth]",
            Self::Listener(_) => "[[listener]]",
            Self::Limits => "[limits]",
            Self::Sessions => "[sessions]",
            Self::Log => "[log]",
            Self::Sys => "[sys]",
        }
    }
}

/// A value of our file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Toml {
    Flag(bool),
    Number(u64),
    Text(String),
    List(Vec<String>),
}

impl fmt::Display for Toml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::List(texts) => {
                write!(f, "[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl From<bool> for Toml {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for Toml {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Toml {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Toml {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Returns the text as a basic string of TOML. `${` has no meaning in Mosquitto's files.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.replace("${", "$${").chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// A key with its value, and the lines from which it comes.
#[derive(Debug, Clone)]
struct Entry {
    table: Table,
    key: &'static str,
    value: Toml,
    /// The lines, the most important one first. Empty for a default of Mosquitto.
    origins: Vec<Origin>,
}

/// A line of Mosquitto's files behind a key of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file and the line.
    pub place: Place,
    /// The line, without secrets.
    pub line: String,
}

impl From<&Given> for Origin {
    fn from(given: &Given) -> Self {
        Self { place: given.place.clone(), line: given.shown.clone() }
    }
}

/// Collects keys, remarks and problems.
#[derive(Debug, Default)]
pub(crate) struct Output {
    entries: Vec<Entry>,
    pub(crate) remarks: Vec<Remark>,
    pub(crate) problems: Vec<Problem>,
}

impl Output {
    /// Sets a key of ours. No line means that it is a default of Mosquitto.
    pub(crate) fn set(&mut self, table: Table, key: &'static str, value: impl Into<Toml>, lines: &[&Given]) {
        lines.iter().for_each(|given| given.is_settled.set(true));
        let origins = lines.iter().map(|given| Origin::from(*given)).collect();
        self.entries.push(Entry { table, key, value: value.into(), origins });
    }

    /// Says something about a line.
    pub(crate) fn remark(&mut self, given: &Given, kind: Kind, text: impl Into<String>) {
        given.is_settled.set(true);
        let (place, line) = (given.place.clone(), given.shown.clone());
        let remark = Remark { place, line, kind, text: text.into() };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Says that a line has another meaning.
    pub(crate) fn change(&mut self, given: &Given, text: impl Into<String>) {
        self.remark(given, Kind::Changed, text);
    }

    /// Says that a line is not needed.
    pub(crate) fn ignore(&mut self, given: &Given, text: impl Into<String>) {
        self.remark(given, Kind::Ignored, text);
    }

    /// Says why the broker does not start because of a line.
    pub(crate) fn refuse(&mut self, given: &Given, reason: impl Into<String>) {
        given.is_settled.set(true);
        let problem = Problem::at(given.place.clone(), given.shown.clone(), reason);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Returns our file, and for each of its lines the line of Mosquitto's from which it comes.
    pub(crate) fn page(&self, title: &str) -> (String, Vec<Option<Origin>>) {
        let mut page = Page::default();
        page.line(&format!("# The same configuration as {title}, for Pondhawk."), None);
        let mut tables: Vec<Table> = self.entries.iter().map(|entry| entry.table).collect();
        tables.sort_unstable();
        tables.dedup();
        let mut told = Vec::new();
        for table in tables {
            page.line("", None);
            if !table.header().is_empty() {
                page.line(table.header(), None);
            }
            for entry in self.entries.iter().filter(|entry| entry.table == table) {
                self.entry(entry, &mut page, &mut told);
            }
        }
        let rest: Vec<&Remark> =
            self.remarks.iter().filter(|remark| !told.contains(&&remark.place)).collect();
        if !rest.is_empty() {
            page.line("\n# Lines without a key, and the reason:\n#", None);
        }
        rest.iter().for_each(|remark| page.line(&format!("# {}", comment(&remark.to_string())), None));
        (page.text, page.origins)
    }

    fn entry<'a>(&'a self, entry: &'a Entry, page: &mut Page, told: &mut Vec<&'a Place>) {
        for origin in &entry.origins {
            if told.contains(&&origin.place) {
                continue;
            }
            told.push(&origin.place);
            for remark in self.remarks.iter().filter(|remark| remark.place == origin.place) {
                page.line(&format!("# {}", comment(&remark.to_string())), None);
            }
        }
        let origin = match entry.origins.as_slice() {
            [] => "Mosquitto's default".to_owned(),
            many => many.iter().map(|origin| origin.place.to_string()).collect::<Vec<_>>().join(", "),
        };
        let text = format!("{} = {} # {}", entry.key, entry.value, comment(&origin));
        page.line(&text, entry.origins.first());
    }
}

/// Text without characters that a comment of TOML may not have.
fn comment(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[derive(Default)]
struct Page {
    text: String,
    origins: Vec<Option<Origin>>,
}

impl Page {
    fn line(&mut self, text: &str, origin: Option<&Origin>) {
        self.origins.extend(text.split('\n').map(|_| origin.cloned()));
        self.text.push_str(text);
        self.text.push('\n');
    }
}
