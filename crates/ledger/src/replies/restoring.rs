//! Sessions of whose subscriptions shards are told bit by bit.

use std::collections::{BTreeMap, VecDeque};

use base::{Place, QueueId, ShardId};

/// The sessions of which shards are told, by shard.
#[derive(Debug, Default)]
pub(crate) struct Restoring {
    pub(crate) lines: BTreeMap<ShardId, Line>,
}

#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Pieces that the shard has not confirmed. When it has confirmed all, the next are made.
    pub(crate) under_way: usize,
    pub(crate) sessions: VecDeque<Restore>,
}

/// How far one session has come.
#[derive(Debug)]
pub(crate) struct Restore {
    pub(crate) session: QueueId,
    pub(crate) place: Place,
    pub(crate) what: What,
    /// The last filter that was told.
    pub(crate) after: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Subscriptions,
    /// Subscriptions that have not received all retained messages.
    Unfinished,
}

impl Restoring {
    /// The shard of a session that has come back is to hear of its subscriptions.
    pub(crate) fn add(&mut self, session: QueueId, place: Place, what: What) {
        let line = self.lines.entry(place.shard).or_default();
        line.sessions.push_back(Restore { session, place, what, after: None });
    }

    /// A shard has taken a piece in.
    pub(crate) fn confirm(&mut self, shard: ShardId) {
        if let Some(line) = self.lines.get_mut(&shard) {
            line.under_way = line.under_way.saturating_sub(1);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.lines.values().any(|line| line.under_way == 0 && !line.sessions.is_empty())
    }
}
