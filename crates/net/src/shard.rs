//! The event loop of one shard. A turn: wait, read, route, hand over mail, write.

use std::io::{self, Read};
use std::time::Duration;

use broker::{Cause, Shard};
use index::ConnectionId;
use ledger::Reply;
use mio::{Events, Poll, Token};

use crate::clock::Clock;
use crate::connection::Phase;
use crate::io::{Io, connection_of};
use crate::listener::Accepted;
use crate::listener::Listeners;
use crate::mail::Note;
use crate::pile::{Piece, Pile};

/// One read takes at most this much.
const READ_BYTES: usize = 64 * 1024;
/// The beginning of a packet up to this size is copied in front of what is read next. A longer one stays
/// where it is, and what is read next is copied behind it: however few bytes arrive at a time, each read
/// costs little beyond them.
const CARRY_BYTES: usize = 4 * 1024;
/// Maximum number of sockets that a turn hears of. It serves fewer (`STAYING_PER_TURN` and `LEAVING_PER_TURN` in `ready.rs`): to
/// choose in turn from connections that stay and those whose peers are gone, it has to know of both.
const EVENTS_PER_TURN: usize = 1_024;
/// It stops reading after about this much, so that what it has read is soon handed on; the rest comes in
/// the next turn, which then follows at once.
const READ_BYTES_PER_TURN: u64 = 1024 * 1024;
/// After the last goodbye the slowest client has this long to take it.
const GOODBYE_MS: u64 = 2_000;

/// Mail and commands announce themselves under this token.
pub(crate) const WAKE: Token = Token(usize::MAX);

pub(crate) struct EventLoop {
    poll: Poll,
    brain: Shard,
    io: Io,
    clock: Clock,
    listeners: Option<Listeners>,
    pile: Pile,
    buffer: Box<[u8]>,
    /// When a shutdown ends at the latest.
    ends_ms: Option<u64>,
}

impl EventLoop {
    pub(crate) fn new(poll: Poll, brain: Shard, io: Io, clock: Clock, listeners: Option<Listeners>) -> Self {
        let buffer = vec![0; CARRY_BYTES + READ_BYTES].into_boxed_slice();
        Self { poll, brain, io, clock, listeners, pile: Pile::default(), buffer, ends_ms: None }
    }

