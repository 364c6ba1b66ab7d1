//! The threads: one that commits, one that prepares, one that reads messages back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ledger::RecordRoom;

use crate::fetcher::{Desk, Fetcher};
use crate::log::Call;
use crate::{Committer, Log, Pace, Preparer};

/// When nothing has happened for this long, nobody else uses the disk much. It is also checked then whether there is
/// space again.
const IDLE: Duration = Duration::from_secs(1);

/// Tells the thread that appends that there is progress, that space has come back, or that there are old records to copy.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The threads of a log. When it is dropped they write what was appended, and end.
pub(crate) struct Runner {
    log: Arc<Log>,
    desk: Arc<Desk>,
    is_closed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Runner {
    /// `desk` is where messages are asked for that are to be read again.
    pub(crate) fn start(
        committer: Committer,
        preparer: Preparer,
        desk: Arc<Desk>,
        wake: &Wake,
    ) -> io::Result<Self> {
        let log = committer.log().clone();
        let is_closed = Arc::new(AtomicBool::new(false));
        let fetcher = Fetcher::new(log.clone());
        let mut runner = Self { log, desk, is_closed: is_closed.clone(), threads: Vec::new() };
        let of = wake.clone();
        let committing = thread::Builder::new().name("journal".to_owned());
        runner.threads.push(committing.spawn(move || commit(committer, &is_closed, &*of))?);
        let (of, is_closed) = (wake.clone(), runner.is_closed.clone());
        let preparing = thread::Builder::new().name("segments".to_owned());
        runner.threads.push(preparing.spawn(move || prepare(preparer, &is_closed, &*of))?);
        let (of, desk) = (wake.clone(), runner.desk.clone());
        let fetching = thread::Builder::new().name("messages".to_owned());
        runner.threads.push(fetching.spawn(move || desk.serve(fetcher, &*of))?);
        Ok(runner)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        self.desk.close();
        self.log.wake_committer();
        // The one that commits ends first: it may wait for the other.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
            self.log.prepare();
        }
    }
}

fn commit(mut committer: Committer, is_closed: &AtomicBool, wake: &dyn Fn()) {
    let log = committer.log().clone();
    let mut has_told = false;
    loop {
        let call = log.wait(committer.has_rest(), has_told, is_closed);
        let began = Instant::now();
        let has_committed = match call {
            Call::Failed => false,
            Call::Urgent => committer.commit_once(),
            Call::Rest | Call::Close => committer.commit_rest(),
        };
        if has_committed {
            log.latency.add(began.elapsed());
        }
        has_told |= log.has_failed();
        if has_committed || has_told {
            wake();
        }
        if call == Call::Close && !has_committed {
            return;
        }
    }
}

fn prepare(mut preparer: Preparer, is_closed: &AtomicBool, wake: &dyn Fn()) {
    let log = preparer.log().clone();
    let (mut pace, mut room) = (Pace::Busy, log.room());
    while !is_finished(&log, is_closed) {
        let had_space = log.has_space();
        let news = log.news();
        while preparer.prepare_once(pace) && !is_finished(&log, is_closed) {
            let before = std::mem::replace(&mut room, log.room());
            if log.has_old_records() || is_more(room, before) {
                wake();
            }
        }
        let before = std::mem::replace(&mut room, log.room());
        if log.has_old_records() || log.has_space() != had_space || room != before {
            wake();
        }
        preparer.wake_when_written();
        let is_late = wait(&log);
        pace = pace.next(is_late, log.news() != news);
    }
}

/// Whether what waits for space may go on.
fn is_more(room: RecordRoom, before: RecordRoom) -> bool {
    room != before && (room == RecordRoom::Enough || before == RecordRoom::None)
}

/// Whether the thread ends. After the log is closed it goes on as long as a group waits to be written to a segment that
/// is not ready.
fn is_finished(log: &Log, is_closed: &AtomicBool) -> bool {
    is_closed.load(Ordering::Acquire) && (log.has_failed() || !log.has_pending())
}

/// Waits until there is something to prepare. Returns whether the wait was so long that the disk is idle.
fn wait(log: &Log) -> bool {
    if log.durable() >= log.preparation.at_durable.load(Ordering::SeqCst) {
        log.preparation.at_durable.store(u64::MAX, Ordering::SeqCst);
        return false;
    }
    let is_wanted = log.preparation.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = log.preparation.wanted.wait_timeout_while(is_wanted, IDLE, |is_wanted| !*is_wanted);
    let (mut is_wanted, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
    *is_wanted = false;
    log.preparation.at_durable.store(u64::MAX, Ordering::Release);
    timeout.timed_out()
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}
