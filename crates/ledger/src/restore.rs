//! A session with many subscriptions comes back: its shard is told of them bit by bit.
//!
//! ```text
//!   Claim                 Restore, Restored, …          recorded                Unfinished, Restored, …
//!  ───────► online, not ────────────────────► all told ──────────► Claimed, ──────────────────────────► the client
//!           open                                                   open                                 is read
//! ```
//!
//! Until Claimed nobody leads to the connection, and nothing of the session changes: the connection before has left, and
//! this one has not heard that it has the session. A connection that leaves in between, or gives way to another, is found
//! gone, and its pieces end. A shard confirms each piece, so that it never has more than one turn's worth to read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use base::{Interest, Now, Place, QueueId, ShardId};
use wire::ReasonCode;

use crate::Effects;
use crate::replies::Answer;
use crate::session::Session;
use crate::sessions::SessionWork;
use protocol::{Claimed, Reply};

/// The look at a filter costs one unit, and one more for each of this number of bytes.
const BYTES_PER_UNIT: usize = 256;

/// Takes the units that a filter costs. Nothing if they are not left.
pub(crate) fn pay(left: &mut usize, filter: &str) -> Option<()> {
    *left = left.checked_sub(1 + filter.len() / BYTES_PER_UNIT)?;
    Some(())
}

/// The sessions of which shards are told, by shard.
#[derive(Debug, Default)]
pub(crate) struct Restoring {
    lines: BTreeMap<ShardId, Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Pieces that the shard has not confirmed. When it has confirmed all, the next are made.
    under_way: usize,
    sessions: VecDeque<Restore>,
}

/// How far one session has come.
#[derive(Debug)]
struct Restore {
    session: QueueId,
    place: Place,
    what: What,
    /// The last filter that was told.
    after: Option<Box<str>>,
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

impl Session {
    /// Whether all its subscriptions can be sent to its shard within this number of units.
    pub(crate) fn is_small(&self, units: usize) -> bool {
        let mut left = units;
        let cursors = self.lasting.iter().flat_map(|lasting| lasting.cursors.keys());
        self.subscriptions.keys().chain(cursors).all(|filter| pay(&mut left, filter).is_some())
    }

    /// The filters behind one, as many as there are units for; the first in any case.
    fn filters_behind(&self, after: Option<&str>, units: &mut usize) -> Vec<Box<str>> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        paid(self.subscriptions.range::<str, _>(behind).map(|(filter, _)| filter), units)
    }

    fn unfinished_behind(&self, after: Option<&str>, units: &mut usize) -> Vec<(Box<str>, Interest)> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let cursors = self.lasting.iter().flat_map(|lasting| lasting.cursors.range::<str, _>(behind));
        let filters = paid(cursors.map(|(filter, _)| filter), units);
        let subscribed =
            |filter: Box<str>| self.subscriptions.get(&filter).map(|interest| (filter, *interest));
        filters.into_iter().filter_map(subscribed).collect()
    }
}

fn paid<'a>(filters: impl Iterator<Item = &'a Box<str>>, units: &mut usize) -> Vec<Box<str>> {
    let mut paid = Vec::new();
    for filter in filters {
        if pay(units, filter).is_none() {
            // One that is longer than a whole turn's worth goes alone.
            if paid.is_empty() {
                paid.push(filter.clone());
            }
            *units = 0;
            break;
        }
        paid.push(filter.clone());
    }
    paid
}

impl SessionWork<'_> {
    /// Goes on telling shards, each of them that has confirmed what it was told.
    pub(crate) fn restore_some(&mut self, now: Now, to: &mut impl Effects) {
        let mut restoring = std::mem::take(&mut self.replies.restoring);
        for line in restoring.lines.values_mut().filter(|line| line.under_way == 0) {
            let mut units = self.settings.units.at_a_time;
            while units > 0
                && let Some(restore) = line.sessions.pop_front()
            {
                // One that has nothing left costs a look.
                units -= 1;
                self.restore_step(restore, line, &mut units, now, to);
            }
        }
        restoring.lines.retain(|_, line| line.under_way > 0 || !line.sessions.is_empty());
        // Those that are open now have come into the line meanwhile.
        for (shard, line) in std::mem::replace(&mut self.replies.restoring, restoring).lines {
            self.replies.restoring.lines.entry(shard).or_default().sessions.extend(line.sessions);
        }
    }

    /// The next piece of one session.
    fn restore_step(
        &mut self,
        restore: Restore,
        line: &mut Line,
        units: &mut usize,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Restore { session: id, place, what, after } = restore;
        if !self.lines.is_on(id, place) {
            return;
        }
        let session = self.lines.session(id).expect("it is on this connection");
        let connection = place.connection;
        let (reply, after) = match what {
            What::Subscriptions => {
                let filters = session.filters_behind(after.as_deref(), units);
                let Some(last) = filters.last().cloned() else { return self.restored(id, place, now, to) };
                (Reply::Restore { connection, filters }, Some(last))
            }
            What::Unfinished => {
                let subscriptions = session.unfinished_behind(after.as_deref(), units);
                let last = subscriptions.last().map(|(filter, _)| filter.clone());
                (Reply::Unfinished { connection, is_last: last.is_none(), subscriptions }, last)
            }
        };
        to.post(place.shard, reply);
        line.under_way += 1;
        if after.is_some() {
            line.sessions.push_back(Restore { session: id, place, what, after });
        }
    }

    /// The shard knows all subscriptions: it may hear that it has the session, when that is recorded.
    fn restored(&mut self, id: QueueId, place: Place, now: Now, to: &mut impl Effects) {
        let session = self.lines.session(id).expect("it is on this connection");
        let lasting = session.lasting.as_ref().expect("what comes back lasts");
        let Place { shard, connection } = place;
        if self.replies.promise(place).is_err() {
            let reason = ReasonCode::ServerUnavailable;
            return to.post(shard, Reply::Refused { connection, reason });
        }
        let claimed = Claimed {
            connection,
            subscriber: Arc::clone(&session.subscriber),
            session_present: true,
            subscriptions: Vec::new(),
            unfinished: Vec::new(),
            has_more_unfinished: !lasting.cursors.is_empty(),
            unreleased: lasting.unreleased.iter().copied().collect(),
        };
        let reply = Reply::Claimed(Box::new(claimed));
        self.replies.answer(self.lines, Answer::new(shard, reply), now, to);
    }
}
