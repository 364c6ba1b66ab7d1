//! Checks of delivery: lasting sessions, order, slow subscribers, and speed.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use client::{Client, Qos};

use super::finding::{Finding, Unit, Value, Verdict};
use super::{Add, Failure, Probe, leave, message, needs_qos};

/// Requested Session Expiry Interval: 30 days.
const SESSION_SECS: u32 = 30 * 24 * 3_600;

/// Size of each message for the slow subscriber.
const SLOW_PAYLOAD_BYTES: usize = 1_000;

/// Maximum number of unacknowledged messages.
const WINDOW: usize = 100;

pub(crate) async fn all(probe: &Probe, add: Add<'_>) {
    let found = probe.check("session", session(probe)).await;
    add(vec![found.unwrap_or_else(|why| Finding::failed("session", why))]);
    let mut rates = Vec::new();
    for qos in Qos::ALL {
        let what = format!("order, QoS {}", qos.level());
        let numbers = probe.check(&what, order(probe, qos)).await;
        rates.push(rate(&numbers, qos));
        let found = numbers.map(|numbers| in_order(probe, &what, &numbers));
        add(vec![found.unwrap_or_else(|why| Finding::failed(&what, why))]);
    }
    let what = "beside a slow subscriber";
    let found = probe.check(what, slow(probe)).await;
    add(found.unwrap_or_else(|why| vec![Finding::failed(what, why)]));
    add(rates);
    for qos in Qos::ALL {
        let what = format!("round trip, QoS {}", qos.level());
        let found = probe.check(&what, latency(probe, &what, qos)).await;
        add(vec![found.unwrap_or_else(|why| Finding::failed(&what, why))]);
    }
}

/// Checks whether a session and its messages outlive the connection, and notes the expiry that the server grants.
async fn session(probe: &Probe) -> Result<Finding, Failure> {
    let kept = keeps_session(probe).await;
    // A session that ends with its connection replaces the one that may be left, whatever the result.
    if let Ok(client) = probe.connect("lasting").await {
        leave(client).await;
    }
    let Kept { found, granted_secs } = kept?;
    let said = probe.version.is_5().then(|| match granted_secs {
        u32::MAX => Value::Unbounded("for ever"),
        secs => Value::Number(secs.into(), Unit::Seconds),
    });
    let must_be = (granted_secs > 0).then_some(true);
    let finding = Finding::of_check("a session with what came meanwhile", found, must_be);
    Ok(Finding { said, ..finding })
}

/// Outcome of the check of a session.
struct Kept {
    found: Result<(), Failure>,
    granted_secs: u32,
}

async fn keeps_session(probe: &Probe) -> Result<Kept, Failure> {
    let lasting = || {
        let options = probe.options(probe.version, "lasting").clean_start(false);
        if probe.version.is_5() { options.session_expiry_secs(SESSION_SECS) } else { options }
    };
    let topic = probe.topic("session");
    let first = probe.connect_with(lasting()).await?;
    let granted_secs = first.server().session_expiry_secs.unwrap_or(SESSION_SECS);
    // MQTT does not require that sessions store messages of QoS 0.
    if let Err(failure) = needs_qos(&first, Qos::AtLeastOnce) {
        leave(first).await;
        return Ok(Kept { found: Err(failure), granted_secs });
    }
    probe.subscribe(&first, &topic, Qos::AtLeastOnce).await?;
    leave(first).await;
    let other = probe.connect("other").await?;
    probe.publish(&other, &message(&topic, b"meanwhile", Qos::AtLeastOnce)?).await?;
    leave(other).await;
    let again = probe.connect_with(lasting()).await?;
    let found = async {
        if !again.server().session_present {
            return Err("it is gone".into());
        }
        let mut messages = probe.subscribe(&again, &topic, Qos::AtLeastOnce).await?;
        probe.hear(&mut messages).await.map(drop)
    };
    let found = found.await;
    leave(again).await;
    Ok(Kept { found, granted_secs })
}

/// Publishes consecutive numbers, up to [`WINDOW`] at a time. Returns the longest time to an acknowledgement.
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

/// Checks that published numbers arrive in order and, from QoS 1 on, completely.
async fn order(probe: &Probe, qos: Qos) -> Result<Numbers, Failure> {
    let client = probe.connect("order").await?;
    let found = keeps_order(probe, &client, qos).await;
    leave(client).await;
    found
}

fn in_order(probe: &Probe, what: &str, numbers: &Numbers) -> Finding {
    let (messages, of) = (numbers.count, probe.arguments.messages);
    if messages == of {
        Finding::of_check(what, Ok(()), Some(true)).without_said()
    } else {
        Finding::measured(what, Value::Share { messages, of }, Verdict::Fine)
    }
}

/// Rate of messages, from the first PUBLISH to the last arrival.
fn rate(numbers: &Result<Numbers, Failure>, qos: Qos) -> Finding {
    let what = format!("rate, QoS {}", qos.level());
    match numbers {
        Ok(Numbers { count, elapsed, .. }) => {
            Finding::measured(&what, Value::Rate { messages: *count, elapsed: *elapsed }, Verdict::Fine)
        }
        // The row about the order says where the broker disappeared.
        Err(Failure::Disappeared(_)) => Finding::failed(&what, Failure::Gone),
        Err(why) => Finding::failed(&what, why.clone()),
    }
}

