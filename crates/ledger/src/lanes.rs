//! Which member of a group has which keys, and what of them can be sent, where keys keep their order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use index::{Lane, Members, QueueId, Subscriber};

use crate::group::Ring;
use crate::record::MessageId;
use crate::session::Patience;

/// The lanes of one group.
///
/// A lane is its owner's, among the members that are connected the one that wants it most. While messages of it are with
/// a member that owns it no more, what waits in it is sent to nobody: so one holder follows the other. Of a lane in
/// which nothing waits, and of which nobody has anything, nothing is kept but whose it is.
#[derive(Debug)]
pub(crate) struct Lanes {
    owners: Box<[Option<QueueId>]>,
    present: BTreeMap<QueueId, Present>,
    busy: BTreeMap<Lane, Busy>,
    /// Members that have something to get and take something, as far as is known, in turn.
    ring: Ring,
}

/// A member that is connected.
#[derive(Debug)]
struct Present {
    subscriber: Arc<Subscriber>,
    /// The lanes from which it can get something, by the next message of each.
    ready: BTreeSet<(MessageId, Lane)>,
    turn: Option<u64>,
    /// It takes nothing at the moment, and will say when it does.
    is_hungry: bool,
    /// So many messages wait in its lanes.
    waiting: usize,
    patience: Patience,
}

