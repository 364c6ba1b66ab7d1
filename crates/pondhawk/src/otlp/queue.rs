//! Lines and spans that wait for the next request.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ITEMS_PER_REQUEST;
use super::collector::Failure;

/// Pause after a request that has failed. It doubles with each further failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum length of this pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Lines or spans that wait, and those that are sent next.
pub(super) struct Queue<T> {
    pub(super) waiting: Option<Receiver<T>>,
    pub(super) batch: Vec<T>,
    /// No request is made before.
    resume: Instant,
    pause: Duration,
}

impl<T> Queue<T> {
    pub(super) fn new(waiting: Option<Receiver<T>>) -> Self {
        Self { waiting, batch: Vec::new(), resume: Instant::now(), pause: PAUSE }
    }

    /// Takes what has come, as much as a request may have.
    pub(super) fn fill(&mut self) {
        let room = ITEMS_PER_REQUEST.saturating_sub(self.batch.len());
        self.batch.extend(self.waiting.iter().flat_map(Receiver::try_iter).take(room));
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.batch.is_empty() && now >= self.resume
    }

    /// Takes the batch away after a request for it, unless it is worth to send it again. Returns how many of the items the
    /// collector does not get. `rejected` is the field of its answer with the number of those that it has refused.
    pub(super) fn settle(&mut self, outcome: &Result<Value, Failure>, rejected: &str, is_last: bool) -> u64 {
        let count = self.batch.len() as u64;
        let lost = match outcome {
            Ok(answer) => {
                self.pause = PAUSE;
                // The collector has taken the others.
                let rejected = &answer["partialSuccess"][rejected];
                let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok());
                rejected.unwrap_or(0).min(count)
            }
            Err(Failure { is_final: false, .. }) if !is_last => {
                self.resume = Instant::now() + self.pause;
                self.pause = PAUSE_MAX.min(2 * self.pause);
                return 0;
            }
            Err(_) => count,
        };
        self.batch.clear();
        lost
    }
}
