//! Frames: what one commit writes. `docs/JOURNAL.md` draws them.

use std::io;

use crate::File;

/// Frames begin and end at multiples of this, so that no commit has to read back or write again what is there already.
pub(crate) const PAGE_BYTES: u32 = 4096;
/// In front of the records of a frame.
pub(crate) const HEADER_BYTES: u32 = 32;
/// Number of bytes that are read at once when frames are read in order.
const WINDOW_BYTES: u32 = 256 << 10;
/// A longer payload is only read into memory after its checksum was found to be right. Nearly all frames are shorter.
const TRUSTED_BYTES: u32 = 2 << 20;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The frame has whole groups of records.
    Records = 1,
    /// Nothing follows in this segment.
    End = 2,
    /// Here was something damaged, and the operator has given it up.
    Discarded = 3,
}

/// The place of a frame. It is part of both checksums: remains of an earlier use of the segment, or of another journal,
/// are never mistaken for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) salt: u64,
    pub(crate) segment: u64,
    pub(crate) offset: u32,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) payload_bytes: u32,
    /// The first segment that was needed when this was written.
    pub(crate) oldest: u64,
    /// Up to this offset the segment was on stable storage before this was written.
    pub(crate) synced: u32,
}

/// Returns `bytes` rounded up to whole pages. `bytes` is never longer than a segment.
pub(crate) fn padded(bytes: u32) -> u32 {
    bytes.next_multiple_of(PAGE_BYTES)
}

impl Header {
    /// Writes the header and the checksums to the front of `frame`, which has the payload behind the place for them. A
    /// discarded payload has no checksum, and may be left out.
    pub(crate) fn seal(self, frame: &mut [u8], place: Place) {
        let (front, payload) = frame.split_at_mut(HEADER_BYTES as usize);
        front[0..4].copy_from_slice(&self.payload_bytes.to_le_bytes());
        front[4..8].copy_from_slice(&[self.kind as u8, 0, 0, 0]);
        front[8..16].copy_from_slice(&self.oldest.to_le_bytes());
        front[16..20].copy_from_slice(&self.synced.to_le_bytes());
        let payload_crc = match self.kind {
            Kind::Discarded => 0,
            Kind::Records | Kind::End => place.payload_crc(&payload[..self.payload_bytes as usize]),
        };
        front[20..24].copy_from_slice(&payload_crc.to_le_bytes());
        front[24..28].fill(0);
        let crc = place.header_crc(&front[..28]);
        front[28..32].copy_from_slice(&crc.to_le_bytes());
    }

    /// The first frame of a journal, without records.
    pub(crate) fn mark(oldest: u64) -> Self {
        Self { kind: Kind::Records, payload_bytes: 0, oldest, synced: PAGE_BYTES }
    }

    /// Decodes the header at this place and the checksum of its payload. `None` if the header's checksum is wrong, the
    /// frame exceeds the segment, or a later segment is named as the oldest.
    fn parse(front: &[u8], place: Place, segment_bytes: u32) -> Option<(Self, u32)> {
        let word = |at: usize| front.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        if word(28)? != place.header_crc(&front[..28]) {
            return None;
        }
        let kind = match word(4)? {
            1 => Kind::Records,
            2 => Kind::End,
            3 => Kind::Discarded,
            _ => return None,
        };
        let oldest = u64::from(word(8)?) | u64::from(word(12)?) << 32;
        let header = Self { kind, payload_bytes: word(0)?, oldest, synced: word(16)? };
        let room = segment_bytes.checked_sub(place.offset)?.checked_sub(HEADER_BYTES)?;
        (header.payload_bytes <= room && oldest <= place.segment).then_some((header, word(20)?))
    }

    /// Whether the frame has no records: it says which segment is the oldest, or that the journal has begun.
    pub(crate) fn is_mark(self) -> bool {
        self.kind == Kind::Records && self.payload_bytes == 0
    }

    /// From this frame to the next.
    pub(crate) fn frame_bytes(self) -> u32 {
        padded(HEADER_BYTES + self.payload_bytes)
    }
}

impl Place {
    fn seed(self) -> u32 {
        let mut seed = [0; 20];
        seed[0..8].copy_from_slice(&self.salt.to_le_bytes());
        seed[8..16].copy_from_slice(&self.segment.to_le_bytes());
        seed[16..20].copy_from_slice(&self.offset.to_le_bytes());
        crc32c::crc32c(&seed)
    }

    fn header_crc(self, front: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed(), front)
    }

    /// Its length counts too, because zeros behind a payload would be missed by nobody otherwise.
    fn payload_crc(self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(self.length_crc(payload.len() as u64), payload)
    }

    /// Checksum of a payload's length. The checksum of the payload continues with its bytes.
    fn length_crc(self, payload_bytes: u64) -> u32 {
        crc32c::crc32c_append(self.seed(), &payload_bytes.to_le_bytes())
    }
}

/// Reads the frames of one segment, with few calls.
#[derive(Default)]
pub(crate) struct FrameReader {
    /// A buffer of at least a window, once something was read.
    buffer: Vec<u8>,
    /// Number of bytes at the beginning of the buffer that were read from the file: the window.
    filled: usize,
    /// Offset of the window in the segment.
    start: u32,
    /// The length of all payloads whose checksum was wrong though their header's was right, in bytes.
    rejected_bytes: u64,
}

impl FrameReader {
    /// Forgets what was read: another segment is read next, or this one has changed.
    pub(crate) fn reset(&mut self) {
        self.filled = 0;
        self.rejected_bytes = 0;
    }

