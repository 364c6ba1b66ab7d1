//! Who an entry of the index leads to, and how full that subscriber is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::subscribers::Identity;
use crate::{Dispatch, Interest, Lane};

/// One event loop with the connections that it accepted; there are at most [`MAX`](Self::MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u8);

impl ShardId {
    /// As many shards as a [`Gauge`] has bits for those that wait.
    pub const MAX: usize = 64;

    /// # Panics
    /// If `number` is not below [`MAX`](Self::MAX); the configuration has checked that.
    #[must_use]
    pub fn new(number: usize) -> Self {
        assert!(number < Self::MAX, "shard {number} is beyond the configured maximum");
        Self(u8::try_from(number).expect("MAX fits a byte"))
    }

    /// The shard's number, from 0.
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// A place in a shard's table of connections, and which of its successive tenants is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// The place in the table.
    pub slot: u32,
    /// Grows with each tenant, so that a late message for an earlier one finds nobody.
    pub generation: u32,
}

impl ConnectionId {
    /// No connection has it.
    pub const NOWHERE: Self = Self { slot: u32::MAX, generation: 0 };
}

/// A queue of the ledger, in its table: a session's or a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId {
    /// The place in the table.
    pub slot: u32,
    /// Grows with each tenant, so that a late message for an earlier one finds nobody.
    pub generation: u32,
}

/// Somebody who subscribes: a session, or a group of them that share a subscription.
#[derive(Debug)]
pub struct Subscriber {
    /// The client identifier; it exists once, shared by ledger, session and subscriber. Of a group, its whole filter.
    pub client_id: Arc<str>,
    /// Where messages wait for it while it is not connected; a session that ends with its connection has none.
    pub queue: Option<QueueId>,
    /// How full its output is.
    pub gauge: Gauge,
    /// Where its connection is, in the bits of [`Place`].
    place: AtomicU64,
    members: Option<Box<Members>>,
}

/// Where a session is connected. Ordered by shard first, so that a sorted list falls into one run per shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The shard on which the connection lives.
    pub shard: ShardId,
    /// Its place there.
    pub connection: ConnectionId,
}

impl Place {
    /// So many bits hold a slot; a shard has fewer connections than there are descriptors.
    const SLOT_BITS: u32 = 25;
    const IS_CONNECTED: u64 = 1 << 63;

    fn bits(self) -> u64 {
        debug_assert!(self.connection.slot < 1 << Self::SLOT_BITS, "a shard has at most 2^25 connections");
        let shard = u64::from(self.shard.0) << Self::SLOT_BITS;
        Self::IS_CONNECTED
            | (shard | u64::from(self.connection.slot)) << 32
            | u64::from(self.connection.generation)
    }

    #[allow(clippy::cast_possible_truncation, reason = "each field is cut out of the word it was put into")]
    fn from_bits(bits: u64) -> Option<Self> {
        let slot = (bits >> 32) as u32 & ((1 << Self::SLOT_BITS) - 1);
        let shard = ShardId((bits >> (32 + Self::SLOT_BITS)) as u8 & (ShardId::MAX - 1) as u8);
        let connection = ConnectionId { slot, generation: bits as u32 };
        (bits & Self::IS_CONNECTED != 0).then_some(Self { shard, connection })
    }
}

impl Subscriber {
    /// A session that ends with its connection.
    #[must_use]
    pub fn new(client_id: Arc<str>, shard: ShardId, connection: ConnectionId) -> Self {
        let place = AtomicU64::new(Place { shard, connection }.bits());
        Self { client_id, queue: None, gauge: Gauge::default(), place, members: None }
    }

    /// A session that outlives its connections, and is not connected.
    #[must_use]
    pub fn lasting(client_id: Arc<str>, queue: QueueId) -> Self {
        Self {
            client_id,
            queue: Some(queue),
            gauge: Gauge::default(),
            place: AtomicU64::new(0),
            members: None,
        }
    }

    /// A group without members (MQTT 5.0, 4.8.2).
    #[must_use]
    pub fn group(filter: Arc<str>, queue: QueueId, dispatch: Dispatch) -> Self {
        let members = Members { dispatch, ..Members::default() };
        Self { members: Some(Box::new(members)), ..Self::lasting(filter, queue) }
    }

    /// Where it is connected, if it is.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        Place::from_bits(self.place.load(Ordering::SeqCst))
    }

    /// It has connected, or is not connected any more. Only the ledger moves a session, and raises the generation of
    /// its filters afterwards ([`Index::touch`](crate::Index::touch)), because routes remember places.
    pub fn move_to(&self, place: Option<Place>) {
        self.place.store(place.map_or(0, Place::bits), Ordering::SeqCst);
    }

    /// Those who share the subscription, if this is a group.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        self.members.as_deref()
    }
}

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

