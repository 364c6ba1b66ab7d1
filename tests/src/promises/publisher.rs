//! A publisher at QoS 1 and 2, which continues its exchanges after each loss of its connection.

use std::collections::BTreeSet;

use super::history::{Knowledge, Step};
use super::message::Message;

/// Maximum number of messages without a complete acknowledgement.
pub(crate) const WINDOW: usize = 16;

#[derive(Debug, Clone)]
pub(crate) enum PublisherStep {
    Connected,
    Published(Message, u16),
    /// PUBACK or PUBREC, which is the broker's promise.
    Acknowledged(u16),
    Refused(u16),
    Releasing,
    Completed(u16),
}

/// The knowledge of a publisher.
#[derive(Debug, Clone, Default)]
pub(crate) struct Publishing {
    pub(crate) has_session: bool,
    pub(crate) last: u32,
    /// Messages in flight, in the order of publication.
    pub(crate) unfinished: Vec<Unfinished>,
    pub(crate) acknowledged: BTreeSet<Message>,
    /// Messages that were published more than once, because no acknowledgement had arrived.
    pub(crate) repeated: BTreeSet<Message>,
    /// Messages that the broker has refused.
    pub(crate) refused: BTreeSet<Message>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Unfinished {
    pub(crate) message: Message,
    pub(crate) packet_id: u16,
    /// PUBREC has arrived for this message.
    pub(crate) is_received: bool,
}

impl Step for PublisherStep {
    fn is_sent(&self) -> bool {
        matches!(self, Self::Published(..) | Self::Releasing)
    }
}

impl Knowledge for Publishing {
    type Step = PublisherStep;

    fn learn(&mut self, step: &PublisherStep) {
        match *step {
            PublisherStep::Connected => self.has_session = true,
            PublisherStep::Published(message, packet_id) => {
                self.last = self.last.max(message.number());
                if self.unfinished(packet_id).is_some() {
                    self.repeated.insert(message);
                } else {
                    self.unfinished.push(Unfinished { message, packet_id, is_received: false });
                }
            }
            PublisherStep::Acknowledged(packet_id) => {
                let Some(unfinished) = self.unfinished(packet_id) else { return };
                unfinished.is_received = true;
                let message = unfinished.message;
                self.acknowledged.insert(message);
                if message.qos() == 1 {
                    self.finish(packet_id);
                }
            }
            PublisherStep::Refused(packet_id) => {
                let message = self.unfinished(packet_id).map(|unfinished| unfinished.message);
                self.refused.extend(message);
                self.finish(packet_id);
            }
            PublisherStep::Completed(packet_id) => self.finish(packet_id),
            PublisherStep::Releasing => {}
        }
    }
}

impl Publishing {
    pub(crate) fn free_packet_id(&self) -> u16 {
        let is_free = |id: &u16| self.unfinished.iter().all(|unfinished| unfinished.packet_id != *id);
        (1..).find(is_free).expect("a window is small")
    }

    pub(crate) fn is_received(&self, packet_id: u16) -> bool {
        self.unfinished.iter().any(|unfinished| unfinished.packet_id == packet_id && unfinished.is_received)
    }

    fn unfinished(&mut self, packet_id: u16) -> Option<&mut Unfinished> {
        self.unfinished.iter_mut().find(|unfinished| unfinished.packet_id == packet_id)
    }

    fn finish(&mut self, packet_id: u16) {
        self.unfinished.retain(|unfinished| unfinished.packet_id != packet_id);
    }
}
