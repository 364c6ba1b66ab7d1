//! The record of what became of the last messages for some sessions, as far as the ledger decides.
//!
//! Each place that decides looks first whether anything is recorded: one branch. A session that ends with its connection is
//! recorded by its shard, also as a member of groups.

use std::sync::Arc;

use base::{AskFates, Fate, FateList, FateOf, FateRing, Fates, Message, Now, QueueId, Subscriber};
use wire::{PacketId, Qos};

use crate::lines::Lines;
use crate::queue::entry::Entry;
use crate::record::MessageId;

/// Maximum number of members of a group among which a client with a record is looked for.
const MEMBERS_LOOKED_AT: usize = 1_024;

/// The last messages for sessions whose operators ask for them.
#[derive(Debug)]
pub(crate) struct Noting {
    fates: Option<Box<Fates>>,
    /// The time of the last call of the ledger.
    pub(crate) now: Now,
}

impl Default for Noting {
    fn default() -> Self {
        Self { fates: None, now: Now { monotonic_ms: 0, unix_ms: 0 } }
    }
}

impl Noting {
    /// Whether anything is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.fates.is_some()
    }

    /// Carries out an order, or answers a question.
    pub(crate) fn ask(&mut self, ask: &AskFates, now: Now) -> FateList {
        Fates::ask(&mut self.fates, ask, now)
    }

    /// Notes that messages go back to their groups, because the session of this member ends.
    pub(crate) fn returned(&mut self, member: &Subscriber, packet_ids: impl Iterator<Item = PacketId>) {
        let now = self.now;
        if let Some(ring) = self.ring(member) {
            packet_ids.for_each(|packet_id| ring.answered(packet_id, Fate::Returned, now));
        }
    }

    /// Notes the end of a session.
    pub(crate) fn ended(&mut self, subscriber: &Subscriber) {
        let now = self.now;
        if let Some(ring) = self.ring(subscriber) {
            ring.ended(now);
        }
    }

    #[inline]
    fn ring(&mut self, subscriber: &Subscriber) -> Option<&mut FateRing> {
        self.fates.as_mut()?.ring(&subscriber.client_id)
    }
}

/// A message in a queue, or on its way out of the queue.
pub(crate) fn of_entry(id: MessageId, entry: &Entry) -> FateOf<'_> {
    let message = entry.message().map(|message| FateOf::message(message, entry.qos(), Some(id.0)));
    message.unwrap_or(FateOf {
        publisher: None,
        topic: None,
        qos: entry.qos(),
        payload_bytes: None,
        key: Some(id.0),
        packet_id: None,
    })
}

impl Lines {
    /// Notes the next fate of a message for a session. A group has no ring.
    pub(crate) fn note_fate(&mut self, queue: QueueId, of: FateOf<'_>, fate: Fate) {
        let subscriber = self.session(queue).map(|session| Arc::clone(&session.subscriber));
        let now = self.noting.now;
        if let Some(ring) = subscriber.and_then(|subscriber| self.noting.ring(&subscriber)) {
            ring.follow(of, fate, now);
        }
    }

    /// Notes the fate of the first message of a queue, which leaves it next.
    pub(crate) fn note_first(&mut self, queue: QueueId, fate: Fate, packet_id: Option<PacketId>) {
        let Some(line) = self.table.find(queue) else { return };
        let (Some(session), Some((id, entry))) = (line.session(), line.queue.front()) else { return };
        let now = self.noting.now;
        if let Some(ring) = self.noting.ring(&session.subscriber) {
            ring.follow(of_entry(id, entry).sent_as(packet_id), fate, now);
        }
    }

    /// Notes what became of a message on its way to a client.
    #[inline]
    pub(crate) fn note_answer(&mut self, queue: QueueId, packet_id: PacketId, fate: Fate) {
        if self.noting.is_on()
            && let Some(session) = self.table.find(queue).and_then(|line| line.session())
        {
            let now = self.noting.now;
            if let Some(ring) = self.noting.ring(&session.subscriber) {
                ring.answered(packet_id, fate, now);
            }
        }
    }

    /// Notes that one member of a group gets a message, for the others. One whose session lasts gets the message here.
    #[inline]
    pub(crate) fn note_given(
        &mut self,
        (group, member): (QueueId, &Subscriber),
        (message, id): (&Message, Option<MessageId>),
        sent: (Qos, Option<PacketId>),
    ) {
        if self.noting.is_on()
            && let Some(group) = self.group(group)
        {
            let group = Arc::clone(&group.subscriber);
            self.noting.turn((&group, member), (message, id), sent);
        }
    }
}

impl Noting {
    /// The same for the subscriber of a group.
    pub(crate) fn turn(
        &mut self,
        (group, member): (&Subscriber, &Subscriber),
        (message, id): (&Message, Option<MessageId>),
        (qos, packet_id): (Qos, Option<PacketId>),
    ) {
        let (Some(fates), Some(members)) = (&mut self.fates, group.members()) else { return };
        let of = FateOf::message(message, qos, id.map(|id| id.0));
        for ring in fates.rings() {
            if **ring.client_id() != *member.client_id {
                if members.includes(ring.client_id(), MEMBERS_LOOKED_AT) {
                    ring.note(of, Fate::TakenBy(Arc::clone(&member.client_id)), self.now);
                }
            } else if member.queue.is_some() && packet_id.is_some() {
                ring.note(of.sent_as(packet_id), Fate::Sent, self.now);
            }
        }
    }
}
