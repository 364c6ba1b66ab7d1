//! Threads that check passwords. A check takes milliseconds on purpose, so no shard may wait for it.
//!
//! A password passes two desks. The clerk, one thread, asks whether the password was right before, which takes
//! microseconds: limits and guessing delay no client that has logged in before. The others wait in two lines for the
//! threads that check, the passwords of suspect addresses behind all others. One of these threads leaves suspects alone,
//! so that another client waits for no guess.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use auth::{Attempts, Check, Checked, Origin, Remembered, Unchecked, Workspace};
use base::{ConnectionId, ShardId};
use turn::{Note, Peer};

use crate::Ended;
use crate::clock::Clock;
use crate::switchboard::Switchboard;
use turns::{Job, Turns};

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
/// Passwords that the clerk takes at a time.
const TAKEN_TOGETHER: usize = 64;

/// The threads, and the passwords that wait for them.
pub(crate) struct Verifier {
    waiting: Mutex<Waiting>,
    /// The clerk has work.
    has_come: Condvar,
    /// The other threads have work.
    has_unknown: Condvar,
    /// Shards do not wait for this lock: a digest of a long password takes some time.
    remembered: Mutex<Remembered>,
}

struct Waiting {
    /// Passwords for the clerk.
    come: Turns,
    /// Passwords from addresses without wrong ones of late. They go first: guessing disturbs nobody else.
    first: Turns,
    /// Passwords from other addresses.
    suspect: Turns,
    /// Passwords that gave way to others, and have no answer yet. Connections are bounded, and each has one password.
    displaced: Vec<Job>,
    /// Time of the last look for old passwords.
    looked_ms: u64,
    attempts: Attempts,
    is_over: bool,
}

/// The outcome for a connection.
type Answer = (ShardId, ConnectionId, Checked);

fn not(job: &Job, unchecked: Unchecked) -> Answer {
    (job.shard, job.connection, Checked::Not(unchecked))
}

impl Waiting {
    fn new() -> Self {
        Self {
            come: Turns::new(WAITING_MAX, WAITING_BYTES_MAX),
            first: Turns::new(WAITING_MAX, WAITING_BYTES_MAX),
            suspect: Turns::new(SUSPECT_MAX, WAITING_BYTES_MAX),
            displaced: Vec::new(),
            looked_ms: 0,
            attempts: Attempts::default(),
            is_over: false,
        }
    }

    /// Puts a password that is not known in the line of its origin, or refuses it.
    fn line_up(&mut self, job: Job, now_ms: u64) -> Option<Answer> {
        let Self { first, suspect, displaced, attempts, .. } = self;
        match job.origin {
            Some(origin) if !attempts.may_try(origin, job.check.number(), now_ms) => {
                return Some(not(&job, Unchecked::Guessing));
            }
            Some(origin) if attempts.is_suspect(origin, now_ms) => suspect.push(job, displaced),
            _ => first.push(job, displaced),
        }
        None
    }

    /// Notes a wrong password. Everything from its address waits for all others from now on.
    fn was_wrong(&mut self, origin: Origin, user: u64, now_ms: u64) {
        self.attempts.was_wrong(origin, user, now_ms);
        for job in self.first.remove(Some(origin)) {
            self.suspect.push(job, &mut self.displaced);
        }
    }

