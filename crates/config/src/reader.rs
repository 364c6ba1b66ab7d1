//! Reads the keys of a parsed table, and records all mistakes.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::kind::Kind;
use crate::nearest;
use crate::report::Problem;
use crate::schema;

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
    problems: &'problems mut Vec<Problem>,
}

impl<'file, 'problems> Reader<'file, 'problems> {
    /// Makes a reader of the whole file.
    pub(crate) fn new(document: &'file DeTable<'file>, problems: &'problems mut Vec<Problem>) -> Self {
        Self { prefix: String::new(), header: 0..0, table: Some(document), known: Vec::new(), problems }
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
        let (_, value) = self.entry(name)?;
        if value.span().is_empty() {
            // A placeholder of the parser for text that it could not read, and has reported.
            return None;
        }
        if auto && value.get_ref().as_str() == Some("auto") {
            return None;
        }
        let why = match K::read(value.get_ref()) {
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
        self.read_inner(name, header, table, read)
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
        let each = |element: &'file Spanned<DeValue<'file>>| {
            self.read_inner(name, element.span(), element.get_ref().as_table(), &mut read)
        };
        elements.iter().map(each).collect()
    }

    /// Position of the value of a key, or of the table's header if the key is missing.
    pub(crate) fn span_of(&self, name: &str) -> Range<usize> {
        self.entry(name).map_or_else(|| self.header.clone(), |(_, value)| value.span())
    }

    /// Records a problem that concerns several keys.
    pub(crate) fn note(&mut self, problem: Problem) {
        self.problems.push(problem);
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
            self.problems
                .push(Problem::at(key.span(), format!("there is no key `{name}` {place}")).label(label));
        }
    }

    fn read_inner<T>(
        &mut self,
        name: &str,
        header: Range<usize>,
        table: Option<&'file DeTable<'file>>,
        read: impl FnOnce(&mut Reader<'file, '_>) -> T,
    ) -> T {
        let prefix = format!("{name}.");
        let mut inner = Reader { prefix, header, table, known: Vec::new(), problems: self.problems };
        let value = read(&mut inner);
        inner.refuse_unknown();
        value
    }

    fn entry(&self, name: &str) -> Option<(&'file Spanned<Cow<'file, str>>, &'file Spanned<DeValue<'file>>)> {
        self.table?.iter().find(|(key, _)| key.get_ref() == name)
    }
}
