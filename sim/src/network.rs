//! Connections between clients and shards: two streams of bytes each, which can be slow, cut, or dead on one side only.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use protocol::Durability;
use stream::Readiness;

use crate::random::Random;

/// Out of a thousand connections: a client comes to its own address, if the broker listens there.
const OWN_ADDRESS_PER_MILLE: usize = 800;

/// A connection, as long as the run lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) usize);

/// All connections that there ever were, for everybody who has an end of one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network(Rc<RefCell<Links>>);

#[derive(Debug, Default)]
struct Links {
    links: Vec<Link>,
    /// Connections that a shard has not accepted, by shard.
    knocking: Vec<VecDeque<LinkId>>,
    /// Addresses that a broker listens on, in runs with reloads. Others connect to a shard.
    doors: Vec<Door>,
    now_ms: u64,
}

/// An address that the broker may listen on.
#[derive(Debug, Clone, Default)]
struct Door {
    is_open: bool,
    /// Links that the broker has not accepted.
    knocking: VecDeque<LinkId>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: usize,
    /// The shard that is to have it.
    shard: usize,
    /// Durability of the listener that it has come to.
    pub(crate) durability: Durability,
    /// Written by the client, not read by the broker.
    up: VecDeque<u8>,
    /// Written by the broker, not read by the client.
    down: VecDeque<u8>,
    /// Maximum bytes in the broker's socket that the client has not read.
    down_bytes_max: usize,
    client_end: End,
    broker_end: End,
    /// The connection is dead: either side finds out when it looks.
    is_reset: bool,
    /// Nothing arrives before that, in either direction.
    up_stalled_until_ms: u64,
    down_stalled_until_ms: u64,
    /// Bytes that the client has ever written, and how many of them the broker's poller has announced.
    written_up: u64,
    announced_up: u64,
    /// The poller has announced that the client writes no more, or that the connection is dead.
    announced_end: bool,
    /// The broker's socket would have blocked, and the poller has not announced room since then.
    waits_for_room: bool,
    /// The process that had the other end has ended. The client may still read what it has sent.
    is_of_ended_process: bool,
}

/// The state of one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// This side writes no more, and said so; it may still read.
    Shut,
    /// This side is gone without a word: nobody reads, and the other side does not know.
    Silent,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(Vec<u8>),
    /// There are no bytes now.
    Nothing,
    /// The other side writes no more, and everything was read.
    EndOfStream,
    /// The connection is dead.
    Reset,
}

impl Network {
    pub(crate) fn new(shards: usize) -> Self {
        Self(Rc::new(RefCell::new(Links { knocking: vec![VecDeque::new(); shards], ..Links::default() })))
    }

    pub(crate) fn set_now(&self, now_ms: u64) {
        self.0.borrow_mut().now_ms = now_ms;
    }

    /// A client connects to a shard, or to an address where there are any.
    pub(crate) fn open(
        &self,
        client: usize,
        (shard, address): (usize, Option<usize>),
        durability: Durability,
        down_bytes_max: usize,
    ) -> LinkId {
        let all = &mut *self.0.borrow_mut();
        let id = LinkId(all.links.len());
        all.links.push(Link {
            client,
            shard,
            durability,
            up: VecDeque::new(),
            down: VecDeque::new(),
            down_bytes_max,
            client_end: End::Open,
            broker_end: End::Open,
            is_reset: false,
            up_stalled_until_ms: 0,
            down_stalled_until_ms: 0,
            written_up: 0,
            announced_up: 0,
            announced_end: false,
            waits_for_room: false,
            is_of_ended_process: false,
        });
        match address {
            Some(address) if all.doors[address].is_open => all.doors[address].knocking.push_back(id),
            Some(_) => all.links[id.0].refuse(),
            None => all.knocking[shard].push_back(id),
        }
        id
    }

    /// The client that has opened a link.
    pub(crate) fn client_of(&self, id: LinkId) -> usize {
        self.with(id, |link, _| link.client)
    }

    /// Nothing arrives for a while.
    pub(crate) fn stall(&self, id: LinkId, up_ms: u64, down_ms: u64) {
        self.with(id, |link, now_ms| {
            link.up_stalled_until_ms = now_ms + up_ms;
            link.down_stalled_until_ms = now_ms + down_ms;
        });
    }

    /// Both sides find the connection dead when they look. Bytes that were in flight are lost, except these numbers of
    /// first bytes.
    pub(crate) fn reset(&self, id: LinkId, up_left: usize, down_left: usize) {
        self.with(id, |link, _| {
            link.is_reset = true;
            link.up.truncate(up_left);
            link.down.truncate(down_left);
        });
    }

