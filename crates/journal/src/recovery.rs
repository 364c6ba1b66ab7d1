//! Reading a log from its beginning to its end, and going on with it.
//!
//! Nothing is written before [`Recovery::finish`]: so the same reading checks a directory.

use std::sync::Arc;

use crate::frame::{FrameReader, HEADER_BYTES, Header, Kind, PAGE_BYTES};
use crate::meta::{META, Meta};
use crate::plan::address;
use crate::segment::{self, BYTES_MOST, FIRST_FRAME, NUMBER_MOST, Segment, SegmentHeader, name};
use crate::{Committer, Damage, Fault, Log, OpenError, Preparer, Storage};

/// A log that is being read: frame by frame with [`next_frame`](Self::next_frame), until there are no more.
pub struct Recovery {
    pub(crate) storage: Arc<dyn Storage>,
    /// None in a directory without a journal.
    pub(crate) meta: Option<Meta>,
    pub(crate) files: Vec<LogFile>,
    /// The file that is read, and the offset in it.
    pub(crate) index: usize,
    pub(crate) offset: u32,
    reader: FrameReader,
    /// Header of the last frame, its file, and its offset.
    pub(crate) last: Option<(Header, usize, u32)>,
    pub(crate) groups_end: Option<Tail>,
    pub(crate) report: Report,
    /// Bytes of spares that were removed because the log takes more than it may.
    pub(crate) given_back: u64,
}

/// A segment as it was found.
pub(crate) struct LogFile {
    pub(crate) segment: Arc<Segment>,
    /// Its header is right. It may be wrong only in a spare that was being made.
    pub(crate) is_begun: bool,
}

/// The end of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    /// Behind the end are frames that are whole: a loss of power has taken what was in front of them, as nobody had
    /// waited for it.
    pub(crate) has_leftover: bool,
}

/// The state of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of segments with frames.
    pub segments: u64,
    /// Number of frames with records.
    pub frames: u64,
    /// Their records, in bytes.
    pub bytes: u64,
    /// Frames that an operator has given up with `repair`.
    pub discarded: u64,
    /// The last file with records, and the offset of their end: something that was not durable may have been cut off
    /// there.
    pub end: Option<(String, u64)>,
    /// A frame that was begun at the end, but is not whole, was cut off.
    pub is_torn: bool,
}

/// A log that goes on: who appends, who writes, who prepares.
#[derive(Debug)]
pub struct Parts {
    /// The log, for appending groups.
    pub log: Arc<Log>,
    /// Writes what was appended.
    pub committer: Committer,
    /// Sees to the space.
    pub preparer: Preparer,
    /// The findings in the directory.
    pub report: Report,
}

impl Recovery {
    /// Looks at a directory. Nothing in it is changed.
    ///
    /// # Errors
    /// It is of a newer version; a file is missing or of another journal; and whatever the file system says.
    pub fn begin(storage: Arc<dyn Storage>) -> Result<Self, OpenError> {
        let meta = Meta::read(&*storage)?;
        let numbers = segment::numbers(&*storage).map_err(OpenError::directory)?;
        let mut recovery = Self {
            storage,
            meta,
            files: Vec::new(),
            index: 0,
            offset: FIRST_FRAME,
            reader: FrameReader::default(),
            last: None,
            groups_end: None,
            report: Report::default(),
            given_back: 0,
        };
        match meta {
            Some(meta) => recovery.open_all(&numbers, meta.salt)?,
            None => recovery.expect_no_records(&numbers)?,
        }
        Ok(recovery)
    }

    fn open_all(&mut self, numbers: &[u64], salt: u64) -> Result<(), OpenError> {
        expect_no_gap(numbers)?;
        for number in numbers {
            let file = self.open_one(*number, salt)?;
            self.files.push(file);
        }
        if self.files.is_empty() {
            return Err(Damage::at(name(1), 0, Fault::Missing).into());
        }
        self.pass_over_released(salt)
    }

    /// Begins with the first segment that the last frame says is needed. Those in front of it go without being copied
    /// again: so nobody may be told of a record in them, and take one behind them for its second copy.
    fn pass_over_released(&mut self, salt: u64) -> Result<(), OpenError> {
        let mut oldest = 0;
        for index in (0..self.files.len()).rev() {
            let segment = self.files[index].segment.clone();
            let mut offset = FIRST_FRAME;
            while let Some(header) = self.frame_at(&segment, offset, salt)? {
                oldest = oldest.max(header.oldest);
                offset += header.frame_bytes();
                if header.kind == Kind::End {
                    break;
                }
            }
            self.reader.reset();
            if offset > FIRST_FRAME {
                break;
            }
        }
        let is_released = |file: &LogFile| file.segment.number < oldest;
        self.index = self.files.partition_point(is_released).min(self.files.len() - 1);
        Ok(())
    }

