//! The outcomes of reloads, for operators that have asked for one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admin::Reloaded;
use config::{Applies, Change, Changes};

use crate::certificates::now_unix_secs;
use crate::file::without_queries;

/// The number of reloads that have begun, and the outcome of the last one.
#[derive(Clone, Default)]
pub(crate) struct Outcomes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    begun: u64,
    last: Option<Reloaded>,
}

impl Outcomes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a reload. Returns the number of the reload that will read the files: the next one to begin.
    pub(crate) fn ask(&self, ask: impl FnOnce()) -> u64 {
        let state = self.lock();
        ask();
        state.begun + 1
    }

    /// Notes that a reload begins. No request that comes later means this one.
    pub(crate) fn begin(&self, forget_requests: impl FnOnce()) {
        let mut state = self.lock();
        forget_requests();
        state.begun += 1;
    }

    /// Notes the outcome of the reload that has begun last.
    pub(crate) fn end(&self, outcome: Result<&Changes, &str>) {
        let mut state = self.lock();
        let (changes, refused) = match outcome {
            Ok(changes) => (changes.keys.iter().map(describe).collect(), None),
            Err(why) => (Vec::new(), Some(why.to_owned())),
        };
        let unix_secs = u64::try_from(now_unix_secs()).unwrap_or_default();
        state.last = Some(Reloaded { number: state.begun, unix_secs, changes, refused });
    }

    /// The outcome of the last reload that has ended.
    pub(crate) fn last(&self) -> Option<Reloaded> {
        self.lock().last.clone()
    }
}

/// A line about a key that has changed.
pub(crate) fn describe(change: &Change) -> String {
    let Change { key, value, applies } = change;
    let value = if value.is_empty() { "none" } else { &*without_queries(value) };
    match applies {
        Applies::Restart => format!("{key} = {value} needs a restart, and has no effect until then"),
        _ => format!("{key} = {value} from now on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_a_reload_means_the_next_one() {
        let outcomes = Outcomes::default();
        assert_eq!(outcomes.ask(|| ()), 1);
        outcomes.begin(|| ());
        assert_eq!(outcomes.ask(|| ()), 2);
        outcomes.end(Err("a mistake"));
        let last = outcomes.last().expect("an outcome");
        assert_eq!((last.number, last.refused.as_deref()), (1, Some("a mistake")));
        outcomes.begin(|| ());
        outcomes.end(Ok(&Changes::default()));
        let last = outcomes.last().expect("an outcome");
        assert_eq!((last.number, last.refused), (2, None));
    }
}
