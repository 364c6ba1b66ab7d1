//! Going on behind the end of a log that was read, or beginning one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::committer::page_of;
use crate::frame::{Header, Kind};
use crate::meta::{META, META_NEW, Meta};
use crate::plan::Plan;
use crate::recovery::{LogFile, Tail};
use crate::segment::{self, FIRST_FRAME, Segment, name};
use crate::{Committer, Log, OpenError, Parts, Preparer, Recovery, Settings};

/// The place at which the log continues.
struct Resumed {
    salt: u64,
    /// Segments with records in front of it.
    sealed: VecDeque<Arc<Segment>>,
    segment: Arc<Segment>,
    offset: u32,
}

impl Recovery {
    /// Reads what was not read, and makes everything ready to go on behind it.
    ///
    /// # Errors
    /// Something is damaged, there is no space for a new journal, and whatever the file system says.
    pub fn finish(mut self, settings: Settings) -> Result<Parts, OpenError> {
        settings.check()?;
        while self.next_frame()?.is_some() {}
        let Resumed { salt, sealed, segment, offset } = match (self.meta, self.groups_end) {
            (Some(meta), Some(tail)) => self.go_on(meta, tail, &settings)?,
            _ => self.create(&settings)?,
        };
        let first = sealed.front().map_or(segment.number, |first| first.number);
        let oldest = self.oldest().unwrap_or(first);
        let (released, sealed): (VecDeque<_>, VecDeque<_>) =
            sealed.into_iter().partition(|segment| segment.number < oldest);
        let spares: VecDeque<_> = self.files.drain(..).map(|file| file.segment).collect();
        let disk_bytes =
            released.iter().chain(&sealed).chain([&segment]).chain(&spares).map(|s| u64::from(s.bytes)).sum();
        let next_number = spares.back().map_or(segment.number, |last| last.number) + 1;
        let plan = Plan::new(sealed, segment.clone(), offset, spares, oldest);
        let log = Arc::new(Log::new(self.storage, settings, salt, segment.number, plan));
        let committer = Committer::new(log.clone(), segment, offset);
        let preparer = Preparer::new(log.clone(), next_number, disk_bytes, released);
        Ok(Parts { log, committer, preparer, report: self.report })
    }

    /// Puts everything on stable storage, ends the last segment, and chooses the next one. The files that stay in
    /// `files` are spares.
    fn go_on(&mut self, meta: Meta, tail: Tail, settings: &Settings) -> Result<Resumed, OpenError> {
        let _ = self.storage.remove(META_NEW);
        // META may have got its name just before the last process ended.
        self.storage.sync().map_err(OpenError::directory)?;
        self.remove_unfinished(settings)?;
        let here = self.index;
        self.write_again(meta)?;
        let is_clean = self.offset == FIRST_FRAME && !tail.has_leftover;
        let mut active = here;
        if !is_clean && self.has_spares(here, tail, meta, settings)? {
            self.end_tail(meta)?;
            active = here + 1;
        }
        let offset = if active == here { self.offset } else { FIRST_FRAME };
        // One is there for what frees space before anything is taken, if that can be.
        self.try_make_spare(active + 1, meta, settings)?;
        let sealed = self.files.drain(..active).map(|file| file.segment).collect();
        let segment = self.files.remove(0).segment;
        Ok(Resumed { salt: meta.salt, sealed, segment, offset })
    }

    /// Whether the log goes on in the segment behind this one, which is there then. It goes on in the same where there would be
    /// no spare left otherwise: each restart would take a segment of what is kept for copies. But frames that are left
    /// behind the end would be found again, when others end just in front of them.
    fn has_spares(
        &mut self,
        here: usize,
        tail: Tail,
        meta: Meta,
        settings: &Settings,
    ) -> Result<bool, OpenError> {
        let has_two = self.try_make_spare(here + 1, meta, settings)?
            && self.try_make_spare(here + 2, meta, settings)?;
        if tail.has_leftover && self.files.len() == here + 1 {
            // Whatever the limit is.
            self.make_spare(settings.segment_bytes_min, meta)?;
        }
        Ok(has_two || tail.has_leftover)
    }

    /// Removes segments behind the one that is written to: those that were being made when the process ended, and those
    /// that are too short by now for the longest group. If the log takes more than it may, segments that are too long
    /// are removed too. The last segment is removed first, so that the numbers never have a gap.
    fn remove_unfinished(&mut self, settings: &Settings) -> Result<(), OpenError> {
        let longest = match self.files_bytes() > settings.disk_bytes_max {
            true => settings.segment_bytes(u64::MAX),
            false => u32::MAX,
        };
        let lengths = settings.segment_bytes_min..=longest;
        let is_of_use = |file: &LogFile| file.is_begun && lengths.contains(&file.segment.bytes);
        let first = (self.index + 1..self.files.len()).find(|index| !is_of_use(&self.files[*index]));
        for file in self.files.drain(first.unwrap_or(self.files.len())..).rev() {
            let name = name(file.segment.number);
            let removed = self.storage.remove(&name).and_then(|()| self.storage.sync());
            removed.map_err(|error| OpenError::io(&name, error))?;
            self.given_back += if longest < u32::MAX { u64::from(file.segment.bytes) } else { 0 };
        }
        Ok(())
    }

