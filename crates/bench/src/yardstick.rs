//! The lower limit of cost under the same promise: the same bytes, appended to one file of full length, and synced.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// When the end is reached it begins again at the front, as a segment is used again.
const FILE_BYTES: usize = 64 << 20;

/// A file, and what each commit appends to it.
#[derive(Debug)]
pub(crate) struct Yardstick {
    file: File,
    bytes: Vec<u8>,
    offset: usize,
}

impl Yardstick {
    /// Creates the file, and writes all of it once.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn new(path: &Path, commit_bytes: usize) -> io::Result<Self> {
        let file = File::options().create_new(true).write(true).open(path)?;
        file.write_all_at(&vec![0; FILE_BYTES], 0)?;
        file.sync_all()?;
        Ok(Self { file, bytes: vec![b'x'; commit_bytes.min(FILE_BYTES)], offset: 0 })
    }

    /// Appends bytes, and waits until they are on stable storage.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        if self.offset + self.bytes.len() > FILE_BYTES {
            self.offset = 0;
        }
        self.file.write_all_at(&self.bytes, self.offset as u64)?;
        self.file.sync_data()?;
        self.offset += self.bytes.len();
        Ok(())
    }
}
