//! The log as the ledger sees it: records.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use ledger::{
    Address, Addressed, Durability, Fetched, Found, Instruments, Keeper, Lsn, Needs, Progress, Record,
    Refusal, Wanted,
};

use crate::fetcher::{Desk, Fetcher};
use crate::panel::Panel;
use crate::record::{Decoder, Records, encode_group};
use crate::runner::{Runner, Wake};
use crate::{
    Committer, Damage, Fault, Log, OpenError, Parts, Preparer, Purpose, Recovery, Report, Settings, Status,
    Storage, Urgency,
};

/// Keeps the records of a ledger in a directory. When it is dropped, what was committed is written and synced.
#[derive(Debug)]
pub struct Journal {
    log: Arc<Log>,
    durability: Durability,
    /// The bytes of the group that was appended last.
    scratch: Vec<u8>,
    /// For records that are copied.
    old: Decoder,
    /// Of the group that was appended last: where it is, and how long its first record is.
    last: Option<(u64, usize)>,
    turn: Turn,
    fetching: Fetching,
    runner: Option<Runner>,
}

/// Messages on their way back from the disk.
#[derive(Default)]
struct Fetching {
    /// What waits for its own record to be written...
    unwritten: Vec<Wanted>,
    /// ... or for the end of the turn.
    wanted: Vec<Wanted>,
    under_way: usize,
    fetched: VecDeque<Fetched>,
    desk: Arc<Desk>,
}

impl std::fmt::Debug for Fetching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetching").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

/// Whether the thread that commits is woken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    None,
    /// It is not, so that it takes all of a turn in one frame; it waits if that is set.
    Under {
        has_waiter: bool,
    },
}

/// A journal that is being read: an iterator over its records, which are whole groups in their order, and then
/// [`start`](Self::start). It ends early where something is damaged: `start` says what.
pub struct Opening {
    recovery: Recovery,
    settings: Settings,
    decoder: Decoder,
    /// Of the frame that was read last.
    records: VecDeque<Addressed<'static>>,
    error: Option<OpenError>,
}

/// Opens the journal in a directory, or a new one. Nothing is changed before [`Opening::start`].
///
/// # Errors
/// What can be seen without reading records: a missing file, a newer version, another journal's file; and whatever the
/// file system says.
pub fn open(storage: Arc<dyn Storage>, settings: Settings) -> Result<Opening, OpenError> {
    settings.check()?;
    let recovery = Recovery::begin(storage)?;
    Ok(Opening { recovery, settings, decoder: Decoder::default(), records: VecDeque::new(), error: None })
}

impl Opening {
    /// What was read until now.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.recovery.report()
    }

    /// Goes on behind the records, on threads of its own. `wake` is called by them when there is progress, when space has
    /// come back, and when there is something for [`next_to_copy`](Keeper::next_to_copy).
    ///
    /// # Errors
    /// The journal is damaged, there is no space for a new one, or the file system has failed.
    pub fn start(self, wake: &Wake) -> Result<(Journal, Report), OpenError> {
        let (mut journal, committer, preparer, report) = self.finish()?;
        let desk = journal.fetching.desk.clone();
        let runner = Runner::start(committer, preparer, desk, wake).map_err(OpenError::directory)?;
        journal.runner = Some(runner);
        Ok((journal, report))
    }

    /// The same without threads: who calls it commits and prepares.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn finish(mut self) -> Result<(Journal, Committer, Preparer, Report), OpenError> {
        // What nobody has asked for is at least looked at.
        self.by_ref().for_each(drop);
        if let Some(error) = self.error {
            return Err(error);
        }
        let durability = self.settings.durability;
        let Parts { log, committer, preparer, report } = self.recovery.finish(self.settings)?;
        let (scratch, old, fetching) = (Vec::new(), Decoder::default(), Fetching::default());
        let (last, turn, runner) = (None, Turn::None, None);
        let journal = Journal { log, durability, scratch, old, last, turn, fetching, runner };
        Ok((journal, committer, preparer, report))
    }

    /// What was read; or what was damaged.
    pub(crate) fn into_report(self) -> Result<Report, OpenError> {
        let report = self.recovery.report().clone();
        self.error.map_or(Ok(report), Err)
    }

    /// Reads the next frame; false at the end.
    fn read(&mut self) -> Result<bool, OpenError> {
        let Some((at, frame)) = self.recovery.next_frame_at()? else { return Ok(false) };
        let records = &mut self.records;
        let decoded = decode(self.decoder.records(frame), |record, bytes| {
            let address = match record {
                Record::Enqueue { .. } => address_of(at + bytes.start as u64, &frame[bytes]),
                _ => None,
            };
            records.push_back(Addressed { record, address });
        });
        decoded.map(|()| true).map_err(|what| {
            let (file, offset) = self.recovery.place();
            Damage::at(file, offset, Fault::Record(what)).into()
        })
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}

