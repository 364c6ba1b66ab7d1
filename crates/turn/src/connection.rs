//! The connections of one shard: streams, what was read and not understood yet, what waits to be written.

use std::sync::Arc;

use base::ConnectionId;
use broker::Counts;
use stream::Peer;
use wire::Version;

use crate::bounds::Bounds;
use crate::output::{Output, Pool};
use crate::parts::Length;

/// A stream with its buffers. An idle one holds no memory beyond this.
pub(crate) struct Connection<S> {
    pub(crate) stream: S,
    pub(crate) peer: Peer,
    /// The place of its listener.
    pub(crate) listener: u16,
    /// The beginning of a packet, or what was read while the connection was paused.
    pub(crate) unparsed: Vec<u8>,
    /// The bytes of `unparsed` that are on the account of memory, up to 4 GiB: a packet has at most 256 MiB.
    pub(crate) unparsed_charged: u32,
    /// The counts of its listener and user.
    pub(crate) counts: Arc<Counts>,
    /// `None` while nothing waits.
    pub(crate) output: Option<Box<Output>>,
    /// All bytes that the stream has taken.
    pub(crate) taken: u64,
    pub(crate) phase: Phase,
    /// The stream may hold bytes that we have not read.
    pub(crate) readable: bool,
    /// The peer has closed its direction or the stream has failed. The poller says so once, perhaps
    /// together with the last data: from then on only the end itself, or an error, stops the reading.
    pub(crate) ending: bool,
    /// The stream has failed: its peer reads no answer any more.
    pub(crate) failed: bool,
    /// The stream took less than we had; a writable event is due.
    pub(crate) blocked: bool,
    pub(crate) paused: bool,
    /// `unparsed` holds whole packets that waited for the end of a pause.
    pub(crate) refeed: bool,
    /// It is in the queue of connections to be read.
    pub(crate) queued: bool,
    pub(crate) in_direct: bool,
    pub(crate) in_bulk: bool,
    /// How its output is written. An output in parts stands in the queue of those, unless it is blocked.
    pub(crate) length: Length,
    pub(crate) over: bool,
    /// Known from the moment on that the client is let in.
    pub(crate) version: Option<Version>,
    /// Number of the last trace that has followed it; 0 if there was none.
    pub(crate) traced: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The brain is done with it; what was sent leaves first.
    Closing,
    /// All is sent and our direction is shut; what still arrives is thrown away, so that the last
    /// packet is not lost to a reset.
    Lingering,
}

impl<S> Connection<S> {
    pub(crate) fn new(stream: S, peer: Peer, listener: u16, counts: Arc<Counts>) -> Self {
        Self {
            counts,
            stream,
            peer,
            listener,
            unparsed: Vec::new(),
            unparsed_charged: 0,
            output: None,
            taken: 0,
            phase: Phase::Open,
            readable: false,
            ending: false,
            failed: false,
            blocked: false,
            paused: false,
            refeed: false,
            queued: false,
            in_direct: false,
            in_bulk: false,
            length: Length::Direct,
            over: false,
            version: None,
            traced: 0,
        }
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.output.as_ref().map_or(0, |output| output.len())
    }

    /// Whether so much more of QoS 0 is dropped: all outputs are `full`, or this one alone takes too much.
    pub(crate) fn refuses(&self, bytes: usize, full: bool, bounds: &Bounds) -> bool {
        let waiting = self.waiting_bytes();
        full && waiting + bytes > bounds.allowance || self.over && waiting > bounds.output_most()
    }

    pub(crate) fn output<'a>(&'a mut self, pool: &mut Pool) -> &'a mut Output {
        self.output.get_or_insert_with(|| pool.take_output())
    }
}

/// Places for connections, reused; each new tenant of a place has another generation.
pub(crate) struct Connections<S> {
    places: Vec<Place<S>>,
    free: Vec<u32>,
}

struct Place<S> {
    generation: u32,
    connection: Option<Connection<S>>,
}

impl<S> Default for Connections<S> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<S> Connections<S> {
    pub(crate) fn insert(&mut self, connection: Connection<S>) -> ConnectionId {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.places[slot as usize];
            place.connection = Some(connection);
            return ConnectionId { slot, generation: place.generation };
        }
        let slot = u32::try_from(self.places.len()).expect("descriptors are far fewer than 2^32");
        self.places.push(Place { generation: 0, connection: Some(connection) });
        ConnectionId { slot, generation: 0 }
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection<S>> {
        let place = self.places.get(id.slot as usize)?;
        if place.generation == id.generation { place.connection.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection<S>> {
        let place = self.places.get_mut(id.slot as usize)?;
        if place.generation == id.generation { place.connection.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection<S>> {
        let place = self.places.get_mut(id.slot as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(connection)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }

    /// Number of places, taken or free.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.places.len()).expect("descriptors are far fewer than 2^32")
    }

    /// The connection in a place, with its name.
    pub(crate) fn at(&self, slot: u32) -> Option<(ConnectionId, &Connection<S>)> {
        let place = self.places.get(slot as usize)?;
        let id = ConnectionId { slot, generation: place.generation };
        place.connection.as_ref().map(|connection| (id, connection))
    }

    /// The same, to be changed.
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<(ConnectionId, &mut Connection<S>)> {
        let place = self.places.get_mut(slot as usize)?;
        let id = ConnectionId { slot, generation: place.generation };
        place.connection.as_mut().map(|connection| (id, connection))
    }

    /// All connections, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection<S>)> {
        self.places.iter().zip(0..).filter_map(|(place, slot)| {
            let id = ConnectionId { slot, generation: place.generation };
            place.connection.as_ref().map(|connection| (id, connection))
        })
    }
}

/// A million idle clients have it a million times.
#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Connection<[usize; 2]>>() <= 120, "{}", size_of::<Connection<[usize; 2]>>());
}
