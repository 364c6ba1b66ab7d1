//! The keys behind the URL of an issuer, which a thread fetches again and again.
//!
//! ```text
//!            url                      answer with keys
//!   idle ──────────► fetching ─────────────────────────► waiting ──► fetching, after the interval, or
//!                       ▲  │ no answer, or no keys                    for an unknown key
//!                       │  ▼
//!                      retrying: the keys that were fetched last stay
//! ```

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use auth::TokenKeys;
use protocol::Instruments;

use crate::fetch::fetch;

/// Shortest time between two requests. A server that is gone, or tokens with unknown keys, cost no more than this.
const PAUSE: Duration = Duration::from_secs(5);
/// Time between two looks for tokens with unknown keys.
const LOOK: Duration = Duration::from_secs(1);
/// Shortest time between two lines of the log about the same trouble.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The place of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    pub(crate) url: String,
    pub(crate) interval: Duration,
}

/// Keys that are fetched from a URL. The thread ends with it.
pub(crate) struct Jwks {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something in the state has changed.
    changed: Condvar,
    figures: Arc<Figures>,
}

#[derive(Default)]
struct State {
    place: Option<KeyPlace>,
    /// The keys that were fetched last, from this place.
    keys: Option<Arc<TokenKeys>>,
    /// Requests from this place that have ended.
    ended: u64,
    has_thread: bool,
    is_over: bool,
}

/// Values below `$SYS/broker/tokens/`.
#[derive(Debug, Default)]
struct Figures {
    keys: AtomicU64,
    fetched: AtomicU64,
    failed: AtomicU64,
    /// Tokens whose key is unknown.
    missed: Arc<AtomicU64>,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        if self.fetched.load(Relaxed) + self.failed.load(Relaxed) > 0 {
            say("tokens/keys", self.keys.load(Relaxed).to_string());
            say("tokens/fetched", self.fetched.load(Relaxed).to_string());
            say("tokens/fetch_failed", self.failed.load(Relaxed).to_string());
        }
    }
}

impl Jwks {
    /// No keys, and no place to fetch some from.
    pub(crate) fn new() -> Self {
        Self { shared: Arc::default() }
    }

    /// Names the place of the keys. Keys of another place are forgotten, because another issuer may have them.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn want(&self, place: Option<KeyPlace>) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.place.as_ref().map(|place| &place.url) != place.as_ref().map(|place| &place.url) {
            (state.keys, state.ended) = (None, 0);
        }
        state.place = place;
        if state.place.is_some() && !state.has_thread {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().name("token-keys".to_owned()).spawn(move || shared.run())?;
            state.has_thread = true;
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Waits until a request has ended, for at most this time. Without a place there is nothing to wait for.
    pub(crate) fn await_first(&self, at_most: Duration) {
        let is_waiting = |state: &mut State| state.place.is_some() && state.ended == 0;
        drop(self.shared.changed.wait_timeout_while(self.shared.lock(), at_most, is_waiting));
    }

    /// The keys that were fetched last from this URL, if there are some.
    pub(crate) fn keys(&self, url: &str) -> Option<Arc<TokenKeys>> {
        let state = self.shared.lock();
        state.keys.clone().filter(|_| state.place.as_ref().is_some_and(|place| place.url == url))
    }

    /// A number to which tokens with an unknown key are added.
    pub(crate) fn missed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.figures.missed)
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.shared.figures) as Arc<dyn Instruments>
    }
}

impl Drop for Jwks {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the critical sections can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut told = None;
        while let Some(place) = self.place() {
            let missed = self.figures.missed.load(Relaxed);
            let outcome = fetch(&place.url)
                .and_then(|text| TokenKeys::of_url(&text).map_err(|error| error.to_string()));
            let has_keys = outcome.is_ok();
            self.take(&place, outcome, &mut told);
            self.wait(&place, missed, has_keys);
        }
    }

    /// The place to fetch keys from, as soon as there is one. `None` at the end.
    fn place(&self) -> Option<KeyPlace> {
        let is_idle = |state: &mut State| state.place.is_none() && !state.is_over;
        let state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        state.place.clone().filter(|_| !state.is_over)
    }

    /// Takes over the outcome of a request, unless the keys have another place by now.
    fn take(&self, place: &KeyPlace, outcome: Result<TokenKeys, String>, told: &mut Option<Instant>) {
        let mut state = self.lock();
        if state.place.as_ref().is_none_or(|current| current.url != place.url) {
            return;
        }
        state.ended += 1;
        match outcome {
            Ok(keys) => {
                self.figures.fetched.fetch_add(1, Relaxed);
                self.figures.keys.store(keys.len() as u64, Relaxed);
                if state.keys.as_deref() != Some(&keys) {
                    tracing::info!(
                        keys = keys.len(),
                        url = config::without_query(&place.url),
                        "keys to check tokens were fetched"
                    );
                    state.keys = Some(Arc::new(keys));
                }
                *told = None;
            }
            Err(why) => {
                let failed = self.figures.failed.fetch_add(1, Relaxed) + 1;
                if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
                    *told = Some(Instant::now());
                    let earlier = state.keys.as_ref().map_or(0, |keys| keys.len());
                    tracing::error!(
                        failed,
                        earlier,
                        url = config::without_query(&place.url),
                        "no keys to check tokens were fetched, and the earlier ones stay in use: {why}"
                    );
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until it is time for another request: after the interval, earlier after a failure or for an unknown key, and at
    /// once for another place.
    fn wait(&self, place: &KeyPlace, missed: u64, has_keys: bool) {
        let from = Instant::now();
        let mut state = self.lock();
        loop {
            let is_other = state.place.as_ref().is_none_or(|current| current.url != place.url);
            let is_wanted = !has_keys || self.figures.missed.load(Relaxed) != missed;
            let interval = state.place.as_ref().map_or(PAUSE, |place| place.interval);
            let elapsed = from.elapsed();
            if state.is_over || is_other || elapsed >= interval || is_wanted && elapsed >= PAUSE {
                return;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
