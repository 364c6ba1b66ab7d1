//! Metrics, the log and spans for a collector of OpenTelemetry: OTLP over HTTP, in JSON.
//!
//! One thread sends all requests. The log puts lines into a bounded queue, shards put spans into another one, and neither waits for
//! the collector:
//!
//! ```text
//! every thread ─► Lines (a layer of the log) ─► queue ─┐
//! shards ─► Spans ─► queue ────────────────────────────┼─► thread "otlp" ─► POST /v1/metrics, /v1/logs, /v1/traces
//! figures (atomics) ◄── every interval ────────────────┘
//! ```

mod collector;
mod lines;
mod queue;
mod spans;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admin::InForce;
use admin::metrics::{self, Times};
use base::{Span, SpanSettings};
use config::Otlp;
use net::Operator;
use protocol::Instruments;
use serde_json::{Value, json};

use crate::log_line::LogLine;
use collector::{Collector, Failure};
pub(crate) use lines::Lines;
use queue::Queue;

/// Maximum number of lines or spans in a request.
const ITEMS_PER_REQUEST: usize = 512;
/// Time in which further lines join the first one of a request.
const GATHER: Duration = Duration::from_secs(1);
/// Time between two looks whether the broker ends.
const LOOK: Duration = Duration::from_millis(200);
/// Time in which the last requests are made when the broker ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Paths behind the URL of the collector.
const METRICS: &str = "/v1/metrics";
const LOGS: &str = "/v1/logs";
const TRACES: &str = "/v1/traces";
const SERVICE: &str = "pondhawk";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A sender that is ready, and has sent nothing yet.
pub(crate) struct Prepared {
    settings: Otlp,
    collector: Collector,
    waiting: Option<Receiver<LogLine>>,
    spans: Option<(SpanSettings, Receiver<Span>)>,
    counts: Arc<Counts>,
}

/// The thread that sends. It ends when this is dropped.
pub(crate) struct Exporter {
    is_ending: Arc<AtomicBool>,
    ended: Receiver<()>,
}

/// Figures of the requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    lines_dropped: AtomicU64,
    spans_dropped: AtomicU64,
}

impl Counts {
    fn drop_lines(&self, lines: u64) {
        self.lines_dropped.fetch_add(lines, Ordering::Relaxed);
    }

    fn drop_spans(&self, spans: u64) {
        self.spans_dropped.fetch_add(spans, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn spans_dropped(&self) -> u64 {
        self.spans_dropped.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn lines_dropped(&self) -> u64 {
        self.lines_dropped.load(Ordering::Relaxed)
    }
}

impl Instruments for Counts {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        let Self { done, failed, lines_dropped, spans_dropped } = self;
        for (topic, count) in [
            ("otlp/done", done),
            ("otlp/failed", failed),
            ("otlp/lines_dropped", lines_dropped),
            ("otlp/spans_dropped", spans_dropped),
        ] {
            say(topic, count.load(Ordering::Relaxed).to_string());
        }
    }
}

impl Prepared {
    /// Reads the files that the table names. `None` without a URL. Also returns the end of the log, if lines are sent.
    ///
    /// # Errors
    /// A file cannot be read, or has a mistake.
    pub(crate) fn new(settings: &Otlp) -> io::Result<Option<(Self, Option<Lines>)>> {
        let Some(url) = &settings.url else { return Ok(None) };
        let counts = Arc::new(Counts::default());
        let (lines, waiting) = if settings.logs {
            let (lines, waiting) = lines::queue(Arc::clone(&counts));
            (Some(lines), Some(waiting))
        } else {
            (None, None)
        };
        let spans = spans::queue(settings, &counts);
        let collector = Collector::new(url, settings)?;
        Ok(Some((Self { settings: settings.clone(), collector, waiting, spans, counts }, lines)))
    }

    /// The figures of the requests, which are 0 so far.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.counts) as Arc<dyn Instruments>
    }

    /// The settings for the spans of messages, if any have some.
    pub(crate) fn spans(&self) -> Option<SpanSettings> {
        self.spans.as_ref().map(|(settings, _)| settings.clone())
    }

    /// Begins to send.
    ///
    /// # Errors
    /// The system refuses a thread, or random numbers.
    pub(crate) fn start(
        self,
        operator: Operator,
        in_force: Arc<Mutex<Arc<InForce>>>,
    ) -> io::Result<Exporter> {
        let Self { settings, collector, waiting, spans, counts } = self;
        let is_ending = Arc::new(AtomicBool::new(false));
        let (end, ended) = channel();
        let started = unix_ns();
        let worker = Worker {
            collector,
            counts,
            resource: resource(&admin::generate()?),
            operator,
            in_force,
            started,
            is_ending: Arc::clone(&is_ending),
            lines: Queue::new(waiting),
            spans: Queue::new(spans.map(|(_, waiting)| waiting)),
            is_failing: [false; 3],
        };
        thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            worker.run(&settings);
            // The broker may have ended before.
            let _ = end.send(());
        })?;
        Ok(Exporter { is_ending, ended })
    }
}

impl Drop for Exporter {
    /// Gives the thread time for its last requests. A collector that does not answer delays the end of the broker no longer.
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let _ = self.ended.recv_timeout(LOOK + 2 * FAREWELL);
    }
}

/// The attributes of the process, for all requests.
fn resource(instance: &str) -> Value {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let attributes = [
        text("service.name", SERVICE),
        text("service.version", VERSION),
        text("service.instance.id", instance),
    ];
    json!({ "attributes": attributes })
}