    /// The network finds out about connections of which one side is gone.
    pub(crate) fn reset_silent(&self) {
        for link in self.0.borrow_mut().links.iter_mut().filter(|link| link.is_half_open()) {
            link.is_reset = true;
            link.down.clear();
        }
    }

    /// When the next stall ends.
    pub(crate) fn poll_timeout(&self, now_ms: u64) -> Option<u64> {
        let ends = |link: &Link| [link.up_stalled_until_ms, link.down_stalled_until_ms];
        self.0.borrow().links.iter().flat_map(ends).filter(|until_ms| *until_ms > now_ms).min()
    }

    /// The process at the other end is gone: clients find out, some later than others.
    pub(crate) fn broker_is_gone(&self, mut down_left: impl FnMut(usize) -> usize) {
        let all = &mut *self.0.borrow_mut();
        all.knocking.iter_mut().for_each(VecDeque::clear);
        all.doors.fill(Door::default());
        all.links.iter_mut().for_each(|link| link.is_of_ended_process = true);
        for link in all.links.iter_mut().filter(|link| link.broker_end == End::Open) {
            link.broker_end = End::Shut;
            link.is_reset = true;
            link.up.clear();
            let left = down_left(link.down.len());
            link.down.truncate(left);
        }
    }

    fn with<T>(&self, id: LinkId, each: impl FnOnce(&mut Link, u64) -> T) -> T {
        let all = &mut *self.0.borrow_mut();
        each(&mut all.links[id.0], all.now_ms)
    }
}

/// Methods for the client's side.
impl Network {
    pub(crate) fn client_writes(&self, id: LinkId, bytes: &[u8]) {
        self.with(id, |link, _| {
            if link.client_end == End::Open && !link.is_reset {
                link.up.extend(bytes);
                link.written_up += bytes.len() as u64;
            }
        });
    }

    /// How much of what it wrote the broker has not read.
    pub(crate) fn client_waits_bytes(&self, id: LinkId) -> usize {
        self.with(id, |link, _| link.up.len())
    }

    pub(crate) fn client_reads(&self, id: LinkId, bytes_max: usize) -> Read {
        self.with(id, |link, now_ms| {
            if link.down_stalled_until_ms > now_ms {
                return Read::Nothing;
            }
            match link.down.len().min(bytes_max) {
                0 if link.is_reset && link.down.is_empty() => Read::Reset,
                0 if link.broker_end != End::Open && link.down.is_empty() => Read::EndOfStream,
                0 => Read::Nothing,
                count => Read::Bytes(link.down.drain(..count).collect()),
            }
        })
    }

    /// Whether the client would get anything but [`Read::Nothing`].
    pub(crate) fn client_may_read(&self, id: LinkId) -> bool {
        self.with(id, |link, now_ms| {
            link.down_stalled_until_ms <= now_ms
                && (!link.down.is_empty() || link.is_reset || link.broker_end != End::Open)
        })
    }

    /// Whether the process that the client was connected to has ended.
    pub(crate) fn is_of_ended_process(&self, id: LinkId) -> bool {
        self.with(id, |link, _| link.is_of_ended_process)
    }

    /// The client writes no more, and reads no more.
    pub(crate) fn client_closes(&self, id: LinkId) {
        self.with(id, |link, _| {
            link.client_end = End::Shut;
            link.down.clear();
        });
    }

    /// The client is gone, and the broker is not told.
    pub(crate) fn client_vanishes(&self, id: LinkId, up_left: usize) {
        self.with(id, |link, _| {
            link.client_end = End::Silent;
            link.up.truncate(up_left);
        });
    }
}

/// The broker's poller. It announces each change once, as epoll does at an edge.
impl Network {
    /// Whether somebody waits for a shard to accept it. The first shard accepts at all addresses.
    pub(crate) fn has_knocked(&self, shard: usize) -> bool {
        let is_at_door = || self.0.borrow().doors.iter().any(|door| !door.knocking.is_empty());
        self.knocking(shard) > 0 || shard == 0 && is_at_door()
    }

    /// Returns the number of connections that a shard has not accepted.
    pub(crate) fn knocking(&self, shard: usize) -> usize {
        self.0.borrow().knocking[shard].len()
    }

    /// The next connection that a shard accepts, and the durability of its listener.
    pub(crate) fn take_knocking(&self, shard: usize) -> Option<(LinkId, Durability)> {
        let all = &mut *self.0.borrow_mut();
        let id = all.knocking[shard].pop_front()?;
        Some((id, all.links[id.0].durability))
    }

    /// Whether something has changed that was not announced.
    pub(crate) fn has_changed(&self, id: LinkId) -> bool {
        self.with(id, |link, now_ms| link.change(now_ms) != Readiness::default())
    }

