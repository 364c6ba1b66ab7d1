//! Turns of one shard: read, route, hand over mail, write.

use std::io;
use std::sync::Arc;

use base::{ConnectionId, Now};
use broker::{Cause, Counts, Dismissal, Shard};
use protocol::Reply;
use stream::{Readiness, Received, Stream};

use crate::Sleep;
use crate::ask::{self, ShardAnswer};
use crate::connection::Phase;
use crate::departure::Departures;
use crate::faults::Fault;
use crate::host::Host;
use crate::io::Io;
use crate::letter::{Accepted, Letter, Limits, Note};
use crate::pile::{Piece, Pile};
use crate::tracer::Tracer;

/// A turn stops reading after about this much, so that what it has read is soon handed on; the rest comes in
/// the next turn, which then follows at once.
const READ_BYTES_PER_TURN: u64 = 1024 * 1024;
/// The same for steps of the brain: short packets cost more than their bytes say.
const STEPS_PER_TURN: u64 = 8_192;
/// The same for reads of handshakes: a signature takes up to a millisecond.
const COSTLY_READS_PER_TURN: usize = 8;
/// After the last goodbye the slowest client has this long to take it.
const GOODBYE_MS: u64 = 2_000;

/// The event loop of a shard.
///
/// For each turn call [`begin`](Self::begin), then [`woken`](Self::woken) for each stream that has changed and
/// [`admit`](Self::admit) for each new connection, then [`turn`](Self::turn). The thread may sleep as long as
/// [`sleep`](Self::sleep) says. Wake it when a letter arrives and when a stream has changed.
pub struct ShardLoop<H: Host> {
    brain: Shard,
    io: Io<H>,
    now: Now,
    pile: Pile<H::Stream>,
    fresh: Vec<Letter<H::Stream>>,
    buffer: Box<[u8]>,
    /// Reads of handshakes in this turn.
    costly_reads: usize,
    /// Connections that another one takes the place of when all that was read from them is taken in.
    evicted: Vec<ConnectionId>,
    /// Connections of listeners that a reload has removed or changed.
    departures: Departures,
    /// When a shutdown ends at the latest.
    ends_ms: Option<u64>,
}

impl<H: Host> ShardLoop<H> {
    /// A shard that has no connections yet.
    pub fn new(brain: Shard, io: Io<H>, now: Now) -> Self {
        let buffer = vec![0; io.bounds.carry + io.bounds.read.max(io.bounds.read_on)].into_boxed_slice();
        Self {
            brain,
            io,
            now,
            pile: Pile::default(),
            fresh: Vec::new(),
            buffer,
            evicted: Vec::new(),
            costly_reads: 0,
            departures: Departures::default(),
            ends_ms: None,
        }
    }

    /// The host of this shard.
    pub fn host(&mut self) -> &mut H {
        &mut self.io.host
    }

