//! Messages of QoS 1 and 2 from the peer, until they are answered (MQTT 5.0, 4.3.2 and 4.3.3).
//!
//! Both roles receive messages in the same way.

use std::collections::hash_map::Entry;

use base::Ticket;
use wire::{
    Delivery, PacketId, PubAck, PubAckReason, PubRec, ReasonCode, Version, brief_puback, brief_pubrec,
};

use crate::Request;
use crate::ids::PacketIdMap;
use crate::in_order::InOrder;

/// Number of exchanges for which memory is kept when none is open.
const EXCHANGES_KEPT: usize = 64;

/// The receiver's half of the exchanges of one connection.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    acks: InOrder<PubAckReason>,
    recs: InOrder<PubAckReason>,
    /// Open exchanges of QoS 2.
    open: PacketIdMap<Exchange>,
    /// Number of open exchanges that began on this connection. They count against Receive Maximum.
    counted: usize,
    /// Number of open exchanges whose PUBCOMP is due.
    releasing: usize,
    /// Time before which no PUBACK or PUBREC leaves, in monotonic milliseconds.
    held_until_ms: Option<u64>,
    /// A PUBLISH of QoS 2 was ignored, so that no later one gets its PUBREC before it [MQTT-4.6.0-3].
    has_ignored: bool,
}

#[derive(Debug, Clone, Copy)]
struct Exchange {
    stage: Stage,
    /// Its PUBLISH arrived on this connection.
    counts: bool,
}

/// ```text
///  PUBLISH              success             PUBREC             PUBREL              PUBCOMP
/// ────────► Recording ─────────► Accepted ─────────► Received ────────► Releasing ─────────►
///               └───────────────────── PUBREC with an error ───────────────────────────────►
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has accepted the message yet, or it was refused. PUBREC was not sent.
    Recording,
    /// The message is accepted, and PUBREC waits for its turn. The message must not be delivered again, even if the
    /// connection ends before PUBREC leaves.
    Accepted,
    /// PUBREC was sent: a repeated PUBLISH is not a new message.
    Received,
    /// PUBREL has arrived, and PUBCOMP waits for its turn.
    Releasing,
}

/// Meaning of a PUBLISH of QoS 1 or 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A new message. The caller completes the ticket.
    New(Ticket),
    /// A repeated message. Its answer leaves in its turn.
    Repeated,
    /// A refused message. Its answer leaves in its turn.
    Refused,
    /// A message beyond Receive Maximum.
    TooMany,
    /// Its identifier belongs to another exchange, and the version has no reason code for that.
    InUse,
}

/// Meaning of a PUBREL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// Release of a received message. The caller completes [`Ticket::PubComp`].
    New,
    /// A repeated PUBREL, which the answer to the first one answers.
    Repeated,
    /// The identifier is unknown.
    Unknown,
    /// There was no PUBREC for the message.
    TooEarly,
}

impl Inbound {
    /// Takes over messages that were received on an earlier connection and not released.
    pub(crate) fn resume(&mut self, unreleased: &[PacketId]) {
        let exchange = Exchange { stage: Stage::Received, counts: false };
        self.open.extend(unreleased.iter().map(|packet_id| (*packet_id, exchange)));
    }

