//! A trace of the changes that a broker makes to the files of its journal.
//!
//! The trace is a file with one entry for each change, and for each sync that has returned. A position in the file
//! stands for a time: the entries before it had happened. A loss of power at that time leaves their consequences on
//! the disk.
//!
//! A change is recorded before it begins, because a part of it may reach the disk at once. A sync is recorded after
//! its return. Its entry has the position up to which all changes were complete when the sync began.

use std::fs::File;
use std::io::{self, Write};

/// A position in a trace, as the number of bytes before it.
pub type Position = u64;

/// An entry of a trace. Numbers are little-endian. An entry begins with its length in four bytes, and its kind in
/// one byte; the length does not include its own four bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file was opened, or made if it did not exist. From here on `file` stands for it.
    Opened {
        /// Number of the file, unique in the trace.
        file: u64,
        /// Name of the file at this time.
        name: String,
    },
    /// Bytes were written. If all of them are zero, only their number is recorded.
    Written {
        /// Number of the file from [`Opened`](Self::Opened).
        file: u64,
        /// Position in the file, in bytes from its beginning.
        offset: u64,
        /// The bytes that were written.
        bytes: Bytes,
    },
    /// A file grew to at least this length.
    Allocated {
        /// Number of the file from [`Opened`](Self::Opened).
        file: u64,
        /// Length of the file in bytes.
        bytes: u64,
    },
    /// All changes of a file before a position are on stable storage.
    Synced {
        /// Number of the file from [`Opened`](Self::Opened).
        file: u64,
        /// The position in the trace.
        before: Position,
    },
    /// A file was renamed.
    Renamed {
        /// The old name of the file.
        from: String,
        /// The new name of the file. Another file that had this name is gone.
        to: String,
    },
    /// A file was removed.
    Removed {
        /// The name of the removed file.
        name: String,
    },
    /// All changes of names before a position are on stable storage.
    NamesSynced {
        /// The position in the trace.
        before: Position,
    },
}

/// The bytes of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// Zeros, of which only the number is recorded.
    Zeros(usize),
    /// Bytes of which at least one is not zero.
    Given(Vec<u8>),
}

impl Bytes {
    /// Makes the shortest representation of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            Self::Zeros(bytes.len())
        } else {
            Self::Given(bytes.to_vec())
        }
    }

    /// Number of bytes that were written.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Zeros(count) => *count,
            Self::Given(bytes) => bytes.len(),
        }
    }

    /// Whether no bytes were written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const OPENED: u8 = 1;
const WRITTEN: u8 = 2;
const ZEROED: u8 = 3;
const ALLOCATED: u8 = 4;
const SYNCED: u8 = 5;
const RENAMED: u8 = 6;
const REMOVED: u8 = 7;
const NAMES_SYNCED: u8 = 8;

impl Entry {
    /// Appends the entry to a file in one write, and returns its length in bytes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, to: &mut File) -> io::Result<u64> {
        let (kind, numbers, rest): (u8, &[u64], &[u8]) = match self {
            Self::Opened { file, name } => (OPENED, &[*file], name.as_bytes()),
            Self::Written { file, offset, bytes: Bytes::Given(bytes) } => (WRITTEN, &[*file, *offset], bytes),
            Self::Written { file, offset, bytes: Bytes::Zeros(count) } => {
                (ZEROED, &[*file, *offset, *count as u64], &[])
            }
            Self::Allocated { file, bytes } => (ALLOCATED, &[*file, *bytes], &[]),
            Self::Synced { file, before } => (SYNCED, &[*file, *before], &[]),
            Self::Renamed { from, to } => {
                (RENAMED, &[from.len() as u64], &[from.as_bytes(), to.as_bytes()].concat())
            }
            Self::Removed { name } => (REMOVED, &[], name.as_bytes()),
            Self::NamesSynced { before } => (NAMES_SYNCED, &[*before], &[]),
        };
        let length = 1 + 8 * numbers.len() + rest.len();
        let mut entry = Vec::with_capacity(4 + length);
        entry.extend(u32::try_from(length).expect("no write is so long").to_le_bytes());
        entry.push(kind);
        entry.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        entry.extend(rest);
        to.write_all(&entry)?;
        Ok(entry.len() as u64)
    }

    /// Reads the entry at the start of `bytes`, and returns the entry and its length. Returns `None` if the entry
    /// is incomplete.
    ///
    /// # Panics
    /// If the bytes are not an entry.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = u32::from_le_bytes(*length) as usize;
        let entry = Self::decode(rest.get(..length)?).expect("a trace has entries only");
        Some((entry, 4 + length))
    }

    fn decode(entry: &[u8]) -> Option<Self> {
        let (kind, mut rest) = entry.split_first()?;
        let mut number = || {
            let (number, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u64::from_le_bytes(*number))
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        Some(match *kind {
            OPENED => Self::Opened { file: number()?, name: text(rest)? },
            WRITTEN => {
                Self::Written { file: number()?, offset: number()?, bytes: Bytes::Given(rest.to_vec()) }
            }
            ZEROED => {
                let (file, offset) = (number()?, number()?);
                Self::Written { file, offset, bytes: Bytes::Zeros(usize::try_from(number()?).ok()?) }
            }
            ALLOCATED => Self::Allocated { file: number()?, bytes: number()? },
            SYNCED => Self::Synced { file: number()?, before: number()? },
            RENAMED => {
                let (from, to) = rest.split_first_chunk::<8>().and_then(|(length, names)| {
                    names.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
                })?;
                Self::Renamed { from: text(from)?, to: text(to)? }
            }
            REMOVED => Self::Removed { name: text(rest)? },
            NAMES_SYNCED => Self::NamesSynced { before: number()? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn noted_entries_are_read_back_unchanged() {
        let entries = [
            Entry::Opened { file: 7, name: "META".into() },
            Entry::Written { file: 7, offset: 4_096, bytes: Bytes::of(b"abc") },
            Entry::Written { file: 7, offset: 0, bytes: Bytes::of(&[0; 9]) },
            Entry::Allocated { file: 7, bytes: 1 << 20 },
            Entry::Synced { file: 7, before: 12 },
            Entry::Renamed { from: "a".into(), to: "bc".into() },
            Entry::Removed { name: "bc".into() },
            Entry::NamesSynced { before: 99 },
        ];
        let mut file = tempfile::tempfile().unwrap();
        let length: u64 = entries.iter().map(|entry| entry.append(&mut file).unwrap()).sum();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, length);
        let mut at = 0;
        for entry in entries {
            let (read, took) = Entry::read(&bytes[at..]).unwrap();
            assert_eq!(read, entry);
            at += took;
        }
        assert_eq!(Entry::read(&bytes[at..]), None);
        assert_eq!(Entry::read(&bytes[..5]), None, "not whole");
    }
}
