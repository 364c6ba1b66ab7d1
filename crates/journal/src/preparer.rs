//! Seeing to the space: segments that are ready before they are needed, and old ones used again.
//!
//! # Why a log of which at most half of the limit is live gets shorter
//! Old segments are cleaned from the oldest on: what is still live is copied behind everything else, and the whole segment
//! comes back. One round through a log copies what is live once and gives back everything else. So a log gets shorter as
//! long as each step of the round can be made. A step needs space for the copies of one segment, and
//! [`Plan`](crate::plan::Plan) sees to it that this space is there:
//!
//! - News begin another segment only if the spares behind it have room for the copies of the oldest one: for all of it, or
//!   for all that is live, whichever is less. Near the limit they leave this room and half a segment.
//! - Groups that free space, and clients that come back, leave this room too, and some pages ([`RecordRoom`](ledger::RecordRoom)).
//!   When these are used up, whoever appends waits, and the oldest segment is cleaned whatever it costs. Groups that
//!   come all the same are held in memory and written with the next copies, in the same pages.
//! - A step takes at most about as much as the segment gives back, which is ready again before the next step.
//! - News are refused when 5/8 of the limit are live. A round gives back 3/8 of the limit at least, less the reserve.
//! - Segments are at most 1/16 of the limit long, unless the shortest are longer. The reserve is then a small part of the
//!   limit. So is the space that is lost at the end of a segment because the next record is too long for it.
//!
//! # Why the journal does not fail while the disk has space
//! It fails for want of space only when what frees space cannot be held any longer, or nothing can give it a place. While
//! there is less than two shares beside the reserve, one of these is so:
//!
//! - The oldest segment is being cleaned, and each copy finds a place. Then the segment comes back.
//! - A copy finds no place: records do not go into segments without gaps, a copy may be longer than what was copied, or a
//!   restart has interrupted other copies. Then [`is_last_resort`](Preparer::is_last_resort) allows a segment beyond the
//!   limit, long enough for the rest.
//! - Groups are held, and no copy follows that would find no place: nothing of the segment is needed, or its next piece
//!   is copied when the last one is durable, and what is held with it. Then a segment beyond the limit is allowed as
//!   well, whether there is a spare or not ([`waits_for_held`](Preparer::waits_for_held)).
//! - Groups are held, and less than the reserve is left, because the limit was lowered or the disk is full. Copies come behind
//!   what is held, so they would wait for ever. What is held therefore gets a place if the copies will probably fit all the
//!   same ([`Plan::copies_fit`](crate::plan::Plan::copies_fit)), as they had to when the cleaning began.
//! - Nothing can be cleaned: all of it was copied since the last news, or the reserve is gone, which an older version
//!   has used up. Then a segment beyond the limit is allowed too. It is filled with ends of something, which are never
//!   copied: so the round after that gives at least as much back.
//! - The ledger does not copy yet, because sessions of the last process are not settled. It settles them first
//!   ([`Turnover`](ledger::Turnover)), a piece at a time, and each piece is smaller than what may be held.
//! - An old segment is damaged, or the file system gives no space. Then the disk has failed.
//!
//! # Why three segments beyond the limit are enough
//! A segment beyond the limit is made only when nothing else gives space, and it is given back when there is enough
//! without it. Until then no news are taken: only copies, records that free space, and clients that come back are
//! appended. The live records do not grow, but for the wills of clients that come back. Each of the following needs at
//! most one segment ([`SEGMENTS_BEYOND_LIMIT`]):
//!
//! - **Copies.** The copies of one segment begin at most one other segment of the same length. When one of them does not fit
//!   into the segment that is written to, all that are left fit into the next: they had one segment together before. The
//!   cleaned segment then comes back. Only the very last spare is shorter, by the two pages for frames without records. If
//!   there are two spares before a segment is cleaned, there are two afterwards; with one segment more there are two.
//! - **Records that free space.** They may take the second spare, if there is enough room without it. Those that wait in
//!   memory, at most 1 MiB, get one segment that is long enough for all of them and for the copies of the oldest
//!   ([`bytes_lacking`](Preparer::bytes_lacking)). They are never copied: the round after that gives all of it back.
//! - **Copies that take more than what was copied.** A group has at most an eighth of a segment more, which tells how
//!   messages have left their queues. A group that is written in a frame of its own takes whole pages. A long segment
//!   needs several short ones, after an operator has lowered their length.
//!
//! When all three are there and another one is wanted, the journal does what it does if the file system refuses a segment. A
//! simulated disk of few segments has not brought a journal there. They are counted from what all segments took at the start:
//! a limit that was lowered by three segments would otherwise leave none for what is needed now.
//!
//! Cleaning begins before the space for new segments is used up. A log that takes more than it may, because an operator has
//! lowered the limit, gives each cleaned segment back, and new ones take at most as much as was given back: it never grows,
//! but for the last resort.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::frame::{FrameReader, Kind};
use crate::plan::{Occasion, Plan};
use crate::segment::{BYTES_MOST, FIRST_FRAME, Filling, Segment, name, room_of};
use crate::{Damage, Fault, Log, RecordPurpose, Urgency};