    /// Ends the connection, but not the session. Answers that have not left are forgotten.
    ///
    /// A message that was not accepted comes again as a new message. A message that waits for its PUBREC comes again as
    /// a repeated one. A received message will be released.
    pub(crate) fn suspend(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|_, exchange| exchange.stage != Stage::Recording);
        for exchange in open.values_mut() {
            *exchange = Exchange { stage: Stage::Received, counts: false };
        }
        *self = Self { open, ..Self::default() };
    }

    /// Identifiers that were accepted and not released, in no order.
    pub(crate) fn unreleased(&self) -> impl Iterator<Item = PacketId> {
        self.open.iter().filter(|(_, exchange)| exchange.stage != Stage::Recording).map(|(id, _)| *id)
    }

    /// Handles a PUBLISH. `receive_max` is [`None`] if the version has no such number.
    pub(crate) fn publish(
        &mut self,
        delivery: Delivery,
        version: Version,
        receive_max: Option<u16>,
    ) -> Option<Arrival> {
        let too_many = self.is_full(receive_max);
        Some(match delivery {
            Delivery::AtMostOnce => return None,
            Delivery::AtLeastOnce { packet_id, .. } => self.at_least_once(packet_id, version, too_many),
            Delivery::ExactlyOnce { packet_id, .. } => self.exactly_once(packet_id, version, too_many),
        })
    }

    /// Handles a PUBLISH of QoS 1 if it is a new message.
    pub(crate) fn publish_like(&mut self, packet_id: PacketId, receive_max: Option<u16>) -> bool {
        let is_new = !self.is_full(receive_max) && !self.open.contains_key(&packet_id);
        if is_new {
            self.acks.push(packet_id);
        }
        is_new
    }

    /// Forgets the last handled PUBLISH, as if it had not arrived. Repeated messages behind one of QoS 2 get no PUBREC on this
    /// connection, because this one gets none.
    pub(crate) fn ignore(&mut self, ticket: Ticket) {
        match ticket {
            Ticket::PubAck(packet_id) => self.acks.take_back(packet_id),
            Ticket::PubRec(packet_id) => {
                self.has_ignored = true;
                self.recs.take_back(packet_id);
                if let Entry::Occupied(open) = self.open.entry(packet_id)
                    && open.get().stage == Stage::Recording
                {
                    self.counted -= usize::from(open.remove().counts);
                    self.give_back();
                }
            }
            Ticket::PubRel(_) | Ticket::PubComp(_) => {}
        }
    }

    fn is_full(&self, receive_max: Option<u16>) -> bool {
        receive_max.is_some_and(|max| self.unacknowledged() >= usize::from(max))
    }

    fn at_least_once(&mut self, packet_id: PacketId, version: Version, too_many: bool) -> Arrival {
        if too_many {
            return Arrival::TooMany;
        }
        if !self.open.is_empty() && self.open.contains_key(&packet_id) {
            if !version.is_5() {
                return Arrival::InUse;
            }
            self.acks.push_complete(packet_id, PubAckReason::PacketIdentifierInUse);
            return Arrival::Refused;
        }
        self.acks.push(packet_id);
        Arrival::New(Ticket::PubAck(packet_id))
    }

    fn exactly_once(&mut self, packet_id: PacketId, version: Version, too_many: bool) -> Arrival {
        match self.open.entry(packet_id) {
            Entry::Vacant(_) if too_many => Arrival::TooMany,
            Entry::Vacant(free) => {
                free.insert(Exchange { stage: Stage::Recording, counts: true });
                self.counted += 1;
                self.recs.push(packet_id);
                Arrival::New(Ticket::PubRec(packet_id))
            }
            Entry::Occupied(mut open) => match open.get().stage {
                // The PUBREC for the first one answers both.
                Stage::Recording | Stage::Accepted => Arrival::Repeated,
                Stage::Received if self.has_ignored => Arrival::Repeated,
                Stage::Received => {
                    if !open.get().counts {
                        if too_many {
                            return Arrival::TooMany;
                        }
                        open.get_mut().counts = true;
                        self.counted += 1;
                    }
                    self.recs.push_complete(packet_id, PubAckReason::Success);
                    Arrival::Repeated
                }
                Stage::Releasing if !version.is_5() => Arrival::InUse,
                Stage::Releasing => {
                    self.recs.push_complete(packet_id, PubAckReason::PacketIdentifierInUse);
                    Arrival::Refused
                }
            },
        }
    }

    /// Handles a PUBREL, which releases a message of QoS 2.
    pub(crate) fn release(&mut self, packet_id: PacketId) -> Release {
        let Some(exchange) = self.open.get_mut(&packet_id) else { return Release::Unknown };
        match exchange.stage {
            Stage::Recording | Stage::Accepted => Release::TooEarly,
            Stage::Releasing => Release::Repeated,
            Stage::Received => {
                exchange.stage = Stage::Releasing;
                self.releasing += 1;
                Release::New
            }
        }
    }

    /// Sets the reason of a PUBACK or PUBREC, which may then leave. Before MQTT 5 these cannot refuse, and a refused
    /// message is acknowledged as usual. Returns whether the ticket belongs to this connection.
    pub(crate) fn complete(&mut self, ticket: Ticket, reason: ReasonCode, version: Version) -> bool {
        let reason = for_puback(reason, version);
        match ticket {
            Ticket::PubAck(packet_id) => self.acks.complete(packet_id, reason),
            Ticket::PubRec(packet_id) => {
                let is_ours = self.recs.complete(packet_id, reason);
                if is_ours && !reason.is_error() {
                    self.advance(packet_id, Stage::Recording, Stage::Accepted);
                }
                is_ours
            }
            Ticket::PubRel(_) | Ticket::PubComp(_) => false,
        }
    }

    /// The same for the last `count` messages of QoS 1, none of which has its reason.
    pub(crate) fn complete_last(&mut self, count: usize, reason: ReasonCode, version: Version) {
        self.acks.complete_last(count, for_puback(reason, version));
    }

    fn advance(&mut self, packet_id: PacketId, from: Stage, to: Stage) {
        if let Some(exchange) = self.open.get_mut(&packet_id)
            && exchange.stage == from
        {
            exchange.stage = to;
        }
    }

    /// Ends an exchange whose PUBREL has arrived, and frees its identifier. Returns whether PUBCOMP is due.
    #[must_use]
    pub(crate) fn complete_release(&mut self, packet_id: PacketId) -> bool {
        let Entry::Occupied(open) = self.open.entry(packet_id) else { return false };
        if open.get().stage != Stage::Releasing {
            return false;
        }
        self.counted -= usize::from(open.remove().counts);
        self.releasing -= 1;
        self.give_back();
        true
    }

    /// Memory of the exchanges of QoS 2, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.open.capacity() * (size_of::<(PacketId, Exchange)>() + 1)
    }

    /// Writes the PUBACKs and PUBRECs that may leave. Returns how many they are.
    pub(crate) fn write_answers(&mut self, version: Version, into: &mut Vec<u8>) -> usize {
        if self.held_until_ms.is_some() {
            return 0;
        }
        let mut count = 0;
        // Nothing can fail: a vector has room, and the version has all these reasons.
        while let Some((packet_id, reason)) = self.acks.pop() {
            count += 1;
            match reason {
                PubAckReason::Success => into.extend_from_slice(&brief_puback(packet_id)),
                other => drop(PubAck::new(packet_id, other).encode(version, into)),
            }
        }
        while let Some((packet_id, reason)) = self.recs.pop() {
            count += 1;
            self.received(packet_id, reason);
            match reason {
                PubAckReason::Success => into.extend_from_slice(&brief_pubrec(packet_id)),
                other => drop(PubRec::new(packet_id, other).encode(version, into)),
            }
        }
        count
    }

    /// The answer that has just become due, if it may leave at once. Otherwise it leaves in its turn.
    pub(crate) fn answer<'p>(&mut self) -> Request<'p> {
        if self.held_until_ms.is_some() {
            return Request::None;
        }
        if let Some((packet_id, reason)) = self.acks.pop() {
            return Request::Answer(PubAck::new(packet_id, reason).into());
        }
        match self.recs.pop() {
            Some((packet_id, reason)) => {
                self.received(packet_id, reason);
                Request::Answer(PubRec::new(packet_id, reason).into())
            }
            None => Request::None,
        }
    }

    /// Notes that PUBREC leaves.
    fn received(&mut self, packet_id: PacketId, reason: PubAckReason) {
        if !reason.is_error() {
            return self.advance(packet_id, Stage::Accepted, Stage::Received);
        }
        let Entry::Occupied(open) = self.open.entry(packet_id) else { return };
        if open.get().stage == Stage::Recording {
            self.counted -= usize::from(open.remove().counts);
            self.give_back();
        }
    }

    /// Frees the memory of many exchanges when the last one is over.
    fn give_back(&mut self) {
        if self.open.is_empty() && self.open.capacity() > EXCHANGES_KEPT {
            self.open = PacketIdMap::default();
        }
    }

    /// Holds back answers until this time, unless they are held back already.
    pub(crate) fn hold(&mut self, until_ms: u64) {
        self.held_until_ms.get_or_insert(until_ms);
    }

    pub(crate) fn unhold(&mut self) {
        self.held_until_ms = None;
    }

    pub(crate) fn held_until_ms(&self) -> Option<u64> {
        self.held_until_ms
    }

    /// Number of answers that are owed.
    pub(crate) fn unanswered(&self) -> usize {
        self.acks.len() + self.recs.len() + self.releasing
    }

    /// Number of messages that count against Receive Maximum: neither PUBACK nor PUBCOMP was sent.
    fn unacknowledged(&self) -> usize {
        self.acks.len() + self.counted
    }
}

