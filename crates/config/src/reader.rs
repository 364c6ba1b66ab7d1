//! Reads the keys of a parsed table, and records all mistakes.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::environment::{self, Environment, Origin};
use crate::kind::Kind;
use crate::nearest;
use crate::report::Problem;
use crate::schema;
use crate::sources::Sources;

/// State that the readers of all tables share.
pub(crate) struct Found<'file> {
    pub(crate) problems: Vec<Problem>,
    /// The origins of values, by the names of keys with their tables. Defaults are not in it.
    pub(crate) origins: Vec<(String, Origin)>,
    pub(crate) environment: &'file Environment,
    /// The files of the configuration.
    pub(crate) sources: &'file Sources,
}

/// A table of the file, and the state of reading it.
pub(crate) struct Reader<'file, 'problems> {
    /// Prefix of keys in messages, such as `limits.`; empty at the top level.
    prefix: String,
    /// Position of the table's header, to which messages about missing keys point.
    header: Range<usize>,
    /// The table; `None` if the file does not contain it, and every key has its default.
    table: Option<&'file DeTable<'file>>,
    /// The keys and tables that have been read. All other keys in the table are unknown.
    known: Vec<&'static str>,
    /// The number of this table among those with the same name, if there can be several.
    number: Option<usize>,
    found: &'problems mut Found<'file>,
}

impl<'file, 'problems> Reader<'file, 'problems> {
    /// Makes a reader of all files.
    pub(crate) fn new(document: &'file DeTable<'file>, found: &'problems mut Found<'file>) -> Self {
        let (prefix, known) = (String::new(), Vec::new());
        Self { prefix, header: 0..0, table: Some(document), known, number: None, found }
    }

    /// Returns the value of a key if the key is present and valid. With `auto`, the word `"auto"` means the same as
    /// absence.
    pub(crate) fn take<K: Kind>(
        &mut self,
        name: &'static str,
        bounds: Option<&RangeInclusive<K::Bound>>,
        auto: bool,
    ) -> Option<K::Value> {
        self.known.push(name);
        if let Some(value) = self.take_variable::<K>(name, bounds, auto) {
            return value;
        }
        let (_, value) = self.entry(name)?;
        if value.span().is_empty() {
            // A placeholder of the parser for text that it could not read, and has reported.
            return None;
        }
        if auto && value.get_ref().as_str() == Some("auto") {
            return None;
        }
        let sources = self.found.sources;
        if let Some((file, line, _)) = sources.position(value.span().start) {
            let included = (file.start > 0).then(|| file.name.clone());
            self.note_origin(name, Origin::Line { included, line });
        }
        let why = match environment::read_expanded(value.get_ref(), self.found.environment, K::read) {
            Ok(read) if bounds.is_none_or(|bounds| K::is_within(&read, bounds)) => return Some(read),
            Ok(_) => "is out of bounds".to_owned(),
            Err(why) => why,
        };
        let or_auto = if auto { ", or \"auto\"" } else { "" };
        let title = format!("`{}{name}` {why}", self.prefix);
        let label = format!("expected {}{}{or_auto}", K::expected(), schema::limits::<K>(bounds));
        self.note(Problem::at(value.span(), title).label(label));
        None
    }

    /// Returns the value of a key from the environment variable that sets it, if there is one. Tables of which there can be
    /// several have no variables.
    fn take_variable<K: Kind>(
        &mut self,
        name: &'static str,
        bounds: Option<&RangeInclusive<K::Bound>>,
        auto: bool,
    ) -> Option<Option<K::Value>> {
        if self.number.is_some() {
            return None;
        }
        let variable = environment::variable(&self.prefix, name);
        let text = self.found.environment.get(&variable)?;
        self.note_origin(name, Origin::Variable(variable.clone()));
        if auto && text == "auto" {
            return Some(None);
        }
        let why = match environment::read(text, K::read) {
            Ok(read) if bounds.is_none_or(|bounds| K::is_within(&read, bounds)) => return Some(Some(read)),
            Ok(_) => "is out of bounds".to_owned(),
            Err(why) => environment::without_quotes(why, "has no valid value"),
        };
        let expected = format!("expected {}{}", K::expected(), schema::limits::<K>(bounds));
        self.note(Problem::in_flags(format!("the environment variable {variable} {why}; {expected}")));
        Some(None)
    }

