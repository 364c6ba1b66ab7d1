//! The file with all records of changes: one line of JSON for each, behind those of earlier runs.
//!
//! One thread writes. It takes all records that wait, and syncs them together. A file of its size gets the number 1 behind its
//! name, the file with this number the next one, and so on up to the bound.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tokio::sync::oneshot;

/// Mode of the file: its readers may see who has done what, and the names of topics and clients.
const MODE: u32 = 0o640;
/// Maximum bytes that are read at the start, from the end of the newest file backwards.
const READ_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of records that wait to be written. Others are not written, and counted.
const LINES_MAX: usize = 1_024;
/// Maximum length of a line that is read, in bytes. Those that the broker writes are shorter.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The file with all records of changes.
#[derive(Debug, Clone)]
pub struct AuditFile {
    /// The path of the newest file.
    pub path: PathBuf,
    /// Size from which on a new file begins, in bytes.
    pub bytes_max: u64,
    /// Maximum number of files, the newest included.
    pub files_max: u32,
}

/// Figures of the file.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    written: AtomicU64,
    failed: AtomicU64,
    /// The last record was not written.
    is_failing: AtomicBool,
}

impl Figures {
    /// Passes each figure with its topic.
    pub(crate) fn read(&self, say: &mut dyn FnMut(&str, String)) {
        say("admin/audit_written", self.written.load(Relaxed).to_string());
        say("admin/audit_failed", self.failed.load(Relaxed).to_string());
        say("admin/audit_failing", u8::from(self.is_failing()).to_string());
    }

    /// A record was not written in time. The next one that is written takes this back.
    pub(crate) fn note_late(&self) {
        self.is_failing.store(true, Relaxed);
    }

    /// Whether the last record was not written.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }
}

/// The thread that writes. It ends with its work when this is dropped.
pub(crate) struct Writing {
    lines: Option<SyncSender<Line>>,
    thread: Option<JoinHandle<()>>,
    figures: Arc<Figures>,
}

/// A line, and whoever waits until it is on disk.
type Line = (String, oneshot::Sender<()>);

impl Writing {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(file: AuditFile) -> io::Result<Self> {
        let figures = Arc::<Figures>::default();
        let (lines, waiting) = sync_channel(LINES_MAX);
        let mut writer = Writer { settings: file, open: None, figures: Arc::clone(&figures) };
        let thread = thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run(&waiting))?;
        Ok(Self { lines: Some(lines), thread: Some(thread), figures })
    }

    /// Hands over a record. The receiver hears when it is on disk, or that it is not, as when too many records wait for a disk
    /// that does not answer.
    pub(crate) fn write(&self, record: &Value) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        let lines = self.lines.as_ref().expect("it is there until the end");
        if lines.try_send((format!("{record}\n"), tell)).is_err() {
            self.figures.failed.fetch_add(1, Relaxed);
            self.figures.note_late();
        }
        told
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        drop(self.lines.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the writer is no reason for another one.
            let _ = thread.join();
        }
    }
}

struct Writer {
    settings: AuditFile,
    open: Option<Open>,
    figures: Arc<Figures>,
}

/// The newest file, open for writing.
struct Open {
    file: File,
    /// Its number in the file system, and its size.
    inode: u64,
    bytes: u64,
}

impl Writer {
    fn run(&mut self, waiting: &Receiver<Line>) {
        while let Ok(first) = waiting.recv() {
            let lines: Vec<Line> = [first].into_iter().chain(waiting.try_iter()).collect();
            let text: String = lines.iter().map(|(line, _)| &**line).collect();
            let count = lines.len() as u64;
            let outcome = self.append(text.as_bytes());
            let was_failing = self.figures.is_failing.swap(outcome.is_err(), Relaxed);
            match outcome {
                Ok(()) => {
                    self.figures.written.fetch_add(count, Relaxed);
                    if was_failing {
                        tracing::info!("records of changes are written again");
                    }
                    // Whoever has asked may have stopped to wait.
                    for (_, tell) in lines {
                        let _ = tell.send(());
                    }
                }
                Err(error) => {
                    let failed = self.figures.failed.fetch_add(count, Relaxed) + count;
                    let path = wire::Shown(self.settings.path.display());
                    tracing::error!(%path, %error, failed, "the record of a change is not in `audit_file`; the log has it");
                }
            }
        }
    }

    /// Writes lines at the end of the newest file, and waits until they are on disk.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.leave_if_moved();
        let path = &self.settings.path;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => open_file(path)?,
        };
        if open.bytes > 0 && open.bytes + lines.len() as u64 > self.settings.bytes_max {
            match self.settings.rotate() {
                Ok(()) => open = open_file(path)?,
                // A file that is too long is better than none.
                Err(error) => {
                    let path = wire::Shown(path.display());
                    tracing::warn!(%path, %error, "`audit_file` cannot get its next number: it grows");
                }
            }
        }
        open.file.write_all(lines)?;
        open.bytes += lines.len() as u64;
        open.file.sync_data()?;
        self.open = Some(open);
        Ok(())
    }

    /// Lets go of a file that somebody has moved or removed.
    fn leave_if_moved(&mut self) {
        let found = fs::metadata(&self.settings.path).ok().map(|found| found.ino());
        self.open.take_if(|open| found != Some(open.inode));
    }
}