/// Number of segments that are ready beside the one that is written to: one for news, and the last for copies and for
/// records that free space.
const SPARES: usize = 2;
/// Number of segments more than twice the live bytes that are not cleaned, because most of their records will be over
/// soon.
const SLACK_SEGMENTS: u64 = 6;
/// The same while little is committed. Records then stay for a long time, and copies are not urgent.
const SLACK_SEGMENTS_SLOW: u64 = 2;

/// With space for fewer segments than this, old ones are cleaned before it is used.
const SEGMENTS_AHEAD: u64 = 3;

/// The most segments that the last resort makes beyond the limit, until some of them are given back: one for copies, one for
/// what frees space, and one for copies that take more than what was copied. See above for why no more are needed.
pub const SEGMENTS_BEYOND_LIMIT: u64 = 3;

/// Makes segments ready, and gives those a new number in which nothing is needed any more; reads the oldest one for the
/// ledger when its space is wanted.
#[derive(Debug)]
pub struct Preparer {
    log: Arc<Log>,
    /// The number after the last segment.
    next_number: u64,
    /// Bytes of all segments together.
    disk_bytes: u64,
    /// Bytes that were given back while all segments took more than they may. New segments may take as many bytes
    /// again: the log can be copied into shorter ones, and never grows.
    given_back: u64,
    /// The most that all segments may take without the last resort, in bytes: the limit; or what the log takes, as long
    /// as it is shrinking because an operator has lowered the limit.
    allowed_bytes: u64,
    /// The least that all segments took since the start, in bytes. The last resort of this process counts from there, however
    /// much another process has left: the limit may have been lowered by as much.
    least_bytes: u64,
    /// Segments that are being filled, in order; the space of all but the last is reserved.
    filling: VecDeque<Filling>,
    reading: Option<Reading>,
    /// Segments that nothing is needed of, in order, each with the group behind which no frame says that it is.
    released: VecDeque<(Arc<Segment>, u64)>,
}

/// A segment that is being read again.
struct Reading {
    segment: Arc<Segment>,
    offset: u32,
    reader: FrameReader,
}

/// Whether others use the disk too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// No more is done than what is needed soon.
    Busy,
    /// Little was committed for a while: an old segment is cleaned sooner, so that the log of a burst gets shorter.
    Slow,
    /// Nothing was committed for a while: what has little in it is cleaned, so that its space comes back.
    Idle,
}

impl Pace {
    /// The pace after a wait. `is_late`: there was nothing to prepare until the wait ended. `has_news`: something was
    /// committed besides copies.
    ///
    /// Copies are written too, so an idle disk stays idle until there is news. A slow one cleans one segment after each
    /// wait.
    pub(crate) fn next(self, is_late: bool, has_news: bool) -> Self {
        match (is_late, has_news) {
            (true, true) => Self::Slow,
            (true, false) => Self::Idle,
            (false, false) if self == Self::Idle => Self::Idle,
            (false, _) => Self::Busy,
        }
    }
}

