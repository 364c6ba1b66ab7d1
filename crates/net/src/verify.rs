//! Threads that check passwords. A check takes milliseconds on purpose, so no shard may wait for it.
//!
//! A shard itself refuses the passwords of an address that has guessed far too often, so that a long flood of guesses wakes no
//! other thread. Passwords of operators come from the admin server. All these passwords pass two desks. The clerk, one thread, asks whether the password was right before, which takes
//! microseconds: limits and guessing delay no client that has logged in before. The clerk asks this so often for an address, and
//! then takes all its passwords for unknown ones. The others wait in two lines for the threads that check, the passwords of
//! suspect addresses behind all others. One of these threads leaves suspects alone, so that another client waits for no guess.
//!
//! ```text
//!                          ┌─ known before, or refused ─► answer
//!   shards ──► come ─► clerk ─┬─ computed: first, suspect ──► verify-N ──► answer
//!                             ├─ asked:    first, suspect ──► ask-N (waits for a server) ──► answer
//!                             └─ named:    first, suspect ──► name-0 (waits for the system) ──► answer
//! ```

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use auth::{Attempts, Check, Checked, Origin, Remembered, RememberedAnswers, Unchecked, Workspace};
use turn::Note;

use crate::Ended;
use crate::clock::Clock;
use crate::courtesy::Courtesy;
use crate::slice;
use crate::switchboard::Switchboard;

pub(crate) use turns::Job;
use turns::{Asker, Turns};

mod turns;

/// Maximum number of passwords that wait for the clerk, and of those of addresses without wrong ones of late.
const WAITING_MAX: usize = 4_096;
/// Maximum number of passwords of addresses with wrong ones of late.
const SUSPECT_MAX: usize = 256;
/// Maximum bytes of these passwords in each line. A password may have 64 KiB.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// A password that has waited this long is not checked any more: its client has most likely given up.
const PATIENCE_MS: u64 = 5_000;
/// Time after which the clerk looks for such passwords again.
const LOOK_MS: u64 = 500;
/// Passwords that the clerk takes at a time. A shard may send all their answers in one turn.
const TAKEN_TOGETHER: usize = 16;

/// The threads, and the passwords that wait for them.
pub(crate) struct Verifier {
    waiting: Mutex<Waiting>,
    /// The clerk has work.
    has_come: Condvar,
    /// The other threads have work.
    has_unknown: Condvar,
    /// Shards do not wait for this lock: a digest of a long password takes some time.
    remembered: Mutex<Memory>,
}

/// The passwords that were right.
struct Memory {
    computed: Remembered,
    asked: RememberedAnswers,
}

/// The kind of the threads for which a password waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Threads that compute.
    Computing,
    /// Threads that ask servers elsewhere, and wait for them.
    Asking,
    /// The thread that asks the system for login names. It may wait for a directory without an end, and delays nobody else then.
    Naming,
}

impl Work {
    const ALL: [Self; 3] = [Self::Computing, Self::Asking, Self::Naming];

    fn of(check: &Check) -> Self {
        match check {
            Check::Password(_) | Check::Token(_) | Check::Scram(_) => Self::Computing,
            Check::Service(_) => Self::Asking,
            Check::Process(_) => Self::Naming,
        }
    }

    /// Whether these threads look at what a client may guess. Nobody can guess the number of a process's user.
    fn may_be_wrong(self) -> bool {
        self != Self::Naming
    }
}

/// The passwords that wait for one kind of threads.
struct Lines {
    /// Passwords from addresses without wrong ones of late. They go first: guessing disturbs nobody else.
    first: Turns,
    /// Passwords from other addresses.
    suspect: Turns,
}

impl Lines {
    fn new() -> Self {
        Self {
            first: Turns::new(WAITING_MAX, WAITING_BYTES_MAX),
            suspect: Turns::new(SUSPECT_MAX, WAITING_BYTES_MAX),
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.suspect.is_empty()
    }
}

struct Waiting {
    /// Passwords for the clerk.
    come: Turns,
    /// In the order of [`Work::ALL`].
    lines: [Lines; 3],
    /// Passwords that gave way to others, and have no answer yet. Connections are bounded, and each has one password.
    displaced: Vec<Job>,
    /// Time of the last look for old passwords.
    looked_ms: u64,
    attempts: Attempts,
    is_over: bool,
}

/// The outcome for a client or an operator.
type Answer = (Asker, Checked);

/// Whether such passwords are remembered when they are right.
fn is_remembered(check: &Check) -> bool {
    match check {
        Check::Password(_) | Check::Service(_) => true,
        Check::Token(_) | Check::Scram(_) | Check::Process(_) => false,
    }
}

fn not(job: Job, unchecked: Unchecked) -> Answer {
    (job.asker, Checked::Not(unchecked))
}

impl Waiting {
    fn new() -> Self {
        Self {
            come: Turns::new(WAITING_MAX, WAITING_BYTES_MAX),
            lines: Work::ALL.map(|_| Lines::new()),
            displaced: Vec::new(),
            looked_ms: 0,
            attempts: Attempts::default(),
            is_over: false,
        }
    }

