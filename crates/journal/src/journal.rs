//! The log as the ledger sees it: records.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;

use ledger::{
    Address, Addressed, Fetched, Found, Keeper, Lsn, Needs, Progress, Record, RecordRoom, Recovered, Refusal,
    Source, Wanted,
};
use protocol::{Durability, Instruments};

use crate::ahead::{Batch, Frames};
use crate::fetcher::{Desk, Fetcher};
use crate::frame::HEADER_BYTES;
use crate::panel::Panel;
use crate::plan::place;
use crate::runner::{Runner, Wake};
use crate::segment::name;
use crate::{
    Committer, Damage, Fault, Log, OpenError, Parts, Preparer, RecordPurpose, Recovery, Report, Settings,
    Status, Storage, Urgency,
};
use record::{DecodeError, Decoded, Decoder, Records, encode_group};

/// Keeps the records of a ledger in a directory. When it is dropped, what was committed is written and synced.
#[derive(Debug)]
pub struct Journal {
    log: Arc<Log>,
    durability: Durability,
    /// The bytes of the group that was appended last.
    scratch: Vec<u8>,
    /// For records that are copied.
    old: Decoder,
    /// Place of the group that was appended last, and length of its first record.
    last: Option<(u64, usize)>,
    turn: Turn,
    fetching: Fetching,
    runner: Option<Runner>,
}

/// Messages on their way back from the disk.
#[derive(Default)]
struct Fetching {
    /// Requests that wait for their own record to be written.
    unwritten: Vec<Wanted>,
    /// Requests that wait for the end of the turn.
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
    /// The thread is not woken, so that it takes all of a turn in one frame. It waits if `has_waiter` is set.
    Under {
        has_waiter: bool,
    },
}

/// A journal that is being read: its records, which are whole groups in their order, and then [`start`](Self::start). They
/// end early where something is damaged: `start` says what. Of bodies that nobody wants only the checksum is looked at.
pub struct Opening {
    frames: Frames,
    settings: Settings,
    decoder: Decoder,
    batch: Batch,
    place: Place,
    error: Option<OpenError>,
}

/// The next record to decode.
#[derive(Default)]
struct Place {
    /// Number of the frame in the batch.
    frame: usize,
    /// Offset in this frame.
    offset: usize,
    /// The record is in a group that has begun before it.
    is_inside: bool,
}

/// Opens the journal in a directory, or a new one. Nothing is changed before [`Opening::start`].
///
/// # Errors
/// What can be seen without reading records: a missing file, a newer version, another journal's file; and whatever the
/// file system says.
pub fn open(storage: Arc<dyn Storage>, settings: Settings) -> Result<Opening, OpenError> {
    settings.check()?;
    let frames = Frames::Here(Recovery::begin(storage)?);
    let (decoder, batch, place) = (Decoder::default(), Batch::default(), Place::default());
    Ok(Opening { frames, settings, decoder, batch, place, error: None })
}

impl Opening {
    /// Reads files on a thread of its own from now on, ahead of who takes the records; but not on a machine with a single
    /// processor.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn ahead(self) -> Result<Self, OpenError> {
        if thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
            return Ok(self);
        }
        Ok(Self { frames: self.frames.ahead().map_err(OpenError::directory)?, ..self })
    }

    /// All records that were not read yet, with the bodies of their messages.
    pub fn records(&mut self) -> impl Iterator<Item = Addressed<'static>> {
        std::iter::from_fn(|| match self.next_record(true)? {
            Recovered::Whole(record) => Some(record),
            Recovered::Away(..) => unreachable!("bodies are wanted"),
        })
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
        self.look_at_rest()?;
        let durability = self.settings.durability;
        let Parts { log, committer, preparer, report } = self.frames.end().finish(self.settings)?;
        let (scratch, old, fetching) = (Vec::new(), Decoder::default(), Fetching::default());
        let (last, turn, runner) = (None, Turn::None, None);
        let journal = Journal { log, durability, scratch, old, last, turn, fetching, runner };
        Ok((journal, committer, preparer, report))
    }

    /// Reads the rest, and returns the report.
    pub(crate) fn into_report(mut self) -> Result<Report, OpenError> {
        self.look_at_rest()?;
        Ok(self.frames.end().report().clone())
    }

    /// Reads the records that nobody has requested, to find damage.
    fn look_at_rest(&mut self) -> Result<(), OpenError> {
        self.records().for_each(drop);
        self.error.take().map_or(Ok(()), Err)
    }

    fn read(&mut self, wants_bodies: bool) -> Result<Option<Recovered<'static>>, OpenError> {
        while !self.is_in_frame()? {
            self.place = Place::default();
            if !self.frames.next(&mut self.batch)? {
                return Ok(None);
            }
        }
        let Self { batch, place, decoder, .. } = self;
        let Some((at, frame)) = batch.frame(place.frame) else { return Ok(None) };
        let mut records = decoder.records_from(frame, place.offset);
        let decoded = decode(&mut records, wants_bodies, |upto| {
            address_of(at + place.offset as u64, &frame[place.offset..upto])
        });
        let (record, is_last) = decoded.map_err(|what| damage(at, what.to_string()))?;
        (place.offset, place.is_inside) = (records.offset(), !is_last);
        Ok(Some(record))
    }

    /// Whether there is a record at its place in the batch. Goes on to the next frame at the end of one.
    #[inline]
    fn is_in_frame(&mut self) -> Result<bool, OpenError> {
        while let Some((at, frame)) = self.batch.frame(self.place.frame) {
            if self.place.offset < frame.len() {
                return Ok(true);
            }
            if self.place.is_inside {
                return Err(damage(at, "a group without its end".to_owned()));
            }
            self.place = Place { frame: self.place.frame + 1, ..Place::default() };
        }
        Ok(false)
    }
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}

