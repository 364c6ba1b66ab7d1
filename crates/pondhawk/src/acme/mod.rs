//! The certificate of `[acme]`: a thread asks an authority for it, and renews it.
//!
//! ```text
//!            wanted           no certificate, or time to renew
//!   idle ─────────► waiting ──────────────────────────────────► asking ──► waiting: the certificate is in its file
//!                                                                │  ▲
//!                                                        refused ▼  │ the pause is over, or a reload
//!                                                               retrying: the earlier certificate stays in use
//! ```
//!
//! The thread writes the file that listeners with `tls_acme` have as their certificate. Listeners read it again like any other
//! file ([`crate::certificates`]), and nobody is disconnected.

mod answers;
mod client;
mod order;
mod schedule;
mod stored;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use config::{Binding, Config, Listener};
use layers::{CurrentTls, Stack};
use net::TcpOptions;
use protocol::Instruments;
use x509_parser::time::ASN1Time;

use self::answers::Answers;
use self::order::{Desk, Failure, Wanted};
use self::schedule::Window;
use self::stored::Held;
use crate::certificates::now_unix_secs;

/// Shortest time between two attempts. Reloads make the thread try again earlier than otherwise.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest time after a certificate in which no other one is asked for.
const RENEWED_MAX: Duration = Duration::from_secs(86_400);
/// Longest time between two looks at the clock, which may be set, and which goes on while the machine sleeps.
const LOOK: Duration = Duration::from_secs(300);
/// Shortest and longest time between two questions about the time of the renewal.
const WINDOW_AGAIN: (Duration, Duration) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
/// The same time after a question without an answer.
const WINDOW_FAILED: Duration = Duration::from_secs(6 * 3_600);

/// A certificate that renews itself. The thread ends with it.
pub(crate) struct Acme {
    shared: Arc<Shared>,
    /// The socket for HTTP, until the broker serves clients.
    door: Option<TcpListener>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something in the state has changed.
    changed: Condvar,
    over_http: Answers,
    figures: Arc<Figures>,
}

#[derive(Default)]
struct State {
    wanted: Option<Arc<Wanted>>,
    /// The listeners that answer the authority.
    listeners: Vec<Arc<CurrentTls>>,
    /// How often somebody has said what is wanted.
    said: u64,
    has_thread: bool,
    is_over: bool,
}

/// Values below `$SYS/broker/acme/`.
#[derive(Debug, Default)]
struct Figures {
    obtained: AtomicU64,
    failed: AtomicU64,
    failed_in_a_row: AtomicU64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        if self.obtained.load(Relaxed) + self.failed.load(Relaxed) > 0 {
            say("acme/obtained", self.obtained.load(Relaxed).to_string());
            say("acme/failed", self.failed.load(Relaxed).to_string());
            say("acme/failed_in_a_row", self.failed_in_a_row.load(Relaxed).to_string());
        }
    }
}

impl Acme {
    /// Opens the socket for questions over HTTP, which may need the rights that the broker gives up later.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(crate) fn open(config: &Config) -> io::Result<Self> {
        let address = config.acme.http_address.as_ref().filter(|_| wanted(config).is_some());
        let open = |address: &config::ListenAddress| {
            let explain = |error: io::Error| {
                io::Error::new(error.kind(), format!("cannot listen on {address} for [acme]: {error}"))
            };
            let Binding::Inet(inet) = address.resolve().map_err(explain)? else {
                unreachable!("the configuration has looked at it")
            };
            let options = TcpOptions { backlog: 256, ipv6_only: true, interface: None };
            net::listen(inet, options).map_err(explain)
        };
        Ok(Self { shared: Arc::default(), door: address.map(open).transpose()? })
    }

    /// Begins to answer over HTTP.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        if let Some(door) = self.door.take() {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new()
                .name("acme-http".to_owned())
                .spawn(move || shared.over_http.serve(&door))?;
        }
        Ok(())
    }

    /// Says which certificate is wanted. If the last attempt to obtain it has failed, there is another one at once.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn want<'a>(
        &self,
        config: &Config,
        stacks: impl Iterator<Item = (&'a Listener, &'a Arc<Stack>)>,
    ) -> io::Result<()> {
        let of_acme = stacks.filter(|(listener, _)| listener.tls_acme);
        let mut state = self.shared.lock();
        state.listeners = of_acme.filter_map(|(_, stack)| stack.tls.clone()).collect();
        state.wanted = wanted(config).map(Arc::new);
        state.said += 1;
        if state.wanted.is_some() && !state.has_thread {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().name("acme".to_owned()).spawn(move || Work::new(&shared).run())?;
            state.has_thread = true;
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.shared.figures) as Arc<dyn Instruments>
    }
}

