//! Outcomes of the last messages for a client, recorded on request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::{AskFates, Charge, Fate, FateBounds, FateList, FateRecord};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use wire::{Qos, ReasonCode};

use super::body::Body;
use super::items::Items;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::counters::Refusal;
use crate::server::Shared;

/// Duration of a record if the request does not say, in seconds.
const SECONDS: u64 = 60;
/// Maximum duration of a record: an hour.
pub(crate) const SECONDS_MAX: u64 = 3_600;
/// Time for which a record is kept after its own time.
const KEPT: Duration = Duration::from_mins(10);
/// Room for a message in a ring, in bytes: its record, its topic and its publisher.
const BYTES_PER_MESSAGE: usize = 512;
/// Maximum number of messages in an explanation.
const EXPLAINED: usize = 20;

/// The clients whose last messages are recorded.
#[derive(Debug)]
pub(crate) struct Recordings {
    by_client: Mutex<HashMap<Arc<str>, Recording>>,
    clients_max: usize,
    bounds: FateBounds,
}

#[derive(Debug)]
struct Recording {
    until: Instant,
    /// The task that forgets the record later.
    timer: AbortHandle,
    _charge: Charge,
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl Recording {
    fn seconds_left(&self) -> u64 {
        let left = self.until.saturating_duration_since(Instant::now());
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }
}

impl Recordings {
    /// Records of at most this number of clients, each with this number of messages on each thread.
    pub(crate) fn new(clients_max: usize, messages_max: usize) -> Self {
        let bounds = FateBounds { messages: messages_max, bytes: messages_max * BYTES_PER_MESSAGE };
        Self { by_client: Mutex::default(), clients_max, bounds }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Recording>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clients with a record.
pub(crate) fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let mut items = Items::of(asked)?;
    let mut all: Vec<(Arc<str>, u64)> = {
        let recordings = shared.recordings.lock();
        recordings.iter().map(|(client, recording)| (Arc::clone(client), recording.seconds_left())).collect()
    };
    all.sort_unstable();
    for (client, left) in all {
        if items.is_full() {
            break;
        }
        items.push(&json!({ "client_id": &*client, "seconds_left": left }));
    }
    Ok(items.into_answer("clients", json!({})))
}

/// Begins a record, or prolongs it. The answer comes when all threads record.
pub(crate) async fn begin(asked: &Asked, shared: &Arc<Shared>) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let seconds = match body.field("seconds") {
        Value::Null => SECONDS,
        value => {
            let seconds = value.as_u64().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
            seconds
                .ok_or_else(|| Failure::bad(format!("seconds is a whole number from 1 to {SECONDS_MAX}")))?
        }
    };
    let client: Arc<str> = asked.values[0].as_str().into();
    let begun = order(&client, Duration::from_secs(seconds), shared)?;
    begun.await?;
    Ok(Answer::json(&json!({ "client_id": &*client, "seconds_left": seconds })))
}

/// Posts the order to all threads, in the order of the changes of the table.
fn order(
    client: &Arc<str>,
    duration: Duration,
    shared: &Arc<Shared>,
) -> Result<impl Future<Output = Result<Vec<FateList>, Failure>> + use<>, Failure> {
    let Recordings { clients_max, bounds, .. } = shared.recordings;
    let mut recordings = shared.recordings.lock();
    let charge = match recordings.remove(client) {
        Some(Recording { ref _charge, .. }) => _charge.clone(),
        None if recordings.len() >= clients_max => {
            shared.counters.refused(Refusal::Recordings);
            let text = format!(
                "the last messages of {clients_max} clients are recorded already (admin.recorded_clients)"
            );
            return Err(Failure(StatusCode::INSUFFICIENT_STORAGE, text));
        }
        None => {
            let bytes = bounds.bytes * (shared.operator.shards() + 1);
            let charge = shared.operator.charge_record(bytes);
            charge.ok_or_else(|| Failure::unavailable("a record would take memory from clients"))?
        }
    };
    let until = Instant::now() + duration;
    let timer = tokio::spawn(forget_in_time(Arc::clone(shared), Arc::clone(client), until)).abort_handle();
    recordings.insert(Arc::clone(client), Recording { until, timer, _charge: charge });
    let for_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let order = AskFates::Begin { client_id: Arc::clone(client), for_ms, bounds };
    Ok(asking::everywhere(&shared.operator, &order))
}

/// Forgets a record some time after its end, unless it was prolonged.
async fn forget_in_time(shared: Arc<Shared>, client: Arc<str>, until: Instant) {
    tokio::time::sleep_until((until + KEPT).into()).await;
    drop(forget(&client, Some(until), &shared));
}

/// Forgets a record, and tells all threads: any record, or the one that ends at this time.
fn forget(
    client: &Arc<str>,
    until: Option<Instant>,
    shared: &Shared,
) -> Option<impl Future<Output = Result<Vec<FateList>, Failure>> + use<>> {
    let mut recordings = shared.recordings.lock();
    let is_meant = |recording: &Recording| until.is_none_or(|until| recording.until == until);
    recordings.get(client).filter(|recording| is_meant(recording))?;
    recordings.remove(client);
    Some(asking::everywhere(&shared.operator, &AskFates::Forget { client_id: Arc::clone(client) }))
}

fn none(client: &str) -> Failure {
    Failure::not_found(format!("nothing is recorded for {client}: begin a record first"))
}

/// Ends a record, and forgets it.
pub(crate) async fn end(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let client: Arc<str> = asked.values[0].as_str().into();
    let forgotten = forget(&client, None, shared).ok_or_else(|| none(&client))?;
    forgotten.await?;
    Ok(Answer::json(&json!({ "client_id": &*client, "forgotten": true })))
}

/// The last messages for a client, the newest first.
pub(crate) async fn show(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let client = &*asked.values[0];
    let mut items = Items::of(asked)?;
    let (publisher, topic) = (asked.parameter("publisher"), asked.parameter("topic"));
    let found = read(shared, client, |record| is_on_path(record, publisher, topic)).await?;
    let Read { records, earlier, seconds_left } = found.ok_or_else(|| none(client))?;
    for record in records.iter().rev() {
        if items.is_full() {
            break;
        }
        items.push(&describe(record));
    }
    let others = json!({ "client_id": client, "seconds_left": seconds_left, "earlier": earlier });
    Ok(items.into_answer("messages", others))
}

/// The last messages on a path, for an explanation. `null` without a record.
pub(crate) async fn on_path(
    shared: &Shared,
    subscriber: &str,
    (publisher, topic): (&str, &str),
) -> Result<Value, Failure> {
    let is_meant = |record: &FateRecord| is_on_path(record, Some(publisher), Some(topic));
    let Some(Read { records, seconds_left, .. }) = read(shared, subscriber, is_meant).await? else {
        return Ok(Value::Null);
    };
    let messages: Vec<Value> = records.iter().rev().take(EXPLAINED).map(describe).collect();
    Ok(json!({ "seconds_left": seconds_left, "messages": messages }))
}

/// The record of a client.
struct Read {
    /// Messages, the oldest first.
    records: Vec<FateRecord>,
    /// Number of earlier messages that had no room.
    earlier: u64,
    seconds_left: u64,
}

async fn read(
    shared: &Shared,
    client: &str,
    is_meant: impl Fn(&FateRecord) -> bool,
) -> Result<Option<Read>, Failure> {
    let left = shared.recordings.lock().get(client).map(Recording::seconds_left);
    let Some(seconds_left) = left else { return Ok(None) };
    let lists = asking::everywhere(&shared.operator, &AskFates::Read { client_id: client.into() }).await?;
    let earlier = lists.iter().map(|list| list.forgotten).sum();
    let mut records: Vec<FateRecord> = lists.into_iter().flat_map(|list| list.records).collect();
    records.retain(is_meant);
    records.sort_by_key(|record| record.noted_unix_ms);
    Ok(Some(Read { records, earlier, seconds_left }))
}

/// Whether a message may have gone this way. A publisher that is not known may be any.
fn is_on_path(record: &FateRecord, publisher: Option<&str>, topic: Option<&str>) -> bool {
    publisher.is_none_or(|publisher| record.may_be_from(publisher))
        && topic.is_none_or(|topic| record.has_topic(topic))
}

fn describe(record: &FateRecord) -> Value {
    json!({
        "unix_ms": record.noted_unix_ms,
        "changed_unix_ms": record.unix_ms,
        "publisher": record.publisher,
        "topic": record.topic,
        "qos": record.qos as u8,
        "bytes": record.payload_bytes,
        "packet_id": record.packet_id.map(|packet_id| packet_id.value()),
        "outcome": record.fate.word(),
        "text": in_words(record),
    })
}

/// A fate as a text for people.
fn in_words(record: &FateRecord) -> String {
    let text = match &record.fate {
        Fate::Queued => "waits in the queue",
        Fate::Waits => "waits behind the window",
        Fate::Sent if record.qos == Qos::AtMostOnce => "sent; QoS 0 is not acknowledged",
        Fate::Sent => "sent, and not acknowledged yet",
        Fate::Received => "received (PUBREC), and not completed yet",
        Fate::Acknowledged => "acknowledged",
        Fate::Refused(reason) => return with("refused by the client or its rules", *reason),
        Fate::TakenBy(other) => return format!("went to another member of the group: {other}"),
        Fate::NoLocal => "not sent: its own message, and the subscription has No Local",
        Fate::MayNotPublish => "refused: the publisher may not publish it",
        Fate::NotStored(reason) => return with("refused to its publisher: it cannot be stored", *reason),
        Fate::MayNotRead => "dropped: the rules do not allow the client to read it",
        Fate::Absent => "dropped: nobody was connected, and QoS 0 does not wait",
        Fate::Slow => "dropped: the client reads too slowly",
        Fate::TooLarge => "dropped: larger than the client accepts",
        Fate::NoMemory => "dropped: no memory",
        Fate::QueueFull => "dropped: queue full",
        Fate::DroppedOldest => "dropped: a later message needed its place in the full queue",
        Fate::Expired => "expired",
        Fate::Returned => "went back to its group: the connection ended",
        Fate::SessionEnded => "lost: the session ended",
        Fate::Discarded => "discarded by an operator",
        Fate::Moved => "moved to another queue by an operator",
    };
    text.to_owned()
}

fn with(text: &str, reason: ReasonCode) -> String {
    format!("{text}, with 0x{:02X} ({reason})", reason.code())
}

#[cfg(test)]
mod tests {
    use base::{FateOf, Fates, Now};

