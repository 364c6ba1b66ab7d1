//! One shard's hands: what its brain asks for, carried out on virtual connections and mailboxes.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use broker::{Effects, Flush, Mail, Notice, Room};
use index::{ConnectionId, ShardId};
use ledger::Command;
use wire::ReasonCode;

use super::post::{Addressed, Batch, Board, Commands, Letter};
use crate::network::{LinkId, Network};
use crate::random::Random;

/// How long a connection that the broker closes may take to accept its last bytes.
const LINGER_MS: u64 = 3_000;

/// The connections of a shard, and what its turn has collected for others.
#[derive(Debug)]
pub(crate) struct Hands {
    shard: usize,
    pub(crate) board: Rc<Board>,
    places: Vec<Place>,
    free: Vec<u32>,
    outgoing: Vec<Batch>,
    commands: Commands,
    /// Posted one after the other, by whoever schedules.
    pub(crate) outbox: VecDeque<Addressed>,
    pub(crate) dirty: Vec<ConnectionId>,
    pub(crate) drained: Vec<ConnectionId>,
    pub(crate) failed: Vec<ConnectionId>,
    pub(crate) notices: Vec<Noted>,
    pub(crate) now_ms: u64,
    random: Random,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    connection: Option<Connection>,
}

/// The broker's end of a link.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: LinkId,
    /// The beginning of a packet, or what was read while the connection was paused.
    pub(crate) unparsed: Vec<u8>,
    output: VecDeque<u8>,
    taken: u64,
    pub(crate) phase: Phase,
    linger_until_ms: u64,
    pub(crate) is_paused: bool,
    /// `unparsed` holds whole packets that waited for the end of a pause.
    pub(crate) refeed: bool,
    is_over: bool,
    is_dirty: bool,
    /// The socket took less than there was.
    pub(crate) is_blocked: bool,
    /// There is something to be read, when timers are looked at.
    pub(crate) has_unread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The brain is done with it; what was sent leaves first.
    Closing,
    /// All is sent, and the broker writes no more.
    Lingering,
}

/// What the log would say, as far as it matters.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) connection: ConnectionId,
    pub(crate) link: LinkId,
    pub(crate) client_id: String,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Connected,
    Refused(ReasonCode, String),
    Disconnected(ReasonCode, String),
}

impl Hands {
    pub(crate) fn new(shard: usize, shards: usize, board: Rc<Board>, random: Random) -> Self {
        Self {
            shard,
            board,
            places: Vec::new(),
            free: Vec::new(),
            outgoing: (0..shards).map(|_| Batch::default()).collect(),
            commands: no_commands(shard),
            outbox: VecDeque::new(),
            dirty: Vec::new(),
            drained: Vec::new(),
            failed: Vec::new(),
            notices: Vec::new(),
            now_ms: 0,
            random,
        }
    }

