//! The table of all counts by listener and user.
//!
//! ```text
//! connection ─► counts of its shard, listener and user ─┐
//! counts of users that gave their rows to others ───────┴─► rows: their sums are the totals of the broker
//! ```
//!
//! A connection looks for its counts when it is accepted, and once more when its client is let in. It keeps them to its end: a
//! client cannot become another user. A message is then counted without a look at this table.
//!
//! Clients choose user names. The table therefore has a limited number of users, and all others of a listener are counted
//! together. A user without connections gives its row to a new user, and its counts move to those of all others. Nobody else
//! can count in them at this moment: all owners are given out under the lock of the table, and there is none but the table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{ConnectionId, Principal, ShardId};

use crate::{Counted, Counter, Counters, Counts, Shard};

/// Number of users that the table has if nothing else is configured.
pub const USERS_MAX: usize = 1_024;
/// Longest user name that gets a row, in bytes. A client may choose one of 64 KiB.
const NAME_BYTES_MAX: usize = 256;
/// Rows at which a client that connects looks for one without connections.
const LOOKS: usize = 16;

/// Clients whose messages are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party {
    /// The place of their listener, as [`Admission`](crate::Admission) names it. `None` without one.
    pub listener: Option<u16>,
    /// The user of these clients.
    pub user: CountedUser,
}

/// The user for whom messages are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedUser {
    /// Clients that were not let in, or not yet.
    NotLetIn,
    /// Clients without a user name.
    Anonymous,
    /// Clients that give this user name.
    Named {
        /// The user name, as the clients give it.
        name: Arc<str>,
        /// Whether the name is proved. Clients that prove nothing can choose the name of another user.
        is_proved: bool,
    },
    /// Users without a row.
    Others,
}

impl CountedUser {
    fn of(principal: &Principal) -> Self {
        match &principal.user {
            None => Self::Anonymous,
            Some(name) => Self::Named { name: Arc::clone(name), is_proved: principal.is_proved },
        }
    }
}

/// The counts of all listeners and users, in all shards.
#[derive(Debug)]
pub struct Parties(Mutex<Table>);

impl Default for Parties {
    fn default() -> Self {
        Self::new(USERS_MAX)
    }
}

/// The counts for a connection, and the way in which they were found.
struct Found {
    counts: Arc<Counts>,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The row was there, or there was room for it.
    Own,
    /// Another user gave its row up.
    Displaced,
    /// The user is one of the others.
    Other,
}

impl Parties {
    /// A table with this number of users. A user on two listeners counts as two.
    #[must_use]
    pub fn new(users_max: usize) -> Self {
        Self(Mutex::new(Table { users_max, ..Table::default() }))
    }

    /// The counts of connections of a listener whose clients are not let in yet.
    #[must_use]
    pub fn door(&self, shard: ShardId, listener: u16) -> Arc<Counts> {
        let party = Party { listener: Some(listener), user: CountedUser::NotLetIn };
        self.lock().find(shard, party).counts
    }

