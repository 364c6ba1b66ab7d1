//! The members of a group, and the choice of one for a message of QoS 0.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::{Dispatch, Identity, Interest, Lane, Level, Place, Subscriber};

/// The members of a group. The ledger writes the list. Shards read it for messages of QoS 0, which are in no queue.
#[derive(Debug, Default)]
pub struct Members {
    dispatch: Dispatch,
    list: RwLock<MemberList>,
    next: AtomicUsize,
}

/// The members in an order for turns, and the index of each: a change concerns no other member.
#[derive(Default)]
struct MemberList {
    /// Members, the connected ones first.
    members: Vec<Member>,
    /// Number of connected members.
    connected: usize,
    /// Index of each member, by the subscriber's identity.
    places: HashMap<u64, usize>,
    /// Member of each lane, if keys keep their order; `None` before the first member.
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

    /// Moves a member to its side of the border between connected and other members.
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

    /// The last member of its side takes the place of the removed one.
    fn remove(&mut self, subscriber: &Arc<Subscriber>) {
        self.set_connected(subscriber.identity(), false);
        let Some(place) = self.places.remove(&subscriber.identity()) else { return };
        self.members.swap_remove(place);
        if let Some(moved) = self.members.get(place) {
            self.places.insert(moved.subscriber.identity(), place);
        }
    }

    /// Looks for a connected member with room that `admits` holds for, from one index on. Returns the index of a member, and
    /// the number of members that were checked.
    fn next_from(&self, first: usize, admits: impl Fn(&Subscriber) -> bool) -> Option<(usize, usize)> {
        let first = first.checked_rem(self.connected)?;
        let looks = self.connected.min(LOOKS_MAX);
        let place = |offset| (first + offset) % self.connected;
        // A member whose connection has just ended counts as connected until the ledger knows.
        let is_there = |offset: &usize| {
            let subscriber = &self.members[place(*offset)].subscriber;
            subscriber.place().is_some() && admits(subscriber)
        };
        let is_open = |offset: &usize| self.members[place(*offset)].subscriber.gauge.level() == Level::Open;
        match (0..looks).find(|offset| is_open(offset) && is_there(offset)) {
            Some(offset) => Some((place(offset), offset + 1)),
            None => Some((place((0..looks).find(is_there)?), looks)),
        }
    }
}

/// Maximum number of members that are checked for a message of QoS 0.
const LOOKS_MAX: usize = 64;
/// Maximum number of members among which one client is looked for.
const INCLUDED_MAX: usize = 1_024;

/// A session in a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// Subscriber behind the member.
    pub subscriber: Arc<Subscriber>,
    /// Options of its subscription.
    pub interest: Interest,
}

impl Members {
    pub(crate) fn new(dispatch: Dispatch) -> Self {
        Self { dispatch, ..Self::default() }
    }

    /// Dispatch policy of the group.
    #[must_use]
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Assigns lanes to members, or to none.
    pub fn assign(&self, owners: impl IntoIterator<Item = (Lane, Option<Arc<Subscriber>>)>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        for (lane, owner) in owners {
            list.owners.resize(Lane::COUNT, None);
            list.owners[lane.number()] = owner;
        }
    }

    /// The member for a message of QoS 0, and the place of its connection: the owner of the lane, or the next in turn.
    #[must_use]
    pub fn receiver(&self, lane: Option<Lane>) -> Option<(Member, Place)> {
        self.receiver_that(lane, |_| true)
    }

    /// The same among the members that `admits` holds for: the rules allow them to receive the message.
    #[must_use]
    pub fn receiver_that(
        &self,
        lane: Option<Lane>,
        admits: impl Fn(&Subscriber) -> bool,
    ) -> Option<(Member, Place)> {
        // A member whose connection has just ended keeps its lanes until the ledger knows.
        let owner = lane.and_then(|lane| self.owner(lane));
        owner.filter(|(member, _)| admits(&member.subscriber)).or_else(|| self.next_connected_that(admits))
    }

