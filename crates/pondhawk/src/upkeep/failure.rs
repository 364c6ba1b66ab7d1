//! Errors of commands about a data directory: the event, the place, and a remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use journal::{DirectoryError, OpenError};

use super::text::Size;

/// The reason why a command about a data directory failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The directory does not exist or contains no journal.
    NoJournal(PathBuf),
    /// The directory could not be opened.
    Directory { dir: PathBuf, error: DirectoryError },
    /// The journal could not be read.
    Journal { dir: PathBuf, error: OpenError },
    /// The target of a copy is not empty.
    NotEmpty(PathBuf),
    /// A file of the copy could not be written.
    Copy { file: PathBuf, error: io::Error },
    /// The copy would leave too little free space behind.
    NoSpace { to: PathBuf, needed_bytes: u64, free_bytes: u64 },
    /// The broker reused segments faster than they were copied.
    Overtaken(PathBuf),
}

impl Failure {
    /// Exit code 1 for damage, and 2 for failures that do not show whether there is damage.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Journal { error: OpenError::Damaged(_), .. } => ExitCode::from(1),
            _ => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJournal(dir) => {
                writeln!(f, "there is no journal in {}", wire::Shown(dir.display()))?;
                f.write_str("hint: name the directory that the broker has as data_dir")
            }
            Self::Directory { dir, error: error @ DirectoryError::InUse { .. } } => {
                writeln!(f, "{} cannot be opened: {error}", wire::Shown(dir.display()))?;
                f.write_str("hint: stop the broker first; or make a copy with `pondhawk journal backup` and take that")
            }
            Self::Directory { dir, error } => {
                write!(f, "{} cannot be opened: {error}", wire::Shown(dir.display()))
            }
            Self::Journal { dir, error: OpenError::Damaged(damage) } if !damage.is_repairable() => {
                writeln!(f, "the journal in {} is damaged\n{damage}", wire::Shown(dir.display()))?;
                f.write_str(
                    "hint: move away the files that do not belong to this journal, or bring back a backup",
                )
            }
            Self::Journal { dir, error: OpenError::Damaged(damage) } => {
                writeln!(f, "the journal in {} is damaged\n{damage}", wire::Shown(dir.display()))?;
                write!(
                    f,
                    "hint: bring back a backup; or copy the directory, and give up what is damaged with \
                     `pondhawk journal repair --discard-damaged {}`",
                    wire::Shown(dir.display())
                )
            }
            Self::Journal { dir, error: error @ OpenError::Newer { .. } } => {
                writeln!(f, "the journal in {} cannot be read: {error}", wire::Shown(dir.display()))?;
                f.write_str("hint: take the version of pondhawk that has written it, or a later one")
            }
            Self::Journal { dir, error } => {
                write!(f, "the journal in {} cannot be read: {error}", wire::Shown(dir.display()))
            }
            Self::NotEmpty(dir) => {
                writeln!(f, "{} is not empty", wire::Shown(dir.display()))?;
                f.write_str("hint: name a directory that is not there yet")
            }
            Self::Copy { file, error } => write!(f, "{}: {error}", wire::Shown(file.display())),
            Self::NoSpace { to, needed_bytes, free_bytes } => {
                let (needed, free) = (Size(*needed_bytes), Size(*free_bytes));
                writeln!(
                    f,
                    "{} has {free} of free space, and the copy needs {needed}",
                    wire::Shown(to.display())
                )?;
                f.write_str("hint: remove older copies, or copy to another file system")
            }
            Self::Overtaken(dir) => {
                writeln!(
                    f,
                    "the broker has used space in {} again before it was copied",
                    wire::Shown(dir.display())
                )?;
                f.write_str("hint: try again when less is published, or copy to a faster disk")
            }
        }
    }
}