impl Preparer {
    pub(crate) fn new(
        log: Arc<Log>,
        next_number: u64,
        disk_bytes: u64,
        released: VecDeque<Arc<Segment>>,
    ) -> Self {
        let released = released.into_iter().map(|segment| (segment, 0)).collect();
        // A little over the limit was made by the last resort of another process; more was allowed then.
        let settings = &log.settings;
        let limit_bytes = settings.disk_bytes_max;
        let segment_bytes = u64::from(settings.segment_bytes(u64::MAX));
        let is_lowered = disk_bytes > limit_bytes.saturating_add(SEGMENTS_BEYOND_LIMIT * segment_bytes);
        let allowed_bytes = if is_lowered { disk_bytes } else { limit_bytes };
        let mut preparer = Self {
            log,
            next_number,
            disk_bytes,
            given_back: 0,
            allowed_bytes,
            least_bytes: disk_bytes,
            filling: VecDeque::new(),
            reading: None,
            released,
        };
        // The first group that is appended has to know whether there is little space.
        preparer.look_at_limit();
        preparer
    }

    /// The log that it prepares for.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Does one piece of what there is to do: about a megabyte at the most. Returns whether there was anything.
    pub fn prepare_once(&mut self, pace: Pace) -> bool {
        if self.log.has_failed() {
            return false;
        }
        self.look_at_limit();
        self.put_held();
        self.release_copied()
            || self.use_again()
            || self.drop_spare()
            || self.reserve_more()
            || self.fill()
            || self.clean(pace)
            || self.begin_spare()
    }

    /// The oldest segment is not needed any more, once everything of it that is still true was copied and is durable.
    fn release_copied(&mut self) -> bool {
        let mut cleaning = self.log.cleaning();
        let Some(copied) = cleaning.copied() else { return false };
        if self.log.durable() < copied {
            self.wake_when_durable(copied);
            return false;
        }
        cleaning.forget();
        drop(cleaning);
        let mut plan = self.log.plan();
        let Some(segment) = plan.sealed.pop_front() else { return false };
        plan.oldest = segment.number + 1;
        plan.copied_bytes = 0;
        plan.log_bytes -= u64::from(segment.bytes);
        drop(plan);
        // Its file stays as it is until a frame on stable storage says that it is not needed.
        let marked = self.log.append(&[], RecordPurpose::Copy, Urgency::Durable);
        // Without space for a frame of its own the next one says so.
        let at = marked.map_or_else(|_| self.log.plan().appended + 1, |lsn| lsn.0);
        self.released.push_back((segment, at));
        true
    }

    /// Gives the first of what was released a new number, or back to the file system.
    fn use_again(&mut self) -> bool {
        let Some((segment, at)) = self.released.front() else { return false };
        if self.log.durable() < *at {
            self.wake_when_durable(*at);
            return false;
        }
        let segment = segment.clone();
        self.released.pop_front();
        // A segment of the last resort is given back when there is enough without it.
        let may_keep = !self.is_over_limit() || self.log.plan().is_short();
        let is_wanted = self.may_begin() && self.needs_spare() && may_keep;
        let bytes = self.bytes_wanted();
        let least = self.log.settings.segment_bytes_min.max(bytes / 2);
        let done = if is_wanted && (least..=bytes.saturating_mul(2)).contains(&segment.bytes) {
            self.rename(&segment)
        } else {
            if self.is_over_limit() {
                self.given_back += u64::from(segment.bytes);
            }
            self.disk_bytes -= u64::from(segment.bytes);
            self.remove(segment.number)
        };
        if let Err(error) = done {
            self.log.fail(&error);
        }
        true
    }

    fn rename(&mut self, old: &Segment) -> io::Result<()> {
        let number = self.next_number;
        self.log.storage.rename(&name(old.number), &name(number))?;
        self.log.storage.sync()?;
        let segment = Segment::new(number, old.bytes, old.file.clone(), false);
        segment.begin(self.log.salt)?;
        self.next_number += 1;
        self.log.plan().add_spare(Arc::new(segment), &self.log.settings);
        // Something may have waited for it.
        self.log.wake_committer();
        self.log.counters.recycled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.log.storage.remove(&name(number))?;
        self.log.storage.sync()
    }

    /// Removes the last spare, if there are more than are needed and the segments take more than they may.
    fn drop_spare(&mut self) -> bool {
        let mut plan = self.log.plan();
        if !self.is_over_limit() || !self.filling.is_empty() || plan.spares.len() <= SPARES {
            return false;
        }
        let Some(last) = plan.spares.pop_back() else { return false };
        if !plan.has_reserve() {
            plan.spares.push_back(last);
            return false;
        }
        drop(plan);
        self.disk_bytes -= u64::from(last.bytes);
        self.next_number = last.number;
        if let Err(error) = self.remove(last.number) {
            self.log.fail(&error);
        }
        true
    }

