//! Copying the directory of a journal that may be in use.

use std::io;
use std::sync::Arc;

use crate::frame::{FrameReader, HEADER_BYTES, Kind};
use crate::meta::Meta;
use crate::segment::{self, FIRST_FRAME, Segment, SegmentHeader, name};
use crate::{OpenError, Report, Storage, check};

/// So often a segment is read again that was ended while it was copied.
const ATTEMPTS: usize = 3;

/// Copies a journal, which another process may be writing to, into an empty directory: a state that it was in, with all
/// that was durable when this was called. Whoever has opened `to` opens it as any other journal.
///
/// # Errors
/// There is no journal, or there is one in `to`; the copy is not whole, because the original is damaged; and whatever the
/// file system says.
pub fn backup(from: &dyn Storage, to: &Arc<dyn Storage>) -> Result<Report, OpenError> {
    let meta = Meta::read(from)?.ok_or(OpenError::Settings("there is no journal to copy"))?;
    let is_empty = segment::numbers(&**to).map_err(OpenError::directory)?.is_empty();
    if !is_empty || Meta::read(&**to)?.is_some() {
        return Err(OpenError::Settings("there is a journal already where it is to be copied to"));
    }
    let copied = Backup { from, to: &**to, salt: meta.salt }.copy_all().and_then(|()| meta.write(&**to));
    copied.map_err(OpenError::directory)?;
    check(to.clone())
}

struct Backup<'a> {
    from: &'a dyn Storage,
    to: &'a dyn Storage,
    salt: u64,
}

/// How a segment was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// With its end: the log goes on in the next one.
    Ended,
    /// The log ends in it.
    Open,
    /// It has another number by now, or what is in it is not needed any more.
    Gone,
}

impl Backup<'_> {
    fn copy_all(&self) -> io::Result<()> {
        let numbers = segment::numbers(self.from)?;
        let Some(mut number) = numbers.first().copied() else { return Ok(()) };
        let last = numbers.last().copied().unwrap_or(number);
        loop {
            match self.copy_segment(number)? {
                Found::Open => return Ok(()),
                Found::Ended => {}
                // When a segment is used again, all in front of it are not needed either.
                Found::Gone if number <= last => self.remove_all()?,
                Found::Gone => return Ok(()),
            }
            number += 1;
        }
    }

    fn copy_segment(&self, number: u64) -> io::Result<Found> {
        for _ in 0..ATTEMPTS {
            let found = self.try_segment(number)?;
            // It may have been ended since it was read; or it is not what it was.
            if found != Found::Open || !self.has_frames(number + 1)? {
                return Ok(found);
            }
        }
        Ok(Found::Gone)
    }

    fn open(&self, number: u64) -> io::Result<Option<Segment>> {
        let file = match self.from.open(&name(number), false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let header = SegmentHeader::read(&*file)?.filter(|header| header.number == number);
        Ok(header.map(|header| Segment::new(number, header.bytes, file, true)))
    }

    fn has_frames(&self, number: u64) -> io::Result<bool> {
        let Some(segment) = self.open(number)? else { return Ok(false) };
        let place = segment.place(self.salt, FIRST_FRAME);
        Ok(FrameReader::default().read(&*segment.file, place, segment.bytes)?.is_some())
    }

    /// Copies its frames as far as they are whole.
    fn try_segment(&self, number: u64) -> io::Result<Found> {
        let Some(segment) = self.open(number)? else { return Ok(Found::Gone) };
        let copy = segment::create(self.to, self.salt, number, segment.bytes)?;
        let (mut reader, mut offset) = (FrameReader::default(), FIRST_FRAME);
        let mut found = Found::Open;
        while found == Found::Open {
            let place = segment.place(self.salt, offset);
            let Some((header, payload)) = reader.read(&*segment.file, place, segment.bytes)? else { break };
            // From what was checked: the file may have become another's meanwhile.
            let mut frame = vec![0; HEADER_BYTES as usize];
            frame.extend_from_slice(payload);
            frame.resize(header.frame_bytes() as usize, 0);
            header.seal(&mut frame, place);
            copy.file.write_at(u64::from(offset), &frame)?;
            offset += header.frame_bytes();
            if header.kind == Kind::End {
                found = Found::Ended;
            }
        }
        copy.file.sync_data()?;
        Ok(found)
    }

    fn remove_all(&self) -> io::Result<()> {
        for number in segment::numbers(self.to)? {
            self.to.remove(&name(number))?;
        }
        self.to.sync()
    }
}