    /// All sums that are not 0. The lock is free while they are added up.
    #[must_use]
    pub fn read(&self) -> Vec<(Party, Counted)> {
        let (rows, former) = {
            let table = self.lock();
            let cells = |row: &Row| row.cells.iter().flatten().map(Arc::clone).collect::<Vec<_>>();
            let rows: Vec<_> = table.rows.iter().map(|row| (row.party.clone(), cells(row))).collect();
            (rows, table.former.clone())
        };
        let sum = |cells: Vec<Arc<Counts>>| {
            let mut counted = Counted::default();
            cells.iter().for_each(|counts| counted += &**counts);
            counted
        };
        let mut sums: HashMap<Party, Counted> =
            rows.into_iter().map(|(party, cells)| (party, sum(cells))).collect();
        for (listener, counted) in former {
            *sums.entry(Party { listener, user: CountedUser::Others }).or_default() += &counted;
        }
        let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum != Counted::default()).collect();
        sums.sort_by(|(one, _), (other, _)| one.cmp(other));
        sums
    }

    /// The sum over all listeners and users.
    #[must_use]
    pub fn sum(&self) -> Counted {
        let mut sum = Counted::default();
        let table = self.lock();
        table.former.values().for_each(|counted| sum += counted);
        table.rows.iter().flat_map(|row| row.cells.iter().flatten()).for_each(|counts| sum += &**counts);
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No critical section stops half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Table {
    users_max: usize,
    rows: Vec<Row>,
    /// The places of rows.
    places: HashMap<Party, usize>,
    /// The places of rows of users.
    users: Vec<usize>,
    /// The place in `users` at which the last look for a row ended.
    hand: usize,
    /// Counts of users that gave their rows up, by listener.
    former: HashMap<Option<u16>, Counted>,
}

#[derive(Debug)]
struct Row {
    party: Party,
    /// The counts in each shard that has had a connection of the party.
    cells: Vec<Option<Arc<Counts>>>,
    /// A client was let in after the last look at this row.
    is_recent: bool,
}

impl Row {
    fn new(party: Party) -> Self {
        Self { party, cells: Vec::new(), is_recent: false }
    }

    fn cell(&mut self, shard: ShardId) -> Arc<Counts> {
        if self.cells.len() <= shard.number() {
            self.cells.resize(shard.number() + 1, None);
        }
        Arc::clone(self.cells[shard.number()].get_or_insert_default())
    }

    /// Whether nobody but the table has the counts.
    fn is_idle(&mut self) -> bool {
        self.cells.iter_mut().flatten().all(|counts| Arc::get_mut(counts).is_some())
    }
}

impl Table {
    fn find(&mut self, shard: ShardId, party: Party) -> Found {
        if let Some(place) = self.places.get(&party) {
            let row = &mut self.rows[*place];
            row.is_recent = true;
            return Found { counts: row.cell(shard), way: Way::Own };
        }
        let CountedUser::Named { name, is_proved } = &party.user else {
            let place = self.rows.len();
            return Found { counts: self.put(place, party).cell(shard), way: Way::Own };
        };
        let is_short = name.len() <= NAME_BYTES_MAX;
        if is_short && self.users.len() < self.users_max {
            let place = self.rows.len();
            self.users.push(place);
            return Found { counts: self.put(place, party).cell(shard), way: Way::Own };
        }
        if let Some(place) = is_short.then(|| self.displace(*is_proved)).flatten() {
            return Found { counts: self.put(place, party).cell(shard), way: Way::Displaced };
        }
        let others = Party { user: CountedUser::Others, ..party };
        Found { way: Way::Other, ..self.find(shard, others) }
    }

    /// Puts a party into a row, behind the last one or in the place of another party.
    fn put(&mut self, place: usize, party: Party) -> &mut Row {
        self.places.insert(party.clone(), place);
        let row = Row::new(party);
        if place == self.rows.len() {
            self.rows.push(row);
        } else {
            self.rows[place] = row;
        }
        &mut self.rows[place]
    }

    /// Takes the row of a user without connections. Users that came back since the last look keep theirs, and so do proved users
    /// before one that has proved nothing: anybody can invent such names.
    fn displace(&mut self, is_for_proved: bool) -> Option<usize> {
        for _ in 0..LOOKS.min(self.users.len()) {
            self.hand = (self.hand + 1) % self.users.len();
            let place = self.users[self.hand];
            let row = &mut self.rows[place];
            let is_kept =
                !is_for_proved && matches!(row.party.user, CountedUser::Named { is_proved: true, .. });
            if is_kept || std::mem::take(&mut row.is_recent) || !row.is_idle() {
                continue;
            }
            let former = self.former.entry(row.party.listener).or_default();
            row.cells.iter().flatten().for_each(|counts| *former += &**counts);
            self.places.remove(&row.party);
            return Some(place);
        }
        None
    }
}

/// The counts that the connections of one shard have.
#[derive(Debug)]
pub(crate) struct OwnCounts {
    shard: ShardId,
    parties: Arc<Parties>,
    /// Counts of clients that are not let in yet, by the place of their listener.
    doors: HashMap<u16, Arc<Counts>>,
}

impl OwnCounts {
    pub(crate) fn new(shard: ShardId, parties: Arc<Parties>) -> Self {
        Self { shard, parties, doors: HashMap::new() }
    }

    /// The counts of copies whose subscribers are not connected.
    pub(crate) fn nobody(&self) -> Arc<Counts> {
        let nobody = Party { listener: None, user: CountedUser::NotLetIn };
        self.parties.lock().find(self.shard, nobody).counts
    }

    /// The counts of clients of a listener that are not let in yet.
    pub(crate) fn door(&mut self, listener: u16) -> Arc<Counts> {
        let Self { shard, parties, doors, .. } = self;
        Arc::clone(doors.entry(listener).or_insert_with(|| parties.door(*shard, listener)))
    }

    /// The counts of a client that is let in.
    pub(crate) fn user(&self, listener: u16, principal: &Principal, counters: &Counters) -> Arc<Counts> {
        let party = Party { listener: Some(listener), user: CountedUser::of(principal) };
        let Found { counts, way } = self.parties.lock().find(self.shard, party);
        let counter: Option<&Counter> = match way {
            Way::Own => None,
            Way::Displaced => Some(&counters.users_displaced),
            Way::Other => Some(&counters.users_other),
        };
        counter.iter().for_each(|counter| counter.add(1));
        counts
    }
}

impl Shard {
    /// Messages and connections are counted there by listener and user. All shards of a process have the same table.
    #[must_use]
    pub fn with_parties(mut self, parties: Arc<Parties>) -> Self {
        self.counts = OwnCounts::new(self.id, parties);
        self.fates.nobody = self.counts.nobody();
        self
    }

    /// The counts of connections that a listener has accepted, and whose clients are not let in yet.
    pub fn door_counts(&mut self, counted_as: u16) -> Arc<Counts> {
        self.counts.door(counted_as)
    }

    /// The counts of a client; those of nobody if it is gone.
    pub(crate) fn counts_of(&self, id: ConnectionId) -> &Counts {
        self.clients.get(id).map_or(&self.fates.nobody, |client| &client.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: usize = 0;
    const THERE: usize = 1;

    fn named(listener: u16, name: &str) -> Party {
        let user = CountedUser::Named { name: name.into(), is_proved: true };
        Party { listener: Some(listener), user }
    }

    fn find(parties: &Parties, shard: usize, name: &str) -> Found {
        find_party(parties, shard, named(0, name))
    }

    fn find_party(parties: &Parties, shard: usize, party: Party) -> Found {
        parties.lock().find(ShardId::new(shard), party)
    }

    /// The messages that are counted for each user of a listener.
    fn received(parties: &Parties) -> Vec<(String, u64)> {
        let name = |party: Party| match party.user {
            CountedUser::Named { name, .. } => name.to_string(),
            other => format!("{other:?}"),
        };
        parties.read().into_iter().map(|(party, sum)| (name(party), sum.publish_received())).collect()
    }

    fn expected<const N: usize>(counts: [(&str, u64); N]) -> Vec<(String, u64)> {
        counts.map(|(name, count)| (name.to_owned(), count)).to_vec()
    }

    #[test]
    fn shards_count_a_user_together_and_listeners_and_unproved_names_apart() {
        let parties = Parties::new(10);
        find(&parties, HERE, "ann").counts.received[0].add(1);
        find(&parties, THERE, "ann").counts.received[2].add(2);
        find_party(&parties, HERE, named(1, "ann")).counts.received[0].add(4);
        let user = CountedUser::Named { name: "ann".into(), is_proved: false };
        find_party(&parties, HERE, Party { listener: Some(0), user }).counts.received[0].add(8);
        let counts: Vec<u64> = parties.read().iter().map(|(_, sum)| sum.publish_received()).collect();
        assert_eq!(counts, [8, 3, 4]);
        assert_eq!(parties.sum().received, [13, 0, 2]);
    }

    #[test]
    fn a_user_without_connections_gives_its_row_to_a_new_one_and_its_counts_to_all_others() {
        let parties = Parties::new(2);
        let ann = find(&parties, HERE, "ann").counts;
        ann.received[0].add(1);
        find(&parties, THERE, "bob").counts.received[0].add(2);
        let eve = find(&parties, HERE, "eve");
        assert_eq!(eve.way, Way::Displaced);
        eve.counts.received[0].add(4);
        assert_eq!(received(&parties), expected([("ann", 1), ("eve", 4), ("Others", 2)]));
        let bob = find(&parties, HERE, "bob");
        assert_eq!(bob.way, Way::Other, "both users of the table are connected");
        bob.counts.received[0].add(8);
        ann.received[0].add(16);
        assert_eq!(received(&parties), expected([("ann", 17), ("eve", 4), ("Others", 10)]));
    }

    #[test]
    fn invented_names_displace_no_proved_user() {
        let parties = Parties::new(2);
        find(&parties, HERE, "ann").counts.received[0].add(1);
        for number in 0..100 {
            let user = CountedUser::Named { name: format!("invented {number}").into(), is_proved: false };
            drop(find_party(&parties, HERE, Party { listener: Some(1), user }));
        }
        assert!(received(&parties).contains(&("ann".to_owned(), 1)), "{:?}", received(&parties));
    }

    #[test]
    fn a_user_that_came_back_stays_when_others_come_once() {
        let parties = Parties::new(2);
        let _connected = find(&parties, HERE, "connected").counts;
        for round in 0..100 {
            let come_and_go = |name: &str| drop(find(&parties, HERE, name));
            come_and_go("regular");
            come_and_go("regular");
            let once = find(&parties, HERE, &format!("once {round}"));
            assert_eq!(once.way, Way::Other);
        }
        assert_eq!(find(&parties, HERE, "regular").way, Way::Own);
    }

    #[test]
    fn names_of_any_number_and_length_take_a_bounded_table() {
        let parties = Parties::new(100);
        for number in 0..10_000_u32 {
            let long = if number.is_multiple_of(2) { "x".repeat(NAME_BYTES_MAX) } else { String::new() };
            find(&parties, HERE, &format!("{number}{long}")).counts.received[0].add(1);
        }
        let table = parties.lock();
        assert_eq!((table.rows.len(), table.places.len(), table.users.len()), (101, 101, 100));
        drop(table);
        assert!(received(&parties).iter().all(|(name, _)| name.len() <= NAME_BYTES_MAX));
        assert_eq!(parties.sum().publish_received(), 10_000);
        let off = Parties::new(0);
        assert_eq!(find(&off, HERE, "ann").way, Way::Other);
    }
}
