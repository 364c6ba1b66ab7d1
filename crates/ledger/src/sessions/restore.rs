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

use std::sync::Arc;

use base::{Now, Place, QueueId};
use wire::ReasonCode;

use crate::record::Effects;
use crate::replies::Answer;
use crate::replies::restoring::{Line, Restore, What};
use crate::sessions::SessionWork;
use protocol::{Claimed, Reply};

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
