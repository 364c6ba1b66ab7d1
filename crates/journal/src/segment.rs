//! Segments: files of one length, numbered without gaps, written again and again.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::frame::{PAGE_BYTES, Place};
use crate::{File, Storage};

/// The version of everything in the directory.
pub(crate) const VERSION: u32 = 1;
/// The first page of a segment is its own, and the last is kept for the frame that ends it.
pub(crate) const FIRST_FRAME: u32 = PAGE_BYTES;
/// The least length of a segment, in bytes.
pub(crate) const BYTES_LEAST: u32 = 64 << 10;
/// The greatest length of a segment, in bytes.
pub const BYTES_MOST: u32 = 1 << 30;
/// The greatest number of a segment: the address of a record has 32 bits for it.
pub(crate) const NUMBER_MOST: u64 = u32::MAX as u64;
const MAGIC: &[u8; 8] = b"PONDSEGM";
const PREFIX: &str = "segment-";
const DIGITS: usize = 16;

/// A file of the log.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) bytes: u32,
    pub(crate) file: Arc<dyn File>,
    /// The file is full of zeros, or of its earlier contents, and has its own header.
    is_ready: AtomicBool,
    /// Bytes that frames have taken, or may have taken while that is not known.
    used_bytes: AtomicU32,
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) bytes: u32,
}

impl Segment {
    pub(crate) fn new(number: u64, bytes: u32, file: Arc<dyn File>, is_ready: bool) -> Self {
        let (is_ready, used_bytes) = (AtomicBool::new(is_ready), AtomicU32::new(room_of(bytes)));
        Self { number, bytes, file, is_ready, used_bytes }
    }

