//! The log: groups of bytes in the order in which they are appended. Appending never waits. A [`Committer`] writes the
//! appended groups, and a [`Preparer`](crate::Preparer) provides the space, each when it is asked to.
//!
//! [`Committer`]: crate::Committer

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::{Latencies, Latency};
use ledger::{Lsn, Progress, RecordRoom, Refusal};
use protocol::Durability;

use crate::cleaning::Cleaning;
use crate::plan::{Appended, Batch, Occasion, Plan, Waiter, address};
use crate::{Damage, Settings, Storage};

/// The purpose of a group of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPurpose {
    /// An event has happened, such as a publication or a subscription.
    News,
    /// A client comes back for stored messages. Accepted as long as half of the last space is left: otherwise stored
    /// messages would never become fewer.
    Return,
    /// Less has to be kept afterwards: the last space is for these and for copies.
    FreesSpace,
    /// The record is kept already, and its old place is to be used again.
    Copy,
}

/// How long a group of records may wait in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Until something more urgent comes, or for [`REST_MS`].
    #[default]
    Later,
    /// As soon as possible with the operating system.
    Written,
    /// As soon as possible on stable storage.
    Durable,
}

/// Maximum delay before a record that no client is waiting for is written, in milliseconds.
pub const REST_MS: u64 = 10;

/// No packet is longer than this part of the shortest segment.
const PACKETS_OF_SEGMENT: u32 = 4;

/// The levels, the weakest first.
const DURABILITIES: [Durability; 3] = [Durability::None, Durability::Os, Durability::Fsync];

fn place_of(durability: Durability) -> usize {
    durability as usize
}

/// The log as those see it who append to it and who read its old records again.
pub struct Log {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) settings: Settings,
    pub(crate) salt: u64,
    /// Never held while a file is read or written.
    plan: Mutex<Plan>,
    /// Never held while a file is read or written; `plan` may be taken while it is held.
    cleaning: Mutex<Cleaning>,
    /// With `plan`: something is to be committed, or can be now.
    commit: Condvar,
    written: AtomicU64,
    durable: AtomicU64,
    has_failed: AtomicBool,
    /// There was enough room when something was appended last.
    has_room: AtomicBool,
    /// The segment that frames are written to now.
    active: AtomicU64,
    /// Records before this address can be read.
    readable: AtomicU64,
    /// Bytes that were written to segments.
    position: AtomicU64,
    /// The bytes of all groups that were appended, and of those that wait in memory no more.
    appended_bytes: AtomicU64,
    done_bytes: AtomicU64,
    live_bytes: AtomicU64,
    /// The strongest durability that anybody waits for, as an index of [`DURABILITIES`], for readers of the status.
    durability: AtomicUsize,
    pub(crate) preparation: Preparation,
    pub(crate) counters: Counters,
    pub(crate) latency: Latency,
}

/// When the [`Preparer`](crate::Preparer) has something to do again. It says so itself, because most commits change
/// nothing for it and waking a thread costs as much as a commit.
pub(crate) struct Preparation {
    /// Position at which the preparer has work again, in written bytes.
    pub(crate) at_position: AtomicU64,
    /// When this is durable.
    pub(crate) at_durable: AtomicU64,
    pub(crate) is_wanted: Mutex<bool>,
    pub(crate) wanted: Condvar,
}

/// Counters that change with each event.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// Groups that are no copies.
    pub(crate) news: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) beyond_limit: AtomicU64,
    pub(crate) recycled: AtomicU64,
    pub(crate) fetched: AtomicU64,
}

/// Problems of a journal in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// A write or a sync has failed: nothing is recorded any more.
    pub failure: Option<String>,
    /// There is no space for another segment.
    pub no_space: Option<String>,
    /// Segments that were made beyond the limit, as the last resort.
    pub beyond_limit: u64,
    /// Something old could not be read again: nothing is cleaned any more, and the next start will refuse it.
    pub damage: Option<String>,
}