    /// Whether a password is refused, although it may have been right before.
    fn are_attempts_spent(&self, job: &Job, now_ms: u64) -> bool {
        let origin = job.origin.filter(|_| is_remembered(&job.check));
        origin.is_some_and(|origin| self.attempts.are_spent(origin, job.check.number(), now_ms))
    }

    /// Whether a password is compared with those that were right before.
    fn may_look(&self, job: &Job, now_ms: u64) -> bool {
        let may_look = |origin| self.attempts.may_look(origin, job.check.number(), now_ms);
        is_remembered(&job.check) && job.origin.is_none_or(may_look)
    }

    /// Puts a password that is not known in the line of its origin, or refuses it.
    fn line_up(&mut self, job: Job, now_ms: u64) -> Option<Answer> {
        let Self { lines, displaced, attempts, .. } = self;
        if let Some(origin) = job.origin.filter(|_| job.is_compared) {
            attempts.was_unknown(origin, job.check.number(), now_ms);
        }
        let work = Work::of(&job.check);
        let Lines { first, suspect } = &mut lines[work as usize];
        match job.origin.filter(|_| work.may_be_wrong()) {
            Some(origin) if !attempts.may_try(origin, job.check.number(), now_ms) => {
                return Some(not(job, Unchecked::Guessing));
            }
            Some(origin) if attempts.is_suspect(origin, now_ms) => suspect.push(job, displaced),
            _ => first.push(job, displaced),
        }
        None
    }

    /// Notes a wrong password. Everything from its address waits for all others from now on.
    fn was_wrong(&mut self, origin: Origin, user: u64, now_ms: u64) {
        self.attempts.was_wrong(origin, user, now_ms);
        for Lines { first, suspect } in &mut self.lines {
            for job in first.remove(origin) {
                suspect.push(job, &mut self.displaced);
            }
        }
    }

    /// Removes the passwords that nobody checks any more, and returns those that somebody waits for. Looks at each, at most twice
    /// a second.
    fn give_up(&mut self, now_ms: u64) -> Vec<Job> {
        let mut jobs = std::mem::take(&mut self.displaced);
        if now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = now_ms;
            let before_ms = now_ms.saturating_sub(PATIENCE_MS);
            let Self { come, lines, .. } = self;
            let lines = lines.iter_mut().flat_map(|Lines { first, suspect }| [first, suspect]);
            for line in [come].into_iter().chain(lines) {
                jobs.append(&mut line.remove_old(before_ms));
            }
        }
        jobs
    }

    /// The next password for threads of a kind, of a suspect address only if that is wanted.
    fn next(&mut self, work: Work, takes_suspects: bool) -> Option<Job> {
        let Lines { first, suspect } = &mut self.lines[work as usize];
        first.pop().or_else(|| if takes_suspects { suspect.pop() } else { None })
    }
}

/// The threads of a verifier, and their surroundings.
pub(crate) struct Threads {
    /// Number of threads that compute.
    pub(crate) computing: usize,
    /// Maximum number of threads that ask servers elsewhere, each one question at a time.
    pub(crate) asking: usize,
    /// The shards that wait for outcomes.
    pub(crate) to: Weak<Switchboard>,
    pub(crate) clock: Clock,
    /// Hears of each thread that ends, also by a fault.
    pub(crate) ended: Sender<Ended>,
}

