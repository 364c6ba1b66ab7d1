//! What clients say of the exchanges that are open, in both directions (MQTT 5.0, 4.3).

use index::{Place, QueueId, ShardId};
use session::{Now, Ticket};
use wire::{PacketId, Qos, ReasonCode};

use crate::brake::Mark;
use crate::command::{Delivered, Origin, Reply};
use crate::gauges::shift;
use crate::in_flight::State;
use crate::record::MessageId;
use crate::replies::{Answer, QueueOf};
use crate::{Effects, Ledger, Record};

/// How an exchange ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    /// The client has said so, with 0x80 or more.
    Refused,
    /// The message was never written.
    Expired,
}

impl From<ReasonCode> for Outcome {
    fn from(reason: ReasonCode) -> Self {
        if reason.is_error() { Self::Refused } else { Self::Accepted }
    }
}

impl Ledger {
    /// The end of an exchange with a subscriber.
    pub(crate) fn acknowledged(
        &mut self,
        place: Place,
        what: Delivered,
        outcome: Outcome,
        to: &mut impl Effects,
    ) {
        match what {
            Delivered::Session { queue, packet_id } if self.is_on(queue, place) => {
                self.finish(queue, packet_id, outcome, to);
            }
            Delivered::Session { .. } => {}
            Delivered::Group { group, entry } => {
                self.acknowledged_share(place, group, MessageId(entry.0), outcome, to);
            }
        }
    }

    /// Ends an exchange with a session.
    pub(crate) fn finish(
        &mut self,
        id: QueueId,
        packet_id: PacketId,
        outcome: Outcome,
        to: &mut impl Effects,
    ) {
        let Some(session) = self.sessions.find_mut(id) else { return };
        let Some(exchange) = session.in_flight.find(packet_id) else { return };
        let incarnation = session.incarnation.unwrap_or_default();
        let finished = Record::Finished { session: incarnation, packet_id };
        let record = match &exchange.state {
            // Only PUBREC goes on from here.
            State::Own(_, entry) if entry.qos() == Qos::ExactlyOnce && outcome == Outcome::Accepted => {
                return;
            }
            State::Own(_, entry) => entry.is_recorded().then_some(finished),
            State::Released => Some(finished),
            State::Taken { .. } => None,
            State::Shared { group, message } => {
                let group = self.groups.table.find(*group);
                let held = group.and_then(|group| Some((group, group.held.get(message)?)));
                let entry = held.and_then(|(group, held)| Some((group, held.entry.as_ref()?)));
                let recorded = entry.filter(|(_, entry)| entry.is_recorded());
                recorded.map(|(group, _)| Record::Removed { queue: group.incarnation, message: *message })
            }
        };
        if let Some(record) = record
            && let Err(refusal) = self.replies.commit(&[record], to)
        {
            let _ = self.reason(refusal);
            return;
        }
        let Some(exchange) = session.in_flight.remove(packet_id) else { return };
        self.moved.forget(&exchange);
        let weight = Mark::of(&self.settings).weight(exchange.bytes);
        let mut lane = exchange.lane;
        if let State::Shared { group: id, message } | State::Taken { group: id, message } = exchange.state
            && let Some(group) = self.groups.table.find_mut(id)
        {
            let held = group.held.remove(&message);
            lane = held.and_then(|held| held.lane).map(|lane| (id, lane));
            group.growth.patience.progress(weight);
        }
        let counter = match outcome {
            Outcome::Accepted => &self.gauges.acknowledged,
            Outcome::Refused => &self.gauges.refused_by_client,
            Outcome::Expired => &self.gauges.expired,
        };
        shift(&self.gauges.in_flight, counter, 1);
        if let Some(online) = &mut session.online {
            online.finished(exchange.bytes);
            online.growth.patience.progress(weight);
            if !(session.queue.is_empty() && online.hungry.is_empty() && online.again.is_empty()) {
                self.is_ready(QueueOf::Session(id));
            }
        }
        lane.into_iter().for_each(|(group, lane)| self.finish_in_lane(group, lane, weight));
    }

    /// PUBREC: the client has the message.
    pub(crate) fn received(
        &mut self,
        from: ShardId,
        origin: Origin,
        packet_id: PacketId,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(place) = self.origin(from, origin) else { return };
        let Some(session) = self.sessions.find_mut(origin.queue) else { return };
        let reason = match session.in_flight.find(packet_id).map(|exchange| &exchange.state) {
            // The client has not heard PUBREL: it waits for the record of the first.
            Some(State::Released) => self.replies.promise(place).err().unwrap_or(ReasonCode::Success),
            Some(State::Own(_, entry)) if entry.qos() == Qos::ExactlyOnce => {
                let incarnation = session.incarnation.unwrap_or_default();
                let record = Record::Received { session: incarnation, packet_id };
                match self.replies.commit(&[record], to) {
                    Ok(()) => {
                        if let Some(exchange) = session.in_flight.advance(packet_id) {
                            self.moved.forget(exchange);
                            exchange.state = State::Released;
                        }
                        ReasonCode::Success
                    }
                    Err(refusal) => self.reason(refusal),
                }
            }
            _ => ReasonCode::PacketIdentifierNotFound,
        };
        self.answer_stored(place, Ticket::PubRel(packet_id), reason, now, to);
    }

    /// PUBREL: the client has heard PUBREC.
    pub(crate) fn released(
        &mut self,
        from: ShardId,
        origin: Origin,
        packet_id: PacketId,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(place) = self.origin(from, origin) else { return };
        let Some(session) = self.sessions.find_mut(origin.queue) else { return };
        let reason = if session.unreleased.contains(&packet_id) {
            let incarnation = session.incarnation.unwrap_or_default();
            match self.replies.commit(&[Record::Closed { session: incarnation, packet_id }], to) {
                Ok(()) => {
                    self.unreleased -= usize::from(session.unreleased.remove(&packet_id));
                    ReasonCode::Success
                }
                Err(refusal) => self.reason(refusal),
            }
        } else {
            ReasonCode::PacketIdentifierNotFound
        };
        self.answer_stored(place, Ticket::PubComp(packet_id), reason, now, to);
    }

    fn origin(&self, from: ShardId, origin: Origin) -> Option<Place> {
        let place = Place { shard: from, connection: origin.connection };
        self.is_on(origin.queue, place).then_some(place)
    }

    fn answer_stored(
        &mut self,
        place: Place,
        ticket: Ticket,
        reason: ReasonCode,
        now: Now,
        to: &mut impl Effects,
    ) {
        let reply = Reply::Stored { connection: place.connection, ticket, reason };
        self.answer(Answer { shard: place.shard, reply, brake: None }, now, to);
    }
}
