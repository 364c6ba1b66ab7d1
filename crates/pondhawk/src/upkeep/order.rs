//! Backups that operators order while the broker runs: one at a time, on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use admin::{Backup, BackupRefused, BackupState};

use super::backup::{self, Watch};

/// Maximum length of the name of a backup, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The place for backups, and the last one.
#[derive(Clone)]
pub(crate) struct Backups {
    /// The directory with the journal.
    data_dir: Option<PathBuf>,
    /// The directory for backups.
    below: Option<PathBuf>,
    last: Arc<Mutex<Option<Arc<Job>>>>,
}

/// A backup, which may be under way.
struct Job {
    name: String,
    to: PathBuf,
    begun: Instant,
    progress: Progress,
    /// The end: how long it took, and what was said.
    end: Mutex<Option<(Duration, Result<String, String>)>>,
}

#[derive(Default)]
struct Progress {
    copied: AtomicU64,
    total: AtomicU64,
}

impl Watch for Progress {
    fn begins(&self, bytes: u64) {
        self.total.store(bytes, Relaxed);
    }

    fn copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Relaxed);
    }
}

impl Backups {
    pub(crate) fn new(data_dir: Option<PathBuf>, below: Option<PathBuf>) -> Self {
        Self { data_dir, below, last: Arc::default() }
    }

    /// Begins a backup into a new directory of this name.
    pub(crate) fn begin(&self, name: &str) -> Result<(), BackupRefused> {
        let (Some(from), Some(below)) = (self.data_dir.clone(), &self.below) else {
            return Err(BackupRefused::Off);
        };
        if !is_name(name) {
            return Err(BackupRefused::Name);
        }
        let to = below.join(name);
        if to.symlink_metadata().is_ok() {
            return Err(BackupRefused::Exists);
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(|job| job.is_running()) {
            return Err(BackupRefused::Running);
        }
        let (begun, end) = (Instant::now(), Mutex::default());
        let job = Arc::new(Job { name: name.to_owned(), to, begun, progress: Progress::default(), end });
        let run = Arc::clone(&job);
        let thread = thread::Builder::new().name("backup".to_owned()).spawn(move || run.run(&from));
        thread.map_err(|error| BackupRefused::Failed(error.to_string()))?;
        *last = Some(job);
        Ok(())
    }

    /// The backup that began last.
    pub(crate) fn last(&self) -> Option<Backup> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|job| job.describe())
    }
}

impl Job {
    fn run(&self, from: &Path) {
        tracing::info!(name = self.name, "a backup begins");
        self.end_with(|| {
            let copied = backup::backup_watched(from, &self.to, &self.progress);
            copied.map(|text| text.trim_end().to_owned()).map_err(|failure| failure.to_string())
        });
    }

    /// Makes the copy, and notes the end. If `copy` panics, there is an end too: the next backup can begin.
    fn end_with(&self, copy: impl FnOnce() -> Result<String, String>) {
        let outcome =
            Err("the broker has a fault in backups: its message is on the standard error".to_owned());
        let mut end = End { job: self, outcome };
        end.outcome = copy();
    }

    fn is_running(&self) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn describe(&self) -> Backup {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (copied_bytes, total_bytes) =
            (self.progress.copied.load(Relaxed), self.progress.total.load(Relaxed));
        let took = end.as_ref().map_or_else(|| self.begun.elapsed(), |(took, _)| *took);
        let (state, text) = match end {
            None if total_bytes > 0 && copied_bytes >= total_bytes => (BackupState::Checking, None),
            None => (BackupState::Copying, None),
            Some((_, Ok(text))) => (BackupState::Done, Some(text)),
            Some((_, Err(why))) => (BackupState::Failed, Some(why)),
        };
        Backup { name: self.name.clone(), state, copied_bytes, total_bytes, seconds: took.as_secs(), text }
    }
}

/// The end of a job, which is noted when this is dropped.
struct End<'a> {
    job: &'a Job,
    outcome: Result<String, String>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let name = &self.job.name;
        match &self.outcome {
            Ok(text) => tracing::info!(name, "a backup is done: {text}"),
            Err(why) => tracing::error!(name, "a backup has failed: {why}"),
        }
        let end = Some((self.job.begun.elapsed(), self.outcome.clone()));
        *self.job.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

/// Whether a text is the name of a directory in one place: without separators, no hidden one, and no option of a command.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with(['.', '-']) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_panics_has_failed_and_is_over() {
        let (name, to, begun) = ("monday".to_owned(), PathBuf::new(), Instant::now());
        let job = Job { name, to, begun, progress: Progress::default(), end: Mutex::default() };
        let job = std::panic::AssertUnwindSafe(job);
        let copied = std::panic::catch_unwind(|| job.end_with(|| panic!("a fault")));
        assert!(copied.is_err());
        assert!(!job.is_running());
        assert_eq!(job.describe().state, BackupState::Failed);
    }

    #[test]
    fn a_name_leads_to_no_other_directory() {
        for name in ["monday", "2026-11-27_02.30", "a"] {
            assert!(is_name(name), "{name}");
        }
        for wrong in
            ["", ".", "..", ".hidden", "-rf", "--", "a/b", "/etc", "a\\b", "a b", "é", "a\0", &"x".repeat(65)]
        {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
