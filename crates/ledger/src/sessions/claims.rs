//! The owner of each client identifier: one connection, and at most one other that waits for it.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use base::{Place, Principal, QueueId, ShardId};
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;

use crate::record::Lsn;
use protocol::{Claim, Will};

/// ```text
///            claim                    claim                   claim
///   free ───────────► held ───────────────► held + waiting ─────────► held + the newer one;
///     ▲    Claimed      │   Evict holder        │                     Evict the one that waited
///     └────── left ─────┘                       │ holder left
///                       ▲────── Claimed ────────┘
/// ```
#[derive(Debug)]
pub(crate) struct Claims {
    /// Each behind a pointer: half of such a table may be empty.
    clients: HashTable<Box<Client>>,
    hasher: SeedableRandomState,
    /// The number of connections of each user. A user is the hash of its name and of the place of user names.
    connections: HashTable<(u64, u32)>,
    /// Identifiers whose sessions have ended, in the order of the records of this, until the records are durable.
    ended: VecDeque<(Lsn, Arc<str>)>,
}

/// One client identifier, which exists once: here and in the subscriber of its session.
#[derive(Debug)]
pub(crate) struct Client {
    id: Arc<str>,
    /// The queue of its session in the table of sessions.
    pub(crate) session: Option<QueueId>,
    pub(crate) holder: Option<Holder>,
    waiting: Option<Box<Claimant>>,
    /// Position of the record that ended its session, until it is durable: after a crash the session would exist again.
    ended: Option<Lsn>,
}

/// The connection that has the identifier.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) place: Place,
    pub(crate) window: u16,
    pub(crate) packet_bytes_max: u32,
    /// The will, if the session ends with its connection; lasting sessions keep their own.
    pub(crate) will: Option<Box<Will>>,
    pub(crate) principal: Arc<Principal>,
}

/// A CONNECT that wants the identifier.
#[derive(Debug)]
pub(crate) struct Claimant {
    pub(crate) shard: ShardId,
    pub(crate) claim: Box<Claim>,
}

impl Claimant {
    pub(crate) fn place(&self) -> Place {
        Place { shard: self.shard, connection: self.claim.connection }
    }
}

/// The result of a claim.
#[derive(Debug)]
pub(crate) enum Claiming {
    /// Nobody holds the identifier: the claimant is to be made its holder.
    Free(Claimant),
    /// This connection has to go first.
    Evict(Place),
}

/// The connection that has left.
#[derive(Debug)]
pub(crate) enum Gone {
    /// A connection that neither held nor waited, or waited: nothing changes.
    Nobody,
    /// The holder; who waited is next.
    Holder { holder: Holder, session: Option<QueueId>, next: Option<Claimant> },
}