    pub(crate) fn accept(&mut self, link: LinkId) -> ConnectionId {
        let connection = Connection {
            link,
            unparsed: Vec::new(),
            output: VecDeque::new(),
            taken: 0,
            phase: Phase::Open,
            linger_until_ms: u64::MAX,
            is_paused: false,
            refeed: false,
            is_over: false,
            is_dirty: false,
            is_blocked: false,
            has_unread: false,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, connection: None });
            u32::try_from(self.places.len() - 1).expect("few connections")
        });
        let place = &mut self.places[slot as usize];
        place.connection = Some(connection);
        ConnectionId { slot, generation: place.generation }
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let place = self.places.get(id.slot as usize)?;
        if place.generation == id.generation { place.connection.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let place = self.places.get_mut(id.slot as usize)?;
        if place.generation == id.generation { place.connection.as_mut() } else { None }
    }

    /// All connections, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.places.iter().zip(0..).filter_map(|(place, slot)| {
            let id = ConnectionId { slot, generation: place.generation };
            place.connection.as_ref().map(|connection| (id, connection))
        })
    }

    /// Notes which connections have something to be read.
    pub(crate) fn look_for_unread(&mut self, network: &Network) {
        for connection in self.places.iter_mut().filter_map(|place| place.connection.as_mut()) {
            connection.has_unread = network.broker_may_read(connection.link);
        }
    }

    /// Frees a connection and everything it holds.
    pub(crate) fn forget(&mut self, id: ConnectionId, network: &mut Network) {
        let Some(place) = self.places.get_mut(id.slot as usize) else { return };
        if place.generation == id.generation
            && let Some(connection) = place.connection.take()
        {
            place.generation += 1;
            self.free.push(id.slot);
            self.board.waiting_bytes.set(self.board.waiting_bytes.get() - connection.output.len());
            network.broker_forgets(connection.link);
        }
    }

    /// The turn, or a part of it, is over: what it has collected is posted, to the shards first.
    pub(crate) fn post(&mut self) {
        for (to, batch) in self.outgoing.iter_mut().enumerate() {
            let batch = std::mem::take(batch);
            if !batch.is_empty() {
                let from = ShardId::new(self.shard);
                self.outbox.push_back(Addressed::Shard(ShardId::new(to), Letter::Mail { from, batch }));
            }
        }
        if !self.commands.commands.is_empty() {
            let commands = std::mem::replace(&mut self.commands, no_commands(self.shard));
            self.outbox.push_back(Addressed::Ledger(commands));
        }
    }

    /// Writes `bytes_max` bytes at most of what waits for a connection, if its socket takes as many.
    pub(crate) fn write(&mut self, id: ConnectionId, bytes_max: usize, network: &mut Network) {
        let high_water_bytes = self.board.bounds.high_water;
        let Some(connection) = self.get_mut(id) else { return };
        connection.is_dirty = false;
        let mut count = 0;
        if !connection.output.is_empty() {
            let Some(room) = network.broker_may_write(connection.link) else {
                return self.failed.push(id);
            };
            count = connection.output.len().min(room).min(bytes_max);
            network.broker_writes(connection.link, connection.output.drain(..count));
            connection.taken += count as u64;
            connection.is_blocked = !connection.output.is_empty();
        }
        let is_drained = connection.is_over && connection.output.len() <= high_water_bytes / 4;
        if is_drained {
            connection.is_over = false;
        }
        if connection.phase == Phase::Closing && connection.output.is_empty() {
            connection.phase = Phase::Lingering;
            network.broker_shuts(connection.link);
        }
        if is_drained {
            self.drained.push(id);
        }
        self.board.waiting_bytes.set(self.board.waiting_bytes.get() - count);
    }

    /// Connections whose time to close is over.
    pub(crate) fn lingered(&self) -> Vec<ConnectionId> {
        let is_over = |connection: &Connection| connection.linger_until_ms <= self.now_ms;
        self.iter().filter(|(_, connection)| is_over(connection)).map(|(id, _)| id).collect()
    }

    pub(crate) fn next_linger_ms(&self) -> Option<u64> {
        let linger = self.iter().map(|(_, connection)| connection.linger_until_ms);
        linger.filter(|until| *until < u64::MAX).min()
    }

    /// What waits for the connection that has most.
    pub(crate) fn fullest(&self) -> usize {
        self.iter().map(|(_, connection)| connection.output.len()).max().unwrap_or(0)
    }

    fn append(&mut self, to: ConnectionId, parts: &[&[u8]]) -> Room {
        let high_water_bytes = self.board.bounds.high_water;
        let Some(connection) = self.get_mut(to) else { return Room::Open };
        if connection.phase != Phase::Open {
            let link = connection.link;
            self.board.fault(format!("{link:?} gets a packet after it was closed"));
            return Room::Open;
        }
        parts.iter().for_each(|part| connection.output.extend(*part));
        connection.is_over |= connection.output.len() > high_water_bytes;
        let room = if connection.is_over { Room::Over } else { Room::Open };
        if !connection.is_blocked && !std::mem::replace(&mut connection.is_dirty, true) {
            self.dirty.push(to);
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.board.waiting_bytes.set(self.board.waiting_bytes.get() + bytes);
        room
    }

    fn is_full_for(&self, connection: &Connection, bytes: usize) -> bool {
        self.board.is_full() && connection.output.len() + bytes > self.board.bounds.allowance
    }
}

