//! A directory for one measurement, on a real disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use journal::{Directory, Opening, Settings, Wake};

use crate::error::{Error, Result};

/// List of mounted file systems.
const MOUNTS: &str = "/proc/self/mounts";

/// A directory that is empty at first, and is removed with everything in it when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one in `parent`.
    ///
    /// # Errors
    /// If that cannot be done there.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("pondhawk-bench-{}-{number}", std::process::id()));
        let made = fs::create_dir_all(parent).and_then(|()| fs::create_dir(&path));
        made.map_err(Error::io(format!("make the directory {}", wire::Shown(path.display()))))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Opens a journal in it, which is still to be read and started.
    ///
    /// # Errors
    /// Whatever the journal says.
    pub(crate) fn open_journal(&self) -> Result<Opening> {
        open_journal(&self.journal())
    }

    /// Path of the directory.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The file system that it is on, and its device.
    pub(crate) fn file_system(&self) -> String {
        file_system_of(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A remaining directory only takes space.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The file system that a directory is on, and its device.
pub(crate) fn file_system_of(path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_default();
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    file_system(&mounts, &path).unwrap_or_else(|| "an unknown file system".to_owned())
}

/// Opens the journal in a directory, which is still to be read and started.
///
/// # Errors
/// Whatever the journal says.
pub(crate) fn open_journal(path: &Path) -> Result<Opening> {
    let directory = Directory::open(path).map_err(failed)?;
    journal::open(Arc::new(directory), Settings::default()).map_err(failed)
}

/// Lets this thread go on that has parked, whenever the journal has come further.
pub(crate) fn wake_this_thread() -> Wake {
    let thread = thread::current();
    Arc::new(move || thread.unpark())
}

/// A journal that does not do its work, and why.
pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    let source = std::io::Error::other(error.to_string());
    Error::Io { doing: "use the journal".to_owned(), source }
}

/// Of the mounts that the path is under, the innermost, and of several on one place the last.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').map(str::to_owned);
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let over = mounts.lines().filter_map(mount).filter(|(_, place, _)| path.starts_with(place));
    let (device, _, kind) = over.max_by_key(|(_, place, _)| place.len())?;
    Some(format!("{kind} on {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_innermost_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmpest xfs rw 0 0\n";
        let of = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(of("/tmp/a").as_deref(), Some("tmpfs on tmpfs"));
        assert_eq!(of("/tmpest/a").as_deref(), Some("xfs on /dev/vdb"));
        assert_eq!(of("/home").as_deref(), Some("ext4 on /dev/vda"));
    }

    #[test]
    fn nothing_is_left_of_it() {
        let scratch = Scratch::new(&std::env::temp_dir().join("pondhawk-bench-scratch")).unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
