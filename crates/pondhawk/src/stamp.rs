//! Signs that a file has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Length, number and times of change of a file. A program that keeps the time of the contents, as `cp -p` does, changes the
/// number or the time of the state. A link is followed, because certbot and Kubernetes change links.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    /// Device and inode: a file that was replaced has others.
    number: (u64, u64),
    /// Seconds and nanoseconds, of the contents and of the state.
    times: [(i64, i64); 2],
}

impl Stamp {
    /// Looks at a file. `None` if that cannot be done, which is a state like others.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let times = [(file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec())];
        Some(Self { bytes: file.len(), number: (file.dev(), file.ino()), times })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_same_length_and_time_is_another() {
        let directory = std::env::temp_dir().join(format!("pondhawk-stamp-{}", std::process::id()));
        fs::create_dir(&directory).expect("a temporary directory can be made");
        let (path, new) = (directory.join("users"), directory.join("new"));
        fs::write(&path, "ann").expect("it is ours");
        let (stamp, file) = (Stamp::of(&path), fs::metadata(&path).expect("it is there"));
        let same = Stamp::of(&path);
        fs::write(&new, "bob").expect("it is ours");
        let opened = fs::File::options().write(true).open(&new).expect("it is ours");
        opened.set_modified(file.modified().expect("Unix has times")).expect("it is ours");
        fs::rename(&new, &path).expect("it is ours");
        let replaced = Stamp::of(&path);
        fs::remove_dir_all(&directory).expect("it is ours");
        assert_eq!(stamp, same);
        assert_ne!(stamp, replaced);
    }
}
