//! The description of a key, and the macro that generates a struct, its reader and its description from a table of
//! keys.

use std::ops::RangeInclusive;

use crate::kind::Kind;

/// The description of one key in the manual.
#[derive(Debug, Clone)]
pub struct Key {
    /// The name of the key in its table.
    pub name: &'static str,
    /// The meaning of the key, in Markdown, as one line.
    pub text: String,
    /// The kind of value in one or two words, and the bounds.
    pub value: String,
    /// The value if the file does not contain the key.
    pub default: Default,
    /// The moment from which a changed value counts.
    pub applies: Applies,
}

/// The moment from which a changed value of a key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// After a reload, for everybody.
    Reload,
    /// After a reload, for connections that begin after it. Others keep the value with which they began.
    Connect,
    /// After a reload, which ends the connections of the changed listener.
    Reconnect,
    /// After the next start of the broker.
    Restart,
}

impl Applies {
    /// Returns the moment as a phrase, such as `after a restart`.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Reload => "on reload",
            Self::Connect => "on reload, to new connections",
            Self::Reconnect => "on reload, which ends the connections of the listener",
            Self::Restart => "after a restart",
        }
    }

    /// Returns the moment as one word for a table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Connect => "connect",
            Self::Reconnect => "reconnect",
            Self::Restart => "restart",
        }
    }
}

/// The value of a key that the file does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Default {
    /// A fixed value, as it would be written in the file.
    Value(String),
    /// A value that is computed at start-up. The text says how. The file may also say `"auto"`.
    Auto(&'static str),
    /// The key has no default value.
    Absent,
    /// The file must contain the key.
    Required,
}

/// The description of one table of the file.
#[derive(Debug, Clone)]
pub struct Table {
    /// The header in the file, such as `[limits]` or `[[listener]]`. Empty for the top level.
    pub header: &'static str,
    /// The purpose of the table, in Markdown.
    pub text: String,
    /// The keys of the table, in the order of their declaration.
    pub keys: Vec<Key>,
}

/// Joins the lines of a doc comment into one paragraph.
pub(crate) fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The bounds of a key as text after its kind, such as `, from 1 s to 1 h`. Empty without bounds.
pub(crate) fn limits<K: Kind>(bounds: Option<&RangeInclusive<K::Bound>>) -> String {
    bounds.map_or_else(String::new, |bounds| {
        format!(", from {} to {}", K::show_bound(bounds.start()), K::show_bound(bounds.end()))
    })
}

/// Declares one table of the file. The same lines generate a struct with a field per key, its reader (`read`), its
/// description (`describe`) and its values as TOML (`lines`).
///
/// A key is `name: Type { kind: Kind, default: value }`. Instead of `default` a key can have
/// `auto: value, "how it is found"` or `required: placeholder`, and `bounds: low..=high` can follow. `auto` values
/// may use the names in `given` and all keys above their own. `applies` is the variant of [`Applies`] of all keys of the
/// table, except of those that name another one at their end.
macro_rules! keys {
    (
        $(#[doc = $table_text:literal])+
        $visibility:vis struct $table:ident = $header:literal, applies $applies:ident, given($($given:ident: $given_type:ty),*) {$(
            $(#[doc = $text:literal])+
            $name:ident: $type:ty {
                kind: $kind:ty
                $(, default: $default:expr)?
                $(, auto: $auto:expr, $how:literal)?
                $(, required: $required:expr)?
                $(, bounds: $bounds:expr)?
                $(, applies: $key_applies:ident)?
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
            /// Reads every key of this table from the file. A missing or invalid key gets its default.
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

            /// The description of the table for the manual.
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
                        applies: keys!(@applies $applies $($key_applies)?),
                    }),+],
                }
            }

            /// Takes over the values of a newer table that need no restart, and notes each key with another value.
            pub(crate) fn take_over(&mut self, new: &Self, prefix: &str, changes: &mut Vec<$crate::reload::Change>) {
                $(if self.$name != new.$name {
                    let applies = keys!(@applies $applies $($key_applies)?);
                    let key = format!("{prefix}{}", stringify!($name));
                    let value = <$kind as $crate::kind::Kind>::show(&new.$name);
                    changes.push($crate::reload::Change { key, value, applies });
                    if applies != $crate::schema::Applies::Restart {
                        self.$name = new.$name.clone();
                    }
                })+
            }

            /// Every key with its value, as written in the file. Keys without a value are omitted.
            pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
                let mut lines = vec![$((stringify!($name), <$kind as $crate::kind::Kind>::show(&self.$name))),+];
                lines.retain(|(_, value)| !value.is_empty());
                lines
            }
        }
    };
    (@applies $table:ident) => { $crate::schema::Applies::$table };
    (@applies $table:ident $key:ident) => { $crate::schema::Applies::$key };
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