    /// Fills the next piece of a new segment, at the pace at which the one that is written to fills; as fast as possible
    /// if it is waited for.
    fn fill(&mut self) -> bool {
        let Some(filling) = self.filling.front_mut() else { return false };
        if !is_due(filling, &self.log) {
            return false;
        }
        match filling.fill_some(self.log.salt) {
            Ok(false) => {}
            Ok(true) => {
                let Some(Filling { segment, is_reserved, .. }) = self.filling.pop_front() else {
                    return true;
                };
                if !is_reserved {
                    self.log.plan().add_spare(segment, &self.log.settings);
                }
                self.log.wake_committer();
            }
            Err(error) => {
                while let Some(filling) = self.filling.pop_back() {
                    self.give_up_filling(&filling, &error);
                }
            }
        }
        true
    }

    /// A segment that could not be filled is no spare. If a batch was to be written to it already, the batch is lost.
    fn give_up_filling(&mut self, filling: &Filling, error: &io::Error) {
        let Filling { segment, is_reserved, .. } = filling;
        let may_go_on = self.may_go_on();
        let mut plan = self.log.plan();
        if *is_reserved && plan.spares.pop_back_if(|last| last.number == segment.number).is_none() {
            drop(plan);
            return self.log.fail(error);
        }
        self.log.run_out_of_space(plan, error, may_go_on);
        self.next_number = segment.number;
        self.disk_bytes -= u64::from(segment.bytes);
        if let Err(error) = self.remove(segment.number) {
            self.log.fail(&error);
        }
    }

    /// Whether the next number is that of the last spare.
    fn may_begin(&self) -> bool {
        self.filling.back().is_none_or(|last| last.is_reserved)
    }

    /// Reserves another segment if batches come faster than segments are filled. Batches wait for the segments, and are
    /// not refused as long as there is space.
    fn reserve_more(&mut self) -> bool {
        !self.filling.is_empty() && self.begin_spare()
    }

    /// Groups that have waited for a place get one, if there is any by now.
    fn put_held(&self) {
        let occasion = if self.waits_for_held() { Occasion::Copies } else { Occasion::Space };
        let mut plan = self.log.plan();
        if plan.has_held() {
            plan.put_held(occasion, &self.log.settings);
            drop(plan);
            self.log.wake_committer();
        }
    }

    /// Begins another segment if there are too few.
    fn begin_spare(&mut self) -> bool {
        // Asked before the plan is held: who holds the cleaning may ask for the plan.
        let is_cleaning = self.is_cleaning();
        let has_enough = !self.may_begin() || !self.needs_spare();
        let waits_for_held = self.waits_for_held();
        let plan = self.log.plan();
        // An old segment that is ready soon is better than a new one.
        let is_ready_soon = is_cleaning && !waits_for_held;
        let may_wait = !plan.spares.is_empty() && is_ready_soon && !self.is_half_full(&plan);
        drop(plan);
        if has_enough || may_wait {
            return false;
        }
        match self.spare() {
            Ok(filling) => {
                let bytes = u64::from(filling.segment.bytes);
                self.disk_bytes += bytes;
                let mut plan = self.log.plan();
                plan.is_beyond_limit = self.disk_bytes > self.allowed_bytes;
                if filling.is_reserved {
                    plan.add_spare(filling.segment.clone(), &self.log.settings);
                }
                plan.has_space_again();
                drop(plan);
                // Something may have waited for it, and have its place in the segment before.
                self.log.wake_committer();
                self.next_number += 1;
                self.given_back = self.given_back.saturating_sub(bytes);
                self.filling.push_back(filling);
                true
            }
            Err(error) => {
                let may_go_on = self.may_go_on();
                self.log.run_out_of_space(self.log.plan(), &error, may_go_on);
                false
            }
        }
    }

