//! Addresses of a host name, within a time limit.
//!
//! The system looks up names in a call that no limit ends. A thread makes this call, at most one at a time, and all questions
//! wait for it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Deadline;

/// Time for which addresses are used again.
const GOOD_FOR: Duration = Duration::from_secs(30);

/// A host with a port, and its addresses.
#[derive(Debug)]
pub(super) struct Resolver {
    host: String,
    port: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The last answer, with its time.
    answer: Option<(Result<Vec<SocketAddr>, String>, Instant)>,
    is_asking: bool,
}

impl Resolver {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, state: Mutex::default(), changed: Condvar::new() }
    }

    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The addresses of the host.
    ///
    /// # Errors
    /// The system knows none, or does not answer in time.
    pub(super) fn addresses(self: &Arc<Self>, deadline: &Deadline) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            match &state.answer {
                Some((Ok(addresses), time)) if time.elapsed() < GOOD_FOR => return Ok(addresses.clone()),
                Some((Err(why), time)) if *time >= begun => return Err(why.clone()),
                _ => {}
            }
            if !state.is_asking {
                let this = Arc::clone(self);
                let spawned =
                    thread::Builder::new().name("service-name".to_owned()).spawn(move || this.ask());
                spawned.map_err(|error| format!("no thread can be started to look up a name: {error}"))?;
                state.is_asking = true;
            }
            let left = deadline.left()?;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn ask(&self) {
        let found = (self.host.as_str(), self.port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let found = match found {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(format!("{} has no address", self.host)),
            Err(error) => Err(format!("{}: {error}", self.host)),
        };
        let mut state = self.lock();
        *state = State { answer: Some((found, Instant::now())), is_asking: false };
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the critical sections can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_found_and_nonsense_is_not() {
        let addresses = |host: &str| {
            Arc::new(Resolver::new(host, 7)).addresses(&Deadline::after(Duration::from_secs(30)))
        };
        assert_eq!(addresses("::1"), Ok(vec!["[::1]:7".parse().expect("an address")]));
        assert!(addresses("localhost").is_ok_and(|found| found.iter().all(|found| found.ip().is_loopback())));
        assert!(addresses("no such host").is_err());
        let local = Arc::new(Resolver::new("localhost", 7));
        assert_eq!(local.addresses(&Deadline::after(Duration::ZERO)), Err(Deadline::OVER.to_owned()));
    }
}
