//! Who walks through the retained messages, and whose turn it is.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use index::{ConnectionId, QueueId, ShardId};
use session::Now;
use topic::TopicFilter;

use crate::command::{CursorId, Reply};
use crate::queue::Queue;
use crate::retained::{Cursor, Retained, Step, Stride, Upto};
use crate::session::{Live, Unfinished};
use crate::{Effects, Ledger, RETRY_MS, Record, Settings};

/// One step of a retained cursor ends with the message that reaches this size, or after looking at as many values, so
/// that nobody waits behind a filter that matches little.
const STRIDE: Stride = Stride { bytes: 64 * 1024, visits: 1_000 };

/// The first look, when a cursor is opened: enough to find that a filter without wildcards has no value.
const FIRST_STRIDE: Stride = Stride { bytes: 1, visits: 2 };

/// How much a cursor brings to a session at a time: it must never fill its queue.
fn stride(settings: &Settings) -> Stride {
    Stride {
        bytes: STRIDE.bytes.min(settings.queue_bytes_max / 4),
        visits: STRIDE.visits.min(settings.queue_messages_max / 4).max(1),
    }
}

/// Whether so little waits for a session that a cursor may bring more: a queue that is never empty does not stop it.
fn is_short(queue: &Queue, settings: &Settings) -> bool {
    let stride = stride(settings);
    queue.len() < stride.visits && queue.bytes() < stride.bytes.max(1)
}

/// The cursors of all connections.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    walks: BTreeMap<WalkKey, Walk>,
    /// Those whose next step was asked for and is not done, in the order in which they asked.
    asked: VecDeque<WalkKey>,
    /// Those whose next step is made at that time: what they had found could not be recorded.
    later: VecDeque<(u64, WalkKey)>,
    /// Connections that are gone. Their cursors are closed bit by bit; nobody asks them for anything any more.
    closing: VecDeque<(ShardId, ConnectionId)>,
}

pub(crate) type WalkKey = (ShardId, ConnectionId, CursorId);

/// A cursor, whether it stands in the queue for a step, and how far one goes.
#[derive(Debug)]
struct Walk {
    cursor: Cursor,
    asked: bool,
    stride: Stride,
    /// It is a lasting session's, which remembers how far it has come.
    is_remembered: bool,
    is_done: bool,
    was_refused: bool,
}

impl Cursors {
    fn open(&mut self, key: WalkKey, cursor: Cursor, is_remembered: bool, to: &mut impl Effects) {
        let walk =
            Walk { cursor, asked: false, stride: STRIDE, is_remembered, is_done: false, was_refused: false };
        self.walks.insert(key, walk);
        let (shard, connection, id) = key;
        to.post(shard, Reply::Begun { connection, id, is_over: false });
    }

    /// The filter of a cursor that a lasting session remembers.
    pub(crate) fn filter(&self, key: WalkKey) -> Option<Box<str>> {
        let walk = self.walks.get(&key).filter(|walk| walk.is_remembered);
        walk.map(|walk| walk.cursor.filter.clone())
    }

    /// Its steps go no further than that.
    fn limit(&mut self, key: WalkKey, stride: Stride) {
        if let Some(walk) = self.walks.get_mut(&key) {
            walk.stride = stride;
        }
    }

    pub(crate) fn ask(&mut self, key: WalkKey) {
        if let Some(walk) = self.walks.get_mut(&key)
            && !walk.asked
        {
            walk.asked = true;
            self.asked.push_back(key);
        }
    }

    pub(crate) fn close(&mut self, key: WalkKey) {
        self.walks.remove(&key);
    }

    /// A connection is gone. [`close_some`](Self::close_some) closes its cursors.
    pub(crate) fn close_all(&mut self, shard: ShardId, connection: ConnectionId) {
        if self.first_of(shard, connection).is_some() {
            self.closing.push_back((shard, connection));
        }
    }

