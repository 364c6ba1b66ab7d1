//! The last lines of the log, for operators.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use admin::LogRecord;
use serde_json::Value;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::log_line::LogLine;

/// The last lines, bounded in bytes. Each line costs its writer a short lock.
#[derive(Clone, Default)]
pub(crate) struct Recent(Arc<Mutex<Ring>>);

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogRecord>,
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

    /// At most `count` lines that `wants` accepts, newest first, of those with a number below `before`.
    pub(crate) fn lines(
        &self,
        before: u64,
        count: usize,
        wants: &dyn Fn(&LogRecord) -> bool,
    ) -> Vec<LogRecord> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let older = ring.lines.iter().rev().filter(|line| line.number < before);
        older.filter(|line| wants(line)).take(count).cloned().collect()
    }

    fn add(&self, line: LogLine) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = ring.next;
        ring.next += 1;
        let level = word(line.level);
        let unix_ms = u64::try_from(line.unix_ns / 1_000_000).unwrap_or(u64::MAX);
        let record = LogRecord { number, unix_ms, level, message: line.message, fields: line.fields };
        ring.bytes += cost(&record);
        ring.lines.push_back(record);
        while ring.bytes > ring.bytes_max {
            let Some(oldest) = ring.lines.pop_front() else { break };
            ring.bytes -= cost(&oldest);
        }
    }
}

impl<S: Subscriber> Layer<S> for Recent {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.add(LogLine::of(event));
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
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn the_newest_lines_come_first_and_the_oldest_give_way() {
        let recent = Recent::new(4_096);
        let subscriber = tracing_subscriber::registry().with(recent.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(client_id = "frog", "a full queue");
            (0..100).for_each(|number: u64| tracing::info!(number, "a line"));
        });
        let found = recent.lines(u64::MAX, 2, &|_| true);
        assert_eq!(found.iter().map(|line| line.number).collect::<Vec<_>>(), [100, 99]);
        assert_eq!(
            (found[0].level, &*found[0].message, &found[0].fields["number"]),
            ("info", "a line", &99.into())
        );
        let older = recent.lines(99, 1, &|line| line.fields["number"] == 90);
        assert_eq!(older.iter().map(|line| line.number).collect::<Vec<_>>(), [91]);
        // Without room for all, the oldest lines are gone, and the bytes of the rest are bounded.
        assert!(recent.lines(u64::MAX, 1_000, &|line| line.level == "warn").is_empty());
        let ring = recent.0.lock().expect("nobody panics");
        assert!(ring.bytes <= 4_096 && ring.bytes == ring.lines.iter().map(cost).sum::<usize>());
    }

    #[test]
    fn a_line_larger_than_the_room_is_not_kept() {
        let recent = Recent::new(1_024);
        let subscriber = tracing_subscriber::registry().with(recent.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(topic = "ä".repeat(5_000), "a long topic");
        });
        assert!(recent.lines(u64::MAX, 10, &|_| true).is_empty());
    }
}
