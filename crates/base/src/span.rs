//! Spans: the times that single messages take in the broker, for a collector of OpenTelemetry.
//!
//! A PUBLISH that is drawn, or whose publisher asks for it, has a span, and so has each copy of its message. A [`SpanMark`]
//! travels with the message, and ties the spans of the copies to that of the PUBLISH.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::{array, fmt};

use wire::{MessageProperties, Qos};

use crate::Fate;

/// The identifiers of a span: that of its trace, and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanIdentifiers {
    /// The identifier of the trace. It is not 0.
    pub trace: u128,
    /// The identifier of the span. It is not 0.
    pub span: u64,
}

impl SpanIdentifiers {
    /// The name of the User Property with the span of a publisher: that of the header of HTTP.
    pub const PROPERTY: &str = "traceparent";

    /// Returns the span of a publisher from the User Properties of its PUBLISH, and whether the publisher records it. `None` if
    /// there is none, more than one, or one that is not well-formed.
    #[must_use]
    pub fn of_publisher(properties: &MessageProperties<'_>) -> Option<(Self, bool)> {
        let mut found = properties.user_properties.iter().filter(|pair| pair.name.as_str() == Self::PROPERTY);
        let first = found.next()?;
        if found.next().is_some() { None } else { Self::parse(first.value.as_str()) }
    }

    /// Reads a value of `traceparent` (W3C Trace Context, 3.2). Also returns its flag `sampled`.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, bool)> {
        let mut parts = text.splitn(5, '-');
        let [version, trace, span, flags] = array::from_fn(|_| parts.next());
        let version = number(version?, 2)?;
        let trace = number(trace?, 32).filter(|trace| *trace != 0)?;
        let span = number(span?, 16).filter(|span| *span != 0)?;
        let flags = number(flags?, 2)?;
        // Version 255 is none. Only a later version may have further parts.
        if version == 0xFF || (version == 0 && parts.next().is_some()) {
            return None;
        }
        Some((Self { trace, span: u64::try_from(span).ok()? }, flags & 1 == 1))
    }
}

/// A number of exactly this many hexadecimal digits, with small letters.
fn number(text: &str, digits: usize) -> Option<u128> {
    let is_one = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| is_one)
}

/// The mark of a message with spans: the parts that all of them have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanMark {
    /// The span of its PUBLISH.
    pub identifiers: SpanIdentifiers,
    /// The time of its PUBLISH, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// The first bytes of its topic, at most [`TOPIC_BYTES_MAX`](Self::TOPIC_BYTES_MAX).
    pub topic: Box<str>,
    /// The length of its payload, in bytes.
    pub payload_bytes: usize,
}

impl SpanMark {
    /// The rest of a longer topic, in bytes, is not recorded.
    pub const TOPIC_BYTES_MAX: usize = 1_024;
}

/// The way of a message that a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// From its PUBLISH to PUBACK or PUBREC, or at QoS 0 until it was handed on.
    Publish,
    /// From its PUBLISH to the acknowledgement of a receiver, or at QoS 0 until it was handed to the connection.
    Deliver,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The mark of the message. Its start is that of all spans.
    pub mark: Arc<SpanMark>,
    /// The identifier of the span in its trace. It is not 0.
    pub identifier: u64,
    /// The span above. `None` if the trace begins here.
    pub parent: Option<u64>,
    /// The kind of the span.
    pub kind: SpanKind,
    /// Its end, in nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// The client that has published the message, or receives it.
    pub client_id: Arc<str>,
    /// The QoS on this way.
    pub qos: Qos,
    /// The fate of the message. `None` if the connection has ended before it was known.
    pub fate: Option<Fate>,
}

/// The place where spans go that have ended, with a clock and a source of identifiers. Nothing here blocks.
pub trait SpanSink: Send + Sync {
    /// The time, in nanoseconds since 1970.
    fn unix_ns(&self) -> u64;

    /// A random number that is not 0.
    fn identifier(&self) -> u64;

    /// Takes a span, or counts it as dropped.
    fn ended(&self, span: Span);

    /// Counts a span that has no room among those that have not ended.
    fn dropped(&self);
}

/// The choice of messages that have spans, and the place where these go.
#[derive(Clone)]
pub struct SpanSettings {
    /// One of this many messages has spans, without being asked for. `None`: none has.
    pub one_of: Option<NonZeroU32>,
    /// Whether publishers may ask for spans.
    pub by_property: bool,
    /// Maximum number of spans of one shard that have not ended.
    pub open_max: usize,
    /// The place where spans go.
    pub sink: Arc<dyn SpanSink>,
}

impl fmt::Debug for SpanSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one_of, by_property, open_max, .. } = self;
        write!(f, "one of {one_of:?}, by property: {by_property}, at most {open_max}")
    }
}

#[cfg(test)]
mod tests {
    use wire::{UserProperties, UserProperty, Utf8};

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const IDENTIFIERS: SpanIdentifiers =
        SpanIdentifiers { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span: 0x00f0_67aa_0ba9_02b7 };

    #[test]
    fn a_traceparent_is_read_strictly() {
        let good = |text: &str| SpanIdentifiers::parse(text);
        assert_eq!(good(&format!("00-{TRACE}-00f067aa0ba902b7-01")), Some((IDENTIFIERS, true)));
        assert_eq!(good(&format!("00-{TRACE}-00f067aa0ba902b7-02")), Some((IDENTIFIERS, false)));
        assert_eq!(good(&format!("01-{TRACE}-00f067aa0ba902b7-01-more-of-it")), Some((IDENTIFIERS, true)));
        for wrong in [
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            format!("00-{TRACE}-+0f067aa0ba902b7-01"),
            format!("00 {TRACE} 00f067aa0ba902b7 01"),
            format!(" 00-{TRACE}-00f067aa0ba902b7-01"),
            "é".to_owned(),
            String::new(),
        ] {
            assert_eq!(SpanIdentifiers::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_publisher_has_one_span_at_most() {
        let value = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let of = |pairs: &[(&str, &str)]| {
            let text = |text| Utf8::new(text).expect("it is a text of MQTT");
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| UserProperty { name: text(name), value: text(value) })
                .collect();
            let user_properties = UserProperties::from(&pairs[..]);
            SpanIdentifiers::of_publisher(&MessageProperties { user_properties, ..MessageProperties::EMPTY })
        };
        assert_eq!(of(&[("a", &value), ("traceparent", &value)]), Some((IDENTIFIERS, true)));
        assert_eq!(of(&[("traceparent", &value), ("traceparent", &value)]), None);
        assert_eq!(of(&[("Traceparent", &value)]), None);
        assert_eq!(of(&[]), None);
    }
}
