//! Groups that are appended and not yet written, and their places in the log.
//!
//! A batch has its place as soon as it has its first group, and its place is in a segment whose space is there. When a
//! group is appended, it is therefore known whether it can be written, and a promise to write it is always kept.

use std::collections::VecDeque;
use std::sync::Arc;

use ledger::{Lsn, RecordRoom, Refusal};

use crate::frame::{HEADER_BYTES, PAGE_BYTES, padded};
use crate::segment::{FIRST_FRAME, Segment};
use crate::{RecordPurpose, Settings, Urgency};

/// A buffer that has grown past this is given back to the allocator.
const BUFFER_BYTES_MAX: usize = 2 << 20;
const BUFFERS_MAX: usize = 4;
/// Pages of the last space for frames without records that say which segment is the oldest that is needed.
const MARK_PAGES: u32 = 2;
/// News are refused when what is live takes this part of the space.
const LIVE_EIGHTHS: (u64, u64) = (5, 8);
/// A share of the space beside the needs of copies: this part of a segment, and at least this number of pages.
const SHARE_PART: u32 = 16;
const SHARE_PAGES: u32 = 1;

/// Groups that are written as one frame.
pub(crate) struct Batch {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u32,
    /// A place for the frame's header, and the groups.
    pub(crate) bytes: Vec<u8>,
    /// The position of its last group.
    pub(crate) last: u64,
    pub(crate) urgency: Urgency,
}

/// Position and place of a group.
pub(crate) struct Appended {
    pub(crate) lsn: Lsn,
    pub(crate) at: u64,
}

/// A place in the log, in a way that it grows from one group to the next.
pub(crate) fn address(segment: u64, offset: u32) -> u64 {
    segment << 32 | u64::from(offset)
}

/// Splits an [`address`] into the segment and the offset.
pub(crate) fn place(at: u64) -> (u64, u32) {
    let segment = at >> 32;
    (segment, u32::try_from(at - address(segment, 0)).unwrap_or_default())
}

/// State that appending, writing and preparing threads share.
pub(crate) struct Plan {
    /// Batches that take no more groups, in order.
    closed: VecDeque<Batch>,
    /// The one behind them.
    open: Option<Batch>,
    /// Segment of the next batch.
    pub(crate) segment: Arc<Segment>,
    offset: u32,
    /// Segments whose space is reserved, in order. They are behind `segment`, and the last but one is for news only as
    /// long as there is another.
    pub(crate) spares: VecDeque<Arc<Segment>>,
    /// Segments that nothing more will be appended to, in order: their records are needed.
    pub(crate) sealed: VecDeque<Arc<Segment>>,
    /// The length of `sealed` and `segment` together.
    pub(crate) log_bytes: u64,
    /// The number of the first segment that is needed. Each frame says it.
    pub(crate) oldest: u64,
    /// In which segment the last group is that was not a copy: behind it is nothing worth cleaning.
    pub(crate) last_news: u64,
    /// The position of the last group.
    pub(crate) appended: u64,
    /// The longest copy that no segment had a place for, because they were longer once; 0 if there is none.
    pub(crate) copy_bytes: usize,
    /// Urgency of all pending groups.
    pub(crate) urgency: Urgency,
    pub(crate) waiter: Waiter,
    pub(crate) no_space: Option<String>,
    /// Maximum size of all segments together, in bytes, including the free space of the disk at the last check.
    pub(crate) limit_bytes: u64,
    /// There is space for few more segments, or for none.
    pub(crate) is_near_limit: bool,
    /// A segment of the last resort has not been given back yet: no news are taken, so that what is live does not grow.
    pub(crate) is_beyond_limit: bool,
    /// There is no space, and no old segment is on its way back either.
    pub(crate) is_hopeless: bool,
    /// Moreover, not even what frees space can be put off any longer: the file system gives nothing.
    pub(crate) is_lost: bool,
    /// Bytes of the oldest segment that were copied since its cleaning began.
    pub(crate) copied_bytes: u64,
    /// Live bytes in the last report of the ledger.
    pub(crate) live_bytes: u64,
    pub(crate) failure: Option<String>,
    held: Held,
    buffers: Vec<Vec<u8>>,
}

