//! The beginnings of packets that connections of a shard hold, and the order in which they stopped growing.
//!
//! Memory for beginnings is limited. A beginning that grows above the limit displaces the beginnings that have not grown
//! for longest. A client that is still sending its packet is therefore served, and the clients that stopped in the middle
//! of a packet make room for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base::{ConnectionId, Purpose};

use crate::effects::Outside;
use crate::shard::CONNECTION_BYTES;
use crate::{Effects, Shard};

/// A beginning up to this size, in bytes, is not in the list: its connection is on the account with as much anyway.
pub(crate) const BEGINNING_BYTES_ALLOWED: usize = CONNECTION_BYTES;
/// A beginning up to this size, in bytes, is accepted also when no memory is left.
const SHORT_BEGINNING_BYTES: usize = 16 * 1_024;
/// The part of all memory that the beginnings of one shard may take while those of all shards take too much. The same part holds
/// for the bytes behind CONNECT packets. The connections that fill the memory may all belong to other shards.
const PART_OF_A_SHARD: usize = 64;
/// Maximum number of beginnings that are looked at for one that grows. A read is 64 KiB, and a beginning in the list
/// has more than 1 KiB: this number of beginnings makes room for it.
const DISPLACED_AT_A_TIME: usize = 128;
/// A beginning that has grown by less than this, in bytes, keeps its place in the order: a client that sends single bytes
/// does not count as sending.
const PROGRESS_BYTES: usize = 1_024;

/// The beginnings of one shard; also other bytes that connections hold until others need the memory.
#[derive(Debug, Default)]
pub(crate) struct Beginnings {
    by_connection: HashMap<ConnectionId, Beginning>,
    /// The beginning that has not grown for longest is the first.
    by_age: BTreeMap<u64, ConnectionId>,
    next_age: u64,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Beginning {
    bytes: usize,
    age: u64,
    /// Its length when it got its place in the order.
    bytes_then: usize,
}

impl Beginnings {
    /// All of them together, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A connection holds a beginning of this length. Returns by how many bytes it has grown. `is_new`: it belongs to
    /// another packet than the last time.
    pub(crate) fn note(&mut self, id: ConnectionId, bytes: usize, is_new: bool) -> usize {
        let before = self.by_connection.get(&id).copied();
        let (bytes_before, bytes_then) = before.map_or((0, 0), |before| (before.bytes, before.bytes_then));
        self.bytes = self.bytes + bytes - bytes_before;
        let has_grown = is_new || bytes < bytes_then || bytes - bytes_then >= PROGRESS_BYTES;
        let beginning = match before {
            Some(before) if !has_grown => Beginning { bytes, ..before },
            _ => Beginning { bytes, age: self.put_last(id, before), bytes_then: bytes },
        };
        self.by_connection.insert(id, beginning);
        bytes.saturating_sub(if is_new { 0 } else { bytes_before })
    }

    /// A connection holds no beginning any more.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        if let Some(beginning) = self.by_connection.remove(&id) {
            self.by_age.remove(&beginning.age);
            self.bytes -= beginning.bytes;
        }
    }

    /// The connection whose beginning has not grown for longest, and the length of the beginning.
    pub(crate) fn oldest(&self) -> Option<(ConnectionId, usize)> {
        let (_, id) = self.by_age.first_key_value()?;
        Some((*id, self.by_connection.get(id)?.bytes))
    }

    /// The connection is not to blame: its beginning counts as the newest.
    pub(crate) fn excuse(&mut self, id: ConnectionId) {
        if let Some(beginning) = self.by_connection.get(&id).copied() {
            let age = self.put_last(id, Some(beginning));
            self.by_connection.insert(id, Beginning { age, ..beginning });
        }
    }

    fn put_last(&mut self, id: ConnectionId, before: Option<Beginning>) -> u64 {
        if let Some(before) = before {
            self.by_age.remove(&before.age);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.by_age.insert(age, id);
        age
    }
}

/// Bytes behind CONNECT packets whose passwords are being checked.
#[derive(Debug, Default)]
pub(crate) struct BehindLogins {
    by_connection: HashMap<ConnectionId, usize>,
    by_size: BTreeSet<(usize, u32, u32)>,
    /// All of them together, in bytes.
    bytes: usize,
}

impl BehindLogins {
    fn note(&mut self, id: ConnectionId, bytes: usize) {
        self.forget(id);
        self.by_connection.insert(id, bytes);
        self.by_size.insert((bytes, id.slot, id.generation));
        self.bytes += bytes;
    }

    pub(crate) fn forget(&mut self, id: ConnectionId) {
        if let Some(bytes) = self.by_connection.remove(&id) {
            self.by_size.remove(&(bytes, id.slot, id.generation));
            self.bytes -= bytes;
        }
    }

    fn largest(&self) -> Option<ConnectionId> {
        self.by_size.last().map(|(_, slot, generation)| ConnectionId { slot: *slot, generation: *generation })
    }
}

