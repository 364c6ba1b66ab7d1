//! The rights of the process: given up when the broker has opened what only the superuser may open.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

use config::Config;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};

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
        if path.exists() {
            return Ok(());
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        DirBuilder::new().mode(0o700).create(path)?;
        self.give(path)
    }

    /// Makes the user the owner of a file that the broker has made.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.0.uid.as_raw()), Some(self.0.gid.as_raw()))
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
