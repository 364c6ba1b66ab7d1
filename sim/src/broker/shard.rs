//! One shard's thread: a turn reads, handles letters and timers, posts, and writes.

use std::collections::VecDeque;

use broker::{Cause, Shard};
use index::ConnectionId;

use super::hands::{Connection, Hands, Phase};
use super::post::{Addressed, Letter};
use crate::network::{Network, Read};
use crate::random::Random;
use crate::scene::Scene;
use crate::trace::note;

/// A brain with its hands and its inbox.
pub(crate) struct ShardThread {
    number: usize,
    pub(crate) brain: Shard,
    pub(crate) hands: Hands,
    pub(crate) inbox: VecDeque<Letter>,
}

impl ShardThread {
    pub(crate) fn new(number: usize, brain: Shard, hands: Hands) -> Self {
        Self { number, brain, hands, inbox: VecDeque::new() }
    }

    /// Whether anything would wake the thread.
    pub(crate) fn is_awake(&self, scene: &Scene) -> bool {
        let network = &scene.network;
        !self.inbox.is_empty()
            || !network.knocking[self.number].is_empty()
            || !self.hands.dirty.is_empty()
            || self.brain.has_work()
            || self.poll_timeout().is_some_and(|at_ms| at_ms <= scene.now.monotonic_ms)
            || self.hands.iter().any(|(_, c)| may_read(c, network) || may_write(c, network))
    }

    /// Why it does not sleep.
    pub(crate) fn busy(&self, scene: &Scene) -> Vec<String> {
        let network = &scene.network;
        let reasons = [
            ("mail", !self.inbox.is_empty()),
            ("new connections", !network.knocking[self.number].is_empty()),
            ("outputs", !self.hands.dirty.is_empty()),
            ("work", self.brain.has_work()),
            ("a timer", self.poll_timeout().is_some_and(|at_ms| at_ms <= scene.now.monotonic_ms)),
            ("input", self.hands.iter().any(|(_, c)| may_read(c, network))),
            ("sockets with room", self.hands.iter().any(|(_, c)| may_write(c, network))),
        ];
        let reasons = reasons.into_iter().filter(|(_, is_so)| *is_so);
        reasons.map(|(reason, _)| format!("shard {} has {reason}", self.number)).collect()
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.brain.poll_timeout().into_iter().chain(self.hands.next_linger_ms()).min()
    }

    /// The next letter that it has written is posted.
    pub(crate) fn post_one(&mut self) -> Option<Addressed> {
        self.hands.outbox.pop_front()
    }

    /// One turn. How much of what could be done is done is left to chance.
    pub(crate) fn turn(&mut self, scene: &mut Scene, random: &mut Random) {
        let now = scene.now;
        self.hands.now_ms = now.monotonic_ms;
        self.accept(scene, random);
        self.serve_some(scene, random);
        for _ in 0..random.some_of(self.inbox.len()) {
            let Some(letter) = self.inbox.pop_front() else { break };
            self.read_letter(letter, scene);
        }
        self.hands.look_for_unread(&scene.network);
        self.brain.handle_timeout(now, &mut self.hands);
        self.brain.end_turn(now, &mut self.hands);
        self.hands.post();
        self.flush(scene, random);
        while let Some(id) = self.hands.drained.pop() {
            self.brain.drained(id, now, &mut self.hands);
        }
        while let Some(id) = self.hands.failed.pop() {
            self.lost(id, &Cause::Failed(std::io::ErrorKind::ConnectionReset), scene);
        }
        for id in self.hands.lingered() {
            self.hands.forget(id, &mut scene.network);
        }
        self.hands.post();
        for noted in self.hands.notices.drain(..) {
            scene.noticed(self.number, &noted);
        }
    }

    fn accept(&mut self, scene: &mut Scene, random: &mut Random) {
        for _ in 0..random.some_of(scene.network.knocking[self.number].len()) {
            let Some(link) = scene.network.knocking[self.number].pop_front() else { break };
            let id = self.hands.accept(link);
            self.brain.accepted(id, scene.network.link(link).durability, scene.now);
        }
    }

    /// Serves some of those that may have something to read, beginning anywhere.
    fn serve_some(&mut self, scene: &mut Scene, random: &mut Random) {
        let readable = self.hands.iter().filter(|(_, connection)| may_read(connection, &scene.network));
        let mut ready: Vec<ConnectionId> = readable.map(|(id, _)| id).collect();
        if ready.is_empty() {
            return;
        }
        let first = random.below(ready.len());
        ready.rotate_left(first);
        ready.truncate(random.some_of(ready.len()));
        for id in ready {
            self.serve(id, scene, random);
        }
    }

