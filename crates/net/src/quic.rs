//! QUIC listeners: UDP sockets, and the ways of their datagrams.
//!
//! A listener has one UDP socket, which shard 0 reads, as it accepts the connections of other listeners. Connection ids lead
//! from a datagram to its connection: the `Door` on shard 0 knows them all, and posts the datagram to the shard of the
//! connection. Everything else happens on that shard: decryption, the session, timers, and sending, from the same socket.
//!
//! - A client may change its address. The connection stays where it is, because its connection ids lead there.
//! - Several sockets on one port (`SO_REUSEPORT`) would spread the reading too. They would let a second broker start on
//!   the same port unnoticed, and the kernel deals out datagrams by address: after a change of address, a shard gets
//!   datagrams of others' connections, and has to post them all the same.
//! - Shard 0 copies each datagram and looks at its header. That costs about a microsecond, a tenth of what decryption,
//!   acknowledgement and MQTT cost its receiver.
//!
//! Datagrams for a shard that is behind by 4 MiB are dropped and counted. The network may do that too: the peer sends again.

mod doors;
mod mail;
mod ports;
mod socket;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{ConnectionId, Purpose, ShardId, Tally};
use broker::Counters;
use layers::Layered;
use layers::quic::{EndpointEvent, GivenUp, Links, Name, Outside, Transmit};
use mio::Registry;
use mio::event::Event;
use stream::Readiness;
use turn::{Accepted, ShardLoop};

use crate::listener::Rules;
use crate::shard::Hands;
use crate::switchboard::Switchboard;

pub(crate) use self::doors::Entrance;
use self::doors::{Around, Doors};
pub(crate) use self::mail::Mail;
use self::mail::{Delivery, Letter};
pub(crate) use self::ports::Port;
use self::socket::Udp;
pub use self::socket::{QuicSocket, listen_quic};

/// The number of the shard with the doors.
const DOORS: usize = 0;

/// QUIC on one shard.
pub(crate) struct Quic {
    shard: ShardId,
    links: Links,
    doors: Option<Doors>,
    effects: Effects,
    switchboard: Arc<Switchboard>,
    counters: Arc<Counters>,
    tally: Tally,
    letters: Vec<Letter>,
}

/// The things that connections do.
struct Effects {
    /// By the places of their listeners.
    sockets: Vec<Option<Udp>>,
    told: Vec<(Name, EndpointEvent)>,
    woken: Vec<(ConnectionId, Readiness)>,
}

impl Quic {
    /// QUIC without listeners. The shard that accepts knows how many connections there may be, and has the doors.
    pub(crate) fn new(
        shard: ShardId,
        connections_max: Option<usize>,
        counters: &Arc<Counters>,
        switchboard: &Arc<Switchboard>,
    ) -> Self {
        let (switchboard, counters) = (Arc::clone(switchboard), Arc::clone(counters));
        let budget = switchboard.board.budget();
        let doors = connections_max.filter(|_| shard.number() == DOORS).map(|most| {
            Doors::new(switchboard.shards.len(), most, (Arc::clone(&counters), Arc::clone(budget)))
        });
        let tally = Tally::new(Arc::clone(budget));
        let effects = Effects { sockets: Vec::new(), told: Vec::new(), woken: Vec::new() };
        let links = Links::default();
        Self { shard, links, doors, effects, switchboard, counters, tally, letters: Vec::new() }
    }

    /// Uses the socket of a listener. The shard with the doors gets a door too.
    pub(crate) fn open(
        &mut self,
        port: &Port,
        entrance: Option<Box<Entrance>>,
        registry: &Registry,
    ) -> io::Result<()> {
        let udp = port.udp(registry, entrance.is_some())?;
        let place = usize::from(port.place);
        if self.effects.sockets.len() <= place {
            self.effects.sockets.resize_with(place + 1, || None);
        }
        self.effects.sockets[place] = Some(udp);
        if let (Some(doors), Some(entrance)) = (&mut self.doors, entrance) {
            doors.open(*entrance);
        }
        Ok(())
    }

    /// A listener accepts under another number, by other rules.
    pub(crate) fn change(&mut self, number: u16, next: u16, rules: &Rules) {
        let board = &self.switchboard.board;
        self.doors.iter_mut().for_each(|doors| doors.change(number, next, rules, board));
    }

    /// A listener accepts no more. Its socket stays open for the connections that it has.
    pub(crate) fn close(&mut self, number: u16) {
        self.doors.iter_mut().for_each(|doors| doors.close_one(number));
    }

    /// Closes the socket in this place, on this shard.
    pub(crate) fn forget(&mut self, place: u16) {
        self.doors.iter_mut().for_each(|doors| doors.forget(place));
        if let Some(socket) = self.effects.sockets.get_mut(usize::from(place)) {
            *socket = None;
        }
    }

    /// Changes the number of connections at a time, on all listeners.
    pub(crate) fn change_connections_max(&mut self, most: usize) {
        self.doors.iter_mut().for_each(|doors| doors.change_connections_max(most));
    }

    /// Notes a change of the socket of this listener.
    pub(crate) fn woken(&mut self, listener: usize, event: &Event) {
        if let Some(socket) = self.effects.sockets.get_mut(listener).and_then(Option::as_mut) {
            socket.woken(event.is_readable() || event.is_error(), event.is_writable());
        }
    }

