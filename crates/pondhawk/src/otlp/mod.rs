//! Metrics and the log for a collector of OpenTelemetry: OTLP over HTTP, in JSON.
//!
//! One thread sends all requests. The log puts lines into a bounded queue, and never waits for the collector:
//!
//! ```text
//! every thread ─► Lines (a layer of the log) ─► queue ─┐
//! figures (atomics) ◄── every interval ────────────────┴─► thread "otlp" ─► POST /v1/metrics, /v1/logs
//! ```

mod lines;

use std::collections::hash_map::DefaultHasher;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admin::InForce;
use admin::metrics::{self, Times};
use config::Otlp;
use net::Operator;
use protocol::Instruments;
use serde_json::{Value, json};
use ureq::Agent;

use crate::log_line::LogLine;
use crate::services::secret;
use crate::{fetch, roots};
pub(crate) use lines::Lines;

/// Maximum number of lines in a request.
const LINES_PER_REQUEST: usize = 512;
/// Time in which further lines join the first one of a request.
const GATHER: Duration = Duration::from_secs(1);
/// Pause after a request that has failed. It doubles with each further failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum length of this pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Time between two looks whether the broker ends.
const LOOK: Duration = Duration::from_millis(200);
/// Time in which the last requests are made when the broker ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Maximum length of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Paths behind the URL of the collector.
const METRICS: &str = "/v1/metrics";
const LOGS: &str = "/v1/logs";
const SERVICE: &str = "pondhawk";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A sender that is ready, and has sent nothing yet.
pub(crate) struct Prepared {
    settings: Otlp,
    collector: Collector,
    waiting: Option<Receiver<LogLine>>,
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
}

