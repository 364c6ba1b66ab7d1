//! Messages of earlier programs, from the session store.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use session::client::{Failed, PublishError, Stored};
use wire::{Qos, ReasonCode};

use crate::engine::Engine;

impl Engine {
    /// A message has failed for which no caller waits.
    ///
    /// Without its session, the server may have the message or not. At QoS 1 the message may arrive twice, and is
    /// published anew.
    pub(crate) fn restored_failed(&mut self, failed: Failed<u64>) {
        if !self.restored.remove(&failed.tag) {
            return;
        }
        // Without a message, PUBREC had come: the server has the message.
        let Some(message) = failed.message else { return };
        let may_repeat = message.qos() == Qos::AtLeastOnce && failed.why == PublishError::SessionEnded;
        match may_repeat.then(|| self.begin_publishing(&message)) {
            Some(Ok(tag)) => {
                self.restored.insert(tag);
            }
            _ => self.count_lost(),
        }
    }

    /// The server has acknowledged or refused a message for which no caller waits.
    pub(crate) fn restored_published(&mut self, tag: u64, reason: ReasonCode) {
        if self.restored.remove(&tag) && reason.is_error() {
            self.count_lost();
        }
    }

    fn count_lost(&self) {
        self.counters.restored.fetch_add(1, Ordering::Relaxed);
    }
}

/// The tags of all messages in a stored session.
pub(crate) fn tags(stored: &Stored<u64>) -> HashSet<u64> {
    let under_way = stored.under_way.iter().map(|sent| sent.tag);
    under_way.chain(stored.waiting.iter().map(|waiting| waiting.tag)).collect()
}
