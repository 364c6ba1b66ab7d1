//! One shard's hands: carries out what its brain asks, in batches that leave at the end of the turn.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use auth::{Check, Unchecked, Wish};
use base::{CertificateName, ConnectionId, Purpose, ShardId};
use broker::{ControlBusy, ControlRequest, Counters, Counts, Effects, Flush, Mail, Notice, Room};
use protocol::Command;
use stream::{Peer, Readiness, Stream};

use crate::ask::Link;
use crate::board::Board;
use crate::bounds::Bounds;
use crate::census::Census;
use crate::connection::{Connection, Connections, Phase};
use crate::faults::Fault;
use crate::host::Host;
use crate::output::{Pool, Shared};
use crate::parts::{InParts, Length};
use crate::post::Post;
use crate::ready::Ready;
use crate::tracer::{Copying, Tracer};

/// Wide fan-outs are written at most this many connections a turn; meanwhile their buffers grow, and
/// fewer, larger writes are the only way under the kernel's price per call.
const BULK_PER_TURN: usize = 32;
/// Maximum bytes that are written to one connection before the next one is served: the default of `output_buffer_bytes`.
/// An output with more is large. It is written in parts, and stays large until nothing is left of it.
const VISIT_BYTES: usize = 256 * 1024;
/// Maximum bytes of large outputs that a turn writes. The kernel copies them during the call, which takes one or two
/// milliseconds for a mebibyte, and all other clients wait meanwhile.
const LARGE_BYTES_PER_TURN: usize = 256 * 1024;
/// Maximum bytes that are written to a connection whose output is huge before the next one is served.
const HUGE_VISIT_BYTES: usize = 128 * 1024;
/// Maximum bytes of other outputs that a turn writes directly: a turn reads about 1 MiB, for up to eight receivers. Beyond
/// that an output is large, unless it is small.
const DIRECT_BYTES_PER_TURN: usize = 8 * 1024 * 1024;
const SMALL_BYTES: usize = 16 * 1024;
/// How long a connection that we close may take to accept its last bytes and to close its own side.
const LINGER_MS: u64 = 3_000;
/// A turn drops as many that have not.
const LINGERING_PER_TURN: usize = 64;

/// One shard's connections, and the ways to other threads.
pub struct Io<H: Host> {
    pub(crate) connections: Connections<H::Stream>,
    pub(crate) ready: Ready,
    pub(crate) pool: Pool,
    /// The last payload that many get, which the next one to get something probably gets too.
    shared: Option<Arc<Shared>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) post: Post,
    pub(crate) host: H,
    pub(crate) bounds: Bounds,
    direct: Vec<ConnectionId>,
    bulk: VecDeque<ConnectionId>,
    in_parts: InParts,
    /// Outputs that a flush has brought below a quarter of the mark, for the brain to hear of.
    pub(crate) drained: Vec<ConnectionId>,
    /// Connections whose stream failed while it was written.
    pub(crate) failed: Vec<(ConnectionId, io::Error)>,
    lingering: VecDeque<(u64, ConnectionId)>,
    pub(crate) now_ms: u64,
    /// The trace under way.
    pub(crate) tracer: Option<Box<Tracer>>,
    pub(crate) census: Census,
}

impl<H: Host> Io<H> {
    /// The connections of a shard that has none yet.
    pub fn new(shard: ShardId, board: Arc<Board>, host: H, counters: Arc<Counters>, bounds: Bounds) -> Self {
        Self {
            connections: Connections::default(),
            ready: Ready::default(),
            pool: Pool::default(),
            shared: None,
            counters,
            post: Post::new(shard, board, bounds),
            host,
            bounds,
            direct: Vec::new(),
            bulk: VecDeque::new(),
            in_parts: InParts::default(),
            drained: Vec::new(),
            failed: Vec::new(),
            lingering: VecDeque::new(),
            now_ms: 0,
            tracer: None,
            census: Census::default(),
        }
    }

    /// Changes the bounds of outputs. An output that is over its mark then stays so until a quarter of the new mark is left.
    pub(crate) fn change_bounds(&mut self, output_bytes: usize, outputs_bytes: usize) {
        (self.bounds.output, self.bounds.outputs) = (output_bytes, outputs_bytes);
        self.post.change_bounds(outputs_bytes);
    }

