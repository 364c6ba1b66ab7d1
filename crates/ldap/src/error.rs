use core::error::Error;
use core::fmt;

use crate::{DN_BYTES_MAX, FILTER_BYTES_MAX, MESSAGE_BYTES_MAX, NESTING_MAX, USERS_MAX};

/// Error of decoding the bytes of a server. The connection cannot be used any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The first byte is not the tag of an `LDAPMessage` (section 4.1.1).
    NotAMessage,
    /// A length is beyond [`MESSAGE_BYTES_MAX`], or its field has more than eight bytes.
    TooLong,
    /// A length is indefinite, which section 5.1 forbids.
    IndefiniteLength,
    /// An element ends after the element that contains it, or a required element is missing.
    Cut,
    /// An element has another tag than the one of section 4 at this place.
    UnexpectedTag,
    /// A message identifier or a result code is negative, above 2,147,483,647, or has no bytes.
    Number,
    /// The name of an entry or of an attribute is not UTF-8.
    NotUtf8,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAMessage => f.write_str("the bytes are not a message of LDAP"),
            Self::TooLong => write!(f, "a length is beyond {MESSAGE_BYTES_MAX} bytes"),
            Self::IndefiniteLength => f.write_str("a length is indefinite"),
            Self::Cut => f.write_str("an element is missing or longer than the one around it"),
            Self::UnexpectedTag => f.write_str("an element has an unexpected tag"),
            Self::Number => f.write_str("a number is out of range"),
            Self::NotUtf8 => f.write_str("a name is not UTF-8"),
        }
    }
}

/// Error of [`Filter::parse`](crate::Filter::parse).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterError {
    /// Offset in the text, in bytes from 0, of the first character that does not fit. It may be the end of the text.
    pub at: usize,
    /// Reason why the character does not fit.
    pub fault: FilterFault,
}

/// Reason why a text is not a filter of RFC 4515.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterFault {
    /// The text has more than [`FILTER_BYTES_MAX`] bytes.
    TooLong,
    /// Filters are nested more than [`NESTING_MAX`] deep.
    TooDeep,
    /// `{user}` occurs more than [`USERS_MAX`] times.
    TooManyUsers,
    /// `{user}` stands outside of a value.
    UserOutsideValue,
    /// An opening parenthesis is missing. Each filter has its own parentheses, and `&`, `|` and `!` need at least one.
    OpeningMissing,
    /// A closing parenthesis is missing.
    ClosingMissing,
    /// Text follows the filter.
    Trailing,
    /// The name of an attribute or of a matching rule is missing or has a character that is not allowed.
    NameMissing,
    /// None of `=`, `>=`, `<=`, `~=` and `:=` follows an attribute.
    OperatorMissing,
    /// A backslash is not followed by two hexadecimal digits.
    Escape,
    /// A value has `(` or NUL, which must be escaped as `\28` and `\00`.
    Unescaped,
    /// A `*` stands beside another `*`, or in a value after another operator than `=`.
    Star,
}

impl fmt::Display for FilterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a filter has at most {FILTER_BYTES_MAX} bytes"),
            Self::TooDeep => write!(f, "filters are nested at most {NESTING_MAX} deep"),
            Self::TooManyUsers => write!(f, "{{user}} occurs at most {USERS_MAX} times"),
            Self::UserOutsideValue => f.write_str("{user} may only stand in a value"),
            Self::OpeningMissing => f.write_str("expected ("),
            Self::ClosingMissing => f.write_str("expected )"),
            Self::Trailing => f.write_str("text follows the filter"),
            Self::NameMissing => f.write_str("expected the name of an attribute or of a matching rule"),
            Self::OperatorMissing => f.write_str("expected one of = >= <= ~= :="),
            Self::Escape => f.write_str("expected two hexadecimal digits after \\"),
            Self::Unescaped => f.write_str("( is written as \\28 in a value, and NUL as \\00"),
            Self::Star => f.write_str("* is written as \\2a, except alone between parts of a value after ="),
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.fault, self.at)
    }
}

/// Error of [`DnTemplate::parse`](crate::DnTemplate::parse).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DnError {
    /// Offset in the text, in bytes from 0, of the first character that does not fit. It may be the end of the text.
    pub at: usize,
    /// Reason why the character does not fit.
    pub fault: DnFault,
}

/// Reason why a text is not the name of an entry with `{user}` in it (RFC 4514).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DnFault {
    /// The text has more than [`DN_BYTES_MAX`] bytes.
    TooLong,
    /// The text is empty.
    Empty,
    /// `{user}` does not occur.
    NoUser,
    /// `{user}` occurs more than [`USERS_MAX`] times.
    TooManyUsers,
    /// `{user}` stands outside of a value.
    UserOutsideValue,
    /// The type of an attribute is missing or has a character that is not allowed.
    TypeMissing,
    /// No `=` follows the type of an attribute.
    EqualsMissing,
    /// A backslash is followed by neither two hexadecimal digits nor a character that needs it.
    Escape,
    /// A value has one of `"`, `;`, `<`, `>` and NUL, which must be escaped.
    Unescaped,
    /// A value begins with `#`, and this crate does not support values in hexadecimal digits.
    Hexadecimal,
}

impl fmt::Display for DnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the name of an entry has at most {DN_BYTES_MAX} bytes"),
            Self::Empty => f.write_str("the name of an entry is not empty"),
            Self::NoUser => f.write_str("expected {user} in a value"),
            Self::TooManyUsers => write!(f, "{{user}} occurs at most {USERS_MAX} times"),
            Self::UserOutsideValue => f.write_str("{user} may only stand in a value"),
            Self::TypeMissing => f.write_str("expected the type of an attribute"),
            Self::EqualsMissing => f.write_str("expected = after the type of an attribute"),
            Self::Escape => {
                f.write_str("expected two hexadecimal digits or one of \" + , ; < > = # \\ after \\")
            }
            Self::Unescaped => f.write_str("\" ; < > and NUL are escaped with \\ in a value"),
            Self::Hexadecimal => f.write_str("a value that begins with # is not supported"),
        }
    }
}

impl fmt::Display for DnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.fault, self.at)
    }
}

impl Error for Malformed {}
impl Error for FilterError {}
impl Error for DnError {}
