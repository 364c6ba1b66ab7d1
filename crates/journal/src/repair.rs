//! Looking at a directory without opening it, and giving up what is damaged in it.

use std::io;
use std::sync::Arc;

use crate::committer::end_frame;
use crate::frame::{FrameReader, HEADER_BYTES, Header, Kind, PAGE_BYTES};
use crate::meta::{META, Meta};
use crate::segment::{self, FIRST_FRAME, Segment, SegmentHeader, name};
use crate::{Damage, Fault, OpenError, Report, Settings, Storage};

/// Reads a whole journal without changing anything.
///
/// # Errors
/// What [`open`](crate::open) and [`Opening::start`] would say.
pub fn check(storage: Arc<dyn Storage>) -> Result<Report, OpenError> {
    let mut opening = crate::open(storage, Settings::default())?;
    opening.by_ref().for_each(drop);
    opening.into_report()
}

/// Gives up what is damaged, so that the journal can be opened, and returns what that was. All frames that are whole stay;
/// what is given up cannot be had back afterwards.
///
/// # Errors
/// The directory is not one that this program could have written, or the file system has failed.
pub fn discard_damaged(storage: &Arc<dyn Storage>) -> Result<Vec<Damage>, OpenError> {
    let mut discarded: Vec<Damage> = Vec::new();
    loop {
        match check(storage.clone()) {
            Ok(_) => return Ok(discarded),
            // What is still damaged after it was repaired cannot be repaired.
            Err(OpenError::Damaged(damage)) if !discarded.contains(&damage) => {
                Repair { storage: &**storage }.discard(&damage)?;
                discarded.push(damage);
            }
            Err(error) => return Err(error),
        }
    }
}

struct Repair<'a> {
    storage: &'a dyn Storage,
}

impl Repair<'_> {
    fn discard(&self, damage: &Damage) -> Result<(), OpenError> {
        let unknown = || OpenError::Damaged(damage.clone());
        if damage.file == META {
            let meta = self.meta_of_segments()?.ok_or_else(unknown)?;
            return meta.write(self.storage).map_err(|error| OpenError::io(META, error));
        }
        let meta = Meta::read(self.storage)?.ok_or_else(unknown)?;
        let number = segment::number(&damage.file).ok_or_else(unknown)?;
        let offset = u32::try_from(damage.offset).map_err(|_| unknown())?;
        let done = match damage.fault {
            Fault::Meta => return Err(unknown()),
            Fault::Missing => self.replace(number, meta),
            Fault::Foreign => {
                let name = name(number);
                self.storage.rename(&name, &format!("discarded-{name}")).and_then(|()| self.storage.sync())
            }
            Fault::Header | Fault::Short => self.make_whole(number, meta),
            Fault::Frame | Fault::Record(_) => self.pass_over(number, offset, meta),
        };
        done.map_err(|error| OpenError::io(&damage.file, error))
    }

    /// Any segment says which journal it belongs to.
    fn meta_of_segments(&self) -> Result<Option<Meta>, OpenError> {
        for number in segment::numbers(self.storage).map_err(OpenError::directory)? {
            let name = name(number);
            let file = self.storage.open(&name, false).map_err(|error| OpenError::io(&name, error))?;
            let header = SegmentHeader::read(&*file).map_err(|error| OpenError::io(&name, error))?;
            if let Some(header) = header {
                return Ok(Some(Meta { salt: header.salt }));
            }
        }
        Ok(None)
    }

    /// A segment without records in place of one that is missing; ended, if there are others behind it.
    fn replace(&self, number: u64, meta: Meta) -> io::Result<()> {
        let numbers = segment::numbers(self.storage)?;
        let bytes = Settings::default().segment_bytes_min;
        let segment = segment::create(self.storage, meta.salt, number, bytes)?;
        if numbers.last().is_some_and(|last| *last > number) {
            self.put(&segment, FIRST_FRAME, Kind::End, HEADER_BYTES, meta)?;
        }
        Ok(())
    }

    /// As long as it was, with the header that it had.
    fn make_whole(&self, number: u64, meta: Meta) -> io::Result<()> {
        let file = self.storage.open(&name(number), false)?;
        let found = u32::try_from(file.bytes()?).unwrap_or(u32::MAX).next_multiple_of(PAGE_BYTES);
        let bytes = SegmentHeader::read(&*file)?.map_or(found, |header| header.bytes);
        let end = u64::from(bytes) - 1;
        if file.bytes()? <= end {
            file.write_at(end, &[0])?;
        }
        Segment::new(number, bytes, file, true).begin(meta.salt)
    }

    /// From here to the next frame that is whole, or to the end.
    fn pass_over(&self, number: u64, offset: u32, meta: Meta) -> io::Result<()> {
        let file = self.storage.open(&name(number), false)?;
        let found = u32::try_from(file.bytes()?).unwrap_or(u32::MAX);
        let bytes = SegmentHeader::read(&*file)?.map_or(found, |header| header.bytes);
        let segment = Segment::new(number, bytes, file, true);
        let mut reader = FrameReader::default();
        for next in (offset + PAGE_BYTES..bytes).step_by(PAGE_BYTES as usize) {
            let place = segment.place(meta.salt, next);
            if reader.read(&*segment.file, place, bytes)?.is_some() {
                return self.put(&segment, offset, Kind::Discarded, next - offset, meta);
            }
        }
        self.put(&segment, offset, Kind::End, HEADER_BYTES, meta)
    }

    /// A frame without records that ends so many bytes behind its beginning.
    fn put(&self, segment: &Segment, offset: u32, kind: Kind, bytes: u32, meta: Meta) -> io::Result<()> {
        // Nothing is retired because of it.
        let oldest = segment::numbers(self.storage)?.first().map_or(segment.number, |first| *first);
        let header = Header { kind, payload_bytes: bytes - HEADER_BYTES, oldest, synced: offset };
        segment.file.write_at(u64::from(offset), &end_frame(header, segment.place(meta.salt, offset)))?;
        segment.file.sync_data()
    }
}
