//! What is known of a key, and the macro that makes a table of keys into a struct, its reader and its description.

use std::ops::RangeInclusive;

use crate::kind::Kind;

/// Everything a reader of the manual is told about one key.
#[derive(Debug, Clone)]
pub struct Key {
    /// The key as it stands in its table.
    pub name: &'static str,
    /// What it means, in Markdown; its lines joined.
    pub text: String,
    /// What it holds, in a word or two, and its bounds.
    pub value: String,
    /// What it is where the file does not say.
    pub default: Default,
}

/// What a key is where the file does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Default {
    /// This, as it would be written in the file.
    Value(String),
    /// Worked out at start-up: how. The file may say `"auto"` too.
    Auto(&'static str),
    /// Nothing.
    Absent,
    /// The key has to be given.
    Required,
}

/// A table of the file, described.
#[derive(Debug, Clone)]
pub struct Table {
    /// As it is written in the file: `[limits]`, `[[listener]]`, or nothing for the top level.
    pub header: &'static str,
    /// What the table is for, in Markdown.
    pub text: String,
    /// Its keys in the order of their declaration.
    pub keys: Vec<Key>,
}

/// The lines of a doc comment as one paragraph.
pub(crate) fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The bounds of a key as they follow its kind: `, from 1 s to 1 h`, or nothing if it has none.
pub(crate) fn limits<K: Kind>(bounds: Option<&RangeInclusive<K::Bound>>) -> String {
    bounds.map_or_else(String::new, |bounds| {
        format!(", from {} to {}", K::show_bound(bounds.start()), K::show_bound(bounds.end()))
    })
}

/// Declares one table of the file: a struct with a field per key, and from the same lines its reader
/// (`read`), its description (`describe`) and its values as TOML (`lines`).
///
/// A key is `name: Type { kind: Kind, default: value }`, with `auto: value, "how it is found"` or
/// `required: placeholder` in place of `default`, and `bounds: low..=high` after it. `auto` values may use what
/// `given` names and every key above their own.
macro_rules! keys {
    (
        $(#[doc = $table_text:literal])+
        $visibility:vis struct $table:ident = $header:literal, given($($given:ident: $given_type:ty),*) {$(
            $(#[doc = $text:literal])+
            $name:ident: $type:ty {
                kind: $kind:ty
                $(, default: $default:expr)?
                $(, auto: $auto:expr, $how:literal)?
                $(, required: $required:expr)?
                $(, bounds: $bounds:expr)?
                $(,)?
            }
        )+}
    ) => {
        $(#[doc = $table_text])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        $visibility struct $table {$(
            $(#[doc = $text])+
            pub $name: $type,
        )+}

        impl $table {
            /// Takes every key of this table from the file, the default where it is not there or cannot be used.
            pub(crate) fn read(from: &mut $crate::reader::Reader<'_, '_> $(, $given: $given_type)*) -> Self {
                $(
                    let $name: $type = from
                        .take::<$kind>(stringify!($name), keys!(@bounds $($bounds)?), keys!(@auto $($how)?))
                        $(.unwrap_or_else(|| $default))?
                        $(.unwrap_or_else(|| $auto))?
                        $(.unwrap_or_else(|| from.missing(stringify!($name), $required)))?;
                )+
                Self { $($name),+ }
            }

            /// The table as the manual shows it.
            pub(crate) fn describe() -> $crate::schema::Table {
                $crate::schema::Table {
                    header: $header,
                    text: $crate::schema::paragraph(&[$($table_text),+]),
                    keys: vec![$($crate::schema::Key {
                        name: stringify!($name),
                        text: $crate::schema::paragraph(&[$($text),+]),
                        value: <$kind as $crate::kind::Kind>::word()
                            + &$crate::schema::limits::<$kind>(keys!(@bounds $($bounds)?)),
                        default: keys!(@described $kind $(, default $default)? $(, auto $how)? $(, required $required)?),
                    }),+],
                }
            }

            /// Every key with its value as it would be written in the file; a key without a value is left out.
            pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
                let mut lines = vec![$((stringify!($name), <$kind as $crate::kind::Kind>::show(&self.$name))),+];
                lines.retain(|(_, value)| !value.is_empty());
                lines
            }
        }
    };
    (@bounds) => { None };
    (@bounds $bounds:expr) => { Some(&$bounds) };
    (@auto) => { false };
    (@auto $how:literal) => { true };
    (@described $kind:ty, default $value:expr) => {
        match <$kind as $crate::kind::Kind>::show(&$value) {
            text if text.is_empty() => $crate::schema::Default::Absent,
            text => $crate::schema::Default::Value(text),
        }
    };
    (@described $kind:ty, auto $how:literal) => { $crate::schema::Default::Auto($how) };
    (@described $kind:ty, required $value:expr) => { $crate::schema::Default::Required };
}

pub(crate) use keys;
