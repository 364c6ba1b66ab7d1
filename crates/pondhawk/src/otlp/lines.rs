//! Lines of the log on their way to the collector.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::Counts;

/// Maximum number of lines that wait. Further ones are dropped and counted.
const WAITING_MAX: usize = 4_096;

/// Maximum length of a text in a line, in characters. Clients choose some of them; the rest of a longer one is left out.
const TEXT_CHARS_MAX: usize = 1_024;

/// The log, as it writes lines for the collector. No thread of the broker waits here.
pub(crate) struct Lines {
    lines: SyncSender<Line>,
    counts: Arc<Counts>,
}

/// A line of the log.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    unix_ns: u128,
    level: Level,
    message: String,
    fields: Map<String, Value>,
}

/// The writing and the reading end of a queue of lines.
pub(super) fn queue(counts: Arc<Counts>) -> (Lines, Receiver<Line>) {
    let (lines, waiting) = sync_channel(WAITING_MAX);
    (Lines { lines, counts }, waiting)
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let level = *event.metadata().level();
        let mut line = Line { unix_ns, level, message: String::new(), fields: Map::new() };
        event.record(&mut line);
        if self.lines.try_send(line).is_err() {
            self.counts.drop_lines(1);
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let end = value.char_indices().nth(TEXT_CHARS_MAX).map_or(value.len(), |(end, _)| end);
        self.add(field, json!({ "stringValue": &value[..end] }));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!({ "intValue": value.to_string() }));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, json!({ "intValue": value.to_string() }));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, json!({ "boolValue": value }));
    }
}

impl Line {
    fn add(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = value["stringValue"].as_str().unwrap_or_default().to_owned();
        } else {
            self.fields.insert(field.name().to_owned(), value);
        }
    }

    /// The object `LogRecord` of OTLP.
    pub(super) fn describe(&self) -> Value {
        // Numbers of severity: https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber
        let severity = match self.level {
            Level::TRACE => 1,
            Level::DEBUG => 5,
            Level::INFO => 9,
            Level::WARN => 13,
            Level::ERROR => 17,
        };
        let attributes: Vec<Value> =
            self.fields.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
        json!({
            "timeUnixNano": self.unix_ns.to_string(),
            "observedTimeUnixNano": self.unix_ns.to_string(),
            "severityNumber": severity,
            "severityText": self.level.to_string(),
            "body": { "stringValue": self.message },
            "attributes": attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn a_line_has_its_level_its_text_and_its_fields() {
        let (lines, waiting) = queue(Arc::default());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(client_id = %"frog", messages = 3_u64, audit = true, "a full queue");
            tracing::info!(topic = "ä".repeat(5_000), "a long topic");
        });
        let record = waiting.try_recv().expect("a line").describe();
        assert_eq!((&record["severityNumber"], &record["severityText"]), (&json!(13), &json!("WARN")));
        assert_eq!(record["body"], json!({ "stringValue": "a full queue" }));
        let attributes = json!([
            { "key": "audit", "value": { "boolValue": true } },
            { "key": "client_id", "value": { "stringValue": "frog" } },
            { "key": "messages", "value": { "intValue": "3" } },
        ]);
        assert_eq!(record["attributes"], attributes);
        let record = waiting.try_recv().expect("a line").describe();
        let topic = record["attributes"][0]["value"]["stringValue"].as_str().expect("a text");
        assert_eq!(topic.chars().count(), TEXT_CHARS_MAX);
    }

    #[test]
    fn lines_without_room_are_counted() {
        let counts = Arc::new(Counts::default());
        let (lines, waiting) = queue(Arc::clone(&counts));
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            (0..WAITING_MAX + 5).for_each(|_| tracing::info!("a line"));
        });
        assert_eq!(counts.lines_dropped(), 5);
        assert_eq!(waiting.try_iter().count(), WAITING_MAX);
    }
}
