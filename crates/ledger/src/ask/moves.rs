//! Messages that wait for one session or group move to another, because a device or a group of workers has a new name.
//!
//! A message gets a new number in its new queue, and stands behind everything that waits there. Its records are one group:
//! `Enqueue` into the new queue, and `Removed` from the old one. A group is written as a whole or not at all, so that a
//! crash leaves each message in one of the two queues.
//!
//! ```text
//!   window ──► read, if some are on disk ──► the oldest that matches ──► `Enqueue`, `Removed` ──► the next one
//!                                                    │
//!                                                    └── no room for it, or no space: the order stops before it
//! ```
//!
//! A move drops nothing, and ends no session. The message stays where it is if its new queue is full, whatever the rule
//! for full queues says. It counts as one message that waits, before and after.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use base::{Fate, Message, Now, QueueId, Subscriber};
use topic::TopicFilter;

use crate::Ledger;
use crate::ask::queues::{LOOKED_AT, QueueOwner, Window};
use crate::lines::Owner;
use crate::lines::fates::MessageAt;
use crate::lines::room::QueueRoom;
use crate::queue::entry::Keeping;
use crate::record::{Effects, Granted, MessageId, Queued, Record};

/// Maximum number of members of a group that are looked at for one who may receive a message.
const MEMBERS_LOOKED_AT: usize = 16;

/// Messages that are to wait in another queue.
#[derive(Debug, Clone)]
pub struct Move {
    /// The queue in which they wait.
    pub from: QueueOwner,
    /// The queue in which they are to wait.
    pub into: QueueOwner,
    /// The filter that their topics match. `None` for all messages.
    pub filter: Option<Box<str>>,
    /// The message behind which the window begins. `None` for the first one.
    pub after: Option<MessageId>,
    /// The last message. `None` for the last one that waits now.
    pub until: Option<MessageId>,
}

/// The effect of a [`Move`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// A part of the order was carried out.
    Some(MovedPiece),
    /// No message waits there.
    Nothing,
    /// There is no queue from which messages could move.
    NoSource,
    /// There is no queue into which they could move, or it does not last.
    NoTarget,
    /// Both are one queue.
    SameQueue,
}

/// Messages of one window that have moved, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedPiece {
    /// Messages that have moved.
    pub messages: usize,
    /// Messages that stay because their records are damaged.
    pub unreadable: usize,
    /// Messages that stay because the rules do not allow the new receiver to read them.
    pub denied: usize,
    /// The message behind which the order goes on, if more may follow.
    pub next: Option<MessageId>,
    /// The last message of all.
    pub until: MessageId,
    /// The reason why the order has stopped in the middle. The next message is that behind [`next`](Self::next).
    pub stopped: Option<Stopped>,
}

/// The reason why a message has not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Messages are being read from disk. Ask again for the same window soon.
    Reading,
    /// The new queue has no room.
    Full,
    /// Memory is short, and the message would stay in it.
    Memory,
    /// The move cannot be recorded now.
    NotRecorded,
}

/// Whether a message has moved, and why not.
enum Verdict {
    Moved,
    /// The message is not meant, has expired, or may not wait.
    Passed,
    Unreadable,
    Denied,
}

/// An order whose queues are known.
#[derive(Clone, Copy)]
struct Passage<'a> {
    source: QueueId,
    target: QueueId,
    filter: Option<TopicFilter<'a>>,
}

impl Ledger {
    /// Moves the messages of one window that match, the oldest first.
    pub(super) fn move_messages(&mut self, order: &Move, now: Now, to: &mut impl Effects) -> Moved {
        let Some(source) = self.queue_of(&order.from) else { return Moved::NoSource };
        let Some(target) = self.lasting_queue_of(&order.into) else { return Moved::NoTarget };
        if source == target {
            return Moved::SameQueue;
        }
        let line = self.lines.find(source).expect("its owner was found");
        let Some(until) = order.until.or_else(|| line.last()) else { return Moved::Nothing };
        let Ok(filter) = order.filter.as_deref().map(TopicFilter::new).transpose() else {
            return Moved::Nothing;
        };
        let Window { mut messages, next } = line.window(order.after, LOOKED_AT);
        messages.retain(|message| *message <= until);
        let next = next.filter(|next| *next < until);
        let mut piece = MovedPiece { messages: 0, unreadable: 0, denied: 0, next, until, stopped: None };
        if self.bodies.want_for_look(&self.lines, source, &messages, now, to) {
            let stopped = Some(Stopped::Reading);
            return Moved::Some(MovedPiece { next: order.after, stopped, ..piece });
        }
        let mut last = order.after;
        for message in &messages {
            match self.move_one(Passage { source, target, filter }, *message, now, to) {
                Ok(Verdict::Moved) => piece.messages += 1,
                Ok(Verdict::Passed) => {}
                Ok(Verdict::Unreadable) => piece.unreadable += 1,
                Ok(Verdict::Denied) => piece.denied += 1,
                Err(stopped) => {
                    (piece.next, piece.stopped) = (last, Some(stopped));
                    break;
                }
            }
            last = Some(*message);
        }
        self.bodies.end_look(source, &messages);
        self.cursors.unpark(&mut self.lines, &self.settings, source);
        // As after discarding, messages behind those that have gone were not asked for.
        self.lines.is_ready(source);
        self.settle_account();
        Moved::Some(piece)
    }

