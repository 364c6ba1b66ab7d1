//! How messages are delivered: kept, in order, beside somebody slow, and how fast.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use client::{Client, Qos};

use super::finding::{Finding, Value, Verdict};
use super::{Failure, Probe, leave, message};

/// A session is asked for as long as this: a month.
const SESSION_SECS: u32 = 30 * 24 * 3_600;

/// Each of the messages that a slow subscriber gets.
const SLOW_PAYLOAD_BYTES: usize = 1_000;

/// So many messages are not acknowledged at a time.
const WINDOW: usize = 100;

pub(crate) async fn all(probe: &Probe) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(session(probe).await.unwrap_or_else(|why| failed("session", why)));
    for qos in Qos::ALL {
        let what = format!("order, QoS {}", qos.level());
        findings.push(order(probe, &what, qos).await.unwrap_or_else(|why| failed(&what, why)));
    }
    findings.extend(slow(probe).await.unwrap_or_else(|why| vec![failed("beside a slow subscriber", why)]));
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let what = format!("round trip, QoS {}", qos.level());
        findings.push(latency(probe, &what, qos).await.unwrap_or_else(|why| failed(&what, why)));
    }
    findings
}

fn failed(what: &str, why: Failure) -> Finding {
    Finding::measured(what, Value::No(why), Verdict::Wrong)
}

/// Whether a session waits for its client, with what comes meanwhile, and for how long the server says that it does.
async fn session(probe: &Probe) -> Result<Finding, Failure> {
    let lasting = || {
        let options = probe.options(probe.version, "lasting").clean_start(false);
        if probe.version.is_5() { options.session_expiry_secs(SESSION_SECS) } else { options }
    };
    let topic = probe.topic("session");
    let first = probe.connect_with(lasting()).await?;
    let granted = first.server().session_expiry_secs.unwrap_or(SESSION_SECS);
    probe.subscribe(&first, &topic, Qos::AtLeastOnce).await?;
    leave(first).await;
    let other = probe.connect("other").await?;
    probe.publish(&other, &message(&topic, b"meanwhile", Qos::AtLeastOnce)?).await?;
    leave(other).await;
    let again = probe.connect_with(lasting()).await?;
    let kept = async {
        if !again.server().session_present {
            return Err("it is gone".to_owned());
        }
        let mut messages = probe.subscribe(&again, &topic, Qos::AtLeastOnce).await?;
        probe.hear(&mut messages).await.map(drop)
    };
    let kept = kept.await;
    leave(again).await;
    // A clean session takes its place.
    leave(probe.connect("lasting").await?).await;
    let said = probe.version.is_5().then(|| match granted {
        SESSION_SECS => Value::Text("as long as asked for (30 d)".to_owned()),
        secs => Value::Number(secs.into(), "s of 30 d"),
    });
    let finding = Finding::of_check("a session with what came meanwhile", kept, None);
    let verdict =
        if granted > 0 && finding.measured != Some(Value::Yes) { Verdict::Wrong } else { Verdict::Fine };
    Ok(Finding { said, verdict, ..finding })
}

/// Publishes numbers, with some of them under way at a time. Returns the longest time to an acknowledgement.
async fn publish_numbers(
    probe: &Probe,
    client: &Client,
    topic: &str,
    qos: Qos,
    payload_bytes: usize,
) -> Result<Duration, Failure> {
    let mut under_way = VecDeque::new();
    let mut longest = Duration::ZERO;
    for number in 0..probe.arguments.messages {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(payload_bytes.max(payload.len()), 0);
        let published = client.publish(&message(topic, &payload, qos)?).await;
        under_way.push_back((Instant::now(), published.map_err(|error| error.to_string())?));
        let is_last = number + 1 == probe.arguments.messages;
        while (is_last || under_way.len() >= WINDOW)
            && let Some((began, acknowledgement)) = under_way.pop_front()
        {
            probe.in_time(acknowledgement).await?.map_err(|error| error.to_string())?;
            longest = longest.max(began.elapsed());
        }
    }
    Ok(longest)
}

fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Numbers that are published are heard, each once and in order.
async fn order(probe: &Probe, what: &str, qos: Qos) -> Result<Finding, Failure> {
    let client = probe.connect("order").await?;
    let topic = probe.topic(&format!("order/{}", qos.level()));
    let mut messages = probe.subscribe(&client, &topic, qos).await?;
    let heard = async {
        for expected in 0..probe.arguments.messages {
            let heard = probe
                .hear(&mut messages)
                .await
                .map_err(|why| format!("{expected} come, the next one {why}"))?;
            match number(heard.payload()) {
                Some(number) if number == expected => {}
                other => return Err(format!("{other:?} comes in place of {expected}")),
            }
        }
        Ok(())
    };
    let (published, heard) = tokio::join!(publish_numbers(probe, &client, &topic, qos, 0), heard);
    leave(client).await;
    Ok(Finding::of_check(what, published.and(heard), Some(true)).without_said())
}

/// Whether acknowledgements come while a subscriber acknowledges nothing, and whether what was acknowledged is there when
/// it does again.
async fn slow(probe: &Probe) -> Result<Vec<Finding>, Failure> {
    let window = NonZeroU16::new(10).ok_or("no window")?;
    let options = probe.options(probe.version, "slow").messages_max(1).receive_max(window).keep_alive_secs(0);
    let slow = probe.connect_with(options).await?;
    let publisher = probe.connect("publisher").await?;
    let topic = probe.topic("slow");
    let mut messages = probe.subscribe(&slow, &topic, Qos::AtLeastOnce).await?;
    let longest = publish_numbers(probe, &publisher, &topic, Qos::AtLeastOnce, SLOW_PAYLOAD_BYTES).await;
    let (acknowledged, arrives) = match longest {
        Ok(longest) => (Ok(longest), drain(probe, &mut messages).await),
        Err(why) => (Err(why), Err("nothing was acknowledged".to_owned())),
    };
    leave(publisher).await;
    leave(slow).await;
    let what = "longest PUBACK beside a slow subscriber";
    let acknowledged = match acknowledged {
        Ok(longest) => Finding::measured(what, Value::Text(milliseconds(longest)), Verdict::Fine),
        Err(why) => failed(what, why),
    };
    let what = "what was acknowledged comes to it";
    Ok(vec![acknowledged, Finding::of_check(what, arrives, Some(true)).without_said()])
}

async fn drain(probe: &Probe, messages: &mut client::Messages) -> Result<(), Failure> {
    for expected in 0..probe.arguments.messages {
        let heard = probe.hear(messages).await;
        let heard = heard.map_err(|why| format!("{expected} of {} come: {why}", probe.arguments.messages))?;
        if number(heard.payload()) != Some(expected) {
            return Err(format!("{expected} is missing"));
        }
    }
    Ok(())
}

/// From a publisher to itself, one message at a time.
async fn latency(probe: &Probe, what: &str, qos: Qos) -> Result<Finding, Failure> {
    let client = probe.connect("latency").await?;
    let topic = probe.topic(&format!("latency/{}", qos.level()));
    let mut messages = probe.subscribe(&client, &topic, qos).await?;
    let mut times = Vec::new();
    for _ in 0..probe.arguments.messages {
        let began = Instant::now();
        drop(client.publish(&message(&topic, b"ping", qos)?).await.map_err(|error| error.to_string())?);
        probe.hear(&mut messages).await?;
        times.push(began.elapsed());
    }
    leave(client).await;
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    let text = format!("p50 {}, p99 {}", milliseconds(at(50)), milliseconds(at(99)));
    Ok(Finding::measured(what, Value::Text(text), Verdict::Fine))
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