/// Groups that free space and have no place yet: there is no spare and the disk is slow, or what is left is for copies. Nothing
/// else is appended before they have one. They get it together, in front of the next copy or when there is a spare again.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    /// How long each group is.
    lengths: VecDeque<usize>,
    urgency: Urgency,
}

/// Maximum bytes of such groups.
const HELD_BYTES_MAX: usize = 1 << 20;

/// A group that is to be appended.
#[derive(Debug, Clone, Copy)]
struct Want {
    bytes: usize,
    purpose: RecordPurpose,
    occasion: Occasion,
}

/// On what occasion a group gets its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The group has just come.
    Append,
    /// The group was held, and there may be space again.
    Space,
    /// The group was held, and the oldest segment does not come back before it is written: copies come behind it, or
    /// are done.
    Copies,
}

/// The groups that the committing thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    Nobody,
    ForUrgent,
    ForAny,
}

impl Waiter {
    /// Whether it has to be woken now; it is not woken twice.
    pub(crate) fn is_called_by(&mut self, urgency: Urgency) -> bool {
        let is_called = match self {
            Self::Nobody => false,
            Self::ForUrgent => urgency > Urgency::Later,
            Self::ForAny => true,
        };
        if is_called {
            *self = Self::Nobody;
        }
        is_called
    }
}

impl Plan {
    /// Goes on at this place. The segments in front of it are needed from `oldest` on.
    pub(crate) fn new(
        sealed: VecDeque<Arc<Segment>>,
        segment: Arc<Segment>,
        offset: u32,
        spares: VecDeque<Arc<Segment>>,
        oldest: u64,
    ) -> Self {
        let log_bytes = sealed.iter().chain([&segment]).map(|segment| u64::from(segment.bytes)).sum();
        Self {
            closed: VecDeque::new(),
            open: None,
            last_news: segment.number,
            segment,
            offset,
            spares,
            sealed,
            log_bytes,
            oldest,
            appended: 0,
            copy_bytes: 0,
            urgency: Urgency::Later,
            waiter: Waiter::Nobody,
            no_space: None,
            limit_bytes: u64::MAX,
            is_near_limit: false,
            is_beyond_limit: false,
            is_hopeless: false,
            is_lost: false,
            copied_bytes: 0,
            live_bytes: u64::MAX,
            failure: None,
            held: Held::default(),
            buffers: Vec::new(),
        }
    }

    pub(crate) fn append(
        &mut self,
        group: &[u8],
        purpose: RecordPurpose,
        urgency: Urgency,
        settings: &Settings,
    ) -> Result<Appended, Refusal> {
        if self.failure.is_some() {
            return Err(Refusal::Poisoned);
        }
        let is_too_long = purpose != RecordPurpose::Copy && group.len() > settings.group_bytes_max() as usize;
        if is_too_long {
            return Err(Refusal::TooLong);
        }
        let has_place = !self.spares.is_empty() && !self.is_full(settings) && !self.is_beyond_limit;
        if purpose == RecordPurpose::News && !has_place {
            return Err(Refusal::NoSpace);
        }
        let lsn = Lsn(self.appended + 1);
        if purpose == RecordPurpose::Copy {
            self.put_held(Occasion::Copies, settings);
        }
        let want = Want { bytes: group.len(), purpose, occasion: Occasion::Append };
        let at = match self.put(group, lsn, want, urgency, settings) {
            Err(Refusal::NoSpace) if purpose == RecordPurpose::FreesSpace => self.hold(group, urgency)?,
            put => put?,
        };
        self.appended = lsn.0;
        Ok(Appended { lsn, at })
    }