/// The certificate that listeners of a configuration want.
fn wanted(config: &Config) -> Option<Wanted> {
    let data_dir = config.data_dir.as_deref()?;
    let is_wanted = config.listeners.iter().any(|listener| listener.tls_acme);
    let settings = Some(&config.acme).filter(|acme| is_wanted && !acme.domains.is_empty())?;
    let (directory, file) = (settings.directory(data_dir), settings.certificate_file(data_dir));
    Some(Wanted { settings: settings.clone(), directory, file })
}

impl Drop for Acme {
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

    /// The certificate that is wanted, as soon as there is one, and how often that was said. `None` at the end.
    fn wanted(&self) -> Option<(Arc<Wanted>, u64)> {
        let is_idle = |state: &mut State| state.wanted.is_none() && !state.is_over;
        let state = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        state.wanted.clone().filter(|_| !state.is_over).map(|wanted| (wanted, state.said))
    }

    /// Waits until something else is said, for at most this time.
    fn wait(&self, said: u64, at_most: Duration) {
        let is_same = |state: &mut State| state.said == said && !state.is_over;
        drop(self.changed.wait_timeout_while(self.lock(), at_most, is_same));
    }

    /// Waits in the middle of an order. Returns whether the certificate was wanted for all of this time.
    fn wait_in_order(&self, wanted: &Wanted, time: Duration) -> bool {
        let is_wanted = |state: &mut State| state.wants(wanted);
        let waited = self.changed.wait_timeout_while(self.lock(), time, is_wanted);
        waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl State {
    /// Whether an order of this certificate has a purpose.
    fn wants(&self, wanted: &Wanted) -> bool {
        !self.is_over && self.wanted.as_deref() == Some(wanted)
    }
}

/// The state of the thread.
struct Work<'a> {
    shared: &'a Shared,
    wanted: Option<Arc<Wanted>>,
    said: u64,
    /// The end of the certificate about which the log has a line.
    told: Option<i64>,
    /// Chooses the second of the renewal. It stays the same until there is another certificate.
    random: u64,
    window: Option<Window>,
    /// The time of the next question about that window.
    ask_window: Instant,
    failures: u32,
    /// The earliest time of the next attempt.
    attempt: Instant,
    /// Before this time the authority wants no other attempt.
    not_before: Option<Instant>,
    /// The time of the last attempt.
    attempted: Option<Instant>,
}

impl<'a> Work<'a> {
    fn new(shared: &'a Shared) -> Self {
        let now = Instant::now();
        let (wanted, window, told, attempted) = (None, None, None, None);
        let (said, failures, random) = (0, 0, random());
        Self {
            shared,
            wanted,
            said,
            told,
            random,
            window,
            ask_window: now,
            failures,
            attempt: now,
            not_before: None,
            attempted,
        }
    }

    fn run(&mut self) {
        while let Some((wanted, said)) = self.shared.wanted() {
            if said != self.said {
                self.begin_again(&wanted, said);
            }
            let time = match Held::read(&wanted.file) {
                Ok(held) => self.go_on(&wanted, held.as_ref()),
                Err(_) if Instant::now() < self.attempt => {
                    self.attempt.saturating_duration_since(Instant::now())
                }
                Err(error) => {
                    self.note_failure(
                        &wanted,
                        None,
                        &Failure::from(format!("{}: {error}", wanted.file.display())),
                    );
                    self.attempt.saturating_duration_since(Instant::now())
                }
            };
            self.shared.wait(said, time.min(LOOK));
        }
    }

    /// Takes over which certificate is wanted. An earlier failure is no reason to wait any more, unless the authority has asked
    /// for it.
    fn begin_again(&mut self, wanted: &Arc<Wanted>, said: u64) {
        let is_other = self.wanted.as_ref() != Some(wanted);
        if is_other {
            (self.window, self.told, self.failures) = (None, None, 0);
            self.ask_window = Instant::now();
        }
        (self.wanted, self.said) = (Some(Arc::clone(wanted)), said);
        if is_other || self.failures > 0 {
            let soon = self.attempted.map_or_else(Instant::now, |last| last + PAUSE);
            self.attempt =
                self.not_before.filter(|_| !is_other).map_or(soon, |not_before| not_before.max(soon));
        }
    }

    /// Asks for a certificate if it is time. Returns the time until the next step.
    fn go_on(&mut self, wanted: &Wanted, held: Option<&Held>) -> Duration {
        let is_for = |held: &&Held| held.is_for(&wanted.settings.domains);
        let now = Instant::now();
        if let Some(held) = held.filter(is_for) {
            self.ask_for_window(wanted, held, now);
            let at = held.validity.renewal_unix_secs(self.window, self.random);
            self.tell(wanted, held, at);
            let left_secs = at.saturating_sub(now_unix_secs());
            if left_secs > 0 {
                return Duration::from_secs(left_secs.unsigned_abs());
            }
        }
        if now >= self.attempt {
            self.attempt(wanted, held);
        }
        self.attempt.saturating_duration_since(Instant::now())
    }