    /// Closes cursors of connections that are gone, each for one unit.
    pub(crate) fn close_some(&mut self, units: &mut usize) {
        while *units > 0
            && let Some((shard, connection)) = self.closing.front().copied()
        {
            *units -= 1;
            match self.first_of(shard, connection) {
                Some(key) => self.close(key),
                None => drop(self.closing.pop_front()),
            }
        }
    }

    fn first_of(&self, shard: ShardId, connection: ConnectionId) -> Option<WalkKey> {
        let all = (shard, connection, CursorId(0))..=(shard, connection, CursorId(u32::MAX));
        self.walks.range(all).next().map(|(key, _)| *key)
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.later.front().map(|(due_ms, _)| *due_ms)
    }

    pub(crate) fn has_work(&self) -> bool {
        !(self.asked.is_empty() && self.closing.is_empty())
    }

    /// One step of each cursor that was asked for one, at most `steps`, while the shards have room.
    pub(crate) fn work(&mut self, steps: usize, retained: &Retained, now: Now, to: &mut impl Effects) {
        while let Some((_, key)) = self.later.pop_front_if(|(due_ms, _)| *due_ms <= now.monotonic_ms) {
            self.ask(key);
        }
        for _ in 0..self.asked.len().min(steps) {
            if !to.has_room() {
                return;
            }
            let Some(key) = self.asked.pop_front() else { break };
            if let Some(walk) = self.walks.get_mut(&key) {
                walk.asked = false;
                self.step(key, retained, now, to);
            }
        }
    }

    /// One step of a cursor. One that found nothing yet goes on by itself.
    fn step(&mut self, key: WalkKey, retained: &Retained, now: Now, to: &mut impl Effects) {
        let Some(walk) = self.walks.get_mut(&key) else { return };
        let Step { messages, done } = retained.step(&mut walk.cursor, walk.stride, now);
        if messages.is_empty() && !done {
            return self.ask(key);
        }
        // What a session that lasts cannot take now is found again: its cursor ends with a step that finds nothing.
        let done = done && (messages.is_empty() || !walk.is_remembered);
        walk.is_done = done;
        if done && !walk.is_remembered {
            self.walks.remove(&key);
        }
        let (shard, connection, id) = key;
        to.post(shard, Reply::Retained { connection, id, messages, done });
    }
}

impl Ledger {
    /// A lasting session is to be brought what is retained: from the beginning, if that was begun before.
    pub(crate) fn begin_cursor(&mut self, queue: QueueId, filter: &str) {
        let Some(session) = self.sessions.find_mut(queue) else { return };
        if session.incarnation.is_some() {
            let place = session.online.as_ref().map(|online| online.place);
            let live = place.map_or(Live::SinceOpen, Live::Soon);
            let begun = Unfinished { live, ..Unfinished::new(filter, self.last_message) };
            let replaced = session.cursors.insert(filter.into(), begun).and_then(|replaced| replaced.running);
            replaced.into_iter().for_each(|key| self.cursors.close(key));
        }
    }

    /// A shard wants to walk through what is retained.
    pub(crate) fn open_cursor(
        &mut self,
        key: WalkKey,
        filter: TopicFilter<'_>,
        queue: Option<QueueId>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let last = self.last_message;
        let mut cursor = self.retained.cursor(filter, last);
        let session = queue.and_then(|queue| self.sessions.find_mut(queue));
        let unfinished = session.and_then(|session| {
            let granted = session.subscriptions.get(filter.as_str())?.qos();
            Some((granted, session.cursors.get_mut(filter.as_str())?, session.online.as_deref()?))
        });
        let is_remembered = unfinished.is_some();
        if let Some((granted, unfinished, online)) = unfinished {
            unfinished.running = Some(key);
            cursor.from = unfinished.from.clone();
            let last_at_most_once = unfinished.live_behind(online, last);
            cursor.upto = Upto { last: unfinished.last, last_at_most_once, granted };
        } else {
            let Step { messages, done } = self.retained.step(&mut cursor, FIRST_STRIDE, now);
            if done && messages.is_empty() {
                let (shard, connection, id) = key;
                return to.post(shard, Reply::Begun { connection, id, is_over: true });
            }
            if !messages.is_empty() {
                // They are found again when they are asked for.
                cursor = self.retained.cursor(filter, last);
            }
        }
        self.cursors.open(key, cursor, is_remembered, to);
    }

