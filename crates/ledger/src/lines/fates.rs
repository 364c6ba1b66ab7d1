//! The fates of messages of lines: counted in the gauges, and recorded if an operator has asked for it.
//!
//! A place that decides about a message says its fate here, and no other file writes these gauges. Nothing is recorded for most
//! messages: one branch. A session that ends with its connection is recorded by its shard, also as a member of groups.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{AskFates, Fate, FateList, FateOf, FateRing, Fates, Message, Now, QueueId, Subscriber};
use protocol::Gauges;
use wire::{PacketId, Qos};

use crate::gauges::{add, subtract};
use crate::lines::{Line, Lines, Owner};
use crate::queue::entry::Entry;
use crate::record::MessageId;

/// The fates of the messages for all lines.
#[derive(Debug)]
pub(crate) struct LineFates {
    gauges: Arc<Gauges>,
    /// The last messages for sessions whose operators ask for them.
    rings: Option<Box<Fates>>,
    /// The time of the last call of the ledger.
    pub(crate) now: Now,
}

/// A message for a line, and the place in which its fate finds it.
#[derive(Clone, Copy)]
pub(crate) enum MessageAt<'a> {
    /// It comes for the line. It has a number if it is stored.
    Coming { message: &'a Message, qos: Qos, id: Option<MessageId> },
    /// It waits, or did a moment ago. It has a packet identifier if it begins an exchange now.
    Waiting { id: MessageId, entry: &'a Entry, packet_id: Option<PacketId> },
    /// It is on its way to the client.
    UnderWay { packet_id: PacketId, bytes: usize },
}

/// The place of messages, as the gauges count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Not in a line yet.
    Outside,
    /// Waiting in the queue of the line.
    Queue,
    /// On their way to the client.
    Window,
}

impl LineFates {
    pub(crate) fn new(gauges: Arc<Gauges>) -> Self {
        Self { gauges, rings: None, now: Now { monotonic_ms: 0, unix_ms: 0 } }
    }

