//! Settings that an operator may choose.

use protocol::Durability;

use crate::OpenError;
use crate::frame::{HEADER_BYTES, PAGE_BYTES};
use crate::segment::{self, BYTES_MOST, FIRST_FRAME};

/// A frame is not begun larger than this: reading it back takes that much memory.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Segments do not double if fewer than this number of the doubled length would fit into the limit. Space that cannot
/// be used, because it shares a segment with needed records or is kept for copies, then is a small part of the limit.
const SEGMENTS_LEAST: u64 = 16;

/// Settings that an operator may choose. Each of them can change from one start to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The length of a segment while there are few, in bytes: whole pages of 4 KiB, at least 64 KiB. A group of records
    /// has to fit into one.
    pub segment_bytes_min: u32,
    /// The length of a segment when there are many, in bytes.
    pub segment_bytes_max: u32,
    /// Maximum bytes of all segments together.
    pub disk_bytes_max: u64,
    /// Bytes of the file system that are left to others.
    pub free_bytes_min: u64,
    /// The most that anybody waits for: a weaker one than [`Fsync`](Durability::Fsync) saves the disk work.
    pub durability: Durability,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_bytes_min: 8 << 20,
            segment_bytes_max: 64 << 20,
            disk_bytes_max: u64::MAX,
            free_bytes_min: 64 << 20,
            durability: Durability::default(),
        }
    }
}

impl Settings {
    /// The longest group of records, in bytes: it fits into any segment, and an eighth of that is kept for what a copy may
    /// have more than what was copied.
    #[must_use]
    pub fn group_bytes_max(&self) -> u32 {
        self.segment_bytes_min - self.segment_bytes_min / 8 - FIRST_FRAME - PAGE_BYTES - HEADER_BYTES
    }

    /// Returns the length of the next segment, for a log of this length, and for a longest copy of this length that had
    /// no place. An operator may have lowered the minimum length since the copied record was written.
    pub(crate) fn segment_bytes_for(&self, log_bytes: u64, copy_bytes: usize) -> u32 {
        let pages = usize::try_from(FIRST_FRAME + PAGE_BYTES + HEADER_BYTES).expect("a few");
        let mut bytes = self.segment_bytes(log_bytes);
        while (bytes as usize - bytes as usize / 8) < copy_bytes + pages && bytes < BYTES_MOST {
            bytes = bytes.saturating_mul(2).min(BYTES_MOST);
        }
        bytes
    }

    /// A frame of this length takes no more groups.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        (self.segment_bytes_min / 8).min(FRAME_BYTES_MAX) as usize
    }

    /// Returns the length of the next segment, for a log of this length.
    pub(crate) fn segment_bytes(&self, log_bytes: u64) -> u32 {
        let mut bytes = self.segment_bytes_min;
        let may_double = |bytes: u32| {
            let is_short = u64::from(bytes) * 8 <= log_bytes;
            is_short && u64::from(bytes) * 2 * SEGMENTS_LEAST <= self.disk_bytes_max
        };
        while bytes < self.segment_bytes_max && may_double(bytes) {
            bytes = bytes.saturating_mul(2);
        }
        bytes.min(self.segment_bytes_max)
    }

    /// Returns the length of a segment of at most `bytes` that fits into `room`; `None` if the room is too small.
    pub(crate) fn segment_bytes_within(&self, bytes: u32, room: u64) -> Option<u32> {
        let mut bytes = bytes;
        while u64::from(bytes) > room && bytes > self.segment_bytes_min {
            bytes = (bytes / 2).max(self.segment_bytes_min);
        }
        (u64::from(bytes) <= room).then_some(bytes)
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let (least, most) = (self.segment_bytes_min, self.segment_bytes_max);
        if !segment::is_length(least) || !segment::is_length(most) || least > most {
            return Err(OpenError::Settings("a segment has whole pages of 4 KiB, from 64 KiB to 1 GiB"));
        }
        if self.disk_bytes_max < 4 * u64::from(least) {
            return Err(OpenError::Settings("there must be space for four segments"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_grow_with_the_log_up_to_their_bound() {
        let settings =
            Settings { segment_bytes_min: 1 << 20, segment_bytes_max: 6 << 20, ..Settings::default() };
        let bytes = |log: u64| settings.segment_bytes(log << 20) >> 20;
        assert_eq!([bytes(0), bytes(7), bytes(8), bytes(16), bytes(1 << 20)], [1, 1, 2, 4, 6]);
        let settings = Settings { disk_bytes_max: 64 << 20, ..settings };
        assert_eq!(settings.segment_bytes(1 << 40), 4 << 20, "at least 16 of them fit into the limit");
    }

    #[test]
    fn settings_that_cannot_be_right_are_refused() {
        let check = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().is_ok()
        };
        assert!(check(|_| {}));
        assert!(!check(|settings| settings.segment_bytes_min = 100_000));
        assert!(!check(|settings| settings.segment_bytes_min = 128 << 20));
        assert!(!check(|settings| settings.segment_bytes_min = 4 << 10));
        assert!(!check(|settings| settings.disk_bytes_max = 31 << 20));
    }
}
