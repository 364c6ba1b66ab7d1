//! Sessions that were connected when the process ended.

use std::borrow::Cow;
use std::collections::VecDeque;

use base::{Now, QueueId};
use protocol::Cause;

use crate::record::{Effects, Incarnation, Record};
use crate::sessions::SessionWork;

/// The work that is left after a restart.
#[derive(Debug, Default)]
pub(crate) struct Restart {
    /// Sessions that were connected.
    pub(crate) unsettled: VecDeque<QueueId>,
    /// Groups that have no member any more.
    pub(crate) orphans: Vec<Incarnation>,
    /// Groups with members that last and without a record: it was in a part of the log that was damaged and repaired, for example.
    pub(crate) unrecorded: Vec<QueueId>,
}

impl Restart {
    /// Whether the ends of everything that had ended at the restart are on the record.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled.is_empty() && self.orphans.is_empty() && self.unrecorded.is_empty()
    }
}

impl SessionWork<'_> {
    /// Marks sessions that were connected when the records ended as disconnected, on the record.
    pub(crate) fn settle_some(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        while *units > 0
            && let Some(id) = self.restart.unsettled.pop_front()
        {
            *units -= 1;
            self.settle(id, now, to);
        }
        while *units > 0
            && let Some(group) = self.restart.orphans.pop()
        {
            *units -= 1;
            // A group without members is none; without this record it would be found again, and dropped again.
            let _ = self.replies.commit(&[Record::GroupEnded { group }], to);
        }
        while *units > 0
            && let Some(group) = self.restart.unrecorded.pop()
        {
            *units -= 1;
            self.record_group(group, to);
        }
    }

    /// Records a group, so that the messages that come for it from now on are recorded too.
    fn record_group(&mut self, id: QueueId, to: &mut impl Effects) {
        let Some(group) = self.lines.group(id).filter(|group| !group.is_recorded) else { return };
        let filter = Cow::Borrowed(&*group.subscriber.client_id);
        // If this record is refused, the next member that subscribes records the group, or the next process.
        if self.replies.commit(&[Record::Group { group: group.incarnation, filter }], to).is_ok() {
            self.lines.group_mut(id).expect("it was there before this was recorded").is_recorded = true;
        }
    }

    /// The same for one session, before anybody connects to it.
    pub(crate) fn settle(&mut self, id: QueueId, now: Now, to: &mut impl Effects) {
        let lasting = self.lines.session_mut(id).and_then(|session| session.lasting.as_mut());
        if let Some(lasting) = lasting
            && std::mem::take(&mut lasting.is_unsettled)
        {
            let expiry_secs = lasting.expiry_secs;
            self.depart(id, Cause::WithWill, expiry_secs, now, to);
        }
    }
}
