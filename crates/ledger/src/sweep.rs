//! Expired messages that nobody comes for are looked for now and then.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base::{Now, QueueId};

use crate::delivery::Delivery;
use crate::extent::count_within;
use crate::gauges::{add, shift, subtract};
use crate::publishing::Publishing;
use crate::record::MessageId;
use crate::{Effects, Record};

/// Interval between searches for expired messages, in milliseconds.
const SWEEP_MS: u64 = 1_000;
/// Interval between searches while retained messages are found, in milliseconds.
const BUSY_SWEEP_MS: u64 = 10;
/// Maximum number of retained messages that one search visits.
const VISITS: usize = 1_000;
/// The most topic names of expired values that one step finds, in bytes, and one more.
const TOPIC_BYTES: usize = 256 << 10;
/// The length of a group of records that clear expired values, in bytes, unless one alone is longer: other groups that are
/// written with it do not wait for megabytes.
const CLEARED_BYTES: usize = 16 << 10;

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

impl Publishing<'_> {
    /// Makes one step through the retained messages. Returns whether it has cleared any.
    pub(crate) fn sweep_retained(&mut self, now: Now, to: &mut impl Effects) -> bool {
        let mut has_cleared = false;
        let expired = self.retained.look_for_expired(VISITS, TOPIC_BYTES, now);
        let is_on_record = |topic: &String| self.retained.is_on_record(topic);
        let (recorded, others): (Vec<_>, Vec<_>) = expired.into_iter().partition(is_on_record);
        has_cleared |= self.clear_expired(&others);
        let mut rest = &recorded[..];
        // The next round finds the rest again.
        while !rest.is_empty() && !to.lacks_space() {
            let each = rest.iter().map(|topic| cleared(topic).bytes_most());
            let (piece, behind) = rest.split_at(count_within(each, CLEARED_BYTES.min(to.group_bytes_max())));
            rest = behind;
            let records: Vec<Record<'_>> = piece.iter().map(|topic| cleared(topic)).collect();
            if self.replies.commit(&records, to).is_ok() {
                has_cleared |= self.clear_expired(piece);
            }
        }
        has_cleared
    }

    fn clear_expired(&mut self, topics: &[String]) -> bool {
        topics.iter().for_each(|topic| self.retained.clear(topic));
        add(&self.gauges.retained_expired, topics.len());
        !topics.is_empty()
    }
}

impl Delivery<'_> {
    pub(crate) fn sweep_queue(
        &mut self,
        queue: QueueId,
        after: Option<MessageId>,
        now: Now,
        to: &mut impl Effects,
    ) -> Option<MessageId> {
        let mut expired = Vec::new();
        let line = self.lines.find_mut(queue)?;
        if line.expiring() == 0 {
            self.lines.sweep.forget(queue);
            return None;
        }
        let next = line.look_for_expired(after, VISITS, now, &mut expired);
        let name = line.incarnation().expect("what waits is for a group, or for a session that lasts");
        let removed = |message: &MessageId| Record::Removed { queue: name, message: *message };
        let (recorded, mut gone): (Vec<_>, Vec<_>) =
            expired.into_iter().partition(|message| line.keeps(*message));
        let records: Vec<Record<'_>> = recorded.iter().map(removed).collect();
        if !records.is_empty() && self.replies.commit(&records, to).is_ok() {
            gone.extend(recorded);
        }
        if !gone.is_empty() {
            for message in gone {
                let entry = line.take(message).expect("it was found here");
                shift(&self.gauges.queued, &self.gauges.expired, 1);
                subtract(&self.gauges.queued_bytes, entry.size_bytes());
            }
            self.cursors.unpark(self.lines, self.settings, queue);
            // The removed message may have been in the middle of a read, and the messages behind it were not requested.
            self.lines.is_ready(queue);
        }
        next
    }
}

#[allow(clippy::ptr_arg, reason = "it is mapped over strings")]
fn cleared(topic: &str) -> Record<'_> {
    Record::Cleared { topic: Cow::Borrowed(topic) }
}