    /// Begins a turn, at this moment.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
        self.io.now_ms = now.monotonic_ms;
        self.io.census.begin_turn(now.monotonic_ms);
        self.io.tracer.take_if(|tracer| !tracer.begin_turn(now.unix_ms));
        self.io.post.look();
    }

    /// The same, to be looked at.
    pub fn host_ref(&self) -> &H {
        &self.io.host
    }

    /// Bytes that wait for the connection with the most, for the simulator to check against its bound.
    pub fn fullest_output_bytes(&self) -> usize {
        self.io.fullest_output_bytes()
    }

    /// The counts of connections that a listener accepts or refuses, by its place.
    pub fn door_counts(&mut self, counted_as: u16) -> Arc<Counts> {
        self.brain.door_counts(counted_as)
    }

    /// Notes a change of a stream.
    pub fn woken(&mut self, id: ConnectionId, readiness: Readiness) {
        self.io.woken(id, readiness);
    }

    /// Takes in a new connection, for which this shard was charged ([`Board::charge`](crate::Board::charge)). It is closed
    /// if there is no memory, if it cannot be watched, or if the shard is ending.
    pub fn admit(&mut self, accepted: Accepted<H::Stream>) {
        let Accepted { stream, peer, admission, listener } = accepted;
        // It was dealt out before the listeners closed, and nobody would say goodbye to it.
        if self.is_ending() {
            return self.io.post.left(listener);
        }
        let counts = self.brain.door_counts(admission.counted_as);
        if self.io.post.board().budget().is_closed() {
            self.io.counters.refused_connections_memory.add(1);
            counts.refused_connections.add(1);
            return self.io.post.left(listener);
        }
        match self.io.add(stream, peer, (listener, counts)) {
            Ok(id) => self.brain.accepted(id, admission, self.now),
            Err(error) => {
                self.io.host.not_watched(&peer, &error);
                self.io.post.left(listener);
            }
        }
    }

    /// Reads, routes, hands over mail, writes.
    pub fn turn(&mut self) {
        self.serve_some();
        self.evict_some();
        self.read_letters();
        self.dismiss_some();
        self.brain.handle_timeout(self.now, &mut self.io);
        self.brain.end_turn(self.now, &mut self.io);
        self.send();
        self.io.trace_clients(&self.brain);
        self.io.flush();
        self.after_flush();
        // Mail and commands of these calls leave now, because nothing else may wake this thread. Outputs that they
        // have filled make the next turn follow at once.
        self.send();
    }

    fn send(&mut self) {
        let Io { post, host, .. } = &mut self.io;
        post.send(host);
    }

    /// Tells the brain which outputs have room again after the flush, and which streams have failed.
    fn after_flush(&mut self) {
        while let Some(id) = self.io.drained.pop() {
            self.brain.drained(id, self.now, &mut self.io);
        }
        while let Some((id, error)) = self.io.failed.pop() {
            self.failed(id, &error);
        }
        self.io.end_lingering();
        self.io.census.end_turn(&self.brain);
    }

    /// How long the thread may sleep.
    pub fn sleep(&self) -> Sleep {
        let is_tracing = self.io.tracer.as_ref().is_some_and(|tracer| tracer.is_busy());
        let is_busy = self.io.is_busy() || self.brain.has_work();
        if is_busy || is_tracing || !self.pile.is_empty() || !self.departures.is_empty() {
            return Sleep::No;
        }
        Sleep::until([self.brain.poll_timeout(), self.io.next_linger_ms(), self.ends_ms])
    }

    /// Whether the shard says goodbye to its clients and takes in no more.
    pub fn is_ending(&self) -> bool {
        self.ends_ms.is_some()
    }

    /// Whether a shutdown is done.
    pub fn is_done(&self) -> bool {
        self.ends_ms.is_some_and(|ends| self.io.connections.is_empty() || self.now.monotonic_ms >= ends)
    }

    fn read_letters(&mut self) {
        self.io.host.take_letters(&mut self.fresh);
        if Fault::DismissalInFront.is_planted() {
            self.fresh.sort_by_key(|letter| !matches!(letter, Letter::Note(Note::Dismiss { .. })));
        }
        let mut pile = std::mem::take(&mut self.pile);
        pile.take(&mut self.fresh);
        pile.read(self.io.bounds.letters, |piece| match piece {
            Piece::Reply(reply) => self.read_reply(reply),
            Piece::AnswersRead(bytes) => {
                let Io { post, host, .. } = &mut self.io;
                post.answers_read(bytes, host);
            }
            Piece::Note(note) => self.read_note(note),
        });
        self.pile = pile;
    }

    fn read_reply(&mut self, reply: Reply) {
        if let Reply::Evict { connection } = reply
            && self.io.connections.get(connection).is_some_and(|evicted| evicted.ending && evicted.queued)
        {
            // It stands in the queue of those who leave, and the same client is back already: its DISCONNECT counts (rule 9
            // of `protocol::order`).
            self.serve(connection);
            if self.has_more(connection) {
                return self.evicted.push(connection);
            }
        }
        self.brain.reply(reply, self.now, &mut self.io);
    }

    /// Whether a read of many short packets is not taken in yet. The rest comes in turn with other connections.
    fn has_more(&self, id: ConnectionId) -> bool {
        self.io.connections.get(id).is_some_and(|connection| connection.queued && connection.refeed)
    }

    /// Lets go connections that were to be read to the end first.
    fn evict_some(&mut self) {
        let (waiting, evicted) =
            std::mem::take(&mut self.evicted).into_iter().partition(|id| self.has_more(*id));
        self.evicted = waiting;
        let evicted: Vec<ConnectionId> = evicted;
        for connection in evicted {
            self.brain.reply(Reply::Evict { connection }, self.now, &mut self.io);
        }
    }

    fn read_note(&mut self, note: Note<H::Stream>) {
        let now = self.now;
        let (brain, io) = (&mut self.brain, &mut self.io);
        match note {
            Note::Mail { from, mut batch } => {
                batch.drain(|mail| brain.mail(mail, now, io));
                io.post.mail_read(from, batch, &mut io.host);
            }
            Note::Accepted(accepted) => self.admit(accepted),
            Note::MailRead(shard) => brain.mail_resumed(shard, now, io),
            Note::CommandsRead => brain.ledger_resumed(now, io),
            Note::Verified { connection, checked } => brain.verified(connection, checked, now, io),
            Note::Ask(ask) => {
                let answer = brain.ask(ask.question, now, io);
                let links = ask::connections(&answer).into_iter().map(|id| io.link(id)).collect();
                (ask.answer)(ShardAnswer { answer, links });
            }
            Note::Census(ask) => (ask.answer)(io.census.answer(ask.list)),
            Note::Controlled { connection, answer } => brain.controlled(connection, &answer, now, io),
            Note::UsersChanged => brain.users_changed(),
            Note::Limits(limits) => self.change_limits(limits),
            Note::Trace(trace) => io.tracer = Some(Box::new(Tracer::new(trace, brain.id(), now.unix_ms))),
            Note::TraceEnded(number) => io.end_trace(number),
            Note::Dismiss { .. } if Fault::ForgottenDismissal.is_planted() => {}
            Note::Dismiss { listener, whom } => self.departures.begin(listener, whom),
            Note::Shutdown => {
                brain.shutdown(now, io);
                self.ends_ms = Some(now.monotonic_ms + GOODBYE_MS);
            }
        }
    }

    fn change_limits(&mut self, limits: Limits) {
        let Limits { settings, output_bytes, outputs_bytes, reload } = limits;
        if !Fault::ForgottenLimits.is_planted() {
            self.brain.change_settings(settings);
        }
        self.io.change_bounds(output_bytes, outputs_bytes);
        self.io.host.reloaded(reload);
    }

    /// Connections of this listener leave, in this turn and the next ones. No more come under its number.
    pub fn dismiss(&mut self, listener: u16, whom: Dismissal) {
        self.departures.begin(listener, whom);
    }

    /// Ends some connections of listeners that a reload has removed or changed.
    fn dismiss_some(&mut self) {
        let Some((whom, some)) = self.departures.take_some(&self.io.connections) else { return };
        for id in some {
            self.brain.dismiss(id, whom, self.now, &mut self.io);
        }
    }

    /// Serves those that may have something to read.
    fn serve_some(&mut self) {
        let received = |io: &Io<H>| io.counters.bytes_received.value();
        let (before, steps) = (received(&self.io), self.brain.steps());
        self.costly_reads = 0;
        let mut share = self.io.ready.share();
        while let Some(id) = self.io.ready.next(&mut share) {
            self.serve(id);
            if received(&self.io) - before >= READ_BYTES_PER_TURN
                || self.brain.steps() - steps >= STEPS_PER_TURN
                || self.costly_reads >= COSTLY_READS_PER_TURN
            {
                break;
            }
        }
    }

    /// Serves a connection that may have something: its bytes, or its end.
    fn serve(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        connection.queued = false;
        match connection.phase {
            Phase::Open => {}
            Phase::Closing => return,
            Phase::Lingering => return self.discard(id),
        }
        if !connection.paused && self.brain.may_read(id, self.now, &mut self.io) {
            self.take_in(id);
        }
        self.end_if_gone(id);
    }

    /// Ends a connection whose peer has gone while its login waits: nothing that the peer has sent was accepted yet. If there are
    /// packets behind CONNECT, the login goes on, unless the stream has failed: a client may send them and close its direction
    /// before it is let in.
    fn end_if_gone(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get(id).filter(|found| found.paused && found.ending)
        else {
            return;
        };
        if !self.brain.is_logging_in(id) {
            return;
        }
        if connection.failed {
            self.lost(id, &Cause::Failed(io::ErrorKind::ConnectionReset));
        } else if connection.readable && connection.unparsed.is_empty() {
            // The brain takes nothing in, and this is not repeated: one read is kept at most.
            self.read(id);
        }
    }

    /// Feeds the brain of a connection that is not paused, and reads once.
    fn take_in(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        if std::mem::take(&mut connection.refeed) && !connection.unparsed.is_empty() {
            let bytes = std::mem::take(&mut connection.unparsed);
            let consumed = self.hand_over(id, &bytes);
            self.keep_long(id, bytes, consumed);
        }
        let Some(connection) = self.io.connections.get(id) else { return };
        let has_more = connection.refeed && !connection.unparsed.is_empty();
        if connection.readable && !connection.paused && !has_more && connection.phase == Phase::Open {
            self.read(id);
        }
    }

    fn read(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        let carry = self.io.bounds.carry;
        let was_costly = connection.stream.is_costly();
        let is_long = connection.unparsed.len() > carry;
        let bytes_max = if is_long { self.io.bounds.read_on } else { self.io.bounds.read };
        let read = connection.stream.read(&mut self.buffer[carry..carry + bytes_max]);
        self.costly_reads += usize::from(was_costly || connection.stream.is_costly());
        self.io.note_layers(id);
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        match read {
            Ok(Received { bytes: 0, .. }) => self.lost(id, &Cause::EndOfStream),
            Ok(Received { bytes: count, is_drained }) => {
                // Later bytes are announced anew. The end of the stream was announced once, and is not again.
                connection.readable = (!is_drained && !Fault::LostWakeUp.is_planted()) || connection.ending;
                self.io.counters.bytes_received.add(count as u64);
                connection.counts.bytes_received.add(count as u64);
                self.feed(id, count);
                if self.io.connections.get(id).is_some_and(|c| c.readable && !c.paused) {
                    self.io.make_ready(id);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.io.make_ready(id),
            Err(error) => self.failed(id, &error),
        }
    }

    /// A stream has failed, or a layer refuses what the peer has sent.
    fn failed(&mut self, id: ConnectionId, error: &io::Error) {
        match error.get_ref().filter(|_| error.kind() == io::ErrorKind::InvalidData) {
            Some(rejected) => self.lost(id, &Cause::Rejected(&rejected.to_string())),
            None => self.lost(id, &Cause::Failed(error.kind())),
        }
    }

    /// Hands what was read to the brain, behind what was carried over from earlier reads.
    fn feed(&mut self, id: ConnectionId, count: usize) {
        if self.io.tracer.is_some() {
            let read = &self.buffer[self.io.bounds.carry..][..count];
            self.io.trace_read(id, read, &self.brain);
        }
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        let carry = self.io.bounds.carry;
        let end = carry + count;
        let Some(start) = carry.checked_sub(connection.unparsed.len()) else {
            let mut bytes = std::mem::take(&mut connection.unparsed);
            bytes.extend_from_slice(&self.buffer[carry..end]);
            let consumed = self.hand_over(id, &bytes);
            return self.keep_long(id, bytes, consumed);
        };
        self.buffer[start..carry].copy_from_slice(&connection.unparsed);
        let read = &self.buffer[start..end];
        let consumed = hand_over(&mut self.brain, &mut self.io, id, read, self.now);
        let rest = start + consumed..end;
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        connection.unparsed.clear();
        if connection.phase == Phase::Open && !rest.is_empty() {
            connection.unparsed.extend_from_slice(&self.buffer[rest]);
        } else if connection.unparsed.capacity() > 0 {
            connection.unparsed = Vec::new();
        }
        self.io.note_unparsed(id);
    }

    fn hand_over(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        hand_over(&mut self.brain, &mut self.io, id, bytes, self.now)
    }

    /// Keeps what was not consumed of bytes that have a buffer of their own.
    fn keep_long(&mut self, id: ConnectionId, bytes: Vec<u8>, consumed: usize) {
        if consumed > 0 {
            return self.keep(id, &bytes[consumed..]);
        }
        if let Some(connection) = self.io.connections.get_mut(id).filter(|c| c.phase == Phase::Open) {
            connection.unparsed = bytes;
        }
        self.io.note_unparsed(id);
    }

    fn keep(&mut self, id: ConnectionId, rest: &[u8]) {
        if let Some(connection) = self.io.connections.get_mut(id).filter(|c| c.phase == Phase::Open) {
            connection.unparsed.extend_from_slice(rest);
        }
        self.io.note_unparsed(id);
    }

    /// Reads what a connection that we have closed still sends, until its peer closes too.
    fn discard(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        match connection.stream.read(&mut self.buffer) {
            Ok(Received { bytes: 0, .. }) => self.io.forget(id),
            Ok(Received { is_drained: true, .. }) if !connection.ending => {}
            Ok(_) => self.io.make_ready(id),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.io.make_ready(id),
            Err(_) => self.io.forget(id),
        }
    }

    /// The peer is gone: what was sent to it leaves if it still can, then everything is freed.
    fn lost(&mut self, id: ConnectionId, cause: &Cause<'_>) {
        self.brain.closed(id, cause, self.now, &mut self.io);
        self.io.finish(id);
    }
}

/// Hands bytes to the brain. Returns how many it is done with.
fn hand_over<H: Host>(brain: &mut Shard, io: &mut Io<H>, id: ConnectionId, bytes: &[u8], now: Now) -> usize {
    let is_seen = io.tracer.is_some() && io.trace_publisher(id, brain);
    let chosen = io.choose_read(id, brain);
    let consumed = brain.received(id, bytes, now, io);
    if let Some(chosen) = chosen {
        io.count_read(id, chosen, &bytes[..consumed], brain);
    }
    if is_seen {
        io.trace_published(&bytes[..consumed]);
    }
    consumed
}

#[cfg(test)]
mod tests;