/// How a journal is, for people and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Groups of records that were appended.
    pub groups: u64,
    /// Frames that were written.
    pub commits: u64,
    /// Syncs of a segment that frames were written to.
    pub syncs: u64,
    /// Bytes written in frames, with their headers and the padding of their last page.
    pub bytes_written: u64,
    /// Bytes that were appended as copies.
    pub copied_bytes: u64,
    /// Segments that were made although the others took all that they may: without them nothing would ever be free again.
    pub beyond_limit: u64,
    /// Segments whose records are needed, the one that is written to included.
    pub segments: u64,
    /// Their length together, in bytes.
    pub log_bytes: u64,
    /// The most that all segments may take now, in bytes: the limit, or the space that the file system has for them.
    pub limit_bytes: u64,
    /// Segments that are ready to be written to, or will be with space that is reserved.
    pub spares: u64,
    /// Segments that were given a new number when nothing in them was needed any more.
    pub recycled: u64,
    /// Messages that were read again because they waited on disk alone.
    pub fetched: u64,
    /// Live bytes reported by the ledger; [`u64::MAX`] before the first report.
    pub live_bytes: u64,
    /// Records that were appended and still wait in memory to be written, in bytes.
    pub pending_bytes: u64,
    /// How long commits took, where threads do them.
    pub latencies: Latencies,
    /// Whether there is no space for another segment at the moment, and why.
    pub no_space: Option<String>,
    /// Whether a write or a sync has failed, and how: nothing is recorded any more.
    pub failure: Option<String>,
    /// Whether an old segment could not be read again: it stays.
    pub damage: Option<String>,
}

/// Why a [`Committer`](crate::Committer) is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// A write or a sync has failed: said once.
    Failed,
    /// Somebody waits for a group to be written.
    Urgent,
    /// Nobody waits, but it has rested long enough.
    Rest,
    /// The log is closed: what there is, and then no more.
    Close,
}