    /// Announces the change, and returns it.
    pub(crate) fn take_change(&self, id: LinkId) -> Readiness {
        self.with(id, |link, now_ms| {
            let change = link.change(now_ms);
            if change.readable {
                link.announced_up = link.written_up;
            }
            link.announced_end |= change.ending;
            link.waits_for_room &= !change.writable;
            change
        })
    }
}

/// Addresses that the broker listens on.
impl Network {
    /// The clients of this run connect to this number of addresses.
    pub(crate) fn build_doors(&self, count: usize) {
        self.0.borrow_mut().doors = vec![Door::default(); count];
    }

    /// The address that a client connects to: mostly its own if the broker listens there. `None` where clients connect to
    /// shards.
    pub(crate) fn choose_address(&self, client: usize, random: &mut Random) -> Option<usize> {
        let doors = &self.0.borrow().doors;
        let own = client.checked_rem(doors.len())?;
        let stays = doors[own].is_open && random.chance(OWN_ADDRESS_PER_MILLE);
        Some(if stays { own } else { random.below(doors.len()) })
    }

    /// How many addresses there are.
    pub(crate) fn addresses(&self) -> usize {
        self.0.borrow().doors.len()
    }

    pub(crate) fn open_door(&self, address: usize) {
        self.0.borrow_mut().doors[address].is_open = true;
    }

    /// The broker closes a socket that listens. Connections that it has not accepted are reset.
    pub(crate) fn close_door(&self, address: usize) {
        let all = &mut *self.0.borrow_mut();
        let Door { knocking, .. } = std::mem::take(&mut all.doors[address]);
        knocking.into_iter().for_each(|id| all.links[id.0].refuse());
    }

    /// How many connections wait at an address.
    pub(crate) fn knocking_at(&self, address: usize) -> usize {
        self.0.borrow().doors[address].knocking.len()
    }

    /// The next connection that is accepted there, and the shard that is to have it.
    pub(crate) fn take_knocking_at(&self, address: usize) -> Option<(LinkId, usize)> {
        let all = &mut *self.0.borrow_mut();
        let id = all.doors[address].knocking.pop_front()?;
        Some((id, all.links[id.0].shard))
    }

    /// Whether the process that runs has an end of the connection that it has not closed.
    pub(crate) fn is_open_at_broker(&self, id: LinkId) -> bool {
        self.with(id, |link, _| link.broker_end == End::Open && !link.is_of_ended_process)
    }
}

/// Methods for the broker's side.
impl Network {
    pub(crate) fn broker_reads(&self, id: LinkId, bytes_max: usize) -> Read {
        self.with(id, |link, now_ms| {
            if !link.may_be_read(now_ms) {
                // It was announced, and arrives once more when the stall ends.
                link.announced_up = link.written_up - link.up.len() as u64;
                link.announced_end = false;
                return Read::Nothing;
            }
            match link.up.len().min(bytes_max) {
                0 if !link.up.is_empty() => Read::Nothing,
                0 if link.is_reset => Read::Reset,
                0 => Read::EndOfStream,
                count => Read::Bytes(link.up.drain(..count).collect()),
            }
        })
    }

    /// Whether a read would give anything but [`Read::Nothing`].
    pub(crate) fn broker_may_read(&self, id: LinkId) -> bool {
        self.with(id, |link, now_ms| link.may_be_read(now_ms))
    }

    /// How many bytes the broker's socket takes; `None` if it is dead.
    pub(crate) fn broker_may_write(&self, id: LinkId) -> Option<usize> {
        self.with(id, |link, _| link.room())
    }

    /// A write would have blocked.
    pub(crate) fn broker_waits_for_room(&self, id: LinkId) {
        self.with(id, |link, _| link.waits_for_room = true);
    }

    pub(crate) fn broker_writes(&self, id: LinkId, bytes: impl Iterator<Item = u8>) {
        self.with(id, |link, _| match link.client_end {
            // A client that has closed does not look any more.
            End::Shut => drop(bytes.count()),
            End::Open | End::Silent => link.down.extend(bytes),
        });
    }

    /// The broker writes no more.
    pub(crate) fn broker_shuts(&self, id: LinkId) {
        self.with(id, |link, _| link.broker_end = End::Shut);
    }

    /// The broker has nothing to do with the connection any more.
    pub(crate) fn broker_forgets(&self, id: LinkId) {
        self.with(id, |link, _| {
            link.broker_end = End::Shut;
            link.up.clear();
        });
    }
}

impl Link {
    /// Nobody listens at the other end.
    fn refuse(&mut self) {
        self.is_reset = true;
        self.broker_end = End::Shut;
        self.up.clear();
    }

