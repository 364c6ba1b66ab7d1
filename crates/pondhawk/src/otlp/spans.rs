//! Spans of messages on their way to the collector.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use base::{Fate, Span, SpanKind, SpanSettings, SpanSink};
use config::Otlp;
use serde_json::{Value, json};

use super::{Counts, unix_ns};

/// The kinds of spans: <https://opentelemetry.io/docs/specs/otel/trace/api/#spankind>
const CONSUMER: u8 = 5;
const PRODUCER: u8 = 4;
/// The status of a span that has failed.
const ERROR: u8 = 2;

/// The way of spans to the collector. No thread of the broker waits here.
struct Spans {
    spans: SyncSender<Span>,
    counts: Arc<Counts>,
}

/// The settings for the shards, and the reading end of the queue of their spans. `None` if no message has spans.
pub(super) fn queue(settings: &Otlp, counts: &Arc<Counts>) -> Option<(SpanSettings, Receiver<Span>)> {
    if !settings.has_spans() {
        return None;
    }
    let open_max = settings.spans_max as usize;
    let (sink, waiting) = ends(open_max, Arc::clone(counts));
    let one_of = settings.spans_one_of.and_then(NonZeroU32::new);
    let sink = Arc::new(sink);
    Some((SpanSettings { one_of, by_property: settings.spans_by_property, open_max, sink }, waiting))
}

/// The writing and the reading end of a queue of at most this many spans.
fn ends(spans_max: usize, counts: Arc<Counts>) -> (Spans, Receiver<Span>) {
    let (spans, waiting) = sync_channel(spans_max);
    (Spans { spans, counts }, waiting)
}

impl SpanSink for Spans {
    fn unix_ns(&self) -> u64 {
        u64::try_from(unix_ns()).unwrap_or(u64::MAX)
    }

    fn identifier(&self) -> u64 {
        // Two spans with one number confuse a reader of the trace, and nothing else.
        getrandom::u64().unwrap_or(1).max(1)
    }

    fn ended(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.counts.drop_spans(1);
        }
    }

    fn dropped(&self) {
        self.counts.drop_spans(1);
    }
}

/// The outcome of a span as a word, and whether the message has not arrived.
fn outcome(fate: Option<&Fate>) -> (&'static str, bool) {
    match fate {
        None => ("connection_ended", true),
        Some(fate) => (fate.word(), !matches!(fate, Fate::Sent | Fate::Acknowledged)),
    }
}

/// A span as the object `Span` of OTLP. Identifiers are hexadecimal in JSON:
/// <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>
pub(super) fn record(span: &Span) -> Value {
    let (operation, kind) = match span.kind {
        SpanKind::Publish => ("publish", CONSUMER),
        SpanKind::Deliver => ("deliver", PRODUCER),
    };
    let (outcome, is_failed) = outcome(span.fate.as_ref());
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let number = |key: &str, value: u64| json!({ "key": key, "value": { "intValue": value.to_string() } });
    let mut record = json!({
        "traceId": format!("{:032x}", span.mark.identifiers.trace),
        "spanId": format!("{:016x}", span.identifier),
        "name": format!("{operation} {}", span.mark.topic),
        "kind": kind,
        "startTimeUnixNano": span.mark.start_unix_ns.to_string(),
        "endTimeUnixNano": span.end_unix_ns.to_string(),
        "attributes": [
            text("messaging.system", "mqtt"),
            text("messaging.operation.name", operation),
            text("messaging.destination.name", &span.mark.topic),
            text("messaging.client.id", &span.client_id),
            number("messaging.message.body.size", span.mark.payload_bytes as u64),
            number("mqtt.qos", span.qos as u64),
            text("mqtt.outcome", outcome),
        ],
    });
    if let Some(parent) = span.parent {
        record["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    if is_failed {
        record["status"] = json!({ "code": ERROR, "message": outcome });
    }
    record
}

#[cfg(test)]
mod tests {
    use base::{SpanIdentifiers, SpanMark};
    use wire::{Qos, ReasonCode};

    use super::*;

    fn span(parent: Option<u64>, fate: Option<Fate>) -> Span {
        let mark = SpanMark {
            identifiers: SpanIdentifiers { trace: 0xAB, span: 7 },
            start_unix_ns: 1_700_000_000_000_000_001,
            topic: "pond/x".into(),
            payload_bytes: 5,
        };
        Span {
            mark: Arc::new(mark),
            identifier: 0xC,
            parent,
            kind: SpanKind::Deliver,
            end_unix_ns: 1_700_000_000_000_000_003,
            client_id: "frog".into(),
            qos: Qos::AtLeastOnce,
            fate,
        }
    }

    #[test]
    fn a_span_has_its_identifiers_its_times_and_its_outcome() {
        let found = record(&span(Some(7), Some(Fate::Acknowledged)));
        assert_eq!(found["traceId"], format!("{}ab", "0".repeat(30)));
        assert_eq!(
            (&found["spanId"], &found["parentSpanId"]),
            (&json!("000000000000000c"), &json!("0000000000000007"))
        );
        assert_eq!((&found["name"], &found["kind"]), (&json!("deliver pond/x"), &json!(4)));
        assert_eq!(
            (&found["startTimeUnixNano"], &found["endTimeUnixNano"]),
            (&json!("1700000000000000001"), &json!("1700000000000000003"))
        );
        assert_eq!(
            found["attributes"][6],
            json!({ "key": "mqtt.outcome", "value": { "stringValue": "acknowledged" } })
        );
        assert_eq!(found["status"], Value::Null);
        let failed = |fate| record(&span(None, fate))["status"].clone();
        assert_eq!(failed(Some(Fate::Sent)), Value::Null);
        assert_eq!(
            failed(Some(Fate::Refused(ReasonCode::QuotaExceeded))),
            json!({ "code": 2, "message": "refused" })
        );
        assert_eq!(failed(None)["message"], "connection_ended");
        assert_eq!(record(&span(None, None)).get("parentSpanId"), None);
    }

    #[test]
    fn spans_without_room_are_counted() {
        let counts = Arc::new(Counts::default());
        let (sink, waiting) = ends(3, Arc::clone(&counts));
        (0..5).for_each(|_| sink.ended(span(None, None)));
        sink.dropped();
        assert_eq!((counts.spans_dropped(), waiting.try_iter().count()), (3, 3));
    }
}