fn no_commands(shard: usize) -> Commands {
    Commands { from: ShardId::new(shard), commands: VecDeque::new(), bytes: 0 }
}

impl Effects for Hands {
    fn send(&mut self, to: ConnectionId, bytes: &[u8]) {
        self.append(to, &[bytes]);
    }

    fn publish(&mut self, to: ConnectionId, bytes: &[u8], _: Flush) -> Room {
        match self.get(to) {
            Some(connection) if self.is_full_for(connection, bytes.len()) => Room::Full,
            _ => self.append(to, &[bytes]),
        }
    }

    fn publish_shared(&mut self, to: ConnectionId, head: &[u8], payload: &Arc<[u8]>, _: Flush) -> Room {
        match self.get(to) {
            Some(connection) if self.is_full_for(connection, head.len() + payload.len()) => Room::Full,
            _ => self.append(to, &[head, payload]),
        }
    }

    fn room(&self, connection: ConnectionId, bytes: usize) -> Room {
        match self.get(connection) {
            Some(connection) if connection.is_over => Room::Over,
            Some(connection) if self.is_full_for(connection, bytes) => Room::Full,
            _ => Room::Open,
        }
    }

    fn has_unread(&mut self, connection: ConnectionId) -> bool {
        self.get(connection).is_some_and(|connection| connection.has_unread)
    }

    fn taken_bytes(&self, of: ConnectionId) -> u64 {
        self.get(of).map_or(0, |connection| connection.taken)
    }

    fn waiting_bytes(&self, of: ConnectionId) -> usize {
        self.get(of).map_or(0, |connection| connection.output.len())
    }

    fn mail(&mut self, to: ShardId, mail: Mail<'_>) -> Room {
        let bytes = self.outgoing[to.number()].push(mail);
        self.board.add_mail(self.shard, to, bytes)
    }

    fn mail_room(&mut self, to: ShardId) -> Room {
        self.board.mail_room(self.shard, to)
    }

    fn command(&mut self, command: Command) -> Room {
        let bytes = command.weight_bytes();
        self.commands.commands.push_back(command);
        self.commands.bytes += bytes;
        self.board.add_command(self.shard, bytes)
    }

    fn command_room(&mut self) -> Room {
        self.board.command_room(self.shard)
    }

    fn pause(&mut self, connection: ConnectionId) {
        if let Some(connection) = self.get_mut(connection) {
            connection.is_paused = true;
        }
    }

    fn resume(&mut self, connection: ConnectionId) {
        if let Some(connection) = self.get_mut(connection) {
            connection.is_paused = false;
            connection.refeed = true;
        }
    }

    fn close(&mut self, id: ConnectionId) {
        let linger_until_ms = self.now_ms + LINGER_MS;
        let Some(connection) = self.get_mut(id).filter(|connection| connection.phase == Phase::Open) else {
            return;
        };
        connection.phase = Phase::Closing;
        connection.is_paused = false;
        connection.unparsed = Vec::new();
        connection.linger_until_ms = linger_until_ms;
        if !std::mem::replace(&mut connection.is_dirty, true) {
            self.dirty.push(id);
        }
    }

    fn random(&mut self) -> u128 {
        u128::from(self.random.next()) << 64 | u128::from(self.random.next())
    }

    fn notice(&mut self, id: ConnectionId, notice: Notice<'_>) {
        let (client_id, what) = match notice {
            Notice::Connected { client_id, .. } => (client_id, What::Connected),
            Notice::Refused { client_id, reason, why } => (client_id, What::Refused(reason, why.to_owned())),
            Notice::Disconnected { client_id, reason, why } => {
                (client_id, What::Disconnected(reason, why.to_owned()))
            }
            Notice::Subscribed { .. } | Notice::Unsubscribed { .. } => return,
        };
        let Some(link) = self.get(id).map(|connection| connection.link) else { return };
        self.notices.push(Noted { connection: id, link, client_id: client_id.to_owned(), what });
    }
}