    /// Puts a group into a batch, and says where that will be.
    fn put(
        &mut self,
        group: &[u8],
        lsn: Lsn,
        want: Want,
        urgency: Urgency,
        settings: &Settings,
    ) -> Result<u64, Refusal> {
        if !self.held.lengths.is_empty() {
            return Err(Refusal::NoSpace);
        }
        if !self.open_takes(want, settings) {
            self.begin_batch(want)?;
        }
        self.urgency = self.urgency.max(urgency);
        if want.purpose == RecordPurpose::Copy {
            self.copied_bytes += group.len() as u64;
        } else {
            self.last_news = self.segment.number;
        }
        let batch = self.open.as_mut().expect("there is one, or it was begun just now");
        let behind = u32::try_from(batch.bytes.len()).expect("a batch is not longer than its segment");
        let at = address(batch.segment.number, batch.offset + behind);
        batch.bytes.extend_from_slice(group);
        batch.last = lsn.0;
        batch.urgency = batch.urgency.max(urgency);
        Ok(at)
    }

    /// Keeps a group until there is a place for it. It has no message in it that would be read again.
    fn hold(&mut self, group: &[u8], urgency: Urgency) -> Result<u64, Refusal> {
        let Held { bytes, lengths, urgency: most_urgent } = &mut self.held;
        if self.is_lost || bytes.len() + group.len() > HELD_BYTES_MAX {
            return Err(Refusal::NoSpace);
        }
        bytes.extend_from_slice(group);
        lengths.push_back(group.len());
        *most_urgent = urgency.max(*most_urgent);
        Ok(0)
    }

    /// There is space again, or space for copies is about to be used: what was held gets its place.
    pub(crate) fn put_held(&mut self, occasion: Occasion, settings: &Settings) {
        let Held { bytes, mut lengths, urgency } = std::mem::take(&mut self.held);
        let mut from = 0;
        while let Some(length) = lengths.pop_front() {
            let (group, lsn) = (&bytes[from..from + length], Lsn(self.appended - lengths.len() as u64));
            let want = Want { bytes: length, purpose: RecordPurpose::FreesSpace, occasion };
            if self.put(group, lsn, want, urgency, settings).is_err() {
                lengths.push_front(length);
                self.held = Held { bytes: bytes[from..].to_vec(), lengths, urgency };
                return;
            }
            from += length;
        }
    }

    fn open_takes(&self, want: Want, settings: &Settings) -> bool {
        self.open.as_ref().is_some_and(|batch| {
            let bytes = batch.bytes.len() + want.bytes;
            let more_bytes = || u64::from(pages(bytes) - batch.frame_bytes());
            bytes <= settings.frame_bytes_max()
                && self.fits(self.offset, bytes, self.kept(want.bytes, want.purpose))
                && self.leaves_reserve(more_bytes(), want)
        })
    }

    /// Whether copies still find the space that they need when this number of further bytes is used. A group that
    /// shares a page costs nothing.
    fn leaves_reserve(&self, used_bytes: u64, want: Want) -> bool {
        let kept_shares = match (want.purpose, want.occasion) {
            (RecordPurpose::Copy, _) => return true,
            (RecordPurpose::FreesSpace, Occasion::Space | Occasion::Copies) => 0,
            (RecordPurpose::FreesSpace, Occasion::Append) => 1,
            (RecordPurpose::Return, _) => 2,
            (RecordPurpose::News, _) => 3,
        };
        let kept_bytes = kept_shares * self.share_bytes();
        let room = self.room_for_copies();
        // Cleaning begins with less than the reserve if the copies will probably fit. They come behind this group, and would
        // wait for ever if it had to leave all of the reserve.
        let copies_go_on =
            || want.occasion == Occasion::Copies && self.copies_fit(room.saturating_sub(used_bytes));
        used_bytes == 0
            || !self.is_near_limit
            || self.is_lost
            || room >= self.copies_bytes() + kept_bytes + used_bytes
            || copies_go_on()
    }