    fn spare(&self) -> io::Result<Filling> {
        let wanted = self.bytes_wanted();
        let within = |wanted, room| self.log.settings.segment_bytes_within(wanted, room);
        let mut bytes = within(wanted, self.room()?);
        if bytes.is_none() && self.is_last_resort() {
            let lacking = self.bytes_lacking(wanted);
            bytes = within(lacking, self.free_bytes()?).filter(|bytes| self.may_exceed_limit_by(*bytes));
            self.log.counters.beyond_limit.fetch_add(u64::from(bytes.is_some()), Ordering::Relaxed);
        }
        let bytes = bytes.ok_or(io::ErrorKind::StorageFull)?;
        Filling::begin(&*self.log.storage, self.next_number, bytes)
    }

    /// Returns the length of a segment after which no space is lacking, if the next one would have the length `wanted`.
    fn bytes_lacking(&self, wanted: u32) -> u32 {
        let lacking = self.log.plan().lacking_bytes();
        let mut bytes = wanted;
        while u64::from(room_of(bytes)) < lacking && bytes < BYTES_MOST {
            bytes = bytes.saturating_mul(2).min(BYTES_MOST);
        }
        bytes
    }

    /// Returns the bytes that new segments may take.
    fn room(&self) -> io::Result<u64> {
        let allowed = self.log.settings.disk_bytes_max.saturating_sub(self.disk_bytes);
        Ok(self.free_bytes()?.min(allowed.max(self.given_back)))
    }

