//! Keys of the members of a key-ordered group, and the messages that can be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use base::{Lane, Members, QueueId, Subscriber};

use crate::lines::brake::Patience;
use crate::lines::group::Ring;
use crate::record::MessageId;

/// The lanes of one group.
///
/// A lane is its owner's, among the members that are connected the one that wants it most. While messages of it are with
/// a member that owns it no more, what waits in it is sent to nobody: so one holder follows the other. Of a lane in
/// which nothing waits, and of which nobody has anything, nothing is kept but whose it is.
///
/// When members have come or gone, [`decide`](Self::decide) finds the new owners, some at a time. Until then a lane stays
/// with its owner; one whose owner has gone has none, and its messages wait.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// Each of them is present.
    owners: Box<[Option<QueueId>]>,
    present: BTreeMap<QueueId, Present>,
    /// The same members by the number of messages that wait for them.
    by_waiting: BTreeSet<(usize, QueueId)>,
    busy: BTreeMap<Lane, Busy>,
    /// Members that have something to get and take something, as far as is known, in turn.
    ring: Ring,
    undecided: Undecided,
    /// Members for which publishers were waiting, and for which nothing waits any more.
    drained: Vec<QueueId>,
}

/// Lanes whose owners are to be found again.
#[derive(Debug, Default)]
struct Undecided {
    /// The number of the next one.
    next: usize,
    /// How many there are.
    lanes: usize,
    /// Members that have come since there were none.
    newcomers: Vec<QueueId>,
    /// More than 64 have come: each lane looks at all members.
    looks_at_all: bool,
    /// Progress of the next lane while it looks at all members: the last member that it has looked at, and the best
    /// claim up to it.
    looked_at: Option<QueueId>,
    best: Option<(u64, QueueId)>,
}

/// When more newcomers than this are undecided, lanes look at all members instead.
const NEWCOMERS_MAX: usize = 64;

/// The search for the lanes of one member takes about as long as this number of claims.
const SCAN_CLAIMS: usize = 64;

impl Undecided {
    /// Begins to decide all lanes again, because a member has come or gone.
    fn begin(&mut self) {
        self.lanes = Lane::COUNT;
    }

    fn add(&mut self, newcomer: QueueId, subscriber: &Subscriber) {
        // The next lane does not look again at members that are not behind the last one it has looked at.
        if self.looked_at.is_some_and(|last| newcomer < last)
            && let Some(lane) = Lane::numbered(self.next)
        {
            self.best = self.best.max(Some((lane.claim_of(&subscriber.client_id), newcomer)));
        }
        self.looks_at_all |= self.newcomers.len() == NEWCOMERS_MAX;
        if !self.looks_at_all {
            self.newcomers.push(newcomer);
        }
        self.begin();
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % Lane::COUNT;
        self.lanes -= 1;
        (self.looked_at, self.best) = (None, None);
        if self.lanes == 0 {
            self.end();
        }
    }

    fn end(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }
}

/// A member that is connected.
#[derive(Debug)]
struct Present {
    subscriber: Arc<Subscriber>,
    /// The lanes from which it can get something, by the next message of each.
    ready: BTreeSet<(MessageId, Lane)>,
    turn: Option<u64>,
    /// The member accepts nothing at the moment, and will say when it does.
    is_hungry: bool,
    /// How many messages wait in its lanes.
    waiting: usize,
    /// Bytes of the messages that wait in its lanes.
    waiting_bytes: usize,
    patience: Patience,
}

