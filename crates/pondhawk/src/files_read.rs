//! The files of a configuration, as they were when they were read.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use mosquitto::read_regular;

use crate::stamp::Stamp;

/// Files and directories with their stamps from just before they were read.
pub(crate) type Stamps = Vec<(PathBuf, Option<Stamp>)>;

/// Reads files, and keeps their stamps and the hash of their contents.
#[derive(Default)]
pub(crate) struct FilesRead {
    stamps: RefCell<Stamps>,
    contents: RefCell<DefaultHasher>,
    empty: RefCell<Vec<PathBuf>>,
}

/// Maximum length of a file beside the main one, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

impl FilesRead {
    /// Reads the main file, which may be a pipe.
    pub(crate) fn read_main(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.note(path);
        self.note_contents(path, fs::read(path))
    }

    /// Reads a regular file of a bounded length.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.note(path);
        self.note_contents(path, read_regular(path, FILE_BYTES_MAX))
    }

    /// Returns the names in a directory, in any order. A file that is added or removed changes the stamp of the directory.
    pub(crate) fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.note(directory);
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Notes the stamp of a file or a directory. A change after that is found by the next look.
    fn note(&self, path: &Path) {
        self.stamps.borrow_mut().push((path.to_owned(), Stamp::of(path)));
    }

    fn note_contents(&self, path: &Path, read: io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
        let mut contents = self.contents.borrow_mut();
        (path, read.as_ref().ok()).hash(&mut *contents);
        if read.as_ref().is_ok_and(Vec::is_empty) {
            self.empty.borrow_mut().push(path.to_owned());
        }
        read
    }

    /// The hash of the names and contents of all files.
    pub(crate) fn contents(&self) -> u64 {
        self.contents.borrow().finish()
    }

    /// The files without contents.
    pub(crate) fn empty(&self) -> Vec<PathBuf> {
        self.empty.borrow().clone()
    }

    /// The stamps of all files and directories.
    pub(crate) fn stamps(self) -> Stamps {
        self.stamps.into_inner()
    }
}

impl config::Files for FilesRead {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Self::read(self, path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        Self::list(self, directory)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}
