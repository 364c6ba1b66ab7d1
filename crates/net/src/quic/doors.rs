//! The doors of all QUIC listeners: reads their sockets, deals out connections and datagrams.

use std::sync::Arc;
use std::time::Instant;

use base::{Budget, Purpose, ShardId};
use broker::{Counters, Counts};
use layers::quic::{Arrival, Begun, ConnectionEvent, ConnectionHandle, Door, EndpointEvent, Name, Transmit};
use stream::Peer;
use turn::Board;

use super::mail::{Delivery, Letter, Mail};
use super::socket::{Udp, peer};
use crate::listener::{DoorRules, FULL, FULL_LISTENER, Rules, TOO_FAST};
use crate::log::Log;

/// Handshakes that a turn begins, of all listeners. Each costs a signature.
const ACCEPTS_PER_TURN: usize = 8;

/// The doors, on the shard that reads the sockets.
pub(crate) struct Doors {
    doors: Vec<Entrance>,
    connections_max: usize,
    counters: Arc<Counters>,
    budget: Arc<Budget>,
    /// Deliveries to each shard in this turn.
    outgoing: Vec<Vec<Delivery>>,
    received: Vec<u8>,
    answer: Vec<u8>,
    /// The broker ends: nobody comes in.
    is_closed: bool,
}

/// The door of a listener.
pub(crate) struct Entrance {
    door: Door,
    /// The place of its socket, which names its connections.
    place: u16,
    rules: DoorRules,
    /// A reload has removed the listener: nobody comes in.
    is_closed: bool,
    /// The shards of its connections, by their numbers.
    routes: Vec<Option<ShardId>>,
}

/// The things that a turn of the doors uses.
pub(super) struct Around<'a> {
    pub(super) board: &'a Board,
    pub(super) log: &'a mut Log,
    pub(super) now: Instant,
    pub(super) now_ms: u64,
}

impl Doors {
    pub(crate) fn new(
        shards: usize,
        connections_max: usize,
        (counters, budget): (Arc<Counters>, Arc<Budget>),
    ) -> Self {
        Self {
            doors: Vec::new(),
            connections_max,
            counters,
            budget,
            outgoing: (0..shards).map(|_| Vec::new()).collect(),
            received: Vec::new(),
            answer: Vec::new(),
            is_closed: false,
        }
    }

    pub(super) fn open(&mut self, entrance: Entrance) {
        self.doors.push(entrance);
    }

    pub(super) fn change(&mut self, number: u16, next: u16, rules: &Rules, board: &Board) {
        let entrance = self.doors.iter_mut().find(|entrance| entrance.rules.number == number);
        entrance.into_iter().for_each(|entrance| entrance.rules.change(next, rules, board));
    }

    pub(super) fn close_one(&mut self, number: u16) {
        let entrance = self.doors.iter_mut().find(|entrance| entrance.rules.number == number);
        entrance.into_iter().for_each(|entrance| entrance.is_closed = true);
    }

    pub(super) fn forget(&mut self, place: u16) {
        self.doors.retain(|entrance| entrance.place != place);
    }