    /// Whether the copies of the oldest segment will probably fit into this number of bytes. The same part of the
    /// oldest segment is assumed to be live as of all segments.
    pub(crate) fn copies_fit(&self, room_bytes: u64) -> bool {
        let oldest_bytes = self.sealed.front().map_or(0, |oldest| u128::from(oldest.bytes));
        let sealed_bytes = self.log_bytes - u64::from(self.segment.bytes);
        let live_bytes = u128::from(self.live_bytes.min(sealed_bytes));
        let expected = oldest_bytes * live_bytes / u128::from(sealed_bytes.max(1));
        // Were there more, a log that is short of room would be worse off than before, and there is a last resort.
        let margin = if self.is_short() { expected / 2 } else { expected / 4 };
        expected + margin < u128::from(room_bytes)
    }

    /// The space beside what copies need is kept in shares. The last is for groups that were held, and is used with copies. The
    /// one before it is for a turn of the ledger that has begun when there was room. Clients that come back leave these two,
    /// and news leave one more.
    fn share_bytes(&self) -> u64 {
        u64::from((self.segment.bytes / SHARE_PART).max(SHARE_PAGES * PAGE_BYTES))
    }

    /// The most that copies of the oldest segment may still take.
    fn copies_bytes(&self) -> u64 {
        self.reserve_bytes().saturating_sub(self.copied_bytes)
    }

    /// Whether there is so little beside what copies need that the oldest segment is cleaned whatever it costs.
    pub(crate) fn is_short(&self) -> bool {
        self.has_held() || self.lacks_shares(3)
    }

    /// Bytes that are missing to three shares beside what copies need.
    pub(crate) fn lacking_bytes(&self) -> u64 {
        let wanted_bytes = self.copies_bytes() + 3 * self.share_bytes() + self.held_bytes();
        wanted_bytes.saturating_sub(self.room_for_copies())
    }

    /// Whether not even this many shares are left beside what copies need.
    fn lacks_shares(&self, shares: u64) -> bool {
        let wanted_bytes = self.copies_bytes() + shares * self.share_bytes();
        self.is_near_limit && self.room_for_copies() < wanted_bytes
    }

    /// Returns the bytes of the segment that are not available for this purpose. When only one more segment is left and
    /// there is no space for another, news leave half of it, so that the oldest segment can be copied whatever its
    /// content. In the very last segment some pages are reserved for frames without records, which say that an old
    /// segment is not needed any more. Without these frames there would never be space again.
    fn kept(&self, group_bytes: usize, purpose: RecordPurpose) -> u32 {
        let is_last = self.spares.is_empty() && group_bytes > 0;
        match purpose {
            RecordPurpose::News if self.spares.len() == 1 && self.is_near_limit => self.kept_from_news(),
            RecordPurpose::Return if is_last => self.segment.bytes / 2,
            RecordPurpose::Copy | RecordPurpose::FreesSpace if is_last => MARK_PAGES * PAGE_BYTES,
            _ => 0,
        }
    }

    /// News leave as much as copies of the oldest segment may take, with the spares, and half of this segment. The half
    /// is for records that free space, and for the gap at the end of a segment when the next copy is too long for it.
    fn kept_from_news(&self) -> u32 {
        let room: u64 = self.spares.iter().map(|spare| u64::from(spare.room())).sum();
        let kept = (self.reserve_bytes() + u64::from(self.segment.bytes / 2)).saturating_sub(room);
        u32::try_from(kept).unwrap_or(u32::MAX)
    }

    /// Whether the live bytes leave no room for additions. Records that free space need space themselves, a page at a
    /// time, and get it for ever from cleaning only if enough of the log is not live.
    pub(crate) fn is_full(&self, settings: &Settings) -> bool {
        let most = settings.disk_bytes_max.min(self.limit_bytes);
        // Before the ledger has said what is live nothing is known.
        self.live_bytes < u64::MAX && self.live_bytes > most / LIVE_EIGHTHS.1 * LIVE_EIGHTHS.0
    }