    /// Whether anything is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.rings.is_some()
    }

    /// Carries out an order, or answers a question.
    pub(crate) fn ask(&mut self, ask: &AskFates, now: Now) -> FateList {
        Fates::ask(&mut self.rings, ask, now)
    }

    /// A message has met this fate: counts it, and records it for the session that owns the line.
    ///
    /// Inlined, as is what it calls: most places say a constant, for which the compiler leaves one arm of the `match`.
    #[inline(always)]
    pub(crate) fn decided(&mut self, owner: &Owner, at: MessageAt<'_>, fate: Fate) {
        self.count_one(at, &fate);
        if self.is_on() {
            self.note(owner, at, fate);
        }
    }

    /// Messages come for lines. The fate of each is said separately.
    pub(crate) fn come(&self, messages: usize) {
        add(&self.gauges.routed, messages);
    }

    /// The number of messages that wait or are on their way.
    pub(crate) fn places(&self) -> usize {
        self.gauges.queued.load(Ordering::Relaxed) + self.gauges.in_flight.load(Ordering::Relaxed)
    }

    /// The messages of a line that was read after a start.
    pub(crate) fn restored(&self, line: &Line) {
        let in_flight = line.session().map_or(0, |session| session.in_flight.len());
        self.come(in_flight + line.queue.len());
        add(&self.gauges.in_flight, in_flight);
        self.count(Whereabouts::Outside, (line.queue.len(), line.queue.bytes()), &Fate::Queued);
    }

    /// A session has ended, with messages and bytes in its queue. Messages with these packet identifiers go back to groups.
    pub(crate) fn session_ended(
        &mut self,
        subscriber: &Subscriber,
        waiting: (usize, usize),
        returned: impl Iterator<Item = PacketId>,
    ) {
        self.count(Whereabouts::Queue, waiting, &Fate::SessionEnded);
        let now = self.now;
        if let Some(ring) = self.ring(subscriber) {
            returned.for_each(|packet_id| ring.answered(packet_id, Fate::Returned, now));
            ring.ended(now);
        }
    }

    #[inline(always)]
    fn count_one(&self, at: MessageAt<'_>, fate: &Fate) {
        let (place, bytes) = match at {
            MessageAt::Coming { message, .. } => (Whereabouts::Outside, message.size_bytes()),
            MessageAt::Waiting { entry, .. } => (Whereabouts::Queue, entry.size_bytes()),
            MessageAt::UnderWay { bytes, .. } => (Whereabouts::Window, bytes),
        };
        // Nobody acknowledges a message of QoS 0.
        let is_over = matches!((at, fate), (MessageAt::Waiting { packet_id: None, .. }, Fate::Sent));
        self.count(place, (1, bytes), if is_over { &Fate::Acknowledged } else { fate });
    }

    /// Counts messages that were in one place, and have met the same fate there.
    #[inline(always)]
    pub(crate) fn count(&self, place: Whereabouts, (messages, bytes): (usize, usize), fate: &Fate) {
        let gauges = &*self.gauges;
        let counter = match fate {
            Fate::Queued | Fate::Returned => {
                add(&gauges.queued_bytes, bytes);
                &gauges.queued
            }
            Fate::Sent => &gauges.in_flight,
            Fate::Acknowledged => &gauges.acknowledged,
            Fate::Refused(_) | Fate::MayNotRead => &gauges.refused_by_client,
            Fate::TooLarge => &gauges.too_large,
            Fate::Expired => &gauges.expired,
            Fate::DroppedOldest => &gauges.dropped_oldest,
            Fate::QueueFull => &gauges.dropped_newest,
            Fate::SessionEnded => &gauges.discarded,
            Fate::Discarded => {
                add(&gauges.discarded_by_operator, messages);
                &gauges.discarded
            }
            Fate::Moved => &gauges.moved_by_operator,
            // The exchange goes on, or the message does not come for this line.
            Fate::Received | Fate::NotStored(_) | Fate::TakenBy(_) => return,
            Fate::Waits
            | Fate::NoLocal
            | Fate::MayNotPublish
            | Fate::Absent
            | Fate::Slow
            | Fate::NoMemory => unreachable!("a shard alone decides this"),
        };
        match place {
            Whereabouts::Outside => {}
            Whereabouts::Queue => {
                subtract(&gauges.queued, messages);
                subtract(&gauges.queued_bytes, bytes);
            }
            Whereabouts::Window => subtract(&gauges.in_flight, messages),
        }
        add(counter, messages);
    }

    /// Records the fate of a message that is counted elsewhere.
    #[cold]
    fn note(&mut self, owner: &Owner, at: MessageAt<'_>, fate: Fate) {
        let session = match owner {
            Owner::Session(session) => session,
            Owner::Group(group) => return self.note_lost(&group.subscriber, at, &fate),
        };
        let now = self.now;
        let Some(ring) = self.ring(&session.subscriber) else { return };
        match at {
            MessageAt::Coming { message, qos, id } => {
                ring.follow(FateOf::message(message, qos, id.map(|id| id.0)), fate, now);
            }
            MessageAt::Waiting { id, entry, packet_id } => {
                ring.follow(of_entry(id, entry).sent_as(packet_id), fate, now);
            }
            MessageAt::UnderWay { packet_id, .. } => ring.answered(packet_id, fate, now),
        }
    }

    /// Records a message that no member of a group gets, for each of the first 1,024 members: any of them could have been given
    /// the message.
    fn note_lost(&mut self, group: &Subscriber, at: MessageAt<'_>, fate: &Fate) {
        use Fate::{Discarded, DroppedOldest, Expired, Moved, NotStored, QueueFull};
        if !matches!(fate, Discarded | DroppedOldest | Expired | Moved | NotStored(_) | QueueFull) {
            return;
        }
        let of = match at {
            MessageAt::Coming { message, qos, id } => FateOf::message(message, qos, id.map(|id| id.0)),
            MessageAt::Waiting { id, entry, .. } => of_entry(id, entry),
            MessageAt::UnderWay { .. } => return,
        };
        let (Some(rings), Some(members)) = (&mut self.rings, group.members()) else { return };
        let rings = rings.rings().filter(|ring| members.includes(ring.client_id()));
        rings.for_each(|ring| ring.note(of, fate.clone(), self.now));
    }

    /// Notes that one member of a group gets a message, for the others. One whose session lasts gets the message here.
    #[inline]
    pub(crate) fn note_given(
        &mut self,
        (group, member): (&Subscriber, &Subscriber),
        (message, id): (&Message, Option<MessageId>),
        (qos, packet_id): (Qos, Option<PacketId>),
    ) {
        let Some(rings) = &mut self.rings else { return };
        let Some(members) = group.members() else { return };
        let of = FateOf::message(message, qos, id.map(|id| id.0));
        for ring in rings.rings() {
            if **ring.client_id() != *member.client_id {
                if members.includes(ring.client_id()) {
                    ring.note(of, Fate::TakenBy(Arc::clone(&member.client_id)), self.now);
                }
            } else if member.queue.is_some() && packet_id.is_some() {
                ring.note(of.sent_as(packet_id), Fate::Sent, self.now);
            }
        }
    }

    #[inline]
    fn ring(&mut self, subscriber: &Subscriber) -> Option<&mut FateRing> {
        self.rings.as_mut()?.ring(&subscriber.client_id)
    }
}

/// A message in a queue, or on its way out of the queue.
fn of_entry(id: MessageId, entry: &Entry) -> FateOf<'_> {
    let message = entry.message().map(|message| FateOf::message(message, entry.qos(), Some(id.0)));
    message.unwrap_or(FateOf { key: Some(id.0), ..FateOf::unknown(entry.qos()) })
}

impl Lines {
    /// A message of this line has met this fate: counts it, and records it.
    #[inline]
    pub(crate) fn decided(&mut self, queue: QueueId, at: MessageAt<'_>, fate: Fate) {
        self.fates.count_one(at, &fate);
        self.note(queue, at, fate);
    }

    /// Records the fate of a message that is counted elsewhere.
    #[inline]
    pub(crate) fn note(&mut self, queue: QueueId, at: MessageAt<'_>, fate: Fate) {
        if self.fates.is_on()
            && let Some(line) = self.table.find(queue)
        {
            self.fates.note(&line.owner, at, fate);
        }
    }
}
