//! A session in a file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::SessionStore;

/// A [`SessionStore`] in a file.
///
/// The file is created when it is first needed. Only its owner can read it, because it contains messages. Beside it is
/// a file with the suffix `.lock`, which prevents a second program from using the same session. A file with the suffix
/// `.new` exists for a moment while the store is rewritten.
///
/// ```no_run
/// # use pondhawk_client::{Client, ConnectError, FileStore, Options, Version};
/// # async fn connect() -> Result<Client, ConnectError> {
/// let options = Options::new(Version::V5)
///     .client_id("sensor-7")
///     .session_expiry_secs(86_400)
///     .session_store(FileStore::new("/var/lib/sensor/session"));
/// Client::connect_tcp("localhost:1883", options).await
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    /// `None` before the first use.
    file: Option<File>,
    /// The lock lasts as long as this file is open.
    lock: Option<File>,
}

impl FileStore {
    /// A store in the file at this path, whose directory must exist. The call does not open the file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, lock: None }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    fn lock(&mut self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        let lock = private().create(true).truncate(false).write(true).open(self.beside(".lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(io::ErrorKind::ResourceBusy, "another client uses it"),
            TryLockError::Error(error) => error,
        })?;
        self.lock = Some(lock);
        Ok(())
    }

    fn open(&mut self) -> io::Result<&mut File> {
        self.lock()?;
        if self.file.is_none() {
            self.file = Some(private().create(true).read(true).append(true).open(&self.path)?);
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn replace_file(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.lock()?;
        let new = self.beside(".new");
        let mut file = private().create(true).truncate(true).write(true).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        sync_directory(&self.path)?;
        // The next use opens the new file.
        self.file = None;
        Ok(())
    }

    /// Adds the path to an error.
    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", wire::Shown(self.path.display())))
        })
    }
}

impl SessionStore for FileStore {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        let mut read = || -> io::Result<Vec<u8>> {
            self.lock()?;
            // A file that is opened for appending is read from its beginning.
            self.file = None;
            let mut bytes = Vec::new();
            self.open()?.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let read = read();
        self.named(read)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut append = || -> io::Result<()> {
            let file = self.open()?;
            file.write_all(bytes)?;
            file.sync_data()
        };
        let appended = append();
        self.named(appended)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let replaced = self.replace_file(bytes);
        self.named(replaced)
    }
}

/// Options for files that only their owner can read.
fn private() -> OpenOptions {
    #[allow(unused_mut, reason = "other systems have no modes")]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes a rename survive a power failure.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
