//! Measures the largest payloads and topics.

use client::Client;

use super::finding::{Finding, Unit, Value, Verdict};
use super::{Add, Failure, Probe, leave, message, surest};

/// Maximum length of a string: its length field has two bytes.
const STRING_BYTES_MAX: usize = 65_535;

/// Maximum number of levels of a topic in which every second byte is a slash.
const LEVELS_MAX: usize = STRING_BYTES_MAX / 2 + 1;

/// Precision of the measured payload size.
const PAYLOAD_STEP_BYTES: usize = 1 << 10;

pub(crate) async fn all(probe: &Probe, add: Add<'_>) {
    let own = probe.prefix.len();
    let payload = |bytes: usize| (probe.topic("payload"), vec![b'x'; bytes]);
    let tried = probe.arguments.payload_max;
    let largest = largest(probe, 1, tried, PAYLOAD_STEP_BYTES, payload);
    let largest = probe.check("payload", largest).await;
    let limit = Limit { what: "payload", unit: Unit::Bytes, tried, step: PAYLOAD_STEP_BYTES };
    add(vec![limit.found(largest, payload_promised(probe).await)]);

    let topic = |bytes: usize| (format!("{}/{}", probe.prefix, "x".repeat(bytes - own - 1)), Vec::new());
    let longest = probe.check("topic", self::largest(probe, own + 2, STRING_BYTES_MAX, 1, topic)).await;
    let limit = Limit { what: "topic", unit: Unit::Bytes, tried: STRING_BYTES_MAX, step: 1 };
    add(vec![limit.found(longest, None)]);

    let levels = |levels: usize| (probe.prefix.clone() + &"/x".repeat(levels - 1), Vec::new());
    let tried = LEVELS_MAX - own / 2;
    let deepest = probe.check("topic, levels", self::largest(probe, 1, tried, 1, levels)).await;
    add(vec![Limit { what: "topic, levels", unit: Unit::Levels, tried, step: 1 }.found(deepest, None)]);
}

/// Payload size that follows from the broker's Maximum Packet Size (section 3.2.2.3.6).
async fn payload_promised(probe: &Probe) -> Option<usize> {
    /// PUBLISH without topic and payload: fixed header, length of the topic, packet identifier, length of the
    /// properties.
    const REST_BYTES: usize = 5 + 2 + 2 + 1;
    if probe.is_gone.get() {
        return None;
    }
    let client = probe.connect("limits").await.ok()?;
    let packet_bytes = client.server().packet_bytes_max.and_then(|bytes| usize::try_from(bytes).ok());
    leave(client).await;
    packet_bytes?.checked_sub(REST_BYTES + probe.topic("payload").len())
}

/// A size to measure, with the largest size to try and the precision.
struct Limit {
    what: &'static str,
    unit: Unit,
    tried: usize,
    step: usize,
}

impl Limit {
    /// Makes a finding of the largest size that passed. It is wrong if it is less than the broker claims.
    fn found(&self, largest: Result<usize, Failure>, said: Option<usize>) -> Finding {
        let as_u64 = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let Self { what, unit, tried, step } = *self;
        let largest = match largest {
            Ok(largest) => largest,
            Err(why) => return Finding::failed(what, why),
        };
        let number = as_u64(largest);
        let measured = if largest == tried || step > 1 {
            Value::AtLeast { number, unit, was_more_tried: largest < tried }
        } else {
            Value::Number(number, unit)
        };
        let must_be = said.map_or(0, |said| said.min(tried));
        let verdict = if largest + step <= must_be { Verdict::Wrong } else { Verdict::Fine };
        let said = said.map(|said| Value::Number(as_u64(said), unit));
        Finding { said, ..Finding::measured(what, measured, verdict) }
    }
}

/// Searches the largest size, from `least` to `most`, at which a message comes back unchanged.
async fn largest(
    probe: &Probe,
    least: usize,
    most: usize,
    step: usize,
    of_size: impl Fn(usize) -> (String, Vec<u8>),
) -> Result<usize, Failure> {
    let mut client = None;
    let mut passes = async |size: usize| {
        let (topic, payload) = of_size(size);
        // A size that is too large may have ended the connection.
        let connected = match client.take() {
            Some(connected) => connected,
            None => probe.connect("limits").await?,
        };
        let outcome = comes_back(probe, &connected, &topic, &payload).await;
        match outcome {
            Ok(()) => client = Some(connected),
            Err(_) => leave(connected).await,
        }
        Ok::<bool, Failure>(outcome.is_ok())
    };
    if !passes(least).await? {
        return Err("not even the smallest comes back".into());
    }
    if passes(most).await? {
        return Ok(most);
    }
    let (mut passed, mut failed) = (least, most);
    while failed - passed > step {
        let middle = passed + (failed - passed) / 2;
        if passes(middle).await? { passed = middle } else { failed = middle }
    }
    Ok(passed)
}

async fn comes_back(probe: &Probe, client: &Client, topic: &str, payload: &[u8]) -> Result<(), Failure> {
    let qos = surest(client);
    let mut messages = probe.subscribe(client, topic, qos).await?;
    probe.publish(client, &message(topic, payload, qos)?).await?;
    let heard = probe.hear(&mut messages).await?;
    let filter = messages.filter();
    let _ = client.unsubscribe(filter).await;
    if heard.payload() == payload { Ok(()) } else { Err("something else comes back".into()) }
}

#[test]
fn less_than_a_broker_says_is_wrong() {
    let payload = Limit { what: "payload", unit: Unit::Bytes, tried: 100_000, step: PAYLOAD_STEP_BYTES };
    let verdict = |largest, said| payload.found(Ok(largest), said).verdict;
    assert_eq!(verdict(64_000, None), Verdict::Fine, "it has not said anything");
    assert_eq!(verdict(64_000, Some(65_000)), Verdict::Fine, "it is not found out to the byte");
    assert_eq!(verdict(63_000, Some(65_000)), Verdict::Wrong);
    assert_eq!(verdict(100_000, Some(1_000_000)), Verdict::Fine, "no more were tried");
}