impl Verifier {
    /// A verifier without threads, which [`start`](Self::start) adds.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let mut keys = [[0; 32]; 2];
        for key in &mut keys {
            getrandom::fill(key).map_err(io::Error::other)?;
        }
        let memory = Memory { computed: Remembered::new(keys[0]), asked: RememberedAnswers::new(keys[1]) };
        Ok(Arc::new(Self {
            waiting: Mutex::new(Waiting::new()),
            has_come: Condvar::new(),
            has_unknown: Condvar::new(),
            remembered: Mutex::new(memory),
        }))
    }

    /// Starts the threads, which end with the verifier: the clerk, and some that compute. Those that ask start with the first
    /// question, because most brokers ask nobody.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(self: &Arc<Self>, threads: Threads) -> io::Result<()> {
        for number in 0..threads.computing {
            // The first leaves suspects alone.
            self.spawn(&threads, &format!("verify-{number}"), (Work::Computing, number > 0))?;
        }
        let (this, ended) = (Arc::clone(self), threads.ended.clone());
        crate::spawn("verify-clerk", &ended, move || this.run_clerk(&threads))?;
        Ok(())
    }

    fn spawn(self: &Arc<Self>, threads: &Threads, name: &str, work: (Work, bool)) -> io::Result<()> {
        let (this, to, time) = (Arc::clone(self), Weak::clone(&threads.to), threads.clock.clone());
        crate::spawn(name, &threads.ended, move || this.run(work, &to, &time)).map(drop)
    }

    /// Ends the threads. Passwords that wait are not checked.
    pub(crate) fn stop(&self) {
        self.lock().is_over = true;
        self.has_come.notify_all();
        self.has_unknown.notify_all();
    }

    /// Whether a password is refused at once, because its address has guessed far too often. Waits for no lock: the clerk decides
    /// while another thread has it.
    pub(crate) fn refuses(&self, job: &Job) -> bool {
        self.waiting.try_lock().is_ok_and(|waiting| waiting.are_attempts_spent(job, job.came_ms))
    }

    /// Puts the passwords of a turn in line.
    pub(crate) fn submit(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        let Waiting { come, displaced, .. } = &mut *waiting;
        jobs.drain(..).for_each(|job| come.push(job, displaced));
        drop(waiting);
        self.has_come.notify_one();
    }

    fn run_clerk(self: &Arc<Self>, threads: &Threads) {
        let (mut asking, mut naming, mut is_told) = (0, 0, false);
        loop {
            let answers = self.sort((threads.clock.current_ms(), threads.clock.current_unix_secs()));
            for (work, name, count, most) in
                [(Work::Asking, "ask", &mut asking, threads.asking), (Work::Naming, "name", &mut naming, 1)]
            {
                while *count < most && !self.lock().lines[work as usize].is_empty() {
                    // If there are several, one leaves suspects alone.
                    let takes_suspects = *count > 0 || most == 1;
                    if let Err(error) =
                        self.spawn(threads, &format!("{name}-{count}"), (work, takes_suspects))
                    {
                        if !std::mem::replace(&mut is_told, true) {
                            tracing::error!(%error, count, "no more threads can be started to ask about users");
                        }
                        break;
                    }
                    *count += 1;
                }
            }
            if !post(&threads.to, answers) || !self.await_more() {
                return;
            }
        }
    }

    /// Waits until there is something for the clerk. Returns false at the end.
    fn await_more(&self) -> bool {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over || !waiting.come.is_empty() || !waiting.displaced.is_empty() {
                return !waiting.is_over;
            }
            if waiting.lines.iter().all(Lines::is_empty) {
                waiting = self.has_come.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let look = Duration::from_millis(LOOK_MS);
            let woken = self.has_come.wait_timeout(waiting, look).unwrap_or_else(PoisonError::into_inner);
            if woken.1.timed_out() {
                return !woken.0.is_over;
            }
            waiting = woken.0;
        }
    }

    /// Answers to passwords that were right before, and to those that are not checked. The others go in line.
    fn sort(&self, now: (u64, u64)) -> Vec<Answer> {
        let now_ms = now.0;
        let mut waiting = self.lock();
        let given_up = waiting.give_up(now_ms);
        let come: Vec<Job> = std::iter::from_fn(|| waiting.come.pop()).take(TAKEN_TOGETHER).collect();
        drop(waiting);
        let mut answers: Vec<Answer> = given_up.into_iter().map(|job| not(job, Unchecked::Busy)).collect();
        let mut has_unknown = false;
        for mut job in come {
            // One after the other: each look counts before the next password has its own.
            let waiting = self.lock();
            if waiting.are_attempts_spent(&job, now_ms) {
                answers.push(not(job, Unchecked::Guessing));
                continue;
            }
            job.is_compared = waiting.may_look(&job, now_ms);
            drop(waiting);
            match self.recall(&job, now) {
                Some(checked) => answers.push((job.asker, checked)),
                None => {
                    answers.extend(self.lock().line_up(job, now_ms));
                    has_unknown = true;
                }
            }
        }
        if has_unknown {
            self.has_unknown.notify_all();
        }
        answers
    }

    fn run(&self, work: (Work, bool), to: &Weak<Switchboard>, clock: &Clock) {
        slice::give_way();
        // The signals would interrupt threads that wait for a server.
        let courtesy = (work.0 == Work::Computing).then(Courtesy::begin);
        let mut workspace = Workspace::default();
        while let Some(job) = self.next(work) {
            let now = (clock.current_ms(), clock.current_unix_secs());
            let checked = self.check(&job, now, |check, unix_secs| match &courtesy {
                // No lock is held meanwhile: shards would wait for it while this thread has given the processor back.
                Some(courtesy) => courtesy.compute(|| check.run_in(&mut workspace, unix_secs)),
                None => check.run_in(&mut workspace, unix_secs),
            });
            if !post(to, [(job.asker, checked)]) {
                return;
            }
            // A shard that the outcome has woken may otherwise wait until nothing is left to do here, or for the system's
            // next tick.
            thread::yield_now();
        }
    }

    /// The next password, when there is one; `None` at the end.
    fn next(&self, (work, takes_suspects): (Work, bool)) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            let job = waiting.next(work, takes_suspects);
            if job.is_some() {
                return job;
            }
            waiting = self.has_unknown.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check(
        &self,
        job: &Job,
        (now_ms, unix_secs): (u64, u64),
        run: impl FnOnce(&Check, u64) -> Checked,
    ) -> Checked {
        if now_ms.saturating_sub(job.came_ms) > PATIENCE_MS {
            return Checked::Not(Unchecked::Busy);
        }
        // Another client of the user may have logged in meanwhile.
        if let Some(checked) = self.recall(job, (now_ms, unix_secs)) {
            return checked;
        }
        if let Some(origin) = job.origin
            && Work::of(&job.check).may_be_wrong()
            && !self.lock().attempts.may_try(origin, job.check.number(), now_ms)
        {
            return Checked::Not(Unchecked::Guessing);
        }
        // Another device of a fleet may have been first. A wrong password costs the slow check here, so that nobody guesses faster.
        if let Check::Password(check) = &job.check
            && self.memory().computed.has(check)
        {
            return Checked::Right;
        }
        let checked = run(&job.check, unix_secs);
        match (&checked, &job.check) {
            (Checked::Right, Check::Password(check)) => {
                self.memory().computed.add(check);
            }
            (Checked::Bearer(bearer), Check::Service(check)) => {
                self.memory().asked.add(check, bearer, now_ms, check.remembers(bearer.key));
            }
            (Checked::BadToken(problem), _) if problem.is_guess() => self.note_wrong(job, now_ms),
            (Checked::Wrong, _) => self.note_wrong(job, now_ms),
            _ => {}
        }
        checked
    }

    /// Notes a wrong password, or a token that may be made up.
    fn note_wrong(&self, job: &Job, now_ms: u64) {
        if let Some(origin) = job.origin {
            self.lock().was_wrong(origin, job.check.number(), now_ms);
            self.has_come.notify_one();
        }
    }

    /// The outcome of the same check before, if the password was right, and if the clerk has had a look left for it. A token is
    /// checked each time: its key may be another one, and it expires.
    fn recall(&self, job: &Job, now: (u64, u64)) -> Option<Checked> {
        if !job.is_compared {
            return None;
        }
        match &job.check {
            Check::Password(check) => self.memory().computed.has(check).then_some(Checked::Right),
            Check::Service(check) => Some(Checked::Bearer(Box::new(self.memory().asked.find(check, now)?))),
            Check::Token(_) | Check::Scram(_) | Check::Process(_) => None,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in the critical sections can panic half-way, so that a poisoned lock is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells shards and operators the outcomes. Returns false if the shards have ended.
fn post(to: &Weak<Switchboard>, answers: impl IntoIterator<Item = Answer>) -> bool {
    let Some(switchboard) = to.upgrade() else { return false };
    for (asker, checked) in answers {
        match asker {
            Asker::Client(shard, connection) => {
                switchboard.shards[shard.number()].post(Note::Verified { connection, checked }.into());
            }
            Asker::Operator(answer) => answer(checked),
        }
    }
    true
}

#[cfg(test)]
mod tests;