    /// Moves one message, unless it stays.
    fn move_one(
        &mut self,
        passage: Passage<'_>,
        id: MessageId,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<Verdict, Stopped> {
        let Passage { source, target, filter } = passage;
        let Some(message) = self.bodies.seen(&self.lines, source, id) else { return Ok(Verdict::Unreadable) };
        let line = self.lines.find(source).expect("it was found above");
        let entry = line.find(id).expect("it was found in the window");
        if filter.is_some_and(|filter| !filter.matches(message.topic())) || entry.is_expired(now) {
            return Ok(Verdict::Passed);
        }
        if !self.may_receive(target, &message) {
            return Ok(Verdict::Denied);
        }
        if !self.finds_room(target, &message)? {
            return Ok(Verdict::Passed);
        }
        // In a group, a message waits as it was published: what one session was granted says nothing about another.
        let is_of_session = line.session().is_some();
        let granted = match self.lines.session(target) {
            Some(_) if is_of_session => entry.granted(),
            Some(_) => Granted { retain: false, ..Granted::of_group(&message) },
            None => Granted::of_group(&message),
        };
        let new_id = self.record_move(passage, (id, &message), &granted, to)?;
        self.take_moved(source, id, &message);
        let address = self.bodies.address_if_full(&message, self.settings.queued_bytes_in_memory, to);
        let keeping = Keeping::new(&message, 1, Some(self.bodies.live), address);
        let entry = |stays_away| keeping.one(granted, true, stays_away);
        let is_there = self.lines.push(target, new_id, &message, entry);
        assert!(is_there, "a move ends no session and no group");
        Ok(Verdict::Moved)
    }

    /// Records that a message waits in another queue, under a new number.
    fn record_move(
        &mut self,
        Passage { source, target, .. }: Passage<'_>,
        (id, message): (MessageId, &Arc<Message>),
        granted: &Granted,
        to: &mut impl Effects,
    ) -> Result<MessageId, Stopped> {
        let line = self.lines.find(source).expect("it was found above");
        let name = |id| self.lines.find(id).and_then(|line| line.incarnation());
        let [queue, source] = [target, source]
            .map(|id| name(id).expect("what waits is for a group, or for a session that lasts"));
        let is_recorded = line.keeps(id);
        let new_id = self.replies.numbers.next_message();
        let queues = Cow::Owned(vec![Queued { queue, granted: granted.clone() }]);
        let body = Cow::Borrowed(message);
        let mut group = vec![Record::Enqueue { message: new_id, body, queues, is_retained: false }];
        group.extend(is_recorded.then_some(Record::Removed { queue: source, message: id }));
        if group.iter().map(Record::bytes_most).sum::<usize>() > to.group_bytes_max() {
            return Err(Stopped::NotRecorded);
        }
        self.replies.commit(&group, to).map(|()| new_id).map_err(|refusal| {
            let _ = self.replies.reason(refusal);
            Stopped::NotRecorded
        })
    }

    /// Takes a message out of its old queue, after that was recorded.
    fn take_moved(&mut self, source: QueueId, id: MessageId, message: &Arc<Message>) {
        let line = self.lines.find_mut(source).expect("it was found above");
        let mut entry = line.take(id).expect("it was there when this was recorded");
        // Its record for an operator has its topic, also if it was on disk alone.
        entry.bring(Arc::clone(message));
        self.lines.decided(source, MessageAt::Waiting { id, entry: &entry, packet_id: None }, Fate::Moved);
    }

    /// Whether a queue gets a message. A message that may not wait stays where a client may be about to get it.
    fn finds_room(&self, target: QueueId, message: &Message) -> Result<bool, Stopped> {
        let line = self.lines.find(target).expect("its owner was found");
        match line.room(message, 0, &self.settings) {
            QueueRoom::Enough => {}
            QueueRoom::Absent => return Ok(false),
            _ => return Err(Stopped::Full),
        }
        let budget = &self.bodies.budget;
        let is_kept = budget.is_full() || !line.leaves_soon(message);
        if budget.is_tight_to_keep() && is_kept { Err(Stopped::Memory) } else { Ok(true) }
    }

    /// Whether the rules allow a session, or one of the first members of a group, to receive a message. Otherwise the message
    /// would be lost when its turn comes.
    fn may_receive(&self, target: QueueId, message: &Message) -> bool {
        let line = self.lines.find(target).expect("its owner was found");
        let members = match &line.owner {
            Owner::Session(session) => return self.settings.may_receive(&session.subscriber, message),
            Owner::Group(group) => group.subscriber.members(),
        };
        let looks = Cell::new(0);
        let may_receive = |member: &Subscriber| {
            looks.set(looks.get() + 1);
            looks.get() > MEMBERS_LOOKED_AT || self.settings.may_receive(member, message)
        };
        members.is_some_and(|members| members.any(may_receive))
    }

    /// The queue of a session that lasts, or of a group that is recorded.
    fn lasting_queue_of(&self, of: &QueueOwner) -> Option<QueueId> {
        let id = self.queue_of(of)?;
        let group = self.lines.group(id);
        group.is_none_or(|group| group.is_recorded && !group.is_ending).then_some(id)
    }
}