    use super::*;

    fn record(publisher: Option<&str>, topic: Option<&str>) -> FateRecord {
        let now = Now { monotonic_ms: 0, unix_ms: 0 };
        let (client_id, bounds): (Arc<str>, _) = ("frog".into(), FateBounds { messages: 9, bytes: 1 << 20 });
        let mut fates = None;
        Fates::ask(
            &mut fates,
            &AskFates::Begin { client_id: Arc::clone(&client_id), for_ms: 9, bounds },
            now,
        );
        let ring = fates.as_mut().and_then(|fates| fates.ring("frog")).expect("it was begun");
        let (qos, packet_id) = (Qos::AtLeastOnce, None);
        ring.note(
            FateOf { publisher, topic, qos, payload_bytes: None, key: None, packet_id },
            Fate::Sent,
            now,
        );
        Fates::ask(&mut fates, &AskFates::Read { client_id }, now).records.remove(0)
    }

    #[test]
    fn a_message_is_on_the_path_of_its_publisher_and_topic() {
        let path = |record: &FateRecord| is_on_path(record, Some("toad"), Some("pond/a"));
        assert!(path(&record(Some("toad"), Some("pond/a"))));
        assert!(path(&record(None, Some("pond/a"))), "the publisher may be this one");
        assert!(!path(&record(Some("newt"), Some("pond/a"))));
        assert!(!path(&record(Some("toad"), Some("pond/ab"))));
        assert!(!path(&record(Some("toad"), None)));
        assert!(is_on_path(&record(None, None), None, None));
        let long = "é".repeat(2_000);
        let found = record(Some(&long), Some(&long));
        assert!(is_on_path(&found, Some(&long), Some(&long)), "only the beginnings are recorded");
        assert!(!is_on_path(&record(None, Some("é")), None, Some(&long)));
    }
}