    pub(super) fn change_connections_max(&mut self, most: usize) {
        self.connections_max = most;
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether a connection waits to be accepted.
    pub(super) fn has_work(&self) -> bool {
        self.doors.iter().any(|entrance| entrance.door.next_waiting().is_some())
    }

    /// Reads the sockets, as much as a turn may, and accepts connections.
    pub(super) fn turn(&mut self, sockets: &mut [Option<Udp>], around: &mut Around<'_>) {
        let Self { doors, outgoing, received, answer, counters, .. } = self;
        for entrance in doors.iter_mut() {
            let socket = sockets.get_mut(usize::from(entrance.place)).and_then(Option::as_mut);
            let Some(socket) = socket.filter(|socket| socket.is_readable()) else { continue };
            let asks_proof = entrance.rules.rates.has_limits();
            socket.receive(received, |socket, datagram| {
                answer.clear();
                let bytes = datagram.bytes.len();
                match entrance.door.receive(around.now, datagram, asks_proof, answer) {
                    Arrival::Nothing => {}
                    Arrival::For(handle, event) => {
                        if let Some(to) = entrance.route(handle) {
                            outgoing[to.number()].push(entrance.delivery(handle, event, bytes));
                        }
                    }
                    Arrival::Answer(transmit) => send(socket, &transmit, answer),
                    Arrival::Retry(transmit) => {
                        counters.quic_retries.add(1);
                        send(socket, &transmit, answer);
                    }
                    Arrival::Refused(transmit) => {
                        counters.refused_quic_handshakes.add(1);
                        send(socket, &transmit, answer);
                    }
                }
            });
        }
        self.accept(sockets, around);
    }

    fn accept(&mut self, sockets: &mut [Option<Udp>], around: &mut Around<'_>) {
        let mut left = ACCEPTS_PER_TURN;
        for entrance in &mut self.doors {
            let Some(socket) = sockets.get_mut(usize::from(entrance.place)).and_then(Option::as_mut) else {
                continue;
            };
            while left > 0
                && let Some(remote) = entrance.door.next_waiting()
            {
                left -= 1;
                self.answer.clear();
                let from = Peer::from(peer(remote));
                let is_refused = self.is_closed
                    || entrance.is_closed
                    || entrance.refuses(from, self.connections_max, &self.counters, around);
                if is_refused {
                    if let Some(transmit) = entrance.door.refuse(&mut self.answer) {
                        send(socket, &transmit, &self.answer);
                    }
                    continue;
                }
                match entrance.door.accept(around.now, &mut self.answer) {
                    Some(Ok((handle, begun))) => {
                        let (to, delivery) = entrance.begin(handle, begun, from, around.board);
                        self.outgoing[to.number()].push(delivery);
                    }
                    Some(Err(Some(transmit))) => send(socket, &transmit, &self.answer),
                    Some(Err(None)) | None => {}
                }
            }
        }
    }

    /// Takes in what a connection says about its connection ids.
    pub(super) fn tell(&mut self, name: Name, event: EndpointEvent) {
        let Some(entrance) = self.doors.iter_mut().find(|entrance| entrance.place == name.listener) else {
            return;
        };
        let route = entrance.route(name.handle);
        if event.is_drained()
            && let Some(place) = entrance.routes.get_mut(name.handle.0)
        {
            *place = None;
        }
        if let Some(answer) = entrance.door.handle_event(name.handle, event)
            && let Some(to) = route
        {
            self.outgoing[to.number()].push(entrance.delivery(name.handle, answer, 0));
        }
    }

    /// Takes what is for the shard itself, and posts the rest.
    pub(super) fn post(&mut self, own: ShardId, mail: &[Mail]) -> Vec<Delivery> {
        for (to, (outgoing, mail)) in self.outgoing.iter_mut().zip(mail).enumerate() {
            if to == own.number() || outgoing.is_empty() {
                continue;
            }
            let mut deliveries = std::mem::take(outgoing);
            if mail.is_full() {
                // The network may lose datagrams too, and only datagrams.
                let before = deliveries.len();
                deliveries.retain(|delivery| delivery.bytes() == 0);
                self.counters.quic_dropped.add((before - deliveries.len()) as u64);
            }
            let bytes = deliveries.iter().map(Delivery::bytes).sum();
            let charge = self.budget.charge(Purpose::Mail, bytes);
            mail.post(Letter::Deliveries { deliveries, bytes, _charge: charge });
        }
        std::mem::take(&mut self.outgoing[own.number()])
    }
}

impl Entrance {
    /// The door of a listener whose socket has this place, which is also the number of its connections for now.
    pub(crate) fn new(door: Door, place: u16, rules: &Rules, counts: Arc<Counts>) -> Self {
        let rules = DoorRules::new(place, rules, counts);
        Self { door, place, rules, is_closed: false, routes: Vec::new() }
    }

    fn route(&self, handle: ConnectionHandle) -> Option<ShardId> {
        self.routes.get(handle.0).copied().flatten()
    }

    fn delivery(&self, handle: ConnectionHandle, event: ConnectionEvent, bytes: usize) -> Delivery {
        Delivery::Event { name: Name { listener: self.place, handle }, event, bytes }
    }

    /// Whether a connection from this address is one too many.
    fn refuses(
        &mut self,
        from: Peer,
        connections_max: usize,
        counters: &Counters,
        around: &mut Around<'_>,
    ) -> bool {
        let (counter, notice) = if around.board.connections() >= connections_max {
            (&counters.refused_connections_max, FULL)
        } else if self.rules.is_full(around.board) {
            (&counters.refused_connections_listener, FULL_LISTENER)
        } else if self.rules.rates.is_exceeded_by(from, around.now_ms) {
            (&counters.refused_connection_rate, TOO_FAST)
        } else {
            return false;
        };
        self.rules.count_refused(counter);
        around.log.notice(around.now_ms, &from, notice);
        true
    }

    /// Gives a connection to the shard with the fewest.
    fn begin(
        &mut self,
        handle: ConnectionHandle,
        begun: Begun,
        peer: Peer,
        board: &Board,
    ) -> (ShardId, Delivery) {
        let shard = board.charge_least_loaded();
        let (listener, admission) = (self.rules.number, self.rules.admission.clone());
        board.charge_listener(listener);
        if self.routes.len() <= handle.0 {
            self.routes.resize(handle.0 + 1, None);
        }
        self.routes[handle.0] = Some(shard);
        let name = Name { listener: self.place, handle };
        (shard, Delivery::Begun { name, begun: Box::new(begun), peer, admission, listener })
    }
}

fn send(socket: &mut Udp, transmit: &Transmit, answer: &[u8]) {
    // An answer that the kernel does not take is lost. The client asks again.
    socket.send(transmit, &answer[..transmit.size]);
}