    /// The most that copies of the oldest segment may take, in bytes: all of it, or all that is live, and what copies have
    /// more than what was copied.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        let oldest = self.sealed.front().map_or(0, |oldest| u64::from(oldest.used_bytes()));
        oldest.min(self.live_bytes.saturating_add(self.live_bytes / 4).saturating_add(oldest / 8))
    }

    /// Whether the spares behind the first are enough for the copies of the oldest segment.
    pub(crate) fn has_reserve(&self) -> bool {
        let room: u64 = self.spares.iter().skip(1).map(|spare| u64::from(spare.room())).sum();
        self.spares.len() > 1 && room >= self.reserve_bytes()
    }

    /// Whether there is space for what may come next, which is not longer than this.
    pub(crate) fn room(&self, packet_bytes: u32) -> RecordRoom {
        if self.failure.is_some() || self.is_lost {
            return RecordRoom::Enough;
        }
        let has_much = self.held.bytes.len() > HELD_BYTES_MAX / 2;
        if has_much || self.lacks_shares(2) || self.is_near_limit && self.has_held() {
            return RecordRoom::None;
        }
        let is_over = self.no_space.is_some() && self.is_hopeless;
        let takes =
            || self.fits(self.next_offset(), packet_bytes as usize, self.kept(1, RecordPurpose::News));
        if is_over || (!self.has_held() && (self.has_reserve() || (!self.spares.is_empty() && takes()))) {
            RecordRoom::Enough
        } else {
            RecordRoom::Little
        }
    }

    /// Behind what was appended.
    fn next_offset(&self) -> u32 {
        self.offset + self.open.as_ref().map_or(0, Batch::frame_bytes)
    }

    /// Returns the bytes available to copies in the current segment and the spares.
    pub(crate) fn room_for_copies(&self) -> u64 {
        let offset = self.next_offset();
        let here = self.segment.room_ends().saturating_sub(offset);
        let spares: u64 = self.spares.iter().map(|spare| u64::from(spare.room())).sum();
        (u64::from(here) + spares).saturating_sub(u64::from(MARK_PAGES * PAGE_BYTES))
    }

    fn fits(&self, offset: u32, batch_bytes: usize, kept: u32) -> bool {
        batch_bytes <= self.segment.room_ends().saturating_sub(kept).saturating_sub(offset) as usize
    }

    /// Closes the open batch and begins the next, in the next segment if it has to be.
    fn begin_batch(&mut self, want: Want) -> Result<(), Refusal> {
        let Want { bytes: group_bytes, purpose, .. } = want;
        let offset = self.next_offset();
        let kept = self.kept(group_bytes, purpose);
        let is_here = self.fits(offset, HEADER_BYTES as usize + group_bytes, kept);
        let spares_needed = match (is_here, purpose) {
            (true, _) => 0,
            (false, RecordPurpose::News) => 2,
            (false, RecordPurpose::Return | RecordPurpose::FreesSpace | RecordPurpose::Copy) => 1,
        };
        if self.spares.len() < spares_needed || (spares_needed == 2 && !self.has_reserve()) {
            return Err(Refusal::NoSpace);
        }
        let left_bytes = if is_here { 0 } else { self.segment.room_ends().saturating_sub(offset) };
        let used_bytes = pages(HEADER_BYTES as usize + group_bytes) + left_bytes;
        if group_bytes > 0 && !self.leaves_reserve(u64::from(used_bytes), want) {
            return Err(Refusal::NoSpace);
        }
        if !is_here && !self.next_holds(group_bytes, purpose) {
            if purpose == RecordPurpose::Copy {
                self.copy_bytes = self.copy_bytes.max(group_bytes);
            }
            return Err(Refusal::NoSpace);
        }
        if purpose == RecordPurpose::Copy && group_bytes >= self.copy_bytes {
            self.copy_bytes = 0;
        }
        self.closed.extend(self.open.take());
        self.offset = offset;
        if !is_here {
            let next = self.spares.pop_front().expect("counted just now");
            self.segment.set_end(offset);
            self.log_bytes += u64::from(next.bytes);
            self.sealed.push_back(std::mem::replace(&mut self.segment, next));
            self.offset = FIRST_FRAME;
        }
        let mut bytes = self.buffers.pop().unwrap_or_default();
        bytes.resize(HEADER_BYTES as usize, 0);
        let segment = self.segment.clone();
        self.open =
            Some(Batch { segment, offset: self.offset, bytes, last: self.appended, urgency: Urgency::Later });
        Ok(())
    }

    /// Whether the next segment is long enough. They may be of different lengths, if an operator has changed the least one.
    fn next_holds(&self, group_bytes: usize, purpose: RecordPurpose) -> bool {
        self.spares.front().is_some_and(|next| {
            let will_be_last = self.spares.len() == 1;
            let kept =
                if will_be_last && purpose == RecordPurpose::Copy { MARK_PAGES * PAGE_BYTES } else { 0 };
            HEADER_BYTES as usize + group_bytes <= (next.room_ends() - kept - FIRST_FRAME) as usize
        })
    }

    /// Whether there is a place now for the copy that had none.
    pub(crate) fn has_place_for_copy(&self) -> bool {
        let (bytes, copy) = (self.copy_bytes, RecordPurpose::Copy);
        let offset = self.next_offset();
        self.fits(offset, HEADER_BYTES as usize + bytes, self.kept(bytes, copy))
            || self.next_holds(bytes, copy)
    }

    /// The segment with this number, as long as its records are needed.
    pub(crate) fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        if self.segment.number == number {
            return Some(self.segment.clone());
        }
        let first = self.sealed.front()?.number;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        self.sealed.get(index).cloned()
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.first().is_some() || self.has_held()
    }

    /// Whether something waits for a spare that has none to wait for when there is no space.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.lengths.is_empty()
    }

    /// The position of the last group that has its place.
    pub(crate) fn placed(&self) -> u64 {
        self.appended - self.held.lengths.len() as u64
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.bytes.len() as u64
    }

    fn first(&self) -> Option<&Batch> {
        self.closed.front().or(self.open.as_ref())
    }

    /// Marks all pending groups as waited for. Returns whether there are any.
    pub(crate) fn hurry(&mut self) -> bool {
        let Some(last) = self.open.as_mut().or_else(|| self.closed.back_mut()) else { return false };
        last.urgency = Urgency::Durable;
        self.urgency = Urgency::Durable;
        true
    }

    /// Whether the next batch can be written and is at least so urgent.
    pub(crate) fn is_ready(&self, least: Urgency) -> bool {
        self.urgency >= least && self.first().is_some_and(|batch| batch.segment.is_ready())
    }

    pub(crate) fn take(&mut self, least: Urgency) -> Option<Batch> {
        if !self.is_ready(least) {
            return None;
        }
        let batch = self.closed.pop_front().or_else(|| {
            let batch = self.open.take()?;
            self.offset += batch.frame_bytes();
            Some(batch)
        });
        if self.first().is_none() {
            self.urgency = Urgency::Later;
        }
        batch
    }

    /// Whether batches are to be written there already.
    pub(crate) fn is_planned(&self, segment: u64) -> bool {
        self.segment.number >= segment
    }

    /// Returns the offset of the batch that is filled now.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) fn add_spare(&mut self, segment: Arc<Segment>, settings: &Settings) {
        self.spares.push_back(segment);
        self.has_space_again();
        self.put_held(Occasion::Space, settings);
    }

    pub(crate) fn has_space_again(&mut self) {
        (self.no_space, self.is_hopeless, self.is_lost) = (None, false, false);
    }

    pub(crate) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= BUFFER_BYTES_MAX && self.buffers.len() < BUFFERS_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

impl Batch {
    fn frame_bytes(&self) -> u32 {
        pages(self.bytes.len())
    }
}

/// Bytes of the pages of a batch of this length.
fn pages(batch_bytes: usize) -> u32 {
    padded(u32::try_from(batch_bytes).expect("a group fits into a segment"))
}