/// Opens a file for writing at its end. A last line that is not whole ends first.
fn open_file(path: &Path) -> io::Result<Open> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = found.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
        bytes += 1;
    }
    // A new file is there after a power failure if its directory is synced too.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(Open { file, inode: found.ino(), bytes })
}

impl AuditFile {
    /// The path of an older file, from 1. The newest has the number 0.
    fn numbered(&self, number: u32) -> PathBuf {
        if number == 0 {
            return self.path.clone();
        }
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    /// Gives each file the next number. The last one goes.
    fn rotate(&self) -> io::Result<()> {
        let rename = |number: u32| match fs::rename(self.numbered(number), self.numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        (0..self.files_max.saturating_sub(1)).rev().try_for_each(rename)
    }

    /// The last records, the newest first: at most `count`, and those in 16 MiB.
    pub(crate) fn last(&self, count: usize) -> Vec<Value> {
        let (mut records, mut bytes_left) = (Vec::new(), READ_BYTES_MAX);
        for number in 0..self.files_max {
            if records.len() >= count || bytes_left == 0 {
                break;
            }
            let Ok(text) = read_end(&self.numbered(number), &mut bytes_left) else { break };
            let lines = text.split(|byte| *byte == b'\n').rev().filter(|line| line.len() <= LINE_BYTES_MAX);
            let whole = lines.filter_map(|line| serde_json::from_slice(line).ok());
            records.extend(whole.take(count - records.len()));
        }
        records
    }
}

/// Reads at most so many bytes from the end of a file.
fn read_end(path: &Path, bytes_left: &mut u64) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).open(path)?;
    let length = file.metadata()?.len();
    let bytes = length.min(*bytes_left);
    file.seek(SeekFrom::Start(length - bytes))?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text)?;
    *bytes_left -= bytes;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A directory that ends with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pondhawk-audit-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("a temporary directory");
            Self(path)
        }

        fn file(&self, bytes_max: u64) -> AuditFile {
            AuditFile { path: self.0.join("audit"), bytes_max, files_max: 3 }
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("it is ours");
            let mut names: Vec<_> = entries
                .map(|entry| entry.expect("it is ours").file_name().into_string().expect("a name"))
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Writes a record, and returns whether it is on disk.
    fn write(writing: &Writing, number: u32) -> bool {
        writing.write(&json!({ "number": number })).blocking_recv().is_ok()
    }

    fn numbers(file: &AuditFile, count: usize) -> Vec<u64> {
        file.last(count).iter().map(|record| record["number"].as_u64().expect("a number")).collect()
    }

    #[test]
    fn records_of_earlier_runs_are_read_from_the_newest_file_backwards() {
        let place = Place::new("rotated");
        // Three lines of 14 bytes fit into a file, and three files are kept.
        let file = place.file(45);
        for run in 0..5 {
            let writing = Writing::start(file.clone()).expect("a thread");
            assert!((0..3).all(|number| write(&writing, 10 + 3 * run + number)));
        }
        assert_eq!(place.names(), ["audit", "audit.1", "audit.2"]);
        assert_eq!(numbers(&file, 100), [24, 23, 22, 21, 20, 19, 18, 17, 16]);
        assert_eq!(numbers(&file, 4), [24, 23, 22, 21]);
    }

    #[test]
    fn a_line_that_is_not_whole_spoils_no_other() {
        let place = Place::new("torn");
        let file = place.file(1 << 20);
        fs::write(&file.path, "{\"number\":1}\nnonsense\n{\"number\":2,\"wh").expect("it is ours");
        let writing = Writing::start(file.clone()).expect("a thread");
        assert!(write(&writing, 3));
        assert_eq!(numbers(&file, 100), [3, 1]);
    }

    #[test]
    fn a_file_that_was_moved_is_made_again() {
        let place = Place::new("moved");
        let file = place.file(1 << 20);
        let writing = Writing::start(file.clone()).expect("a thread");
        assert!(write(&writing, 1));
        fs::rename(&file.path, place.0.join("old")).expect("it is ours");
        assert!(write(&writing, 2));
        assert_eq!(numbers(&file, 100), [2]);
    }

    #[test]
    fn a_record_that_cannot_be_written_is_counted_until_it_can() {
        let place = Place::new("failed");
        let file = place.file(1 << 20);
        fs::create_dir(&file.path).expect("it is ours");
        let writing = Writing::start(file.clone()).expect("a thread");
        assert!(!write(&writing, 1) && writing.figures().is_failing());
        fs::remove_dir(&file.path).expect("it is ours");
        assert!(write(&writing, 2) && !writing.figures().is_failing());
        let mut found = Vec::new();
        writing.figures().read(&mut |topic, value| found.push(format!("{topic} {value}")));
        assert_eq!(found, ["admin/audit_written 1", "admin/audit_failed 1", "admin/audit_failing 0"]);
    }
}