impl Claims {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
        Self { clients: HashTable::new(), hasher, connections: HashTable::new(), ended: VecDeque::new() }
    }

    /// How many identifiers somebody has.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Claims an identifier for a connection [MQTT-3.1.4-3].
    pub(crate) fn claim(&mut self, claimant: Claimant) -> Claiming {
        match self.find_mut(&claimant.claim.subscriber.client_id) {
            Some(Client { holder: Some(holder), waiting, .. }) => {
                // A holder that was asked to leave is not asked twice: who waited gives way to the newer one (rule 8 of
                // `protocol::order`).
                let waited = waiting.replace(Box::new(claimant));
                Claiming::Evict(waited.map_or(holder.place, |waited| waited.place()))
            }
            _ => Claiming::Free(claimant),
        }
    }

    /// Gives an identifier that nobody holds, and what it has in the table of sessions.
    pub(crate) fn hold(&mut self, id: &Arc<str>, holder: Holder, session: Option<QueueId>) {
        self.count(&holder.principal, |count| count + 1);
        let client = self.find_or_insert(id);
        debug_assert!(client.holder.is_none(), "an identifier has one holder");
        client.holder = Some(holder);
        client.session = session;
    }

    /// Says what an identifier has in the table of sessions.
    pub(crate) fn set_session(&mut self, id: &Arc<str>, session: Option<QueueId>) {
        self.find_or_insert(id).session = session;
    }

    /// An identifier's session has ended, with this record.
    pub(crate) fn set_ended(&mut self, id: &Arc<str>, lsn: Lsn) {
        self.find_or_insert(id).ended = Some(lsn);
        self.ended.push_back((lsn, Arc::clone(id)));
    }

    /// The records up to there are durable.
    pub(crate) fn set_durable(&mut self, upto: Lsn) {
        while let Some((lsn, id)) = self.ended.pop_front_if(|(lsn, _)| *lsn <= upto) {
            let client = self.find_mut(&id).expect("it is known until its last end is durable");
            client.ended.take_if(|ended| *ended == lsn);
            self.settle(&id);
        }
    }

    /// Removes a connection that has ended from the claims on its identifier.
    pub(crate) fn left(&mut self, id: &str, place: Place) -> Gone {
        let Some(client) = self.find_mut(id) else { return Gone::Nobody };
        if client.waiting.as_ref().is_some_and(|waiting| waiting.place() == place) {
            client.waiting = None;
            return Gone::Nobody;
        }
        match client.holder.take_if(|holder| holder.place == place) {
            Some(holder) => {
                let next = client.waiting.take().map(|waiting| *waiting);
                let session = client.session;
                self.count(&holder.principal, |count| count.saturating_sub(1));
                Gone::Holder { holder, session, next }
            }
            None => Gone::Nobody,
        }
    }

    /// The number of connections that the user of a principal has; 0 for one without a name.
    pub(crate) fn connections(&self, principal: &Principal) -> u32 {
        let counted =
            self.user(principal).and_then(|user| self.connections.find(user, |known| known.0 == user));
        counted.map_or(0, |(_, count)| *count)
    }

    fn user(&self, principal: &Principal) -> Option<u64> {
        let place = principal.tenant.as_ref().map_or("", |tenant| &tenant.users);
        Some(self.hasher.hash_one((place, principal.user.as_deref()?)))
    }

    /// Changes the number of connections of a user.
    fn count(&mut self, principal: &Principal, change: impl FnOnce(u32) -> u32) {
        let Some(user) = self.user(principal) else { return };
        let connections = &mut self.connections;
        let entry = connections.entry(user, |known| known.0 == user, |known| known.0);
        let mut entry = entry.or_insert((user, 0));
        entry.get_mut().1 = change(entry.get().1);
        if entry.get().1 == 0 {
            entry.remove();
            if connections.capacity() > 1_024 && connections.len() < connections.capacity() / 8 {
                connections.shrink_to(connections.len() * 2, |known| known.0);
            }
        }
    }

    /// Forgets an identifier that nobody has any more, neither a connection nor a session.
    pub(crate) fn settle(&mut self, id: &str) {
        let hash = self.hasher.hash_one(id);
        // A claimant that was refused may be the first with this identifier.
        let Ok(found) = self.clients.find_entry(hash, |client| &*client.id == id) else { return };
        let Client { holder, session, ended, .. } = &**found.get();
        if holder.is_none() && session.is_none() && ended.is_none() {
            found.remove();
            self.shrink();
        }
    }

    /// Whether a session of an identifier is still to be found in what is durable, though it has ended.
    pub(crate) fn is_ending(&self, id: &str) -> bool {
        self.find(id).is_some_and(|client| client.ended.is_some())
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Client> {
        self.clients.find(self.hasher.hash_one(id), |client| &*client.id == id).map(|client| &**client)
    }

    fn find_mut(&mut self, id: &str) -> Option<&mut Client> {
        let found = self.clients.find_mut(self.hasher.hash_one(id), |client| &*client.id == id);
        found.map(|client| &mut **client)
    }

    fn find_or_insert(&mut self, id: &Arc<str>) -> &mut Client {
        let hasher = &self.hasher;
        let (hash, is_it) = (hasher.hash_one(&**id), |client: &Client| client.id == *id);
        let entry = self.clients.entry(hash, |client| is_it(client), |client| hasher.hash_one(&*client.id));
        let new = || Client { id: Arc::clone(id), session: None, holder: None, waiting: None, ended: None };
        entry.or_insert_with(|| Box::new(new())).into_mut()
    }

    /// After most clients have gone the table gives its memory back.
    fn shrink(&mut self) {
        if self.clients.capacity() > 1_024 && self.clients.len() < self.clients.capacity() / 8 {
            let hasher = &self.hasher;
            self.clients.shrink_to(self.clients.len() * 2, |client| hasher.hash_one(&*client.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ConnectionId, Subscriber};

    fn client(slot: u32) -> Claimant {
        let connection = ConnectionId { slot, generation: 0 };
        let shard = ShardId::new(0);
        let subscriber = Arc::new(Subscriber::new("one".into(), shard, connection));
        let claim = Claim {
            subscriber,
            connection,
            clean_start: true,
            expiry_secs: 0,
            window: 1,
            packet_bytes_max: u32::MAX,
            will: None,
            durability: protocol::Durability::Fsync,
        };
        Claimant { shard, claim: Box::new(claim) }
    }

    /// Makes a claimant that may have the identifier its holder.
    fn give(claims: &mut Claims, claimant: &Claimant) -> u32 {
        let (place, principal) = (claimant.place(), Principal::anonymous());
        let holder = Holder { place, window: 1, packet_bytes_max: u32::MAX, will: None, principal };
        claims.hold(&claimant.claim.subscriber.client_id, holder, None);
        claimant.claim.connection.slot
    }

    /// Returns the connection that must go, and the connection that gets the identifier.
    fn claim(claims: &mut Claims, slot: u32) -> (Option<u32>, Option<u32>) {
        match claims.claim(client(slot)) {
            Claiming::Free(claimant) => (None, Some(give(claims, &claimant))),
            Claiming::Evict(place) => (Some(place.connection.slot), None),
        }
    }

    /// Returns the connection that gets the identifier.
    fn left(claims: &mut Claims, slot: u32) -> Option<u32> {
        let next = match claims.left("one", client(slot).place()) {
            Gone::Holder { next, .. } => next.map(|next| give(claims, &next)),
            Gone::Nobody => None,
        };
        claims.settle("one");
        next
    }

    #[test]
    fn an_identifier_has_one_holder_and_the_newest_claimant_follows() {
        let mut claims = Claims::new(1);
        let [a, b, c] = [1, 2, 3];
        assert_eq!(claim(&mut claims, a), (None, Some(a)));
        assert_eq!(claim(&mut claims, b), (Some(a), None));
        assert_eq!(claim(&mut claims, c), (Some(b), None));
        assert_eq!(left(&mut claims, b), None, "who gave way changes nothing");
        assert_eq!(left(&mut claims, a), Some(c));
        assert_eq!(left(&mut claims, a), None, "nobody leaves twice");
        assert_eq!(left(&mut claims, c), None);
        assert!(claims.clients.is_empty());
    }

    #[test]
    fn the_connections_of_each_user_are_counted() {
        let mut claims = Claims::new(1);
        let of = |user: Option<&str>| {
            Arc::new(Principal { user: user.map(Arc::from), is_proved: true, ..Principal::default() })
        };
        let place = |slot| Place { shard: ShardId::new(0), connection: ConnectionId { slot, generation: 0 } };
        let hold = |claims: &mut Claims, slot: u32, user| {
            let principal = of(user);
            let holder = Holder { place: place(slot), window: 1, packet_bytes_max: 1, will: None, principal };
            claims.hold(&slot.to_string().into(), holder, None);
        };
        for slot in 0..3_000 {
            hold(&mut claims, slot, Some(["ann", "bob"][slot as usize % 2]));
        }
        hold(&mut claims, 3_000, None);
        let counts =
            |claims: &Claims| [Some("ann"), Some("bob"), None].map(|user| claims.connections(&of(user)));
        assert_eq!(counts(&claims), [1_500, 1_500, 0]);
        for slot in 0..2_999 {
            claims.left(&slot.to_string(), place(slot));
            claims.left(&slot.to_string(), place(slot));
        }
        assert_eq!(counts(&claims), [0, 1, 0]);
        assert_eq!(claims.connections.len(), 1);
    }

    #[test]
    fn a_claimant_that_leaves_while_it_waits_is_forgotten() {
        let mut claims = Claims::new(1);
        let [a, b] = [1, 2];
        claim(&mut claims, a);
        claim(&mut claims, b);
        left(&mut claims, b);
        assert_eq!(left(&mut claims, a), None);
        assert!(claims.clients.is_empty());
    }
}