    /// Takes a stream in, and has it watched.
    pub(crate) fn add(
        &mut self,
        stream: H::Stream,
        peer: Peer,
        (listener, counts): (u16, Arc<Counts>),
    ) -> io::Result<ConnectionId> {
        let id = self.connections.insert(Connection::new(stream, peer, listener, counts));
        let connection = self.connections.get_mut(id).expect("it was put there a line ago");
        if let Err(error) = self.host.watch(&mut connection.stream, id) {
            self.connections.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Notes what the poller says about a stream.
    ///
    /// A paused connection keeps `readable` and `ending` for its resumption, and is not read before. Bytes that its peer sent
    /// before it left have been accepted, and are read to the end. A reset does not shorten that. The end of a connection whose
    /// login waits is noticed, because nothing was accepted. Other pauses are bounded by the judge of slow subscribers. A takeover
    /// ends a paused connection like any other, and a reset shows in the next write.
    pub(crate) fn woken(&mut self, id: ConnectionId, readiness: Readiness) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.ending |= readiness.ending;
        connection.failed |= readiness.failed;
        if readiness.writable && connection.blocked {
            connection.blocked = false;
            if connection.length.is_in_parts() {
                self.in_parts.push(id, connection.length);
            } else if !connection.in_direct {
                connection.in_direct = true;
                self.direct.push(id);
            }
        }
        if readiness.readable || readiness.ending {
            connection.readable = true;
            self.make_ready(id);
        }
    }

    pub(crate) fn make_ready(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push(id, connection.ending);
        }
    }

    /// Writes what is due, each queue up to its share of a turn.
    pub(crate) fn flush(&mut self) {
        self.shared = None;
        self.flush_direct();
        for _ in 0..BULK_PER_TURN.min(self.bulk.len()) {
            let Some(id) = self.bulk.pop_front() else { break };
            if let Some(connection) = self.connections.get_mut(id) {
                connection.in_bulk = false;
                if connection.waiting_bytes() > VISIT_BYTES {
                    self.enlarge(id);
                } else if !connection.length.is_in_parts() {
                    self.write(id, VISIT_BYTES);
                }
            }
        }
        let mut left = LARGE_BYTES_PER_TURN;
        let mut share = self.in_parts.share();
        while left > 0
            && let Some(id) = self.in_parts.next(&mut share)
        {
            left = left.saturating_sub(self.visit(id));
        }
    }

    fn flush_direct(&mut self) {
        let mut left = DIRECT_BYTES_PER_TURN;
        let mut direct = std::mem::take(&mut self.direct);
        for id in direct.drain(..) {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.in_direct = false;
            let bytes = connection.waiting_bytes();
            if bytes > VISIT_BYTES || left == 0 && bytes > SMALL_BYTES {
                self.enlarge(id);
            } else if !connection.length.is_in_parts() {
                left = left.saturating_sub(self.write(id, VISIT_BYTES));
            }
        }
        self.direct = direct;
    }

    /// An output is written in parts from now on, in turn with others.
    fn enlarge(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if connection.length.is_in_parts() {
            return;
        }
        connection.length = Length::in_parts(connection.waiting_bytes());
        if !connection.blocked {
            self.in_parts.push(id, connection.length);
        }
    }

    /// Visits an output that is written in parts. Returns how many bytes its stream has taken.
    fn visit(&mut self, id: ConnectionId) -> usize {
        if let Some(connection) = self.connections.get_mut(id) {
            // It may have become longer. A huge one stays huge, or all would be large for their last parts.
            connection.length = connection.length.max(Length::in_parts(connection.waiting_bytes()));
        }
        let is_huge = self.connections.get(id).is_some_and(|connection| connection.length == Length::Huge);
        let bytes_max = if is_huge { HUGE_VISIT_BYTES } else { VISIT_BYTES };
        let written = self.write(id, bytes_max);
        if written >= bytes_max
            && let Some(connection) =
                self.connections.get(id).filter(|found| found.length.is_in_parts() && !found.blocked)
        {
            self.in_parts.push(id, connection.length);
        }
        written
    }

    /// The peer sends nothing more. Its output leaves if its stream takes it, then everything is freed.
    pub(crate) fn finish(&mut self, id: ConnectionId) {
        let failed_before = self.failed.len();
        let is_written = self.write(id, VISIT_BYTES) < VISIT_BYTES;
        let has_failed = self.failed.len() > failed_before;
        self.failed.truncate(failed_before);
        let owes = self.connections.get(id).is_some_and(|connection| connection.stream.owes_goodbye());
        if has_failed || is_written && !owes {
            self.forget(id);
        } else {
            self.close(id);
        }
    }