    /// Returns the member for a message of QoS 0, if its output is over its mark. No member's turn is used. If members
    /// take turns, the outputs of the next 64 are all over their marks.
    #[must_use]
    pub fn full(&self, lane: Option<Lane>) -> Option<Arc<Subscriber>> {
        let owner = lane.and_then(|lane| self.owner(lane)).map(|(member, _)| member.subscriber);
        let next = || {
            let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
            let (place, _) = list.next_from(self.next.load(Ordering::Relaxed), |_| true)?;
            Some(Arc::clone(&list.members[place].subscriber))
        };
        owner.or_else(next).filter(|member| member.gauge.level() == Level::Over)
    }

    fn owner(&self, lane: Lane) -> Option<(Member, Place)> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let owner = list.owners.get(lane.number())?.as_ref()?;
        let member = &list.members[*list.places.get(&owner.identity())?];
        owner.place().map(|place| (member.clone(), place))
    }

    /// Replaces the list of members.
    pub fn set(&self, list: Vec<Member>) {
        let mut members = MemberList::default();
        list.into_iter().for_each(|member| members.put(member));
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// All members, in no order.
    #[must_use]
    pub fn list(&self) -> Vec<Member> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).members.clone()
    }

    /// At most this number of members from a place on, and the place of the next ones. A member that comes, leaves, connects
    /// or disconnects between two calls moves another one, which may then be missing or come twice.
    #[must_use]
    pub fn piece(&self, from: usize, count: usize) -> (Vec<Member>, Option<usize>) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let end = from.saturating_add(count).min(list.members.len());
        let piece = list.members.get(from..end).unwrap_or_default().to_vec();
        (piece, (end < list.members.len()).then_some(end))
    }

    /// Whether any member has a property. Looks at each until one has.
    #[must_use]
    pub fn any(&self, has: impl Fn(&Subscriber) -> bool) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.members.iter().any(|member| has(&member.subscriber))
    }

    /// Whether this client is among the first 1,024 members.
    #[must_use]
    pub fn includes(&self, client_id: &str) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.members.iter().take(INCLUDED_MAX).any(|member| *member.subscriber.client_id == *client_id)
    }

    /// At most this number of members, those without a connection first.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<Member> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.members[list.members.len().saturating_sub(count)..].to_vec()
    }

    /// Adds a member, or replaces the options of its subscription.
    pub fn put(&self, member: Member) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).put(member);
    }

    /// Removes a member. Returns the number of remaining members.
    pub fn remove(&self, subscriber: &Arc<Subscriber>) -> usize {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.remove(subscriber);
        list.members.len()
    }

    /// Notes whether a member is connected. Members without a connection cost nothing for a message of QoS 0.
    pub fn set_connected(&self, subscriber: &Arc<Subscriber>, is_connected: bool) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.set_connected(subscriber.identity(), is_connected);
    }

    /// The next connected member in turn, and the place of its connection. If one of the next 64 connected members has
    /// room, the result has room: the cost does not grow with members whose clients do not read.
    #[must_use]
    pub fn next_connected(&self) -> Option<(Member, Place)> {
        self.next_connected_that(|_| true)
    }

    fn next_connected_that(&self, admits: impl Fn(&Subscriber) -> bool) -> Option<(Member, Place)> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let first = self.next.load(Ordering::Relaxed);
        let next = list.next_from(first, admits);
        let looks = next.map_or(LOOKS_MAX, |(_, looks)| looks);
        // Two shards may choose the same member at the same time, which is harmless. If all checked members have just
        // left, the next message checks the members behind them.
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

    /// Members without a connection, or with a full output, cost nothing, whatever their number.
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
            assert_eq!(list.next_from(7, |_| true), Some((7, 1)));
            connected[1..].iter().for_each(|subscriber| list.set_connected(subscriber.identity(), false));
            assert_eq!(list.next_from(7, |_| true), Some((0, 1)), "the only one that is connected");
            connected.iter().for_each(|subscriber| list.set_connected(subscriber.identity(), true));
            connected.iter().for_each(|subscriber| subscriber.gauge.set(Level::Slow));
            assert_eq!(list.next_from(7, |_| true).map(|(_, looks)| looks), Some(LOOKS_MAX));
            connected.iter().for_each(|subscriber| list.set_connected(subscriber.identity(), false));
            assert_eq!(list.next_from(7, |_| true), None);
        }
    }

    /// A member with room is found in the end, even behind many full ones.
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

    /// The ledger does not know yet that their connections have ended.
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