    /// Asks the authority for the time of the renewal, if it is time for the question. No answer is as good as any.
    fn ask_for_window(&mut self, wanted: &Wanted, held: &Held, now: Instant) {
        if now < self.ask_window {
            return;
        }
        let asked = catch_unwind(AssertUnwindSafe(|| order::window(wanted, held)));
        let again = match asked.unwrap_or_else(|_| Err("the answer has ended the question".to_owned())) {
            Ok((window, again)) => {
                self.window = Some(window);
                again.clamp(WINDOW_AGAIN.0, WINDOW_AGAIN.1)
            }
            Err(why) => {
                tracing::debug!(%why, "the authority does not say when to renew the certificate of ACME");
                WINDOW_FAILED
            }
        };
        self.ask_window = now + again;
    }

    /// Writes a line about a certificate, once.
    fn tell(&mut self, wanted: &Wanted, held: &Held, renewal_unix_secs: i64) {
        let until = held.validity.until_unix_secs;
        if self.told.replace(until) != Some(until) {
            tracing::info!(
                names = wanted.settings.domains.join(", "),
                until = date(until),
                renewal = date(renewal_unix_secs),
                "there is a certificate of ACME"
            );
        }
    }

    fn attempt(&mut self, wanted: &Wanted, held: Option<&Held>) {
        let authority = &wanted.settings.directory_url;
        tracing::info!(
            authority,
            names = wanted.settings.domains.join(", "),
            "asking for a certificate of ACME"
        );
        self.attempted = Some(Instant::now());
        let shared = self.shared;
        let listeners = shared.lock().listeners.clone();
        let pause = |time| shared.wait_in_order(wanted, time);
        let desk = Desk { listeners: &listeners, over_http: &shared.over_http, pause: &pause };
        // The library must not end the thread, whatever the authority sends.
        let obtained = catch_unwind(AssertUnwindSafe(|| order::obtain(wanted, &desk)))
            .unwrap_or_else(|_| Err("an answer of the authority has ended the attempt".to_owned().into()));
        match obtained {
            Ok(issued) => {
                shared.figures.obtained.fetch_add(1, Relaxed);
                shared.figures.failed_in_a_row.store(0, Relaxed);
                let (until, file) = (date(issued.held.validity.until_unix_secs), wanted.file.display());
                tracing::info!(until, %file, "the certificate of ACME was obtained, and is in use in a few seconds");
                (self.failures, self.window, self.random) = (0, None, random());
                self.ask_window = Instant::now();
                let left_secs = issued.held.validity.until_unix_secs.saturating_sub(now_unix_secs());
                // A certificate that is due when it arrives must not be asked for again and again.
                let left = Duration::from_secs(u64::try_from(left_secs).unwrap_or_default());
                self.attempt = Instant::now() + (left / 10).clamp(PAUSE, RENEWED_MAX);
                self.not_before = None;
            }
            Err(_) if !shared.lock().wants(wanted) => {
                tracing::info!("the order of a certificate is given up");
            }
            Err(failure) => self.note_failure(wanted, held, &failure),
        }
    }

    fn note_failure(&mut self, wanted: &Wanted, held: Option<&Held>, failure: &Failure) {
        self.failures = self.failures.saturating_add(1);
        self.shared.figures.failed.fetch_add(1, Relaxed);
        self.shared.figures.failed_in_a_row.store(self.failures.into(), Relaxed);
        let pause = schedule::pause(self.failures, random()).max(failure.retry_after.unwrap_or_default());
        self.attempt = Instant::now() + pause;
        self.not_before = failure.retry_after.map(|time| Instant::now() + time);
        let (authority, again_secs) = (&wanted.settings.directory_url, pause.as_secs());
        let why = &failure.why;
        match held {
            Some(held) => {
                let until = date(held.validity.until_unix_secs);
                tracing::error!(
                    authority,
                    until,
                    again_secs,
                    "no certificate of ACME was obtained, and the earlier one stays in use: {why}"
                );
            }
            None => tracing::error!(
                authority,
                again_secs,
                "no certificate of ACME was obtained, and listeners that have none refuse TLS: {why}"
            ),
        }
    }
}

/// A number by chance. Without one, brokers that failed together come back together.
fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}

fn date(unix_secs: i64) -> String {
    ASN1Time::from_timestamp(unix_secs).map_or_else(|_| format!("{unix_secs} s"), |time| time.to_string())
}
