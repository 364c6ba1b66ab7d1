//! What a process writes, collected line by line while it runs.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The lines so far, and whether there can be more.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    is_closed: bool,
}

/// What has become of a log while somebody waited.
pub(crate) enum Progress {
    /// So many lines are there now.
    Lines(usize),
    /// Its source has ended.
    Ended,
    None,
}

/// A log that grows; clones see the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    shared: Arc<(Mutex<Lines>, Condvar)>,
}

impl Log {
    /// Collects what can be read from `source` until it ends, in a thread.
    pub(crate) fn collect(source: impl Read + Send + 'static) -> Self {
        let log = Self::default();
        let writer = log.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(source);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                writer.change(|lines| lines.lines.push(text));
                line.clear();
            }
            writer.change(|lines| lines.is_closed = true);
        });
        log
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).lines.join("\n")
    }

    /// The first line that contains `needle`, as soon as it is there; nothing once there can be none or it has taken
    /// `patience`.
    pub(crate) fn wait_for(&self, needle: &str, patience: Duration) -> Option<String> {
        let find = |lines: &Lines| lines.lines.iter().find(|line| line.contains(needle)).cloned();
        find(&self.wait_until(patience, |lines| lines.is_closed || find(lines).is_some()))
    }

    /// Every line so far that contains `needle`.
    pub(crate) fn lines_with(&self, needle: &str) -> Vec<String> {
        let (mutex, _) = &*self.shared;
        let lines = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        lines.lines.iter().filter(|line| line.contains(needle)).cloned().collect()
    }

    /// Whether there is more than `count` lines, or there can be no more, as soon as it is so or after `patience`.
    pub(crate) fn wait_for_more(&self, count: usize, patience: Duration) -> Progress {
        let lines = self.wait_until(patience, |lines| lines.is_closed || lines.lines.len() > count);
        match lines.lines.len() {
            _ if lines.is_closed => Progress::Ended,
            length if length > count => Progress::Lines(length),
            _ => Progress::None,
        }
    }

    /// Whether the source ended, as soon as it did or after `patience`.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        self.wait_until(patience, |lines| lines.is_closed).is_closed
    }

    fn wait_until(&self, patience: Duration, is_enough: impl Fn(&Lines) -> bool) -> MutexGuard<'_, Lines> {
        let (mutex, changed) = &*self.shared;
        let lines = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(lines, patience, |lines| !is_enough(lines));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn change(&self, change: impl FnOnce(&mut Lines)) {
        change(&mut self.shared.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.1.notify_all();
    }
}
