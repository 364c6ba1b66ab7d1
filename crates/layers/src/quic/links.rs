//! The connections of one shard.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use base::ConnectionId;
use quinn_proto::{ConnectionEvent, ConnectionHandle, EndpointEvent, Transmit};
use stream::Readiness;

use super::door::Begun;
use super::link::{Link, QuicStream, Touched, lock};

/// Maximum calls of a turn that send datagrams of one connection. Each may send several datagrams. The rest leaves in the
/// next turn.
const TRANSMITS_PER_TURN: usize = 8;
/// Maximum number of connections whose timers a turn looks at.
const TIMERS_PER_TURN: usize = 1_024;
/// Maximum number of connections that are closed and still wait for late packets, for three timeouts (RFC 9000 section 10.2).
/// One more is forgotten at once: the door then answers late packets with a Stateless Reset.
const CLOSING_MAX: usize = 1_000;
/// Memory of a connection beyond what its peer makes it hold, in bytes: keys, connection ids, packets in flight.
const LINK_BYTES: usize = 16 * 1024;

/// The name of a connection for its door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    /// The number of the listener.
    pub listener: u16,
    /// The number of the connection at the door of the listener.
    pub handle: ConnectionHandle,
}

/// The outside of [`Links`].
pub trait Outside {
    /// Maximum number of datagrams that one [`transmit`](Self::transmit) sends for this listener.
    fn segments_max(&self, listener: u16) -> usize;

    /// Sends datagrams from the socket of a listener. The network may lose them.
    fn transmit(&mut self, listener: u16, transmit: &Transmit, bytes: &[u8]);

    /// Tells the door what a connection says about its connection ids.
    fn tell_door(&mut self, name: Name, event: EndpointEvent);

    /// A stream has changed.
    fn woken(&mut self, id: ConnectionId, readiness: Readiness);
}

/// The connections of a shard, with their timers.
#[derive(Default)]
pub struct Links {
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    names: HashMap<Name, u32>,
    timers: BTreeSet<(Instant, u32)>,
    touched: Arc<Touched>,
    closing: usize,
    unread_bytes: usize,
    sending: Arc<AtomicUsize>,
    buffer: Vec<u8>,
    given_up: GivenUp,
}

/// Connections that were given up since the last look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp {
    /// Their handshake took too long.
    pub late: u64,
    /// Their frames were too many for their data.
    pub fragmented: u64,
}

struct Place {
    name: Name,
    link: Arc<Mutex<Link>>,
    timer: Option<Instant>,
    /// The part of this connection in the sum.
    unread_bytes: usize,
    is_closing: bool,
}

