//! Who walks through the retained messages, and whose turn it is.

use std::collections::{BTreeMap, VecDeque};

use index::{ConnectionId, QueueId, ShardId};
use session::Now;
use topic::TopicFilter;

use crate::command::{CursorId, Reply};
use crate::retained::{Cursor, Retained, Step, Stride};
use crate::{Effects, Ledger};

/// One step of a retained cursor ends with the message that reaches this size, or after looking at as many values, so
/// that nobody waits behind a filter that matches little.
const STRIDE: Stride = Stride { bytes: 64 * 1024, visits: 1_000 };

/// The cursors of all connections.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    walks: BTreeMap<WalkKey, Walk>,
    /// Those whose next step was asked for and is not done, in the order in which they asked.
    asked: VecDeque<WalkKey>,
}

pub(crate) type WalkKey = (ShardId, ConnectionId, CursorId);

/// A cursor, whether it stands in the queue for a step, and how far one goes.
#[derive(Debug)]
struct Walk {
    cursor: Cursor,
    asked: bool,
    stride: Stride,
}

impl Cursors {
    pub(crate) fn open(
        &mut self,
        key: WalkKey,
        filter: TopicFilter<'_>,
        retained: &Retained,
        to: &mut impl Effects,
    ) {
        self.walks.insert(key, Walk { cursor: retained.cursor(filter), asked: false, stride: STRIDE });
        let (shard, connection, id) = key;
        to.post(shard, Reply::Begun { connection, id });
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

    pub(crate) fn close_all(&mut self, shard: ShardId, connection: ConnectionId) {
        let all = (shard, connection, CursorId(0))..=(shard, connection, CursorId(u32::MAX));
        let keys: Vec<WalkKey> = self.walks.range(all).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| drop(self.walks.remove(key)));
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.asked.is_empty()
    }

    /// One step of each cursor that was asked for one, at most `steps`.
    pub(crate) fn work(&mut self, steps: usize, retained: &Retained, now: Now, to: &mut impl Effects) {
        for _ in 0..self.asked.len().min(steps) {
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
        if done {
            self.walks.remove(&key);
        }
        let (shard, connection, id) = key;
        to.post(shard, Reply::Retained { connection, id, messages, done });
    }
}

impl Ledger {
    /// A cursor may go on: for a session that lasts when nothing waits in its queue, which what the cursor brings would
    /// fill otherwise.
    pub(crate) fn credit(&mut self, key: WalkKey, queue: Option<QueueId>) {
        let session = queue.and_then(|queue| self.sessions.find_mut(queue));
        let Some(session) = session else { return self.cursors.ask(key) };
        let stride = Stride {
            bytes: STRIDE.bytes.min(self.settings.queue_bytes_max / 2),
            visits: STRIDE.visits.min(self.settings.queue_messages_max / 2).max(1),
        };
        self.cursors.limit(key, stride);
        match &mut session.online {
            Some(online) if !session.queue.is_empty() => online.parked.push(key),
            _ => self.cursors.ask(key),
        }
    }

    /// Lets the cursors of a session go on if nothing waits in its queue.
    pub(crate) fn unpark(&mut self, queue: QueueId) {
        let session = self.sessions.find_mut(queue).filter(|session| session.queue.is_empty());
        if let Some(online) = session.and_then(|session| session.online.as_mut()) {
            std::mem::take(&mut online.parked).into_iter().for_each(|key| self.cursors.ask(key));
        }
    }
}
