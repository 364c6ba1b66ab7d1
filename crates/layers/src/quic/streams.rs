//! The streams of a connection, as the one stream of packets that a shard reads and writes.
//!
//! ```text
//! stream 0 ─► Lane ─┐                                          ┌─► stream 0: messages, and all other packets
//! stream 4 ─► Lane ─┼─► whole packets ─► shard ─► its packets ─┤
//! stream 8 ─► Lane ─┘        │                       ▲         ├─► stream 4: answers to requests from stream 4
//!                            └─► exchanges ──────────┘         └─► stream 8
//! ```
//!
//! - The packets of a stream keep their order. Packets of different streams mix, as they arrive.
//! - A packet of at most [`HELD_MAX`] bytes reaches the shard when all of it is here: a lost datagram delays only its own
//!   stream. A longer packet is passed on in parts, and other streams wait for its end.
//! - PUBACK, PUBREC, PUBCOMP, SUBACK and UNSUBACK leave on the stream that the request came from.
//! - Each stream has a window of its own, and the connection has a window for all of them: bytes of a stream that waits never
//!   take the room of the stream it waits for.
//! - The first stream begins and ends the session. CONNECT is read before any other stream.
//! - While a client has one stream, its bytes are passed on as they are.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use quinn_proto::{Connection, Dir, FinishError, ReadError, StreamId, WriteError};

use super::link::{PIECE_BYTES, Sending};
use super::walk::{Exchange, Found, From, Walk};

/// Maximum bytes of a packet that is kept until all of it has arrived, of each stream.
pub(super) const HELD_MAX: usize = 16 * 1024;
/// Maximum number of unanswered requests of a connection whose streams are remembered. Further answers leave on the first
/// stream.
const ROUTES_MAX: usize = 1_024;

/// All streams of a connection.
#[derive(Default)]
pub(super) struct Streams {
    /// In the order in which the client has opened them. The first one is the stream of the session.
    lanes: Vec<Lane>,
    /// The stream whose packet the shard has received a part of.
    inside: Option<StreamId>,
    /// The lane that is read first next time.
    next: usize,
    /// The shard has received all of the first packet.
    has_begun: bool,
    routes: HashMap<Exchange, StreamId>,
    out: Out,
    /// The reason why the shard reads no more, once it has read all bytes in front of it.
    end: Option<End>,
}

/// One stream in the direction of the server.
struct Lane {
    id: StreamId,
    walk: Walk,
    /// The beginning of a packet.
    held: Vec<u8>,
    /// The exchange of the packet that has begun.
    request: Option<Exchange>,
    /// Unanswered requests of the stream.
    routes: usize,
    /// The client sends no more on the stream.
    is_over: bool,
}

/// The direction of the client.
#[derive(Default)]
struct Out {
    walk: Walk,
    /// The beginning of an answer, up to its Packet Identifier at most.
    head: Vec<u8>,
    /// The stream of the current packet.
    target: Target,
    /// The head has its target.
    is_resolved: bool,
    /// Bytes of the current packet have been written.
    has_begun: bool,
    /// Nothing more is written behind what is kept.
    is_ending: bool,
}

/// The place of a packet for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Target {
    #[default]
    First,
    Stream(StreamId),
    /// The client has stopped the stream in the middle of the packet, and wants no more of it.
    Nowhere,
}

/// The outcome of a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) bytes: usize,
    /// All that has arrived was read.
    pub(super) is_blocked: bool,
    /// The connection has something to tell its peer: room for more bytes, or the end of a stream.
    pub(super) has_news: bool,
    pub(super) end: Option<End>,
}

/// The end of the session's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Finished,
    Reset,
    /// Another stream has ended inside a packet.
    Cut,
}

impl Lane {
    fn new(id: StreamId) -> Self {
        Self { id, walk: Walk::default(), held: Vec::new(), request: None, routes: 0, is_over: false }
    }
}