/// A reason as PUBACK and PUBREC say it. Before MQTT 5 they say none.
fn for_puback(reason: ReasonCode, version: Version) -> PubAckReason {
    match PubAckReason::try_from(reason) {
        _ if !version.is_5() => PubAckReason::Success,
        Ok(reason) => reason,
        Err(_) => PubAckReason::UnspecifiedError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_message_behind_an_ignored_one_waits_for_the_next_connection() {
        let id = |number| PacketId::new(number).expect("not 0");
        let mut inbound = Inbound::default();
        inbound.resume(&[id(2), id(3)]);
        let publish = |inbound: &mut Inbound, number| {
            let delivery = Delivery::ExactlyOnce { packet_id: id(number), dup: true };
            inbound.publish(delivery, Version::V3_1_1, None)
        };
        assert_eq!(publish(&mut inbound, 3), Some(Arrival::Repeated));
        assert_eq!(publish(&mut inbound, 1), Some(Arrival::New(Ticket::PubRec(id(1)))));
        inbound.ignore(Ticket::PubRec(id(1)));
        assert_eq!(publish(&mut inbound, 2), Some(Arrival::Repeated));
        assert_eq!(inbound.recs.pop(), Some((id(3), PubAckReason::Success)));
        assert_eq!(inbound.recs.pop(), None);
        inbound.suspend();
        assert_eq!(publish(&mut inbound, 2), Some(Arrival::Repeated));
        assert_eq!(inbound.recs.pop(), Some((id(2), PubAckReason::Success)));
    }
}
