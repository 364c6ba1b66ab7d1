//! Tables of a file with rules, whose names are those of roles, groups and users.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistakes::Mistakes;
use crate::kind::{Kind, Size, Time, whole_number};
use crate::nearest::nearest;

/// A table, and its name in messages.
pub(super) struct Entry<'a> {
    /// The name of the role, group or user.
    pub(super) name: &'a str,
    /// The name with those of the tables around it.
    pub(super) full: String,
    /// The place of the name.
    pub(super) start: usize,
    table: &'a DeTable<'a>,
}

/// The table of the whole file is one like others.
pub(super) type Table<'a> = Entry<'a>;

type Found<'a> = (&'a Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>);

impl<'a> Entry<'a> {
    pub(super) fn new(name: &'a str, table: &'a DeTable<'a>) -> Self {
        Self { name, full: name.to_owned(), start: 0, table }
    }

    /// All keys, in their order in the file.
    fn entries(&self) -> Vec<Found<'a>> {
        let mut all: Vec<Found<'a>> = self.table.iter().collect();
        all.sort_by_key(|(key, _)| key.span().start);
        all
    }

    fn find(&self, key: &str) -> Option<Found<'a>> {
        self.table.get_key_value(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// The place of the value of a key.
    pub(super) fn place(&self, key: &str) -> usize {
        self.find(key).map_or(self.start, |(_, value)| value.span().start)
    }

    fn full_name(&self, key: &str) -> String {
        let bare =
            !key.is_empty() && key.chars().all(|sign| sign.is_ascii_alphanumeric() || "_-".contains(sign));
        let key = if bare { Cow::Borrowed(key) } else { Cow::Owned(format!("{key:?}")) };
        if self.full.is_empty() { key.into_owned() } else { format!("{}.{key}", self.full) }
    }

    /// The table of a key, if there is one.
    pub(super) fn table(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<Entry<'a>> {
        let (name, value) = self.find(key)?;
        self.entry((name, value), mistakes)
    }

    fn entry(&self, (name, value): Found<'a>, mistakes: &mut Mistakes<'_>) -> Option<Entry<'a>> {
        let (full, start) = (self.full_name(name.get_ref()), name.span().start);
        let Some(table) = value.get_ref().as_table() else {
            mistakes.note(value.span().start, format!("`{full}` is a table: write [{full}]"));
            return None;
        };
        Some(Entry { name: name.get_ref(), full, start, table })
    }

    /// The tables in the table of a key, such as `[roles.sensor]` in `roles`.
    pub(super) fn tables(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Vec<Entry<'a>> {
        let Some(all) = self.table(key, mistakes) else { return Vec::new() };
        all.entries().into_iter().filter_map(|found| all.entry(found, mistakes)).collect()
    }

    /// The texts in a list, each with its place. `what` says what they are.
    pub(super) fn texts(&self, key: &str, what: &str, mistakes: &mut Mistakes<'_>) -> Vec<(usize, &'a str)> {
        let Some((_, value)) = self.find(key) else { return Vec::new() };
        let full = self.full_name(key);
        let Some(list) = value.get_ref().as_array() else {
            mistakes.note(value.span().start, format!("`{full}` is a list of {what}: write [\"…\"]"));
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(list.len());
        for each in list.iter() {
            match each.get_ref().as_str() {
                Some(text) => texts.push((each.span().start, text)),
                None => mistakes.note(each.span().start, format!("`{full}` is a list of {what}, in quotes")),
            }
        }
        texts
    }

    /// The value of a key that is a text.
    pub(super) fn text(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<&'a str> {
        let (_, value) = self.find(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            let text = format!("`{}` is a text: write \"…\"", self.full_name(key));
            mistakes.note(value.span().start, text);
        }
        text
    }

    /// The value of a key that is a number. One with a mistake is none.
    pub(super) fn whole_number(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<u64> {
        let (_, value) = self.find(key)?;
        let number = whole_number(value.get_ref());
        if let Err(why) = &number {
            mistakes.note(value.span().start, format!("`{}` {why}", self.full_name(key)));
        }
        number.ok()
    }

    /// The value of a key that is a time, in seconds.
    pub(super) fn seconds(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<u32> {
        let (_, value) = self.find(key)?;
        let secs = Time::read(value.get_ref()).map(|time| time.as_secs());
        match secs.map(u32::try_from) {
            Ok(Ok(secs)) if (1..u32::MAX).contains(&secs) => return Some(secs),
            _ => mistakes.note(
                value.span().start,
                format!("`{}` is a time of at least one second, such as \"1 day\"", self.full_name(key)),
            ),
        }
        None
    }

    /// The value of a key that is a number of bytes.
    pub(super) fn size(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<u64> {
        let (_, value) = self.find(key)?;
        let bytes = Size::<u64>::read(value.get_ref()).ok().filter(|bytes| *bytes > 0);
        if bytes.is_none() {
            let text = format!("`{}` is a number of bytes, such as \"64 KiB\"", self.full_name(key));
            mistakes.note(value.span().start, text);
        }
        bytes
    }

    /// The value of a key that is `true` or `false`.
    pub(super) fn switch(&self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<bool> {
        let (_, value) = self.find(key)?;
        let switch = value.get_ref().as_bool();
        if switch.is_none() {
            mistakes.note(value.span().start, format!("`{}` is `true` or `false`", self.full_name(key)));
        }
        switch
    }

    /// Notes each key that is none of these.
    pub(super) fn refuse_others(&self, known: &[&str], mistakes: &mut Mistakes<'_>) {
        for (key, _) in self.entries() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are: {}", known.join(", ")),
            };
            let place = match self.full.as_str() {
                "" => "at the top of the file".to_owned(),
                full => format!("in `{full}`"),
            };
            mistakes.note(key.span().start, format!("there is no key `{name}` {place}; {hint}"));
        }
    }
}
