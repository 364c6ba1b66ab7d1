//! Members of groups: they come and go, and stand in turn for the messages of their groups.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Fate, Interest, Lane, Member, Now, QueueId, Subscriber};
use index::Change;
use topic::TopicFilter;
use wire::Qos;

use crate::lines::brake::Growth;
use crate::lines::fates::{MessageAt, Whereabouts};
use crate::lines::group::Held;
use crate::lines::outputs::is_full;
use crate::lines::session::Share;
use crate::lines::{Line, Lines, Owner};
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::record::{Granted, Lsn, MessageId, Numbers};

/// How many claims of members to lanes are worked out in one turn, about. One takes some tens of nanoseconds.
const CLAIMS_AT_A_TIME: usize = 8_192;

/// Lanes that are to get their owners.
#[derive(Debug)]
pub(crate) struct Deciding {
    /// The groups of these lanes, in turn.
    groups: VecDeque<QueueId>,
    /// How many claims to lanes may still be worked out in this turn.
    claims_left: usize,
}

impl Default for Deciding {
    fn default() -> Self {
        Self { groups: VecDeque::new(), claims_left: CLAIMS_AT_A_TIME }
    }
}

impl Deciding {
    pub(crate) fn begin_turn(&mut self) {
        self.claims_left = CLAIMS_AT_A_TIME;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Lines {
    /// The group of a filter, which comes to be if there is none yet: then this session has begun it.
    pub(crate) fn group_of(&mut self, filter: &str, founder: QueueId, numbers: &mut Numbers) -> QueueId {
        match self.filters.of_filter(filter) {
            Some(group) => group,
            None => {
                let incarnation = numbers.next_incarnation();
                self.insert_group(filter, incarnation, Some(founder))
            }
        }
    }

    /// Makes a session a member, or replaces what its subscription asks for.
    pub(crate) fn join(&mut self, id: QueueId, group_id: QueueId, interest: Interest) {
        let (line, session, _) = self.group_and_member(group_id, id).expect("who joins, and what, is there");
        let group = line.group_mut().expect("it is a group");
        let members = group.subscriber.members().expect("it is a group");
        members.put(Member { subscriber: Arc::clone(&session.subscriber), interest });
        if let Some(share) = session.shares.get_mut(&group_id) {
            share.interest = interest;
            return;
        }
        session.shares.insert(group_id, Share { interest, present: None, turn: None, hungry: None });
        group.members += 1;
        let is_open = session.open().is_some();
        if group.members == 1 {
            let subscriber = &Arc::clone(&group.subscriber);
            let filter = TopicFilter::new(&subscriber.client_id).expect("a group has a valid filter");
            let options = Interest::new(Qos::ExactlyOnce);
            self.index.apply([Change::Subscribe { filter, subscriber, options }], &mut Vec::new());
        }
        if is_open {
            self.take_part(id, group_id);
        }
    }

    /// A member has come online, or somebody who is has become a member.
    pub(crate) fn take_part(&mut self, id: QueueId, group_id: QueueId) {
        let (line, session, _) =
            self.group_and_member(group_id, id).expect("who takes part, and in what, is there");
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
        self.is_ready(group_id);
        self.decide_lanes_of(group_id);
    }

    /// A group has one member less who takes something. Returns how many lanes that member had.
    pub(crate) fn part_from(
        &mut self,
        subscriber: &Arc<Subscriber>,
        id: QueueId,
        group_id: QueueId,
    ) -> usize {
        let Some(group) = self.table.find_mut(group_id).and_then(Line::group_mut) else { return 0 };
        group.set_connected(subscriber, false);
        group.connected = group.connected.saturating_sub(1);
        let mut lanes_left = 0;
        if let (Some(lanes), Some(members)) = (&mut group.lanes, group.subscriber.members()) {
            lanes_left = lanes.depart(id, members, &mut self.deciding.claims_left);
            self.decide_lanes_of(group_id);
        }
        lanes_left
    }

    /// Members of a group have come or gone: its lanes get their owners, now as far as this turn has time for it.
    fn decide_lanes_of(&mut self, group_id: QueueId) {
        let group = self.group_mut(group_id).expect("the group whose members come and go is there");
        let is_undecided = group.lanes.as_ref().is_some_and(|lanes| lanes.is_undecided());
        if is_undecided && !std::mem::replace(&mut group.is_deciding, true) {
            self.deciding.groups.push_back(group_id);
        }
        self.decide_lanes();
    }

    /// Finds owners of lanes, a bounded number of claims a turn, for each group in turn.
    pub(crate) fn decide_lanes(&mut self) {
        while self.deciding.claims_left > 0
            && let Some(group_id) = self.deciding.groups.pop_front()
        {
            let Some(group) = self.table.find_mut(group_id).and_then(Line::group_mut) else { continue };
            let (Some(lanes), Some(members)) = (&mut group.lanes, group.subscriber.members()) else {
                continue;
            };
            lanes.decide(&mut self.deciding.claims_left, members);
            match lanes.is_undecided() {
                true => self.deciding.groups.push_back(group_id),
                false => group.is_deciding = false,
            }
            self.is_ready(group_id);
        }
    }

    /// A message of a lane is with its holder no more: others may follow.
    pub(crate) fn finish_in_lane(&mut self, group_id: QueueId, lane: Lane, weight: usize) {
        let lanes = self.group_mut(group_id).and_then(|group| group.lanes.as_mut());
        if let Some(lanes) = lanes {
            lanes.finish(lane, weight);
            if lanes.has_turns() {
                self.is_ready(group_id);
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
        // A group that was full is gone before those of its members whose connections have not ended yet.
        let Some(group) = self.group_mut(group_id) else { return 0 };
        if let Some(members) = group.subscriber.members() {
            members.remove(subscriber);
        }
        share.turn.into_iter().for_each(|turn| group.ring.remove(turn));
        group.members -= 1;
        let online = self.session_mut(id).and_then(|session| session.online.as_mut());
        // The turn may be one of an earlier connection.
        if let Some(online) = online.filter(|online| share.present == Some(online.place)) {
            share.hungry.into_iter().for_each(|turn| online.hungry.remove(turn));
        }
        let lanes = share.present.map_or(0, |_| self.part_from(subscriber, id, group_id));
        self.remove_if_empty(group_id);
        lanes
    }

    /// Forgets a group that has no members. Former members finish their exchanges.
    pub(crate) fn remove_if_empty(&mut self, id: QueueId) {
        if self.group(id).is_none_or(|group| group.members > 0) {
            return;
        }
        let line = self.remove(id).expect("it was there");
        let Line { owner: Owner::Group(mut group), queue, .. } = *line else { unreachable!("it is a group") };
        self.sweep.forget(id);
        let filter = TopicFilter::new(&group.subscriber.client_id).expect("a group has a valid filter");
        let change = Change::Unsubscribe { filter, subscriber: &group.subscriber };
        self.index.apply([change], &mut Vec::new());
        let returned: usize = group.returned.values().map(|entry| entry.size_bytes()).sum();
        let waiting = (queue.len() + group.returned.len(), queue.bytes() + returned);
        self.fates.count(Whereabouts::Queue, waiting, &Fate::SessionEnded);
        for (message, held) in group.held.drain() {
            self.finish_without_group(message, held);
        }
    }

    /// A member of a group that is no more has a message of it. One that keeps its identifiers finishes the exchange.
    fn finish_without_group(&mut self, message: MessageId, held: Held) {
        let session = self.table.find_mut(held.holder).and_then(Line::session_mut);
        match (session, held.entry) {
            (Some(session), Some(mut entry)) if session.lasting.is_some() => {
                entry.stay();
                entry.set_recorded(false);
                let exchange = session.in_flight.find_mut(held.packet_id);
                exchange.expect("its holder has an exchange for it").state = State::Own(message, entry);
            }
            (session, _) => {
                self.fates.count(Whereabouts::Window, (1, 0), &Fate::SessionEnded);
                let exchange = session.map(|session| (session.in_flight.remove(held.packet_id), session));
                if let Some((Some(exchange), session)) = exchange
                    && let Some(online) = &mut session.online
                {
                    online.finished(exchange.bytes);
                    // Other groups may have waited for that place.
                    self.is_ready(held.holder);
                }
            }
        }
    }

    /// A member has gone without having finished with a message. The message returns to its old place in the group. A message
    /// of QoS 2 that a member without a lasting session was sent stays the member's: its fate is [`Fate::SessionEnded`].
    pub(crate) fn give_back(&mut self, group_id: QueueId, message: MessageId) {
        let held = self.group_mut(group_id).and_then(|group| group.held.remove(&message));
        let held = held.expect("what a member has of a group is held there until it has ended");
        let bytes = held.entry.as_ref().map_or(0, Entry::size_bytes);
        let fate = if held.entry.is_some() { Fate::Returned } else { Fate::SessionEnded };
        self.decided(held.holder, MessageAt::UnderWay { packet_id: held.packet_id, bytes }, fate);
        let group = self.table.find_mut(group_id).and_then(Line::group_mut);
        let group = group.expect("it was there a moment ago");
        if let Some(mut entry) = held.entry {
            let body = entry.message().expect("a member had it");
            // The options of that member say nothing about the next one, or about a queue that the message moves to.
            entry.grant(Granted::of_group(body));
            if entry.expires() {
                self.sweep.add(group_id);
            }
            group.put_back(message, entry);
            self.is_ready(group_id);
        }
        held.lane.into_iter().for_each(|lane| self.finish_in_lane(group_id, lane, 0));
    }

    /// The next member in turn, if it takes something. One that does not comes again when it does.
    pub(crate) fn next_member(&mut self, id: QueueId, credit_bytes: usize, now: Now) -> Option<QueueId> {
        let group = self.group_mut(id)?;
        let member = match &mut group.lanes {
            Some(lanes) => lanes.pop_turn()?,
            None => group.ring.pop()?,
        };
        let mark = self.mark;
        // A session that has ended stands there until it has left its groups.
        let (line, session, _) = self.group_and_member(id, member)?;
        let takes_new = session.takes_new(credit_bytes);
        let is_full = is_full(session, &session.shares[&id], mark);
        let share = session.shares.get_mut(&id).expect("who takes part is a member");
        share.turn = None;
        if takes_new && !is_full {
            return Some(member);
        }
        let group = line.group_mut().expect("it is a group");
        group.lanes.iter_mut().for_each(|lanes| lanes.starve(member));
        if is_full {
            self.full_members.push(id, member, now);
        } else if let Some(online) = &mut session.online {
            share.hungry.get_or_insert_with(|| online.hungry.push(id));
        }
        None
    }

    /// A member that takes something, as far as is known, stands behind the others.
    pub(crate) fn put_back_in_ring(&mut self, id: QueueId, member: QueueId) {
        if let Some(lanes) = self.group_mut(id).and_then(|group| group.lanes.as_mut()) {
            return lanes.wake(member);
        }
        let (line, session, _) =
            self.group_and_member(id, member).expect("the group and its member are there");
        let share = session.shares.get_mut(&id).expect("who takes part is a member");
        let group = line.group_mut().expect("it is a group");
        share.turn.get_or_insert_with(|| group.ring.push(member));
    }

    /// A member has taken a message of QoS 0: no acknowledgement will say so. `last` is the record behind which it comes.
    pub(crate) fn note_progress(&mut self, id: QueueId, member: QueueId, entry: &Entry, last: Lsn) {
        let weight = self.mark.weight(entry.size_bytes());
        let both = self.group_and_member(id, member);
        let (line, session, _) = both.expect("the group and its member are there");
        let online = session.online.as_mut().expect("a member that takes something is connected");
        online.once.add(weight, entry.is_recorded().then_some(last));
        line.growth.patience.progress(weight);
        let lanes = line.group_mut().and_then(|group| group.lanes.as_mut());
        lanes.into_iter().for_each(|lanes| lanes.progress(member, weight));
    }

    /// The queue of a group is full: its members are ended from now on, unless that is under way.
    pub(crate) fn end_members_of(&mut self, id: QueueId) {
        if let Some(group) = self.group_mut(id)
            && !std::mem::replace(&mut group.is_ending, true)
        {
            self.full_groups.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::session::Session;
    use crate::record::Incarnation;
    use crate::settings::Settings;

    /// Lines need no other part of a ledger.
    #[test]
    fn a_group_is_there_as_long_as_it_has_a_member() {
        let mut lines = Lines::alone(&Settings::default());
        let mut subscriber = None;
        let member = lines.insert(|id| {
            let new = Arc::new(Subscriber::lasting("client".into(), id));
            subscriber = Some(Arc::clone(&new));
            Line::new(Owner::Session(Session::lasting(new, Incarnation(7))))
        });
        let group = lines.group_of("$share/g/a", member, &mut Numbers::default());
        lines.join(member, group, Interest::new(Qos::AtLeastOnce));
        let counts = |lines: &Lines| lines.group(group).map(|group| (group.members, group.connected));
        assert_eq!(counts(&lines), Some((1, 0)));
        let session = lines.session_mut(member).expect("it was put there");
        let share = session.shares.remove(&group).expect("it has joined the group");
        lines.leave(&subscriber.expect("it was made"), member, group, &share);
        assert_eq!((counts(&lines), lines.groups_len()), (None, 0));
    }
}
