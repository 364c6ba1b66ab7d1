//! Expired messages that nobody comes for are looked for now and then.

use std::borrow::Cow;
use std::collections::BTreeSet;

use index::QueueId;
use session::Now;

use crate::gauges::{add, shift, subtract};
use crate::record::MessageId;
use crate::replies::QueueOf;
use crate::{Effects, Ledger, Record};

/// Expired messages are looked for this often...
const SWEEP_MS: u64 = 1_000;
/// ... as many at a time as one step visits.
const VISITS: usize = 1_000;

/// Where the sweep is.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    next_ms: u64,
    /// Queues with messages that will expire, or had some.
    queues: BTreeSet<QueueOf>,
    /// A round goes on behind this message of this queue.
    at: Option<(QueueOf, Option<MessageId>)>,
}

impl Sweep {
    pub(crate) fn add(&mut self, queue: QueueOf) {
        self.queues.insert(queue);
    }

    pub(crate) fn forget(&mut self, session: QueueId) {
        self.queues.remove(&QueueOf::Session(session));
    }

    pub(crate) fn forget_group(&mut self, group: QueueId) {
        self.queues.remove(&QueueOf::Group(group));
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
}

impl Ledger {
    /// One piece of the sweep through the retained messages, and one of the round through the queues.
    pub(crate) fn sweep(&mut self, now: Now, to: &mut impl Effects) {
        if now.monotonic_ms >= self.sweep.next_ms {
            self.sweep_retained(now, to);
            self.sweep.next_ms = now.monotonic_ms + SWEEP_MS;
            if self.sweep.at.is_none() {
                self.sweep.at = self.sweep.queues.first().map(|queue| (*queue, None));
            }
        }
        if let Some((queue, after)) = self.sweep.at.take() {
            let next = self.sweep_queue(queue, after, now, to).map(|after| (queue, Some(after)));
            let behind = (std::ops::Bound::Excluded(queue), std::ops::Bound::Unbounded);
            self.sweep.at = next.or_else(|| self.sweep.queues.range(behind).next().map(|next| (*next, None)));
        }
    }

    fn sweep_retained(&mut self, now: Now, to: &mut impl Effects) {
        let expired = self.retained.look_for_expired(VISITS, now);
        let cleared = |topic| Record::Cleared { topic: Cow::Borrowed(topic) };
        let records: Vec<Record<'_>> = expired.iter().map(|topic| cleared(topic.as_str())).collect();
        if !records.is_empty() && self.replies.commit(&records, to).is_ok() {
            expired.iter().for_each(|topic| self.retained.clear(topic));
            add(&self.gauges.retained_expired, expired.len());
        }
    }

    fn sweep_queue(
        &mut self,
        queue: QueueOf,
        after: Option<MessageId>,
        now: Now,
        to: &mut impl Effects,
    ) -> Option<MessageId> {
        let (messages, incarnation) = match queue {
            QueueOf::Session(id) => {
                let session = self.sessions.find(id)?;
                (&session.queue, session.incarnation.unwrap_or_default())
            }
            QueueOf::Group(id) => {
                let group = self.groups.table.find(id)?;
                (&group.queue, group.incarnation)
            }
        };
        if messages.expiring() == 0 {
            self.sweep.queues.remove(&queue);
            return None;
        }
        let mut expired = Vec::new();
        let next = messages.look_for_expired(after, VISITS, now, &mut expired);
        let removed = |message: &MessageId| Record::Removed { queue: incarnation, message: *message };
        let records: Vec<Record<'_>> = expired.iter().map(removed).collect();
        if !records.is_empty() && self.replies.commit(&records, to).is_ok() {
            for message in expired {
                let removed = match queue {
                    QueueOf::Session(id) => {
                        self.sessions.find_mut(id).and_then(|session| session.queue.remove(message))
                    }
                    QueueOf::Group(id) => {
                        self.groups.table.find_mut(id).and_then(|group| group.take(message))
                    }
                };
                if let Some(entry) = removed {
                    let bytes = entry.size_bytes();
                    shift(&self.gauges.queued, &self.gauges.expired, 1);
                    subtract(&self.gauges.queued_bytes, bytes);
                }
            }
            if let QueueOf::Session(id) = queue {
                self.unpark(id);
            }
            // What has gone may have been on its way from the disk, and what is behind it was not asked for.
            self.is_ready(queue);
        }
        next
    }
}