impl Source<'static> for Opening {
    #[inline]
    fn next_record(&mut self, wants_bodies: bool) -> Option<Recovered<'static>> {
        if self.error.is_some() {
            return None;
        }
        self.read(wants_bodies).unwrap_or_else(|error| {
            self.error = Some(error);
            None
        })
    }
}

/// The next record, and whether its group ends with it. `address` is asked where one stands that ends at this offset.
#[inline]
fn decode(
    records: &mut Records<'_>,
    wants_bodies: bool,
    address: impl Fn(usize) -> Address,
) -> Result<(Recovered<'static>, bool), Box<DecodeError>> {
    if !wants_bodies && let Some((away, is_last)) = records.next_away()? {
        return Ok((Recovered::Away(away, address(records.offset())), is_last));
    }
    let Decoded { record, is_last } = records.next_record()?;
    let record = record.expect("none is left out");
    let has_message = matches!(record, Record::Enqueue { .. });
    let address = has_message.then(|| address(records.offset()));
    Ok((Recovered::Whole(Addressed { record, address }), is_last))
}

/// Damage in the records of a frame, the first of which is at `at`.
fn damage(at: u64, what: String) -> OpenError {
    let (segment, offset) = place(at);
    Damage::at(name(segment), u64::from(offset - HEADER_BYTES), Fault::Record(what)).into()
}

impl Journal {
    /// Returns the state of the log.
    #[must_use]
    pub fn status(&self) -> Status {
        self.log.status()
    }

    /// The log below it, which can be asked how it is from any thread.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Sets the size of the ledger's live records, in bytes: see [`Log::set_live_bytes`].
    pub fn set_live_bytes(&self, bytes: u64) {
        self.log.set_live_bytes(bytes);
    }

    fn append(
        &mut self,
        group: &[Record<'_>],
        purpose: RecordPurpose,
        urgency: Urgency,
    ) -> Result<Lsn, Refusal> {
        if self.scratch.capacity() > SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        self.scratch.clear();
        let first_bytes = encode_group(group, &mut self.scratch);
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

    /// Hands on the requests that can be read by now. A record that was not written when writing failed can never be
    /// read: requests for it take the place of others.
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

/// Address of a record with these bytes, at `at`.
fn address_of(at: u64, record: &[u8]) -> Address {
    Address {
        at: NonZeroU64::new(at).expect("segments are counted from 1"),
        bytes: u32::try_from(record.len()).expect("a segment is shorter than 4 GiB"),
        checksum: crc32c::crc32c(record),
    }
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
        self.append(group, RecordPurpose::Copy, Urgency::Later)
    }

    fn raise_durability(&mut self, durability: Durability) {
        self.durability = self.durability.max(durability);
        self.log.note_durability(self.durability);
    }

    fn room(&self) -> RecordRoom {
        self.log.room()
    }

    fn group_bytes_max(&self) -> usize {
        self.log.settings.group_bytes_max() as usize
    }

    fn address(&mut self) -> Option<Address> {
        let (at, bytes) = self.last?;
        Some(address_of(at, self.scratch.get(..bytes)?))
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

    fn has_fetched(&self) -> bool {
        let Fetching { unwritten, wanted, fetched, .. } = &self.fetching;
        let is_readable = |wanted: &Wanted| self.log.is_readable(wanted.address.at.get());
        // Without threads it is read when it is asked for.
        let reads = || self.runner.is_none() && (!wanted.is_empty() || unwritten.iter().any(is_readable));
        !fetched.is_empty() || reads()
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
        let needed: Result<Vec<_>, _> = self.old.needed(&frame, needs).collect();
        match needed {
            Ok(needed) => Some(needed.into_iter().filter_map(|decoded| decoded.record).collect()),
            Err(what) => {
                let damage = Damage::at("an old segment", 0, Fault::Record(what.to_string()));
                self.log.give_up_cleaning(damage);
                None
            }
        }
    }

    fn instruments(&self) -> Option<Arc<dyn Instruments>> {
        Some(Arc::new(Panel::new(self.log.clone())))
    }

    fn set_live_bytes(&mut self, bytes: usize) {
        self.log.set_live_bytes(bytes as u64);
    }

    fn pending_bytes(&self) -> usize {
        usize::try_from(self.log.pending_bytes()).unwrap_or(usize::MAX)
    }
}

/// A client that comes back to its session, or ends it and begins another, is not news: so what fills the disk may go.
fn purpose_of(group: &[Record<'_>]) -> RecordPurpose {
    let ends_another = group.iter().any(|record| matches!(record, Record::Ended { .. }));
    let is_return = |record: &Record<'_>| match record {
        Record::Connected { .. } => true,
        Record::Session { .. } => ends_another,
        other => other.frees_space(),
    };
    if group.iter().all(Record::frees_space) {
        RecordPurpose::FreesSpace
    } else if group.iter().all(is_return) {
        RecordPurpose::Return
    } else {
        RecordPurpose::News
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