impl Log {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        settings: Settings,
        salt: u64,
        active: u64,
        plan: Plan,
    ) -> Self {
        let readable = address(active, plan.offset());
        let durability = AtomicUsize::new(place_of(settings.durability));
        Self {
            storage,
            settings,
            salt,
            plan: Mutex::new(plan),
            cleaning: Mutex::default(),
            commit: Condvar::new(),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            has_room: AtomicBool::new(false),
            active: AtomicU64::new(active),
            readable: AtomicU64::new(readable),
            position: AtomicU64::new(0),
            appended_bytes: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            // Nothing is cleaned before somebody has said what is live.
            live_bytes: AtomicU64::new(u64::MAX),
            durability,
            preparation: Preparation {
                at_position: AtomicU64::new(0),
                at_durable: AtomicU64::new(0),
                is_wanted: Mutex::new(false),
                wanted: Condvar::new(),
            },
            counters: Counters::default(),
            latency: Latency::default(),
        }
    }

    /// The most that anybody waits for.
    pub(crate) fn durability(&self) -> Durability {
        DURABILITIES[self.durability.load(Ordering::Relaxed)]
    }

    /// Notes that somebody waits for more than before.
    pub(crate) fn note_durability(&self, durability: Durability) {
        self.durability.store(place_of(durability), Ordering::Relaxed);
    }

    /// Appends a group of records, to be kept whole or not at all. Does not wait.
    ///
    /// # Errors
    /// There is no space for it; it is longer than [`Settings::group_bytes_max`]; or a write or sync has failed.
    pub fn append(&self, group: &[u8], purpose: RecordPurpose, urgency: Urgency) -> Result<Lsn, Refusal> {
        let (appended, wakes) = self.append_quietly(group, purpose, urgency)?;
        if wakes {
            self.commit.notify_one();
        }
        Ok(appended.lsn)
    }

    /// The same, and whether [`wake_committer`](Self::wake_committer) is to be called soon.
    pub(crate) fn append_quietly(
        &self,
        group: &[u8],
        purpose: RecordPurpose,
        urgency: Urgency,
    ) -> Result<(Appended, bool), Refusal> {
        let mut plan = self.plan();
        plan.live_bytes = self.live_bytes();
        let segment = plan.segment.number;
        let appended = match plan.append(group, purpose, urgency, &self.settings) {
            Err(Refusal::NoSpace) if purpose == RecordPurpose::Copy => {
                drop(plan);
                // It is tried again when there is more space.
                if self.cleaning().stall() {
                    self.prepare();
                }
                return Err(Refusal::NoSpace);
            }
            Err(Refusal::NoSpace) if purpose == RecordPurpose::FreesSpace => {
                drop(plan);
                // The space that was kept for these is used up: what has happened cannot be recorded any more.
                self.fail(&io::ErrorKind::StorageFull.into());
                return Err(Refusal::Poisoned);
            }
            appended => appended?,
        };
        let room = plan.room(self.settings.segment_bytes_min / PACKETS_OF_SEGMENT);
        self.has_room.store(room == RecordRoom::Enough, Ordering::Release);
        self.appended_bytes.fetch_add(group.len() as u64, Ordering::Relaxed);
        let wakes = plan.waiter.is_called_by(urgency);
        let has_taken_spare = plan.segment.number != segment;
        let is_short = room == RecordRoom::None || plan.has_held();
        drop(plan);
        if has_taken_spare || is_short {
            // Another is begun now, and not when this one is written to: the disk may be slow.
            self.prepare();
        }
        if purpose != RecordPurpose::Copy {
            self.counters.news.fetch_add(1, Ordering::Relaxed);
        } else if !group.is_empty() {
            self.counters.copied_bytes.fetch_add(group.len() as u64, Ordering::Relaxed);
            self.cleaning().note_copied(group.len());
        }
        Ok((appended, wakes))
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        // In this order, so that what is durable is never ahead of what is written.
        let has_failed = self.has_failed.load(Ordering::Acquire);
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        Progress { written: Lsn(self.written.load(Ordering::Acquire)), durable, has_failed }
    }

    /// Whether there is space for more packets now. There will be some soon, where there is not: a segment is being made, or
    /// an old one is being cleaned.
    #[must_use]
    pub fn room(&self) -> RecordRoom {
        // Nearly always there is, and who appends has seen it.
        if self.has_room.load(Ordering::Acquire) {
            return RecordRoom::Enough;
        }
        let plan = self.plan();
        let room = plan.room(self.settings.segment_bytes_min / PACKETS_OF_SEGMENT);
        self.has_room.store(room == RecordRoom::Enough, Ordering::Release);
        room
    }

    /// Sets the size of the records that the ledger still needs, in bytes. It decides when old segments are cleaned.
    /// Nothing is cleaned before the first call. A value that is too low causes work, and a value that is too high
    /// costs space.
    pub fn set_live_bytes(&self, bytes: u64) {
        self.live_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// The payload of the next frame of the oldest segment, if its space is wanted: what of it is still true is to be
    /// appended again. It is done with when this is called again.
    #[must_use]
    pub fn next_to_copy(&self) -> Option<Vec<u8>> {
        let mut cleaning = self.cleaning();
        let (frame, wakes) = cleaning.next(|| self.ask_for_all(), self.durable.load(Ordering::Acquire));
        drop(cleaning);
        if wakes {
            self.prepare();
        }
        frame
    }

    /// The position of the last group; all up to there becomes urgent.
    fn ask_for_all(&self) -> u64 {
        let mut plan = self.plan();
        plan.put_held(Occasion::Copies, &self.settings);
        if plan.hurry() && plan.waiter.is_called_by(Urgency::Durable) {
            self.commit.notify_one();
        }
        plan.appended
    }

    /// Returns the state of the log.
    #[must_use]
    pub fn status(&self) -> Status {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let damage = self.cleaning().damage.as_ref().map(ToString::to_string);
        let plan = self.plan();
        Status {
            groups: plan.appended,
            commits: count(&self.counters.commits),
            syncs: count(&self.counters.syncs),
            bytes_written: count(&self.counters.bytes),
            copied_bytes: count(&self.counters.copied_bytes),
            beyond_limit: count(&self.counters.beyond_limit),
            segments: plan.sealed.len() as u64 + 1,
            log_bytes: plan.log_bytes,
            limit_bytes: plan.limit_bytes,
            spares: plan.spares.len() as u64,
            recycled: count(&self.counters.recycled),
            fetched: count(&self.counters.fetched),
            live_bytes: self.live_bytes(),
            pending_bytes: self.pending_bytes(),
            latencies: self.latency.read(),
            no_space: self.no_space(&plan),
            failure: plan.failure.clone(),
            damage,
        }
    }

    /// Returns the problems that an operator should know.
    #[must_use]
    pub fn trouble(&self) -> Trouble {
        let damage = self.cleaning().damage.as_ref().map(ToString::to_string);
        let plan = self.plan();
        let beyond_limit = self.counters.beyond_limit.load(Ordering::Relaxed);
        Trouble { failure: plan.failure.clone(), no_space: self.no_space(&plan), beyond_limit, damage }
    }

    fn no_space(&self, plan: &Plan) -> Option<String> {
        let is_full = || plan.is_full(&self.settings).then(|| "nearly all of it is needed".to_owned());
        let is_beyond = || plan.is_beyond_limit.then(|| "it takes more than its limit".to_owned());
        plan.no_space.clone().or_else(is_full).or_else(is_beyond)
    }

    /// After a write or sync that failed: nobody knows what is on the disk, so nothing is written any more.
    pub(crate) fn fail(&self, error: &io::Error) {
        let mut plan = self.plan();
        plan.failure.get_or_insert_with(|| error.to_string());
        self.has_failed.store(true, Ordering::Release);
        self.commit.notify_all();
    }

    /// There is no space for another segment now. If none will come back either, what waits for one waits no longer: it takes
    /// what was kept for copies, because it cannot be refused any more.
    pub(crate) fn run_out_of_space(
        &self,
        mut plan: MutexGuard<'_, Plan>,
        error: &io::Error,
        may_go_on: bool,
    ) {
        plan.no_space = Some(error.to_string());
        plan.is_hopeless = !may_go_on;
        plan.is_lost = plan.is_hopeless && plan.is_short();
        if !plan.is_lost || !plan.has_held() {
            return;
        }
        plan.put_held(Occasion::Space, &self.settings);
        let has_lost = plan.has_held();
        drop(plan);
        match has_lost {
            true => self.fail(error),
            false => self.wake_committer(),
        }
    }

    pub(crate) fn has_space(&self) -> bool {
        self.plan().no_space.is_none()
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.plan().has_pending()
    }

    /// Whether something waits for [`next_to_copy`](Self::next_to_copy).
    pub(crate) fn has_old_records(&self) -> bool {
        self.cleaning().has_records()
    }

    /// An old segment has something that is no record: it stays.
    pub(crate) fn give_up_cleaning(&self, damage: Damage) {
        self.cleaning().give_up(damage);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cleaning(&self) -> MutexGuard<'_, Cleaning> {
        self.cleaning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, if it is at least so urgent that it is written, and its segment is ready.
    pub(crate) fn take(&self, least: Urgency) -> Option<(Batch, u64)> {
        let mut plan = self.plan();
        let batch = plan.take(least)?;
        Some((batch, plan.oldest))
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether what stands at an address is with the operating system.
    pub(crate) fn is_readable(&self, at: u64) -> bool {
        at < self.readable.load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self, upto: u64, bytes: u64, readable: u64) {
        self.readable.store(readable, Ordering::Release);
        self.written.store(upto, Ordering::Release);
        self.position.fetch_add(bytes, Ordering::Relaxed);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes a batch with groups of this number of bytes from memory.
    pub(crate) fn note_done(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Release);
    }

    /// The bytes of the groups that were appended and still wait in memory to be written.
    pub(crate) fn pending_bytes(&self) -> u64 {
        // In this order: a batch is done behind its last group.
        let done = self.done_bytes.load(Ordering::Acquire);
        self.appended_bytes.load(Ordering::Relaxed).saturating_sub(done)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    pub(crate) fn set_durable(&self, upto: u64) {
        self.durable.store(upto, Ordering::SeqCst);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// How many groups were appended that are no copies.
    pub(crate) fn news(&self) -> u64 {
        self.counters.news.load(Ordering::Relaxed)
    }

    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    pub(crate) fn active(&self) -> u64 {
        self.active.load(Ordering::Acquire)
    }

    pub(crate) fn set_active(&self, segment: u64) {
        self.active.store(segment, Ordering::Release);
    }

    /// Wakes the thread of the preparer if what it waits for has come.
    pub(crate) fn prepare_if_due(&self) {
        let is_due = self.position() >= self.preparation.at_position.load(Ordering::Acquire)
            || self.durable() >= self.preparation.at_durable.load(Ordering::SeqCst);
        if is_due {
            self.prepare();
        }
    }

    /// Wakes the thread of the preparer.
    pub(crate) fn prepare(&self) {
        // It says when it wants to be woken next when it has looked.
        self.preparation.at_position.store(u64::MAX, Ordering::Release);
        self.preparation.at_durable.store(u64::MAX, Ordering::Release);
        *self.preparation.is_wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.preparation.wanted.notify_one();
    }

    /// Wakes the thread of the committer: a segment has become ready, or all is to be closed.
    pub(crate) fn wake_committer(&self) {
        drop(self.plan());
        self.commit.notify_all();
    }

    /// Waits until there is something to commit. `has_rest` says that something written is not durable yet, `has_told` that
    /// the caller knows of a failure.
    pub(crate) fn wait(&self, has_rest: bool, has_told: bool, is_closed: &AtomicBool) -> Call {
        let mut plan = self.plan();
        let mut rest_ends = None;
        loop {
            if plan.is_ready(Urgency::Written) && plan.failure.is_none() {
                return Call::Urgent;
            }
            if plan.failure.is_some() && !has_told {
                return Call::Failed;
            }
            let waits_for_segment = plan.has_pending() && !plan.is_ready(Urgency::Later);
            if is_closed.load(Ordering::Acquire) && (plan.failure.is_some() || !waits_for_segment) {
                return Call::Close;
            }
            if (has_rest || plan.is_ready(Urgency::Later)) && plan.failure.is_none() {
                let now = Instant::now();
                let ends = *rest_ends.get_or_insert(now + Duration::from_millis(REST_MS));
                if ends <= now {
                    return Call::Rest;
                }
                plan.waiter = Waiter::ForUrgent;
                plan = self.commit.wait_timeout(plan, ends - now).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                plan.waiter = Waiter::ForAny;
                plan = self.commit.wait(plan).unwrap_or_else(PoisonError::into_inner);
            }
            plan.waiter = Waiter::Nobody;
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
