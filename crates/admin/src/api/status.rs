//! Health, readiness, figures and listeners.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::unix_secs;
use crate::answer::Answer;
use crate::asked::Asked;
use crate::asking;
use crate::control::Certificate;
use crate::metrics::{self, Figures};
use crate::server::Shared;

/// The type of the text format of Prometheus.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names what is missing for clients to be served. Empty if nothing is.
async fn missing(shared: &Shared) -> Vec<String> {
    let mut missing = Vec::new();
    for shard in 0..shared.operator.shards() {
        missing.extend(asking::shard(&shared.operator, shard, NOTHING).await.err().map(|failure| failure.1));
    }
    let ledger = asking::ledger(&shared.operator, ledger::Question::Ping).await;
    missing.extend(ledger.err().map(|failure| failure.1));
    missing.extend(known_to_be_missing(shared));
    missing
}

/// Whether nothing is missing. All shards are asked at the same time, because a scrape waits for the answer.
async fn is_ready(shared: &Shared) -> bool {
    known_to_be_missing(shared).is_empty()
        && asking::all_shards(&shared.operator, || NOTHING).await.is_ok()
        && asking::ledger(&shared.operator, ledger::Question::Ping).await.is_ok()
}

/// A question whose answer is empty: that there is an answer says enough.
const NOTHING: broker::Question = broker::Question::Clients { from_slot: u32::MAX };

/// Names what is missing as far as no thread has to be asked.
fn known_to_be_missing(shared: &Shared) -> Vec<String> {
    let mut missing = Vec::new();
    if shared.operator.is_memory_short() {
        missing.push("memory is short: nothing new is admitted (limits.memory_budget_bytes)".to_owned());
    }
    if shared.drains.is_draining() {
        missing.push("the broker is being drained: new clients are refused".to_owned());
    }
    let figures = figures(shared);
    let is_set = |topic| figures.number(topic).is_some_and(|number| number > 0.0);
    for (topic, text) in [
        ("journal/failed", "the journal has failed: nothing is stored any more, see the log"),
        ("journal/no_space", "the journal has no space: messages that must be stored are refused"),
    ] {
        if is_set(topic) {
            missing.push(text.to_owned());
        }
    }
    missing
}

/// Names what does not keep clients from being served, and wants an operator.
fn warnings(shared: &Shared) -> Vec<&'static str> {
    shared.trail.warning().into_iter().collect()
}

pub(crate) async fn ready(shared: &Shared) -> Answer {
    let missing = missing(shared).await;
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let warnings = warnings(shared);
    let ready = json!({ "ready": missing.is_empty(), "missing": missing, "warnings": warnings });
    Answer::json(&ready).with_status(status)
}

pub(crate) async fn status(asked: &Asked, shared: &Shared) -> Answer {
    let missing = missing(shared).await;
    Answer::json(&json!({
        "version": shared.version,
        "uptime_seconds": shared.operator.uptime().as_secs(),
        "ready": missing.is_empty(),
        "missing": missing,
        "warnings": warnings(shared),
        "role": asked.holder.as_ref().map(|holder| holder.role.word()),
        "shards": shared.operator.shards(),
    }))
}

/// All figures that are totals or levels, but for [`is_ready`].
fn figures(shared: &Shared) -> Figures {
    let mut figures = metrics::figures(&shared.operator);
    shared.counters.read(&mut |topic, value| figures.add(topic, value));
    shared.trail.read(&mut |topic, value| figures.add(topic, value));
    figures
}

/// The same, and whether clients are served.
async fn figures_with_readiness(shared: &Shared) -> Figures {
    let is_ready = is_ready(shared).await;
    let mut figures = figures(shared);
    figures.add("admin/ready", u8::from(is_ready).to_string());
    figures
}

pub(crate) async fn metrics(shared: &Shared) -> Answer {
    let families = metrics::families(&shared.operator, &shared.control.in_force(), shared.version);
    Answer::of(EXPOSITION, metrics::exposition(&figures_with_readiness(shared).await, &families))
}

pub(crate) async fn counters(shared: &Shared) -> Answer {
    // Nearly all figures are whole, and are written so.
    let number =
        |figure: f64| format!("{figure}").parse().map_or_else(|_| json!(figure), |whole: i64| json!(whole));
    let figures = figures_with_readiness(shared).await;
    let fields = figures.numbers().into_iter().map(|(topic, figure)| (topic.to_owned(), number(figure)));
    Answer::json(&Value::Object(fields.collect()))
}

pub(crate) fn shards(shared: &Shared) -> Answer {
    let describe = |(shard, totals): (usize, broker::Totals)| {
        json!({
            "shard": shard,
            "clients": totals.clients_connected,
            "messages_received": totals.publish_received,
            "messages_sent": totals.publish_sent,
            "messages_dropped": totals.publish_dropped,
            "bytes_received": totals.bytes_received,
            "bytes_sent": totals.bytes_sent,
            "waiting_messages": totals.waiting,
        })
    };
    let totals = shared.operator.totals_by_shard().into_iter().enumerate();
    Answer::json(&json!({ "shards": totals.map(describe).collect::<Vec<_>>() }))
}

/// For each file with certificates of a listener, the first certificate to expire.
pub(crate) fn certificates(shared: &Shared) -> Answer {
    let now = i64::try_from(unix_secs()).unwrap_or(i64::MAX);
    let describe = |certificate: &Certificate| {
        let Certificate { listener, file, purpose, subject, names, from_unix_secs, until_unix_secs } =
            certificate;
        json!({
            "listener": listener,
            "file": file,
            "purpose": purpose,
            "subject": subject,
            "names": names,
            "valid_from_unix_seconds": from_unix_secs,
            "valid_until_unix_seconds": until_unix_secs,
            "days_left": (until_unix_secs - now).div_euclid(86_400),
        })
    };
    let mut certificates: Vec<Certificate> = shared.control.certificates().to_vec();
    certificates.sort_by_key(|certificate| certificate.until_unix_secs);
    Answer::json(&json!({ "certificates": certificates.iter().map(describe).collect::<Vec<_>>() }))
}
