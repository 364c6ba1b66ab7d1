//! One shard's hands: carries out what its brain asks, in batches that leave at the end of the turn.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use auth::{PasswordCheck, Unchecked};
use base::{ConnectionId, Purpose, ShardId};
use broker::{CertificateName, ControlBusy, ControlRequest, Counters, Effects, Flush, Mail, Notice, Room};
use protocol::Command;

use crate::ask::Link;
use crate::board::Board;
use crate::bounds::Bounds;
use crate::connection::{Connection, Connections, Phase};
use crate::faults::Fault;
use crate::host::{Host, Peer, Stream};
use crate::output::{Pool, Shared};
use crate::parts::{InParts, Length};
use crate::post::Post;
use crate::ready::Ready;
use crate::shard::Readiness;

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
        }
    }

    /// Changes the bounds of outputs. An output that is over its mark then stays so until a quarter of the new mark is left.
    pub(crate) fn change_bounds(&mut self, output_bytes: usize, outputs_bytes: usize) {
        (self.bounds.output, self.bounds.outputs) = (output_bytes, outputs_bytes);
        self.post.change_bounds(outputs_bytes);
    }

    /// Takes a stream in, and has it watched.
    pub(crate) fn add(&mut self, stream: H::Stream, peer: Peer, listener: u16) -> io::Result<ConnectionId> {
        let id = self.connections.insert(Connection::new(stream, peer, listener));
        let connection = self.connections.get_mut(id).expect("it was put there a line ago");
        if let Err(error) = self.host.watch(&mut connection.stream, id) {
            self.connections.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Notes what the poller says about a stream.
    ///
    /// A paused connection keeps `readable` and `ending` for its resumption, and is not read before: what
    /// its peer sent before it left has been accepted, and is read to the end. A reset does not shorten
    /// that. Pauses are bounded by the judge of slow subscribers, a takeover ends a paused connection as
    /// any other, and where something waits to be written the reset shows in the write.
    pub(crate) fn woken(&mut self, id: ConnectionId, readiness: Readiness) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.ending |= readiness.ending;
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
        self.host.unwatch(&mut connection.stream);
        if let Some(output) = connection.output.take() {
            if !Fault::BudgetKept.is_planted() {
                self.post.tally().sub(Purpose::Outputs, output.own_bytes());
            }
            self.pool.give_output(output);
        }
        self.post.tally().sub(Purpose::Partials, connection.unparsed_charged);
        self.post.left(connection.listener);
    }

    /// Puts on the account what a connection keeps of what was read.
    pub(crate) fn note_unparsed(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let bytes = connection.unparsed.capacity() + connection.stream.held_bytes();
        let before = std::mem::replace(&mut connection.unparsed_charged, bytes);
        if bytes != before {
            self.post.tally().add(Purpose::Partials, bytes);
            self.post.tally().sub(Purpose::Partials, before);
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
        if let Some(output) = connection.output.as_mut().filter(|_| !connection.blocked) {
            let before_bytes = output.own_bytes();
            let (taken, result) = output.write_to(&mut connection.stream, bytes_max, &mut self.pool);
            written = taken;
            connection.taken += taken as u64;
            self.counters.bytes_sent.add(taken as u64);
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

    /// Looks at what a read has changed in the layers of a stream: the peer, memory, answers that they owe.
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

    fn verify(&mut self, id: ConnectionId, check: PasswordCheck) -> Result<(), Unchecked> {
        let Some(connection) = self.connections.get(id) else { return Err(Unchecked::Busy) };
        self.host.verify(self.now_ms, id, &connection.peer, check)
    }

    fn control(&mut self, id: ConnectionId, request: ControlRequest) -> Result<(), ControlBusy> {
        self.host.control(id, request)
    }

    fn certificate_name(&mut self, id: ConnectionId, name: CertificateName) -> Option<String> {
        self.connections.get_mut(id)?.stream.certificate_name(name)
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
        if let Some(connection) = self.connections.get(id) {
            self.host.notice(self.now_ms, id, &connection.peer, notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Budget;

    use super::*;
    use crate::double::{Double, Pipe};

    const ALLOWANCE: usize = 4 << 10;

    #[test]
    fn when_the_process_is_full_a_connection_gets_no_more_than_its_allowance() {
        let mut bench = Bench::new(100_000);
        let (busy, idle) = (bench.connection(), bench.connection());
        let io = &mut bench.io;
        assert_eq!(io.publish(busy, &[0; 100_001], Flush::Direct), Room::Open);
        assert_eq!(io.publish(busy, b"1", Flush::Direct), Room::Full);
        assert_eq!(io.publish(idle, &[0; ALLOWANCE + 1], Flush::Direct), Room::Full);
        assert_eq!(io.waiting_bytes(idle), 0);
        assert_eq!(io.publish(idle, &[0; ALLOWANCE - 1], Flush::Direct), Room::Open);
        assert_eq!(io.publish(idle, b"12", Flush::Direct), Room::Full);
        assert_eq!(io.publish(idle, b"1", Flush::Direct), Room::Open);
        assert_eq!(io.waiting_bytes(idle), ALLOWANCE);
    }

    /// Publishers are held before that. Those of which there is no second read are not.
    #[test]
    fn an_output_over_its_mark_gets_no_more_messages_than_one_connection_may_have_waiting() {
        const MOST: usize = 3 << 20;
        let mut bench = Bench::new(usize::MAX);
        bench.io.bounds.output_most = MOST;
        let (slow, other) = (bench.connection(), bench.connection());
        let io = &mut bench.io;
        let payload: Arc<[u8]> = vec![7; 1 << 20].into();
        assert_eq!(io.publish(slow, &payload, Flush::Direct), Room::Open);
        for _ in 0..2 {
            assert_eq!(io.publish(slow, &payload, Flush::Direct), Room::Over);
        }
        assert_eq!(io.publish(slow, b"1", Flush::Direct), Room::Over, "exactly the most waits");
        assert_eq!(io.publish(slow, b"1", Flush::Direct), Room::Full);
        assert_eq!(io.publish_shared(slow, b"1", &payload, Flush::Direct), Room::Full);
        assert_eq!(io.waiting_bytes(slow), MOST + 1);
        io.send(slow, b"an answer");
        assert_eq!(io.waiting_bytes(slow), MOST + 10);
        assert_eq!(io.publish(other, &[0; 2 * MOST], Flush::Direct), Room::Over, "one message may be longer");
    }

    #[test]
    fn what_a_lost_connection_held_is_free_for_others() {
        let mut bench = Bench::new(100_000);
        let (lost, other) = (bench.connection(), bench.connection());
        let io = &mut bench.io;
        assert_eq!(io.publish(lost, &[0; 100_001], Flush::Direct), Room::Open);
        assert_eq!(io.publish(other, &[0; 10_000], Flush::Direct), Room::Full);
        io.forget(lost);
        assert_eq!(io.publish(other, &[0; 10_000], Flush::Direct), Room::Open);
    }

    #[test]
    fn when_memory_is_short_nobody_gets_more_than_the_allowance_whatever_it_is_held_for() {
        let mut bench = Bench::with_memory(usize::MAX, 160_000);
        let busy = bench.connection();
        let budget = Arc::clone(bench.io.post.board().budget());
        let held = budget.charge(Purpose::Messages, 140_000);
        let io = &mut bench.io;
        io.post.look();
        assert_eq!(io.publish(busy, &[0; 10_001], Flush::Direct), Room::Open);
        assert_eq!(io.publish(busy, b"1", Flush::Direct), Room::Full);
        drop(held);
        io.post.look();
        assert_eq!(io.publish(busy, b"1", Flush::Direct), Room::Open);
        io.forget(busy);
        io.post.look();
        assert_eq!(budget.used_bytes(), 0);
    }

    /// A queue of long messages may be what memory is short for: if none of them left, it would be short for ever.
    #[test]
    fn when_memory_is_short_a_stored_message_leaves_for_an_empty_output_as_long_as_there_is_any() {
        let mut bench = Bench::with_memory(usize::MAX, 160_000);
        let (first, second) = (bench.connection(), bench.connection());
        let budget = Arc::clone(bench.io.post.board().budget());
        let _held = budget.charge(Purpose::Messages, 151_000);
        let io = &mut bench.io;
        io.post.look();
        assert_eq!(io.room(first, 5_000), Room::Full);
        assert_eq!(io.room_for_stored(first, 5_000), Room::Open);
        io.send(first, &[0; 5_000]);
        assert_eq!(io.room_for_stored(first, 4_000), Room::Full, "one waits already");
        assert_eq!(io.room_for_stored(second, 4_000), Room::Open);
        assert_eq!(io.room_for_stored(second, 5_001), Room::Full, "there is less memory by now");
        io.flush();
        io.post.look();
        assert_eq!(io.room_for_stored(first, 5_000), Room::Open, "it has left");
    }

    /// The messages that wait may be what holds it. Outputs have a sixteenth of it in any case, or one message.
    #[test]
    fn stored_messages_leave_when_all_memory_is_used() {
        let mut bench = Bench::with_memory(usize::MAX, 160_000);
        let (first, second) = (bench.connection(), bench.connection());
        let budget = Arc::clone(bench.io.post.board().budget());
        let _held = budget.charge(Purpose::Messages, 200_000);
        let io = &mut bench.io;
        io.post.look();
        assert_eq!(io.room(first, 4_000), Room::Open, "the allowance");
        assert_eq!(io.room(first, 5_000), Room::Full);
        assert_eq!(io.room_for_stored(first, 50_000), Room::Open, "nothing else is on its way");
        io.send(first, &[0; 5_000]);
        assert_eq!(io.room_for_stored(second, 5_001), Room::Full);
        assert_eq!(io.room_for_stored(second, 5_000), Room::Open);
        io.send(second, &[0; 5_000]);
        io.flush();
        io.post.look();
        assert_eq!(io.room_for_stored(second, 50_000), Room::Open, "both have left");
    }

    #[test]
    fn what_many_wait_for_is_held_once() {
        let mut bench = Bench::with_memory(usize::MAX, 1 << 30);
        let waiting = [(); 3].map(|()| bench.connection());
        let budget = Arc::clone(bench.io.post.board().budget());
        let io = &mut bench.io;
        let payload: Arc<[u8]> = vec![7; 100_000].into();
        for to in waiting {
            io.publish_shared(to, b"head", &payload, Flush::Direct);
        }
        io.post.look();
        assert_eq!(budget.held_bytes(Purpose::Outputs), 100_000 + 3 * 4);
        io.flush();
        waiting.into_iter().for_each(|id| io.forget(id));
        io.post.look();
        assert_eq!(budget.used_bytes(), 0);
    }

    /// Between the mark and a quarter of it nothing changes: publishers do not go on for each packet that leaves.
    #[test]
    fn an_output_that_was_over_its_mark_has_room_again_at_a_quarter_of_it() {
        const MARK: usize = 4 << 20;
        let mut bench = Bench::new(usize::MAX);
        bench.io.bounds.output = MARK;
        let id = bench.connection();
        let (io, peer) = (&mut bench.io, &bench.peers[0]);
        assert_eq!(io.publish(id, &vec![7; MARK + MARK / 4], Flush::Direct), Room::Over);
        let mut between = 0;
        loop {
            io.woken(id, WRITABLE);
            io.write(id, MARK);
            let waiting = io.waiting_bytes(id);
            if waiting <= MARK / 4 {
                break;
            }
            between += usize::from(waiting <= MARK);
            assert!(io.drained.is_empty() && io.room(id, 0) == Room::Over, "{waiting} bytes wait");
            assert!(!peer.take_written().is_empty());
        }
        assert!(between > 0, "it was looked at in between");
        assert_eq!((&io.drained[..], io.room(id, 0)), (&[id][..], Room::Open));
    }

    /// Returns how many bytes a call of `flush` writes.
    fn written_in_a_turn(io: &mut Io<Double>) -> u64 {
        let before = io.counters.bytes_sent.value();
        io.flush();
        io.counters.bytes_sent.value() - before
    }

    const WRITABLE: Readiness = Readiness { readable: false, writable: true, ending: false };

    #[test]
    fn a_turn_writes_a_bounded_number_of_bytes_however_much_waits_and_small_outputs_all_the_same() {
        let bound = (LARGE_BYTES_PER_TURN + VISIT_BYTES) as u64;
        for flush in [Flush::Bulk, Flush::Direct] {
            let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
            let large: Arc<[u8]> = (0..2_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
            let many: Vec<ConnectionId> = (0..20).map(|_| bench.connection()).collect();
            let small = bench.connection();
            let io = &mut bench.io;
            for id in &many {
                assert_eq!(io.publish_shared(*id, b"head", &large, flush), Room::Over);
            }
            io.publish(small, b"small", Flush::Direct);
            assert!(written_in_a_turn(io) <= bound, "{flush:?}");
            assert_eq!(io.waiting_bytes(small), 0, "it does not wait for others");
            let mut received = vec![Vec::new(); many.len()];
            let mut turns = 0;
            while received.iter().any(|received: &Vec<u8>| received.len() < large.len() + 4) {
                assert!(written_in_a_turn(io) <= bound, "{flush:?}");
                for (id, (received, peer)) in many.iter().zip(received.iter_mut().zip(&bench.peers)) {
                    received.extend(peer.take_written());
                    io.woken(*id, WRITABLE);
                }
                turns += 1;
                assert!(turns < 10_000, "there is an end");
            }
            assert!(received.iter().all(|received| received[..4] == *b"head" && received[4..] == *large));
            assert!(!io.is_busy());
            assert!(
                many.iter().all(|id| !io.connections.get(*id).expect("it is there").length.is_in_parts())
            );
        }
    }

    /// Each turn writes a part of one.
    #[test]
    fn a_large_message_does_not_wait_for_all_outputs_that_are_huge() {
        let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
        let huge: Arc<[u8]> = vec![7; 2_000_000].into();
        let many: Vec<ConnectionId> = (0..50).map(|_| bench.connection()).collect();
        let one = bench.connection();
        let io = &mut bench.io;
        for id in &many {
            io.publish_shared(*id, b"head", &huge, Flush::Direct);
        }
        io.flush();
        io.publish(one, &[8; 2 * VISIT_BYTES], Flush::Direct);
        (0..3).for_each(|_| io.flush());
        assert_eq!(io.waiting_bytes(one), 0);
        assert!(many.iter().all(|id| io.waiting_bytes(*id) > 0), "all others still have to wait");
    }

    #[test]
    fn a_turn_writes_a_bounded_number_of_direct_outputs_that_are_not_large() {
        let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
        let many: Vec<ConnectionId> = (0..60).map(|_| bench.connection()).collect();
        let io = &mut bench.io;
        for id in &many {
            io.publish(*id, &vec![7; VISIT_BYTES], Flush::Direct);
        }
        let bound = DIRECT_BYTES_PER_TURN + LARGE_BYTES_PER_TURN + 2 * VISIT_BYTES;
        assert!(written_in_a_turn(io) <= bound as u64);
        let mut turns = 0;
        while io.is_busy() {
            assert!(written_in_a_turn(io) <= (LARGE_BYTES_PER_TURN + VISIT_BYTES) as u64);
            turns += 1;
        }
        assert!(turns > 0, "more was due than a turn writes");
    }

    #[test]
    fn what_waits_for_a_client_that_has_closed_its_direction_leaves_in_parts() {
        let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
        let id = bench.connection();
        let io = &mut bench.io;
        let message = vec![7; 4 * VISIT_BYTES];
        io.publish(id, &message, Flush::Direct);
        let before = io.counters.bytes_sent.value();
        io.finish(id);
        assert!(io.counters.bytes_sent.value() - before <= VISIT_BYTES as u64);
        let mut received = Vec::new();
        for _ in 0..8 {
            received.extend(bench.peers[0].take_written());
            io.woken(id, WRITABLE);
            io.flush();
        }
        assert_eq!(received, message);
    }

    /// One shard's connections with their other ends.
    struct Bench {
        io: Io<Double>,
        peers: Vec<Pipe>,
    }

    impl Bench {
        fn new(outputs: usize) -> Self {
            Self::with_memory(outputs, usize::MAX)
        }

        fn with_memory(outputs: usize, memory_bytes_max: usize) -> Self {
            let board = Arc::new(Board::new(1, Arc::new(Budget::new(memory_bytes_max))));
            let bounds = Bounds { outputs, output: 1 << 20, ..Bounds::default() };
            let io = Io::new(ShardId::new(0), board, Double::default(), Arc::default(), bounds);
            Self { io, peers: Vec::new() }
        }

        /// Its stream takes twice as many bytes as one visit writes that its peer has not read.
        fn connection(&mut self) -> ConnectionId {
            let peer = Pipe::new(2 * VISIT_BYTES);
            self.peers.push(peer.clone());
            self.io.post.board().charge_least_loaded();
            self.io.add(peer, Peer::Simulated(0), 0).expect("it can be watched")
        }
    }
}
