//! Cursors over the retained messages, and the order of their turns.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use auth::{Action, Realms};
use base::{ConnectionId, Interest, Message, Now, Place, QueueId, ShardId};
use topic::TopicFilter;
use wire::Qos;

use crate::bounds::Bounds;
use crate::queue::Queue;
use crate::record::Incarnation;
use crate::retained::{Cursor, Step, Stride, Upto};
use crate::session::{Live, Unfinished};
use crate::{Effects, Ledger, RETRY_MS, Record};
use protocol::{CursorId, Reply};

/// One step of a retained cursor ends with the message that reaches this size, or after looking at as many values, so
/// that nobody waits behind a filter that matches little.
const STRIDE: Stride = Stride { bytes: 64 * 1024, visits: 1_000 };

/// The first look, when a cursor is opened: enough to find that a filter without wildcards has no value.
const FIRST_STRIDE: Stride = Stride { bytes: 1, visits: 2 };

/// How much a cursor brings to a session at a time: it must never fill its queue.
fn stride(bounds: Bounds) -> Stride {
    Stride {
        bytes: STRIDE.bytes.min(bounds.bytes / 4),
        visits: STRIDE.visits.min(bounds.messages / 4).max(1),
    }
}

/// Whether so little waits for a session that a cursor may bring more: a queue that is never empty does not stop it.
fn is_short(queue: &Queue, bounds: Bounds) -> bool {
    let stride = stride(bounds);
    queue.len() < stride.visits && queue.bytes() < stride.bytes.max(1)
}

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
    walks: BTreeMap<WalkKey, Walk>,
    /// Cursors whose next step was requested and is not done, in the order of the requests.
    asked: VecDeque<WalkKey>,
    /// Cursors whose next step is made at that time: the values found could not be recorded.
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
    /// The session whose cursor it is, if that lasts: it remembers how far it has come.
    session: Option<QueueId>,
    /// Messages of the last step for the session's queue, and the options of the subscription at that time.
    found: Option<(Vec<Arc<Message>>, Interest)>,
    /// The values found could not be recorded, and are to be found again.
    was_refused: bool,
}