    fn may_be_read(&self, now_ms: u64) -> bool {
        self.is_reset
            || self.up_stalled_until_ms <= now_ms && (!self.up.is_empty() || self.client_end == End::Shut)
    }

    fn room(&self) -> Option<usize> {
        (!self.is_reset).then(|| self.down_bytes_max.saturating_sub(self.down.len()))
    }

    /// Everything that has changed and was not announced.
    fn change(&self, now_ms: u64) -> Readiness {
        let has_arrived = self.is_reset || self.up_stalled_until_ms <= now_ms;
        let has_ended = self.is_reset || self.client_end == End::Shut;
        let ending = has_arrived && has_ended && !self.announced_end;
        Readiness {
            readable: ending || has_arrived && self.written_up > self.announced_up,
            writable: self.waits_for_room && self.room().is_none_or(|room| room > 0),
            ending,
            failed: ending && self.is_reset,
        }
    }

    /// The client is gone and the broker is not told.
    pub(crate) fn is_half_open(&self) -> bool {
        self.client_end == End::Silent && self.broker_end == End::Open && !self.is_reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_pieces_and_then_the_end() {
        let network = Network::new(1);
        let link = network.open(0, (0, None), Durability::Fsync, 3);
        network.client_writes(link, b"hello");
        network.client_closes(link);
        assert_eq!(network.broker_reads(link, 4), Read::Bytes(b"hell".to_vec()));
        assert_eq!(network.broker_reads(link, 4), Read::Bytes(b"o".to_vec()));
        assert_eq!(network.broker_reads(link, 4), Read::EndOfStream);
    }

    #[test]
    fn a_client_that_vanished_fills_the_socket_until_the_network_finds_out() {
        let network = Network::new(1);
        let link = network.open(0, (0, None), Durability::Fsync, 3);
        network.client_writes(link, b"hello");
        network.client_vanishes(link, 2);
        assert_eq!(network.broker_reads(link, 9), Read::Bytes(b"he".to_vec()));
        assert_eq!(network.broker_reads(link, 9), Read::Nothing);
        network.broker_writes(link, b"abc".iter().copied());
        assert_eq!(network.broker_may_write(link), Some(0));
        network.reset_silent();
        assert_eq!((network.broker_may_write(link), network.broker_reads(link, 9)), (None, Read::Reset));
    }

    #[test]
    fn nothing_arrives_while_the_way_is_stalled() {
        let network = Network::new(1);
        let link = network.open(0, (0, None), Durability::Fsync, 9);
        network.stall(link, 10, 20);
        network.client_writes(link, b"a");
        network.broker_writes(link, b"b".iter().copied());
        assert!(!network.has_changed(link) && !network.client_may_read(link));
        network.set_now(10);
        assert!(network.has_changed(link) && !network.client_may_read(link));
    }

    #[test]
    fn each_change_is_announced_once() {
        let network = Network::new(1);
        let link = network.open(0, (0, None), Durability::Fsync, 2);
        let (nothing, readable) =
            (Readiness::default(), Readiness { readable: true, ..Readiness::default() });
        assert_eq!(network.take_change(link), nothing);
        network.client_writes(link, b"a");
        assert_eq!([network.take_change(link), network.take_change(link)], [readable, nothing]);
        network.client_writes(link, b"b");
        assert_eq!(network.take_change(link), readable, "though the first byte was not read");
        network.broker_writes(link, b"xy".iter().copied());
        network.broker_waits_for_room(link);
        assert_eq!(network.take_change(link), nothing);
        assert_eq!(network.client_reads(link, 1), Read::Bytes(b"x".to_vec()));
        let writable = Readiness { writable: true, ..nothing };
        assert_eq!([network.take_change(link), network.take_change(link)], [writable, nothing]);
        network.client_closes(link);
        let end = Readiness { readable: true, ending: true, ..nothing };
        assert_eq!([network.take_change(link), network.take_change(link)], [end, nothing]);
    }

    #[test]
    fn a_door_that_closes_resets_those_who_wait_and_nobody_comes_in() {
        let network = Network::new(1);
        network.build_doors(1);
        let knock = || network.open(0, (0, Some(0)), Durability::Fsync, 9);
        assert_eq!(network.client_reads(knock(), 9), Read::Reset, "nobody listens");
        network.open_door(0);
        let (accepted, waits) = (knock(), knock());
        assert_eq!(network.take_knocking_at(0), Some((accepted, 0)));
        network.close_door(0);
        assert_eq!(network.client_reads(waits, 9), Read::Reset);
        assert_eq!(network.client_reads(accepted, 9), Read::Nothing);
        assert!(network.is_open_at_broker(accepted) && !network.is_open_at_broker(waits));
        assert!(!network.has_knocked(0));
    }
}
