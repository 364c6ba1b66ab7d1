//! Wills whose time has come (MQTT 5.0, 3.1.2.5).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use index::Targets;
use session::{Message, Now};
use wire::ReasonCode;

use crate::gauges::add;
use crate::publish::Routing;
use crate::record::MessageId;
use crate::{Effects, Ledger, RETRY_MS, Record};

/// Wills whose delay is over and that are not published yet.
#[derive(Debug, Default)]
pub(crate) struct Wills {
    /// In the order in which they became due.
    due: VecDeque<DueWill>,
    /// Wills that found no space in the log or in memory. They do not hold up the wills of other clients.
    refused: VecDeque<DueWill>,
    /// Those of both that are on the record.
    recorded: BTreeSet<MessageId>,
    /// When the refused wills are tried again; `None` if there are none.
    again_ms: Option<u64>,
}

/// A will that does not wait any more.
#[derive(Debug)]
pub(crate) struct DueWill {
    /// Under which it was recorded; that of a session that ended with its connection was not.
    pub(crate) id: Option<MessageId>,
    pub(crate) message: Arc<Message>,
    /// It has found no space at least once.
    pub(crate) was_refused: bool,
}

impl DueWill {
    pub(crate) fn new(id: Option<MessageId>, message: Arc<Message>) -> Self {
        Self { id, message, was_refused: false }
    }
}

impl Wills {
    pub(crate) fn push(&mut self, will: DueWill) {
        self.recorded.extend(will.id);
        self.due.push_back(will);
    }

    pub(crate) fn extend(&mut self, wills: impl IntoIterator<Item = DueWill>) {
        wills.into_iter().for_each(|will| self.push(will));
    }

    /// Whether the will of this number is due, and not published.
    pub(crate) fn has(&self, will: MessageId) -> bool {
        self.recorded.contains(&will)
    }

    /// All wills that are due, also those that were refused.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DueWill> {
        self.refused.iter().chain(&self.due)
    }

    /// Whether a will can be tried now. Refused wills wait for their timer.
    pub(crate) fn has_work(&self) -> bool {
        !self.due.is_empty()
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.again_ms
    }

    pub(crate) fn recorded(&self) -> &BTreeSet<MessageId> {
        &self.recorded
    }
}

impl Ledger {
    /// Publishes at most `units` of the wills that are due, while the shards have room. Of the wills that found no space, one
    /// is tried again every [`RETRY_MS`], and all of them when that one finds space. When nothing can be recorded any more,
    /// only wills that need no record are published.
    pub(crate) fn fire_wills(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        if self.wills.again_ms.is_some_and(|again_ms| again_ms <= now.monotonic_ms) {
            // One will finds out for all whether there is space again.
            self.wills.again_ms = (self.wills.refused.len() > 1).then_some(now.monotonic_ms + RETRY_MS);
            self.wills.due.extend(self.wills.refused.pop_front());
        }
        while *units > 0
            && to.has_room()
            && let Some(will) = self.wills.due.pop_front()
        {
            *units -= 1;
            let message = Arc::clone(&will.message).published_at(now);
            let targets = Targets::look_up(&self.index, message.topic(), message.publisher());
            let routing =
                Routing { message: &message, targets: &targets, publisher: None, opens: None, will: will.id };
            match self.route(&routing, to) {
                Ok(_) => {
                    if let Some(will) = will.id {
                        self.wills.recorded.remove(&will);
                    }
                    if will.was_refused {
                        self.wills.again_ms = None;
                        self.wills.due.append(&mut self.wills.refused);
                    }
                    add(&self.gauges.wills_published, 1);
                }
                // It stays recorded, and is published after the restart.
                Err(_) if self.replies.is_poisoned() => {}
                // For too many queues: it can never be published.
                Err(ReasonCode::ImplementationSpecificError) => self.give_up_will(will.id, to),
                Err(_) => {
                    self.wills.refused.push_back(DueWill { was_refused: true, ..will });
                    self.wills.again_ms.get_or_insert(now.monotonic_ms + RETRY_MS);
                }
            }
        }
    }

    /// A will is over without having been published. If that cannot be recorded, the next process tries it again.
    fn give_up_will(&mut self, will: Option<MessageId>, to: &mut impl Effects) {
        if let Some(will) = will
            && self.replies.commit(&[Record::WillDone { will }], to).is_ok()
        {
            self.wills.recorded.remove(&will);
        }
    }
}
