//! The rights of the process: given up when the broker has opened what only the superuser may open.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::fchown;
use std::path::Path;

use config::Config;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};

use crate::no_links::Entry;

/// Permissions of the data directory.
const DATA_DIR: Mode = Mode::S_IRWXU;

/// The user that the broker will be.
#[derive(Debug, Clone)]
pub(crate) struct Successor(User);

impl Successor {
    /// Returns the user that the configuration names. `None` without such a name, for the superuser itself, and if another
    /// user than the superuser has started the broker.
    ///
    /// # Errors
    /// There is no such user.
    pub(crate) fn of(config: &Config) -> io::Result<Option<Self>> {
        let Some(name) = config.user.as_deref().filter(|_| Uid::effective().is_root()) else {
            return Ok(None);
        };
        let found = User::from_name(name)?;
        let user = found.ok_or_else(|| io::Error::other(format!("`user`: there is no user {name}")))?;
        Ok(Some(Self(user)).filter(|successor| !successor.0.uid.is_root()))
    }

    /// Makes a data directory that does not exist yet, for the user.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) fn make_data_dir(&self, path: &Path) -> io::Result<()> {
        let all = Mode::from_bits_truncate(0o777);
        let made = Entry::walk(path, Some(all))?.make_directory(DATA_DIR)?;
        made.map_or(Ok(()), |directory| self.give(directory))
    }

    /// Opens the file of a log, and makes it for the user if it does not exist.
    ///
    /// # Errors
    /// There is a link at the path or on the way to it, or as the file system says.
    pub(crate) fn open_log(&self, path: &Path, mode: u32) -> io::Result<File> {
        let (file, is_new) = Entry::walk(path, None)?.open_file(Mode::from_bits_truncate(mode))?;
        if is_new {
            self.give(&file)?;
        }
        Ok(file)
    }

    /// Makes the user the owner of what the broker has made. A path would lead to another file by now, if the user wants.
    fn give(&self, made: impl AsFd) -> io::Result<()> {
        fchown(made, Some(self.0.uid.as_raw()), Some(self.0.gid.as_raw()))
    }

    /// Gives up the rights of the superuser, for all threads and for ever.
    ///
    /// # Errors
    /// The system refuses. The broker must not go on then.
    pub(crate) fn take_over(&self) -> io::Result<()> {
        let User { name, uid, gid, .. } = &self.0;
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot become the user {name}: {error}"))
        };
        let change = || -> io::Result<()> {
            initgroups(&std::ffi::CString::new(name.as_str())?, *gid)?;
            setgid(*gid)?;
            setuid(*uid)?;
            Ok(())
        };
        change().map_err(explain)?;
        let is_gone =
            setuid(Uid::from_raw(0)).is_err() && Gid::effective() == *gid && Uid::effective() == *uid;
        if is_gone { Ok(()) } else { Err(explain(io::ErrorKind::PermissionDenied.into())) }
    }
}
