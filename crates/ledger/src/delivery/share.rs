//! Members of a group, and the distribution of its messages among them (MQTT 5.0, 4.8.2).

use std::borrow::Cow;
use std::sync::Arc;

use base::{Fate, Interest, Message, Now, Place, QueueId};
use index::Target;
use wire::{PacketId, Qos};

use crate::delivery::Delivery;
use crate::delivery::feed::{Feeding, is_too_large};
use crate::lines::fates::MessageAt;
use crate::lines::group::{Group, Held};
use crate::lines::outputs::is_full;
use crate::lines::session::credit_bytes;
use crate::lines::{Line, Owner};
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::record::{Effects, Granted, Incarnation, MessageId, Queued, Record, Refusal};
use crate::replies::Answer;
use protocol::{Deliver, Delivered, EntryId, Reply};

impl Delivery<'_> {
    /// Gives messages of a group to members who take some, in turn.
    pub(crate) fn feed_group(
        &mut self,
        id: QueueId,
        messages: usize,
        now: Now,
        to: &mut impl Effects,
    ) -> Feeding {
        // Members in turn that the rules do not allow to receive the next message.
        let mut passed = 0;
        let credit_bytes = credit_bytes(&self.bodies.budget);
        // A member that is asked and takes nothing counts as much as a message.
        for done in 0..messages {
            let line = self.lines.find(id).expect("the group that is fed is there");
            if !(line.has_waiting() && line.group().is_some_and(Group::has_turns)) {
                return Feeding::Done(done);
            }
            if line.waits_for_disk() {
                self.bodies.want_first(self.lines, id, to);
                return Feeding::Done(done);
            }
            let Some(member) = self.lines.next_member(id, credit_bytes, now) else { continue };
            let given = self.give(id, member, now, to);
            self.lines.put_back_in_ring(id, member);
            passed = match given {
                Ok(Given::Nothing) => passed + 1,
                Ok(Given::Done) => 0,
                Err(_) => return Feeding::Stalled,
            };
            if self.lines.group(id).is_some_and(|group| group.is_round(passed)) {
                match self.discard_if_denied(id, member, to) {
                    Ok(true) => passed = 0,
                    // Somebody may have it who takes nothing now, and says so later.
                    Ok(false) => return Feeding::Done(done),
                    Err(_) => return Feeding::Stalled,
                }
            }
            self.bodies.want_first(self.lines, id, to);
        }
        Feeding::More
    }

    /// Gives turns to members whose outputs have room again.
    pub(crate) fn look_at_outputs(&mut self, units: &mut usize, now: Now, to: &impl Effects) {
        let mark = self.lines.mark;
        while *units > 0
            && let Some((group, member)) = self.lines.full_members.next(now)
        {
            *units -= 1;
            let Some((_, session, _)) = self.lines.group_and_member(group, member) else { continue };
            let Some(share) = session.shares.get(&group) else { continue };
            let Some(online) = &mut session.online else { continue };
            // On another connection it has come into the ring anew.
            if share.present != Some(online.place) {
                continue;
            }
            if to.has_room() && self.replies.holds_nothing_behind(online.place, online.once.last) {
                online.once.weight = 0;
            }
            let share = &session.shares[&group];
            if is_full(session, share, mark) {
                self.lines.full_members.push(group, member, now);
            } else {
                self.lines.put_back_in_ring(group, member);
                self.lines.is_ready(group);
            }
        }
    }

    /// A member that took nothing takes something again: those of its groups that had something for it may have some
    /// still. Returns whether it got a message.
    pub(crate) fn feed_hungry(
        &mut self,
        member: QueueId,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<Option<bool>, Refusal> {
        let credit_bytes = credit_bytes(&self.bodies.budget);
        let session = self.lines.session_mut(member).filter(|session| session.takes_new(credit_bytes));
        let Some(session) = session else { return Ok(None) };
        let hungry = session.online.as_mut().and_then(|online| online.hungry.pop());
        let Some(id) = hungry else { return Ok(None) };
        let Some(share) = session.shares.get_mut(&id) else { return Ok(Some(false)) };
        share.hungry = None;
        // A group that was full is gone before those of its members whose connections have not ended yet.
        if share.turn.is_some() || self.lines.group(id).is_none() {
            return Ok(Some(false));
        }
        self.lines.put_back_in_ring(id, member);
        if !self.lines.find(id).is_some_and(Line::has_waiting) {
            return Ok(Some(false));
        }
        // In line in any case: where there is no space now, others try again.
        self.lines.is_ready(id);
        let mark = self.lines.mark;
        if self.lines.session(member).is_some_and(|session| is_full(session, &session.shares[&id], mark)) {
            return Ok(Some(false));
        }
        self.give(id, member, now, to)?;
        Ok(Some(true))
    }

    /// Gives the next message of a group to a member that takes one.
    fn give(
        &mut self,
        id: QueueId,
        member: QueueId,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<Given, Refusal> {
        let line = self.lines.find(id).expect("the group that is fed is there");
        let session = self.lines.session(member).expect("the member of a group is there");
        let online = session.online.as_ref().expect("a member that takes something is connected");
        let share = session.shares.get(&id).expect("it is a member");
        // Messages of a group that keeps the order of keys may be for other members.
        let Some((_, entry)) = line.next_for(member) else { return Ok(Given::Done) };
        if entry.is_expired(now) {
            return self.take_next(id, member, Fate::Expired, to).map(|_| Given::Done);
        }
        let Some(message) = entry.message() else {
            self.bodies.want_first(self.lines, id, to);
            return Ok(Given::Done);
        };
        if !self.settings.may_receive(&session.subscriber, message) {
            let keeps_order = line.group().is_some_and(|group| group.lanes.is_some());
            if !keeps_order {
                return Ok(Given::Nothing);
            }
            // Nobody else may have it before the others of its key.
            return self.take_next(id, member, Fate::MayNotRead, to).map(|_| Given::Done);
        }
        let granted = granted(message, share.interest);
        if is_too_large(message, &granted.identifiers, online.packet_bytes_max, now) {
            return self.take_next(id, member, Fate::TooLarge, to).map(|_| Given::Done);
        }
        if granted.qos > Qos::AtMostOnce {
            return self.lend(id, member, granted, now, to).map(|()| Given::Done);
        }
        let place = online.place;
        let subscriber = Arc::clone(&session.subscriber);
        let targets = Arc::new([Target::one(subscriber, place.connection, share.interest)]);
        let message = Arc::clone(message);
        let entry = self.take_next(id, member, Fate::Sent, to)?;
        if self.lines.fates.is_on()
            && let Some((Line { owner: Owner::Group(group), .. }, fates)) = self.lines.find_with_fates(id)
        {
            let (subscriber, sent) = (&targets[0].subscriber, (Qos::AtMostOnce, None));
            fates.note_given((&group.subscriber, subscriber), (&message, None), sent);
        }
        self.lines.note_progress(id, member, &entry, self.replies.committed());
        let reply = Reply::Live { message, targets, value: None };
        let answer = Answer::new(place.shard, reply);
        // At most once: after a crash nobody else may get it.
        if entry.is_recorded() {
            self.replies.answer_to(self.lines, place, answer, now, to);
        } else {
            self.replies.release(self.lines, answer, now, to);
        }
        Ok(Given::Done)
    }

    /// Takes the next message out of a group if no member may receive it, connected or not. Returns whether that is so.
    fn discard_if_denied(
        &mut self,
        id: QueueId,
        member: QueueId,
        to: &mut impl Effects,
    ) -> Result<bool, Refusal> {
        let Some(line) = self.lines.find(id) else { return Ok(false) };
        let Some((_, entry)) = line.next_for(member) else { return Ok(false) };
        let members = line.group().and_then(|group| group.subscriber.members());
        let (Some(message), Some(members)) = (entry.message(), members) else { return Ok(false) };
        if members.any(|member| self.settings.may_receive(member, message)) {
            return Ok(false);
        }
        self.take_next(id, member, Fate::MayNotRead, to).map(|_| true)
    }

    /// Takes the next message for a member out of a group for good.
    fn take_next(
        &mut self,
        id: QueueId,
        member: QueueId,
        fate: Fate,
        to: &mut impl Effects,
    ) -> Result<Entry, Refusal> {
        let line = self.lines.find_mut(id).expect("the group that is fed is there");
        let (message, entry) = line.next_for(member).expect("it has something for this member");
        if entry.is_recorded() {
            let queue = line.incarnation().expect("a group has a name");
            self.replies.commit(&[Record::Removed { queue, message }], to)?;
        }
        let entry = line.take(message).expect("it was there when this was recorded");
        let at = MessageAt::Waiting { id: message, entry: &entry, packet_id: None };
        if matches!(fate, Fate::TooLarge | Fate::MayNotRead)
            && let Some(message) = entry.message()
        {
            // Only the member whose turn it is gets a record. The record has no number: the same message may wait in the member's
            // own queue under its number.
            let coming = MessageAt::Coming { message, qos: entry.qos(), id: None };
            self.lines.note(member, coming, fate.clone());
        }
        self.lines.decided(id, at, fate);
        Ok(entry)
    }

    /// Sends the next message of a group to a member. It is held for the member; one of QoS 2 becomes the member's own if
    /// its session lasts [MQTT-4.8.2-4].
    fn lend(
        &mut self,
        id: QueueId,
        member: QueueId,
        granted: Granted,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<(), Refusal> {
        let mark = self.lines.mark;
        let (line, session, fates) =
            self.lines.group_and_member(id, member).expect("the group and its member are there");
        let name = line.incarnation().expect("a group has a name");
        let (message, entry) = line.next_for(member).expect("it has something for this member");
        let body = Arc::clone(entry.message().expect("it is in memory"));
        let bytes = entry.size_bytes();
        let packet_id = session.in_flight.allocate();
        let packet_id = packet_id.expect("a member that takes something has fewer than 65,535 on their way");
        let owner = session.incarnation().filter(|_| granted.qos == Qos::ExactlyOnce);
        if let Some(owner) = owner {
            let records = moved(name, owner, (message, entry), packet_id, &granted);
            self.replies.commit(&records, to)?;
        }
        let online = session.online.as_mut().expect("a member that takes something is connected");
        let mut entry = line.take(message).expect("it was there when this was recorded");
        let at = MessageAt::Waiting { id: message, entry: &entry, packet_id: Some(packet_id) };
        fates.decided(&line.owner, at, Fate::Sent);
        let Line { owner: Owner::Group(group), growth, .. } = line else { unreachable!("it is a group") };
        let sent = (granted.qos, Some(packet_id));
        fates.note_given((&group.subscriber, &session.subscriber), (&body, Some(message)), sent);
        let lane = group.lane_of(&body);
        if let (Some(lane), Some(lanes)) = (lane, &mut group.lanes) {
            lanes.lend(lane, member);
        }
        entry.set_recorded(entry.is_recorded() || owner.is_some());
        online.begun(bytes);
        let what = match session.subscriber.queue {
            Some(queue) => Delivered::Session { queue, packet_id },
            None => Delivered::Group { group: id, entry: EntryId(message.0) },
        };
        let Place { shard, connection } = online.place;
        let reply = Reply::Deliver(deliver(connection, what, body, granted.clone(), false));
        entry.grant(granted);
        if owner.is_some() {
            // It will not come back, and its place was free because others were acknowledged.
            growth.patience.progress(mark.weight(bytes));
            session.in_flight.insert(packet_id, bytes, State::Own(message, entry));
            let exchange = session.in_flight.find_mut(packet_id).expect("it was put there");
            exchange.lane = lane.map(|lane| (id, lane));
            exchange.moved_from = Some(name);
            self.sessions.moved.note(exchange, member);
            self.replies.answer(self.lines, Answer::new(shard, reply), now, to);
        } else {
            session.in_flight.insert(packet_id, bytes, State::Shared { group: id, message });
            group.held.insert(message, Held { holder: member, packet_id, lane, entry: Some(entry) });
            to.post(shard, reply);
        }
        Ok(())
    }

    /// A member that numbers its own packets has written a message of QoS 2, so that nobody else may get it
    /// [MQTT-4.8.2-5].
    pub(crate) fn sent(&mut self, place: Place, group_id: QueueId, entry: EntryId, to: &mut impl Effects) {
        let message = MessageId(entry.0);
        let Some((holder, packet_id)) = self.holder(place, group_id, message) else { return };
        let group = self.lines.group_mut(group_id).expect("it has a holder");
        let held = group.held.get_mut(&message).expect("it has a holder");
        // A member says that it has written one only of QoS 2, and only once.
        let Some(entry) = held.entry.as_ref().filter(|entry| entry.qos() == Qos::ExactlyOnce) else {
            return;
        };
        if entry.is_recorded() {
            let removed = Record::Removed { queue: group.incarnation, message };
            // If this record is refused, another session may receive the message again after a restart.
            let _ = self.replies.commit(&[removed], to);
        }
        held.entry = None;
        let session = self.lines.session_mut(holder).expect("the holder is there");
        let exchange = session.in_flight.find_mut(packet_id).expect("its holder has an exchange for it");
        exchange.state = State::Taken { group: group_id, message };
    }

    /// A member that numbers its own packets has finished with a message.
    pub(crate) fn acknowledged_share(
        &mut self,
        place: Place,
        group_id: QueueId,
        message: MessageId,
        fate: Fate,
        to: &mut impl Effects,
    ) {
        if let Some((holder, packet_id)) = self.holder(place, group_id, message) {
            self.finish(holder, packet_id, fate, to);
        }
    }

    /// The member on this connection that has the message.
    fn holder(&self, place: Place, group: QueueId, message: MessageId) -> Option<(QueueId, PacketId)> {
        let held = self.lines.group(group)?.held.get(&message)?;
        self.lines.is_on(held.holder, place).then_some((held.holder, held.packet_id))
    }
}

/// The outcome for a member whose turn it was.
enum Given {
    /// The member has got a message, or there was none for it.
    Done,
    /// The member may not receive the next message, and others may.
    Nothing,
}

/// The records of a message that goes from a group to one of its members for good.
fn moved<'a>(
    group: Incarnation,
    session: Incarnation,
    (message, entry): (MessageId, &'a Entry),
    packet_id: PacketId,
    granted: &'a Granted,
) -> Vec<Record<'a>> {
    let moved = Record::Moved { group, session, message, packet_id, granted: Cow::Borrowed(granted) };
    if entry.is_recorded() {
        return vec![moved];
    }
    // It came when the group had no member that lasts. The identifier is in use even after a restart.
    let queues = Cow::Owned(vec![Queued { queue: group, granted: entry.granted() }]);
    let body = Cow::Borrowed(entry.message().expect("it is in memory"));
    vec![Record::Enqueue { message, body, queues, is_retained: false }, moved]
}

/// As what a member gets a message: its own subscription says that, not the group's.
fn granted(message: &Message, interest: Interest) -> Granted {
    Granted {
        qos: message.qos().min(interest.qos()),
        retain: message.retain() && interest.retain_as_published(),
        identifiers: interest.identifier().into_iter().collect(),
    }
}

pub(crate) fn deliver(
    connection: base::ConnectionId,
    what: Delivered,
    message: Arc<Message>,
    Granted { qos, retain, identifiers }: Granted,
    dup: bool,
) -> Deliver {
    Deliver { connection, what, message, qos, retain, dup, identifiers }
}