/// How full a subscriber's output is, seen by every shard that feeds it.
#[derive(Debug, Default)]
pub struct Gauge {
    level: AtomicU8,
    /// One bit per shard that has stopped reading somebody because of this subscriber.
    waiting: AtomicU64,
    /// Those who wait have others to publish to who have room: that was so at most so many looks ago.
    holds_others: AtomicU8,
    /// More messages of QoS 1 and 2 wait behind its window than should.
    is_behind: AtomicBool,
}

/// What a [`Gauge`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// There is room.
    Open = 0,
    /// Above the high-water mark: who feeds it stops reading until it is open again.
    Over = 1,
    /// It makes no progress: nobody waits for it, what is QoS 0 is dropped.
    Slow = 2,
}

impl Gauge {
    /// The level now.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.level.load(Ordering::Relaxed) {
            0 => Level::Open,
            1 => Level::Over,
            _ => Level::Slow,
        }
    }

    /// Only the shard on which the subscriber lives sets its level.
    pub fn set(&self, level: Level) {
        self.level.store(level as u8, Ordering::SeqCst);
    }

    /// Whether acknowledgements to its publishers are held back, because so much waits behind its in-flight window.
    /// Nobody waits for one that makes no progress.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_marked_behind() && self.level() != Level::Slow
    }

    /// Whether so much waits behind its in-flight window, progress or not.
    #[must_use]
    pub fn is_marked_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Only the shard on which the subscriber lives tells.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::SeqCst);
    }

    /// Announces that a publisher of `shard` wants to hear when the subscriber is not behind any more, and whether others
    /// wait with it who have room; then looks again.
    #[must_use]
    pub fn wait_behind(&self, shard: ShardId, holds_others: bool) -> bool {
        self.note_others(holds_others);
        self.waiting.fetch_or(1 << shard.0, Ordering::SeqCst);
        self.is_behind.load(Ordering::SeqCst)
    }

    /// Announces that a publisher of `shard` is going to wait, and whether others wait with it who have room;
    /// then looks again, so that the end of the wait cannot be missed. Returns whether it has to wait.
    #[must_use]
    pub fn wait(&self, shard: ShardId, holds_others: bool) -> bool {
        self.note_others(holds_others);
        self.waiting.fetch_or(1 << shard.0, Ordering::SeqCst);
        self.level.load(Ordering::SeqCst) == Level::Over as u8
    }

    /// Takes the set of shards that wait. The level was set to something other than
    /// [`Over`](Level::Over) before, so that nobody new has to wait.
    pub fn take_waiting(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.holds_others.store(0, Ordering::Relaxed);
        let bits = match self.waiting.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.waiting.swap(0, Ordering::SeqCst),
        };
        (0..Self::SHARDS).filter(move |number| bits & (1 << number) != 0).map(ShardId)
    }

    /// A publisher that waits finds that others whom it publishes to have room, or that none has. What one finds stands
    /// until it is not said again for a while: publishers look at their own pace.
    pub fn note_others(&self, have_room: bool) {
        if have_room {
            self.holds_others.store(Self::LOOKS, Ordering::Relaxed);
        }
    }

    /// Whether others wait for this subscriber who have room. One who judges it looks again and again.
    #[must_use]
    pub fn look_at_others(&self) -> bool {
        let looks = self.holds_others.load(Ordering::Relaxed);
        // Lost if a publisher says so at this moment: then it says so again.
        self.holds_others.store(looks.saturating_sub(1), Ordering::Relaxed);
        looks > 0
    }

    /// So many looks of the judge what a publisher has found is taken to be so.
    const LOOKS: u8 = 3;
    const SHARDS: u8 = 64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_bits() {
        let connection = ConnectionId { slot: (1 << 25) - 1, generation: u32::MAX };
        let place = Place { shard: ShardId::new(63), connection };
        let subscriber = Subscriber::lasting("s".into(), QueueId { slot: 1, generation: 0 });
        assert_eq!(subscriber.place(), None);
        subscriber.move_to(Some(place));
        assert_eq!(subscriber.place(), Some(place));
        let first = Place { shard: ShardId::new(0), connection: ConnectionId { slot: 0, generation: 0 } };
        subscriber.move_to(Some(first));
        assert_eq!(subscriber.place(), Some(first));
    }

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

    #[test]
    fn a_gauge_tells_each_waiting_shard_once() {
        let gauge = Gauge::default();
        assert!(!gauge.wait(ShardId::new(3), false), "an open gauge keeps nobody waiting");
        gauge.set(Level::Over);
        assert!(gauge.wait(ShardId::new(0), true) && gauge.wait(ShardId::new(63), false));
        assert!(gauge.look_at_others());
        gauge.set(Level::Open);
        assert_eq!(gauge.take_waiting().map(ShardId::number).collect::<Vec<_>>(), [0, 3, 63]);
        assert_eq!(gauge.take_waiting().count(), 0);
        assert!(!gauge.look_at_others(), "nobody waits any more");
    }

    #[test]
    fn that_others_have_room_is_believed_for_a_few_looks() {
        let gauge = Gauge::default();
        gauge.note_others(true);
        gauge.note_others(false);
        assert_eq!((0..5).filter(|_| gauge.look_at_others()).count(), 3);
    }
}
