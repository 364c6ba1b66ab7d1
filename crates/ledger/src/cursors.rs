//! Who walks through the retained messages, and whose turn it is.

use std::collections::{BTreeMap, VecDeque};

use index::{ConnectionId, QueueId, ShardId};
use session::Now;
use topic::TopicFilter;

use crate::Effects;
use crate::command::{CursorId, Reply};
use crate::retained::{Cursor, Retained, Step, Stride};

/// One step of a retained cursor ends with the message that reaches this size...
pub(crate) const STEP_BYTES: usize = 64 * 1024;
/// ... or after looking at as many values, so that nobody waits behind a filter that matches little.
pub(crate) const STEP_VISITS: usize = 1_000;

/// The cursors of all connections.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    walks: BTreeMap<WalkKey, Walk>,
    /// Those whose next step was asked for and is not done, in the order in which they asked.
    asked: VecDeque<WalkKey>,
    /// Connections whose walks bring something to a queue.
    queues: BTreeMap<(ShardId, ConnectionId), QueueId>,
    /// Those that go on when their queue has gone down.
    parked: BTreeMap<QueueId, Vec<WalkKey>>,
}

pub(crate) type WalkKey = (ShardId, ConnectionId, CursorId);

/// A cursor, and whether it stands in the queue for a step.
#[derive(Debug)]
struct Walk {
    cursor: Cursor,
    asked: bool,
}

impl Cursors {
    pub(crate) fn open(
        &mut self,
        key: WalkKey,
        filter: TopicFilter<'_>,
        retained: &Retained,
        to: &mut impl Effects,
    ) {
        self.walks.insert(key, Walk { cursor: retained.cursor(filter), asked: false });
        let (shard, connection, id) = key;
        to.post(shard, Reply::Begun { connection, id });
    }

    pub(crate) fn ask(&mut self, key: WalkKey) {
        if let Some(walk) = self.walks.get_mut(&key)
            && !walk.asked
        {
            walk.asked = true;
            self.asked.push_back(key);
        }
    }

    /// What the walks of this connection find goes into this queue.
    pub(crate) fn bring_to(&mut self, queue: QueueId, shard: ShardId, connection: ConnectionId) {
        self.queues.insert((shard, connection), queue);
    }

    pub(crate) fn queue_of(&self, (shard, connection, _): WalkKey) -> Option<QueueId> {
        self.queues.get(&(shard, connection)).copied()
    }

    /// The next step is asked for when the queue has gone down.
    pub(crate) fn park(&mut self, key: WalkKey, queue: QueueId) {
        self.parked.entry(queue).or_default().push(key);
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    pub(crate) fn unpark(&mut self, queue: QueueId) {
        self.parked.remove(&queue).into_iter().flatten().for_each(|key| self.ask(key));
    }

    pub(crate) fn close(&mut self, key: WalkKey) {
        self.walks.remove(&key);
    }

    pub(crate) fn close_all(&mut self, shard: ShardId, connection: ConnectionId) {
        let all = (shard, connection, CursorId(0))..=(shard, connection, CursorId(u32::MAX));
        let keys: Vec<WalkKey> = self.walks.range(all).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| drop(self.walks.remove(key)));
        if let Some(queue) = self.queues.remove(&(shard, connection)) {
            self.parked.remove(&queue);
        }
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
        let stride = Stride { bytes: STEP_BYTES, visits: STEP_VISITS };
        let Step { messages, done } = retained.step(&mut walk.cursor, stride, now);
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