    /// Takes in what has arrived, before the shard turns.
    pub(crate) fn begin_turn(&mut self, body: &mut ShardLoop<Hands>, now_ms: u64) {
        let now = Instant::now();
        let is_ending = body.is_ending();
        let mut letters = std::mem::take(&mut self.letters);
        self.switchboard.quic[self.shard.number()].take(&mut letters);
        for letter in letters.drain(..) {
            match letter {
                Letter::Deliveries { deliveries, .. } => self.deliver(deliveries, body, now),
                Letter::Dismiss { listener, whom } => body.dismiss(listener, whom),
                Letter::Told(told) => told.into_iter().for_each(|(name, event)| self.tell(name, event)),
            }
        }
        self.letters = letters;
        if let Some(doors) = &mut self.doors {
            if is_ending {
                doors.close();
            }
            let log = &mut body.host().log;
            let mut around = Around { board: &self.switchboard.board, log, now, now_ms };
            doors.turn(&mut self.effects.sockets, &mut around);
        }
        self.post(body, now);
        self.links.handle_timeouts(now, &mut self.effects);
        self.wake(body);
    }

    /// Sends what the turn has left to be sent.
    pub(crate) fn end_turn(&mut self, body: &mut ShardLoop<Hands>) {
        let now = Instant::now();
        self.links.end_turn(now, &mut self.effects);
        self.tell_all(body, now);
        self.wake(body);
        let given_up = self.links.take_given_up();
        if given_up != GivenUp::default() {
            self.counters.refused_quic_timeout.add(given_up.late);
            self.counters.refused_quic_frames.add(given_up.fragmented);
        }
        self.tally.set(Purpose::Partials, self.links.received_bytes());
        self.tally.set(Purpose::Outputs, self.links.sending_bytes());
        self.tally.settle();
    }

    /// How long the thread may sleep. `None` is for ever.
    pub(crate) fn sleep(&self) -> Option<Duration> {
        let is_readable = || self.effects.sockets.iter().flatten().any(Udp::is_readable);
        let has_work = self.doors.as_ref().is_some_and(|doors| doors.has_work() || is_readable());
        if has_work || self.links.has_work() {
            return Some(Duration::ZERO);
        }
        self.links.poll_timeout().map(|moment| moment.saturating_duration_since(Instant::now()))
    }

    /// Whether others need this shard to read for them.
    pub(crate) fn has_doors(&self) -> bool {
        self.doors.is_some()
    }

    /// Closes all connections that are left.
    pub(crate) fn close_all(&mut self) {
        self.links.close_all(Instant::now(), &mut self.effects);
    }

    fn deliver(&mut self, deliveries: Vec<Delivery>, body: &mut ShardLoop<Hands>, now: Instant) {
        for delivery in deliveries {
            match delivery {
                Delivery::Begun { name, begun, peer, admission, listener } => {
                    let stream = Layered::quic(self.links.add(now, name, *begun));
                    body.admit(Accepted { stream, peer, admission, listener });
                }
                Delivery::Event { name, event, bytes } => {
                    self.links.receive(now, name, (event, bytes), &mut self.effects);
                }
            }
        }
    }

    fn tell(&mut self, name: Name, event: EndpointEvent) {
        if let Some(doors) = &mut self.doors {
            doors.tell(name, event);
        }
    }

    /// Passes on what the connections of this shard say about their connection ids.
    fn tell_all(&mut self, body: &mut ShardLoop<Hands>, now: Instant) {
        let told = std::mem::take(&mut self.effects.told);
        if told.is_empty() {
            return;
        }
        if self.doors.is_none() {
            return self.switchboard.quic[DOORS].post(Letter::Told(told));
        }
        told.into_iter().for_each(|(name, event)| self.tell(name, event));
        self.post(body, now);
    }

    /// Hands out what the doors have for the shards.
    fn post(&mut self, body: &mut ShardLoop<Hands>, now: Instant) {
        if let Some(doors) = &mut self.doors {
            let own = doors.post(self.shard, &self.switchboard.quic);
            self.deliver(own, body, now);
        }
    }

    fn wake(&mut self, body: &mut ShardLoop<Hands>) {
        self.effects.woken.drain(..).for_each(|(id, readiness)| body.woken(id, readiness));
    }
}

impl Outside for Effects {
    fn segments_max(&self, listener: u16) -> usize {
        let socket = self.sockets.get(usize::from(listener)).and_then(Option::as_ref);
        socket.map_or(1, Udp::segments_max)
    }

    fn transmit(&mut self, listener: u16, transmit: &Transmit, bytes: &[u8]) {
        if let Some(socket) = self.sockets.get_mut(usize::from(listener)).and_then(Option::as_mut) {
            // A datagram that finds no room is lost, as on a network.
            socket.send(transmit, bytes);
        }
    }

    fn tell_door(&mut self, name: Name, event: EndpointEvent) {
        self.told.push((name, event));
    }

    fn woken(&mut self, id: ConnectionId, readiness: Readiness) {
        self.woken.push((id, readiness));
    }
}
