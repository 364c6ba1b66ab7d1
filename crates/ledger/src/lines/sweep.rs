//! Expired messages that nobody comes for are looked for now and then.

use std::collections::BTreeSet;

use base::{Now, QueueId};

use crate::record::MessageId;

/// Interval between searches for expired messages, in milliseconds.
const SWEEP_MS: u64 = 1_000;
/// Interval between searches while retained messages are found, in milliseconds.
const BUSY_SWEEP_MS: u64 = 10;
/// State of the sweep for expired messages.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    next_ms: u64,
    /// When the next round through the queues begins.
    queues_ms: u64,
    /// Queues with messages that will expire, or had some.
    queues: BTreeSet<QueueId>,
    /// A round goes on behind this message of this queue.
    at: Option<(QueueId, Option<MessageId>)>,
}

impl Sweep {
    pub(crate) fn add(&mut self, queue: QueueId) {
        self.queues.insert(queue);
    }

    pub(crate) fn forget(&mut self, queue: QueueId) {
        self.queues.remove(&queue);
    }

    pub(crate) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.at.is_some()
    }

    pub(crate) fn next_ms(&self) -> u64 {
        self.next_ms
    }

    pub(crate) fn is_due(&self, now: Now) -> bool {
        now.monotonic_ms >= self.next_ms
    }

    /// Begins a round through the queues, unless it is too early or one is under way.
    pub(crate) fn begin_round(&mut self, has_found: bool, now: Now) {
        self.next_ms = now.monotonic_ms + if has_found { BUSY_SWEEP_MS } else { SWEEP_MS };
        if self.at.is_none() && now.monotonic_ms >= self.queues_ms {
            self.queues_ms = now.monotonic_ms + SWEEP_MS;
            self.at = self.queues.first().map(|queue| (*queue, None));
        }
    }

    /// The queue and the message behind which the round goes on.
    pub(crate) fn take_place(&mut self) -> Option<(QueueId, Option<MessageId>)> {
        self.at.take()
    }

    /// A step has looked at a queue, up to this message if there are others behind it.
    pub(crate) fn go_on(&mut self, queue: QueueId, after: Option<MessageId>) {
        let next = after.map(|after| (queue, Some(after)));
        let behind = (std::ops::Bound::Excluded(queue), std::ops::Bound::Unbounded);
        self.at = next.or_else(|| self.queues.range(behind).next().map(|next| (*next, None)));
    }
}
