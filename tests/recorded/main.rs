//! The broker, with a file layer below its journal that notes what is done to its files and what was synced: see
//! [`pondhawk_tests::trace`]. Threads, sockets and everything above the files are those of the real one.
//!
//! `PONDHAWK_TRACE` names the file that is written; what is there already is gone on with.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use journal::{Directory, File, Storage};
use pondhawk_tests::trace::{Bytes, Entry, Position};

/// Minimum duration of a sync. With files in memory, a sync would be over before an early answer could be noticed.
const SYNC_TAKES: Duration = Duration::from_micros(500);

fn main() -> ExitCode {
    pondhawk::run(|directory| {
        let path = std::env::var_os("PONDHAWK_TRACE").map(PathBuf::from);
        let path = path.expect("PONDHAWK_TRACE names the file of the trace");
        Arc::new(Recorded { directory, trace: Trace::open(path) })
    })
}

/// A directory, of whose changes a trace is written.
struct Recorded {
    directory: Directory,
    trace: Trace,
}

/// A trace that is written by several threads.
#[derive(Clone)]
struct Trace(Arc<Mutex<Noted>>);

struct Noted {
    file: std::fs::File,
    length: Position,
    /// Writes that have begun: where each is noted, and to which file it goes.
    under_way: BTreeMap<Position, u64>,
}

struct RecordedFile {
    file: Arc<dyn File>,
    /// Its number in the trace.
    id: u64,
    trace: Trace,
}

impl Trace {
    fn open(path: PathBuf) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("the trace can be written");
        let length = file.metadata().expect("a file has a length").len();
        Self(Arc::new(Mutex::new(Noted { file, length, under_way: BTreeMap::new() })))
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    /// Returns where it is.
    fn note(&mut self, entry: &Entry) -> Position {
        let position = self.length;
        self.length += entry.append(&mut self.file).expect("the trace can be written");
        position
    }

    /// In front of this everything that was noted for the file is done.
    fn done(&self, file: u64) -> Position {
        let begun = self.under_way.iter().find(|(_, of)| **of == file);
        begun.map_or(self.length, |(position, _)| *position)
    }
}

/// Something that changes names, which is over before anything else is noted.
impl Recorded {
    fn change(&self, entry: &Entry, change: impl FnOnce(&Directory) -> io::Result<()>) -> io::Result<()> {
        let mut noted = self.trace.noted();
        change(&self.directory)?;
        noted.note(entry);
        Ok(())
    }
}

impl Storage for Recorded {
    fn list(&self) -> io::Result<Vec<String>> {
        self.directory.list()
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let mut noted = self.trace.noted();
        let file = self.directory.open(name, create)?;
        // The time of opening distinguishes it from all others, those of earlier processes included.
        let id = noted.length;
        noted.note(&Entry::Opened { file: id, name: name.to_owned() });
        Ok(Arc::new(RecordedFile { file, id, trace: self.trace.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let entry = Entry::Renamed { from: from.to_owned(), to: to.to_owned() };
        self.change(&entry, |directory| directory.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(&Entry::Removed { name: name.to_owned() }, |directory| directory.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        let before = self.trace.noted().length;
        take_a_while(|| self.directory.sync())?;
        self.trace.noted().note(&Entry::NamesSynced { before });
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.directory.free_bytes()
    }

    fn salt(&self) -> io::Result<u64> {
        self.directory.salt()
    }
}

impl File for RecordedFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let entry = Entry::Written { file: self.id, offset, bytes: Bytes::of(bytes) };
        let mut noted = self.trace.noted();
        let position = noted.note(&entry);
        noted.under_way.insert(position, self.id);
        drop(noted);
        let written = self.file.write_at(offset, bytes);
        self.trace.noted().under_way.remove(&position);
        written
    }

    fn sync_data(&self) -> io::Result<()> {
        let before = self.trace.noted().done(self.id);
        take_a_while(|| self.file.sync_data())?;
        self.trace.noted().note(&Entry::Synced { file: self.id, before });
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        let mut noted = self.trace.noted();
        let is_reserved = self.file.allocate(bytes)?;
        noted.note(&Entry::Allocated { file: self.id, bytes });
        Ok(is_reserved)
    }
}

/// Does it, and returns when a disk would.
fn take_a_while(sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let end = Instant::now() + SYNC_TAKES;
    let synced = sync();
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
    synced
}
