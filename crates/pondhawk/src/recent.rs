//! The last lines of the log, for operators.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use admin::LogRecord;
use serde_json::Value;
use tracing::Level;

use crate::log_line::LogLine;

/// The last lines, bounded in bytes. Each line costs its writer a short lock.
#[derive(Clone, Default)]
pub(crate) struct Recent(Arc<Mutex<Ring>>);

#[derive(Default)]
struct Ring {
    lines: VecDeque<Arc<LogRecord>>,
    bytes: usize,
    bytes_max: usize,
    /// Number of the next line.
    next: u64,
}

impl Recent {
    /// Keeps as many lines as fit into `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring { bytes_max, ..Ring::default() })))
    }

    /// At most `count` lines, newest first, of those with a number below `before`. The lock is held for a search and `count` steps.
    pub(crate) fn lines(&self, before: u64, count: usize) -> Vec<Arc<LogRecord>> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ring.lines.partition_point(|line| line.number < before);
        ring.lines.range(..end).rev().take(count).cloned().collect()
    }

    /// Adds a line. The oldest ones give way.
    pub(crate) fn add(&self, line: LogLine) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = ring.next;
        ring.next += 1;
        let level = word(line.level);
        let unix_ms = u64::try_from(line.unix_ns / 1_000_000).unwrap_or(u64::MAX);
        let record = LogRecord { number, unix_ms, level, message: line.message, fields: line.fields };
        ring.bytes += cost(&record);
        ring.lines.push_back(Arc::new(record));
        while ring.bytes > ring.bytes_max {
            let Some(oldest) = ring.lines.pop_front() else { break };
            ring.bytes -= cost(&oldest);
        }
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The memory of a line in bytes, with that of the map of its fields.
fn cost(record: &LogRecord) -> usize {
    /// Bytes of a field in the map, beside its texts.
    const FIELD_BYTES: usize = 128;
    let field =
        |(name, value): (&String, &Value)| FIELD_BYTES + name.len() + value.as_str().map_or(0, str::len);
    size_of::<LogRecord>() + record.message.len() + record.fields.iter().map(field).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(level: Level, message: &str, number: u64) -> LogLine {
        let fields = [("number".to_owned(), json!(number))].into_iter().collect();
        LogLine { unix_ns: 1_500_000, level, message: message.to_owned(), fields }
    }

    #[test]
    fn the_newest_lines_come_first_and_the_oldest_give_way() {
        let recent = Recent::new(4_096);
        recent.add(line(Level::WARN, "a full queue", 0));
        (0..100).for_each(|number| recent.add(line(Level::INFO, "a line", number)));
        let numbers = |found: Vec<Arc<LogRecord>>| found.iter().map(|line| line.number).collect::<Vec<_>>();
        let first = recent.lines(u64::MAX, 2);
        assert_eq!(
            (first[0].level, &*first[0].message, &first[0].fields["number"]),
            ("info", "a line", &json!(99))
        );
        assert_eq!((numbers(first), numbers(recent.lines(99, 3))), (vec![100, 99], vec![98, 97, 96]));
        // Without room for all, the oldest lines are gone, and the bytes of the rest are bounded.
        let all = recent.lines(u64::MAX, 1_000);
        assert!(all.len() > 5 && all.iter().all(|line| line.level == "info"));
        let ring = recent.0.lock().expect("nobody panics");
        assert!(ring.bytes <= 4_096 && ring.bytes == ring.lines.iter().map(|line| cost(line)).sum::<usize>());
    }

    #[test]
    fn a_line_larger_than_the_room_is_not_kept() {
        let recent = Recent::new(1_024);
        recent.add(line(Level::INFO, &"x".repeat(1_024), 0));
        assert!(recent.lines(u64::MAX, 10).is_empty());
    }
}
