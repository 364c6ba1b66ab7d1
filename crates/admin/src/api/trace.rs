//! Traces: what crosses the connections of some clients, or the messages of some topics.

mod target;

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use auth::Whom;
use hyper::StatusCode;
use net::{Operator, RECORD_BYTES, Trace, TraceEvent, TraceRecord, TraceSubject};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use topic::{TopicFilter, TopicName, TopicNameBuf};
use wire::Role;

use super::body::Body;
use super::limit;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::control::InForce;
use crate::server::Shared;
use crate::trace::{Book, Line};

use target::Target;

/// Duration of a trace if the request does not say, in seconds.
const SECONDS: u64 = 60;
/// Maximum duration of a trace: an hour.
pub(crate) const SECONDS_MAX: u64 = 3_600;
/// Maximum size of the records of a trace if the request does not say, in bytes.
const BYTES: u64 = 4 << 20;
/// Maximum size that a request may ask for.
pub(crate) const BYTES_MAX: u64 = 16 << 20;
/// Minimum size that a request may ask for: that of a few records.
pub(crate) const BYTES_MIN: u64 = 4 << 10;
/// Time for which a trace is kept after its own time.
const KEPT: Duration = Duration::from_mins(10);
/// Maximum number of bytes of records that one request takes in.
const BYTES_PER_REQUEST: usize = 256 << 10;
/// Maximum size of a piece of the file, and of the texts in an answer.
const PIECE_BYTES: usize = 1 << 20;

/// The trace under way, or the last one.
#[derive(Debug, Default)]
pub(crate) struct Traces(Mutex<Option<Current>>);

#[derive(Debug)]
struct Current {
    trace: Arc<Trace>,
    records: Receiver<TraceRecord>,
    until: Instant,
    book: Book,
    /// The topic into which the lines are published, if there is one.
    target: Option<Target>,
    /// Records wait in the channel that the last request has not taken in.
    has_more: bool,
    /// All shards were told that it has ended.
    is_ended: bool,
    /// Ends and forgets the trace in time.
    timer: Option<AbortHandle>,
}

impl Drop for Current {
    fn drop(&mut self) {
        self.timer.iter().for_each(AbortHandle::abort);
    }
}

impl Traces {
    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets this trace, if no other has taken its place.
    fn forget(&self, trace: &Weak<Trace>) {
        let mut current = self.lock();
        let is_it = |current: &Current| Weak::ptr_eq(&Arc::downgrade(&current.trace), trace);
        drop(current.take_if(|current| is_it(current)));
    }
}

impl Current {
    fn begin(operator: &Operator, wanted: Wanted, bytes_max: usize) -> Self {
        let (trace, records) = operator.begin_trace(wanted.subject, bytes_max);
        Self {
            trace,
            records,
            until: Instant::now() + Duration::from_secs(wanted.seconds),
            book: Book::new(bytes_max),
            target: wanted.into.map(Target::new),
            has_more: false,
            is_ended: false,
            timer: None,
        }
    }

    /// Whether no more records come. Shards that still have the trace may send some.
    fn is_settled(&self) -> bool {
        self.trace.is_over() && Arc::strong_count(&self.trace) == 1
    }

    /// Whether all lines were published, if they are to be, with a message about the end behind them.
    fn has_published_all(&self) -> bool {
        self.target.as_ref().is_none_or(Target::has_ended)
    }

    /// Takes in records that have come, as many as a request may. Shards that sleep do not know yet that a trace is full.
    fn take_in(&mut self, operator: &Operator, in_force: &InForce) {
        if self.trace.is_full() && !std::mem::replace(&mut self.is_ended, true) {
            operator.end_trace(&self.trace);
        }
        let mut bytes = 0;
        self.has_more = false;
        while let Ok(record) = self.records.try_recv() {
            bytes += RECORD_BYTES;
            if let TraceEvent::Bytes(_, own) = &record.event {
                bytes += own.len();
            }
            self.book.take(record, |number| in_force.listener(number)?.address.parse().ok());
            if bytes >= BYTES_PER_REQUEST {
                self.has_more = true;
                break;
            }
        }
    }

    fn describe(&self) -> Value {
        let (kind, value) = match self.trace.subject() {
            TraceSubject::Clients(whom) => (whom.kind(), whom.to_string()),
            TraceSubject::Topic { filter, .. } => ("topic", filter.to_string()),
        };
        let state = match (self.trace.is_full(), self.trace.is_over()) {
            (true, _) => "full",
            (false, true) => "ended",
            (false, false) => "running",
        };
        let (into, published, lost) = self.target.as_ref().map(Target::counts).unwrap_or_default();
        json!({
            "number": self.trace.number(),
            "kind": kind,
            "value": value,
            "into": into,
            "state": state,
            "seconds_left": if state == "running" { self.until.saturating_duration_since(Instant::now()).as_secs() } else { 0 },
            "bytes_left": self.trace.left_bytes(),
            "lines": self.book.lines().len(),
            "lines_left_out": self.book.left_out(),
            "lines_published": published,
            "lines_unpublished": lost,
            "capture_bytes": self.book.capture().len(),
        })
    }
}