impl Links {
    /// Takes in a connection, and returns its stream.
    pub fn add(&mut self, now: Instant, name: Name, begun: Begun) -> QuicStream {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("memory ends before")
        });
        let mut link = Link::new((begun, now), place, Arc::clone(&self.touched), Arc::clone(&self.sending));
        link.touch();
        let link = Arc::new(Mutex::new(link));
        let stream = QuicStream::new(Arc::clone(&link));
        self.names.insert(name, place);
        self.places[place as usize] =
            Some(Place { name, link, timer: None, unread_bytes: 0, is_closing: false });
        stream
    }

    /// Takes in a datagram of this many bytes, or what the door says.
    pub fn receive(
        &mut self,
        now: Instant,
        name: Name,
        (event, bytes): (ConnectionEvent, usize),
        outside: &mut impl Outside,
    ) {
        // A connection that has ended meanwhile has no place.
        let Some(place) = self.names.get(&name).and_then(|place| self.places[*place as usize].as_ref())
        else {
            return;
        };
        let mut link = lock(&place.link);
        self.given_up.fragmented += u64::from(link.receive(now, event, bytes));
        wake(&mut link, now, outside);
    }

    /// Lets timers fire that are due, as many as a turn may.
    pub fn handle_timeouts(&mut self, now: Instant, outside: &mut impl Outside) {
        for _ in 0..TIMERS_PER_TURN {
            let Some(&(moment, number)) = self.timers.first().filter(|(moment, _)| *moment <= now) else {
                return;
            };
            self.timers.remove(&(moment, number));
            let Some(place) = &mut self.places[number as usize] else { continue };
            place.timer = None;
            let mut link = lock(&place.link);
            self.given_up.late += u64::from(link.handle_timeout(now));
            wake(&mut link, now, outside);
        }
    }

    /// Sends what is due on connections that were used in this turn.
    pub fn end_turn(&mut self, now: Instant, outside: &mut impl Outside) {
        let touched = std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner));
        for number in touched {
            self.visit(number, now, outside);
        }
    }

    /// When a timer fires next. `None` if there is none.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(moment, _)| *moment)
    }

    /// Counts of connections that were given up since the last call.
    pub fn take_given_up(&mut self) -> GivenUp {
        std::mem::take(&mut self.given_up)
    }

    /// Whether a connection has more to send.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.touched.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Memory for what was received and not read, and of the connections themselves, in bytes.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        self.unread_bytes + self.names.len() * LINK_BYTES
    }

    /// Memory for what was sent and not acknowledged, in bytes.
    #[must_use]
    pub fn sending_bytes(&self) -> usize {
        self.sending.load(Ordering::Relaxed)
    }

    /// Closes all connections. Nothing is left of them.
    pub fn close_all(&mut self, now: Instant, outside: &mut impl Outside) {
        for number in 0..u32::try_from(self.places.len()).unwrap_or(u32::MAX) {
            if let Some(place) = &self.places[number as usize] {
                lock(&place.link).is_abandoned = true;
                self.visit(number, now, outside);
            }
        }
    }

    fn visit(&mut self, number: u32, now: Instant, outside: &mut impl Outside) {
        let Some(place) = self.places.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let mut link = lock(&place.link);
        link.look(now);
        transmit(&mut link, place.name.listener, now, &mut self.buffer, outside);
        while let Some(event) = link.connection.poll_endpoint_events() {
            outside.tell_door(place.name, event);
        }
        wake(&mut link, now, outside);
        let unread_bytes = link.received_bytes();
        self.unread_bytes = self.unread_bytes - place.unread_bytes + unread_bytes;
        place.unread_bytes = unread_bytes;
        let is_closing = link.is_abandoned && link.connection.is_closed();
        self.closing += usize::from(is_closing && !place.is_closing);
        place.is_closing |= is_closing;
        let timer = link.poll_timeout();
        let is_drained = link.connection.is_drained();
        drop(link);
        if timer != place.timer {
            self.timers.extend(timer.map(|moment| (moment, number)));
            if let Some(earlier) = std::mem::replace(&mut place.timer, timer) {
                self.timers.remove(&(earlier, number));
            }
        }
        if is_drained {
            self.remove(number);
        } else if is_closing && self.closing > CLOSING_MAX {
            outside.tell_door(place.name, EndpointEvent::drained());
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(place) = self.places[number as usize].take() else { return };
        self.names.remove(&place.name);
        if let Some(moment) = place.timer {
            self.timers.remove(&(moment, number));
        }
        self.unread_bytes -= place.unread_bytes;
        self.closing -= usize::from(place.is_closing);
        self.free.push(number);
    }
}

/// Sends what a connection has to send, as much as a turn may.
fn transmit(link: &mut Link, listener: u16, now: Instant, buffer: &mut Vec<u8>, outside: &mut impl Outside) {
    let segments_max = outside.segments_max(listener);
    for _ in 0..TRANSMITS_PER_TURN {
        buffer.clear();
        let Some(transmit) = link.connection.poll_transmit(now, segments_max, buffer) else { return };
        outside.transmit(listener, &transmit, &buffer[..transmit.size]);
    }
    link.touch();
}

fn wake(link: &mut Link, now: Instant, outside: &mut impl Outside) {
    let readiness = link.poll(now);
    if let Some(id) = link.watcher
        && readiness != Readiness::default()
    {
        outside.woken(id, readiness);
    }
}