fn unix_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// The state of the thread.
struct Worker {
    collector: Collector,
    counts: Arc<Counts>,
    resource: Value,
    operator: Operator,
    in_force: Arc<Mutex<Arc<InForce>>>,
    started: u128,
    is_ending: Arc<AtomicBool>,
    lines: Queue<LogLine>,
    spans: Queue<Span>,
    /// Whether the last request for metrics has failed, the last one for lines, and the last one for spans.
    is_failing: [bool; 3],
}

impl Worker {
    fn run(mut self, settings: &Otlp) {
        let next = || settings.metrics.then(|| Instant::now() + settings.interval);
        let mut metrics_due = next();
        while !self.is_ending.load(Ordering::Relaxed) {
            self.gather(metrics_due);
            let now = Instant::now();
            if metrics_due.is_some_and(|due| now >= due) {
                self.send_metrics(None);
                metrics_due = next();
            }
            if self.lines.is_due(now) {
                self.send_lines(None);
            }
            self.spans.fill();
            if self.spans.is_due(now) {
                self.send_spans(None);
            }
        }
        let until = Instant::now() + FAREWELL;
        if settings.metrics {
            self.send_metrics(Some(FAREWELL));
        }
        let left = || until.saturating_duration_since(Instant::now());
        loop {
            self.lines.fill();
            self.spans.fill();
            let (has_lines, has_spans) = (!self.lines.batch.is_empty(), !self.spans.batch.is_empty());
            if left().is_zero() || !has_lines && !has_spans {
                return;
            }
            if has_lines {
                self.send_lines(Some(left()));
            }
            if has_spans {
                self.send_spans(Some(left()));
            }
        }
    }

    /// Takes lines from the queue, until there are as many as a request may have, or it is time to send.
    fn gather(&mut self, metrics_due: Option<Instant>) {
        let or_metrics = |moment: Instant| metrics_due.map_or(moment, |due| moment.min(due));
        let mut until = or_metrics(Instant::now() + LOOK);
        let Queue { waiting, batch, .. } = &mut self.lines;
        let Some(waiting) = waiting.as_ref().filter(|_| batch.len() < ITEMS_PER_REQUEST) else {
            return thread::sleep(until.saturating_duration_since(Instant::now()));
        };
        let gathered = or_metrics(Instant::now() + GATHER);
        while batch.len() < ITEMS_PER_REQUEST {
            match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    batch.push(line);
                    until = gathered;
                }
                Err(RecvTimeoutError::Timeout) => return,
                // The log never ends before the process.
                Err(RecvTimeoutError::Disconnected) => return thread::sleep(LOOK),
            }
            if self.is_ending.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn send_metrics(&mut self, within: Option<Duration>) {
        let in_force = Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner));
        let figures = metrics::figures(&self.operator);
        let families = metrics::families(&self.operator, &in_force, VERSION);
        let all = metrics::otlp(&figures, &families, Times { started: self.started, now: unix_ns() });
        let scope = json!({ "scope": self.scope(), "metrics": all });
        let body = json!({ "resourceMetrics": [{ "resource": self.resource, "scopeMetrics": [scope] }] });
        let outcome = self.collector.send(METRICS, &body, within);
        self.note(METRICS, &outcome);
    }

    /// Sends some lines. They stay if it is worth to send them again.
    fn send_lines(&mut self, within: Option<Duration>) {
        let records: Vec<Value> = self.lines.batch.iter().map(lines::record).collect();
        let scope = json!({ "scope": self.scope(), "logRecords": records });
        let body = json!({ "resourceLogs": [{ "resource": self.resource, "scopeLogs": [scope] }] });
        let outcome = self.collector.send(LOGS, &body, within);
        self.note(LOGS, &outcome);
        let lost = self.lines.settle(&outcome, "rejectedLogRecords", within.is_some());
        self.counts.drop_lines(lost);
    }

    /// Sends some spans. They stay if it is worth to send them again.
    fn send_spans(&mut self, within: Option<Duration>) {
        let records: Vec<Value> = self.spans.batch.iter().map(spans::record).collect();
        let scope = json!({ "scope": self.scope(), "spans": records });
        let body = json!({ "resourceSpans": [{ "resource": self.resource, "scopeSpans": [scope] }] });
        let outcome = self.collector.send(TRACES, &body, within);
        self.note(TRACES, &outcome);
        let lost = self.spans.settle(&outcome, "rejectedSpans", within.is_some());
        self.counts.drop_spans(lost);
    }

    fn scope(&self) -> Value {
        json!({ "name": SERVICE, "version": VERSION })
    }

    /// Counts a request. The log has a line when requests begin to fail, and when they are done again.
    fn note(&mut self, path: &str, outcome: &Result<Value, Failure>) {
        let count = if outcome.is_ok() { &self.counts.done } else { &self.counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
        let place =
            [METRICS, LOGS, TRACES].iter().position(|known| *known == path).expect("all paths are there");
        let is_failing = &mut self.is_failing[place];
        match outcome {
            Err(Failure { text, .. }) if !*is_failing => {
                tracing::warn!("the collector of [otlp] does not take what is sent to {path}: {text}");
            }
            Ok(_) if *is_failing => {
                tracing::info!("the collector of [otlp] takes what is sent to {path} again");
            }
            _ => {}
        }
        *is_failing = outcome.is_err();
    }
}
