//! Threads that check passwords. A check takes milliseconds on purpose, so no shard may wait for it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use auth::{Attempts, Checked, Origin, PasswordCheck, Remembered, Unchecked};
use base::{ConnectionId, ShardId};
use turn::{Note, Peer};

use crate::clock::Clock;
use crate::switchboard::Switchboard;

/// Maximum number of passwords that wait to be checked, of addresses without and with wrong passwords of late.
const WAITING_MAX: usize = 4_096;
const SUSPECT_MAX: usize = 256;
/// Maximum bytes of these passwords in each of the two queues. A password may have 64 KiB.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// A password that has waited this long is not checked any more: its client has most likely given up.
const PATIENCE_MS: u64 = 5_000;

/// The threads, and the passwords that wait for them.
pub(crate) struct Verifier {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// Shards do not wait for this lock: a digest of a long password takes some time.
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Waiting {
    /// Passwords from addresses without wrong ones of late. They go first: guessing disturbs nobody else.
    first: Line,
    /// Passwords from other addresses.
    suspect: Line,
    attempts: Attempts,
    is_over: bool,
}

/// Passwords in the order in which they came.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    bytes: usize,
}

/// A password that waits.
struct Job {
    shard: ShardId,
    connection: ConnectionId,
    origin: Option<Origin>,
    check: PasswordCheck,
    came_ms: u64,
}

impl Line {
    fn push(&mut self, job: Job, jobs_max: usize) -> Result<(), Unchecked> {
        let bytes = job.check.size_bytes();
        if self.jobs.len() >= jobs_max || self.bytes + bytes > WAITING_BYTES_MAX {
            return Err(Unchecked::Busy);
        }
        self.bytes += bytes;
        self.jobs.push_back(job);
        Ok(())
    }

    fn pop(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.check.size_bytes();
        Some(job)
    }
}

