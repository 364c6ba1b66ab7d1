//! Answers of clients in open exchanges, in both directions (MQTT 5.0, 4.3).

use base::{Fate, Now, Place, QueueId, ShardId, Ticket};
use wire::{PacketId, Qos, ReasonCode};

use crate::delivery::Delivery;
use crate::lines::fates::MessageAt;
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::record::{Effects, MessageId, Record};
use crate::replies::Answer;
use protocol::{Delivered, Origin, Reply};

impl Delivery<'_> {
    /// The end of an exchange with a subscriber, which has answered, or whose message has expired unsent.
    pub(crate) fn acknowledged(&mut self, place: Place, what: Delivered, fate: Fate, to: &mut impl Effects) {
        match what {
            Delivered::Session { queue, packet_id } if self.lines.is_on(queue, place) => {
                self.finish(queue, packet_id, fate, to);
            }
            Delivered::Session { .. } => {}
            Delivered::Group { group, entry } => {
                self.acknowledged_share(place, group, MessageId(entry.0), fate, to);
            }
        }
    }

    /// Ends an exchange with a session.
    pub(crate) fn finish(&mut self, id: QueueId, packet_id: PacketId, fate: Fate, to: &mut impl Effects) {
        let session = self.lines.session(id).expect("the session that answers is there");
        // A client may acknowledge what it was never sent.
        let Some(exchange) = session.in_flight.find(packet_id) else { return };
        let bytes = exchange.bytes;
        let name = session.incarnation();
        let (recorded, lent) = match &exchange.state {
            // Only PUBREC goes on from here.
            State::Own(_, entry) if entry.qos() == Qos::ExactlyOnce && fate == Fate::Acknowledged => {
                return;
            }
            State::Own(_, entry) => (name.filter(|_| entry.is_recorded()), None),
            State::Released => (name, None),
            State::Taken { .. } => (None, None),
            State::Shared { group, message } => {
                let group = self.lines.group(*group).expect("a group that ends takes its exchanges with it");
                let held = group.held.get(message).expect("a group holds what it has lent");
                let is_recorded = held.entry.as_ref().is_some_and(Entry::is_recorded);
                (is_recorded.then_some(group.incarnation), Some(*message))
            }
        };
        // A record is large, and made where it is committed.
        let committed = match (recorded, lent) {
            (Some(session), None) => self.replies.commit(&[Record::Finished { session, packet_id }], to),
            (Some(queue), Some(message)) => self.replies.commit(&[Record::Removed { queue, message }], to),
            (None, _) => Ok(()),
        };
        if let Err(refusal) = committed {
            let _ = self.replies.reason(refusal);
            return;
        }
        let weight = self.lines.mark.weight(bytes);
        let (line, fates) =
            self.lines.find_with_fates(id).expect("the session was there before this was recorded");
        fates.decided(&line.owner, MessageAt::UnderWay { packet_id, bytes }, fate);
        let session = line.session_mut().expect("it is a session");
        let exchange = session.in_flight.remove(packet_id).expect("it was there before this was recorded");
        self.sessions.moved.forget(&exchange);
        if let Some(online) = &mut session.online {
            online.finished(exchange.bytes);
            let has_more = !(online.hungry.is_empty() && online.again.is_empty());
            line.growth.patience.progress(weight);
            if has_more || !line.queue.is_empty() {
                self.lines.is_ready(id);
            }
        }
        let mut lane = exchange.lane;
        if let State::Shared { group: id, message } | State::Taken { group: id, message } = exchange.state {
            let line = self.lines.find_mut(id).expect("a group that ends takes its exchanges with it");
            line.growth.patience.progress(weight);
            let group = line.group_mut().expect("it is a group");
            let held = group.held.remove(&message).expect("a group holds what it has lent");
            lane = held.lane.map(|lane| (id, lane));
        }
        lane.into_iter().for_each(|(group, lane)| self.lines.finish_in_lane(group, lane, weight));
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
        let session = self.lines.session_mut(origin.queue).expect("a session is on its connection");
        let reason = match session.in_flight.find(packet_id).map(|exchange| &exchange.state) {
            // The client has not heard PUBREL: it waits for the record of the first.
            Some(State::Released) => self.replies.promise(place).err().unwrap_or(ReasonCode::Success),
            Some(State::Own(_, entry)) if entry.qos() == Qos::ExactlyOnce => {
                let name = session.incarnation().expect("what is a session's own is one's that lasts");
                let record = Record::Received { session: name, packet_id };
                match self.replies.commit(&[record], to) {
                    Ok(()) => {
                        let exchange = session.in_flight.advance(packet_id).expect("it was found");
                        self.sessions.moved.forget(exchange);
                        exchange.state = State::Released;
                        ReasonCode::Success
                    }
                    Err(refusal) => self.replies.reason(refusal),
                }
            }
            _ => ReasonCode::PacketIdentifierNotFound,
        };
        if reason == ReasonCode::Success {
            self.lines.decided(origin.queue, MessageAt::UnderWay { packet_id, bytes: 0 }, Fate::Received);
        }
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
        let session = self.lines.session_mut(origin.queue).expect("a session is on its connection");
        let lasting = session.lasting.as_mut().filter(|lasting| lasting.unreleased.contains(&packet_id));
        let reason = if let Some(lasting) = lasting {
            let closed = Record::Closed { session: lasting.incarnation, packet_id };
            match self.replies.commit(&[closed], to) {
                Ok(()) => {
                    self.sessions.unreleased -= usize::from(lasting.unreleased.remove(&packet_id));
                    ReasonCode::Success
                }
                Err(refusal) => self.replies.reason(refusal),
            }
        } else {
            ReasonCode::PacketIdentifierNotFound
        };
        self.answer_stored(place, Ticket::PubComp(packet_id), reason, now, to);
    }

    fn origin(&self, from: ShardId, origin: Origin) -> Option<Place> {
        let place = Place { shard: from, connection: origin.connection };
        self.lines.is_on(origin.queue, place).then_some(place)
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
        self.replies.answer(self.lines, Answer::new(place.shard, reply), now, to);
    }
}