    /// Turns until a shutdown is done.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !self.is_done() {
            let timeout = self.timeout();
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                Err(error) => return Err(error),
            }
            self.turn(&events);
        }
        self.io.log.tell_left_out(u64::MAX);
        Ok(())
    }

    fn turn(&mut self, events: &Events) {
        self.clock.tick();
        self.io.now_ms = self.clock.now().monotonic_ms;
        self.io.post.look();
        for event in events {
            match event.token() {
                WAKE => {}
                token if Listeners::owns(token) => self.listeners.iter_mut().for_each(|l| l.woken(token)),
                token => self.io.woken(connection_of(token), event),
            }
        }
        self.accept();
        self.serve_some();
        self.read_letters();
        self.brain.handle_timeout(self.clock.now(), &mut self.io);
        self.brain.end_turn(self.clock.now(), &mut self.io);
        self.io.log.tell_left_out(self.io.now_ms);
        self.io.post.send();
        self.io.flush();
        self.after_flush();
        // What that has brought up must not wait for something else to wake this thread: mail and commands
        // leave now, and connections that have something to write make the next turn follow at once.
        self.io.post.send();
    }

    /// What the sockets said while they were written: some have room again, some are gone.
    fn after_flush(&mut self) {
        while let Some(id) = self.io.drained.pop() {
            self.brain.drained(id, self.clock.now(), &mut self.io);
        }
        while let Some((id, error)) = self.io.failed.pop() {
            self.lost(id, &Cause::Failed(error.kind()));
        }
        self.io.end_lingering();
    }

    fn timeout(&self) -> Option<Duration> {
        if self.io.is_busy() || self.brain.has_work() || !self.pile.is_empty() {
            return Some(Duration::ZERO);
        }
        let timers = [
            self.brain.poll_timeout(),
            self.io.next_linger_ms(),
            self.io.log.poll_timeout(),
            self.listeners.as_ref().and_then(Listeners::resume_ms),
            self.ends_ms,
        ];
        let next = timers.into_iter().flatten().min()?;
        Some(Duration::from_millis(next.saturating_sub(self.clock.current_ms())))
    }

    fn is_done(&self) -> bool {
        self.ends_ms
            .is_some_and(|ends| self.io.connections.is_empty() || self.clock.now().monotonic_ms >= ends)
    }

    fn accept(&mut self) {
        let Some(listeners) = &mut self.listeners else { return };
        let now_ms = self.clock.now().monotonic_ms;
        let Io { post, log, shard, .. } = &mut self.io;
        let accepted = listeners.accept(post.board(), *shard, log, now_ms);
        for accepted in accepted {
            admit(&mut self.brain, &mut self.io, &self.clock, accepted);
        }
    }

    fn read_letters(&mut self) {
        let mut pile = std::mem::take(&mut self.pile);
        pile.take(&self.io.post.board().shards[self.io.shard.number()]);
        pile.read(|piece| match piece {
            Piece::Reply(reply) => self.read_reply(reply),
            Piece::RepliesRead(bytes) => self.io.post.board().replies_handled(self.io.shard, bytes),
            Piece::Note(note) => self.read_note(note),
        });
        self.pile = pile;
    }

    fn read_reply(&mut self, reply: Reply) {
        if let Reply::Evict { connection } = reply
            && self.io.connections.get(connection).is_some_and(|evicted| evicted.ending && evicted.queued)
        {
            // It stands in the queue of those who leave, and the same client is back already: its DISCONNECT counts.
            self.serve(connection);
        }
        self.brain.reply(reply, self.clock.now(), &mut self.io);
    }

    fn read_note(&mut self, note: Note) {
        let now = self.clock.now();
        let (brain, io) = (&mut self.brain, &mut self.io);
        match note {
            Note::Mail { from, mut batch } => {
                batch.drain(|mail| brain.mail(mail, now, io));
                io.post.read(from, batch);
            }
            // Dealt out before the listeners closed: nobody would tell it goodbye any more.
            Note::Accepted(Accepted { socket, .. }) if self.ends_ms.is_some() => {
                drop(socket);
                io.post.left();
            }
            Note::Accepted(accepted) => admit(brain, io, &self.clock, accepted),
            Note::MailRead(shard) => brain.mail_resumed(shard, now, io),
            Note::CommandsRead => brain.ledger_resumed(now, io),
            Note::Shutdown => {
                self.listeners = None;
                brain.shutdown(now, io);
                self.ends_ms = Some(now.monotonic_ms + GOODBYE_MS);
            }
        }
    }

    /// Serves those that may have something to read.
    fn serve_some(&mut self) {
        let received = |io: &Io| io.counters.bytes_received.value();
        let before = received(&self.io);
        let mut share = self.io.ready.share();
        while let Some(id) = self.io.ready.next(&mut share) {
            self.serve(id);
            if received(&self.io) - before >= READ_BYTES_PER_TURN {
                break;
            }
        }
    }

    /// Reads once from a connection that may have something, and feeds its brain.
    fn serve(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        connection.queued = false;
        match connection.phase {
            Phase::Open => {}
            Phase::Closing => return,
            Phase::Lingering => return self.discard(id),
        }
        if connection.paused || !self.brain.may_read(id, self.clock.now(), &mut self.io) {
            return;
        }
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        if std::mem::take(&mut connection.refeed) && !connection.unparsed.is_empty() {
            let bytes = std::mem::take(&mut connection.unparsed);
            let consumed = self.brain.received(id, &bytes, self.clock.now(), &mut self.io);
            self.keep_long(id, bytes, consumed);
        }
        let Some(connection) = self.io.connections.get(id) else { return };
        if connection.readable && !connection.paused && connection.phase == Phase::Open {
            self.read(id);
        }
    }

    fn read(&mut self, id: ConnectionId) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        match connection.socket.read(&mut self.buffer[CARRY_BYTES..]) {
            Ok(0) => self.lost(id, &Cause::EndOfStream),
            Ok(count) => {
                // A short read has emptied the socket: what comes later is reported anew, but for the end
                // that has been reported already.
                connection.readable = count == READ_BYTES || connection.ending;
                self.io.counters.bytes_received.add(count as u64);
                self.feed(id, count);
                if self.io.connections.get(id).is_some_and(|c| c.readable && !c.paused) {
                    self.io.make_ready(id);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.readable = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.io.make_ready(id),
            Err(error) => self.lost(id, &Cause::Failed(error.kind())),
        }
    }

    /// Hands what was read to the brain, behind what was carried over from earlier reads.
    fn feed(&mut self, id: ConnectionId, count: usize) {
        let Some(connection) = self.io.connections.get_mut(id) else { return };
        let now = self.clock.now();
        let end = CARRY_BYTES + count;
        let Some(start) = CARRY_BYTES.checked_sub(connection.unparsed.len()) else {
            let mut bytes = std::mem::take(&mut connection.unparsed);
            bytes.extend_from_slice(&self.buffer[CARRY_BYTES..end]);
            let consumed = self.brain.received(id, &bytes, now, &mut self.io);
            return self.keep_long(id, bytes, consumed);
        };
        self.buffer[start..CARRY_BYTES].copy_from_slice(&connection.unparsed);
        let consumed = self.brain.received(id, &self.buffer[start..end], now, &mut self.io);
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
        match connection.socket.read(&mut self.buffer) {
            Ok(count) if count == self.buffer.len() || (count > 0 && connection.ending) => {
                self.io.make_ready(id);
            }
            Ok(count) if count > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.io.forget(id),
        }
    }

    /// The peer is gone: what was sent to it leaves if it still can, then everything is freed.
    fn lost(&mut self, id: ConnectionId, cause: &Cause) {
        self.brain.closed(id, cause, self.clock.now(), &mut self.io);
        self.io.finish(id);
    }
}

fn admit(brain: &mut Shard, io: &mut Io, clock: &Clock, Accepted { socket, peer, durability }: Accepted) {
    if io.post.board().budget.is_full() {
        io.counters.refused_connections_memory.add(1);
        return io.post.left();
    }
    match io.add(socket, peer) {
        Ok(id) => brain.accepted(id, durability, clock.now()),
        Err(error) => {
            tracing::warn!(%peer, %error, "cannot watch a new connection; it is closed");
            io.post.left();
        }
    }
}

pub(crate) fn new_poll() -> io::Result<(Poll, mio::Waker)> {
    let poll = Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), WAKE)?;
    Ok((poll, waker))
}