    /// Writes the frames of the last sync again, so that they are on the disk after the next sync. They may be in
    /// memory only: a sync that failed before may have made the operating system believe that they are on the disk. The
    /// frames are in the segment of the last frame, which is the one before this if that frame has ended it. The
    /// headers of this segment and of the spares behind it are written again for the same reason.
    fn write_again(&self, meta: Meta) -> Result<(), OpenError> {
        if let Some((header, index, offset)) = self.last {
            let segment = &self.files[index].segment;
            let from = header.synced.clamp(FIRST_FRAME, offset);
            let rewritten = rewrite(segment, from, offset + header.frame_bytes());
            rewritten.map_err(|error| OpenError::io(&name(segment.number), error))?;
        }
        for LogFile { segment, .. } in &self.files[self.index..] {
            segment.begin(meta.salt).map_err(|error| OpenError::io(&name(segment.number), error))?;
        }
        Ok(())
    }

    fn end_tail(&self, meta: Meta) -> Result<(), OpenError> {
        let segment = &self.files[self.index].segment;
        let oldest = self.oldest().unwrap_or(self.files[0].segment.number);
        let header = Header { kind: Kind::End, payload_bytes: 0, oldest, synced: self.offset };
        let page = page_of(header, segment.place(meta.salt, self.offset));
        let written = segment.file.write_at(u64::from(self.offset), &page);
        written
            .and_then(|()| segment.file.sync_data())
            .map_err(|error| OpenError::io(&name(segment.number), error))
    }

    /// Makes the segment with this index, if there is none. Returns whether there is one: the segments take no more than they
    /// may, because of a restart as little as without.
    fn try_make_spare(&mut self, index: usize, meta: Meta, settings: &Settings) -> Result<bool, OpenError> {
        if index < self.files.len() {
            return Ok(true);
        }
        let log_bytes = self.files_bytes();
        let free = self.storage.free_bytes().map_err(OpenError::directory)?;
        let room = free
            .saturating_sub(settings.free_bytes_min)
            .min(settings.disk_bytes_max.saturating_sub(log_bytes).max(self.given_back));
        let Some(bytes) = settings.segment_bytes_within(settings.segment_bytes(log_bytes), room) else {
            return Ok(false);
        };
        match self.make_spare(bytes, meta) {
            Ok(()) => {
                self.given_back = self.given_back.saturating_sub(u64::from(bytes));
                Ok(true)
            }
            Err(OpenError::Io { error, .. }) if is_lack_of_space(error.kind()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn files_bytes(&self) -> u64 {
        self.files.iter().map(|file| u64::from(file.segment.bytes)).sum()
    }

    /// Makes the segment behind the last.
    fn make_spare(&mut self, bytes: u32, meta: Meta) -> Result<(), OpenError> {
        let number = self.files.last().map_or(1, |file| file.segment.number + 1);
        let segment = segment::create(&*self.storage, meta.salt, number, bytes);
        let segment = segment.map_err(|error| OpenError::io(&name(number), error))?;
        self.files.push(LogFile { segment, is_begun: true });
        Ok(())
    }

    /// A new journal. META comes last: until then there is none. The first segment has a mark by then, so that a journal
    /// without a frame is always one that has lost something; and it has it before the second is begun.
    fn create(&mut self, settings: &Settings) -> Result<Resumed, OpenError> {
        let numbers = segment::numbers(&*self.storage).map_err(OpenError::directory)?;
        for number in numbers.into_iter().rev() {
            let removed = self.storage.remove(&name(number)).and_then(|()| self.storage.sync());
            removed.map_err(OpenError::directory)?;
        }
        let meta = Meta { salt: self.storage.salt().map_err(OpenError::directory)? };
        self.make_spare(settings.segment_bytes(0), meta)?;
        let segment = self.files[0].segment.clone();
        let mark = Header::mark(segment.number);
        let page = page_of(mark, segment.place(meta.salt, FIRST_FRAME));
        let written = segment.file.write_at(u64::from(FIRST_FRAME), &page);
        written
            .and_then(|()| segment.file.sync_data())
            .map_err(|error| OpenError::io(&name(segment.number), error))?;
        self.make_spare(settings.segment_bytes(0), meta)?;
        meta.write(&*self.storage).map_err(|error| OpenError::io(META, error))?;
        self.files.remove(0);
        let offset = FIRST_FRAME + mark.frame_bytes();
        Ok(Resumed { salt: meta.salt, sealed: VecDeque::new(), segment, offset })
    }
}

/// Writes what is read there, and syncs it.
fn rewrite(segment: &Segment, from: u32, upto: u32) -> io::Result<()> {
    for at in (from..upto).step_by(segment::PIECE_BYTES as usize) {
        let mut piece = vec![0; segment::PIECE_BYTES.min(upto - at) as usize];
        let read = segment.file.read_at(u64::from(at), &mut piece)?;
        segment.file.write_at(u64::from(at), &piece[..read])?;
    }
    segment.file.sync_data()
}

/// Whether a file could not be made for want of space, on the disk or in the quota of the user.
fn is_lack_of_space(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_quota_that_is_used_up_is_a_lack_of_space() {
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        const EIO: i32 = 5;
        let is_lack = |error| is_lack_of_space(io::Error::from_raw_os_error(error).kind());
        assert!(is_lack(ENOSPC) && is_lack(EDQUOT) && !is_lack(EIO));
    }
}