impl Shard {
    /// A connection was read, and this many bytes were not consumed. `is_new`: they belong to another packet than the
    /// last time. Returns whether the connection is still there.
    pub(crate) fn note_beginning(
        &mut self,
        id: ConnectionId,
        unconsumed: usize,
        is_new: bool,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return true };
        client.session.note_partial(unconsumed);
        let waits = client.waits();
        if waits && unconsumed > BEGINNING_BYTES_ALLOWED && self.is_logging_in(id) {
            return self.note_behind_login(id, unconsumed, to);
        }
        let Some(client) = self.clients.get_mut(id) else { return true };
        if waits || unconsumed <= BEGINNING_BYTES_ALLOWED {
            if std::mem::take(&mut client.has_beginning) {
                self.forget_beginning(id);
            }
            return true;
        }
        client.has_beginning = true;
        let grown = self.beginnings.note(id, unconsumed, is_new);
        let others = self.beginnings.bytes() - unconsumed;
        let budget = self.tally.budget();
        if budget.is_tight() && unconsumed > SHORT_BEGINNING_BYTES {
            if others < grown || !self.displace(id, grown, to) {
                self.end_for_memory(id, "a packet is larger than there is memory for", to);
                return false;
            }
        } else if budget.is_crowded_by(Purpose::Partials)
            && self.beginnings.bytes() > budget.limit_bytes() / PART_OF_A_SHARD
        {
            self.displace(id, grown, to);
        }
        true
    }

    /// A connection forgets the bytes that it holds.
    pub(crate) fn forget_beginning(&mut self, id: ConnectionId) {
        self.beginnings.forget(id);
        self.behind_logins.forget(id);
    }

    /// Notes bytes behind a CONNECT whose password is being checked. A service that does not answer keeps the bytes of all
    /// clients that wait for it. If these are too many for the process, and more than the part of this shard, the clients with
    /// the most bytes make room. Returns whether the connection is still there.
    fn note_behind_login(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return true };
        client.has_beginning = true;
        self.beginnings.forget(id);
        self.behind_logins.note(id, bytes);
        loop {
            let budget = self.tally.budget();
            let is_much = self.behind_logins.bytes > budget.limit_bytes() / PART_OF_A_SHARD;
            let is_short = budget.is_tight() || budget.is_crowded_by(Purpose::Partials);
            let Some(largest) = self.behind_logins.largest().filter(|_| is_much && is_short) else {
                return true;
            };
            self.behind_logins.forget(largest);
            let why = "the password of the client is still being checked, and others need the memory for the bytes behind it";
            self.end_for_memory(largest, why, to);
            if largest == id {
                return false;
            }
        }
    }

    /// Ends the connections whose beginnings have not grown for longest, until as many bytes are free as the beginning of
    /// this one has grown by. Returns whether they are.
    fn displace(&mut self, id: ConnectionId, bytes: usize, to: &mut Outside<'_, impl Effects>) -> bool {
        let mut freed = 0;
        for _ in 0..DISPLACED_AT_A_TIME {
            if freed >= bytes {
                break;
            }
            let Some((oldest, its_bytes)) = self.beginnings.oldest().filter(|(oldest, _)| *oldest != id)
            else {
                break;
            };
            if self.clients.get(oldest).is_some_and(|client| client.blocked.is_some()) {
                // It is not read. The rest of its packet may have arrived.
                self.beginnings.excuse(oldest);
                continue;
            }
            freed += its_bytes;
            let why = "the client has stopped in the middle of a packet, and others need the memory";
            self.end_for_memory(oldest, why, to);
        }
        freed >= bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    /// The slots, beginning with the one that has not grown for longest.
    fn order(mut beginnings: Beginnings) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some((id, _)) = beginnings.oldest() {
            order.push(id.slot);
            beginnings.forget(id);
        }
        assert_eq!((beginnings.bytes(), beginnings.by_connection.len()), (0, 0));
        order
    }

    #[test]
    fn a_beginning_that_grows_is_the_newest() {
        let mut beginnings = Beginnings::default();
        (0..3).for_each(|slot| assert_eq!(beginnings.note(id(slot), 2_000, true), 2_000));
        assert_eq!(beginnings.note(id(0), 2_000 + PROGRESS_BYTES, false), PROGRESS_BYTES);
        assert_eq!(beginnings.bytes(), 6_000 + PROGRESS_BYTES);
        assert_eq!(order(beginnings), [1, 2, 0]);
    }

    #[test]
    fn single_bytes_are_no_growth_until_they_come_to_a_kibibyte() {
        let mut beginnings = Beginnings::default();
        for slot in 0..2 {
            beginnings.note(id(slot), 2_000, true);
        }
        for more in 1..PROGRESS_BYTES {
            beginnings.note(id(0), 2_000 + more, false);
        }
        assert_eq!(beginnings.oldest(), Some((id(0), 2_000 + PROGRESS_BYTES - 1)));
        beginnings.note(id(0), 2_000 + PROGRESS_BYTES, false);
        assert_eq!(order(beginnings), [1, 0]);
    }

    #[test]
    fn the_beginning_of_another_packet_is_new() {
        let mut beginnings = Beginnings::default();
        for slot in 0..3 {
            beginnings.note(id(slot), 2_000, true);
        }
        assert_eq!(beginnings.note(id(0), 2_001, true), 2_001);
        beginnings.excuse(id(1));
        beginnings.forget(id(7));
        assert_eq!(order(beginnings), [2, 0, 1]);
    }
}