    /// Bytes that wait for the connection with the most.
    pub(crate) fn fullest_output_bytes(&self) -> usize {
        self.connections.iter().map(|(_, connection)| connection.waiting_bytes()).max().unwrap_or(0)
    }

    /// The connection of a client, for an operator.
    pub(crate) fn link(&self, id: ConnectionId) -> Option<Link> {
        let connection = self.connections.get(id)?;
        Some(Link {
            peer: connection.peer,
            listener: connection.listener,
            output_bytes: connection.waiting_bytes(),
            taken_bytes: connection.taken,
        })
    }

    /// Whether the next turn must not sleep.
    pub(crate) fn is_busy(&self) -> bool {
        let writes = !(self.direct.is_empty() && self.bulk.is_empty() && self.in_parts.is_empty());
        writes || !self.ready.is_empty()
    }

    pub(crate) fn next_linger_ms(&self) -> Option<u64> {
        self.lingering.front().map(|(until, _)| *until)
    }

    /// Drops connections that had their time to close, as many as a turn may.
    pub(crate) fn end_lingering(&mut self) {
        let now_ms = self.now_ms;
        for _ in 0..LINGERING_PER_TURN {
            let Some((_, id)) = self.lingering.pop_front_if(|(until, _)| *until <= now_ms) else { break };
            self.forget(id);
        }
    }

    /// Frees a connection and everything it holds; its stream is dropped.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        let Some(mut connection) = self.connections.remove(id) else { return };
        if let Some(tracer) = &mut self.tracer {
            tracer.closed(id, &connection);
        }
        self.host.unwatch(&mut connection.stream);
        if let Some(output) = connection.output.take() {
            if !Fault::BudgetKept.is_planted() {
                self.post.tally().sub(Purpose::Outputs, output.own_bytes());
            }
            self.pool.give_output(output);
        }
        self.post.tally().sub(Purpose::Partials, connection.unparsed_charged as usize);
        self.post.left(connection.listener);
    }

    /// Puts on the account what a connection keeps of what was read.
    #[inline]
    pub(crate) fn note_unparsed(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let bytes = connection.unparsed.capacity() + connection.stream.held_bytes();
        let charged = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut connection.unparsed_charged, charged);
        if charged != before {
            self.post.tally().add(Purpose::Partials, charged as usize);
            self.post.tally().sub(Purpose::Partials, before as usize);
        }
    }

    /// Writes at most so many bytes of what waits for a connection. Returns how many its stream has taken.
    pub(crate) fn write(&mut self, id: ConnectionId, bytes_max: usize) -> usize {
        let Some(connection) = self.connections.get_mut(id) else { return 0 };
        let mut written = 0;
        if connection.stream.wants_write() && !connection.blocked && !self.flush_stream(id) {
            return 0;
        }
        let Some(connection) = self.connections.get_mut(id) else { return 0 };
        let is_traced = self.tracer.as_ref().is_some_and(|tracer| tracer.follows_bytes(connection));
        let mut copy = Vec::new();
        if let Some(output) = connection.output.as_mut().filter(|_| !connection.blocked) {
            let before_bytes = output.own_bytes();
            let (taken, result) = if is_traced {
                let mut stream = Copying { stream: &mut connection.stream, copy: Vec::new() };
                let outcome = output.write_to(&mut stream, bytes_max, &mut self.pool);
                copy = stream.copy;
                outcome
            } else {
                output.write_to(&mut connection.stream, bytes_max, &mut self.pool)
            };
            written = taken;
            connection.taken += taken as u64;
            self.counters.bytes_sent.add(taken as u64);
            connection.counts.bytes_sent.add(taken as u64);
            self.census.wrote(id, taken);
            self.post.tally().sub(Purpose::Outputs, before_bytes - output.own_bytes());
            let is_early = connection.over && Fault::OutputFreedEarly.is_planted();
            if (output.is_empty() || is_early)
                && let Some(output) = connection.output.take()
            {
                self.post.tally().sub(Purpose::Outputs, output.own_bytes());
                connection.length = Length::Direct;
                self.pool.give_output(output);
            }
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.blocked = true,
                Err(error) => self.failed.push((id, error)),
            }
        }
        if let Some(tracer) = self.tracer.as_mut().filter(|_| is_traced) {
            tracer.written(id, connection, &copy);
        }
        if connection.over && connection.waiting_bytes() <= self.bounds.output / 4 {
            connection.over = false;
            self.drained.push(id);
        }
        if connection.phase == Phase::Closing && connection.output.is_none() {
            connection.phase = Phase::Lingering;
            connection.stream.shut_down_write();
            connection.readable = true;
            self.make_ready(id);
        }
        if let Some(connection) = self.connections.get_mut(id)
            && connection.stream.wants_write()
        {
            // It has tried to write, and waits for the stream below.
            connection.blocked = true;
            self.note_unparsed(id);
        }
        written
    }

    /// Writes bytes that the layers of a stream keep. Returns false if the stream has failed.
    fn flush_stream(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let flushed = loop {
            match connection.stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                flushed => break flushed,
            }
        };
        match flushed {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.blocked = true,
            Err(error) => {
                self.failed.push((id, error));
                return false;
            }
        }
        self.note_unparsed(id);
        true
    }

    /// Looks at what a read has changed in the layers of a stream: the peer, memory, answers that they owe. Inlined, because
    /// nearly nothing of it is left for a stream without layers.
    #[inline(always)]
    pub(crate) fn note_layers(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Some(peer) = connection.stream.take_peer() {
            connection.peer = peer;
        }
        if connection.stream.wants_write() && !connection.blocked && !connection.in_direct {
            connection.in_direct = true;
            self.direct.push(id);
        }
        if connection.stream.held_bytes() > 0 || connection.unparsed_charged > 0 {
            self.note_unparsed(id);
        }
    }

    fn queue(&mut self, id: ConnectionId, flush: Flush) -> Room {
        let Some(connection) = self.connections.get_mut(id) else { return Room::Open };
        debug_assert!(
            connection.phase == Phase::Open,
            "the brain sends nothing to a connection that it has closed"
        );
        if !(connection.blocked || connection.length.is_in_parts()) {
            match flush {
                Flush::Direct if !connection.in_direct => {
                    connection.in_direct = true;
                    self.direct.push(id);
                }
                Flush::Bulk if !connection.in_bulk && !connection.in_direct => {
                    connection.in_bulk = true;
                    self.bulk.push_back(id);
                }
                Flush::Direct | Flush::Bulk => {}
            }
        }
        if connection.waiting_bytes() > self.bounds.output {
            connection.over = true;
        }
        if connection.over { Room::Over } else { Room::Open }
    }
}

