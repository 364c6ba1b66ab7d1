//! Walks through the retained messages: what cursors find goes to shards, and into the lines of lasting sessions.
//!
//! Imports: `publishing` and the parts below.

use std::borrow::Cow;
use std::sync::Arc;

use auth::{Action, Realms};
use base::{Now, Place, QueueId};
use protocol::{Numbered, Reply};
use topic::TopicFilter;
use wire::Qos;

use crate::lines::bounds::Bounds;
use crate::lines::parked::{STRIDE, is_short, stride};
use crate::lines::session::Unfinished;
use crate::publishing::Publishing;
use crate::record::{Effects, Incarnation, RETRY_MS, Record};
use crate::retained::cursors::{Cursors, FIRST_STRIDE, Walk, WalkKey};
use crate::retained::{Step, Upto};

/// The cursors, and the parts that take in the messages that they find.
pub(crate) struct Walking<'a> {
    pub(crate) cursors: &'a mut Cursors,
    pub(crate) publishing: Publishing<'a>,
}

impl Walking<'_> {
    /// A shard wants to walk through what is retained.
    pub(crate) fn open_cursor(
        &mut self,
        key: WalkKey,
        filter: TopicFilter<'_>,
        queue: Option<QueueId>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let is_open = match queue {
            Some(session) => self.open_unfinished(key, filter, session),
            None => self.open_new(key, filter, now),
        };
        let (shard, connection, id) = key;
        to.post(shard, Reply::Begun { connection, id, is_over: !is_open });
    }

    /// Goes on with a cursor that a session remembers. Whether it does, and the session is on this connection.
    fn open_unfinished(&mut self, key: WalkKey, filter: TopicFilter<'_>, queue: QueueId) -> bool {
        let last = self.publishing.replies.numbers.message;
        let mut cursor = self.publishing.retained.cursor(filter, last);
        let place = Place { shard: key.0, connection: key.1 };
        let unfinished = self.publishing.lines.session_mut(queue).and_then(|session| {
            let granted = session.subscriptions.get(filter.as_str())?.qos();
            let online = session.online.as_deref().filter(|online| online.place == place)?;
            Some((granted, session.lasting.as_mut()?.cursors.get_mut(filter.as_str())?, online))
        });
        let Some((granted, unfinished, online)) = unfinished else { return false };
        unfinished.running = Some(key);
        cursor.from = unfinished.from.clone();
        let last_at_most_once = unfinished.live_behind(online, last);
        cursor.upto = Upto { last: unfinished.last, last_at_most_once, granted };
        let bounds = self.publishing.lines.find(queue).map(|line| line.bounds(self.publishing.settings));
        let stride = stride(bounds.unwrap_or_else(|| Bounds::of(self.publishing.settings)));
        self.cursors.open(key, cursor, stride, Some(queue));
        true
    }

    /// Begins a cursor of a session that ends with its connection. Whether it finds anything.
    fn open_new(&mut self, key: WalkKey, filter: TopicFilter<'_>, now: Now) -> bool {
        let mut cursor = self.publishing.retained.cursor(filter, self.publishing.replies.numbers.message);
        let Step { messages, done } = self.publishing.retained.step(&mut cursor, FIRST_STRIDE, now);
        if done && messages.is_empty() {
            return false;
        }
        if !messages.is_empty() {
            // They are found again when they are asked for.
            cursor = self.publishing.retained.cursor(filter, self.publishing.replies.numbers.message);
        }
        self.cursors.open(key, cursor, STRIDE, None);
        true
    }

    /// Makes one step of each cursor that has a request, at most `steps`, while the shards have room.
    pub(crate) fn step_cursors(&mut self, steps: usize, now: Now, to: &mut impl Effects) {
        while let Some((_, key)) = self.cursors.later.pop_front_if(|(due_ms, _)| *due_ms <= now.monotonic_ms)
        {
            self.cursors.ask(key);
        }
        for _ in 0..self.cursors.asked.len().min(steps) {
            if !to.has_room() {
                return;
            }
            let key = self.cursors.next().expect("no cursor is taken out of the line but here");
            self.step_cursor(key, now, to);
        }
    }

    /// Makes one step of a cursor, unless it was closed. A cursor that found nothing yet goes on by itself.
    fn step_cursor(&mut self, key: WalkKey, now: Now, to: &mut impl Effects) {
        let Some(walk) = self.cursors.walks.get_mut(&key) else { return };
        let Step { messages, done } = self.publishing.retained.step(&mut walk.cursor, walk.stride, now);
        if messages.is_empty() && !done {
            return self.cursors.ask(key);
        }
        let found = match walk.session {
            None => Some((messages, done)),
            Some(queue) => self.sort_found(key, queue, messages, to),
        };
        let Some((messages, done)) = found else { return };
        if done {
            self.cursors.close(key);
        }
        let (shard, connection, id) = key;
        to.post(shard, Reply::Retained { connection, id, messages, done });
    }

    /// Sorts the messages of a step for a lasting session. Returns the messages sent at QoS 0, and whether the cursor
    /// is at its end. The others are queued, now or when the shard has received the first part. Returns `None` if the
    /// cursor was closed.
    ///
    /// The end comes with a step that finds nothing: what could not be recorded is found again.
    fn sort_found(
        &mut self,
        key: WalkKey,
        queue: QueueId,
        messages: Vec<Numbered>,
        to: &mut impl Effects,
    ) -> Option<(Vec<Numbered>, bool)> {
        if !self.is_running(key, queue) {
            self.cursors.close(key);
            return None;
        }
        if messages.is_empty() {
            self.end_cursor(key, queue, to);
            return Some((messages, true));
        }
        let walk = self.cursors.walks.get_mut(&key).expect("a cursor that makes a step is open");
        let session = self.publishing.lines.session(queue).expect("its cursor is running");
        let interest = session.subscriptions.get(&walk.cursor.filter);
        let interest = *interest.expect("what has a cursor is subscribed to");
        let own = interest.no_local().then_some(&*session.subscriber.client_id);
        let is_foreign = |found: &Numbered| own.is_none() || found.message.publisher() != own;
        let is_once = |found: &Numbered| found.message.qos().min(interest.qos()) == Qos::AtMostOnce;
        let rules =
            self.publishing.settings.guard.has_rules().then(|| self.publishing.settings.guard.current());
        let may_receive = |found: &Numbered| {
            let allow = |rules: &Arc<Realms>| {
                rules.allow(&session.subscriber, found.message.topic(), Action::Receive)
            };
            rules.as_ref().is_none_or(allow)
        };
        let wanted = messages.into_iter().filter(is_foreign).filter(may_receive);
        let (once, more) = wanted.partition::<Vec<_>, _>(is_once);
        walk.found = Some((more, interest));
        if once.is_empty() {
            self.bring_found(key, queue, to);
        }
        Some((once, false))
    }

    /// The shard has taken in what a cursor's last step brought at QoS 0.
    pub(crate) fn took(&mut self, key: WalkKey, to: &mut impl Effects) {
        if let Some(queue) = self.cursors.walks.get(&key).and_then(|walk| walk.session)
            && self.is_running(key, queue)
        {
            self.bring_found(key, queue, to);
        }
    }

    /// Whether a cursor is what brings a session the values of one of its subscriptions: it is not when another has
    /// replaced it, or its subscription or its session has ended.
    fn is_running(&self, key: WalkKey, queue: QueueId) -> bool {
        let place = Place { shard: key.0, connection: key.1 };
        let filter = self.cursors.walks.get(&key).map(|walk| &walk.cursor.filter);
        let session =
            self.publishing.lines.session(queue).filter(|_| self.publishing.lines.is_on(queue, place));
        let lasting = session.and_then(|session| session.lasting.as_ref());
        let unfinished = lasting.and_then(|lasting| lasting.cursors.get(filter?));
        unfinished.is_some_and(|unfinished| unfinished.running == Some(key))
    }

    /// Puts what the last step of a cursor found into the queue of its session, and records how far it has come.
    fn bring_found(&mut self, key: WalkKey, queue: QueueId, to: &mut impl Effects) {
        let walk = self.cursors.walks.get_mut(&key).expect("a cursor that makes a step is open");
        let filter = walk.cursor.filter.clone();
        let Some((found, interest)) = walk.found.take() else { return };
        for Numbered { id, message } in &found {
            // A value that has replaced this one since the step is already queued, and must stay the last of its topic.
            if !self.publishing.retained.is_value(message.topic(), *id) {
                continue;
            }
            if let Err(refusal) = self.publishing.bring(queue, &filter, (message, interest), to) {
                let _ = self.publishing.replies.reason(refusal);
                return self.rewind_cursor(key, queue);
            }
            if !self.is_running(key, queue) {
                // It was too much for the queue, which has ended the session.
                return;
            }
        }
        self.confirm_cursor(key, queue, to);
    }

    /// The walk of a cursor, what its session remembers of it, and as what records name that session.
    fn running(&mut self, key: WalkKey, queue: QueueId) -> (&mut Walk, &mut Unfinished, Incarnation) {
        let walk = self.cursors.walks.get_mut(&key).expect("a cursor that makes a step is open");
        let lasting = self.publishing.lines.session_mut(queue).and_then(|session| session.lasting.as_mut());
        let lasting = lasting.expect("the session of a cursor that makes a step is there, and lasts");
        let unfinished = lasting.cursors.get_mut(&walk.cursor.filter).expect("it remembers the cursor");
        (walk, unfinished, lasting.incarnation)
    }

    /// The messages of a step could not be recorded: the cursor goes back to find them again.
    fn rewind_cursor(&mut self, key: WalkKey, queue: QueueId) {
        let (walk, unfinished, _) = self.running(key, queue);
        walk.cursor.rewind(&unfinished.from);
        walk.was_refused = true;
    }

    /// The client has everything of the last step, or has it waiting.
    fn confirm_cursor(&mut self, key: WalkKey, queue: QueueId, to: &mut impl Effects) {
        let (walk, unfinished, session) = self.running(key, queue);
        let (filter, from) = (&*walk.cursor.filter, &walk.cursor.from);
        if unfinished.from == *from {
            return;
        }
        let (filter, from) = (Box::<str>::from(filter), from.clone());
        let moved =
            Record::CursorMoved { session, filter: Cow::Borrowed(&filter), from: Cow::Borrowed(&from) };
        // A step that is not recorded now is repeated when the client returns.
        if self.publishing.replies.commit(&[moved], to).is_ok() {
            self.running(key, queue).1.from = from;
        }
    }

    /// Ends a cursor that finds nothing more. If this is not recorded now, the values are found again when the client
    /// comes back.
    fn end_cursor(&mut self, key: WalkKey, queue: QueueId, to: &mut impl Effects) {
        let (walk, _, session) = self.running(key, queue);
        let filter = walk.cursor.filter.clone();
        let done = Record::CursorDone { session, filter: Cow::Borrowed(&filter) };
        if self.publishing.replies.commit(&[done], to).is_ok() {
            let lasting =
                self.publishing.lines.session_mut(queue).and_then(|session| session.lasting.as_mut());
            lasting.expect("its cursor is running").cursors.remove(&filter);
        }
    }

    /// A cursor may go on: for a session that lasts when little waits in its queue, which what the cursor brings would
    /// fill otherwise.
    pub(crate) fn credit(&mut self, key: WalkKey, now: Now) {
        let Some(walk) = self.cursors.walks.get_mut(&key) else { return };
        if std::mem::take(&mut walk.was_refused) {
            return self.cursors.later.push_back((now.monotonic_ms + RETRY_MS, key));
        }
        let line = walk.session.and_then(|queue| self.publishing.lines.find_mut(queue));
        let line = line.filter(|line| !is_short(&line.queue, line.bounds(self.publishing.settings)));
        match line.and_then(|line| line.session_mut()?.online.as_mut()) {
            Some(online) => online.parked.push(key),
            None => self.cursors.ask(key),
        }
    }
}
