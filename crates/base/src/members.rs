//! The members of a group, and which of them gets a message of QoS 0.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::{Dispatch, Identity, Interest, Lane, Level, Place, Subscriber};

/// The members of a group. The ledger writes the list; shards read it for messages of QoS 0, which no queue holds.
#[derive(Debug, Default)]
pub struct Members {
    dispatch: Dispatch,
    list: RwLock<MemberList>,
    next: AtomicUsize,
}

/// The members in a row, to take turns in, and where each stands, so that who comes or goes looks at nobody else.
#[derive(Default)]
struct MemberList {
    /// Those that are connected come first.
    members: Vec<Member>,
    /// How many members are connected.
    connected: usize,
    /// By the subscriber's identity.
    places: HashMap<u64, usize>,
    /// Whose each lane is, where keys keep their order; none before the first has come.
    owners: Vec<Option<Arc<Subscriber>>>,
}

/// Without addresses: a trace of the same run is the same.
impl fmt::Debug for MemberList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.members).finish()
    }
}

impl MemberList {
    fn put(&mut self, member: Member) {
        let identity = member.subscriber.identity();
        let is_connected = member.subscriber.place().is_some();
        match self.places.entry(identity) {
            Entry::Occupied(place) => self.members[*place.get()] = member,
            Entry::Vacant(place) => {
                place.insert(self.members.len());
                self.members.push(member);
            }
        }
        self.set_connected(identity, is_connected);
    }

    /// Moves a member to the side of the border on which it belongs.
    fn set_connected(&mut self, identity: u64, is_connected: bool) {
        let Some(place) = self.places.get(&identity).copied() else { return };
        if is_connected == (place < self.connected) {
            return;
        }
        if is_connected {
            self.swap(place, self.connected);
            self.connected += 1;
        } else {
            self.connected -= 1;
            self.swap(place, self.connected);
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.members.swap(one, other);
        for place in [one, other] {
            self.places.insert(self.members[place].subscriber.identity(), place);
        }
    }

    /// The last member of its side takes the place of the one that goes.
    fn remove(&mut self, subscriber: &Arc<Subscriber>) {
        self.set_connected(subscriber.identity(), false);
        let Some(place) = self.places.remove(&subscriber.identity()) else { return };
        self.members.swap_remove(place);
        if let Some(moved) = self.members.get(place) {
            self.places.insert(moved.subscriber.identity(), place);
        }
    }

    /// Looks for a connected member that has room, beginning with one of them. Returns the place of a member, and how many
    /// members were looked at.
    fn next_from(&self, first: usize) -> Option<(usize, usize)> {
        let first = first.checked_rem(self.connected)?;
        let looks = self.connected.min(LOOKS_MAX);
        let place = |offset| (first + offset) % self.connected;
        // One that has just gone stands among the connected until the ledger hears of it.
        let is_there = |offset: &usize| self.members[place(*offset)].subscriber.place().is_some();
        let is_open = |offset: &usize| self.members[place(*offset)].subscriber.gauge.level() == Level::Open;
        match (0..looks).find(|offset| is_open(offset) && is_there(offset)) {
            Some(offset) => Some((place(offset), offset + 1)),
            None => Some((place((0..looks).find(is_there)?), looks)),
        }
    }
}

/// A message of QoS 0 looks at no more members than this for one that has room.
const LOOKS_MAX: usize = 64;

/// A session in a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// Who.
    pub subscriber: Arc<Subscriber>,
    /// What its subscription asks for.
    pub interest: Interest,
}

impl Members {
    pub(crate) fn new(dispatch: Dispatch) -> Self {
        Self { dispatch, ..Self::default() }
    }

    /// How its messages are shared out.
    #[must_use]
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Gives lanes to members, or to nobody.
    pub fn assign(&self, owners: impl IntoIterator<Item = (Lane, Option<Arc<Subscriber>>)>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        for (lane, owner) in owners {
            list.owners.resize(Lane::COUNT, None);
            list.owners[lane.number()] = owner;
        }
    }