/// A lane in use.
#[derive(Debug, Default)]
struct Busy {
    waiting: BTreeSet<MessageId>,
    /// So many of its messages are with one member that has not acknowledged them: this one.
    held: usize,
    holder: Option<QueueId>,
    /// As what it stands among the ready ones.
    stands: Option<(QueueId, MessageId)>,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            owners: vec![None; Lane::COUNT].into(),
            present: BTreeMap::new(),
            busy: BTreeMap::new(),
            ring: Ring::default(),
        }
    }

    /// Whether somebody can get something.
    pub(crate) fn has_turns(&self) -> bool {
        !self.ring.is_empty()
    }

    /// A member is there, and gets the lanes that it wants more than those who have them.
    pub(crate) fn arrive(&mut self, id: QueueId, subscriber: &Arc<Subscriber>, members: &Members) {
        if self.present.contains_key(&id) {
            return;
        }
        let claim = |lane: Lane, of: &Subscriber| lane.claim_of(&of.client_id);
        let loses = |lane: &Lane| {
            let owner = self.owners[lane.number()].and_then(|owner| self.present.get(&owner));
            owner.is_none_or(|owner| claim(*lane, &owner.subscriber) < claim(*lane, subscriber))
        };
        let won: Vec<Lane> = Lane::all().filter(loses).collect();
        self.present.insert(
            id,
            Present {
                subscriber: Arc::clone(subscriber),
                ready: BTreeSet::new(),
                turn: None,
                is_hungry: false,
                waiting: 0,
                patience: Patience::default(),
            },
        );
        self.assign(won.into_iter().map(|lane| (lane, Some(id))).collect(), members);
    }

    /// A member is there no more. What it has is the affair of those who take it back.
    pub(crate) fn depart(&mut self, id: QueueId, members: &Members) {
        let Some(gone) = self.present.remove(&id) else { return };
        gone.turn.into_iter().for_each(|turn| self.ring.remove(turn));
        let most = |lane: Lane| {
            let claims =
                self.present.iter().max_by_key(|(_, member)| lane.claim_of(&member.subscriber.client_id));
            (lane, claims.map(|(id, _)| *id))
        };
        let its = Lane::all().filter(|lane| self.owners[lane.number()] == Some(id));
        self.assign(its.map(most).collect(), members);
    }

    fn assign(&mut self, lanes: Vec<(Lane, Option<QueueId>)>, members: &Members) {
        let subscriber = |id: QueueId| self.present.get(&id).map(|member| Arc::clone(&member.subscriber));
        members.assign(lanes.iter().map(|(lane, owner)| (*lane, owner.and_then(subscriber))));
        for (lane, owner) in lanes {
            let waiting = self.busy.get(&lane).map_or(0, |busy| busy.waiting.len());
            self.owner(lane).into_iter().for_each(|member| member.waiting -= waiting);
            self.owners[lane.number()] = owner;
            self.owner(lane).into_iter().for_each(|member| member.waiting += waiting);
            self.settle(lane);
        }
    }

    fn owner(&mut self, lane: Lane) -> Option<&mut Present> {
        self.present.get_mut(&self.owners[lane.number()]?)
    }

    /// Whether more than so many messages wait for one member.
    pub(crate) fn has_more_than(&self, messages: usize) -> bool {
        self.present.values().any(|member| member.waiting > messages)
    }

    /// Whether one of those for whom more wait makes progress, or has not been waited for for long. A member that
    /// acknowledges nothing keeps its keys; the publishers of the others go on.
    pub(crate) fn are_worth_waiting(&mut self, messages: usize, now_ms: u64) -> bool {
        let mut grown = self.present.values_mut().filter(|member| member.waiting > messages);
        grown.any(|member| member.patience.is_worth_waiting(now_ms))
    }

    /// Whether the owner of a lane takes something, as far as is known, and may have it.
    pub(crate) fn takes(&self, lane: Lane) -> bool {
        let Some(owner) = self.owners[lane.number()] else { return false };
        let is_free = self.busy.get(&lane).is_none_or(|busy| busy.held == 0 || busy.holder == Some(owner));
        is_free && self.present.get(&owner).is_some_and(|member| !member.is_hungry)
    }

    /// A message waits, at its place.
    pub(crate) fn add(&mut self, lane: Lane, message: MessageId) {
        if self.busy.entry(lane).or_default().waiting.insert(message) {
            self.owner(lane).into_iter().for_each(|member| member.waiting += 1);
        }
        self.settle(lane);
    }

    /// A message waits no more.
    pub(crate) fn remove(&mut self, lane: Lane, message: MessageId) {
        if let Some(busy) = self.busy.get_mut(&lane) {
            if busy.waiting.remove(&message) {
                self.owner(lane).into_iter().for_each(|member| member.waiting -= 1);
            }
            self.settle(lane);
        }
    }

    /// A message that waited goes to a member.
    pub(crate) fn lend(&mut self, lane: Lane, holder: QueueId) {
        let busy = self.busy.entry(lane).or_default();
        debug_assert!(busy.held == 0 || busy.holder == Some(holder), "a lane has one holder");
        busy.held += 1;
        busy.holder = Some(holder);
        self.settle(lane);
    }

    /// A message that a member had is acknowledged, or was taken away from it.
    pub(crate) fn finish(&mut self, lane: Lane) {
        if let Some(busy) = self.busy.get_mut(&lane) {
            debug_assert!(busy.held > 0, "what is finished was begun");
            busy.held = busy.held.saturating_sub(1);
            let holder = busy.holder.and_then(|holder| self.present.get_mut(&holder));
            holder.into_iter().for_each(|holder| holder.patience.renew());
            self.settle(lane);
        }
    }

    /// The oldest message that a member can get.
    pub(crate) fn next_for(&self, member: QueueId) -> Option<MessageId> {
        self.present.get(&member)?.ready.first().map(|(message, _)| *message)
    }

    /// The next member in turn that has something to get. It stands in the ring no more.
    pub(crate) fn pop_turn(&mut self) -> Option<QueueId> {
        while let Some(id) = self.ring.pop() {
            let Some(member) = self.present.get_mut(&id) else { continue };
            member.turn = None;
            if !member.ready.is_empty() {
                return Some(id);
            }
        }
        None
    }

    /// A member takes nothing. Whether that was not known.
    pub(crate) fn starve(&mut self, member: QueueId) -> bool {
        let member = self.present.get_mut(&member);
        member.is_some_and(|member| !std::mem::replace(&mut member.is_hungry, true))
    }

    /// A member takes something again.
    pub(crate) fn wake(&mut self, member: QueueId) {
        if let Some(found) = self.present.get_mut(&member) {
            found.is_hungry = false;
            self.stand(member);
        }
    }

    /// Puts a member behind all others that have something to get, if it has.
    pub(crate) fn stand(&mut self, id: QueueId) {
        if let Some(member) = self.present.get_mut(&id)
            && !(member.ready.is_empty() || member.is_hungry)
        {
            member.turn.get_or_insert_with(|| self.ring.push(id));
        }
    }

    /// Something about a lane has changed: who can get what of it?
    fn settle(&mut self, lane: Lane) {
        let Some(busy) = self.busy.get_mut(&lane) else { return };
        let owner = self.owners[lane.number()].filter(|owner| busy.held == 0 || busy.holder == Some(*owner));
        let stands = owner.zip(busy.waiting.first().copied());
        let stood = std::mem::replace(&mut busy.stands, stands);
        if busy.held == 0 && busy.waiting.is_empty() {
            self.busy.remove(&lane);
        }
        if stood == stands {
            return;
        }
        if let Some((member, message)) = stood
            && let Some(member) = self.present.get_mut(&member)
        {
            member.ready.remove(&(message, lane));
        }
        if let Some((id, message)) = stands
            && let Some(member) = self.present.get_mut(&id)
        {
            member.ready.insert((message, lane));
            self.stand(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use index::{Dispatch, Key, Subscriber};

    fn id(slot: u32) -> QueueId {
        QueueId { slot, generation: 0 }
    }

    fn member(slot: u32) -> Arc<Subscriber> {
        Arc::new(Subscriber::lasting(format!("m{slot}").into(), id(slot)))
    }

    #[test]
    fn a_lane_follows_its_owner_when_its_holder_has_finished() {
        let group = Subscriber::group("$share/g/a".into(), id(9), Dispatch::KeyOrdered(Key::Publisher));
        let members = group.members().expect("it is a group");
        let mut lanes = Lanes::new();
        lanes.arrive(id(1), &member(1), members);
        lanes.arrive(id(2), &member(2), members);
        let moves = |lane: &Lane| lane.claim_of("m2") > lane.claim_of("m1");
        let lane = Lane::all().find(moves).expect("half of them do");
        lanes.depart(id(2), members);
        (1..=2).for_each(|number| lanes.add(lane, MessageId(number)));
        assert_eq!((lanes.pop_turn(), lanes.next_for(id(1))), (Some(id(1)), Some(MessageId(1))));
        lanes.remove(lane, MessageId(1));
        lanes.lend(lane, id(1));
        lanes.arrive(id(2), &member(2), members);
        assert_eq!((lanes.next_for(id(1)), lanes.next_for(id(2))), (None, None), "the first is under way");
        lanes.finish(lane);
        assert_eq!((lanes.pop_turn(), lanes.next_for(id(2))), (Some(id(2)), Some(MessageId(2))));
        lanes.remove(lane, MessageId(2));
        assert!(lanes.busy.is_empty() && !lanes.has_turns());
    }
}
