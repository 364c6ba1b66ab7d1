//! Files that the superuser opens in directories that may belong to another user.
//!
//! The other user can put links into such a directory, to make the superuser write or give away another file. A walk through
//! descriptors, one directory at a time, follows links of the superuser only. Nothing that the other user changes meanwhile
//! redirects the walk.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

/// An open directory, and the name of an entry in it.
pub(crate) struct Entry {
    directory: OwnedFd,
    name: OsString,
}

impl Entry {
    /// Walks to the directory of a path. With a mode, directories that do not exist are made.
    ///
    /// # Errors
    /// A directory does not exist or is a link that the superuser has not made, or as the file system says.
    pub(crate) fn walk(path: &Path, making: Option<Mode>) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = path.parent().unwrap_or(Path::new("/"));
        Ok(Self { directory: directory(parent, making)?, name })
    }

    /// Opens a file for writing at its end, and makes it if it does not exist. Says whether it was made.
    ///
    /// # Errors
    /// There is a link, a file with a second name, a pipe or a socket, or as the file system says.
    pub(crate) fn open_file(&self, mode: Mode) -> io::Result<(File, bool)> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        match openat(&self.directory, &*self.name, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode) {
            Ok(made) => return Ok((made.into(), true)),
            Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let file = match openat(&self.directory, &*self.name, flags, Mode::empty()) {
            Err(Errno::ELOOP) => return Err(refusal("it is a link, and the broker starts as the superuser")),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        let is_plain = found.is_file() && found.nlink() == 1;
        if is_plain || found.file_type().is_char_device() {
            Ok((file, false))
        } else {
            Err(refusal(
                "it is no file, or a file with a second name, and the broker starts as the superuser",
            ))
        }
    }

    /// Makes a directory, and opens it. `None` if the name exists.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) fn make_directory(&self, mode: Mode) -> io::Result<Option<OwnedFd>> {
        match mkdirat(&self.directory, &*self.name, mode) {
            Ok(()) => self.open_directory().map(Some),
            Err(Errno::EEXIST) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a directory that is no link.
    ///
    /// # Errors
    /// As the file system says.
    pub(crate) fn open_directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.directory, &*self.name, flags, Mode::empty())?)
    }

    /// Makes another user the owner of a directory and of the files in it.
    ///
    /// # Errors
    /// There is a link, or a file with a second name, or as the file system says.
    pub(crate) fn give(&self, user: u32, group: u32) -> io::Result<()> {
        let directory = self.open_directory()?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        for entry in Dir::from_fd(directory.try_clone()?)?.iter() {
            let entry = entry?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            let file = File::from(openat(&directory, entry.file_name(), flags, Mode::empty())?);
            if !file.metadata().is_ok_and(|found| found.is_file() && found.nlink() == 1) {
                return Err(refusal("there is a file in it that the broker has not made"));
            }
            fchown(file, Some(user), Some(group))?;
        }
        fchown(directory, Some(user), Some(group))
    }
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Opens the directory at a path, one part after the other.
#[cfg(target_os = "linux")]
fn directory(path: &Path, making: Option<Mode>) -> io::Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;

    use nix::fcntl::readlinkat;

    /// Links on one way, as the kernel permits them (path_resolution(7)).
    const LINKS_MAX: usize = 40;

    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let beginning = |path: &Path| File::open(if path.is_absolute() { "/" } else { "." }).map(OwnedFd::from);
    let parts = |path: &Path| -> Vec<OsString> {
        let parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/').rev();
        parts.filter(|part| !part.is_empty()).map(|part| OsStr::from_bytes(part).to_owned()).collect()
    };
    let (mut at, mut left, mut links) = (beginning(path)?, parts(path), 0);
    while let Some(name) = left.pop() {
        let next = match (openat(&at, &*name, flags, Mode::empty()), making) {
            (Err(Errno::ENOENT), Some(mode)) => {
                mkdirat(&at, &*name, mode)?;
                openat(&at, &*name, flags, Mode::empty())?
            }
            (next, _) => next?,
        };
        let file = File::from(next);
        let found = file.metadata()?;
        if !found.is_symlink() {
            at = file.into();
            continue;
        }
        links += 1;
        if found.uid() != 0 || links > LINKS_MAX {
            let name = name.display();
            return Err(refusal(&format!("`{name}` in it is a link that the superuser has not made")));
        }
        let target = readlinkat(&file, "")?;
        if Path::new(&target).is_absolute() {
            at = beginning(Path::new(&target))?;
        }
        left.extend(parts(Path::new(&target)));
    }
    Ok(at)
}

/// Opens the directory at a path. Other systems cannot open a link itself.
#[cfg(not(target_os = "linux"))]
fn directory(path: &Path, making: Option<Mode>) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if making.is_some() {
        std::fs::create_dir_all(path)?;
    }
    File::open(path).map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A directory of this test, removed on drop.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pondhawk-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a temporary directory can be made");
            Self(path)
        }

        fn open(&self, name: &str) -> io::Result<(File, bool)> {
            Entry::walk(&self.0.join(name), None)?.open_file(Mode::from_bits_truncate(0o640))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_file_is_made_once_and_links_at_its_place_are_refused() {
        let place = Place::new("links");
        assert!(place.open("log").expect("there is nothing yet").1);
        assert!(!place.open("log").expect("it is ours").1);
        symlink("new", place.0.join("dangling")).expect("it is ours");
        symlink("log", place.0.join("link")).expect("it is ours");
        fs::hard_link(place.0.join("log"), place.0.join("second")).expect("it is ours");
        nix::unistd::mkfifo(&place.0.join("pipe"), Mode::S_IRWXU).expect("it is ours");
        for name in ["dangling", "link", "second", "log", "pipe"] {
            assert!(place.open(name).is_err(), "{name}");
        }
        assert!(!place.0.join("new").exists());
    }

    #[test]
    fn links_on_the_way_are_followed_if_the_superuser_made_them() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let place = Place::new("way");
        fs::create_dir(place.0.join("there")).expect("it is ours");
        symlink("there/.", place.0.join("ours")).expect("it is ours");
        symlink(place.0.join("there"), place.0.join("others")).expect("it is ours");
        std::os::unix::fs::lchown(place.0.join("others"), Some(65_534), None).expect("we are the superuser");
        assert!(place.open("ours/log").expect("the link is the superuser's").1);
        assert!(!place.open("there/log").expect("the same file").1);
        let error = place.open("others/log").expect_err("the link is another's");
        assert!(error.to_string().contains("`others`"), "{error}");
        symlink("ring", place.0.join("ring")).expect("it is ours");
        assert!(place.open("ring/log").is_err());
    }
}
