//! The pcap file of a capture, which only its owner may read. `replay` reads these files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

#[cfg(unix)]
use rustix::fs::OFlags;

/// Mode of a capture, which may contain passwords.
#[cfg(unix)]
const OWNER_ONLY: u32 = 0o600;
#[cfg(unix)]
const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();
#[cfg(unix)]
const NO_WAIT: i32 = OFlags::NONBLOCK.bits().cast_signed();

pub(crate) struct Capture<F = File> {
    /// Not buffered, so that records are in the file however this process ends. `None` after a write that failed.
    file: Option<F>,
    /// Size of the complete records.
    bytes: u64,
}

/// A file that can be cut.
pub(crate) trait Cut: Write {
    /// Removes all bytes behind the first `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

impl Cut for File {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// Creates a capture that only its owner may read, or empties an existing one.
///
/// A symbolic link is not followed, because another user may have made it. A pipe or a device is refused: a reader that
/// stops reading would stop the clients.
///
/// # Errors
/// It is no regular file, or the system refuses to create it.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(OWNER_ONLY).custom_flags(NO_FOLLOW | NO_WAIT);
    }
    let refused =
        || io::Error::new(io::ErrorKind::InvalidInput, "this is a symbolic link, or no regular file");
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(refused());
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(refused());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(OWNER_ONLY))?;
    }
    file.set_len(0)?;
    Ok(file)
}

impl<F: Cut> Capture<F> {
    /// Writes the file header.
    pub(crate) fn begin(mut file: F) -> io::Result<Self> {
        let head = capture::header();
        file.write_all(&head)?;
        Ok(Self { file: Some(file), bytes: head.len() as u64 })
    }

    /// Writes a record with an IP packet and its time since 1970.
    ///
    /// A write that fails ends the capture: the file keeps the complete records before it, and later calls do nothing.
    pub(crate) fn record(&mut self, now: Duration, packet: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let record = capture::record(now, packet);
        let written = file.write_all(&record);
        match &written {
            Ok(()) => self.bytes += record.len() as u64,
            Err(_) => {
                // The error that is reported is that of the write.
                let _ = file.cut(self.bytes);
                self.file = None;
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A disk with little room, on which writes stop half-way.
    struct Disk {
        bytes: Rc<RefCell<Vec<u8>>>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut there = self.bytes.borrow_mut();
            let count = bytes.len().min(self.room - there.len());
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            there.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Cut for Disk {
        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            self.bytes.borrow_mut().truncate(usize::try_from(bytes).expect("short"));
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_capture_behind_its_last_record() {
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let disk = Disk { bytes: Rc::clone(&bytes), room: 100 };
        let mut capture = Capture::begin(disk).expect("there is room");
        capture.record(Duration::ZERO, &[1; 20]).expect("there is room");
        let whole = bytes.borrow().clone();
        capture.record(Duration::ZERO, &[2; 100]).expect_err("the disk is full");
        capture.record(Duration::ZERO, &[3; 1]).expect("nothing is written");
        assert_eq!(*bytes.borrow(), whole);
    }
}