async fn keeps_order(probe: &Probe, client: &Client, qos: Qos) -> Result<Numbers, Failure> {
    needs_qos(client, qos)?;
    let topic = probe.topic(&format!("order/{}", qos.level()));
    let mut messages = probe.subscribe(client, &topic, qos).await?;
    let began = Instant::now();
    let heard = async {
        let mut numbers = Numbers::default();
        while numbers.next < probe.arguments.messages {
            match probe.in_time(messages.next()).await {
                Ok(Some(heard)) => {
                    numbers.take(number(heard.payload()), qos)?;
                    numbers.elapsed = began.elapsed();
                }
                Ok(None) => return Err("the connection has ended".into()),
                // At QoS 0 the last messages may be lost, but not all messages.
                Err(_) if qos == Qos::AtMostOnce && numbers.count > 0 => break,
                Err(why) => return Err(format!("{} come, the next one {why}", numbers.count).into()),
            }
        }
        Ok(numbers)
    };
    let (published, heard) = tokio::join!(publish_numbers(probe, client, &topic, qos, 0), heard);
    published.and(heard)
}

/// Statistics of the numbers that arrived.
#[derive(Debug, Default)]
struct Numbers {
    count: u32,
    /// Number expected next: one more than the last.
    next: u32,
    /// Time from the first PUBLISH to the last arrival.
    elapsed: Duration,
}

impl Numbers {
    /// Adds a number that arrived. At QoS 0 numbers may be missing, and at QoS 1 they may be repeated.
    fn take(&mut self, number: Option<u32>, qos: Qos) -> Result<(), Failure> {
        match number {
            Some(number) if number == self.next || (number > self.next && qos == Qos::AtMostOnce) => {
                self.count += 1;
                self.next = number.saturating_add(1);
                Ok(())
            }
            Some(number) if number < self.next && qos == Qos::AtLeastOnce => Ok(()),
            Some(number) => Err(format!("{number} comes in place of {}", self.next).into()),
            None => Err(format!("something else comes in place of {}", self.next).into()),
        }
    }
}

/// Checks delivery while a subscriber acknowledges nothing.
///
/// Publishers must still get acknowledgements, and the subscriber must receive all acknowledged messages later.
async fn slow(probe: &Probe) -> Result<Vec<Finding>, Failure> {
    let window = NonZeroU16::new(10).ok_or("no window")?;
    let options = probe.options(probe.version, "slow").messages_max(1).receive_max(window).keep_alive_secs(0);
    let slow = probe.connect_with(options).await?;
    let publisher = probe.connect("publisher").await?;
    let topic = probe.topic("slow");
    needs_qos(&publisher, Qos::AtLeastOnce)?;
    let mut messages = probe.subscribe(&slow, &topic, Qos::AtLeastOnce).await?;
    let longest = publish_numbers(probe, &publisher, &topic, Qos::AtLeastOnce, SLOW_PAYLOAD_BYTES).await;
    let (acknowledged, arrives) = match longest {
        Ok(longest) => (Ok(longest), drain(probe, &mut messages).await),
        Err(why) if !probe.is_there().await => return Err(why),
        Err(why) => (Err(why), Err("nothing was acknowledged".into())),
    };
    leave(publisher).await;
    leave(slow).await;
    let what = "longest PUBACK beside a slow subscriber";
    let acknowledged = match acknowledged {
        Ok(longest) => Finding::measured(what, Value::Longest(longest), Verdict::Fine),
        Err(why) => Finding::failed(what, why),
    };
    let what = "what was acknowledged comes to it";
    Ok(vec![acknowledged, Finding::of_check(what, arrives, Some(true)).without_said()])
}

async fn drain(probe: &Probe, messages: &mut client::Messages) -> Result<(), Failure> {
    for expected in 0..probe.arguments.messages {
        let heard = probe.hear(messages).await;
        let heard = heard.map_err(|why| format!("{expected} of {} come: {why}", probe.arguments.messages))?;
        if number(heard.payload()) != Some(expected) {
            return Err(format!("{expected} is missing").into());
        }
    }
    Ok(())
}

/// Measures the round trip from a publisher to itself, one message at a time.
async fn latency(probe: &Probe, what: &str, qos: Qos) -> Result<Finding, Failure> {
    let client = probe.connect("latency").await?;
    needs_qos(&client, qos)?;
    let topic = probe.topic(&format!("latency/{}", qos.level()));
    let mut messages = probe.subscribe(&client, &topic, qos).await?;
    let mut times = Vec::new();
    for _ in 0..probe.arguments.messages {
        let began = Instant::now();
        drop(client.publish(&message(&topic, b"ping", qos)?).await.map_err(|error| error.to_string())?);
        drop(probe.hear(&mut messages).await?);
        times.push(began.elapsed());
    }
    leave(client).await;
    times.sort_unstable();
    let percentiles = Value::Percentiles { p50: percentile(&times, 50), p99: percentile(&times, 99) };
    Ok(Finding::measured(what, percentiles, Verdict::Fine))
}

/// Percentile by the nearest rank: the shortest of these sorted times that at least `percent` % do not exceed.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[test]
fn percentiles_are_times_that_were_measured() {
    let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
    assert_eq!(percentile(&times, 50), Duration::from_millis(100));
    assert_eq!(percentile(&times, 99), Duration::from_millis(198));
    assert_eq!(percentile(&times[..1], 99), Duration::from_millis(1));
}

#[test]
fn numbers_may_be_missing_at_qos_0_and_come_again_at_qos_1() {
    let heard = |qos, numbers: &[u32]| {
        let mut heard = Numbers::default();
        numbers.iter().try_for_each(|number| heard.take(Some(*number), qos)).map(|()| heard.count)
    };
    assert_eq!(heard(Qos::AtMostOnce, &[0, 2, 5]), Ok(3));
    assert!(heard(Qos::AtMostOnce, &[0, 2, 1]).is_err());
    assert_eq!(heard(Qos::AtLeastOnce, &[0, 1, 0, 1, 2]), Ok(3));
    assert!(heard(Qos::AtLeastOnce, &[0, 2]).is_err());
    assert!(heard(Qos::ExactlyOnce, &[0, 1, 1]).is_err());
}
