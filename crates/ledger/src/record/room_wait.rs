//! Commands that wait until there is space for their records.

use crate::record::keeper::RecordRoom;

/// Maximum delay of commands that wait for space, in milliseconds. Then they are handled, and refused if there is no
/// space.
const WAIT_MS_MAX: u64 = 5_000;

/// How long commands wait because the journal has no space for their records just now. In a burst, a disk takes longer to make
/// a segment than it takes to fill one. Old records are copied meanwhile, and that makes space.
#[derive(Debug, Default)]
pub struct RoomWait {
    /// When there was too little first.
    since_ms: Option<u64>,
}

impl RoomWait {
    /// Whether nothing is to be committed now but copies.
    pub fn waits(&mut self, room: RecordRoom, now_ms: u64) -> bool {
        match room {
            RecordRoom::Enough => {
                self.since_ms = None;
                false
            }
            RecordRoom::Little => now_ms < self.since_ms.get_or_insert(now_ms).saturating_add(WAIT_MS_MAX),
            RecordRoom::None => {
                self.since_ms.get_or_insert(now_ms);
                true
            }
        }
    }

    /// Returns the latest time at which a waiting thread has to ask again, even if nobody has woken it.
    #[must_use]
    pub fn poll_timeout(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.since_ms?.saturating_add(WAIT_MS_MAX);
        Some(if until_ms > now_ms { until_ms } else { now_ms.saturating_add(WAIT_MS_MAX) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_a_bounded_time_unless_what_frees_space_would_be_lost() {
        let mut room_wait = RoomWait::default();
        assert!(!room_wait.waits(RecordRoom::Enough, 0) && room_wait.poll_timeout(0).is_none());
        assert!(room_wait.waits(RecordRoom::Little, 10) && room_wait.waits(RecordRoom::Little, 5_009));
        assert_eq!(room_wait.poll_timeout(5_009), Some(5_010));
        assert!(!room_wait.waits(RecordRoom::Little, 5_010), "from now on it is refused");
        assert!(room_wait.waits(RecordRoom::None, 9_000));
        assert!(!room_wait.waits(RecordRoom::Enough, 9_001));
        assert!(room_wait.waits(RecordRoom::Little, 9_002), "it was well in between");
    }
}
