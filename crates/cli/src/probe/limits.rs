//! How much of it there may be.

use client::Client;

use super::finding::{Finding, Value, Verdict};
use super::{Failure, Probe, leave, message, surest};

/// The length of a string has two bytes.
const STRING_BYTES_MAX: usize = 65_535;

/// Every other byte is a slash.
const LEVELS_MAX: usize = STRING_BYTES_MAX / 2 + 1;

/// Payloads are found out to so many bytes.
const PAYLOAD_STEP_BYTES: usize = 1 << 10;

pub(crate) async fn all(probe: &Probe) -> Vec<Finding> {
    let own = probe.prefix.len();
    let payload = |bytes: usize| (probe.topic("payload"), vec![b'x'; bytes]);
    let largest = largest(probe, 1, probe.arguments.payload_max, PAYLOAD_STEP_BYTES, payload).await;
    let topic = |bytes: usize| (format!("{}/{}", probe.prefix, "x".repeat(bytes - own - 1)), Vec::new());
    let longest = self::largest(probe, own + 2, STRING_BYTES_MAX, 1, topic).await;
    let levels = |levels: usize| (probe.prefix.clone() + &"/x".repeat(levels - 1), Vec::new());
    let levels_max = LEVELS_MAX - own / 2;
    let deepest = self::largest(probe, 1, levels_max, 1, levels).await;
    vec![
        found("payload, bytes", largest, probe.arguments.payload_max, PAYLOAD_STEP_BYTES),
        found("topic, bytes", longest, STRING_BYTES_MAX, 1),
        found("topic, levels", deepest, levels_max, 1),
    ]
}

/// The largest that passes, found out to this step, of so many that were tried.
fn found(what: &str, largest: Result<usize, Failure>, tried: usize, step: usize) -> Finding {
    let as_u64 = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    match largest {
        Ok(largest) if largest == tried => {
            Finding::measured(what, Value::Number(as_u64(largest), "(no more were tried)"), Verdict::Fine)
        }
        Ok(largest) if step > 1 => Finding::measured(what, Value::AtLeast(as_u64(largest)), Verdict::Fine),
        Ok(largest) => Finding::measured(what, Value::Number(as_u64(largest), ""), Verdict::Fine),
        Err(why) => Finding::failed(what, why),
    }
}

/// The largest size of a message that comes back as it was sent, between these.
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
        // After a size that is too large there may be no connection any more.
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
