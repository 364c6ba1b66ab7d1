//! A line of the log as data, for readers other than the log itself.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::otlp::Lines;
use crate::recent::Recent;

/// Maximum length of a text in a line, in characters. Clients choose some of them; the rest of a longer one is left out.
pub(crate) const TEXT_CHARS_MAX: usize = 1_024;

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogLine {
    /// Time of the line, in nanoseconds since 1970.
    pub(crate) unix_ns: u128,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// Texts, numbers and truth values.
    pub(crate) fields: Map<String, Value>,
}

impl LogLine {
    /// Reads an event of now.
    pub(crate) fn of(event: &Event<'_>) -> Self {
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let level = *event.metadata().level();
        let mut line = Self { unix_ns, level, message: String::new(), fields: Map::new() };
        event.record(&mut line);
        line
    }

    fn add(&mut self, field: &Field, value: Value) {
        match value {
            Value::String(text) if field.name() == "message" => self.message = text,
            value => drop(self.fields.insert(field.name().to_owned(), value)),
        }
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let end = value.char_indices().nth(TEXT_CHARS_MAX).map_or(value.len(), |(end, _)| end);
        self.add(field, value[..end].into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// A layer of the log that passes each line on to its readers. No thread of the broker waits for them.
pub(crate) struct Copies {
    collector: Option<Lines>,
    recent: Option<Recent>,
}

impl Copies {
    pub(crate) fn new(collector: Option<Lines>, recent: Option<Recent>) -> Self {
        Self { collector, recent }
    }
}

impl<S: Subscriber> Layer<S> for Copies {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match (&self.collector, &self.recent) {
            (None, None) => {}
            (Some(collector), None) => collector.add(LogLine::of(event)),
            (None, Some(recent)) => recent.add(LogLine::of(event)),
            (Some(collector), Some(recent)) => {
                let line = LogLine::of(event);
                collector.add(line.clone());
                recent.add(line);
            }
        }
    }
}
