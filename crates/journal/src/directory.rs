//! A real directory of a file system.

use std::fmt;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::{File, Storage};

/// The lock file. Only the process that has locked this file writes to the directory.
const LOCK: &str = "LOCK";
/// Permissions of all files that are made.
const MODE: u32 = 0o600;

/// A directory of a file system. Its files are opened without following links, and only if they are regular files.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// To sync the names in it.
    directory: fs::File,
    is_writable: bool,
    /// The lock, exclusive for a directory that is written, shared for one that is checked.
    _lock: Option<Lock>,
}

/// Why a [`Directory`] could not be opened.
#[derive(Debug)]
pub enum DirectoryError {
    /// Another process has it.
    InUse {
        /// Which, if it has said so.
        pid: Option<u32>,
    },
    /// The error of the file system.
    Io(io::Error),
}

impl Directory {
    /// Opens the directory, makes it if there is none, readable by its owner only, and locks it for this process.
    ///
    /// # Errors
    /// Another process has it locked, and whatever the file system says.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let missing: Vec<&Path> = path.ancestors().take_while(|directory| !directory.exists()).collect();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // Each new name has to last too.
        for parent in missing.iter().filter_map(|made| made.parent()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            fs::File::open(parent)?.sync_all()?;
        }
        let lock = lock(&path.join(LOCK))?;
        Ok(Self {
            path: path.to_owned(),
            directory: open_directory(path)?,
            is_writable: true,
            _lock: Some(lock),
        })
    }

    /// Opens a directory that another process may be using, to read it.
    ///
    /// # Errors
    /// There is none, and whatever the file system says.
    pub fn open_to_read(path: &Path) -> Result<Self, DirectoryError> {
        Ok(Self { path: path.to_owned(), directory: open_directory(path)?, is_writable: false, _lock: None })
    }

    /// Opens a directory to read it, and keeps other processes from writing to it meanwhile. Nothing is changed or made:
    /// where no process has ever locked it, it is not locked now.
    ///
    /// # Errors
    /// Another process has it locked, there is none, and whatever the file system says.
    pub fn open_to_check(path: &Path) -> Result<Self, DirectoryError> {
        let lock = match open_file(&path.join(LOCK), OpenOptions::new().read(true)) {
            Ok(file) => Some(lock_shared(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(in_file(LOCK, &error).into()),
        };
        Ok(Self { _lock: lock, ..Self::open_to_read(path)? })
    }
}

fn open_directory(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits().cast_signed()).open(path)
}

/// Opens a regular file: without following a link, and without waiting for the other end of a pipe.
fn open_file(path: &Path, options: &mut OpenOptions) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.mode(MODE).custom_flags(flags.bits().cast_signed()).open(path);
    let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            refused("this is a symbolic link, and not a file")
        }
        // A pipe that nobody reads cannot be opened for writing.
        Ok(_) => refused("this is not a regular file"),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
            refused("this is not a regular file")
        }
        Err(error) => Err(error),
    }
}

/// The error, with the name of the file in front.
fn in_file(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Locks the file against processes that write.
fn lock_shared(file: fs::File) -> Result<Lock, DirectoryError> {
    let mut lock = Lock(file);
    match lock.0.try_lock_shared() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { pid: pid(&mut lock.0) }),
        Err(TryLockError::Error(error)) => Err(in_file(LOCK, &error).into()),
    }
}

/// The number in the file. Nobody writes more than this into it.
fn pid(file: &mut fs::File) -> Option<u32> {
    let mut pid = String::new();
    file.take(16).read_to_string(&mut pid).ok()?;
    pid.trim().parse().ok()
}

fn lock(path: &Path) -> Result<Lock, DirectoryError> {
    let mut options = OpenOptions::new();
    let opened = open_file(path, options.create(true).truncate(false).read(true).write(true));
    let mut lock = Lock(opened.map_err(|error| in_file(LOCK, &error))?);
    let file = &mut lock.0;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            // A process that only reads has not written its process identifier.
            let is_read = file.try_lock_shared().is_ok();
            return Err(DirectoryError::InUse { pid: if is_read { None } else { pid(file) } });
        }
        Err(TryLockError::Error(error)) => return Err(in_file(LOCK, &error).into()),
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(lock)
}

/// A file that is to be locked. A child process has a copy of the descriptor until it begins its program, and a lock lasts as long
/// as any copy: it is given up here, and not when the last copy is closed.
#[derive(Debug)]
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file gives it up otherwise.
        let _ = self.0.unlock();
    }
}

impl Storage for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is not one of the journal's.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(self.is_writable).create(create).truncate(false);
        Ok(Arc::new(DiskFile(open_file(&self.path.join(name), &mut options)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = rustix::fs::fstatvfs(&self.directory)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn salt(&self) -> io::Result<u64> {
        getrandom::u64().map_err(io::Error::other)
    }
}

#[derive(Debug)]
struct DiskFile(fs::File);

impl File for DiskFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<io::Error> for DirectoryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { pid: Some(pid) } => write!(f, "the process {pid} uses it"),
            Self::InUse { pid: None } => f.write_str("another process uses it"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DirectoryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_up_although_a_child_process_has_a_copy_of_the_descriptor() {
        let path = std::env::temp_dir().join(format!("pondhawk-lock-{}", std::process::id()));
        let first = lock(&path).expect("nobody has it");
        let copy = first.0.try_clone().expect("a descriptor is free");
        assert!(matches!(lock(&path), Err(DirectoryError::InUse { .. })));
        drop(first);
        let second = lock(&path);
        fs::remove_file(&path).expect("it is there");
        assert!(second.is_ok(), "{second:?}");
        drop(copy);
    }
}
