//! Drain: new clients are refused, connected ones leave over a time, and then the broker ends if that was asked for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::{Value, json};

use super::body::Body;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// Time in which clients leave if the request does not say.
const SECONDS: u64 = 60;
/// Maximum time in which clients leave: a day.
pub(crate) const SECONDS_MAX: u64 = 86_400;
/// Maximum length of a Server Reference, in bytes.
const REFERENCE_BYTES_MAX: usize = 1_024;
/// Time between two looks whether all clients have left.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that the last clients have beyond the end before the broker ends.
const GRACE: Duration = Duration::from_secs(10);

/// The drain under way, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Drains(Mutex<Option<Arc<Current>>>);

#[derive(Debug)]
struct Current {
    server_reference: Option<Arc<str>>,
    until: Instant,
    exit: bool,
}

impl Drains {
    /// Whether new clients are refused.
    pub(crate) fn is_draining(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<Current>> {
        self.lock().clone()
    }

    /// Whether this drain is under way, and no later order has taken its place.
    fn is_current(&self, drain: &Arc<Current>) -> bool {
        self.lock().as_ref().is_some_and(|current| Arc::ptr_eq(current, drain))
    }

    /// Puts a drain in the place of the current one.
    fn begin(&self, new: &Arc<Current>) {
        *self.lock() = Some(Arc::clone(new));
    }

    /// Ends the drain. Returns whether there was one.
    fn end(&self) -> bool {
        self.lock().take().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Current>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order in a body.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    server_reference: Option<Arc<str>>,
    seconds: u64,
    exit: bool,
}

impl Wanted {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        let body = Body::parse(body)?;
        let server_reference = match body.field("server_reference") {
            Value::Null => None,
            Value::String(text) if is_reference(text) => Some(Arc::from(text.as_str())),
            _ => {
                let text = format!(
                    "server_reference is a text of 1 to {REFERENCE_BYTES_MAX} bytes, without control characters"
                );
                return Err(Failure::bad(text));
            }
        };
        let seconds = match body.field("seconds") {
            Value::Null => SECONDS,
            seconds => seconds
                .as_u64()
                .filter(|seconds| *seconds <= SECONDS_MAX)
                .ok_or_else(|| Failure::bad(format!("seconds is a whole number up to {SECONDS_MAX}")))?,
        };
        Ok(Self { server_reference, seconds, exit: body.flag("exit")? })
    }
}

fn is_reference(text: &str) -> bool {
    (1..=REFERENCE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The state of the drain.
pub(crate) fn show(shared: &Shared) -> Answer {
    Answer::json(&describe(shared))
}

fn describe(shared: &Shared) -> Value {
    let clients = clients(shared);
    match shared.drains.current() {
        None => json!({ "draining": false, "clients": clients }),
        Some(current) => json!({
            "draining": true,
            "clients": clients,
            "seconds_left": current.until.saturating_duration_since(Instant::now()).as_secs(),
            "server_reference": current.server_reference.as_deref(),
            "exit": current.exit,
        }),
    }
}

fn clients(shared: &Shared) -> u64 {
    shared.operator.clients_by_shard().into_iter().sum()
}

/// Begins to drain, or changes the drain under way.
pub(crate) async fn begin(asked: &Asked, shared: &Arc<Shared>) -> Result<Answer, Failure> {
    let Wanted { server_reference, seconds, exit } = Wanted::parse(&asked.body)?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let drain = Arc::new(Current { server_reference: server_reference.clone(), until, exit });
    shared.drains.begin(&drain);
    let order = broker::Drain { server_reference, over_ms: seconds * 1_000 };
    // No shard is left out, even if the request ends here.
    let answers = asking::all_shards(&shared.operator, || broker::Question::Drain(Some(order.clone())));
    if exit {
        tokio::spawn(stop_when_empty(Arc::clone(shared), drain));
    }
    answers.await?;
    Ok(show(shared))
}

/// Ends the drain: clients may connect again. The shards hear of that in any case.
pub(crate) async fn end(shared: &Shared) -> Result<Answer, Failure> {
    let was_draining = shared.drains.end();
    asking::all_shards(&shared.operator, || broker::Question::Drain(None)).await?;
    if !was_draining {
        return Err(Failure(StatusCode::NOT_FOUND, "the broker is not being drained".to_owned()));
    }
    Ok(show(shared))
}

/// Ends the broker when no client is connected, or when the time is over. Another order ends the wait.
async fn stop_when_empty(shared: Arc<Shared>, drain: Arc<Current>) {
    while shared.drains.is_current(&drain) {
        if clients(&shared) == 0 || Instant::now() >= drain.until + GRACE {
            tracing::info!("the broker is drained, and ends");
            return shared.control.stop();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_its_mistakes_are_named() {
        let parse = |body: Value| Wanted::parse(body.to_string().as_bytes());
        let given = json!({ "server_reference": "b.example:1883", "seconds": 0, "exit": true });
        let wanted = Wanted { server_reference: Some("b.example:1883".into()), seconds: 0, exit: true };
        assert_eq!(parse(given).expect("an order"), wanted);
        let default = Wanted { server_reference: None, seconds: SECONDS, exit: false };
        assert_eq!(parse(json!({})).expect("an order"), default);
        for wrong in [
            json!([]),
            json!({ "server_reference": "" }),
            json!({ "server_reference": "a\nb" }),
            json!({ "server_reference": "x".repeat(1_025) }),
            json!({ "server_reference": 7 }),
            json!({ "seconds": -1 }),
            json!({ "seconds": 86_401 }),
            json!({ "seconds": "1" }),
            json!({ "exit": 1 }),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
