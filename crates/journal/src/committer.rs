//! Writing what was appended.

use std::io;
use std::sync::Arc;

use crate::frame::{HEADER_BYTES, Header, Kind, PAGE_BYTES, padded};
use crate::plan::{Batch, address};
use crate::segment::{FIRST_FRAME, Segment};
use crate::{Log, Urgency};

/// Writes what was appended to a [`Log`], a frame at a time: so one frame takes all that came while the last one was
/// written and synced.
#[derive(Debug)]
pub struct Committer {
    log: Arc<Log>,
    segment: Arc<Segment>,
    /// Behind the last frame.
    end: u32,
    /// Up to here the segment is on stable storage.
    synced: u32,
}

impl Committer {
    /// Goes on behind `end`, up to which everything is on stable storage.
    pub(crate) fn new(log: Arc<Log>, segment: Arc<Segment>, end: u32) -> Self {
        Self { log, segment, end, synced: end }
    }

    /// The log that it writes.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Writes one frame of what is pending, if somebody waits for it, and syncs it if somebody waits for that. Returns
    /// whether it did anything. After a failure it never does.
    pub fn commit_once(&mut self) -> bool {
        self.commit(Urgency::Written)
    }

    /// The same for what nobody waits for, and syncs what was written without: to be called when nothing was committed
    /// for [`REST_MS`](crate::REST_MS).
    pub fn commit_rest(&mut self) -> bool {
        let has_written = self.commit(Urgency::Later);
        let has_synced = !self.log.has_failed() && self.has_rest() && self.attempt(Self::sync);
        has_written || has_synced
    }

    /// Whether something is written and not durable yet.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.log.durable() < self.log.written()
    }

    fn commit(&mut self, least: Urgency) -> bool {
        if self.log.has_failed() {
            return false;
        }
        let Some((mut batch, oldest)) = self.log.take(least) else { return false };
        let groups_bytes = batch.bytes.len() as u64 - u64::from(HEADER_BYTES);
        let is_done = self.attempt(|committer| {
            committer.write(&mut batch, oldest)?;
            if batch.urgency == Urgency::Durable { committer.sync() } else { Ok(()) }
        });
        self.log.plan().give_back(batch.bytes);
        self.log.note_done(groups_bytes);
        if is_done {
            self.log.prepare_if_due();
        }
        is_done
    }

    /// After an error nothing is tried again: what a failed sync has not written may never be, although the next one
    /// succeeds.
    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) -> bool {
        step(self).map_err(|error| self.log.fail(&error)).is_ok()
    }

    fn write(&mut self, batch: &mut Batch, oldest: u64) -> io::Result<()> {
        if batch.segment.number != self.segment.number {
            self.end_segment(oldest)?;
            self.segment = batch.segment.clone();
            (self.end, self.synced) = (FIRST_FRAME, FIRST_FRAME);
            self.log.set_active(self.segment.number);
        }
        debug_assert_eq!(self.end, batch.offset, "batches follow each other");
        let bytes = u32::try_from(batch.bytes.len()).expect("a batch fits into its segment");
        let header = self.header(Kind::Records, bytes - HEADER_BYTES, oldest);
        header.seal(&mut batch.bytes, self.segment.place(self.log.salt, self.end));
        batch.bytes.resize(padded(bytes) as usize, 0);
        self.segment.file.write_at(u64::from(self.end), &batch.bytes)?;
        self.end += padded(bytes);
        let readable = address(self.segment.number, self.end);
        self.log.set_written(batch.last, u64::from(padded(bytes)), readable);
        Ok(())
    }

    /// A segment is whole and on stable storage before the next one gets its first frame.
    fn end_segment(&mut self, oldest: u64) -> io::Result<()> {
        let place = self.segment.place(self.log.salt, self.end);
        self.segment
            .file
            .write_at(u64::from(self.end), &page_of(self.header(Kind::End, 0, oldest), place))?;
        self.sync()
    }

    fn header(&self, kind: Kind, payload_bytes: u32, oldest: u64) -> Header {
        Header { kind, payload_bytes, oldest, synced: self.synced }
    }

    fn sync(&mut self) -> io::Result<()> {
        let written = self.log.written();
        self.segment.file.sync_data()?;
        self.synced = self.end;
        self.log.set_durable(written);
        Ok(())
    }
}

/// The page of a frame without records.
pub(crate) fn page_of(header: Header, place: crate::frame::Place) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    header.seal(&mut page, place);
    page
}
