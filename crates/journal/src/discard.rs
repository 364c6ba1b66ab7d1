//! Giving up what is damaged, one place at a time, so that the rest can be read.
//!
//! Each step leaves a directory that can be read further than before, whatever step is cut short: so repairing is reading,
//! giving up where that fails, and reading again.

use std::sync::Arc;

use crate::committer::page_of;
use crate::frame::{FrameReader, HEADER_BYTES, Header, Kind, PAGE_BYTES};
use crate::meta::Meta;
use crate::segment::{self, BYTES_LEAST, FIRST_FRAME, PIECE_BYTES, Segment, SegmentHeader, length_for, name};
use crate::{Damage, Fault, File, OpenError, Storage};

/// Prefix of the names under which segments of another journal are kept.
const ASIDE: &str = "foreign-";

/// Makes it possible to read past this damage, as an error has named it, and returns how many bytes of the log are given up
/// for it; of a file that is missing nobody knows how many those were. The directory must be locked.
///
/// # Errors
/// This damage is not there, or nothing can be done about it; and whatever the file system says.
pub fn discard(storage: &dyn Storage, damage: &Damage) -> Result<u64, OpenError> {
    match damage.fault {
        Fault::Meta => restore_meta(storage, damage),
        Fault::Foreign => Repair::of(storage, damage)?.put_aside(),
        Fault::Missing => Repair::of(storage, damage)?.fill_gap(),
        Fault::Short => Repair::of(storage, damage)?.lengthen(),
        Fault::Header => Repair::of(storage, damage)?.restore_header(),
        Fault::Empty => Repair::of(storage, damage)?.begin_again(),
        // Closing the gap would take as many files as are missing.
        Fault::Gap { .. } | Fault::Number => Err(damage.clone().into()),
        Fault::Frame | Fault::Record(_) => Repair::of(storage, damage)?.discard_frames(),
    }
}

/// Each segment says which journal it is of.
fn restore_meta(storage: &dyn Storage, damage: &Damage) -> Result<u64, OpenError> {
    for number in segment::numbers(storage).map_err(OpenError::directory)? {
        let name = name(number);
        let io = |error| OpenError::io(&name, error);
        let file = storage.open(&name, false).map_err(io)?;
        if let Some(SegmentHeader { salt, .. }) = SegmentHeader::read(&*file).map_err(io)? {
            Meta { salt }.write(storage).map_err(OpenError::directory)?;
            return Ok(0);
        }
    }
    Err(damage.clone().into())
}

/// One step, in a segment.
struct Repair<'a> {
    storage: &'a dyn Storage,
    damage: &'a Damage,
    number: u64,
    salt: u64,
}

impl<'a> Repair<'a> {
    fn of(storage: &'a dyn Storage, damage: &'a Damage) -> Result<Self, OpenError> {
        let number = segment::number(&damage.file).ok_or_else(|| damage.clone())?;
        let salt = Meta::read(storage)?.ok_or_else(|| damage.clone())?.salt;
        Ok(Self { storage, damage, number, salt })
    }

    fn io(&self, error: std::io::Error) -> OpenError {
        OpenError::io(&self.damage.file, error)
    }

    fn unrepairable(&self) -> OpenError {
        self.damage.clone().into()
    }

    fn open(&self) -> Result<Arc<dyn File>, OpenError> {
        self.storage.open(&self.damage.file, false).map_err(|error| self.io(error))
    }

    /// Puts the file aside: then it is missing. Files that were put aside before stay.
    fn put_aside(&self) -> Result<u64, OpenError> {
        let file = &self.damage.file;
        let taken = self.storage.list().map_err(OpenError::directory)?;
        let mut aside = format!("{ASIDE}{file}");
        while taken.contains(&aside) {
            aside.insert_str(0, ASIDE);
        }
        let renamed = self.storage.rename(file, &aside).and_then(|()| self.storage.sync());
        renamed.map(|()| 0).map_err(|error| self.io(error))
    }

    /// A segment that ends where it begins; where none follows, one that goes on there.
    fn fill_gap(&self) -> Result<u64, OpenError> {
        let numbers = segment::numbers(self.storage).map_err(OpenError::directory)?;
        let Some(first) = numbers.first() else { return Err(self.unrepairable()) };
        let is_followed = numbers.iter().any(|number| *number > self.number);
        let bytes = if is_followed {
            BYTES_LEAST
        } else {
            let first = self.storage.open(&name(*first), false).and_then(|file| file.bytes());
            length_for(first.map_err(|error| self.io(error))?)
        };
        let segment = segment::create(self.storage, self.salt, self.number, bytes);
        let segment = segment.map_err(|error| self.io(error))?;
        if is_followed {
            self.end(&segment, FIRST_FRAME)?;
        }
        Ok(0)
    }

    fn lengthen(&self) -> Result<u64, OpenError> {
        let file = self.open()?;
        let header = SegmentHeader::read(&*file).map_err(|error| self.io(error))?;
        let bytes = header.ok_or_else(|| self.unrepairable())?.bytes;
        self.lengthen_to(&*file, bytes)
    }

