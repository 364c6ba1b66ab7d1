//! Connections between clients and shards: two streams of bytes each, which can be slow, cut, or dead on one side only.

use std::collections::VecDeque;

use ledger::Durability;

/// A connection, as long as the run lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(usize);

/// All connections that there ever were.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: Vec<Link>,
    /// Those that a shard has not accepted, by shard.
    pub(crate) knocking: Vec<VecDeque<LinkId>>,
    pub(crate) now_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: usize,
    /// Of the listener that it has come to.
    pub(crate) durability: Durability,
    /// Written by the client, not read by the broker.
    up: VecDeque<u8>,
    /// Written by the broker, not read by the client.
    down: VecDeque<u8>,
    /// The broker's socket takes so many bytes that the client has not read.
    down_bytes_max: usize,
    client_end: End,
    broker_end: End,
    /// The way is dead: whoever looks finds out.
    is_reset: bool,
    /// Nothing arrives before that, in either direction.
    up_stalled_until_ms: u64,
    down_stalled_until_ms: u64,
}

/// What one side does with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// It writes no more, and said so; it may still read.
    Shut,
    /// It is gone without a word: nobody reads, and the other side does not know.
    Silent,
}

/// What a read came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// The other side writes no more, and everything was read.
    EndOfStream,
    /// The connection is dead.
    Reset,
}

impl Network {
    pub(crate) fn new(shards: usize) -> Self {
        Self { knocking: vec![VecDeque::new(); shards], ..Self::default() }
    }

    /// A client connects to a shard.
    pub(crate) fn open(
        &mut self,
        client: usize,
        shard: usize,
        durability: Durability,
        down_bytes_max: usize,
    ) -> LinkId {
        let id = LinkId(self.links.len());
        self.links.push(Link {
            client,
            durability,
            up: VecDeque::new(),
            down: VecDeque::new(),
            down_bytes_max,
            client_end: End::Open,
            broker_end: End::Open,
            is_reset: false,
            up_stalled_until_ms: 0,
            down_stalled_until_ms: 0,
        });
        self.knocking[shard].push_back(id);
        id
    }

    pub(crate) fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0]
    }

    /// Nothing arrives for a while.
    pub(crate) fn stall(&mut self, id: LinkId, up_ms: u64, down_ms: u64) {
        let now_ms = self.now_ms;
        let link = &mut self.links[id.0];
        link.up_stalled_until_ms = now_ms + up_ms;
        link.down_stalled_until_ms = now_ms + down_ms;
    }

    /// Both sides find the connection dead when they look. What was on its way is lost, but for the first so many bytes.
    pub(crate) fn reset(&mut self, id: LinkId, up_left: usize, down_left: usize) {
        let link = &mut self.links[id.0];
        link.is_reset = true;
        link.up.truncate(up_left);
        link.down.truncate(down_left);
    }

    /// The network finds out about connections of which one side is gone.
    pub(crate) fn reset_silent(&mut self) {
        for link in self.links.iter_mut().filter(|link| link.is_half_open()) {
            link.is_reset = true;
            link.down.clear();
        }
    }

    /// When the next stall ends.
    pub(crate) fn poll_timeout(&self, now_ms: u64) -> Option<u64> {
        let ends = |link: &Link| [link.up_stalled_until_ms, link.down_stalled_until_ms];
        self.links.iter().flat_map(ends).filter(|until_ms| *until_ms > now_ms).min()
    }

    /// The process at the other end is gone: clients find out, some later than others.
    pub(crate) fn broker_is_gone(&mut self, mut down_left: impl FnMut(usize) -> usize) {
        self.knocking.iter_mut().for_each(VecDeque::clear);
        for link in self.links.iter_mut().filter(|link| link.broker_end == End::Open) {
            link.broker_end = End::Shut;
            link.is_reset = true;
            link.up.clear();
            let left = down_left(link.down.len());
            link.down.truncate(left);
        }
    }
}

/// The client's side.
impl Network {
    pub(crate) fn client_writes(&mut self, id: LinkId, bytes: &[u8]) {
        let link = &mut self.links[id.0];
        if link.client_end == End::Open && !link.is_reset {
            link.up.extend(bytes);
        }
    }

    /// How much of what it wrote the broker has not read.
    pub(crate) fn client_waits_bytes(&self, id: LinkId) -> usize {
        self.links[id.0].up.len()
    }