impl Cursors {
    fn open(&mut self, key: WalkKey, cursor: Cursor, stride: Stride, session: Option<QueueId>) {
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
    fn next(&mut self) -> Option<WalkKey> {
        let key = self.asked.pop_front()?;
        self.walks.get_mut(&key).into_iter().for_each(|walk| walk.asked = false);
        Some(key)
    }
}

impl Ledger {
    /// A lasting session is to be brought what is retained: from the beginning, if that was begun before.
    pub(crate) fn begin_cursor(&mut self, queue: QueueId, filter: &str) {
        let session = self.lines.session_mut(queue).expect("the session that subscribes is there");
        if let Some(lasting) = &mut session.lasting {
            let place = session.online.as_ref().map(|online| online.place);
            let live = place.map_or(Live::SinceOpen, Live::Soon);
            let begun = Unfinished { live, ..Unfinished::new(filter, self.last_message) };
            let replaced = lasting.cursors.insert(filter.into(), begun).and_then(|replaced| replaced.running);
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
        let is_open = match queue {
            Some(session) => self.open_unfinished(key, filter, session),
            None => self.open_new(key, filter, now),
        };
        let (shard, connection, id) = key;
        to.post(shard, Reply::Begun { connection, id, is_over: !is_open });
    }

    /// Goes on with a cursor that a session remembers. Whether it does, and the session is on this connection.
    fn open_unfinished(&mut self, key: WalkKey, filter: TopicFilter<'_>, queue: QueueId) -> bool {
        let last = self.last_message;
        let mut cursor = self.retained.cursor(filter, last);
        let place = Place { shard: key.0, connection: key.1 };
        let unfinished = self.lines.session_mut(queue).and_then(|session| {
            let granted = session.subscriptions.get(filter.as_str())?.qos();
            let online = session.online.as_deref().filter(|online| online.place == place)?;
            Some((granted, session.lasting.as_mut()?.cursors.get_mut(filter.as_str())?, online))
        });
        let Some((granted, unfinished, online)) = unfinished else { return false };
        unfinished.running = Some(key);
        cursor.from = unfinished.from.clone();
        let last_at_most_once = unfinished.live_behind(online, last);
        cursor.upto = Upto { last: unfinished.last, last_at_most_once, granted };
        let bounds = self.lines.find(queue).map(|line| line.bounds(&self.settings));
        let stride = stride(bounds.unwrap_or_else(|| Bounds::of(&self.settings)));
        self.cursors.open(key, cursor, stride, Some(queue));
        true
    }

    /// Begins a cursor of a session that ends with its connection. Whether it finds anything.
    fn open_new(&mut self, key: WalkKey, filter: TopicFilter<'_>, now: Now) -> bool {
        let mut cursor = self.retained.cursor(filter, self.last_message);
        let Step { messages, done } = self.retained.step(&mut cursor, FIRST_STRIDE, now);
        if done && messages.is_empty() {
            return false;
        }
        if !messages.is_empty() {
            // They are found again when they are asked for.
            cursor = self.retained.cursor(filter, self.last_message);
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
            let Some(key) = self.cursors.next() else { return };
            self.step_cursor(key, now, to);
        }
    }

    /// Makes one step of a cursor, unless it was closed. A cursor that found nothing yet goes on by itself.
    fn step_cursor(&mut self, key: WalkKey, now: Now, to: &mut impl Effects) {
        let Some(walk) = self.cursors.walks.get_mut(&key) else { return };
        let Step { messages, done } = self.retained.step(&mut walk.cursor, walk.stride, now);
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
        messages: Vec<Arc<Message>>,
        to: &mut impl Effects,
    ) -> Option<(Vec<Arc<Message>>, bool)> {
        if !self.is_running(key, queue) {
            self.cursors.close(key);
            return None;
        }
        if messages.is_empty() {
            self.end_cursor(key, queue, to);
            return Some((messages, true));
        }
        let walk = self.cursors.walks.get_mut(&key).expect("a cursor that makes a step is open");
        let session = self.lines.session(queue).expect("its cursor is running");
        let interest = session.subscriptions.get(&walk.cursor.filter);
        let interest = *interest.expect("what has a cursor is subscribed to");
        let own = interest.no_local().then_some(&*session.subscriber.client_id);
        let is_foreign = |message: &Arc<Message>| own.is_none() || message.publisher() != own;
        let is_once = |message: &Arc<Message>| message.qos().min(interest.qos()) == Qos::AtMostOnce;
        let rules = self.settings.guard.has_rules().then(|| self.settings.guard.current());
        let may_receive = |message: &Arc<Message>| {
            let allow =
                |rules: &Arc<Realms>| rules.allow(&session.subscriber, message.topic(), Action::Receive);
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
        let session = self.lines.session(queue).filter(|_| self.lines.is_on(queue, place));
        let lasting = session.and_then(|session| session.lasting.as_ref());
        let unfinished = lasting.and_then(|lasting| lasting.cursors.get(filter?));
        unfinished.is_some_and(|unfinished| unfinished.running == Some(key))
    }

    /// Puts what the last step of a cursor found into the queue of its session, and records how far it has come.
    fn bring_found(&mut self, key: WalkKey, queue: QueueId, to: &mut impl Effects) {
        let walk = self.cursors.walks.get_mut(&key).expect("a cursor that makes a step is open");
        let filter = walk.cursor.filter.clone();
        let Some((found, interest)) = walk.found.take() else { return };
        for message in &found {
            // A value that has replaced this one since the step is already queued, and must stay the last of its topic.
            if !self.retained.is_value(message) {
                continue;
            }
            if let Err(refusal) = self.bring(queue, &filter, (message, interest), to) {
                let _ = self.reason(refusal);
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
        let lasting = self.lines.session_mut(queue).and_then(|session| session.lasting.as_mut());
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
        if self.replies.commit(&[moved], to).is_ok() {
            self.running(key, queue).1.from = from;
        }
    }

    /// Ends a cursor that finds nothing more. If this is not recorded now, the values are found again when the client
    /// comes back.
    fn end_cursor(&mut self, key: WalkKey, queue: QueueId, to: &mut impl Effects) {
        let (walk, _, session) = self.running(key, queue);
        let filter = walk.cursor.filter.clone();
        let done = Record::CursorDone { session, filter: Cow::Borrowed(&filter) };
        if self.replies.commit(&[done], to).is_ok() {
            let lasting = self.lines.session_mut(queue).and_then(|session| session.lasting.as_mut());
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
        let line = walk.session.and_then(|queue| self.lines.find_mut(queue));
        let line = line.filter(|line| !is_short(&line.queue, line.bounds(&self.settings)));
        match line.and_then(|line| line.session_mut()?.online.as_mut()) {
            Some(online) => online.parked.push(key),
            None => self.cursors.ask(key),
        }
    }

    /// Lets the cursors of a session go on if little waits in its queue.
    pub(crate) fn unpark(&mut self, queue: QueueId) {
        let settings = &self.settings;
        let line = self.lines.find_mut(queue);
        let line = line.filter(|line| is_short(&line.queue, line.bounds(settings)));
        if let Some(online) = line.and_then(|line| line.session_mut()?.online.as_mut()) {
            std::mem::take(&mut online.parked).into_iter().for_each(|key| self.cursors.ask(key));
        }
    }
}
