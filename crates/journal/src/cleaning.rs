//! The oldest segment on its way back to the ledger: between the preparer, which reads it, and the ledger's thread.

use std::collections::VecDeque;

use crate::Damage;

/// Bytes of records that are read ahead of the ledger.
const AHEAD_BYTES: usize = 1 << 20;
/// Maximum bytes of copies before they must be durable. Copies are most of the unrequested bytes of a commit, and other
/// writers wait longer for them. Records that are not copied cost no commit anything.
const PIECE_BYTES: usize = 256 << 10;

/// A segment that is being cleaned.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    stage: Stage,
    /// Payloads of frames that were read and not handed out.
    frames: VecDeque<Vec<u8>>,
    frames_bytes: usize,
    /// Bytes that were copied since copies were durable.
    piece_bytes: usize,
    /// Nothing is handed out before this group is durable.
    waits_for: Option<u64>,
    /// There was no space for the last copy. It is tried again; what was copied before it stays copied.
    is_stalled: bool,
    /// The oldest segment could not be read again: nothing is cleaned any more.
    pub(crate) damage: Option<Damage>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// Frames are being read.
    Reading,
    /// All frames are read, and some wait to be copied.
    Read,
    /// All are copied, the last one as this group or before it.
    Copied(u64),
}

impl Cleaning {
    pub(crate) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Whether there is something for [`next`](Self::next), or a copy to try again.
    pub(crate) fn has_records(&self) -> bool {
        !self.frames.is_empty() || self.stage == Stage::Read || self.is_stalled
    }

    /// Whether there was no space for the last copy.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    pub(crate) fn begin(&mut self) {
        self.stage = Stage::Reading;
    }

    pub(crate) fn wants_frames(&self) -> bool {
        self.stage == Stage::Reading && self.frames_bytes < AHEAD_BYTES
    }

    pub(crate) fn push(&mut self, payload: Vec<u8>) {
        self.frames_bytes += payload.len();
        self.frames.push_back(payload);
    }

    pub(crate) fn note_copied(&mut self, bytes: usize) {
        self.piece_bytes += bytes;
        self.is_stalled = false;
    }

    /// There is no space for a copy. Returns whether that is new.
    pub(crate) fn stall(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stalled, self.stage != Stage::Idle) && self.is_stalled
    }

    pub(crate) fn end(&mut self) {
        self.stage = Stage::Read;
    }

    /// The group at which everything was copied, if it was.
    pub(crate) fn copied(&self) -> Option<u64> {
        if let Stage::Copied(group) = self.stage { Some(group) } else { None }
    }

    /// The group that has to be durable before anything more is copied, or before the segment comes back.
    pub(crate) fn waits_for(&self) -> Option<u64> {
        self.copied().or(self.waits_for)
    }

    pub(crate) fn give_up(&mut self, damage: Damage) {
        *self = Self { damage: Some(damage), ..Self::default() };
    }

    pub(crate) fn forget(&mut self) {
        self.stage = Stage::Idle;
    }

    /// The next frame, and whether the preparer has something to do. `appended` is asked for the last group, which has to
    /// become durable soon.
    pub(crate) fn next(
        &mut self,
        mut appended: impl FnMut() -> u64,
        durable: u64,
    ) -> (Option<Vec<u8>>, bool) {
        // Whoever asks for more has copied what was handed out, or it is not true any more.
        self.is_stalled = false;
        if self.stage == Stage::Idle || matches!(self.stage, Stage::Copied(_)) {
            return (None, false);
        }
        if self.piece_bytes >= PIECE_BYTES || self.waits_for.is_some() {
            let copied = *self.waits_for.get_or_insert_with(&mut appended);
            if durable < copied {
                return (None, false);
            }
            self.waits_for = None;
            self.piece_bytes = 0;
        }
        match self.frames.pop_front() {
            Some(frame) => {
                self.frames_bytes -= frame.len();
                (Some(frame), self.frames_bytes < AHEAD_BYTES / 2)
            }
            None if self.stage == Stage::Read => {
                self.stage = Stage::Copied(appended());
                self.piece_bytes = 0;
                (None, true)
            }
            None => (None, true),
        }
    }
}
