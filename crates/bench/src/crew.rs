//! Shared state of the generator's threads: they start together, and end together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Result;

/// The threads of one run, seen from each of them and from the thread that measures.
///
/// ```text
/// worker:   set up ── pass ─────────── drive ── pass ─────────── aftermath ── pass ─────────── close
/// measurer:              await, open               await, open                   await, open
/// ```
#[derive(Debug)]
pub(crate) struct Crew {
    workers: usize,
    gate: Mutex<Gate>,
    moved: Condvar,
    has_failed: AtomicBool,
    epoch: Instant,
    started_nanos: AtomicU64,
    last_arrival_nanos: AtomicU64,
    arrived: AtomicU64,
}

#[derive(Debug, Default)]
struct Gate {
    waiting: usize,
    times_opened: u64,
}

/// A worker's promise to get to the end; dropped without [`Self::keep`], it lets the others know that it did not.
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    crew: &'a Crew,
    is_kept: bool,
}

/// A worker has failed, or the measurer has given up: nobody waits any longer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl Crew {
    /// A crew of this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers,
            gate: Mutex::default(),
            moved: Condvar::new(),
            has_failed: AtomicBool::new(false),
            epoch: Instant::now(),
            started_nanos: AtomicU64::new(0),
            last_arrival_nanos: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
        }
    }

    /// Reports that a worker begins.
    pub(crate) fn promise(&self) -> Promise<'_> {
        Promise { crew: self, is_kept: false }
    }

    /// A worker waits at the gate until the measurer opens it.
    ///
    /// # Errors
    /// If another worker has failed.
    pub(crate) fn pass(&self) -> std::result::Result<(), Failed> {
        let mut gate = self.gate();
        let times_opened = gate.times_opened;
        gate.waiting += 1;
        self.moved.notify_all();
        while gate.times_opened == times_opened {
            if self.has_failed() {
                return Err(Failed);
            }
            gate = self.moved.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Waits until all workers are at the gate, and calls `tick` now and then. Returns whether they are there; `false`
    /// if one has failed.
    ///
    /// # Errors
    /// An error of `tick`: it ends the run, and nobody waits any longer.
    pub(crate) fn await_all(&self, interval: Duration, mut tick: impl FnMut() -> Result<()>) -> Result<bool> {
        let mut gate = self.gate();
        while gate.waiting < self.workers {
            if self.has_failed() {
                return Ok(false);
            }
            gate = self.moved.wait_timeout(gate, interval).unwrap_or_else(PoisonError::into_inner).0;
            if let Err(error) = tick() {
                self.fail(&gate);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// The measurer lets all workers pass.
    pub(crate) fn open(&self) {
        let mut gate = self.gate();
        gate.waiting = 0;
        gate.times_opened += 1;
        self.moved.notify_all();
    }

    /// The measurer starts the clock.
    pub(crate) fn start(&self) {
        let now = self.nanos();
        self.started_nanos.store(now, Ordering::Relaxed);
        self.last_arrival_nanos.store(now, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
    }

    /// A worker has received something, `messages` of it counting.
    pub(crate) fn note_arrivals(&self, messages: u64) {
        self.last_arrival_nanos.fetch_max(self.nanos(), Ordering::Relaxed);
        self.arrived.fetch_add(messages, Ordering::Relaxed);
    }

    /// Messages that all workers have received since the start.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Time since anything arrived anywhere, or since the start.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(self.last_arrival_nanos.load(Ordering::Relaxed)))
    }

    /// Time from the start to the last arrival.
    pub(crate) fn elapsed(&self) -> Duration {
        let started = self.started_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(self.last_arrival_nanos.load(Ordering::Relaxed).saturating_sub(started))
    }

    /// Whether a worker has failed, or the measurer has given up.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The measurer has given up.
    pub(crate) fn give_up(&self) {
        self.fail(&self.gate());
    }

    /// Under the lock, so that nobody goes to sleep between looking and this.
    fn fail(&self, _gate: &MutexGuard<'_, Gate>) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.moved.notify_all();
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promise<'_> {
    /// The worker got to the end.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.crew.fail(&self.crew.gate());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::error::Error;

    #[test]
    fn workers_pass_only_when_all_are_there_and_the_measurer_opens() {
        let crew = Crew::new(2);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let promise = crew.promise();
                        let passed = crew.pass().and_then(|()| crew.pass());
                        promise.keep();
                        passed
                    })
                })
                .collect();
            for _ in 0..2 {
                assert!(crew.await_all(Duration::from_secs(1), || Ok(())).unwrap());
                crew.open();
            }
            assert!(workers.into_iter().all(|worker| worker.join().unwrap() == Ok(())));
        });
    }

    #[test]
    fn nobody_waits_for_a_worker_that_failed() {
        let crew = Crew::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| crew.pass());
            drop(crew.promise());
            assert_eq!(waiting.join().unwrap(), Err(Failed));
        });
        assert!(!crew.await_all(Duration::from_secs(1), || Ok(())).unwrap());
    }

    #[test]
    fn nobody_waits_for_a_measurer_that_has_given_up() {
        let crew = Crew::new(2);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| crew.pass());
            let given_up = crew.await_all(Duration::ZERO, || Err(Error::Server("gone".to_owned())));
            assert!(given_up.is_err());
            assert_eq!(waiting.join().unwrap(), Err(Failed));
        });
    }
}
