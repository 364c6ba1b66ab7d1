//! Wills that are due, and not published yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{Message, Now, Principal, Subscriber};

use crate::record::MessageId;

/// Time between two looks at the receivers that wills wait for, in milliseconds.
const HELD_LOOK_MS: u64 = 10;

/// Wills whose delay is over and that are not published yet.
#[derive(Debug, Default)]
pub(crate) struct Wills {
    /// In the order in which they became due.
    pub(crate) due: VecDeque<DueWill>,
    /// Wills that found no space in the log or in memory. They do not hold up the wills of other clients.
    pub(crate) refused: VecDeque<DueWill>,
    /// Wills for a receiver at QoS 0 whose output is over its mark.
    pub(crate) held: Held,
    /// Wills of all three that are on the record, each with its user.
    pub(crate) recorded: BTreeMap<MessageId, Arc<Principal>>,
    /// When the refused wills are tried again; `None` if there are none.
    pub(crate) again_ms: Option<u64>,
}

/// A will that does not wait any more.
#[derive(Debug)]
pub(crate) struct DueWill {
    /// Under which it was recorded; that of a session that ended with its connection was not.
    pub(crate) id: Option<MessageId>,
    pub(crate) message: Arc<Message>,
    /// The user for whom it is published.
    pub(crate) principal: Arc<Principal>,
    /// The will has found no space at least once.
    pub(crate) was_refused: bool,
    /// From when it has waited for receivers, on the monotonic clock.
    pub(crate) held_from_ms: Option<u64>,
}

impl DueWill {
    pub(crate) fn new(id: Option<MessageId>, message: Arc<Message>, principal: Arc<Principal>) -> Self {
        Self { id, message, principal, was_refused: false, held_from_ms: None }
    }
}

/// Wills that wait for receivers. A PUBLISH of QoS 0 is not read while the output of a receiver is over its mark. A will has
/// no publisher that could wait, and thousands may be due at once: they would fill the memory for outputs, and the messages
/// of all other clients would be dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    wills: VecDeque<(DueWill, Arc<Subscriber>)>,
    /// The bytes of their messages.
    pub(crate) bytes: usize,
    /// The wills that the look that is under way has still to look at.
    left: usize,
    /// When the next look begins; `None` if there are no wills, or a look is under way.
    pub(crate) again_ms: Option<u64>,
}

impl Held {
    pub(crate) fn push(&mut self, mut will: DueWill, full: Arc<Subscriber>, now: Now) {
        will.held_from_ms.get_or_insert(now.monotonic_ms);
        self.bytes += will.message.size_bytes();
        self.wills.push_back((will, full));
        self.again_ms.get_or_insert(now.monotonic_ms + HELD_LOOK_MS);
    }

    /// The next will of the look that is under way, and the receiver that it has waited for.
    pub(crate) fn next(&mut self, now: Now) -> Option<(DueWill, Arc<Subscriber>)> {
        if self.left == 0 && self.again_ms.is_some_and(|again_ms| again_ms <= now.monotonic_ms) {
            self.left = self.wills.len();
            self.again_ms = None;
        }
        self.left = self.left.checked_sub(1)?;
        let (will, full) = self.wills.pop_front()?;
        self.bytes -= will.message.size_bytes();
        Some((will, full))
    }
}

impl Wills {
    pub(crate) fn push(&mut self, will: DueWill) {
        self.recorded.extend(will.id.map(|id| (id, Arc::clone(&will.principal))));
        self.due.push_back(will);
    }

    pub(crate) fn extend(&mut self, wills: impl IntoIterator<Item = DueWill>) {
        wills.into_iter().for_each(|will| self.push(will));
    }

    /// The user of the will of this number, if it is due and not published.
    pub(crate) fn principal(&self, will: MessageId) -> Option<&Principal> {
        self.recorded.get(&will).map(|principal| &**principal)
    }

    /// All wills that are due, also those that were refused.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DueWill> {
        let held = self.held.wills.iter().map(|(will, _)| will);
        self.refused.iter().chain(held).chain(&self.due)
    }

    /// Whether a will can be tried now. Refused wills, and wills that wait for receivers, wait for their timers.
    pub(crate) fn has_work(&self) -> bool {
        !self.due.is_empty() || self.held.left > 0
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        [self.again_ms, self.held.again_ms].into_iter().flatten().min()
    }
}