    /// Returns how many bytes were missing.
    fn lengthen_to(&self, file: &dyn File, bytes: u32) -> Result<u64, OpenError> {
        let found = file.bytes().map_err(|error| self.io(error))?;
        for at in (found..u64::from(bytes)).step_by(PIECE_BYTES as usize) {
            let piece = u64::from(PIECE_BYTES).min(u64::from(bytes) - at);
            let zeros = vec![0; usize::try_from(piece).expect("a piece")];
            file.write_at(at, &zeros).map_err(|error| self.io(error))?;
        }
        file.sync_data().map_err(|error| self.io(error))?;
        Ok(u64::from(bytes).saturating_sub(found))
    }

    /// A file that is shorter than any segment becomes one without frames.
    fn restore_header(&self) -> Result<u64, OpenError> {
        let file = self.open()?;
        let bytes = length_for(file.bytes().map_err(|error| self.io(error))?);
        self.lengthen_to(&*file, bytes)?;
        Segment::new(self.number, bytes, file, true).begin(self.salt).map_err(|error| self.io(error))?;
        Ok(0)
    }

    /// The mark that a journal begins with.
    fn begin_again(&self) -> Result<u64, OpenError> {
        self.write_page(&self.segment()?, Header::mark(self.oldest()?), FIRST_FRAME)?;
        Ok(0)
    }

    /// As long as its header says, or as it can be.
    fn segment(&self) -> Result<Segment, OpenError> {
        let file = self.open()?;
        let found = file.bytes().map_err(|error| self.io(error))?;
        let header = SegmentHeader::read(&*file).map_err(|error| self.io(error))?;
        let header = header.filter(|header| u64::from(header.bytes) <= found);
        let bytes = header.map_or_else(|| length_for(found), |header| header.bytes);
        Ok(Segment::new(self.number, bytes, file, true))
    }

    /// From the frame with the damage on, up to the next that is whole, or to the end of the segment.
    fn discard_frames(&self) -> Result<u64, OpenError> {
        let segment = self.segment()?;
        let bytes = segment.bytes;
        let (begins_at, header) = self.frame_with_damage(&segment)?;
        let ends_at = match header {
            Some(header) => Some(begins_at + header.frame_bytes()),
            None => self.next_whole_frame(&segment, begins_at)?,
        };
        let Some(ends_at) = ends_at else {
            self.end(&segment, begins_at)?;
            return Ok(u64::from(bytes - begins_at));
        };
        let discarded = Header {
            kind: Kind::Discarded,
            payload_bytes: ends_at - begins_at - HEADER_BYTES,
            oldest: header.map_or(self.oldest()?, |header| header.oldest),
            synced: header.map_or(begins_at, |header| header.synced),
        };
        self.write_page(&segment, discarded, begins_at)?;
        Ok(u64::from(ends_at - begins_at))
    }

    /// Returns the offset of the frame with the damage, and its header if that is whole: then its records are damaged.
    fn frame_with_damage(&self, segment: &Segment) -> Result<(u32, Option<Header>), OpenError> {
        let mut reader = FrameReader::default();
        let mut at = FIRST_FRAME;
        // In the last page there is only room for the end.
        while at < segment.bytes {
            let Some(header) = self.frame_at(&mut reader, segment, at)? else { return Ok((at, None)) };
            let next = at + header.frame_bytes();
            if self.damage.offset < u64::from(next) {
                let is_damaged =
                    matches!(self.damage.fault, Fault::Record(_)) && header.kind == Kind::Records;
                return if is_damaged { Ok((at, Some(header))) } else { Err(self.unrepairable()) };
            }
            at = next;
        }
        Err(self.unrepairable())
    }

    fn next_whole_frame(&self, segment: &Segment, behind: u32) -> Result<Option<u32>, OpenError> {
        let mut reader = FrameReader::default();
        for at in (behind..segment.bytes).step_by(PAGE_BYTES as usize).skip(1) {
            if self.frame_at(&mut reader, segment, at)?.is_some() {
                return Ok(Some(at));
            }
            if reader.has_rejected_more_than(segment.bytes) {
                break;
            }
        }
        Ok(None)
    }

    fn frame_at(
        &self,
        reader: &mut FrameReader,
        segment: &Segment,
        at: u32,
    ) -> Result<Option<Header>, OpenError> {
        let read = reader.read(&*segment.file, segment.place(self.salt, at), segment.bytes);
        read.map(|frame| frame.map(|(header, _)| header)).map_err(|error| self.io(error))
    }

    fn end(&self, segment: &Segment, at: u32) -> Result<(), OpenError> {
        let header = Header { kind: Kind::End, payload_bytes: 0, oldest: self.oldest()?, synced: at };
        self.write_page(segment, header, at)
    }

    /// Nothing that is there may be taken for what is not needed any more.
    fn oldest(&self) -> Result<u64, OpenError> {
        let numbers = segment::numbers(self.storage).map_err(OpenError::directory)?;
        Ok(numbers.first().copied().unwrap_or(self.number))
    }

    /// The frame's front; of one that is discarded, the rest stays as it is.
    fn write_page(&self, segment: &Segment, header: Header, at: u32) -> Result<(), OpenError> {
        let page = match header.kind {
            Kind::Discarded => {
                let mut front = vec![0; HEADER_BYTES as usize];
                header.seal(&mut front, segment.place(self.salt, at));
                front
            }
            Kind::Records | Kind::End => page_of(header, segment.place(self.salt, at)),
        };
        let written = segment.file.write_at(u64::from(at), &page).and_then(|()| segment.file.sync_data());
        written.and_then(|()| self.storage.sync()).map_err(|error| self.io(error))
    }
}
