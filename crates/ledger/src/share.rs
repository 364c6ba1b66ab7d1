//! Members of a group, and the distribution of its messages among them (MQTT 5.0, 4.8.2).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use base::{Interest, Lane, Member, Message, Now, Place, QueueId, Subscriber};
use index::{Change, Target};
use topic::TopicFilter;
use wire::{PacketId, Qos};

use crate::acknowledge::Outcome;
use crate::brake::Growth;
use crate::entry::Entry;
use crate::feed::{Feeding, is_too_large};
use crate::gauges::{add, shift, subtract};
use crate::group::{Group, Held};
use crate::in_flight::State;
use crate::lines::{Line, Owner};
use crate::outputs::is_full;
use crate::record::{Granted, Incarnation, MessageId, Queued};
use crate::replies::Answer;
use crate::session::{Share, credit_bytes};
use crate::{Effects, Ledger, Record, Refusal};
use protocol::{Deliver, Delivered, EntryId, Gauges, Reply};

impl Ledger {
    /// The group of a filter, which comes to be if there is none yet: then this session has begun it.
    pub(crate) fn group_of(&mut self, filter: &str, founder: QueueId) -> QueueId {
        match self.lines.filters.of_filter(filter) {
            Some(group) => group,
            None => {
                let incarnation = self.next_incarnation();
                self.lines.insert_group(filter, incarnation, Some(founder))
            }
        }
    }

    /// Makes a session a member, or replaces what its subscription asks for.
    pub(crate) fn join(&mut self, id: QueueId, group_id: QueueId, interest: Interest) {
        let (line, session) =
            self.lines.group_and_member(group_id, id).expect("who joins, and what, is there");
        let group = line.group_mut().expect("it is a group");
        let members = group.subscriber.members().expect("it is a group");
        members.put(Member { subscriber: Arc::clone(&session.subscriber), interest });
        if let Some(share) = session.shares.get_mut(&group_id) {
            share.interest = interest;
            return;
        }
        session.shares.insert(group_id, Share { interest, present: None, turn: None, hungry: None });
        group.members += 1;
        if group.members == 1 {
            let filter = TopicFilter::new(&group.subscriber.client_id).expect("a group has a valid filter");
            let options = Interest::new(Qos::ExactlyOnce);
            let change = Change::Subscribe { filter, subscriber: &group.subscriber, options };
            self.index.apply([change], &mut Vec::new());
        }
        if session.open().is_some() {
            self.take_part(id, group_id);
        }
    }

    /// A member has come online, or somebody who is has become a member.
    pub(crate) fn take_part(&mut self, id: QueueId, group_id: QueueId) {
        let (line, session) =
            self.lines.group_and_member(group_id, id).expect("who takes part, and in what, is there");
        let Line { owner: Owner::Group(group), queue, growth, .. } = line else {
            unreachable!("it is a group")
        };
        let share = session.shares.get_mut(&group_id).expect("it is a member");
        let online = session.online.as_ref().expect("who takes part is connected");
        share.present = Some(online.place);
        // The line in which the group stood was that of another connection.
        share.hungry = None;
        group.set_connected(&session.subscriber, true);
        match &mut group.lanes {
            Some(lanes) => lanes.arrive(id, &session.subscriber),
            None => drop(share.turn.get_or_insert_with(|| group.ring.push(id))),
        }
        group.connected += 1;
        if group.connected == 1 {
            *growth = Growth::begin(queue);
        }
        self.lines.is_ready(group_id);
        self.decide_lanes_of(group_id);
    }

    /// A group has one member less who takes something. Returns how many lanes that member had.
    pub(crate) fn part_from(
        &mut self,
        subscriber: &Arc<Subscriber>,
        id: QueueId,
        group_id: QueueId,
    ) -> usize {
        let Some(group) = self.lines.group_mut(group_id) else { return 0 };
        group.set_connected(subscriber, false);
        group.connected = group.connected.saturating_sub(1);
        let mut lanes_left = 0;
        if let (Some(lanes), Some(members)) = (&mut group.lanes, group.subscriber.members()) {
            lanes_left = lanes.depart(id, members, &mut self.claims_left);
            self.decide_lanes_of(group_id);
        }
        lanes_left
    }

