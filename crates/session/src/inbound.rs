//! What the peer publishes with QoS 1 and 2, until it is answered (MQTT 5.0, 4.3.2 and 4.3.3).
//!
//! Both roles receive messages in the same way.

use std::collections::hash_map::Entry;

use base::Ticket;
use wire::{
    Delivery, PacketId, PubAck, PubAckReason, PubComp, PubRec, PubRelReason, ReasonCode, Version,
    brief_puback, brief_pubrec,
};

use crate::Request;
use crate::ids::PacketIdMap;
use crate::in_order::InOrder;

/// When no exchange is open, the memory for at most this many is kept for the next ones.
const EXCHANGES_KEPT: usize = 64;

/// The receiver's half of the exchanges of one connection.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    acks: InOrder<PubAckReason>,
    recs: InOrder<PubAckReason>,
    /// Exchanges of QoS 2 that are not over.
    open: PacketIdMap<Exchange>,
    /// How many of them were begun on this connection: these count against Receive Maximum.
    counted: usize,
    /// How many of them have a PUBCOMP coming.
    releasing: usize,
    /// PUBACK and PUBREC do not leave before that, on the monotonic clock.
    held_until_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Exchange {
    stage: Stage,
    /// Its PUBLISH came on this connection.
    counts: bool,
}

/// ```text
///  PUBLISH              success             PUBREC             PUBREL              PUBCOMP
/// ────────► Recording ─────────► Accepted ─────────► Received ────────► Releasing ─────────►
///               └───────────────────── PUBREC with an error ───────────────────────────────►
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has accepted the message yet, or it was refused; PUBREC has not been sent.
    Recording,
    /// The message is ours, and PUBREC waits for its turn. The message must not be delivered again, also if PUBREC never
    /// leaves because the connection ends first.
    Accepted,
    /// PUBREC has been sent: a repeated PUBLISH is not a new message.
    Received,
    /// PUBREL has come.
    Releasing,
}

/// What a PUBLISH of QoS 1 or 2 is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A message; the ticket is to be completed.
    New(Ticket),
    /// One that came before. Its answer leaves in its turn.
    Repeated,
    /// Refused. Its answer leaves in its turn.
    Refused,
    /// One more than Receive Maximum.
    TooMany,
    /// Its identifier is that of another exchange, and the version cannot say so.
    InUse,
}

/// What a PUBREL is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// Of a message that was received; [`Ticket::PubComp`] is to be completed.
    New,
    /// It came before, and is answered with the first.
    Repeated,
    /// Of nothing that we know.
    Unknown,
    /// Of a message for which there was no PUBREC.
    TooEarly,
}

impl Inbound {
    /// What was received on an earlier connection and not released.
    pub(crate) fn resume(&mut self, unreleased: &[PacketId]) {
        let exchange = Exchange { stage: Stage::Received, counts: false };
        self.open.extend(unreleased.iter().map(|packet_id| (*packet_id, exchange)));
    }

    /// The connection is over, and the session goes on: answers that have not left are forgotten. What was not
    /// accepted will come again, and is a new message; what was accepted and waits for its PUBREC will too, and is none.
    /// What was not released will be.
    pub(crate) fn suspend(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|_, exchange| exchange.stage != Stage::Recording);
        for exchange in open.values_mut() {
            *exchange = Exchange { stage: Stage::Received, counts: false };
        }
        *self = Self { open, ..Self::default() };
    }

    /// What was accepted and not released, in no order.
    pub(crate) fn unreleased(&self) -> impl Iterator<Item = PacketId> {
        self.open.iter().filter(|(_, exchange)| exchange.stage != Stage::Recording).map(|(id, _)| *id)
    }

    /// Takes a PUBLISH. `receive_max` is [`None`] where the version has no such number.
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

    /// Takes a PUBLISH of QoS 1 if it is a new message.
    pub(crate) fn publish_like(&mut self, packet_id: PacketId, receive_max: Option<u16>) -> bool {
        let is_new = !self.is_full(receive_max) && !self.open.contains_key(&packet_id);
        if is_new {
            self.acks.push(packet_id);
        }
        is_new
    }

    /// The PUBLISH that was taken last is not answered on this connection, as if it had not come.
    pub(crate) fn ignore(&mut self, ticket: Ticket) {
        match ticket {
            Ticket::PubAck(packet_id) => self.acks.take_back(packet_id),
            Ticket::PubRec(packet_id) => {
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
                // The PUBREC of the first answers both.
                Stage::Recording | Stage::Accepted => Arrival::Repeated,
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

    /// Takes a PUBREL.
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

    /// A PUBACK or PUBREC may leave, saying this. Before MQTT 5 they cannot refuse: what is refused is acknowledged as
    /// usual. Whether the ticket was one of ours.
    pub(crate) fn complete(&mut self, ticket: Ticket, reason: ReasonCode, version: Version) -> bool {
        let reason = match PubAckReason::try_from(reason) {
            _ if !version.is_5() => PubAckReason::Success,
            Ok(reason) => reason,
            Err(_) => PubAckReason::UnspecifiedError,
        };
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

    fn advance(&mut self, packet_id: PacketId, from: Stage, to: Stage) {
        if let Some(exchange) = self.open.get_mut(&packet_id)
            && exchange.stage == from
        {
            exchange.stage = to;
        }
    }

    /// PUBCOMP: the exchange is over, and its identifier free. `None` if it was not being released.
    pub(crate) fn complete_release(&mut self, packet_id: PacketId) -> Option<PubComp<'static>> {
        let Entry::Occupied(open) = self.open.entry(packet_id) else { return None };
        if open.get().stage != Stage::Releasing {
            return None;
        }
        self.counted -= usize::from(open.remove().counts);
        self.releasing -= 1;
        self.give_back();
        Some(PubComp::new(packet_id, PubRelReason::Success))
    }

    /// What the exchanges of QoS 2 hold of memory, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.open.capacity() * (size_of::<(PacketId, Exchange)>() + 1)
    }

    /// Writes the PUBACKs and PUBRECs that may leave.
    pub(crate) fn write_answers(&mut self, version: Version, into: &mut Vec<u8>) {
        if self.held_until_ms.is_some() {
            return;
        }
        // A vector takes everything, and the version has all that is said: nothing can fail.
        while let Some((packet_id, reason)) = self.acks.pop() {
            match reason {
                PubAckReason::Success => into.extend_from_slice(&brief_puback(packet_id)),
                other => drop(PubAck::new(packet_id, other).encode(version, into)),
            }
        }
        while let Some((packet_id, reason)) = self.recs.pop() {
            self.received(packet_id, reason);
            match reason {
                PubAckReason::Success => into.extend_from_slice(&brief_pubrec(packet_id)),
                other => drop(PubRec::new(packet_id, other).encode(version, into)),
            }
        }
    }

    /// The answer that has just become due, if it may leave at once; otherwise it leaves in its turn.
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

    /// PUBREC leaves.
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

    /// Answers wait until then, if none wait already.
    pub(crate) fn hold(&mut self, until_ms: u64) {
        self.held_until_ms.get_or_insert(until_ms);
    }

    pub(crate) fn unhold(&mut self) {
        self.held_until_ms = None;
    }

    pub(crate) fn held_until_ms(&self) -> Option<u64> {
        self.held_until_ms
    }

    /// Answers that we owe.
    pub(crate) fn unanswered(&self) -> usize {
        self.acks.len() + self.recs.len() + self.releasing
    }

    /// What counts against Receive Maximum: neither PUBACK nor PUBCOMP has been sent.
    fn unacknowledged(&self) -> usize {
        self.acks.len() + self.counted
    }
}