    /// Bytes that the file system still gives.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.log.storage.free_bytes()?.saturating_sub(self.log.settings.free_bytes_min))
    }

    /// Whether the last resort has not made all the segments that it may.
    fn may_exceed_limit_by(&self, segment_bytes: u32) -> bool {
        let beyond_bytes = self.disk_bytes.saturating_sub(self.allowed_bytes.max(self.least_bytes));
        // The others may be longer, if an operator has lowered the least length.
        let plan = self.log.plan();
        let segments = plan.sealed.iter().chain([&plan.segment]).chain(&plan.spares);
        let longest = segments.map(|segment| segment.bytes).fold(segment_bytes, u32::max);
        beyond_bytes + u64::from(segment_bytes) <= SEGMENTS_BEYOND_LIMIT * u64::from(longest)
    }

    /// Whether one segment may be made beyond the limit, because without it there would never be space again. A copy of the
    /// oldest segment has found none: records do not go into segments without gaps. Or records that free space have none, and
    /// no old segment can be cleaned, or the one that is being cleaned waits for them.
    fn is_last_resort(&self) -> bool {
        let is_stalled = self.log.cleaning().is_stalled();
        let waits_for_held = self.waits_for_held();
        let is_stuck = !self.may_go_on();
        let plan = self.log.plan();
        is_stalled && plan.spares.is_empty() || waits_for_held || is_stuck && plan.is_short()
    }

    /// Whether the oldest segment does not come back before records that free space are durable, and nothing gives these a
    /// place: no copy follows, or there is none for it either.
    fn waits_for_held(&self) -> bool {
        let durable = self.log.durable();
        let cleaning = self.log.cleaning();
        let is_behind = cleaning.waits_for().is_some_and(|group| group > durable);
        let is_waiting = cleaning.is_stalled() || is_behind || !self.released.is_empty();
        drop(cleaning);
        let plan = self.log.plan();
        // Otherwise something will be durable soon, and may give it its place.
        is_waiting && plan.has_held() && durable >= plan.placed()
    }

    /// Whether an old segment is on its way back, or will be.
    fn may_go_on(&self) -> bool {
        let is_damaged = self.log.cleaning().damage.is_some();
        // Before anybody has said what is live, nothing is cleaned.
        let is_unknown = self.log.live_bytes() == u64::MAX;
        let is_cleaning = self.is_cleaning();
        let is_stalled = self.log.cleaning().is_stalled();
        let plan = self.log.plan();
        // A copy that has found no place finds one only in a spare, and not before what is held.
        let is_stuck = is_stalled && (plan.spares.is_empty() || plan.has_held());
        is_cleaning || is_unknown || !is_damaged && !is_stuck && self.may_clean(&plan, Pace::Busy)
    }

    fn is_over_limit(&self) -> bool {
        self.disk_bytes > self.log.settings.disk_bytes_max
    }

    /// Whether there are too few spares: news need one, and behind it there has to be space for copies of the oldest
    /// segment.
    fn needs_spare(&self) -> bool {
        let plan = self.log.plan();
        plan.spares.len() < SPARES || !plan.has_reserve()
    }

    fn bytes_wanted(&self) -> u32 {
        let plan = self.log.plan();
        self.log.settings.segment_bytes_for(plan.log_bytes, plan.copy_bytes)
    }

    fn is_cleaning(&self) -> bool {
        let cleaning = self.log.cleaning();
        !self.released.is_empty() || !(cleaning.is_idle() || cleaning.is_stalled())
    }

    /// The segment that is written to.
    fn is_half_full(&self, plan: &Plan) -> bool {
        plan.offset() > plan.segment.bytes / 2
    }

    /// Reads the next frame of the oldest segment, if its space is wanted.
    fn clean(&mut self, pace: Pace) -> bool {
        if self.log.cleaning().is_idle() {
            self.reading = None;
        }
        let Some(reading) = &mut self.reading else { return self.begin_cleaning(pace) };
        if !self.log.cleaning().wants_frames() {
            return false;
        }
        let read = reading.next(self.log.salt);
        let mut cleaning = self.log.cleaning();
        if cleaning.is_idle() {
            // It was given up while the frame was read: the segment stays.
            self.reading = None;
            return true;
        }
        match read {
            Ok(Some(payload)) => cleaning.push(payload),
            Ok(None) => {
                cleaning.end();
                self.reading = None;
            }
            Err(damage) => {
                // The records in memory are right. The next start will find the damage.
                cleaning.give_up(damage);
                self.reading = None;
            }
        }
        true
    }

    fn begin_cleaning(&mut self, pace: Pace) -> bool {
        let cleaning = self.log.cleaning();
        if !cleaning.is_idle() || cleaning.damage.is_some() || !self.released.is_empty() {
            return false;
        }
        drop(cleaning);
        let mut plan = self.log.plan();
        let Some(segment) = plan.sealed.front().cloned() else { return false };
        // Frames may still have to be written to it.
        if segment.number >= self.log.active() || !self.may_clean(&plan, pace) {
            return false;
        }
        plan.copied_bytes = 0;
        drop(plan);
        self.log.cleaning().begin();
        self.reading = Some(Reading { segment, offset: FIRST_FRAME, reader: FrameReader::default() });
        true
    }

    /// Whether the oldest segment is to be cleaned and can be. There is no use in copying copies of what has not changed.
    fn may_clean(&self, plan: &Plan, pace: Pace) -> bool {
        plan.sealed.front().is_some_and(|oldest| {
            let is_worth_it = oldest.number <= plan.last_news + 2;
            is_worth_it && Self::has_room(plan) && self.is_wanted(plan, pace)
        })
    }

    /// Whether the copies of a segment will probably fit into what there is for them. They fit if all of it is live, or all
    /// that is live is in it; otherwise as much of it is taken to be live as of all.
    fn has_room(plan: &Plan) -> bool {
        if plan.copy_bytes > 0 && !plan.has_place_for_copy() {
            return false;
        }
        let room = plan.room_for_copies().saturating_sub(plan.held_bytes());
        let may_have_more = plan.spares.len() >= SPARES && !plan.is_near_limit;
        if may_have_more || room >= plan.reserve_bytes() {
            return true;
        }
        plan.copies_fit(room)
    }

    /// Whether more space is taken than what is live is worth.
    fn is_wanted(&self, plan: &Plan, pace: Pace) -> bool {
        let live = self.log.live_bytes();
        let bytes = self.log.settings.segment_bytes(plan.log_bytes);
        if plan.is_short() {
            // Whatever it costs.
            return true;
        }
        let is_short = plan.no_space.is_some() || plan.spares.is_empty();
        if is_short && plan.spares.len() < SPARES && plan.offset() > plan.segment.bytes / 4 {
            // The last one is needed soon: whatever it costs, there has to be another then.
            return true;
        }
        if is_short || pace == Pace::Idle || plan.is_near_limit {
            let sealed = plan.log_bytes - u64::from(plan.segment.bytes);
            return sealed > live.saturating_add(live / 4);
        }
        let slack = if pace == Pace::Slow { SLACK_SEGMENTS_SLOW } else { SLACK_SEGMENTS };
        plan.log_bytes > live.saturating_mul(2).saturating_add(slack * u64::from(bytes))
    }

    /// Whether there will soon be no space for another segment: then old ones are cleaned first, and news leave what the
    /// copies need.
    fn look_at_limit(&mut self) {
        let is_over_limit = self.is_over_limit();
        if !is_over_limit {
            self.given_back = 0;
        }
        // It never grows again.
        let shrunk_bytes = self.disk_bytes.saturating_add(self.given_back);
        self.allowed_bytes = self.allowed_bytes.min(shrunk_bytes.max(self.log.settings.disk_bytes_max));
        let wanted = SEGMENTS_AHEAD * u64::from(self.bytes_wanted());
        let room = self.room().unwrap_or(u64::MAX);
        let is_near_limit = is_over_limit || room < wanted;
        self.least_bytes = self.least_bytes.min(self.disk_bytes);
        let mut plan = self.log.plan();
        plan.limit_bytes = self.disk_bytes.saturating_add(room);
        plan.is_near_limit = is_near_limit;
        plan.is_beyond_limit = self.disk_bytes > self.allowed_bytes;
        plan.live_bytes = self.log.live_bytes();
    }

    fn wake_when_durable(&self, group: u64) {
        self.log.preparation.at_durable.fetch_min(group, Ordering::SeqCst);
    }

    /// Says when there may be something to do again that is not known to the thread's other callers.
    pub(crate) fn wake_when_written(&self) {
        let plan = self.log.plan();
        // A piece of a segment is due with each half of a piece written, and the rest when a segment is full.
        let is_filling = !self.filling.is_empty();
        let step = if is_filling { crate::segment::PIECE_BYTES / 2 } else { plan.segment.bytes / 4 };
        drop(plan);
        let at = self.log.position() + u64::from(step);
        self.log.preparation.at_position.store(at, Ordering::Release);
    }
}