    fn open_one(&self, number: u64, salt: u64) -> Result<LogFile, OpenError> {
        let name = name(number);
        let io = |error| OpenError::io(&name, error);
        let file = self.storage.open(&name, false).map_err(io)?;
        let found_bytes = file.bytes().map_err(io)?;
        let header = SegmentHeader::read(&*file).map_err(io)?;
        if header.is_some_and(|header| header.salt != salt) {
            return Err(Damage::at(name, 0, Fault::Foreign).into());
        }
        let header = header.filter(|header| header.number == number);
        if header.is_some_and(|header| found_bytes < u64::from(header.bytes)) {
            return Err(Damage::at(name, found_bytes, Fault::Short).into());
        }
        let bytes = header.map_or_else(|| bytes_of(found_bytes), |header| header.bytes);
        let segment = Arc::new(Segment::new(number, bytes, file, header.is_some()));
        Ok(LogFile { segment, is_begun: header.is_some() })
    }

    /// Without META there may be segments that were made for it: the first, which gets its mark before the second is
    /// begun. There are no other frames in them yet.
    fn expect_no_records(&mut self, numbers: &[u64]) -> Result<(), OpenError> {
        let is_new = match numbers {
            [] => true,
            [1] => self.is_unused(1)?.is_some(),
            [1, 2] => self.is_unused(1)? == Some(true) && self.is_unused(2)? == Some(false),
            _ => false,
        };
        if is_new { Ok(()) } else { Err(Damage::at(META, 0, Fault::Meta).into()) }
    }

    /// Whether there is a mark in a segment, which has no other frame; none if it has.
    fn is_unused(&mut self, number: u64) -> Result<Option<bool>, OpenError> {
        let name = name(number);
        let file = self.storage.open(&name, false).map_err(|error| OpenError::io(&name, error))?;
        let found_bytes = file.bytes().map_err(|error| OpenError::io(&name, error))?;
        let header = SegmentHeader::read(&*file).map_err(|error| OpenError::io(&name, error))?;
        let Some(header) = header else { return Ok(Some(false)) };
        if header.number != number {
            return Ok(None);
        }
        let segment = Segment::new(number, header.bytes.min(bytes_of(found_bytes)), file, true);
        self.reader.reset();
        let mark = self.frame_at(&segment, FIRST_FRAME, header.salt)?;
        if mark.is_some_and(|mark| !mark.is_mark()) {
            return Ok(None);
        }
        for offset in (FIRST_FRAME..segment.bytes).step_by(PAGE_BYTES as usize).skip(1) {
            if self.frame_at(&segment, offset, header.salt)?.is_some() {
                return Ok(None);
            }
        }
        self.reader.reset();
        Ok(Some(mark.is_some()))
    }