impl Counts {
    fn drop_lines(&self, lines: u64) {
        self.lines_dropped.fetch_add(lines, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn lines_dropped(&self) -> u64 {
        self.lines_dropped.load(Ordering::Relaxed)
    }
}

impl Instruments for Counts {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        let Self { done, failed, lines_dropped } = self;
        for (topic, count) in
            [("otlp/done", done), ("otlp/failed", failed), ("otlp/lines_dropped", lines_dropped)]
        {
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
        let collector = Collector::new(url, settings)?;
        Ok(Some((Self { settings: settings.clone(), collector, waiting, counts }, lines)))
    }

    /// The figures of the requests, which are 0 so far.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.counts) as Arc<dyn Instruments>
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
        let Self { settings, collector, waiting, counts } = self;
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
            batch: Vec::new(),
            resume: Instant::now(),
            pause: PAUSE,
            is_failing: [false; 2],
        };
        thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            worker.run(&settings, waiting.as_ref());
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
    /// Lines that are sent next.
    batch: Vec<LogLine>,
    /// No request for lines is made before.
    resume: Instant,
    pause: Duration,
    /// Whether the last request for metrics has failed, and the last one for lines.
    is_failing: [bool; 2],
}

impl Worker {
    fn run(mut self, settings: &Otlp, waiting: Option<&Receiver<LogLine>>) {
        let next = || settings.metrics.then(|| Instant::now() + settings.interval);
        let mut metrics_due = next();
        while !self.is_ending.load(Ordering::Relaxed) {
            self.gather(waiting, metrics_due);
            let now = Instant::now();
            if metrics_due.is_some_and(|due| now >= due) {
                self.send_metrics(None);
                metrics_due = next();
            }
            if !self.batch.is_empty() && now >= self.resume {
                self.send_lines(None);
            }
        }
        let until = Instant::now() + FAREWELL;
        if settings.metrics {
            self.send_metrics(Some(FAREWELL));
        }
        self.batch.extend(waiting.into_iter().flat_map(Receiver::try_iter));
        while !self.batch.is_empty() && Instant::now() < until {
            self.send_lines(Some(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Takes lines from the queue, until there are as many as a request may have, or it is time to send.
    fn gather(&mut self, waiting: Option<&Receiver<LogLine>>, metrics_due: Option<Instant>) {
        let or_metrics = |moment: Instant| metrics_due.map_or(moment, |due| moment.min(due));
        let mut until = or_metrics(Instant::now() + LOOK);
        let Some(waiting) = waiting.filter(|_| self.batch.len() < LINES_PER_REQUEST) else {
            return thread::sleep(until.saturating_duration_since(Instant::now()));
        };
        let gathered = or_metrics(Instant::now() + GATHER);
        while self.batch.len() < LINES_PER_REQUEST {
            match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.batch.push(line);
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
        let count = self.batch.len().min(LINES_PER_REQUEST);
        let records: Vec<Value> = self.batch[..count].iter().map(lines::record).collect();
        let scope = json!({ "scope": self.scope(), "logRecords": records });
        let body = json!({ "resourceLogs": [{ "resource": self.resource, "scopeLogs": [scope] }] });
        let outcome = self.collector.send(LOGS, &body, within);
        self.note(LOGS, &outcome);
        match outcome {
            Ok(answer) => {
                self.pause = PAUSE;
                // The collector has taken the others.
                let rejected = &answer["partialSuccess"]["rejectedLogRecords"];
                let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok());
                self.counts.drop_lines(rejected.unwrap_or(0).min(count as u64));
            }
            Err(Failure { is_final: false, .. }) if within.is_none() => {
                self.resume = Instant::now() + self.pause;
                self.pause = PAUSE_MAX.min(2 * self.pause);
                return;
            }
            Err(_) => self.counts.drop_lines(count as u64),
        }
        self.batch.drain(..count);
    }

    fn scope(&self) -> Value {
        json!({ "name": SERVICE, "version": VERSION })
    }

    /// Counts a request. The log has a line when requests begin to fail, and when they are done again.
    fn note(&mut self, path: &str, outcome: &Result<Value, Failure>) {
        let count = if outcome.is_ok() { &self.counts.done } else { &self.counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
        let is_failing = &mut self.is_failing[usize::from(path == LOGS)];
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

/// A collector, and the connection to it.
struct Collector {
    url: String,
    authorization: Option<String>,
    agent: Agent,
}

/// A request that the collector has not accepted.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    text: String,
    /// The same request would fail again.
    is_final: bool,
}

impl Collector {
    fn new(url: &str, settings: &Otlp) -> io::Result<Self> {
        let mut contents = DefaultHasher::new();
        let file = settings.authorization_file.as_deref();
        let authorization = file.map(|path| secret("authorization_file", path, &mut contents)).transpose()?;
        if !authorization.as_ref().is_none_or(|value| value.is_ascii()) {
            return Err(io::Error::other(
                "authorization_file of [otlp] has characters that no header may have",
            ));
        }
        let has_tls = url.starts_with("https://");
        let roots =
            if has_tls { roots::read(settings.ca_file.as_deref(), &mut contents)? } else { Vec::new() };
        let agent = fetch::config(url, settings.timeout, || roots).build().new_agent();
        Ok(Self { url: url.trim_end_matches('/').to_owned(), authorization, agent })
    }

    /// Sends a request, within another time than usual if one is given. Returns the answer, which is read to its end: then its
    /// connection serves the next request.
    fn send(&self, path: &str, body: &Value, within: Option<Duration>) -> Result<Value, Failure> {
        let mut request = self.agent.post(format!("{}{path}", self.url)).content_type("application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let sent = match within {
            None => request.send(body.to_string()),
            Some(time) => request.config().timeout_global(Some(time)).build().send(body.to_string()),
        };
        let mut answer = sent.map_err(|error| Failure { text: error.to_string(), is_final: false })?;
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default());
        }
        // The statuses after which a request may be made again: https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
        let is_final = !matches!(status, 429 | 502 | 503 | 504);
        Err(Failure { text: format!("the status is {status}"), is_final })
    }
}