impl Streams {
    /// Whether the client has opened a stream.
    pub(super) fn is_open(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Number of streams that are open.
    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Bytes that wait for the rest of their packets.
    pub(super) fn held_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.held.capacity()).sum()
    }

    /// Reads packets of all streams into `buffer`, those of each stream in their order. A buffer of at most [`HELD_MAX`] bytes
    /// may have no room for a packet that is kept.
    pub(super) fn read(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Read {
        while let Some(id) = connection.streams().accept(Dir::Bi) {
            self.lanes.push(Lane::new(id));
        }
        let mut all = Read { is_blocked: true, end: self.end, ..Read::default() };
        if self.end == Some(End::Cut) {
            // Bytes of other streams must not stand behind half a packet.
            return all;
        }
        // The lane that has to be read first is read in turn too.
        let has_first = self.inside.is_some() || !self.has_begun;
        let mut left = self.lanes.len() + usize::from(has_first && self.is_open());
        while left > 0 {
            let at = self.lane_to_read();
            left -= 1;
            let one = self.read_lane(at, connection, &mut buffer[all.bytes..]);
            all.bytes += one.bytes;
            all.is_blocked &= one.is_blocked;
            all.has_news |= one.has_news;
            self.end = self.end.or(one.end);
            all.end = self.end;
            if self.inside.is_some() || self.end == Some(End::Cut) {
                break;
            }
        }
        all.has_news |= self.finish_lanes(connection);
        all
    }

    /// The lane whose packet has begun, or the next one in turn.
    fn lane_to_read(&mut self) -> usize {
        if !self.has_begun {
            return 0;
        }
        let inside = self.inside.and_then(|id| self.lanes.iter().position(|lane| lane.id == id));
        inside.unwrap_or_else(|| {
            let at = self.next % self.lanes.len();
            self.next = at + 1;
            at
        })
    }

    fn read_lane(&mut self, at: usize, connection: &mut Connection, out: &mut [u8]) -> Read {
        let lane = &mut self.lanes[at];
        let held = lane.held.len();
        if out.len() <= held {
            return Read::default();
        }
        let (mut read, error) = receive(connection, lane.id, &mut out[held..]);
        if read.bytes > 0 {
            // The memory is given back: most packets are not cut.
            out[..held].copy_from_slice(&std::mem::take(&mut lane.held));
            read.bytes = self.pass_on(at, held, &out[..held + read.bytes]);
        }
        read.end = error.and_then(|error| self.end_lane(at, error.as_ref()));
        read
    }

    /// Looks at the packets in `bytes`, of which those from `new` on are seen for the first time. Returns how many of them the
    /// shard receives now.
    fn pass_on(&mut self, at: usize, new: usize, bytes: &[u8]) -> usize {
        let (mut passed, mut packets_end) = (new, 0);
        loop {
            let (step, found) = self.lanes[at].walk.step(&bytes[passed..], From::Client);
            passed += step;
            match found {
                Found::Nothing => break,
                Found::Exchange(exchange) => self.lanes[at].request = Some(exchange),
                Found::End => {
                    if let Some(exchange) = self.lanes[at].request.take() {
                        self.note(at, exchange);
                    }
                    packets_end = passed;
                    self.has_begun = true;
                }
            }
        }
        let is_alone = self.lanes.len() == 1;
        let lane = &mut self.lanes[at];
        self.inside = None;
        if packets_end == bytes.len() {
            return packets_end;
        }
        if !is_alone && self.has_begun && lane.walk.packet_len().is_some_and(|len| len <= HELD_MAX) {
            lane.held.extend_from_slice(&bytes[packets_end..]);
            return packets_end;
        }
        self.inside = Some(lane.id);
        bytes.len()
    }

    /// Remembers the stream that a request came from.
    fn note(&mut self, at: usize, exchange: Exchange) {
        self.take_route(exchange);
        if at > 0 && self.routes.len() < ROUTES_MAX {
            self.routes.insert(exchange, self.lanes[at].id);
            self.lanes[at].routes += 1;
        }
    }

    fn take_route(&mut self, exchange: Exchange) -> Option<StreamId> {
        if self.routes.is_empty() {
            return None;
        }
        let id = self.routes.remove(&exchange)?;
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == id) {
            lane.routes -= 1;
        }
        Some(id)
    }

    /// The client has ended a stream in its direction.
    fn end_lane(&mut self, at: usize, error: Option<&ReadError>) -> Option<End> {
        let is_reset = matches!(error, Some(ReadError::Reset(_)));
        let lane = &mut self.lanes[at];
        if at == 0 {
            return Some(if is_reset { End::Reset } else { End::Finished });
        }
        lane.is_over = true;
        if is_reset {
            // The client takes back a packet that the shard has not seen.
            lane.held = Vec::new();
            lane.request = None;
        }
        let is_cut = !lane.held.is_empty() || self.inside == Some(lane.id);
        is_cut.then_some(End::Cut)
    }

    /// Ends streams in the direction of the client that the client has ended, once all their requests are answered. Says whether
    /// there were some.
    fn finish_lanes(&mut self, connection: &mut Connection) -> bool {
        let Self { lanes, out, inside, .. } = self;
        let before = lanes.len();
        lanes.retain(|lane| {
            let is_whole = lane.held.is_empty() && *inside != Some(lane.id);
            let is_answered = lane.routes == 0 && out.target != Target::Stream(lane.id);
            let is_finished = lane.is_over && is_whole && is_answered;
            if is_finished {
                finish(connection, lane.id);
            }
            !is_finished
        });
        lanes.len() < before
    }

    /// Writes packets in pieces, each on its stream. Returns the number of bytes that are written or kept.
    ///
    /// # Errors
    /// If nothing is, for the reason of the stream that is to be written next.
    pub(super) fn write(
        &mut self,
        connection: &mut Connection,
        pieces: &[IoSlice<'_>],
        sending: &Arc<AtomicUsize>,
    ) -> Result<usize, WriteError> {
        let mut written = 0;
        for piece in pieces.iter().flat_map(|piece| piece.chunks(PIECE_BYTES)) {
            let mut passed = 0;
            while passed < piece.len() {
                match self.write_next(connection, &piece[passed..], sending) {
                    Ok(count) => passed += count,
                    Err(_) if written + passed > 0 => return Ok(written + passed),
                    Err(error) => return Err(error),
                }
            }
            written += passed;
        }
        self.finish_lanes(connection);
        Ok(written)
    }

    /// Writes what was kept, if the streams have room now.
    pub(super) fn flush(&mut self, connection: &mut Connection, sending: &Arc<AtomicUsize>) {
        if self.out.is_resolved {
            // Blocked again: the next announcement comes here.
            drop(self.write_head(connection, sending));
            self.finish_lanes(connection);
        }
        if self.out.is_ending {
            self.finish(connection);
        }
    }

    /// Writes bytes that are for one stream. Returns their number, at least 1.
    fn write_next(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
        sending: &Arc<AtomicUsize>,
    ) -> Result<usize, WriteError> {
        if self.out.is_resolved {
            self.write_head(connection, sending)?;
        }
        let begins_answer = self.out.walk.is_between_packets() && self.is_routed(bytes[0]);
        if begins_answer || !self.out.head.is_empty() {
            let taken = self.take_head(bytes);
            if self.out.is_resolved {
                // All of it is kept. An error is met again with the next bytes.
                drop(self.write_head(connection, sending));
            }
            return Ok(taken);
        }
        let run = self.run_len(bytes);
        let taken = self.write_to_target(connection, &bytes[..run], sending)?;
        let mut passed = 0;
        while passed < taken {
            passed += self.out.walk.step(&bytes[passed..taken], From::Server).0;
        }
        self.end_packet();
        Ok(taken)
    }

    /// Whether a packet that begins with this byte may leave on another stream than the first.
    fn is_routed(&self, first_byte: u8) -> bool {
        !self.routes.is_empty() && Walk::is_answer(first_byte)
    }

    /// Keeps the beginning of an answer until its stream is known. Returns the number of bytes.
    fn take_head(&mut self, bytes: &[u8]) -> usize {
        let (taken, found) = self.out.walk.step(bytes, From::Server);
        self.out.head.extend_from_slice(&bytes[..taken]);
        if let Found::Exchange(exchange) = found {
            self.out.target = self.take_route(exchange).map_or(Target::First, Target::Stream);
        }
        self.out.has_begun = false;
        self.out.is_resolved = found != Found::Nothing;
        taken
    }

    fn write_head(
        &mut self,
        connection: &mut Connection,
        sending: &Arc<AtomicUsize>,
    ) -> Result<(), WriteError> {
        while !self.out.head.is_empty() {
            let head = std::mem::take(&mut self.out.head);
            let taken = self.write_to_target(connection, &head, sending);
            self.out.head = head;
            self.out.head.drain(..taken?);
        }
        self.out.is_resolved = false;
        self.end_packet();
        Ok(())
    }

    /// Notes the end of a packet whose last byte was its identifier's.
    fn end_packet(&mut self) {
        if self.out.walk.step(&[], From::Server).1 == Found::End || self.out.walk.is_between_packets() {
            self.out.target = Target::First;
        }
    }

    /// Bytes up to the end of the current packet if it has a target, and otherwise up to the next answer.
    fn run_len(&self, bytes: &[u8]) -> usize {
        if self.routes.is_empty() && self.out.target == Target::First {
            return bytes.len();
        }
        let mut walk = self.out.walk;
        let mut passed = 0;
        while passed < bytes.len() {
            let (step, found) = walk.step(&bytes[passed..], From::Server);
            passed += step;
            let is_end = found == Found::End;
            if is_end
                && (self.out.target != Target::First
                    || bytes.get(passed).is_some_and(|byte| self.is_routed(*byte)))
            {
                break;
            }
        }
        passed
    }

    /// Writes on the stream of the current packet. The first stream replaces one that the client does not read any more. A packet
    /// that has begun there is not continued elsewhere.
    fn write_to_target(
        &mut self,
        connection: &mut Connection,
        bytes: &[u8],
        sending: &Arc<AtomicUsize>,
    ) -> Result<usize, WriteError> {
        if let Target::Stream(id) = self.out.target {
            match write_on(connection, id, bytes, sending) {
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    self.out.target = if self.out.has_begun { Target::Nowhere } else { Target::First };
                }
                result => {
                    self.out.has_begun |= result.is_ok();
                    return result;
                }
            }
        }
        match self.out.target {
            Target::Nowhere => Ok(bytes.len()),
            _ => write_on(connection, self.lanes[0].id, bytes, sending),
        }
    }

    /// Ends all streams in the direction of the client, behind an answer that still waits for room.
    pub(super) fn finish(&mut self, connection: &mut Connection) {
        self.out.is_ending = !self.out.head.is_empty();
        if self.out.is_ending {
            return;
        }
        for lane in &self.lanes {
            finish(connection, lane.id);
        }
    }
}

