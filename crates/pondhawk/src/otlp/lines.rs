//! Lines of the log on their way to the collector.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::{Value, json};
use tracing::Level;

use super::Counts;
use crate::log_line::LogLine;

/// Maximum number of lines that wait. Further ones are dropped and counted.
const WAITING_MAX: usize = 4_096;

/// The log, as it writes lines for the collector. No thread of the broker waits here.
pub(crate) struct Lines {
    lines: SyncSender<LogLine>,
    counts: Arc<Counts>,
}

/// The writing and the reading end of a queue of lines.
pub(super) fn queue(counts: Arc<Counts>) -> (Lines, Receiver<LogLine>) {
    let (lines, waiting) = sync_channel(WAITING_MAX);
    (Lines { lines, counts }, waiting)
}

impl Lines {
    /// Adds a line, if there is room.
    pub(crate) fn add(&self, line: LogLine) {
        if self.lines.try_send(line).is_err() {
            self.counts.drop_lines(1);
        }
    }
}

/// A field as the object `AnyValue` of OTLP.
fn any_value(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(value) => json!({ "intValue": value.to_string() }),
        Value::String(value) => json!({ "stringValue": value }),
        other => json!({ "stringValue": other.to_string() }),
    }
}

/// A line as the object `LogRecord` of OTLP.
pub(super) fn record(line: &LogLine) -> Value {
    // Numbers of severity: https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber
    let severity = match line.level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    };
    let attributes: Vec<Value> =
        line.fields.iter().map(|(key, value)| json!({ "key": key, "value": any_value(value) })).collect();
    json!({
        "timeUnixNano": line.unix_ns.to_string(),
        "observedTimeUnixNano": line.unix_ns.to_string(),
        "severityNumber": severity,
        "severityText": line.level.to_string(),
        "body": { "stringValue": line.message },
        "attributes": attributes,
    })
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::log_line::{Copies, TEXT_CHARS_MAX};

    #[test]
    fn a_line_has_its_level_its_text_and_its_fields() {
        let (lines, waiting) = queue(Arc::default());
        let subscriber = tracing_subscriber::registry().with(Copies::new(Some(lines), None));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(client_id = %"frog", messages = 3_u64, audit = true, "a full queue");
            tracing::info!(topic = "ä".repeat(5_000), "a long topic");
        });
        let found = record(&waiting.try_recv().expect("a line"));
        assert_eq!((&found["severityNumber"], &found["severityText"]), (&json!(13), &json!("WARN")));
        assert_eq!(found["body"], json!({ "stringValue": "a full queue" }));
        let attributes = json!([
            { "key": "audit", "value": { "boolValue": true } },
            { "key": "client_id", "value": { "stringValue": "frog" } },
            { "key": "messages", "value": { "intValue": "3" } },
        ]);
        assert_eq!(found["attributes"], attributes);
        let found = record(&waiting.try_recv().expect("a line"));
        let topic = found["attributes"][0]["value"]["stringValue"].as_str().expect("a text");
        assert_eq!(topic.chars().count(), TEXT_CHARS_MAX);
    }

    #[test]
    fn lines_without_room_are_counted() {
        let counts = Arc::new(Counts::default());
        let (lines, waiting) = queue(Arc::clone(&counts));
        let subscriber = tracing_subscriber::registry().with(Copies::new(Some(lines), None));
        tracing::subscriber::with_default(subscriber, || {
            (0..WAITING_MAX + 5).for_each(|_| tracing::info!("a line"));
        });
        assert_eq!(counts.lines_dropped(), 5);
        assert_eq!(waiting.try_iter().count(), WAITING_MAX);
    }
}