/// The order in a body.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    subject: TraceSubject,
    seconds: u64,
    bytes: u64,
    into: Option<TopicNameBuf>,
}

impl Wanted {
    fn parse(body: &[u8], levels_max: usize) -> Result<Self, Failure> {
        let body = Body::parse(body)?;
        let into = body.text("into")?.map(|topic| target::parse(topic, levels_max)).transpose()?;
        let (kind, value) = (body.needed("kind")?, body.needed("value")?);
        let subject = if kind == "topic" {
            by_topic(value, into)?
        } else {
            let known = ["client_id", "user", "address"];
            if !known.contains(&kind) {
                return Err(Failure::bad(format!("{kind} is none of client_id, user, address, topic")));
            }
            TraceSubject::Clients(Whom::parse(kind, value).map_err(Failure::bad)?)
        };
        Ok(Self {
            subject,
            seconds: number(&body, "seconds", SECONDS, 1, SECONDS_MAX)?,
            bytes: number(&body, "bytes", BYTES, BYTES_MIN, BYTES_MAX)?,
            into: into.map(TopicNameBuf::from),
        })
    }
}

/// The messages whose topics match a filter, but for those into whose topic the lines are published.
fn by_topic(filter: &str, except: Option<TopicName<'_>>) -> Result<TraceSubject, Failure> {
    let filter = TopicFilter::new(filter).map_err(|error| Failure::bad(error.to_string()))?;
    if filter.shared().is_some() {
        let text = "a group has no messages of its own: leave $share/ and the name of the group out";
        return Err(Failure::bad(text));
    }
    if except.is_some_and(|except| except.as_str() == filter.as_str()) {
        let text =
            "a trace does not have the messages of the topic that it is published to, and has no others";
        return Err(Failure::bad(text));
    }
    Ok(TraceSubject::Topic { filter: filter.into(), except: except.map(TopicNameBuf::from) })
}

fn number(body: &Body, name: &str, default: u64, least: u64, most: u64) -> Result<u64, Failure> {
    match body.field(name) {
        Value::Null => Ok(default),
        value => value
            .as_u64()
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| Failure::bad(format!("{name} is a whole number from {least} to {most}"))),
    }
}

/// Begins a trace. An ended one is forgotten. The answer comes when all shards have begun.
pub(crate) async fn begin(asked: &Asked, shared: &Arc<Shared>) -> Result<Answer, Failure> {
    let levels_max = shared.control.in_force().topic_levels_max;
    let answer = order(Wanted::parse(&asked.body, levels_max)?, shared)?;
    // Behind the order in each inbox.
    let question = || broker::Question::Clients { from_slot: u32::MAX };
    asking::all_shards(&shared.operator, question).await?;
    Ok(answer)
}

fn order(wanted: Wanted, shared: &Arc<Shared>) -> Result<Answer, Failure> {
    let mut current = shared.traces.lock();
    if let Some(running) = current.as_ref().filter(|current| !current.trace.is_over()) {
        let text = format!("a trace is under way, for {} s at most: end it first", running.until_secs());
        return Err(Failure(StatusCode::CONFLICT, text));
    }
    let duration = Duration::from_secs(wanted.seconds);
    let bytes = usize::try_from(wanted.bytes).unwrap_or(usize::MAX);
    if !shared.operator.has_memory_for_trace(bytes) {
        let text = "a trace of this size would take memory from clients: ask for fewer bytes";
        return Err(Failure::unavailable(text));
    }
    let into = wanted.into.clone();
    let mut begun = Current::begin(&shared.operator, wanted, bytes);
    let answer = Answer::json(&begun.describe());
    let timer = end_in_time(Arc::clone(shared), Arc::downgrade(&begun.trace), duration);
    begun.timer = Some(tokio::spawn(timer).abort_handle());
    if let Some(topic) = into {
        tokio::spawn(target::publish_lines(Arc::clone(shared), begun.trace.number(), topic));
    }
    *current = Some(begun);
    Ok(answer)
}

impl Current {
    fn until_secs(&self) -> u64 {
        self.until.saturating_duration_since(Instant::now()).as_secs() + 1
    }
}

/// Ends a trace when its time is over, and forgets it later.
async fn end_in_time(shared: Arc<Shared>, trace: Weak<Trace>, duration: Duration) {
    tokio::time::sleep(duration).await;
    trace.upgrade().iter().for_each(|trace| shared.operator.end_trace(trace));
    tokio::time::sleep(KEPT).await;
    shared.traces.forget(&trace);
}

fn none() -> Failure {
    Failure::not_found("there is no trace")
}

/// The trace that a request is about: that of its parameter `number`, if it has one.
fn chosen<'a>(current: &'a mut Option<Current>, asked: &Asked) -> Result<&'a mut Current, Failure> {
    let current = current.as_mut().ok_or_else(none)?;
    match asked.parameter("number") {
        Some(number) if number != current.trace.number().to_string() => {
            let text = format!("trace {number} is over, and there is another one");
            Err(Failure(StatusCode::CONFLICT, text))
        }
        _ => Ok(current),
    }
}

