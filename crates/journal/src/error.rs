//! Why a journal could not be opened.

use std::{fmt, io};

/// Why a journal could not be opened, checked, repaired or copied.
#[derive(Debug)]
pub enum OpenError {
    /// Something in it is not as it was written.
    Damaged(Damage),
    /// A later version of this program has written it.
    Newer {
        /// Version of its format.
        version: u32,
    },
    /// The settings cannot be right.
    Settings(&'static str),
    /// A file system call failed.
    Io {
        /// About which file, or the directory.
        file: String,
        /// Error of the file system.
        error: io::Error,
    },
}

/// Something that is not as it was written, although it had been on stable storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// From here on, in bytes.
    pub offset: u64,
    /// The kind of fault.
    pub fault: Fault,
}

/// The kind of fault in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The file is no META file, or META is missing while there are records.
    Meta,
    /// A file is missing, although the numbers of others say that there was one.
    Missing,
    /// More files are missing in front of this one than any accident removes: it does not belong here, or they do not.
    Gap {
        /// Number of missing files.
        missing: u64,
    },
    /// No journal comes to have a segment with this number.
    Number,
    /// There is no record behind the front of the file, nor in any other: there has to be one from the beginning.
    Empty,
    /// The file was written by another journal.
    Foreign,
    /// The front of a segment is not right, although there are records in it.
    Header,
    /// The checksum of a frame is wrong, and it is not the last one.
    Frame,
    /// A file is shorter than it was.
    Short,
    /// The checksums are right, but this is not a record.
    Record(String),
}

impl OpenError {
    pub(crate) fn io(file: &str, error: io::Error) -> Self {
        Self::Io { file: file.to_owned(), error }
    }

    pub(crate) fn directory(error: io::Error) -> Self {
        Self::io("the directory", error)
    }
}

impl Damage {
    pub(crate) fn at(file: impl Into<String>, offset: u64, fault: Fault) -> Self {
        Self { file: file.into(), offset, fault }
    }
}

impl Damage {
    /// Whether [`discard`](crate::discard) can do something about it.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        !matches!(self.fault, Fault::Gap { .. } | Fault::Number)
    }
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(damage) => damage.fmt(f),
            Self::Newer { version } => {
                write!(f, "it is of version {version}, which this program does not know")
            }
            Self::Settings(what) => f.write_str(what),
            Self::Io { file, error } => write!(f, "{file}: {error}"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: offset {}: {}", self.file, self.offset, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("it does not say which journal this is"),
            Self::Missing => f.write_str("the file is missing"),
            Self::Gap { missing } => write!(f, "{missing} files are missing in front of this one"),
            Self::Number => f.write_str("no journal has so many files"),
            Self::Empty => f.write_str("the records are gone"),
            Self::Foreign => f.write_str("another journal has written this file"),
            Self::Header => f.write_str("the front of the file is damaged"),
            Self::Frame => f.write_str("damaged, with records behind it that are not"),
            Self::Short => f.write_str("the file is shorter than it was"),
            Self::Record(what) => write!(f, "this is no record: {what}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
impl std::error::Error for Damage {}