/// Ends a stream in the direction of the client. One that the client has stopped is reset: it counts as open otherwise.
fn finish(connection: &mut Connection, id: StreamId) {
    if let Err(FinishError::Stopped(code)) = connection.send_stream(id).finish() {
        // The stream may have been reset before.
        drop(connection.send_stream(id).reset(code));
    }
}

/// Reads one stream as far as `out` has room. The second part is there at the end of the stream: an error, or `None` if the
/// client has finished the stream.
fn receive(connection: &mut Connection, id: StreamId, out: &mut [u8]) -> (Read, Option<Option<ReadError>>) {
    let mut read = Read::default();
    let mut stream = connection.recv_stream(id);
    // The end was read before.
    let Ok(mut chunks) = stream.read(true) else {
        return (Read { is_blocked: true, ..read }, Some(None));
    };
    let end = loop {
        match chunks.next(out.len() - read.bytes) {
            Ok(Some(chunk)) => {
                let after = read.bytes + chunk.bytes.len();
                out[read.bytes..after].copy_from_slice(&chunk.bytes);
                read.bytes = after;
                if after == out.len() {
                    break None;
                }
            }
            Ok(None) => break Some(None),
            Err(ReadError::Blocked) => {
                read.is_blocked = true;
                break None;
            }
            Err(error) => break Some(Some(error)),
        }
    };
    read.is_blocked |= end.is_some();
    read.has_news = chunks.finalize().should_transmit();
    (read, end)
}

fn write_on(
    connection: &mut Connection,
    id: StreamId,
    bytes: &[u8],
    sending: &Arc<AtomicUsize>,
) -> Result<usize, WriteError> {
    let mut chunk = [Sending::counted(bytes, sending)];
    connection.send_stream(id).write_chunks(&mut chunk).map(|written| written.bytes)
}