    /// Members of a group have come or gone: its lanes get their owners, now as far as this turn has time for it.
    fn decide_lanes_of(&mut self, group_id: QueueId) {
        let Some(group) = self.lines.group_mut(group_id) else { return };
        let is_undecided = group.lanes.as_ref().is_some_and(|lanes| lanes.is_undecided());
        if is_undecided && !std::mem::replace(&mut group.is_deciding, true) {
            self.deciding.push_back(group_id);
        }
        self.decide_lanes();
    }

    /// Finds owners of lanes, a bounded number of claims a turn, for each group in turn.
    pub(crate) fn decide_lanes(&mut self) {
        while self.claims_left > 0
            && let Some(group_id) = self.deciding.pop_front()
        {
            let Some(group) = self.lines.group_mut(group_id) else { continue };
            let (Some(lanes), Some(members)) = (&mut group.lanes, group.subscriber.members()) else {
                continue;
            };
            lanes.decide(&mut self.claims_left, members);
            match lanes.is_undecided() {
                true => self.deciding.push_back(group_id),
                false => group.is_deciding = false,
            }
            self.lines.is_ready(group_id);
        }
    }

    /// A message of a lane is with its holder no more: others may follow.
    pub(crate) fn finish_in_lane(&mut self, group_id: QueueId, lane: Lane, weight: usize) {
        let lanes = self.lines.group_mut(group_id).and_then(|group| group.lanes.as_mut());
        if let Some(lanes) = lanes {
            lanes.finish(lane, weight);
            if lanes.has_turns() {
                self.lines.is_ready(group_id);
            }
        }
    }

    /// Ends a membership. A group without members is none, and its messages go with it. Returns how many lanes the member
    /// had.
    pub(crate) fn leave(
        &mut self,
        subscriber: &Arc<Subscriber>,
        id: QueueId,
        group_id: QueueId,
        share: &Share,
    ) -> usize {
        let Some(group) = self.lines.group_mut(group_id) else { return 0 };
        if let Some(members) = group.subscriber.members() {
            members.remove(subscriber);
        }
        share.turn.into_iter().for_each(|turn| group.ring.remove(turn));
        group.members -= 1;
        let online = self.lines.session_mut(id).and_then(|session| session.online.as_mut());
        // The turn may be one of an earlier connection.
        if let Some(online) = online.filter(|online| share.present == Some(online.place)) {
            share.hungry.into_iter().for_each(|turn| online.hungry.remove(turn));
        }
        let lanes = share.present.map_or(0, |_| self.part_from(subscriber, id, group_id));
        self.remove_if_empty(group_id);
        lanes
    }

    pub(crate) fn record_end_of(&mut self, group: QueueId, to: &mut impl Effects) -> Result<(), Refusal> {
        match self.lines.group(group) {
            Some(group) if group.is_recorded => {
                self.replies.commit(&[Record::GroupEnded { group: group.incarnation }], to)
            }
            _ => Ok(()),
        }
    }

    /// Forgets a group that has no members. Former members finish their exchanges.
    pub(crate) fn remove_if_empty(&mut self, id: QueueId) {
        if self.lines.group(id).is_none_or(|group| group.members > 0) {
            return;
        }
        let line = self.lines.remove(id).expect("it was there");
        let Line { owner: Owner::Group(mut group), queue, .. } = *line else { unreachable!("it is a group") };
        self.sweep.forget(id);
        let filter = TopicFilter::new(&group.subscriber.client_id).expect("a group has a valid filter");
        let change = Change::Unsubscribe { filter, subscriber: &group.subscriber };
        self.index.apply([change], &mut Vec::new());
        let returned: usize = group.returned.values().map(|entry| entry.size_bytes()).sum();
        subtract(&self.gauges.queued_bytes, queue.bytes() + returned);
        shift(&self.gauges.queued, &self.gauges.discarded, queue.len() + group.returned.len());
        for (message, held) in group.held.drain() {
            self.finish_without_group(message, held);
        }
    }

    /// A member of a group that is no more has a message of it. One that keeps its identifiers finishes the exchange.
    fn finish_without_group(&mut self, message: MessageId, held: Held) {
        let session = self.lines.session_mut(held.holder);
        match (session, held.entry) {
            (Some(session), Some(mut entry)) if session.lasting.is_some() => {
                entry.stay();
                entry.set_recorded(false);
                let exchange = session.in_flight.find_mut(held.packet_id);
                exchange.expect("its holder has an exchange for it").state = State::Own(message, entry);
            }
            (session, _) => {
                shift(&self.gauges.in_flight, &self.gauges.discarded, 1);
                let exchange = session.map(|session| (session.in_flight.remove(held.packet_id), session));
                if let Some((Some(exchange), session)) = exchange
                    && let Some(online) = &mut session.online
                {
                    online.finished(exchange.bytes);
                    // Other groups may have waited for that place.
                    self.lines.is_ready(held.holder);
                }
            }
        }
    }