    /// The records of the next frame: whole groups. None at the end of the log.
    ///
    /// # Errors
    /// Something is damaged, and whatever the file system says.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, OpenError> {
        Ok(self.next_frame_at()?.map(|(_, payload)| payload))
    }

    /// The same, and the address of the first record.
    pub(crate) fn next_frame_at(&mut self) -> Result<Option<(u64, &[u8])>, OpenError> {
        let Some(Meta { salt }) = self.meta else { return Ok(None) };
        while self.groups_end.is_none() {
            let LogFile { segment, is_begun } = &self.files[self.index];
            // It is the first that is needed, or the one before it has ended: its header was on stable storage by then.
            if !is_begun {
                return Err(Damage::at(name(segment.number), 0, Fault::Header).into());
            }
            let segment = segment.clone();
            let Some(header) = self.frame_at(&segment, self.offset, salt)? else {
                self.groups_end = Some(self.end_here(&segment, salt)?);
                break;
            };
            self.report.segments += u64::from(self.offset == FIRST_FRAME);
            self.last = Some((header, self.index, self.offset));
            match header.kind {
                Kind::Records => {
                    let at = self.offset;
                    self.offset += header.frame_bytes();
                    if header.payload_bytes > 0 {
                        self.report.frames += 1;
                        self.report.bytes += u64::from(header.payload_bytes);
                        let address = address(segment.number, at + HEADER_BYTES);
                        let payload = self.reader.payload(&*segment.file, at, header);
                        let payload = payload.map_err(|error| OpenError::io(&name(segment.number), error))?;
                        return Ok(Some((address, payload)));
                    }
                }
                Kind::Discarded => {
                    self.offset += header.frame_bytes();
                    self.report.discarded += 1;
                }
                Kind::End => {
                    self.index += 1;
                    self.offset = FIRST_FRAME;
                    self.reader.reset();
                    if self.index == self.files.len() {
                        return Err(Damage::at(name(segment.number + 1), 0, Fault::Missing).into());
                    }
                }
            }
        }
        Ok(None)
    }

    /// The file and the offset of the frame that was read last, for messages.
    #[must_use]
    pub fn place(&self) -> (String, u64) {
        let (index, offset) = self.last.map_or((0, 0), |(_, index, offset)| (index, offset));
        (name(self.files.get(index).map_or(0, |file| file.segment.number)), u64::from(offset))
    }

    /// The first segment that is needed, as the last frame says; none if there is no frame.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.last.map(|(header, ..)| header.oldest)
    }

    /// Returns the findings up to now.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn frame_at(&mut self, segment: &Segment, offset: u32, salt: u64) -> Result<Option<Header>, OpenError> {
        let place = segment.place(salt, offset);
        let read = self.reader.read(&*segment.file, place, segment.bytes);
        let frame = read.map_err(|error| OpenError::io(&name(segment.number), error))?;
        Ok(frame.map(|(header, _)| header))
    }

    /// There is no valid frame here: it is the end of the log, unless something follows that was written later than this
    /// had been on stable storage.
    fn end_here(&mut self, segment: &Segment, salt: u64) -> Result<Tail, OpenError> {
        let here = self.offset;
        let damage = || Damage::at(name(segment.number), u64::from(here), Fault::Frame).into();
        let mut has_leftover = false;
        self.reader.reset();
        for offset in (here..segment.bytes).step_by(PAGE_BYTES as usize).skip(1) {
            let found = self.frame_at(segment, offset, salt)?;
            if found.is_some_and(|header| header.synced > here)
                || self.reader.has_rejected_more_than(segment.bytes)
            {
                return Err(damage());
            }
            has_leftover |= found.is_some();
        }
        self.reader.reset();
        for later in self.index + 1..self.files.len() {
            let later = self.files[later].segment.clone();
            let found = self.frame_at(&later, FIRST_FRAME, salt)?.is_some();
            self.reader.reset();
            if found {
                return Err(damage());
            }
        }
        self.expect_beginning(segment)?;
        self.report.end = Some((name(segment.number), u64::from(here)));
        let begun = self.reader.is_begun(&*segment.file, segment.place(salt, here), segment.bytes);
        self.report.is_torn =
            has_leftover || begun.map_err(|error| OpenError::io(&name(segment.number), error))?;
        Ok(Tail { has_leftover })
    }

    /// The log begins where its last frame says. It has a frame: the first one is older than META.
    fn expect_beginning(&self, segment: &Segment) -> Result<(), Damage> {
        let first = self.files[0].segment.number;
        match self.oldest() {
            Some(oldest) if oldest < first => Err(missing(oldest, first)),
            Some(_) => Ok(()),
            None if first > 1 => Err(Damage::at(name(first - 1), 0, Fault::Missing)),
            None => Err(Damage::at(name(segment.number), u64::from(FIRST_FRAME), Fault::Empty)),
        }
    }
}

/// All of a file that may belong to a segment whose header does not say so.
fn bytes_of(file_bytes: u64) -> u32 {
    u32::try_from(file_bytes).unwrap_or(u32::MAX).min(BYTES_MOST)
}

/// A gap of at most this many segments is closed by a repair. A longer one says that one of the files beside it does not
/// belong there.
pub(crate) const GAP_MOST: u64 = 1_024;

/// Segments follow each other.
fn expect_no_gap(numbers: &[u64]) -> Result<(), Damage> {
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Ok(()) };
    let missing = (last - first + 1).saturating_sub(numbers.len() as u64);
    let gaps = numbers.windows(2).filter(|pair| pair[1] > pair[0] + 1);
    if missing > GAP_MOST
        && let Some(longest) = gaps.clone().max_by_key(|pair| pair[1] - pair[0])
    {
        return Err(stray(longest[0] + 1, longest[1]));
    }
    if *last > NUMBER_MOST {
        return Err(Damage::at(name(*last), 0, Fault::Number));
    }
    gaps.map(|pair| pair[0] + 1)
        .next()
        .map_or(Ok(()), |missing| Err(Damage::at(name(missing), 0, Fault::Missing)))
}

/// Segments from this number up to the file with that number are missing.
fn missing(from: u64, upto: u64) -> Damage {
    if upto - from > GAP_MOST { stray(from, upto) } else { Damage::at(name(from), 0, Fault::Missing) }
}

fn stray(from: u64, upto: u64) -> Damage {
    Damage::at(name(upto), 0, Fault::Gap { missing: upto - from })
}

impl std::fmt::Debug for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recovery").field("report", &self.report).finish_non_exhaustive()
    }
}