impl<H: Host> Effects for Io<H> {
    fn send(&mut self, to: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(to) else { return };
        connection.output(&mut self.pool).append(bytes, &mut self.pool);
        self.post.tally().add(Purpose::Outputs, bytes.len());
        if let Some(tracer) = &mut self.tracer {
            tracer.queued(to, connection, (bytes, &[]));
        }
        self.queue(to, Flush::Direct);
    }

    fn publish(&mut self, to: ConnectionId, bytes: &[u8], flush: Flush) -> Room {
        let full = self.post.is_full();
        let Some(connection) = self.connections.get_mut(to) else { return Room::Open };
        if (full || connection.over) && connection.refuses(bytes.len(), full, &self.bounds) {
            return Room::Full;
        }
        connection.output(&mut self.pool).append(bytes, &mut self.pool);
        self.post.tally().add(Purpose::Outputs, bytes.len());
        if let Some(tracer) = &mut self.tracer {
            tracer.queued(to, connection, (bytes, &[]));
        }
        self.queue(to, flush)
    }

    fn publish_shared(&mut self, to: ConnectionId, head: &[u8], payload: &Arc<[u8]>, flush: Flush) -> Room {
        let full = self.post.is_full();
        let Some(connection) = self.connections.get_mut(to) else { return Room::Open };
        let bytes = head.len() + payload.len();
        if (full || connection.over) && connection.refuses(bytes, full, &self.bounds) {
            return Room::Full;
        }
        let shared = match self.shared.take().filter(|shared| shared.is_of(payload)) {
            Some(shared) => shared,
            None => Arc::new(Shared::new(Arc::clone(payload), self.post.board().budget())),
        };
        let output = connection.output(&mut self.pool);
        output.append(head, &mut self.pool);
        output.append_shared(Arc::clone(&shared));
        self.shared = Some(shared);
        self.post.tally().add(Purpose::Outputs, head.len());
        if let Some(tracer) = &mut self.tracer {
            tracer.queued(to, connection, (head, payload));
        }
        self.queue(to, flush)
    }

