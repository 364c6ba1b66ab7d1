//! File system operations of the journal, as traits that a simulated file system can implement.

use std::io;
use std::sync::Arc;

/// One directory. All its methods may be called from several threads.
pub trait Storage: Send + Sync {
    /// The names of all files.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing; makes an empty one if there is none and `create` is set.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) if there is none, and whatever the file system says.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>>;

    /// Renames a file. A file that had the new name before is gone. Survives a loss of power after
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// There is no such file, and whatever the file system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; who has it open keeps it. Survives a loss of power after [`sync`](Self::sync).
    ///
    /// # Errors
    /// There is no such file, and whatever the file system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when all names are on stable storage.
    ///
    /// # Errors
    /// Nobody knows which of the changes since the last time will survive.
    fn sync(&self) -> io::Result<()>;

    /// How many bytes new files can take.
    ///
    /// # Errors
    /// The file system does not say.
    fn free_bytes(&self) -> io::Result<u64>;

    /// A number that no other journal has, for a new one: frames of other journals are told apart by it, and nobody who
    /// publishes may be able to guess it.
    ///
    /// # Errors
    /// There is no source of such numbers.
    fn salt(&self) -> io::Result<u64>;
}

/// One file. All its methods may be called from several threads.
pub trait File: Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The file system does not say.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads from `offset` on, until `into` is full or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` from `offset` on; the file grows if it must.
    ///
    /// # Errors
    /// Nobody knows which of the bytes were written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything written is on stable storage, with what is needed to read it again.
    ///
    /// # Errors
    /// Nobody knows what of it will survive, now or later: see `docs/JOURNAL.md`, "Failures".
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the file this long, and reserves the space for it, so that writing there cannot find the disk full.
    /// `false` if this file system cannot reserve.
    ///
    /// # Errors
    /// [`StorageFull`](io::ErrorKind::StorageFull) if there is no space, and whatever the file system says.
    fn allocate(&self, bytes: u64) -> io::Result<bool>;
}
