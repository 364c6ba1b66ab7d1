//! Messages that have expired in a line, while nobody comes for them.

use base::{Fate, Now, QueueId};

use crate::delivery::Delivery;
use crate::lines::fates::MessageAt;
use crate::record::{Effects, MessageId, Record};

/// Maximum number of messages that one search visits.
const VISITS: usize = 1_000;

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
                let line = self.lines.find_mut(queue).expect("no removed message ends its queue");
                let entry = line.take(message).expect("it was found here");
                let at = MessageAt::Waiting { id: message, entry: &entry, packet_id: None };
                self.lines.decided(queue, at, Fate::Expired);
            }
            self.cursors.unpark(self.lines, self.settings, queue);
            // The removed message may have been in the middle of a read, and the messages behind it were not requested.
            self.lines.is_ready(queue);
        }
        next
    }
}
