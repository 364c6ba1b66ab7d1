//! Cursors over the retained messages, and the order of their turns.

use std::collections::{BTreeMap, VecDeque};

use base::{ConnectionId, Interest, QueueId, ShardId};
use protocol::{CursorId, Numbered};

use crate::retained::{Cursor, Stride};

/// The first look, when a cursor is opened: enough to find that a filter without wildcards has no value.
pub(crate) const FIRST_STRIDE: Stride = Stride { bytes: 1, visits: 2 };

/// The cursors of all connections.
///
/// Each makes a step when its shard gives it credit. The messages that a step finds go to the shard; for a session that
/// lasts, only those that are sent at QoS 0. The others go into the session's queue, once the shard has received the
/// first part:
///
/// ```text
///           Credit             found nothing of QoS 0
///   open ──────────► asked ──────────────────────────────► in the queue, remembered
///                     ▲  │ Retained              Took           ▲   │
///                     │  └─────────────► sent ──────────────────┘   │
///                     └───────── Credit, little waits in the queue ─┘
/// ```
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    pub(crate) walks: BTreeMap<WalkKey, Walk>,
    /// Cursors whose next step was requested and is not done, in the order of the requests.
    pub(crate) asked: VecDeque<WalkKey>,
    /// Cursors whose next step is made at that time: the values found could not be recorded.
    pub(crate) later: VecDeque<(u64, WalkKey)>,
    /// Connections that are gone. Their cursors are closed bit by bit; nobody asks them for anything any more.
    closing: VecDeque<(ShardId, ConnectionId)>,
}

pub(crate) type WalkKey = (ShardId, ConnectionId, CursorId);

/// A cursor, whether it stands in the queue for a step, and how far one goes.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) cursor: Cursor,
    asked: bool,
    pub(crate) stride: Stride,
    /// The session whose cursor it is, if that lasts: it remembers how far it has come.
    pub(crate) session: Option<QueueId>,
    /// Messages of the last step for the session's queue, and the options of the subscription at that time.
    pub(crate) found: Option<(Vec<Numbered>, Interest)>,
    /// The values found could not be recorded, and are to be found again.
    pub(crate) was_refused: bool,
}

impl Cursors {
    pub(crate) fn open(&mut self, key: WalkKey, cursor: Cursor, stride: Stride, session: Option<QueueId>) {
        let walk = Walk { cursor, asked: false, stride, session, found: None, was_refused: false };
        self.walks.insert(key, walk);
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

    /// The next cursor that was asked for a step.
    pub(crate) fn next(&mut self) -> Option<WalkKey> {
        let key = self.asked.pop_front()?;
        self.walks.get_mut(&key).into_iter().for_each(|walk| walk.asked = false);
        Some(key)
    }
}