impl Verifier {
    /// A verifier without threads, which [`start`](Self::start) adds.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let remembered = Mutex::new(Remembered::new(key));
        Ok(Arc::new(Self { waiting: Mutex::default(), wake: Condvar::new(), remembered }))
    }

    /// Starts the threads, which end with the verifier.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        threads: usize,
        switchboard: &Arc<Switchboard>,
        clock: &Clock,
    ) -> io::Result<()> {
        for number in 0..threads {
            let (this, switchboard, clock) = (Arc::clone(self), Arc::downgrade(switchboard), clock.clone());
            let run = move || this.run(&switchboard, &clock);
            thread::Builder::new().name(format!("verify-{number}")).spawn(run)?;
        }
        Ok(())
    }

    /// Ends the threads. Passwords that wait are not checked.
    pub(crate) fn stop(&self) {
        self.lock().is_over = true;
        self.wake.notify_all();
    }

    /// Puts a password in line.
    pub(crate) fn submit(
        &self,
        now_ms: u64,
        (shard, connection): (ShardId, ConnectionId),
        peer: &Peer,
        check: PasswordCheck,
    ) -> Result<(), Unchecked> {
        let origin = match peer {
            Peer::Inet(address) => Some(Origin::from(address.ip())),
            _ => None,
        };
        let job = Job { shard, connection, origin, check, came_ms: now_ms };
        let mut waiting = self.lock();
        let Waiting { first, suspect, attempts, .. } = &mut *waiting;
        match origin {
            Some(origin) if !attempts.may_try(origin, now_ms) => return Err(Unchecked::Guessing),
            Some(origin) if attempts.is_suspect(origin, now_ms) => suspect.push(job, SUSPECT_MAX)?,
            _ => first.push(job, WAITING_MAX)?,
        }
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    fn run(&self, switchboard: &Weak<Switchboard>, clock: &Clock) {
        while let Some(job) = self.next() {
            let now_ms = clock.current_ms();
            let checked = self.check(&job, now_ms);
            let Some(switchboard) = switchboard.upgrade() else { return };
            let note = Note::Verified { connection: job.connection, checked };
            switchboard.shards[job.shard.number()].post(note.into());
        }
    }

    /// The next password, when there is one; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            if let Some(job) = waiting.first.pop() {
                return Some(job);
            }
            if let Some(job) = waiting.suspect.pop() {
                return Some(job);
            }
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check(&self, job: &Job, now_ms: u64) -> Checked {
        if now_ms.saturating_sub(job.came_ms) > PATIENCE_MS {
            return Checked::Not(Unchecked::Busy);
        }
        if let Some(origin) = job.origin
            && !self.lock().attempts.may_try(origin, now_ms)
        {
            return Checked::Not(Unchecked::Guessing);
        }
        let remembered = || self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered().has(&job.check) {
            return Checked::Right;
        }
        if job.check.run() {
            remembered().add(&job.check);
            return Checked::Right;
        }
        if let Some(origin) = job.origin {
            self.lock().attempts.was_wrong(origin, now_ms);
        }
        Checked::Wrong
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in the critical sections can panic half-way, so that a poisoned lock is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use auth::{PasswordHash, Scheme, Users};

    use super::*;

    fn users() -> Users {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::MOSQUITTO, b"right", b"twelve bytes").expect("a hash");
        users.add("frog", hash).expect("a user");
        users
    }

    fn submit(verifier: &Verifier, slot: u32, address: &str, password: &[u8]) -> Result<(), Unchecked> {
        let peer = Peer::from(std::net::SocketAddr::new(address.parse().expect("an address"), 1));
        let connection = ConnectionId { slot, generation: 0 };
        verifier.submit(0, (ShardId::new(0), connection), &peer, users().check("frog", password))
    }

    /// Checks the next password. Returns whose it is, and the outcome.
    fn next(verifier: &Verifier) -> (u32, Checked) {
        let job = verifier.next().expect("one waits");
        (job.connection.slot, verifier.check(&job, 0))
    }

    #[test]
    fn passwords_of_an_address_with_wrong_ones_wait_for_all_others() {
        let verifier = Verifier::new().expect("random numbers");
        assert_eq!(submit(&verifier, 1, "192.0.2.1", b"wrong"), Ok(()));
        assert_eq!(next(&verifier), (1, Checked::Wrong));
        for (slot, address) in [(2, "192.0.2.1"), (3, "192.0.2.2"), (4, "192.0.2.3")] {
            assert_eq!(submit(&verifier, slot, address, b"right"), Ok(()));
        }
        let order = [(); 3].map(|()| next(&verifier));
        assert_eq!(order, [3, 4, 2].map(|slot| (slot, Checked::Right)));
    }

    #[test]
    fn a_line_is_bounded_and_an_address_that_guesses_is_refused() {
        let verifier = Verifier::new().expect("random numbers");
        let mut slot = 0;
        let guessing = loop {
            slot += 1;
            match submit(&verifier, slot, "192.0.2.1", b"wrong") {
                Ok(()) => assert_eq!(next(&verifier), (slot, Checked::Wrong)),
                Err(refusal) => break refusal,
            }
        };
        assert_eq!((guessing, slot), (Unchecked::Guessing, 31));
        let long = vec![b'x'; 60_000];
        let outcomes = (0..100).map(|slot| submit(&verifier, slot, "192.0.2.9", &long));
        let taken = outcomes.take_while(Result::is_ok).count();
        assert!((60..WAITING_BYTES_MAX / 60_000 + 1).contains(&taken), "{taken}");
    }

    #[test]
    fn a_password_that_has_waited_too_long_is_not_checked() {
        let verifier = Verifier::new().expect("random numbers");
        assert_eq!(submit(&verifier, 1, "192.0.2.1", b"right"), Ok(()));
        let job = verifier.next().expect("it waits");
        assert_eq!(verifier.check(&job, PATIENCE_MS + 1), Checked::Not(Unchecked::Busy));
    }
}
