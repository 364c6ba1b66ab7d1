//! Why bytes are no records.

use std::fmt;

use base::PartsError;
use topic::{FilterError, TopicError};
use wire::Utf8Error;

/// Bytes that are no records: where, and what is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset of the first wrong byte, from the beginning of the decoded bytes.
    pub offset: usize,
    /// The kind of record it is in, if that can be said.
    pub record: Option<&'static str>,
    /// The field it is in, if that can be said.
    pub field: Option<&'static str>,
    /// The fault at this place.
    pub fault: Fault,
}

/// The faults of bytes that should be a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end in the middle of the record.
    Truncated,
    /// There is no such kind of record.
    Kind(u8),
    /// Bits of a flag byte that mean nothing, or a choice that there is not.
    Flags(u8),
    /// A number that is too large for its field, or written in more bytes than it needs.
    Number,
    /// A packet identifier of 0.
    PacketId,
    /// A subscription identifier that is not from 1 to 268,435,455, or a list of none.
    Identifier,
    /// A text that is not UTF-8.
    Utf8,
    /// A text that MQTT does not have.
    Text(Utf8Error),
    /// The text is no topic name.
    Topic(TopicError),
    /// The text is no topic filter.
    Filter(FilterError),
    /// A group's filter without `$share/`.
    NotShared,
    /// The parts of no message.
    Message(PartsError),
    /// Rights that no token gives, or not in their one form.
    Claims,
}

/// Names the record in what is wrong with a field of it.
#[inline]
pub(super) fn of_record<T>(
    name: &'static str,
    take: impl FnOnce() -> Result<T, Box<DecodeError>>,
) -> Result<T, Box<DecodeError>> {
    take().map_err(|error| Box::new(DecodeError { record: Some(name), ..*error }))
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}", self.offset)?;
        if let (Some(record), Some(field)) = (self.record, self.field) {
            write!(f, ", field {field} of a record {record}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl std::error::Error for DecodeError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the bytes end in the middle of it"),
            Self::Kind(kind) => write!(f, "there is no kind {kind} of records"),
            Self::Flags(flags) => write!(f, "flags that mean nothing: {flags:#04x}"),
            Self::Number => f.write_str("a number too large or too long"),
            Self::PacketId => f.write_str("a packet identifier of 0"),
            Self::Identifier => f.write_str("no subscription identifier"),
            Self::Utf8 => f.write_str("a text that is not UTF-8"),
            Self::Text(error) => error.fmt(f),
            Self::Topic(error) => error.fmt(f),
            Self::Filter(error) => error.fmt(f),
            Self::NotShared => f.write_str("a group's filter without $share/"),
            Self::Message(error) => error.fmt(f),
            Self::Claims => f.write_str("no rights of a token"),
        }
    }
}