/// At least twice as much of a new segment is filled as is used of the one that is written to; all of it as fast as
/// possible, if it is the last one or is written to already.
fn is_due(filling: &Filling, log: &Log) -> bool {
    let plan = log.plan();
    let is_urgent = !filling.is_reserved
        || plan.is_planned(filling.segment.number)
        || plan.spares.front().is_none_or(|first| first.number == filling.segment.number);
    let share = |part: u32, whole: u32| u64::from(part) * 1024 / u64::from(whole);
    let used = share(plan.offset(), plan.segment.bytes);
    is_urgent || share(filling.filled, filling.segment.bytes) < 2 * used
}

impl Reading {
    /// The records of the next frame; none at the end.
    fn next(&mut self, salt: u64) -> Result<Option<Vec<u8>>, Damage> {
        loop {
            let Segment { number, bytes, file, .. } = &*self.segment;
            let place = self.segment.place(salt, self.offset);
            let damage = |fault| Damage::at(name(*number), u64::from(place.offset), fault);
            let frame = self.reader.read(&**file, place, *bytes);
            let frame = frame.map_err(|error| damage(Fault::Record(error.to_string())))?;
            let (header, payload) = frame.ok_or_else(|| damage(Fault::Frame))?;
            self.offset += header.frame_bytes();
            match header.kind {
                Kind::Records if payload.is_empty() => {}
                Kind::Records => return Ok(Some(payload.to_vec())),
                Kind::End => return Ok(None),
                Kind::Discarded => {}
            }
        }
    }
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("segment", &self.segment).field("offset", &self.offset).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn a_disk_with_little_to_commit_is_slow_and_one_with_nothing_is_idle() {
        let from = |pace: Pace, waits: &[(bool, bool)]| {
            waits.iter().fold(pace, |pace, (is_late, has_news)| pace.next(*is_late, *has_news))
        };
        for pace in [Pace::Busy, Pace::Slow, Pace::Idle] {
            assert_eq!(from(pace, &[(true, true)]), Pace::Slow);
            assert_eq!(from(pace, &[(true, false)]), Pace::Idle);
            assert_eq!(from(pace, &[(false, true)]), Pace::Busy);
        }
        assert_eq!(from(Pace::Idle, &[(false, false), (false, false)]), Pace::Idle, "copies are no news");
        assert_eq!(from(Pace::Slow, &[(false, false)]), Pace::Busy);
    }
}