    fn room(&self, connection: ConnectionId, bytes: usize) -> Room {
        match self.connections.get(connection) {
            Some(connection) if connection.over => Room::Over,
            Some(connection)
                if self.post.is_full() && connection.waiting_bytes() + bytes > self.bounds.allowance =>
            {
                Room::Full
            }
            _ => Room::Open,
        }
    }

    /// A stream that the poller has not announced is asked: bytes may have arrived since the last poll.
    fn has_unread(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        let has_unread = connection.readable || connection.stream.has_arrived();
        connection.readable = has_unread;
        if has_unread {
            self.make_ready(id);
        }
        has_unread
    }

    fn room_for_stored(&self, connection: ConnectionId, bytes: usize) -> Room {
        match self.room(connection, bytes) {
            Room::Full if self.waiting_bytes(connection) == 0 && self.post.has_memory_for(bytes) => {
                Room::Open
            }
            room => room,
        }
    }

    fn taken_bytes(&self, of: ConnectionId) -> u64 {
        self.connections.get(of).map_or(0, |connection| connection.taken)
    }

    fn verify(&mut self, id: ConnectionId, check: Check) -> Result<Wish, Unchecked> {
        let Some(connection) = self.connections.get(id) else { return Err(Unchecked::Busy) };
        self.host.verify(self.now_ms, id, &connection.peer, check)
    }

    fn control(&mut self, id: ConnectionId, request: ControlRequest) -> Result<(), ControlBusy> {
        self.host.control(id, request)
    }

    fn address(&self, id: ConnectionId) -> Option<IpAddr> {
        match self.connections.get(id)?.peer {
            Peer::Inet(address) => Some(address.ip()),
            Peer::Process { .. } | Peer::Simulated(_) => None,
        }
    }

    fn process_user(&self, id: ConnectionId) -> Option<u32> {
        match self.connections.get(id)?.peer {
            Peer::Process { uid, .. } => uid,
            Peer::Inet(_) | Peer::Simulated(_) => None,
        }
    }

    fn certificate_name(&mut self, id: ConnectionId, name: CertificateName) -> Option<String> {
        self.connections.get_mut(id)?.stream.certificate_name(name)
    }

    fn channel_binding(&mut self, id: ConnectionId) -> Option<[u8; 32]> {
        self.connections.get_mut(id)?.stream.channel_binding()
    }

    fn count_in(&mut self, id: ConnectionId, counts: &Arc<Counts>) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.counts = Arc::clone(counts);
        }
    }

    fn random(&mut self) -> u128 {
        self.host.random()
    }

    fn waiting_bytes(&self, of: ConnectionId) -> usize {
        self.connections.get(of).map_or(0, Connection::waiting_bytes)
    }

    fn mail(&mut self, to: ShardId, mail: Mail<'_>) -> Room {
        self.post.mail(to, mail)
    }

    fn mail_room(&mut self, to: ShardId) -> Room {
        self.post.mail_room(to)
    }

    fn command(&mut self, command: Command) -> Room {
        self.post.command(command)
    }

    fn command_room(&mut self) -> Room {
        self.post.command_room()
    }

    fn pause(&mut self, connection: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.paused = true;
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.paused = false;
            connection.refeed = true;
            self.make_ready(id);
        }
    }

    fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id).filter(|c| c.phase == Phase::Open) else {
            return;
        };
        connection.phase = Phase::Closing;
        connection.paused = false;
        connection.unparsed = Vec::new();
        self.lingering.push_back((self.now_ms + LINGER_MS, id));
        if !connection.in_direct {
            connection.in_direct = true;
            self.direct.push(id);
        }
        self.note_unparsed(id);
    }

    fn notice(&mut self, id: ConnectionId, notice: Notice<'_>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if let Notice::Connected { version, .. } = notice {
            connection.version = Some(version);
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.decided(id, connection, notice);
        }
        self.census.decided(&connection.peer, &notice);
        self.host.notice(self.now_ms, id, &connection.peer, notice);
    }
}

#[cfg(test)]
mod tests;