    /// Removes the passwords that nobody checks any more. Looks at each origin, at most twice a second.
    fn give_up(&mut self, now_ms: u64) -> Vec<Job> {
        let mut jobs = std::mem::take(&mut self.displaced);
        if now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = now_ms;
            let before_ms = now_ms.saturating_sub(PATIENCE_MS);
            for line in [&mut self.come, &mut self.first, &mut self.suspect] {
                jobs.append(&mut line.remove_older(before_ms));
            }
        }
        jobs
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
        Ok(Arc::new(Self {
            waiting: Mutex::new(Waiting::new()),
            has_come: Condvar::new(),
            has_unknown: Condvar::new(),
            remembered: Mutex::new(Remembered::new(key)),
        }))
    }

    /// Starts the threads, which end with the verifier: the clerk, and some that check. `ended` hears of each that ends, also
    /// by a fault.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        threads: usize,
        switchboard: &Arc<Switchboard>,
        clock: &Clock,
        ended: &Sender<Ended>,
    ) -> io::Result<()> {
        let (this, to, time) = (Arc::clone(self), Arc::downgrade(switchboard), clock.clone());
        crate::spawn("verify-clerk", ended, move || this.run_clerk(&to, &time))?;
        for number in 0..threads {
            let (this, to, time) = (Arc::clone(self), Arc::downgrade(switchboard), clock.clone());
            // The first leaves suspects alone.
            let run = move || this.run(number > 0, &to, &time);
            crate::spawn(&format!("verify-{number}"), ended, run)?;
        }
        Ok(())
    }

    /// Ends the threads. Passwords that wait are not checked.
    pub(crate) fn stop(&self) {
        self.lock().is_over = true;
        self.has_come.notify_all();
        self.has_unknown.notify_all();
    }

    /// Puts a password in line.
    pub(crate) fn submit(
        &self,
        now_ms: u64,
        (shard, connection): (ShardId, ConnectionId),
        peer: &Peer,
        check: Check,
    ) {
        let origin = match peer {
            Peer::Inet(address) => Some(Origin::from(address.ip())),
            Peer::Process { uid, .. } => Some(Origin::of_process(*uid)),
            _ => None,
        };
        let job = Job { shard, connection, origin, check, came_ms: now_ms };
        let mut waiting = self.lock();
        let Waiting { come, displaced, .. } = &mut *waiting;
        come.push(job, displaced);
        drop(waiting);
        self.has_come.notify_one();
    }

    fn run_clerk(&self, to: &Weak<Switchboard>, clock: &Clock) {
        loop {
            let answers = self.sort(clock.current_ms());
            if !post(to, answers) || !self.await_more() {
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
            if waiting.first.is_empty() && waiting.suspect.is_empty() {
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
    fn sort(&self, now_ms: u64) -> Vec<Answer> {
        let mut waiting = self.lock();
        let given_up = waiting.give_up(now_ms);
        let come: Vec<Job> = std::iter::from_fn(|| waiting.come.pop()).take(TAKEN_TOGETHER).collect();
        drop(waiting);
        let mut answers: Vec<Answer> = given_up.iter().map(|job| not(job, Unchecked::Busy)).collect();
        let (known, unknown): (Vec<_>, Vec<_>) = come.into_iter().partition(|job| self.has(&job.check));
        answers.extend(known.iter().map(|job| (job.shard, job.connection, Checked::Right)));
        if !unknown.is_empty() {
            let mut waiting = self.lock();
            answers.extend(unknown.into_iter().filter_map(|job| waiting.line_up(job, now_ms)));
            drop(waiting);
            self.has_unknown.notify_all();
        }
        answers
    }

    fn run(&self, takes_suspects: bool, to: &Weak<Switchboard>, clock: &Clock) {
        let mut workspace = Workspace::default();
        while let Some(job) = self.next(takes_suspects) {
            let now = (clock.current_ms(), clock.current_unix_secs());
            let checked = self.check(&job, now, &mut workspace);
            if !post(to, [(job.shard, job.connection, checked)]) {
                return;
            }
        }
    }

    /// The next password, when there is one; `None` at the end.
    fn next(&self, takes_suspects: bool) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            let job = waiting.first.pop();
            let job = if takes_suspects { job.or_else(|| waiting.suspect.pop()) } else { job };
            if job.is_some() {
                return job;
            }
            waiting = self.has_unknown.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check(&self, job: &Job, (now_ms, unix_secs): (u64, u64), workspace: &mut Workspace) -> Checked {
        if now_ms.saturating_sub(job.came_ms) > PATIENCE_MS {
            return Checked::Not(Unchecked::Busy);
        }
        // Another client of the user may have logged in meanwhile.
        if self.has(&job.check) {
            return Checked::Right;
        }
        if let Some(origin) = job.origin
            && !self.lock().attempts.may_try(origin, job.check.number(), now_ms)
        {
            return Checked::Not(Unchecked::Guessing);
        }
        let checked = job.check.run_in(workspace, unix_secs);
        match (&checked, &job.check) {
            (Checked::Right, Check::Password(check)) => {
                self.remembered.lock().unwrap_or_else(PoisonError::into_inner).add(check);
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

    /// Whether the password was right before. A token is checked each time: its key may be another one, and it expires.
    fn has(&self, check: &Check) -> bool {
        match check {
            Check::Password(check) => {
                self.remembered.lock().unwrap_or_else(PoisonError::into_inner).has(check)
            }
            Check::Token(_) | Check::Scram(_) => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in the critical sections can panic half-way, so that a poisoned lock is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells shards the outcomes. Returns false if they have ended.
fn post(to: &Weak<Switchboard>, answers: impl IntoIterator<Item = Answer>) -> bool {
    let Some(switchboard) = to.upgrade() else { return false };
    for (shard, connection, checked) in answers {
        switchboard.shards[shard.number()].post(Note::Verified { connection, checked }.into());
    }
    true
}

#[cfg(test)]
mod tests {
    use auth::{PasswordHash, Scheme, TokenCheck, TokenKeys, TokenProblem, TokenRules, Tokens, Users};

    use super::*;

    fn users() -> Users {
        let mut users = Users::default();
        for name in ["frog", "toad"] {
            let hash = PasswordHash::new(Scheme::MOSQUITTO, b"right", b"twelve bytes").expect("a hash");
            users.add(name, hash).expect("a user");
        }
        users
    }

    /// A verifier whose threads are the test.
    struct Desk(Arc<Verifier>);

    impl Desk {
        fn new() -> Self {
            Self(Verifier::new().expect("random numbers"))
        }

        /// The answers of the clerk, each with its connection, after another password has come.
        fn submit(&self, slot: u32, address: &str, (user, password): (&str, &[u8])) -> Vec<(u32, Checked)> {
            let peer = Peer::from(std::net::SocketAddr::new(address.parse().expect("an address"), 1));
            let connection = ConnectionId { slot, generation: 0 };
            let check = users().check(user, password).into();
            self.0.submit(0, (ShardId::new(0), connection), &peer, check);
            self.sort(0)
        }

        fn sort(&self, now_ms: u64) -> Vec<(u32, Checked)> {
            self.0.sort(now_ms).into_iter().map(|(_, id, checked)| (id.slot, checked)).collect()
        }

        /// Checks the next password. Returns whose it is, and the outcome.
        fn next(&self) -> (u32, Checked) {
            let job = self.0.next(true).expect("one waits");
            (job.connection.slot, self.0.check(&job, (0, 0), &mut Workspace::default()))
        }
    }

    const RIGHT: (&str, &[u8]) = ("frog", b"right");
    const WRONG: (&str, &[u8]) = ("frog", b"wrong");

    #[test]
    fn passwords_of_an_address_with_wrong_ones_wait_for_all_others() {
        let desk = Desk::new();
        let none = Vec::new();
        assert_eq!(desk.submit(1, "192.0.2.1", WRONG), none);
        assert_eq!(desk.submit(2, "192.0.2.1", RIGHT), none);
        assert_eq!(desk.next(), (1, Checked::Wrong));
        for (slot, address) in [(3, "192.0.2.2"), (4, "192.0.2.3")] {
            assert_eq!(desk.submit(slot, address, RIGHT), none);
        }
        let order = [(); 3].map(|()| desk.next());
        assert_eq!(order, [3, 4, 2].map(|slot| (slot, Checked::Right)));
    }

    #[test]
    fn a_thread_leaves_suspects_alone() {
        let desk = Desk::new();
        desk.submit(1, "192.0.2.1", WRONG);
        desk.next();
        desk.submit(2, "192.0.2.1", WRONG);
        desk.submit(3, "192.0.2.2", RIGHT);
        assert_eq!(desk.0.next(false).expect("one waits").connection.slot, 3);
        assert!(desk.0.lock().first.is_empty() && !desk.0.lock().suspect.is_empty());
    }

    #[test]
    fn a_password_that_was_right_before_passes_all_limits_and_lines() {
        let desk = Desk::new();
        desk.submit(0, "192.0.2.1", RIGHT);
        assert_eq!(desk.next(), (0, Checked::Right));
        (1..=30).for_each(|slot| {
            desk.submit(slot, "192.0.2.1", WRONG);
            desk.next();
        });
        assert_eq!(desk.submit(31, "192.0.2.1", WRONG), [(31, Checked::Not(Unchecked::Guessing))]);
        let addresses = (0..5_000_u32).map(|number| std::net::Ipv4Addr::from_bits(number).to_string());
        addresses.for_each(|address| drop(desk.submit(32, &address, WRONG)));
        assert_eq!(desk.submit(33, "192.0.2.1", RIGHT).last(), Some(&(33, Checked::Right)));
    }

    #[test]
    fn a_device_with_an_old_password_locks_out_nobody_else_behind_its_address() {
        let desk = Desk::new();
        for slot in 1..=30 {
            assert_eq!(desk.submit(slot, "192.0.2.1", WRONG), []);
            assert_eq!(desk.next(), (slot, Checked::Wrong));
        }
        assert_eq!(desk.submit(31, "192.0.2.1", RIGHT), [(31, Checked::Not(Unchecked::Guessing))]);
        assert_eq!(desk.submit(32, "192.0.2.1", ("toad", b"right")), []);
        assert_eq!(desk.next(), (32, Checked::Right));
    }

    #[test]
    fn a_line_is_bounded_by_bytes_and_the_displaced_get_an_answer() {
        let desk = Desk::new();
        let long = vec![b'x'; 60_000];
        let answers: Vec<_> =
            (0..100).flat_map(|slot| desk.submit(slot, "192.0.2.9", ("frog", &long))).collect();
        let answers: Vec<_> = answers.into_iter().chain(desk.sort(0)).collect();
        let kept = WAITING_BYTES_MAX / 60_100;
        let expected = 0..100 - u32::try_from(kept).expect("it fits");
        let expected: Vec<_> = expected.map(|slot| (slot, Checked::Not(Unchecked::Busy))).collect();
        assert_eq!(answers, expected);
    }

    /// The first part has a wrong signature, as all tokens that somebody makes up. The second names a key that is unknown.
    #[test]
    fn made_up_tokens_are_guesses_and_others_are_none() {
        const MADE_UP: &str = "eyJhbGciOiJIUzI1NiJ9.e30.AAAA";
        const OF_OTHERS: &str = "eyJhbGciOiJFUzI1NiJ9.e30.AAAA";
        let keys = TokenKeys::of_file("a secret that has thirty-two bytes").expect("a secret");
        let tokens = Arc::new(Tokens::new(TokenRules::default(), keys));
        let desk = Desk::new();
        let submit = |slot, token: &str| {
            let peer = Peer::from(std::net::SocketAddr::from(([192, 0, 2, 1], 1)));
            let connection = ConnectionId { slot, generation: 0 };
            let check = TokenCheck::new(&tokens, token.as_bytes(), None);
            desk.0.submit(0, (ShardId::new(0), connection), &peer, Check::Token(check));
            desk.sort(0)
        };
        for slot in 0..1_000 {
            assert_eq!(submit(slot, OF_OTHERS), []);
            assert_eq!(desk.next(), (slot, Checked::BadToken(TokenProblem::UnknownKey)));
        }
        for slot in 0..30 {
            assert_eq!(submit(slot, MADE_UP), []);
            assert_eq!(desk.next(), (slot, Checked::BadToken(TokenProblem::Signature)));
        }
        assert_eq!(submit(30, MADE_UP), [(30, Checked::Not(Unchecked::Guessing))]);
        assert_eq!(submit(31, OF_OTHERS), [], "another token, and another user, of the address");
    }

    #[test]
    fn a_password_that_has_waited_too_long_is_not_checked() {
        let desk = Desk::new();
        desk.submit(1, "192.0.2.1", RIGHT);
        desk.submit(2, "192.0.2.2", RIGHT);
        let job = desk.0.next(true).expect("it waits");
        assert_eq!(
            desk.0.check(&job, (PATIENCE_MS + 1, 0), &mut Workspace::default()),
            Checked::Not(Unchecked::Busy)
        );
        assert_eq!(desk.sort(PATIENCE_MS + 1), [(2, Checked::Not(Unchecked::Busy))]);
    }

    #[test]
    fn processes_of_one_user_of_this_machine_are_one_origin() {
        let desk = Desk::new();
        let submit = |slot, uid, password: &[u8]| {
            let peer = Peer::Process { uid: Some(uid), pid: Some(slot) };
            let connection = ConnectionId { slot, generation: 0 };
            desk.0.submit(0, (ShardId::new(0), connection), &peer, users().check("frog", password).into());
            desk.sort(0)
        };
        for slot in 0..30 {
            assert_eq!(submit(slot, 1_000, b"wrong"), []);
            assert_eq!(desk.next(), (slot, Checked::Wrong));
        }
        assert_eq!(submit(30, 1_000, b"wrong"), [(30, Checked::Not(Unchecked::Guessing))]);
        assert_eq!(submit(31, 1_001, b"wrong"), []);
    }
}