    /// A member has gone without having finished with a message: it takes its old place, unless it is the member's.
    pub(crate) fn give_back(&mut self, group_id: QueueId, message: MessageId) {
        let Some(group) = self.lines.group_mut(group_id) else { return };
        let Some(held) = group.held.remove(&message) else { return };
        match held.entry {
            Some(entry) => {
                add(&self.gauges.queued_bytes, entry.size_bytes());
                shift(&self.gauges.in_flight, &self.gauges.queued, 1);
                if entry.expires() {
                    self.sweep.add(group_id);
                }
                group.put_back(message, entry);
                self.lines.is_ready(group_id);
            }
            None => shift(&self.gauges.in_flight, &self.gauges.discarded, 1),
        }
        held.lane.into_iter().for_each(|lane| self.finish_in_lane(group_id, lane, 0));
    }

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
        // A member that is asked and takes nothing counts as much as a message.
        for done in 0..messages {
            let line = self.lines.find(id).expect("the group that is fed is there");
            if !(line.has_waiting() && line.group().is_some_and(Group::has_turns)) {
                return Feeding::Done(done);
            }
            if line.waits_for_disk() {
                self.want_first(id, to);
                return Feeding::Done(done);
            }
            let Some(member) = self.next_member(id, now) else { continue };
            let given = self.give(id, member, now, to);
            self.put_back_in_ring(id, member);
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
            self.want_first(id, to);
        }
        Feeding::More
    }

    /// The next member in turn, if it takes something. One that does not comes again when it does.
    fn next_member(&mut self, id: QueueId, now: Now) -> Option<QueueId> {
        let group = self.lines.group_mut(id)?;
        let member = match &mut group.lanes {
            Some(lanes) => lanes.pop_turn()?,
            None => group.ring.pop()?,
        };
        let mark = self.lines.mark;
        // A session that has ended stands there until it has left its groups.
        let (line, session) = self.lines.group_and_member(id, member)?;
        let takes_new = session.takes_new(credit_bytes(self.tally.budget()));
        let is_full = is_full(session, &session.shares[&id], mark);
        let share = session.shares.get_mut(&id).expect("who takes part is a member");
        share.turn = None;
        if takes_new && !is_full {
            return Some(member);
        }
        let group = line.group_mut().expect("it is a group");
        group.lanes.iter_mut().for_each(|lanes| lanes.starve(member));
        if is_full {
            self.wait_for_output(id, member, now);
        } else if let Some(online) = &mut session.online {
            share.hungry.get_or_insert_with(|| online.hungry.push(id));
        }
        None
    }

    /// A member that takes something, as far as is known, stands behind the others.
    pub(crate) fn put_back_in_ring(&mut self, id: QueueId, member: QueueId) {
        if let Some(lanes) = self.lines.group_mut(id).and_then(|group| group.lanes.as_mut()) {
            return lanes.wake(member);
        }
        let (line, session) =
            self.lines.group_and_member(id, member).expect("the group and its member are there");
        let share = session.shares.get_mut(&id).expect("who takes part is a member");
        let group = line.group_mut().expect("it is a group");
        share.turn.get_or_insert_with(|| group.ring.push(member));
    }

    /// A member that took nothing takes something again: those of its groups that had something for it may have some
    /// still. Returns whether it got a message.
    pub(crate) fn feed_hungry(
        &mut self,
        member: QueueId,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<Option<bool>, Refusal> {
        let credit_bytes = credit_bytes(self.tally.budget());
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
        self.put_back_in_ring(id, member);
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
            return self.take_next(id, member, |gauges| &gauges.expired, to).map(|_| Given::Done);
        }
        let Some(message) = entry.message() else {
            self.want_first(id, to);
            return Ok(Given::Done);
        };
        if !self.may_receive(&session.subscriber, message) {
            let keeps_order = line.group().is_some_and(|group| group.lanes.is_some());
            if !keeps_order {
                return Ok(Given::Nothing);
            }
            // Nobody else may have it before the others of its key.
            return self.take_next(id, member, |gauges| &gauges.refused_by_client, to).map(|_| Given::Done);
        }
        let granted = granted(message, share.interest);
        if is_too_large(message, &granted.identifiers, online.packet_bytes_max, now) {
            return self.take_next(id, member, |gauges| &gauges.too_large, to).map(|_| Given::Done);
        }
        if granted.qos > Qos::AtMostOnce {
            return self.lend(id, member, granted, now, to).map(|()| Given::Done);
        }
        let place = online.place;
        let subscriber = Arc::clone(&session.subscriber);
        let targets = Arc::new([Target::one(subscriber, place.connection, share.interest)]);
        let message = Arc::clone(message);
        let entry = self.take_next(id, member, |gauges| &gauges.acknowledged, to)?;
        self.note_progress(id, member, &entry);
        let reply = Reply::Live { message, targets, stored: false };
        let answer = Answer { shard: place.shard, reply, brake: None };
        // At most once: after a crash nobody else may get it.
        if entry.is_recorded() {
            self.answer_to(place, answer, now, to);
        } else {
            self.release(answer, now, to);
        }
        Ok(Given::Done)
    }

    /// A member has taken a message of QoS 0: no acknowledgement will say so.
    fn note_progress(&mut self, id: QueueId, member: QueueId, entry: &Entry) {
        let weight = self.lines.mark.weight(entry.size_bytes());
        let Some((line, session)) = self.lines.group_and_member(id, member) else { return };
        if let Some(online) = &mut session.online {
            online.once.add(weight, entry.is_recorded().then(|| self.replies.committed()));
        }
        line.growth.patience.progress(weight);
        let lanes = line.group_mut().and_then(|group| group.lanes.as_mut());
        lanes.into_iter().for_each(|lanes| lanes.progress(member, weight));
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
        if members.any(|member| self.may_receive(member, message)) {
            return Ok(false);
        }
        self.take_next(id, member, |gauges| &gauges.refused_by_client, to).map(|_| true)
    }

    /// Takes the next message for a member out of a group for good, and counts it.
    fn take_next(
        &mut self,
        id: QueueId,
        member: QueueId,
        counter: fn(&Gauges) -> &AtomicUsize,
        to: &mut impl Effects,
    ) -> Result<Entry, Refusal> {
        let line = self.lines.find_mut(id).expect("the group that is fed is there");
        let (message, entry) = line.next_for(member).expect("it has something for this member");
        if entry.is_recorded() {
            let queue = line.incarnation().expect("a group has a name");
            self.replies.commit(&[Record::Removed { queue, message }], to)?;
        }
        shift(&self.gauges.queued, counter(&self.gauges), 1);
        subtract(&self.gauges.queued_bytes, entry.size_bytes());
        Ok(line.take(message).expect("it was there when this was recorded"))
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
        let (line, session) =
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
        let Line { owner: Owner::Group(group), growth, .. } = line else { unreachable!("it is a group") };
        let lane = group.lane_of(&body);
        if let (Some(lane), Some(lanes)) = (lane, &mut group.lanes) {
            lanes.lend(lane, member);
        }
        entry.set_recorded(entry.is_recorded() || owner.is_some());
        shift(&self.gauges.queued, &self.gauges.in_flight, 1);
        subtract(&self.gauges.queued_bytes, bytes);
        online.begun(bytes);
        let what = match session.subscriber.queue {
            Some(queue) => Delivered::Session { queue, packet_id },
            None => Delivered::Group { group: id, entry: EntryId(message.0) },
        };
        let Place { shard, connection } = online.place;
        let reply = Reply::Deliver(Box::new(deliver(connection, what, body, granted.clone(), false)));
        entry.grant(granted);
        if owner.is_some() {
            // It will not come back, and its place was free because others were acknowledged.
            growth.patience.progress(mark.weight(bytes));
            session.in_flight.insert(packet_id, bytes, State::Own(message, entry));
            let exchange = session.in_flight.find_mut(packet_id).expect("it was put there");
            exchange.lane = lane.map(|lane| (id, lane));
            exchange.moved_from = Some(name);
            self.moved.note(exchange, member);
            self.answer(Answer { shard, reply, brake: None }, now, to);
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
        outcome: Outcome,
        to: &mut impl Effects,
    ) {
        if let Some((holder, packet_id)) = self.holder(place, group_id, message) {
            self.finish(holder, packet_id, outcome, to);
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