    /// The member that a message of QoS 0 goes to, and where it is connected: the one that has its lane, or the next in
    /// turn.
    #[must_use]
    pub fn receiver(&self, lane: Option<Lane>) -> Option<(Member, Place)> {
        // One that has just gone has its lanes until the ledger hears of it.
        lane.and_then(|lane| self.owner(lane)).or_else(|| self.next_connected())
    }

    fn owner(&self, lane: Lane) -> Option<(Member, Place)> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let owner = list.owners.get(lane.number())?.as_ref()?;
        let member = &list.members[*list.places.get(&owner.identity())?];
        owner.place().map(|place| (member.clone(), place))
    }

    /// Takes the list's place.
    pub fn set(&self, list: Vec<Member>) {
        let mut members = MemberList::default();
        list.into_iter().for_each(|member| members.put(member));
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Member> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).members.clone()
    }

    /// At most so many of them: those that are not connected first.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<Member> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.members[list.members.len().saturating_sub(count)..].to_vec()
    }

    /// Adds a member, or replaces what its subscription asks for.
    pub fn put(&self, member: Member) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).put(member);
    }

    /// Takes a member away. Returns how many are left.
    pub fn remove(&self, subscriber: &Arc<Subscriber>) -> usize {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.remove(subscriber);
        list.members.len()
    }

    /// A member has connected, or is not connected any more. Members that are not connected cost a message of QoS 0
    /// nothing.
    pub fn set_connected(&self, subscriber: &Arc<Subscriber>, is_connected: bool) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.set_connected(subscriber.identity(), is_connected);
    }

    /// The next member in turn that is connected, and where. If one of the next 64 connected members has room, it is one
    /// with room: the cost does not grow with the members whose clients read nothing.
    #[must_use]
    pub fn next_connected(&self) -> Option<(Member, Place)> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let first = self.next.load(Ordering::Relaxed);
        let next = list.next_from(first);
        let looks = next.map_or(LOOKS_MAX, |(_, looks)| looks);
        // Two shards at a time may choose the same member, which does no harm. If all members that were looked at have just
        // gone, the next message looks at the members behind them.
        self.next.store(first.wrapping_add(looks), Ordering::Relaxed);
        let member = &list.members[next?.0];
        member.subscriber.place().map(|place| (member.clone(), place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectionId, QueueId, ShardId};

    #[test]
    fn members_that_are_connected_take_turns() {
        let at = |slot| ConnectionId { slot, generation: 0 };
        let member = |subscriber| Member { subscriber, interest: Interest::new(wire::Qos::AtMostOnce) };
        let [a, b] = [1, 2].map(|slot| Arc::new(Subscriber::new("m".into(), ShardId::new(0), at(slot))));
        let away = Arc::new(Subscriber::lasting("away".into(), QueueId { slot: 0, generation: 0 }));
        let members = Members::default();
        assert!(members.next_connected().is_none());
        members.set([a, away, b].map(member).into());
        let turns = (0..30).filter_map(|_| members.next_connected()).map(|(_, place)| place.connection.slot);
        let turns: Vec<u32> = turns.collect();
        assert_eq!(turns.len(), 30);
        assert!(turns.contains(&1) && turns.contains(&2));
    }

    /// Members that are not connected, or whose output is full, cost nothing, however many there are.
    #[test]
    fn a_turn_looks_at_few_members_whatever_the_others_do() {
        let at = |slot| ConnectionId { slot, generation: 0 };
        let member = |subscriber: &Arc<Subscriber>| Member {
            subscriber: Arc::clone(subscriber),
            interest: Interest::new(wire::Qos::AtMostOnce),
        };
        for members in [100, 1_000, 10_000] {
            let connected: Vec<_> = (0..members)
                .map(|slot| Arc::new(Subscriber::new("m".into(), ShardId::new(0), at(slot))))
                .collect();
            let away = (0..members)
                .map(|slot| Arc::new(Subscriber::lasting("away".into(), QueueId { slot, generation: 0 })));
            let mut list = MemberList::default();
            connected.iter().cloned().chain(away).for_each(|subscriber| list.put(member(&subscriber)));
            assert_eq!(list.next_from(7), Some((7, 1)));
            connected[1..].iter().for_each(|subscriber| list.set_connected(subscriber.identity(), false));
            assert_eq!(list.next_from(7), Some((0, 1)), "the only one that is connected");
            connected.iter().for_each(|subscriber| list.set_connected(subscriber.identity(), true));
            connected.iter().for_each(|subscriber| subscriber.gauge.set(Level::Slow));
            assert_eq!(list.next_from(7).map(|(_, looks)| looks), Some(LOOKS_MAX));
            connected.iter().for_each(|subscriber| list.set_connected(subscriber.identity(), false));
            assert_eq!(list.next_from(7), None);
        }
    }

    /// A member with room is found in the end, though those before it are full.
    #[test]
    fn turns_go_on_behind_members_without_room() {
        let at = |slot| ConnectionId { slot, generation: 0 };
        let all: Vec<_> =
            (0..200).map(|slot| Arc::new(Subscriber::new("m".into(), ShardId::new(0), at(slot)))).collect();
        all.iter().for_each(|subscriber| subscriber.gauge.set(Level::Over));
        all[150].gauge.set(Level::Open);
        let members = Members::default();
        all.iter().for_each(|subscriber| {
            let interest = Interest::new(wire::Qos::AtMostOnce);
            members.put(Member { subscriber: Arc::clone(subscriber), interest });
        });
        let turns: Vec<u32> =
            (0..8).filter_map(|_| members.next_connected()).map(|(_, place)| place.connection.slot).collect();
        assert_eq!(turns.len(), 8);
        assert!(turns.iter().filter(|slot| **slot == 150).count() >= 2, "{turns:?}");
    }

    /// The ledger has not heard yet that they have gone.
    #[test]
    fn turns_go_on_behind_members_that_have_just_gone() {
        let at = |slot| ConnectionId { slot, generation: 0 };
        let all: Vec<_> =
            (0..200).map(|slot| Arc::new(Subscriber::new("m".into(), ShardId::new(0), at(slot)))).collect();
        let members = Members::default();
        all.iter().for_each(|subscriber| {
            let interest = Interest::new(wire::Qos::AtMostOnce);
            members.put(Member { subscriber: Arc::clone(subscriber), interest });
        });
        all[..150].iter().for_each(|subscriber| subscriber.move_to(None));
        let receivers: Vec<bool> = (0..100).map(|_| members.next_connected().is_some()).collect();
        assert_eq!(receivers.iter().position(|is_there| *is_there), Some(2), "64 members for a message");
        assert!(receivers.iter().filter(|is_there| **is_there).count() > 50, "{receivers:?}");
    }

    #[test]
    fn members_come_and_go_in_any_order() {
        let at = |slot| ConnectionId { slot, generation: 0 };
        let [a, b, c] =
            [1, 2, 3].map(|slot| Arc::new(Subscriber::new("m".into(), ShardId::new(0), at(slot))));
        let members = Members::default();
        let put = |subscriber: &Arc<Subscriber>, qos| {
            members.put(Member { subscriber: Arc::clone(subscriber), interest: Interest::new(qos) });
        };
        [&a, &b, &c].into_iter().for_each(|member| put(member, wire::Qos::AtMostOnce));
        assert_eq!((members.remove(&a), members.remove(&a)), (2, 2));
        put(&c, wire::Qos::ExactlyOnce);
        assert_eq!(members.remove(&b), 1);
        let [left] = &members.list()[..] else { panic!("{members:?}") };
        assert!(Arc::ptr_eq(&left.subscriber, &c) && left.interest.qos() == wire::Qos::ExactlyOnce);
        assert_eq!(members.remove(&c), 0);
    }
}