    /// Frames do not overlap: all that are torn are no longer than their segment. More was made to cost time.
    pub(crate) fn has_rejected_more_than(&self, segment_bytes: u32) -> bool {
        self.rejected_bytes > u64::from(segment_bytes)
    }

    /// The frame at this place with its payload, which is left out where it was discarded; none if there is no valid one.
    pub(crate) fn read(
        &mut self,
        file: &dyn File,
        place: Place,
        segment_bytes: u32,
    ) -> io::Result<Option<(Header, &[u8])>> {
        let front = self.bytes(file, place.offset, HEADER_BYTES)?;
        let Some((header, payload_crc)) = Header::parse(front, place, segment_bytes) else { return Ok(None) };
        if header.kind == Kind::Discarded {
            return Ok(Some((header, &[])));
        }
        let payload_bytes = header.payload_bytes;
        if payload_bytes > TRUSTED_BYTES && self.crc_of_pieces(file, place, payload_bytes)? != payload_crc {
            self.rejected_bytes += u64::from(payload_bytes);
            return Ok(None);
        }
        let frame = self.bytes(file, place.offset, HEADER_BYTES + payload_bytes)?;
        let payload = frame.get(HEADER_BYTES as usize..).unwrap_or_default();
        if payload.len() != payload_bytes as usize || place.payload_crc(payload) != payload_crc {
            self.rejected_bytes += u64::from(payload_bytes);
            return Ok(None);
        }
        // Borrowed again, because the way out above needs the reader.
        Ok(Some((header, self.payload(file, place.offset, header)?)))
    }

    /// The checksum of a long payload, of which no more than a window is in memory.
    fn crc_of_pieces(&mut self, file: &dyn File, place: Place, payload_bytes: u32) -> io::Result<u32> {
        let (mut at, end) = (place.offset + HEADER_BYTES, place.offset + HEADER_BYTES + payload_bytes);
        let mut crc = place.length_crc(u64::from(payload_bytes));
        while at < end {
            let piece = self.bytes(file, at, WINDOW_BYTES.min(end - at))?;
            if piece.is_empty() {
                break;
            }
            crc = crc32c::crc32c_append(crc, piece);
            at += u32::try_from(piece.len()).expect("a window");
        }
        Ok(crc)
    }

    /// The payload of a frame that was [read](Self::read) just now and found to be valid: it is in the window still.
    pub(crate) fn payload(&mut self, file: &dyn File, offset: u32, header: Header) -> io::Result<&[u8]> {
        self.bytes(file, offset + HEADER_BYTES, header.payload_bytes)
    }

    /// Whether a frame was begun at this place: its header is right, whatever became of its payload.
    pub(crate) fn is_begun(&mut self, file: &dyn File, place: Place, segment_bytes: u32) -> io::Result<bool> {
        let front = self.bytes(file, place.offset, HEADER_BYTES)?;
        Ok(Header::parse(front, place, segment_bytes).is_some())
    }

    /// Returns `count` bytes from `offset` on; fewer at the end of the file.
    fn bytes(&mut self, file: &dyn File, offset: u32, count: u32) -> io::Result<&[u8]> {
        let is_there = offset >= self.start
            && u64::from(offset) + u64::from(count) <= u64::from(self.start) + self.filled as u64;
        if !is_there {
            if self.buffer.capacity() > TRUSTED_BYTES as usize * 2 {
                self.buffer = Vec::new();
            }
            let wanted = count.max(WINDOW_BYTES) as usize;
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            (self.start, self.filled) = (offset, 0);
            self.filled = file.read_at(u64::from(offset), &mut self.buffer[..wanted])?;
        }
        let from = (offset - self.start) as usize;
        let upto = (from + count as usize).min(self.filled);
        Ok(&self.buffer[from.min(upto)..upto])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { salt: 7, segment: 3, offset: 4096 };

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES as usize];
        frame.extend_from_slice(payload);
        let payload_bytes = u32::try_from(payload.len()).expect("short");
        Header { kind: Kind::Records, payload_bytes, oldest: 2, synced: 4096 }.seal(&mut frame, PLACE);
        frame
    }

    #[test]
    fn a_frame_is_only_valid_where_it_was_written() {
        let frame = frame(b"records");
        let is_valid = |place| Header::parse(&frame, place, 1 << 20).is_some();
        assert!(is_valid(PLACE));
        assert!(!is_valid(Place { salt: 8, ..PLACE }));
        assert!(!is_valid(Place { segment: 4, ..PLACE }));
        assert!(!is_valid(Place { offset: 8192, ..PLACE }));
    }

    #[test]
    fn a_header_says_what_was_written_and_any_flipped_bit_is_seen() {
        let mut frame = frame(b"records");
        let (header, _) = Header::parse(&frame, PLACE, 1 << 20).expect("it is whole");
        assert_eq!((header.kind, header.payload_bytes, header.oldest), (Kind::Records, 7, 2));
        assert_eq!(header.frame_bytes(), PAGE_BYTES);
        for bit in 0..HEADER_BYTES as usize * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&frame, PLACE, 1 << 20).is_none(), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_frame_that_would_leave_its_segment_is_none() {
        assert!(Header::parse(&frame(b"records"), PLACE, 4096 + 38).is_none());
        assert!(Header::parse(&frame(b"records"), PLACE, 4096 + 39).is_some());
    }
}