    /// Reads once from a connection, and feeds its brain.
    fn serve(&mut self, id: ConnectionId, scene: &mut Scene, random: &mut Random) {
        let Some(connection) = self.hands.get(id) else { return };
        match connection.phase {
            Phase::Open if connection.is_paused => return,
            Phase::Open => {}
            Phase::Closing | Phase::Lingering => return self.discard(id, scene),
        }
        if !self.brain.may_read(id, scene.now, &mut self.hands) {
            return;
        }
        let Some(connection) = self.hands.get_mut(id) else { return };
        if std::mem::take(&mut connection.refeed) && !connection.unparsed.is_empty() {
            self.feed(id, &[], scene);
        }
        let Some(connection) = self.hands.get(id) else { return };
        if connection.is_paused || connection.phase != Phase::Open {
            return;
        }
        let (link, read_bytes_max) = (connection.link, self.hands.board.bounds.read);
        match scene.network.broker_reads(link, random.between(1, read_bytes_max)) {
            Read::Bytes(bytes) => self.feed(id, &bytes, scene),
            Read::Nothing => {}
            Read::EndOfStream => self.lost(id, &Cause::EndOfStream, scene),
            Read::Reset => self.lost(id, &Cause::Failed(std::io::ErrorKind::ConnectionReset), scene),
        }
    }

    /// Hands what was read to the brain, behind what was left over.
    fn feed(&mut self, id: ConnectionId, bytes: &[u8], scene: &Scene) {
        let Some(connection) = self.hands.get_mut(id) else { return };
        let mut all = std::mem::take(&mut connection.unparsed);
        all.extend_from_slice(bytes);
        let consumed = self.brain.received(id, &all, scene.now, &mut self.hands);
        if let Some(connection) = self.hands.get_mut(id).filter(|c| c.phase == Phase::Open) {
            all.drain(..consumed);
            connection.unparsed = all;
        }
    }

    /// What still comes on a connection that the broker has closed is thrown away.
    fn discard(&mut self, id: ConnectionId, scene: &mut Scene) {
        let Some(connection) = self.hands.get(id) else { return };
        match scene.network.broker_reads(connection.link, usize::MAX) {
            Read::Bytes(_) | Read::Nothing => {}
            Read::EndOfStream | Read::Reset => self.hands.forget(id, &mut scene.network),
        }
    }

    fn read_letter(&mut self, letter: Letter, scene: &mut Scene) {
        let now = scene.now;
        let (brain, hands) = (&mut self.brain, &mut self.hands);
        match letter {
            Letter::Mail { from, batch } => {
                let bytes = batch.drain(|mail| brain.mail(mail, now, hands));
                if hands.board.mail_read(from, self.number, bytes) {
                    let read = Letter::MailRead(index::ShardId::new(self.number));
                    hands.outbox.push_back(Addressed::Shard(from, read));
                }
            }
            Letter::Replies { replies, bytes } => {
                hands.board.answers_read(self.number, bytes);
                for reply in replies {
                    note!(scene.trace, ("shard {}", self.number), "is told {reply:?}");
                    brain.reply(reply, now, hands);
                }
            }
            Letter::MailRead(shard) => brain.mail_resumed(shard, now, hands),
            Letter::CommandsRead => brain.ledger_resumed(now, hands),
        }
    }

    /// Writes to some of the connections that have something new, and to all whose sockets have room again.
    fn flush(&mut self, scene: &mut Scene, random: &mut Random) {
        let mut dirty = std::mem::take(&mut self.hands.dirty);
        let later = dirty.split_off(random.some_of(dirty.len()));
        let unblocked = self.hands.iter().filter(|(_, c)| may_write(c, &scene.network));
        let unblocked: Vec<ConnectionId> = unblocked.map(|(id, _)| id).collect();
        for id in dirty.into_iter().chain(unblocked) {
            let all = self.hands.get(id).map_or(0, |_| self.hands.board.bounds.socket);
            let bytes_max = if random.chance(700) { usize::MAX } else { random.between(0, all) };
            self.hands.write(id, bytes_max, &mut scene.network);
        }
        self.hands.dirty.extend(later);
    }

    /// The peer is gone: what was sent to it leaves if it still can, then everything is freed.
    fn lost(&mut self, id: ConnectionId, cause: &Cause, scene: &mut Scene) {
        self.brain.closed(id, cause, scene.now, &mut self.hands);
        self.hands.write(id, usize::MAX, &mut scene.network);
        self.hands.failed.retain(|failed| *failed != id);
        self.hands.forget(id, &mut scene.network);
    }
}

fn may_read(connection: &Connection, network: &Network) -> bool {
    let refeed = connection.refeed && connection.phase == Phase::Open;
    !connection.is_paused && (refeed || network.broker_may_read(connection.link))
}

/// Whether a socket that took less than there was takes more now, or is dead.
fn may_write(connection: &Connection, network: &Network) -> bool {
    connection.is_blocked && network.broker_may_write(connection.link).is_none_or(|room| room > 0)
}