    pub(crate) fn client_reads(&mut self, id: LinkId, bytes_max: usize) -> Read {
        let now_ms = self.now_ms;
        let link = &mut self.links[id.0];
        if link.down_stalled_until_ms > now_ms {
            return Read::Nothing;
        }
        match link.down.len().min(bytes_max) {
            0 if link.is_reset && link.down.is_empty() => Read::Reset,
            0 if link.broker_end != End::Open && link.down.is_empty() => Read::EndOfStream,
            0 => Read::Nothing,
            count => Read::Bytes(link.down.drain(..count).collect()),
        }
    }

    /// Whether the client would get anything but [`Read::Nothing`].
    pub(crate) fn client_may_read(&self, id: LinkId) -> bool {
        let link = &self.links[id.0];
        link.down_stalled_until_ms <= self.now_ms
            && (!link.down.is_empty() || link.is_reset || link.broker_end != End::Open)
    }

    /// The client writes no more, and reads no more.
    pub(crate) fn client_closes(&mut self, id: LinkId) {
        let link = &mut self.links[id.0];
        link.client_end = End::Shut;
        link.down.clear();
    }

    /// The client is gone, and the broker is not told.
    pub(crate) fn client_vanishes(&mut self, id: LinkId, up_left: usize) {
        let link = &mut self.links[id.0];
        link.client_end = End::Silent;
        link.up.truncate(up_left);
    }
}

/// The broker's side.
impl Network {
    pub(crate) fn broker_may_read(&self, id: LinkId) -> bool {
        let link = &self.links[id.0];
        link.is_reset
            || link.up_stalled_until_ms <= self.now_ms
                && (!link.up.is_empty() || link.client_end == End::Shut)
    }

    pub(crate) fn broker_reads(&mut self, id: LinkId, bytes_max: usize) -> Read {
        if !self.broker_may_read(id) {
            return Read::Nothing;
        }
        let link = &mut self.links[id.0];
        match link.up.len().min(bytes_max) {
            0 if !link.up.is_empty() => Read::Nothing,
            0 if link.is_reset => Read::Reset,
            0 => Read::EndOfStream,
            count => Read::Bytes(link.up.drain(..count).collect()),
        }
    }

    /// How many bytes the broker's socket takes; `None` if it is dead.
    pub(crate) fn broker_may_write(&self, id: LinkId) -> Option<usize> {
        let link = &self.links[id.0];
        (!link.is_reset).then(|| link.down_bytes_max.saturating_sub(link.down.len()))
    }

    pub(crate) fn broker_writes(&mut self, id: LinkId, bytes: impl Iterator<Item = u8>) {
        let link = &mut self.links[id.0];
        match link.client_end {
            // A client that has closed does not look any more.
            End::Shut => drop(bytes.count()),
            End::Open | End::Silent => link.down.extend(bytes),
        }
    }

    /// The broker writes no more.
    pub(crate) fn broker_shuts(&mut self, id: LinkId) {
        self.links[id.0].broker_end = End::Shut;
    }

    /// The broker has nothing to do with the connection any more.
    pub(crate) fn broker_forgets(&mut self, id: LinkId) {
        let link = &mut self.links[id.0];
        link.broker_end = End::Shut;
        link.up.clear();
    }
}

impl Link {
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
        let mut network = Network::new(1);
        let link = network.open(0, 0, Durability::Fsync, 3);
        network.client_writes(link, b"hello");
        network.client_closes(link);
        assert_eq!(network.broker_reads(link, 4), Read::Bytes(b"hell".to_vec()));
        assert_eq!(network.broker_reads(link, 4), Read::Bytes(b"o".to_vec()));
        assert_eq!(network.broker_reads(link, 4), Read::EndOfStream);
    }

    #[test]
    fn a_client_that_vanished_fills_the_socket_until_the_network_finds_out() {
        let mut network = Network::new(1);
        let link = network.open(0, 0, Durability::Fsync, 3);
        network.client_writes(link, b"hello");
        network.client_vanishes(link, 2);
        assert_eq!(network.broker_reads(link, 9), Read::Bytes(b"he".to_vec()));
        assert!(!network.broker_may_read(link));
        network.broker_writes(link, b"abc".iter().copied());
        assert_eq!(network.broker_may_write(link), Some(0));
        network.reset_silent();
        assert_eq!((network.broker_may_write(link), network.broker_reads(link, 9)), (None, Read::Reset));
    }

    #[test]
    fn nothing_arrives_while_the_way_is_stalled() {
        let mut network = Network::new(1);
        let link = network.open(0, 0, Durability::Fsync, 9);
        network.stall(link, 10, 20);
        network.client_writes(link, b"a");
        network.broker_writes(link, b"b".iter().copied());
        assert!(!network.broker_may_read(link) && !network.client_may_read(link));
        network.now_ms = 10;
        assert!(network.broker_may_read(link) && !network.client_may_read(link));
    }
}