    /// The most that frames have taken of it.
    pub(crate) fn used_bytes(&self) -> u32 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// No frames come behind this place.
    pub(crate) fn set_end(&self, offset: u32) {
        self.used_bytes.store(offset - FIRST_FRAME, Ordering::Relaxed);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    pub(crate) fn place(&self, salt: u64, offset: u32) -> Place {
        Place { salt, segment: self.number, offset }
    }

    /// Up to here frames may be written.
    pub(crate) fn room_ends(&self) -> u32 {
        self.bytes - PAGE_BYTES
    }

    /// Returns the bytes available to frames in the whole segment.
    pub(crate) fn room(&self) -> u32 {
        room_of(self.bytes)
    }

    /// Writes the header of a segment whose space is there, and syncs it: from then on it is ready.
    pub(crate) fn begin(&self, salt: u64) -> io::Result<()> {
        let header = SegmentHeader { number: self.number, salt, bytes: self.bytes };
        self.file.write_at(0, &header.encode())?;
        self.file.sync_data()?;
        self.set_ready();
        Ok(())
    }
}

/// Bytes for frames in a segment of this length; none in a file that was only begun.
pub(crate) fn room_of(bytes: u32) -> u32 {
    bytes.saturating_sub(FIRST_FRAME + PAGE_BYTES)
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("number", &self.number).field("bytes", &self.bytes).finish()
    }
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES as usize];
        page[0..8].copy_from_slice(MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        page[16..24].copy_from_slice(&self.number.to_le_bytes());
        page[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&page[..32]);
        page[32..36].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// None if the checksum is wrong, it is not the header of a segment, or no segment has that length.
    pub(crate) fn decode(page: &[u8]) -> Option<Self> {
        let word = |at: usize| page.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let long = |at: usize| Some(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
        let is_ours = page.get(..8)? == MAGIC && word(8)? == VERSION;
        let is_whole = word(32)? == crc32c::crc32c(&page[..32]);
        let header = Self { number: long(16)?, salt: long(24)?, bytes: word(12)? };
        (is_ours && is_whole && is_length(header.bytes)).then_some(header)
    }

    /// Reads the header of a segment from this file.
    pub(crate) fn read(file: &dyn File) -> io::Result<Option<Self>> {
        let mut front = [0; 64];
        let read = file.read_at(0, &mut front)?;
        Ok(Self::decode(&front[..read]))
    }
}

/// Whether a segment can have this length.
pub(crate) fn is_length(bytes: u32) -> bool {
    bytes.is_multiple_of(PAGE_BYTES) && (BYTES_LEAST..=BYTES_MOST).contains(&bytes)
}

/// The length of a segment that is nearest to that of its file.
pub(crate) fn length_for(file_bytes: u64) -> u32 {
    let bytes = u32::try_from(file_bytes).unwrap_or(u32::MAX).clamp(BYTES_LEAST, BYTES_MOST);
    bytes - bytes % PAGE_BYTES
}

/// The file of the segment with this number.
pub(crate) fn name(number: u64) -> String {
    format!("{PREFIX}{number:016}")
}

/// The number of the segment in this file; none if it is not one. Segments are counted from 1.
pub(crate) fn number(file: &str) -> Option<u64> {
    let digits = file.strip_prefix(PREFIX)?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { digits.parse().ok().filter(|number| *number > 0) } else { None }
}

/// Whether this is the name of a segment. A directory may have files with other names, which the journal leaves alone.
#[must_use]
pub fn is_segment(file: &str) -> bool {
    number(file).is_some()
}

/// The numbers of all segments, in order.
pub(crate) fn numbers(storage: &dyn Storage) -> io::Result<Vec<u64>> {
    let names = storage.list()?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|file| number(file)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// A segment that is being made, a piece at a time, so that a commit never waits for more than a piece.
pub(crate) struct Filling {
    pub(crate) segment: Arc<Segment>,
    /// The space for the whole of it is there.
    pub(crate) is_reserved: bool,
    /// Full of zeros up to here.
    pub(crate) filled: u32,
}

/// Number of bytes that are filled and synced at a time.
pub(crate) const PIECE_BYTES: u32 = 1 << 20;

/// Written again and again.
static ZEROS: [u8; ZEROS_LEN as usize] = [0; ZEROS_LEN as usize];
const ZEROS_LEN: u32 = 64 << 10;

impl Filling {
    /// Makes the file. On an error nothing is left of it, as far as that is possible.
    pub(crate) fn begin(storage: &dyn Storage, number: u64, bytes: u32) -> io::Result<Self> {
        let name = name(number);
        let made = storage.open(&name, true).and_then(|file| {
            let is_reserved = file.allocate(u64::from(bytes))?;
            storage.sync()?;
            Ok(Self { segment: Arc::new(Segment::new(number, bytes, file, false)), is_reserved, filled: 0 })
        });
        if made.is_err() {
            let _ = storage.remove(&name).and_then(|()| storage.sync());
        }
        made
    }

    /// Fills the next piece; true when the segment is ready.
    pub(crate) fn fill_some(&mut self, salt: u64) -> io::Result<bool> {
        let Segment { bytes, file, .. } = &*self.segment;
        let end = self.filled + PIECE_BYTES.min(bytes - self.filled);
        let mut at = self.filled;
        while at < end {
            let len = ZEROS_LEN.min(end - at);
            file.write_at(u64::from(at), &ZEROS[..len as usize])?;
            at += len;
        }
        file.sync_data()?;
        self.filled = end;
        if self.filled < *bytes {
            return Ok(false);
        }
        // Behind a header that is right there is the whole segment.
        self.segment.begin(salt)?;
        Ok(true)
    }
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling").field("segment", &self.segment).field("filled", &self.filled).finish()
    }
}

/// Makes a whole segment at once.
pub(crate) fn create(storage: &dyn Storage, salt: u64, number: u64, bytes: u32) -> io::Result<Arc<Segment>> {
    let mut filling = Filling::begin(storage, number, bytes)?;
    loop {
        match filling.fill_some(salt) {
            Ok(false) => {}
            Ok(true) => return Ok(filling.segment),
            Err(error) => {
                let _ = storage.remove(&name(number)).and_then(|()| storage.sync());
                return Err(error);
            }
        }
    }
}
