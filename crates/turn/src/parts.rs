//! Outputs that are too long to be written at once: they are written in parts, in turn with each other.

use std::collections::VecDeque;

use base::ConnectionId;

/// An output that is written in parts is huge if more than this waits, in bytes.
const HUGE_BYTES: usize = 512 * 1024;

/// How an output is written. An output may become longer, and is direct again when it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Length {
    /// It is written in one piece.
    #[default]
    Direct,
    /// In parts. A few large messages wait.
    Large,
    /// In parts. Large outputs do not wait for all huge ones.
    Huge,
}

impl Length {
    /// The length of an output that is written in parts, with this many bytes waiting.
    pub(crate) fn in_parts(waiting_bytes: usize) -> Self {
        if waiting_bytes > HUGE_BYTES { Self::Huge } else { Self::Large }
    }

    pub(crate) fn is_in_parts(self) -> bool {
        self != Self::Direct
    }
}

/// Outputs that are written in parts and are not blocked, each once.
#[derive(Default)]
pub(crate) struct InParts {
    large: VecDeque<ConnectionId>,
    huge: VecDeque<ConnectionId>,
    /// From one turn of the shard to the next, because a turn may visit one output only.
    is_turn_of_huge: bool,
}

/// Outputs that one turn may still visit.
pub(crate) struct Share {
    large: usize,
    huge: usize,
}

impl InParts {
    pub(crate) fn push(&mut self, id: ConnectionId, length: Length) {
        match length {
            Length::Huge => self.huge.push_back(id),
            Length::Large | Length::Direct => self.large.push_back(id),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.large.is_empty() && self.huge.is_empty()
    }

    /// The outputs that one turn may visit: each that stands in a queue now, once.
    pub(crate) fn share(&self) -> Share {
        Share { large: self.large.len(), huge: self.huge.len() }
    }

    /// The next output to be visited. The queues take turns.
    pub(crate) fn next(&mut self, share: &mut Share) -> Option<ConnectionId> {
        let is_huge = if self.is_turn_of_huge { share.huge > 0 } else { share.large == 0 };
        self.is_turn_of_huge = !is_huge;
        let (queue, left) =
            if is_huge { (&mut self.huge, &mut share.huge) } else { (&mut self.large, &mut share.large) };
        *left = left.checked_sub(1)?;
        queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    #[test]
    fn the_queues_take_turns_and_each_output_is_visited_once() {
        let mut parts = InParts::default();
        (0..4).for_each(|slot| parts.push(connection(slot), Length::Huge));
        (10..12).for_each(|slot| parts.push(connection(slot), Length::Large));
        let mut share = parts.share();
        let mut visited = Vec::new();
        while let Some(id) = parts.next(&mut share) {
            visited.push(id.slot);
            parts.push(id, Length::Large);
        }
        assert_eq!(visited, [10, 0, 11, 1, 2, 3]);
        assert!(!parts.is_empty());
    }

    #[test]
    fn the_queues_take_turns_although_a_turn_of_the_shard_visits_one_output_only() {
        let mut parts = InParts::default();
        (0..2).for_each(|slot| parts.push(connection(slot), Length::Huge));
        (10..12).for_each(|slot| parts.push(connection(slot), Length::Large));
        let visited: Vec<u32> = std::iter::from_fn(|| {
            let mut share = parts.share();
            parts.next(&mut share).map(|id| id.slot)
        })
        .collect();
        assert_eq!(visited, [10, 0, 11, 1]);
    }

    #[test]
    fn the_length_of_an_output_depends_on_what_waits() {
        assert_eq!(Length::in_parts(HUGE_BYTES), Length::Large);
        assert_eq!(Length::in_parts(HUGE_BYTES + 1), Length::Huge);
        assert!(Length::Large.is_in_parts() && !Length::Direct.is_in_parts());
    }
}