/// The state of the trace, and lines of it.
pub(crate) fn show(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let limit = limit(asked)?;
    let after = match asked.parameter("cursor") {
        None => 0,
        Some(text) => text.parse().map_err(|_| super::bad_cursor())?,
    };
    let mut current = shared.traces.lock();
    let current = chosen(&mut current, asked)?;
    // Asked first: records of shards that still have the trace are taken in below, or later.
    let was_settled = current.is_settled();
    current.take_in(&shared.operator, &shared.control.in_force());
    let lines = current.book.lines().get(after..).unwrap_or_default();
    let mut bytes = 0;
    let has_room = |line: &&Line| {
        bytes += line.text.len();
        bytes <= PIECE_BYTES
    };
    let count = lines.iter().take(limit).take_while(has_room).count();
    let shown = &lines[..count];
    let next = after.min(current.book.lines().len()) + shown.len();
    let mut answer = current.describe();
    answer["items"] = shown.iter().map(|line| describe(line, current.book.client(line.connection))).collect();
    answer["cursor"] = json!(next.to_string());
    answer["has_more"] = json!(current.has_more || shown.len() < lines.len());
    let has_all = was_settled && !current.has_more && shown.len() == lines.len();
    answer["is_complete"] = json!(has_all && current.has_published_all());
    Ok(Answer::json(&answer))
}

fn describe(Line { unix_ms, connection, from, text }: &Line, client_id: Option<&str>) -> Value {
    let from = from.map(|role| if role == Role::Client { "client" } else { "server" });
    json!({
        "unix_ms": unix_ms,
        "connection": connection,
        "client_id": client_id,
        "from": from,
        "text": text,
    })
}

/// A piece of the pcap file, from this byte on.
pub(crate) fn file(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let from = match asked.parameter("cursor") {
        None => 0,
        Some(text) => text.parse::<usize>().map_err(|_| super::bad_cursor())?,
    };
    let mut current = shared.traces.lock();
    let current = chosen(&mut current, asked)?;
    current.take_in(&shared.operator, &shared.control.in_force());
    let rest = current.book.capture().get(from..).unwrap_or_default();
    let piece = rest[..rest.len().min(PIECE_BYTES)].to_vec();
    Ok(Answer::of("application/vnd.tcpdump.pcap", piece))
}

/// Ends the trace, and forgets what it has recorded.
pub(crate) fn end(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let mut current = shared.traces.lock();
    let ended = chosen(&mut current, asked)?;
    shared.operator.end_trace(&ended.trace);
    let answer = Answer::json(&ended.describe());
    *current = None;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_its_mistakes_are_named() {
        let parse = |body: Value| Wanted::parse(body.to_string().as_bytes(), 8);
        let given = json!({ "kind": "topic", "value": "a/#", "seconds": 5, "bytes": 1 << 20, "into": "a/b" });
        let into: Option<TopicNameBuf> = Some(topic::topic!("a/b").into());
        let subject = TraceSubject::Topic { filter: topic::filter!("a/#").into(), except: into.clone() };
        assert_eq!(parse(given).expect("an order"), Wanted { subject, seconds: 5, bytes: 1 << 20, into });
        let subject = TraceSubject::Clients(Whom::ClientId("frog".into()));
        let default = Wanted { subject, seconds: SECONDS, bytes: BYTES, into: None };
        assert_eq!(parse(json!({ "kind": "client_id", "value": "frog" })).expect("an order"), default);
        for (wrong, named) in [
            (json!({}), "kind is missing"),
            (json!({ "kind": "topic", "value": "a/#/b" }), "#"),
            (json!({ "kind": "topic", "value": "$share/g/a" }), "a group has no messages"),
            (json!({ "kind": "client", "value": "a" }), "client is none of"),
            (json!({ "kind": "address", "value": "pond" }), "pond is neither"),
            (json!({ "kind": "user", "value": "a", "seconds": 0 }), "from 1 to 3600"),
            (json!({ "kind": "user", "value": "a", "seconds": 3_601 }), "from 1 to 3600"),
            (json!({ "kind": "user", "value": "a", "bytes": 100 }), "from 4096 to"),
            (json!({ "kind": "user", "value": "a", "bytes": "1" }), "from 4096 to"),
            (json!({ "kind": "user", "value": "a", "into": "" }), "is no topic name"),
            (json!({ "kind": "user", "value": "a", "into": "b/+" }), "b/+ is no topic name"),
            (json!({ "kind": "user", "value": "a", "into": 7 }), "into is to be a text"),
            (json!({ "kind": "user", "value": "a", "into": "/".repeat(8) }), "more than 8 levels"),
            (json!({ "kind": "user", "value": "a", "into": "ä".repeat(600) }), "more than 1024 bytes"),
            (json!({ "kind": "user", "value": "a", "into": "$SYS/a" }), "begin with $"),
            (json!({ "kind": "topic", "value": "a/b", "into": "a/b" }), "does not have the messages"),
        ] {
            let Failure(_, told) = parse(wrong.clone()).expect_err("a mistake");
            assert!(told.contains(named), "{wrong}: {told}");
        }
    }
}
