//! What a broker did to the files of its journal, in a file: each change, and each sync that had returned, one behind the
//! other. A place in it is a time: what stands in front of it had happened, and a loss of power there leaves what
//! follows from it.
//!
//! A change is noted before it is begun, because a part of it may be on the disk as soon as it is; a sync when it has
//! returned, with the place up to which everything was finished when it began.

use std::fs::File;
use std::io::{self, Write};

/// A place in a trace: how many bytes are in front of it.
pub type Position = u64;

/// Something that was done. Numbers are little-endian; an entry begins with the length of all that follows, in four
/// bytes, and its kind, in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The file of this name, which was made if there was none, is called by this number from here on.
    Opened {
        /// No two are the same in one trace.
        file: u64,
        /// Its name at this time.
        name: String,
    },
    /// Bytes were written. Only zeros are not noted one by one.
    Written {
        /// As it was opened.
        file: u64,
        /// Where, from the beginning of the file.
        offset: u64,
        /// What.
        bytes: Bytes,
    },
    /// A file became at least so long.
    Allocated {
        /// As it was opened.
        file: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// What was done to a file in front of a place is on stable storage.
    Synced {
        /// As it was opened.
        file: u64,
        /// That place.
        before: Position,
    },
    /// A file has another name.
    Renamed {
        /// What it was called.
        from: String,
        /// What it is called; a file that had this name is gone.
        to: String,
    },
    /// A file is gone.
    Removed {
        /// What it was called.
        name: String,
    },
    /// The changes of names in front of a place are on stable storage.
    NamesSynced {
        /// That place.
        before: Position,
    },
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// So many zeros.
    Zeros(usize),
    /// Anything else.
    Given(Vec<u8>),
}

impl Bytes {
    /// The same, noted in as little as it takes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            Self::Zeros(bytes.len())
        } else {
            Self::Given(bytes.to_vec())
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Zeros(count) => *count,
            Self::Given(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
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
    /// Writes it behind what is there, in one piece; returns how many bytes that is.
    ///
    /// # Errors
    /// Whatever the file system says.
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

    /// The entry at the front of these bytes, and how many of them it takes; none if it is not whole.
    ///
    /// # Panics
    /// When it is not an entry.
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
    fn what_is_noted_is_read_again() {
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