impl Iterator for Opening {
    type Item = Addressed<'static>;

    fn next(&mut self) -> Option<Addressed<'static>> {
        while self.records.is_empty() && self.error.is_none() {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => self.error = Some(error),
            }
        }
        self.records.pop_front()
    }
}

/// The records of a frame, and where in it they stand; or what is wrong in it.
fn decode(
    mut records: Records<'_>,
    mut each: impl FnMut(Record<'static>, Range<usize>),
) -> Result<(), String> {
    let mut is_whole = true;
    let mut begins_at = 0;
    while let Some(decoded) = records.next() {
        let decoded = decoded.map_err(|error| error.to_string())?;
        let bytes = begins_at..records.offset();
        begins_at = bytes.end;
        is_whole = decoded.is_last;
        if let Some(record) = decoded.record {
            each(record, bytes);
        }
    }
    if is_whole { Ok(()) } else { Err("a group without its end".to_owned()) }
}

impl Journal {
    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.log.status()
    }

    /// The log below it, which can be asked how it is from any thread.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// What the ledger holds takes so much in the journal, in bytes: see [`Log::set_live_bytes`].
    pub fn set_live_bytes(&self, bytes: u64) {
        self.log.set_live_bytes(bytes);
    }

    fn append(&mut self, group: &[Record<'_>], purpose: Purpose, urgency: Urgency) -> Result<Lsn, Refusal> {
        let mut cuts = Vec::new();
        if self.scratch.capacity() > SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        self.scratch.clear();
        let first_bytes = encode_group(group, usize::MAX, &mut self.scratch, &mut cuts);
        let appended = self.log.append_quietly(&self.scratch, purpose, urgency);
        self.last = appended.as_ref().ok().map(|(appended, _)| (appended.at, first_bytes));
        let wakes = matches!(appended, Ok((_, true)));
        match &mut self.turn {
            Turn::Under { has_waiter } => *has_waiter |= wakes,
            Turn::None if wakes => self.log.wake_committer(),
            Turn::None => {}
        }
        appended.map(|(appended, _)| appended.lsn)
    }

    /// Without threads: whether [`next_fetched`](Keeper::next_fetched) has something.
    #[must_use]
    pub fn has_fetched(&self) -> bool {
        let Fetching { unwritten, wanted, fetched, .. } = &self.fetching;
        let is_readable = |wanted: &Wanted| self.log.is_readable(wanted.address.at.get());
        !(wanted.is_empty() && fetched.is_empty()) || unwritten.iter().any(is_readable)
    }

    /// Hands on what can be read by now. What was not written when writing failed never can: those who wait for it take
    /// the place of others who can be served.
    fn ask(&mut self) {
        // In this order: what is written before it fails is readable.
        let has_failed = self.log.has_failed();
        let Fetching { unwritten, wanted, fetched, desk, .. } = &mut self.fetching;
        wanted.extend(unwritten.extract_if(.., |wanted| self.log.is_readable(wanted.address.at.get())));
        if has_failed {
            fetched.extend(unwritten.drain(..).map(|wanted| Fetched { wanted, found: Found::Damaged }));
        }
        if !wanted.is_empty() && self.runner.is_some() {
            desk.ask(wanted);
        }
    }
}

/// Of these bytes, which stand there.
fn address_of(at: u64, record: &[u8]) -> Option<Address> {
    let (at, bytes) = (NonZeroU64::new(at)?, u32::try_from(record.len()).ok()?);
    Some(Address { at, bytes, checksum: crc32c::crc32c(record) })
}

/// More memory than most groups need is given back when the next is appended.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

impl Keeper for Journal {
    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        let purpose = purpose_of(group);
        let is_waited_for = group.iter().any(is_waited_for);
        let urgency = match self.durability {
            Durability::Fsync if is_waited_for => Urgency::Durable,
            Durability::Os if is_waited_for => Urgency::Written,
            _ => Urgency::Later,
        };
        self.append(group, purpose, urgency)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.append(group, Purpose::Copy, Urgency::Later)
    }

    fn address(&mut self) -> Option<Address> {
        let (at, bytes) = self.last?;
        address_of(at, self.scratch.get(..bytes)?)
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.fetching.under_way += 1;
        self.fetching.unwritten.push(wanted);
        if self.turn == Turn::None {
            self.ask();
        }
    }

    fn next_fetched(&mut self) -> Option<Fetched> {
        if self.fetching.under_way == 0 {
            return None;
        }
        if self.fetching.fetched.is_empty() {
            self.ask();
            let Fetching { wanted, fetched, desk, .. } = &mut self.fetching;
            match self.runner {
                Some(_) => desk.collect(fetched),
                // Without threads it is read here and now.
                None => Fetcher::new(self.log.clone())
                    .fetch(std::mem::take(wanted), |found| fetched.push_back(found)),
            }
        }
        let next = self.fetching.fetched.pop_front();
        self.fetching.under_way -= usize::from(next.is_some());
        next
    }

    fn begin_turn(&mut self) {
        if self.turn == Turn::None {
            self.turn = Turn::Under { has_waiter: false };
        }
    }

    fn end_turn(&mut self) {
        if std::mem::replace(&mut self.turn, Turn::None) == (Turn::Under { has_waiter: true }) {
            self.log.wake_committer();
        }
        self.ask();
    }

    fn progress(&self) -> Progress {
        self.log.progress()
    }

    fn next_to_copy(&mut self, needs: Needs<'_>) -> Option<Vec<Record<'static>>> {
        let frame = self.log.next_to_copy()?;
        let mut records = Vec::new();
        let decoded = decode(self.old.needed(&frame, needs), |record, _| records.push(record));
        if let Err(what) = decoded {
            let damage = Damage::at("an old segment", 0, Fault::Record(what));
            self.log.give_up_cleaning(damage);
            return None;
        }
        Some(records)
    }

    fn instruments(&self) -> Option<Arc<dyn Instruments>> {
        Some(Arc::new(Panel::new(self.log.clone())))
    }

    fn set_live_bytes(&mut self, bytes: usize) {
        self.log.set_live_bytes(bytes as u64);
    }
}

/// A client that comes back to its session, or ends it and begins another, is not news: so what fills the disk may go.
fn purpose_of(group: &[Record<'_>]) -> Purpose {
    let ends_another = group.iter().any(|record| matches!(record, Record::Ended { .. }));
    let is_return = |record: &Record<'_>| match record {
        Record::Connected { .. } => true,
        Record::Session { .. } => ends_another,
        other => other.frees_space(),
    };
    if group.iter().all(Record::frees_space) {
        Purpose::FreesSpace
    } else if group.iter().all(is_return) {
        Purpose::Return
    } else {
        Purpose::News
    }
}

/// Whether somebody may wait for this record: not where a subscriber has acknowledged, or something is only tidied up.
/// After a crash the same is done once more.
fn is_waited_for(record: &Record<'_>) -> bool {
    !matches!(
        record,
        Record::Finished { .. }
            | Record::Removed { .. }
            | Record::CursorMoved { .. }
            | Record::CursorDone { .. }
            | Record::WillDone { .. }
            | Record::GroupEnded { .. }
    )
}
