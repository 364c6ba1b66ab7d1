//! Reads a password file, and replaces it in one step.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use auth::PasswordFile;

use super::of_file;

/// Reads a password file.
pub(super) fn read(path: &Path) -> Result<PasswordFile, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(PasswordFile::parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(of_file(path, format!("{error}; -c makes a new file")))
        }
        Err(error) => Err(of_file(path, error)),
    }
}

/// Replaces a password file, or makes it. A reader finds the old file or the new one.
///
/// A directory that hands its group to new files, as that of the Debian package does, is meant for this group.
pub(super) fn write(path: &Path, users: &PasswordFile) -> Result<(), String> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let metadata = fs::metadata(directory.unwrap_or_else(|| Path::new(".")));
    let has_group = metadata.is_ok_and(|directory| directory.mode() & SET_GROUP != 0);
    replace(path, &users.to_string(), if has_group { 0o640 } else { 0o600 })
}

/// The set-group-ID bit of a directory: its new files have its group.
const SET_GROUP: u32 = 0o2000;

/// Replaces a file, or makes it with this mode. An earlier file gives the new one its mode and, as far as this process may,
/// its owner. A link stays a link.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&target).ok();
    let mode = before.as_ref().map_or(mode, |before| before.mode() & 0o7777);
    write_beside(&target, text, mode).map_err(|error| of_file(path, error))
}

/// The same for a file that nobody but its owner may read, whatever its mode was before.
pub(crate) fn replace_private(path: &Path, text: &str) -> Result<(), String> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    write_beside(&target, text, 0o600).map_err(|error| of_file(path, error))
}

fn write_beside(target: &Path, text: &str, mode: u32) -> io::Result<()> {
    let before = fs::metadata(target).ok();
    let new = beside(target)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).and_then(|()| {
        if let Some(before) = &before {
            // Only the superuser may give a file away.
            drop(fchown(&file, Some(before.uid()), Some(before.gid())));
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        fs::rename(&new, target)
    });
    if written.is_err() {
        drop(fs::remove_file(&new));
        return written;
    }
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// A name for the new file, in the same directory.
fn beside(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let number = getrandom::u64().map_err(io::Error::other)?;
    Ok(target.with_file_name(format!(".{name}.{number:016x}")))
}