/// A lane in use.
#[derive(Debug, Default)]
struct Busy {
    waiting: BTreeSet<MessageId>,
    /// The bytes of those messages.
    waiting_bytes: usize,
    /// Number of its messages that one member, the `holder`, has received and not acknowledged.
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
            by_waiting: BTreeSet::new(),
            busy: BTreeMap::new(),
            ring: Ring::default(),
            undecided: Undecided::default(),
            drained: Vec::new(),
        }
    }

    /// Whether somebody can get something.
    pub(crate) fn has_turns(&self) -> bool {
        !self.ring.is_empty()
    }

    /// A member has come. It gets the lanes that it claims more strongly than their owners, when the lanes are decided.
    pub(crate) fn arrive(&mut self, id: QueueId, subscriber: &Arc<Subscriber>) {
        if self.present.contains_key(&id) {
            return;
        }
        self.present.insert(
            id,
            Present {
                subscriber: Arc::clone(subscriber),
                ready: BTreeSet::new(),
                turn: None,
                is_hungry: false,
                waiting: 0,
                waiting_bytes: 0,
                patience: Patience::default(),
            },
        );
        self.by_waiting.insert((0, id));
        self.undecided.add(id, subscriber);
    }

    /// A member has gone. Its messages are given back elsewhere. This takes from the `claims` of the turn. Returns how many
    /// lanes it had.
    pub(crate) fn depart(&mut self, id: QueueId, members: &Members, claims: &mut usize) -> usize {
        let Some(gone) = self.present.remove(&id) else { return 0 };
        self.by_waiting.remove(&(gone.waiting, id));
        gone.turn.into_iter().for_each(|turn| self.ring.remove(turn));
        let its = Lane::all().filter(|lane| self.owners[lane.number()] == Some(id));
        let its: Vec<_> = its.map(|lane| (lane, None)).collect();
        let lanes = its.len();
        *claims = claims.saturating_sub(SCAN_CLAIMS + lanes);
        self.assign(its, members);
        if self.present.is_empty() {
            self.undecided.end();
        } else {
            self.undecided.begin();
        }
        lanes
    }

    /// Whether there are lanes whose owners are to be found.
    pub(crate) fn is_undecided(&self) -> bool {
        self.undecided.lanes > 0
    }

    /// Finds the owners of some lanes. One claim of a member to a lane is worked out for each of `claims`, and for at most
    /// 64 more.
    pub(crate) fn decide(&mut self, claims: &mut usize, members: &Members) {
        let mut decided = Vec::new();
        while *claims > 0
            && self.is_undecided()
            && let Some(lane) = Lane::numbered(self.undecided.next)
        {
            let owner = self.owners[lane.number()];
            let best = match owner {
                Some(owner) if !self.undecided.looks_at_all => Some(self.best_newcomer(lane, owner, claims)),
                _ => match self.best_of_all(lane, claims) {
                    Some(best) => best,
                    None => break,
                },
            };
            if best != owner {
                decided.push((lane, best));
            }
            self.undecided.advance();
        }
        self.assign(decided, members);
    }

    /// The owner of a lane or one of the newcomers, whichever wants it most.
    fn best_newcomer(&self, lane: Lane, owner: QueueId, claims: &mut usize) -> QueueId {
        let all = self.undecided.newcomers.iter().copied().chain([owner]);
        let claim = |id: QueueId| Some((lane.claim_of(&self.present.get(&id)?.subscriber.client_id), id));
        *claims = claims.saturating_sub(self.undecided.newcomers.len() + 1);
        all.filter_map(claim).max().map_or(owner, |(_, id)| id)
    }

    /// The member that wants a lane most, if any member is present. None while that is not known yet.
    fn best_of_all(&mut self, lane: Lane, claims: &mut usize) -> Option<Option<QueueId>> {
        let Undecided { looked_at, best, .. } = &mut self.undecided;
        loop {
            let behind = looked_at.map_or(Bound::Unbounded, Bound::Excluded);
            for (id, member) in self.present.range((behind, Bound::Unbounded)) {
                if *claims == 0 {
                    return None;
                }
                *claims -= 1;
                *looked_at = Some(*id);
                *best = (*best).max(Some((lane.claim_of(&member.subscriber.client_id), *id)));
            }
            match *best {
                // The best one has gone meanwhile.
                Some((_, id)) if !self.present.contains_key(&id) => (*looked_at, *best) = (None, None),
                best => return Some(best.map(|(_, id)| id)),
            }
        }
    }

    fn assign(&mut self, lanes: Vec<(Lane, Option<QueueId>)>, members: &Members) {
        if lanes.is_empty() {
            return;
        }
        let subscriber = |id: QueueId| self.present.get(&id).map(|member| Arc::clone(&member.subscriber));
        members.assign(lanes.iter().map(|(lane, owner)| (*lane, owner.and_then(subscriber))));
        for (lane, owner) in lanes {
            let busy = self.busy.get(&lane);
            let (waiting, bytes) = busy.map_or((0, 0), |busy| (busy.waiting.len(), busy.waiting_bytes));
            self.change_waiting(lane, |member| {
                member.waiting -= waiting;
                member.waiting_bytes -= bytes;
            });
            self.owners[lane.number()] = owner;
            self.change_waiting(lane, |member| {
                member.waiting += waiting;
                member.waiting_bytes += bytes;
            });
            self.settle(lane);
        }
    }

    /// The number of messages that wait for the owner of a lane changes.
    fn change_waiting(&mut self, lane: Lane, change: impl FnOnce(&mut Present)) {
        let Some(id) = self.owners[lane.number()] else { return };
        let Some(owner) = self.present.get_mut(&id) else { return };
        let before = owner.waiting;
        change(owner);
        if owner.waiting != before {
            self.by_waiting.remove(&(before, id));
            self.by_waiting.insert((owner.waiting, id));
        }
    }

    /// Whether more than this number of messages wait for one member.
    pub(crate) fn has_more_than(&self, messages: usize) -> bool {
        self.by_waiting.last().is_some_and(|(waiting, _)| *waiting > messages)
    }

    /// Changes the patience with each member for which more than this number of messages wait. A member that publishers
    /// do not wait for keeps its keys, and the publishers of the others go on. The queue bounds the number of such
    /// members.
    pub(crate) fn change_patience(&mut self, messages: usize, mut change: impl FnMut(&mut Patience)) {
        let grown = self.by_waiting.iter().rev().take_while(|(waiting, _)| *waiting > messages);
        for (_, id) in grown {
            self.present.get_mut(id).into_iter().for_each(|member| change(&mut member.patience));
        }
    }

    /// Members for whom nothing waits any more are as good as any other.
    pub(crate) fn renew_patience(&mut self, now_ms: u64) {
        for id in self.drained.drain(..) {
            let drained = self.present.get_mut(&id).filter(|member| member.waiting == 0);
            drained.into_iter().for_each(|member| member.patience.renew(now_ms));
        }
    }

    /// The member whose messages fill the queue most, by their number or by their bytes.
    pub(crate) fn fullest(&self, by_bytes: bool) -> Option<QueueId> {
        let fill = |member: &Present| if by_bytes { member.waiting_bytes } else { member.waiting };
        let fullest = self.present.iter().max_by_key(|(_, member)| fill(member))?;
        (fill(fullest.1) > 0).then_some(*fullest.0)
    }

    /// Whether the owner of a lane takes something, as far as is known, and may have it.
    pub(crate) fn takes(&self, lane: Lane) -> bool {
        let Some(owner) = self.owners[lane.number()] else { return false };
        let is_free = self.busy.get(&lane).is_none_or(|busy| busy.held == 0 || busy.holder == Some(owner));
        is_free && self.present.get(&owner).is_some_and(|member| !member.is_hungry)
    }

    /// A message waits, at its place.
    pub(crate) fn add(&mut self, lane: Lane, message: MessageId, bytes: usize) {
        let busy = self.busy.entry(lane).or_default();
        if busy.waiting.insert(message) {
            busy.waiting_bytes += bytes;
            self.change_waiting(lane, |member| {
                member.waiting += 1;
                member.waiting_bytes += bytes;
            });
        }
        self.settle(lane);
    }

    /// A message waits no more.
    pub(crate) fn remove(&mut self, lane: Lane, message: MessageId, bytes: usize) {
        if let Some(busy) = self.busy.get_mut(&lane) {
            if busy.waiting.remove(&message) {
                busy.waiting_bytes -= bytes;
                self.change_waiting(lane, |member| {
                    member.waiting -= 1;
                    member.waiting_bytes -= bytes;
                });
                let owner = self.owners[lane.number()];
                let is_drained = |owner: &QueueId| {
                    let owner = self.present.get(owner);
                    owner.is_some_and(|owner| owner.waiting == 0 && !owner.patience.is_rested())
                };
                self.drained.extend(owner.filter(is_drained));
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

    /// A message of this weight is acknowledged by its member, or was taken away from it.
    pub(crate) fn finish(&mut self, lane: Lane, weight: usize) {
        if let Some(busy) = self.busy.get_mut(&lane) {
            debug_assert!(busy.held > 0, "what is finished was begun");
            busy.held = busy.held.saturating_sub(1);
            let holder = busy.holder.and_then(|holder| self.present.get_mut(&holder));
            holder.into_iter().for_each(|holder| holder.patience.progress(weight));
            self.settle(lane);
        }
    }

    /// A member has got a message of QoS 0 of this weight: nobody acknowledges it.
    pub(crate) fn progress(&mut self, member: QueueId, weight: usize) {
        self.present.get_mut(&member).into_iter().for_each(|member| member.patience.progress(weight));
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

    /// A member takes nothing.
    pub(crate) fn starve(&mut self, member: QueueId) {
        self.present.get_mut(&member).into_iter().for_each(|member| member.is_hungry = true);
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
    use base::{Dispatch, Key, Subscriber};

    fn id(slot: u32) -> QueueId {
        QueueId { slot, generation: 0 }
    }

    fn member(slot: u32) -> Arc<Subscriber> {
        Arc::new(Subscriber::lasting(format!("m{slot}").into(), id(slot)))
    }

    fn group() -> Subscriber {
        Subscriber::group("$share/g/a".into(), id(9), Dispatch::KeyOrdered(Key::Publisher))
    }

    /// Decides all lanes, this number of claims at a time. Returns the number of calls.
    fn decide_all(lanes: &mut Lanes, claims: usize, members: &Members) -> usize {
        let mut turns = 0;
        while lanes.is_undecided() {
            lanes.decide(&mut claims.clone(), members);
            turns += 1;
        }
        turns
    }

    /// Returns the member that should own each lane.
    fn wanted(lanes: &Lanes) -> Vec<Option<QueueId>> {
        let most = |lane: Lane| {
            let claim =
                |(id, member): (&QueueId, &Present)| (lane.claim_of(&member.subscriber.client_id), *id);
            lanes.present.iter().map(claim).max().map(|(_, id)| id)
        };
        Lane::all().map(most).collect()
    }

    #[test]
    fn a_lane_follows_its_owner_when_its_holder_has_finished() {
        let group = group();
        let members = group.members().expect("it is a group");
        let mut lanes = Lanes::new();
        lanes.arrive(id(1), &member(1));
        lanes.arrive(id(2), &member(2));
        decide_all(&mut lanes, 10_000, members);
        let moves = |lane: &Lane| lane.claim_of("m2") > lane.claim_of("m1");
        let lane = Lane::all().find(moves).expect("half of them do");
        lanes.depart(id(2), members, &mut 0);
        decide_all(&mut lanes, 10_000, members);
        (1..=2).for_each(|number| lanes.add(lane, MessageId(number), 10));
        assert_eq!((lanes.pop_turn(), lanes.next_for(id(1))), (Some(id(1)), Some(MessageId(1))));
        lanes.remove(lane, MessageId(1), 10);
        lanes.lend(lane, id(1));
        lanes.arrive(id(2), &member(2));
        decide_all(&mut lanes, 10_000, members);
        assert_eq!((lanes.next_for(id(1)), lanes.next_for(id(2))), (None, None), "the first is under way");
        lanes.finish(lane, 1);
        assert_eq!((lanes.pop_turn(), lanes.next_for(id(2))), (Some(id(2)), Some(MessageId(2))));
        lanes.remove(lane, MessageId(2), 10);
        assert!(lanes.busy.is_empty() && !lanes.has_turns());
    }

    /// The result does not depend on the number of claims at a time, nor on members that come or go meanwhile.
    #[test]
    fn each_lane_gets_to_the_member_that_wants_it_most() {
        for (claims, crowd) in [(1, 3), (7, 20), (500, 20), (10_000, 3), (300, 100)] {
            let group = group();
            let members = group.members().expect("it is a group");
            let mut lanes = Lanes::new();
            let lane_of = |number: usize| Lane::numbered(number * 37 % Lane::COUNT).expect("there is one");
            for number in 0..50 {
                lanes.add(lane_of(number), MessageId(number as u64), number);
            }
            for number in 0..crowd {
                lanes.arrive(id(number), &member(number));
                lanes.decide(&mut claims.clone(), members);
                if number % 3 == 2 {
                    lanes.depart(id(number - 1), members, &mut 0);
                    lanes.decide(&mut claims.clone(), members);
                }
                if number % 6 == 5 {
                    lanes.arrive(id(number - 1), &member(number - 1));
                }
            }
            decide_all(&mut lanes, claims, members);
            assert_eq!(*lanes.owners, *wanted(&lanes));
            let waiting = lanes.present.values().map(|member| member.waiting).sum::<usize>();
            let bytes = lanes.present.values().map(|member| member.waiting_bytes).sum::<usize>();
            assert_eq!((waiting, bytes), (50, (0..50).sum()));
            let known = lanes.present.iter().map(|(id, member)| (member.waiting, *id));
            assert!(lanes.by_waiting.iter().copied().eq(known.collect::<BTreeSet<_>>()));
            let most = lanes.present.values().map(|member| member.waiting).max().expect("somebody is there");
            assert_eq!((lanes.has_more_than(most - 1), lanes.has_more_than(most)), (true, false));
        }
    }

    /// A member may come while a lane has looked at some of the members, with an identifier before or behind those.
    #[test]
    fn a_member_that_comes_while_a_lane_is_half_looked_at_is_looked_at_too() {
        let group = group();
        let members = group.members().expect("it is a group");
        for newcomer in [1, 25] {
            for lane in (0..Lane::COUNT).step_by(16) {
                let mut lanes = Lanes::new();
                (10..20).for_each(|number| lanes.arrive(id(number), &member(number)));
                lanes.undecided.next = lane;
                lanes.decide(&mut 5, members);
                assert_eq!(lanes.undecided.looked_at, Some(id(14)));
                lanes.arrive(id(newcomer), &member(newcomer));
                decide_all(&mut lanes, 10_000, members);
                assert_eq!(lanes.owners[lane], wanted(&lanes)[lane], "lane {lane}");
                if lane == 48 {
                    assert_eq!(*lanes.owners, *wanted(&lanes));
                }
            }
        }
    }

    /// Members that come while others are undecided are listed one by one only up to a bound.
    #[test]
    fn the_list_of_newcomers_is_bounded() {
        let mut lanes = Lanes::new();
        (0..1_000).for_each(|number| lanes.arrive(id(number), &member(number)));
        assert_eq!(lanes.undecided.newcomers.len(), NEWCOMERS_MAX);
        assert!(lanes.undecided.looks_at_all);
    }

    /// A member that goes leaves its lanes behind in one step, which takes from the claims of the turn.
    #[test]
    fn the_lanes_of_a_member_that_goes_are_charged_to_the_turn() {
        let group = group();
        let members = group.members().expect("it is a group");
        let mut lanes = Lanes::new();
        lanes.arrive(id(1), &member(1));
        decide_all(&mut lanes, 10_000, members);
        let mut claims = 3_000;
        lanes.depart(id(1), members, &mut claims);
        assert_eq!(claims, 3_000 - SCAN_CLAIMS - Lane::COUNT);
        lanes.depart(id(1), members, &mut claims);
        assert_eq!(claims, 3_000 - SCAN_CLAIMS - Lane::COUNT, "it has gone");
    }

    /// A new member costs two claims for each lane, regardless of the number of members. A leaving member costs on
    /// average as many claims as there are lanes. No turn computes many more claims than its allowance.
    #[test]
    fn a_member_that_comes_or_goes_costs_a_bounded_number_of_claims_a_turn() {
        const CLAIMS: usize = 100;
        for crowd in [10, 40, 200] {
            let group = group();
            let members = group.members().expect("it is a group");
            let mut lanes = Lanes::new();
            (0..crowd).for_each(|number| lanes.arrive(id(number), &member(number)));
            let turns = decide_all(&mut lanes, CLAIMS, members);
            let all = Lane::COUNT * crowd as usize;
            assert!(turns >= all / (CLAIMS + NEWCOMERS_MAX + 1) && turns <= all / CLAIMS + Lane::COUNT);
            lanes.arrive(id(crowd), &member(crowd));
            assert_eq!(decide_all(&mut lanes, CLAIMS, members), (2 * Lane::COUNT).div_ceil(CLAIMS));
            lanes.depart(id(crowd), members, &mut 0);
            let turns = decide_all(&mut lanes, CLAIMS, members);
            assert!(turns <= 4 * Lane::COUNT / CLAIMS, "{turns} turns for {crowd} members");
        }
    }
}