    fn note_origin(&mut self, name: &str, origin: Origin) {
        let key = match self.number {
            Some(number) => format!("{}[{number}].{name}", self.prefix.trim_end_matches('.')),
            None => format!("{}{name}", self.prefix),
        };
        self.found.origins.push((key, origin));
    }

    /// Records that a required key is missing, and returns the placeholder. An invalid key has been recorded
    /// before.
    pub(crate) fn missing<T>(&mut self, name: &str, placeholder: T) -> T {
        if self.entry(name).is_none() {
            let title = format!("`{}{name}` is missing", self.prefix);
            let label = format!("this needs a line `{name} = …`");
            self.note(Problem::at(self.header.clone(), title).label(label));
        }
        placeholder
    }

    /// Reads the table `name`. A table that the file does not contain has all defaults.
    pub(crate) fn table<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Reader<'file, '_>) -> T,
    ) -> T {
        self.known.push(name);
        let found = self.entry(name).and_then(|(_, value)| {
            let table = value.get_ref().as_table();
            if table.is_none() {
                self.note(
                    Problem::at(value.span(), format!("`{name}` is a table"))
                        .label(format!("write [{name}]")),
                );
            }
            Some((value.span(), table?))
        });
        let (header, table) = found.map_or((self.header.clone(), None), |(span, table)| (span, Some(table)));
        self.read_inner((name, None), header, table, read)
    }

    /// Reads every table in the array of tables `name`.
    pub(crate) fn tables<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&mut Reader<'file, '_>) -> T,
    ) -> Vec<T> {
        self.known.push(name);
        let Some((_, value)) = self.entry(name) else { return Vec::new() };
        let elements =
            value.get_ref().as_array().filter(|array| array.iter().all(|each| each.get_ref().is_table()));
        let Some(elements) = elements else {
            let label = format!("write [[{name}]], with double brackets, once for each");
            self.note(Problem::at(value.span(), format!("there can be several of `{name}`")).label(label));
            return Vec::new();
        };
        let each = |(number, element): (usize, &'file Spanned<DeValue<'file>>)| {
            self.read_inner((name, Some(number)), element.span(), element.get_ref().as_table(), &mut read)
        };
        elements.iter().enumerate().map(each).collect()
    }

    /// Whether the table has a key.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Position of the value of a key, or of the table's header if the key is missing.
    pub(crate) fn span_of(&self, name: &str) -> Range<usize> {
        self.entry(name).map_or_else(|| self.header.clone(), |(_, value)| value.span())
    }

    /// Records a problem that concerns several keys.
    pub(crate) fn note(&mut self, problem: Problem) {
        self.found.problems.push(problem);
    }

    /// Records a key that has no effect without another one: it would seem to hold.
    pub(crate) fn refuse_without(&mut self, other: &str, keys: &[&str]) {
        let key = keys.iter().find(|key| self.has(key));
        if let Some(key) = key.filter(|_| !self.has(other)) {
            let problem = Problem::at(self.span_of(key), format!("`{key}` has no effect without `{other}`"));
            self.note(problem.advice(format!("add `{other}` to this table, or leave out `{key}`")));
        }
    }

    /// Records every key that has not been read, and suggests the most similar key of the whole file.
    pub(crate) fn refuse_unknown(&mut self) {
        for (key, _) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) {
                continue;
            }
            let place = match self.prefix.as_str() {
                "" => "at the top of the file".to_owned(),
                prefix => format!("in `{}`", prefix.trim_end_matches('.')),
            };
            let label = nearest::suggestion(name, &self.prefix, &self.known)
                .unwrap_or_else(|| format!("there are: {}", self.known.join(", ")));
            self.found
                .problems
                .push(Problem::at(key.span(), format!("there is no key `{name}` {place}")).label(label));
        }
    }

    fn read_inner<T>(
        &mut self,
        (name, number): (&str, Option<usize>),
        header: Range<usize>,
        table: Option<&'file DeTable<'file>>,
        read: impl FnOnce(&mut Reader<'file, '_>) -> T,
    ) -> T {
        let prefix = format!("{name}.");
        let mut inner = Reader { prefix, header, table, known: Vec::new(), number, found: self.found };
        let value = read(&mut inner);
        inner.refuse_unknown();
        value
    }

    fn entry(&self, name: &str) -> Option<(&'file Spanned<Cow<'file, str>>, &'file Spanned<DeValue<'file>>)> {
        self.table?.iter().find(|(key, _)| key.get_ref() == name)
    }
}
