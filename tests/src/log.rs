//! Collects the output of a process line by line while the process runs.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A text that a client has chosen, as the broker's log has it: without control characters, and in quotes if a part of it could
/// be taken for another field.
#[must_use]
pub fn in_log(text: &str) -> String {
    let is_odd = |character: char| character.is_whitespace() || matches!(character, '"' | '=');
    let quote = if text.contains(is_odd) { "\"" } else { "" };
    format!("{quote}{}{quote}", text.escape_debug().to_string().replace("\\'", "'"))
}

/// The collected lines, and whether the source has ended.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    is_closed: bool,
}

/// Result of waiting for more lines.
pub(crate) enum Progress {
    /// The log now has this many lines.
    Lines(usize),
    /// The source of the log has ended.
    Ended,
    None,
}

/// A growing log. Clones share the same lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    shared: Arc<(Mutex<Lines>, Condvar)>,
}

impl Log {
    /// Starts a thread that collects lines from `source` until its end.
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

    /// All lines up to now.
    pub(crate) fn text(&self) -> String {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).lines.join("\n")
    }

    /// Waits for the first line that contains `needle`. Returns `None` after the end of the source, or after
    /// `patience`.
    pub(crate) fn wait_for(&self, needle: &str, patience: Duration) -> Option<String> {
        self.wait_for_from(0, needle, patience)
    }

    /// The same behind the first `count` lines.
    pub(crate) fn wait_for_from(&self, count: usize, needle: &str, patience: Duration) -> Option<String> {
        let find = |lines: &Lines| lines.lines.iter().skip(count).find(|line| line.contains(needle)).cloned();
        find(&self.wait_until(patience, |lines| lines.is_closed || find(lines).is_some()))
    }

    /// Number of lines up to now.
    pub(crate) fn len(&self) -> usize {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).lines.len()
    }

    /// Returns every line up to now that contains `needle`.
    pub(crate) fn lines_with(&self, needle: &str) -> Vec<String> {
        let (mutex, _) = &*self.shared;
        let lines = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        lines.lines.iter().filter(|line| line.contains(needle)).cloned().collect()
    }

    /// Waits until there are more than `count` lines, the source has ended, or `patience` is over.
    pub(crate) fn wait_for_more(&self, count: usize, patience: Duration) -> Progress {
        let lines = self.wait_until(patience, |lines| lines.is_closed || lines.lines.len() > count);
        match lines.lines.len() {
            _ if lines.is_closed => Progress::Ended,
            length if length > count => Progress::Lines(length),
            _ => Progress::None,
        }
    }

    /// Waits until the source has ended or `patience` is over, and returns whether the source has ended.
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