    /// What a cursor has found up to there is in its session's queue.
    pub(crate) fn move_cursor(&mut self, queue: QueueId, filter: Option<&str>, from: &[u8]) {
        let session = self.sessions.find_mut(queue);
        let cursor = filter.and_then(|filter| session?.cursors.get_mut(filter));
        cursor.into_iter().for_each(|cursor| cursor.from = from.into());
    }

    /// What a cursor has found could not be recorded: it is to find it again.
    pub(crate) fn rewind_cursor(&mut self, key: WalkKey, queue: QueueId) {
        let Some(walk) = self.cursors.walks.get_mut(&key).filter(|walk| walk.is_remembered) else { return };
        let session = self.sessions.find(queue);
        if let Some(unfinished) = session.and_then(|session| session.cursors.get(&walk.cursor.filter)) {
            walk.cursor.rewind(&unfinished.from);
            walk.was_refused = true;
        }
    }

    /// The client has everything of the last step, or has it waiting.
    pub(crate) fn confirm_cursor(&mut self, key: WalkKey, queue: QueueId, to: &mut impl Effects) {
        let Some(walk) = self.cursors.walks.get(&key).filter(|walk| walk.is_remembered) else { return };
        let Some(session) = self.sessions.find_mut(queue) else { return };
        let Some(unfinished) = session.cursors.get_mut(&walk.cursor.filter) else { return };
        let (name, filter) = (session.incarnation.unwrap_or_default(), Cow::Borrowed(&*walk.cursor.filter));
        let from = &walk.cursor.from;
        let record = match walk.is_done {
            true => Record::CursorDone { session: name, filter },
            false if unfinished.from == *from => return,
            false => Record::CursorMoved { session: name, filter, from: Cow::Borrowed(from) },
        };
        // What is not recorded now is found again when the client comes back.
        let is_recorded = self.replies.commit(&[record], to).is_ok();
        if is_recorded && walk.is_done {
            session.cursors.remove(&walk.cursor.filter);
        } else if is_recorded {
            unfinished.from = from.clone();
        }
        if walk.is_done {
            self.cursors.close(key);
        }
    }

    /// A cursor may go on: for a session that lasts when nothing waits in its queue, which what the cursor brings would
    /// fill otherwise.
    pub(crate) fn credit(&mut self, key: WalkKey, queue: Option<QueueId>, now: Now) {
        if let Some(walk) = self.cursors.walks.get_mut(&key).filter(|walk| walk.was_refused) {
            walk.was_refused = false;
            return self.cursors.later.push_back((now.monotonic_ms + RETRY_MS, key));
        }
        let session = queue.and_then(|queue| self.sessions.find_mut(queue));
        let Some(session) = session else { return self.cursors.ask(key) };
        self.cursors.limit(key, stride(&self.settings));
        match &mut session.online {
            Some(online) if !is_short(&session.queue, &self.settings) => online.parked.push(key),
            _ => self.cursors.ask(key),
        }
    }

    /// Lets the cursors of a session go on if little waits in its queue.
    pub(crate) fn unpark(&mut self, queue: QueueId) {
        let settings = &self.settings;
        let session = self.sessions.find_mut(queue).filter(|session| is_short(&session.queue, settings));
        if let Some(online) = session.and_then(|session| session.online.as_mut()) {
            std::mem::take(&mut online.parked).into_iter().for_each(|key| self.cursors.ask(key));
        }
    }
}
