//! Queues of lasting sessions and of groups: operators look at messages that wait, and discard them.
//!
//! Both go through a queue in windows. A message that is on disk alone is read for the look at its topic, and its queue
//! keeps it on disk. A message that cannot be read has no topic: a filter passes over it.
//!
//! ```text
//!            some are on disk: they are asked for, and the same window is looked at again
//!            ┌───────┐
//!   window ──┴─► seen ─────────────► answered        (a look)
//!                 └── that match ──► one group of records `Removed` ──► out of memory    (discarding)
//! ```
//!
//! A record names one message, and a group of records is written as a whole or not at all. So a crash leaves each message
//! where it was, or takes it away.

use std::sync::Arc;

use base::{Fate, Message, Now, QueueId};
use topic::TopicFilter;
use wire::Qos;

use crate::Ledger;
use crate::lines::Line;
use crate::lines::fates::MessageAt;
use crate::record::{Effects, MessageId, Record};

/// Maximum number of places in a window, whose messages are looked at.
pub(super) const LOOKED_AT: usize = 64;
/// The same if the topics of messages do not count.
const TAKEN: usize = 256;
/// No message is added to a window that has this many bytes.
const LOOKED_AT_BYTES: usize = 256 * 1024;

/// A queue, by its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueOwner {
    /// The lasting session of this client.
    Client(Box<str>),
    /// The group with this filter, with `$share/GROUP/`.
    Group(Box<str>),
}

/// Messages that are to be discarded.
#[derive(Debug, Clone)]
pub struct Discard {
    /// The queue in which they wait.
    pub of: QueueOwner,
    /// The filter that their topics match. `None` for all messages.
    pub filter: Option<Box<str>>,
    /// The message behind which the window begins. `None` for the first one.
    pub after: Option<MessageId>,
    /// The last message. `None` for the last one that waits now.
    pub until: Option<MessageId>,
}

/// A message that waits.
#[derive(Debug, Clone)]
pub struct QueuedFacts {
    /// The number of the message.
    pub id: MessageId,
    /// The message. `None` while it is on disk alone, and if its record is damaged.
    pub message: Option<Arc<Message>>,
    /// Its size in memory, in bytes.
    pub bytes: usize,
    /// The QoS at which it will be sent.
    pub qos: Qos,
    /// Whether it will be sent as a retained message.
    pub retain: bool,
    /// When it expires, in milliseconds since 1970.
    pub expires_unix_ms: Option<u64>,
}

/// Some of the messages of a queue, in their order.
#[derive(Debug)]
pub struct QueuePiece {
    /// The messages of this part.
    pub messages: Vec<QueuedFacts>,
    /// The last message of this window, if more may follow.
    pub next: Option<MessageId>,
    /// Some messages are being read from disk. Ask again for the same window soon.
    pub is_reading: bool,
}

/// The effect of [`Discard`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// One window is done.
    Some {
        /// Messages that were discarded.
        messages: usize,
        /// Messages that stay because their records are damaged: nobody knows their topics.
        unreadable: usize,
        /// The last message of this window, if more may follow.
        next: Option<MessageId>,
        /// The last message of all.
        until: MessageId,
        /// Nothing was discarded, because messages are being read from disk. Ask again for the same window soon.
        is_reading: bool,
    },
    /// No message waits there.
    Nothing,
    /// There is no such queue.
    NoQueue,
    /// The removal cannot be recorded now.
    NotRecorded,
}

/// A part of a queue.
pub(super) struct Window {
    pub(super) messages: Vec<MessageId>,
    /// The last place of the window, if there are others behind it.
    pub(super) next: Option<MessageId>,
}

impl Ledger {
    /// Looks at some messages that wait.
    pub(super) fn answer_queue(
        &mut self,
        of: &QueueOwner,
        after: Option<MessageId>,
        now: Now,
        to: &mut impl Effects,
    ) -> Option<QueuePiece> {
        let id = self.queue_of(of)?;
        let Window { messages, next } = self.lines.find(id)?.window(after, LOOKED_AT);
        let is_reading = self.bodies.want_for_look(&self.lines, id, &messages, now, to);
        let line = self.lines.find(id)?;
        let facts = |message: &MessageId| {
            let entry = line.find(*message)?;
            Some(QueuedFacts {
                id: *message,
                message: self.bodies.seen(&self.lines, id, *message),
                bytes: entry.size_bytes(),
                qos: entry.qos(),
                retain: entry.granted().retain,
                expires_unix_ms: entry.expires_unix_ms(),
            })
        };
        let found = messages.iter().filter_map(facts).collect();
        if !is_reading {
            self.bodies.end_look(id, &messages);
        }
        Some(QueuePiece { messages: found, next, is_reading })
    }

    /// Discards the messages of one window that match.
    pub(super) fn discard(&mut self, discard: &Discard, now: Now, to: &mut impl Effects) -> Discarded {
        let Discard { of, filter, after, until } = discard;
        let Some(id) = self.queue_of(of) else { return Discarded::NoQueue };
        let Some(line) = self.lines.find(id) else { return Discarded::NoQueue };
        let Some(until) = until.or_else(|| line.last()) else { return Discarded::Nothing };
        let filter = filter.as_deref().and_then(|filter| TopicFilter::new(filter).ok());
        let Window { mut messages, next } =
            line.window(*after, if filter.is_some() { LOOKED_AT } else { TAKEN });
        messages.retain(|message| *message <= until);
        let next = next.filter(|next| *next < until);
        let mut unreadable = 0;
        if let Some(filter) = filter {
            if self.bodies.want_for_look(&self.lines, id, &messages, now, to) {
                return Discarded::Some { messages: 0, unreadable, next, until, is_reading: true };
            }
            let all = messages;
            (messages, unreadable) = self.matching(id, &all, &filter);
            self.bodies.end_look(id, &all);
        }
        match self.discard_these(id, &messages, to) {
            true => {
                let messages = messages.len();
                Discarded::Some { messages, unreadable, next, until, is_reading: false }
            }
            false => Discarded::NotRecorded,
        }
    }

    /// The messages whose topics match, and the number of those whose topics nobody knows any more.
    fn matching(
        &self,
        id: QueueId,
        messages: &[MessageId],
        filter: &TopicFilter<'_>,
    ) -> (Vec<MessageId>, usize) {
        let (mut matching, mut unreadable) = (Vec::new(), 0);
        for message in messages {
            match self.bodies.seen(&self.lines, id, *message) {
                Some(seen) if filter.matches(seen.topic()) => matching.push(*message),
                Some(_) => {}
                None => unreadable += 1,
            }
        }
        (matching, unreadable)
    }

    /// Removes messages from a queue, all or none. Returns whether they are removed.
    fn discard_these(&mut self, id: QueueId, messages: &[MessageId], to: &mut impl Effects) -> bool {
        let Some(line) = self.lines.find_mut(id).filter(|_| !messages.is_empty()) else { return true };
        let name = line.incarnation().expect("what waits is for a group, or for a session that lasts");
        let recorded = messages.iter().filter(|message| line.keeps(**message));
        let records: Vec<Record<'_>> =
            recorded.map(|message| Record::Removed { queue: name, message: *message }).collect();
        if !records.is_empty()
            && let Err(refusal) = self.replies.commit(&records, to)
        {
            let _ = self.replies.reason(refusal);
            return false;
        }
        for message in messages {
            let line = self.lines.find_mut(id).expect("it was found above");
            let entry = line.take(*message).expect("it was found in the window");
            let at = MessageAt::Waiting { id: *message, entry: &entry, packet_id: None };
            self.lines.decided(id, at, Fate::Discarded);
        }
        self.cursors.unpark(&mut self.lines, &self.settings, id);
        // A message that has gone may have been on its way from the disk, and those behind it were not asked for.
        self.lines.is_ready(id);
        self.settle_account();
        true
    }

    /// The queue of a session that lasts, or of a group.
    pub(super) fn queue_of(&self, of: &QueueOwner) -> Option<QueueId> {
        match of {
            QueueOwner::Group(filter) => self.lines.filters.of_filter(filter),
            QueueOwner::Client(client_id) => {
                let id = self.sessions.claims.find(client_id)?.session?;
                self.lines.session(id)?.lasting.as_ref().map(|_| id)
            }
        }
    }
}

impl Line {
    /// The messages in at most `places` places behind `after` that wait, also those that came back, in their order.
    pub(super) fn window(&self, after: Option<MessageId>, places: usize) -> Window {
        let (mut messages, queue_next) = self.queue.behind(after, places);
        let (returned, returned_next) =
            self.group().map_or_else(Default::default, |group| group.returned_behind(after, places));
        let next = [queue_next, returned_next].into_iter().flatten().min();
        messages.extend(returned);
        messages.retain(|message| next.is_none_or(|next| *message <= next));
        messages.sort_unstable();
        self.cut(messages, next, places)
    }

    /// A window of at most this number of messages, and without those that make it too large.
    fn cut(&self, mut messages: Vec<MessageId>, next: Option<MessageId>, places: usize) -> Window {
        let size = |message: &MessageId| {
            let returned = || self.group().and_then(|group| group.returned.get(message));
            self.queue.find(*message).or_else(returned).map_or(0, |entry| entry.size_bytes())
        };
        let mut bytes = 0;
        let fits = |message: &&MessageId| {
            let has_room = bytes < LOOKED_AT_BYTES;
            bytes += size(message);
            has_room
        };
        let kept = messages.iter().take(places).take_while(fits).count();
        let is_cut = kept < messages.len();
        messages.truncate(kept);
        Window { next: if is_cut { messages.last().copied() } else { next }, messages }
    }

    /// The last message that waits.
    pub(super) fn last(&self) -> Option<MessageId> {
        let returned = self.group().and_then(|group| group.returned.last_key_value().map(|(id, _)| *id));
        self.queue.last().max(returned)
    }
}

#[cfg(test)]
mod tests {
    use base::Identifiers;

    use super::*;
    use crate::lines::Lines;
    use crate::queue::entry::{Entry, Keeping};
    use crate::record::{Granted, Incarnation};
    use crate::settings::Settings;

    fn entry() -> Entry {
        let message = Arc::new(Message::of_server("t", b"x").expect("a topic"));
        let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Identifiers::new() };
        Keeping::new(&message, 1, None, None).one(granted, false, false)
    }

    /// Messages were taken out of the middle, and a younger one came back.
    #[test]
    fn each_message_is_in_one_window() {
        let mut lines = Lines::alone(&Settings::default());
        let id = lines.insert_group("$share/g/#", Incarnation(1), None);
        let line = lines.find_mut(id).expect("it was put there");
        (1..=200).for_each(|number| line.push(MessageId(number), entry()));
        (2..=100).for_each(|number| drop(line.queue.remove(MessageId(number))));
        line.group_mut().expect("it is a group").put_back(MessageId(250), entry());
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let Window { messages, next } = line.window(after, LOOKED_AT);
            seen.extend(messages.iter().map(|id| id.0));
            after = next;
            if next.is_none() {
                break;
            }
        }
        let expected: Vec<u64> = [1].into_iter().chain(101..=200).chain([250]).collect();
        assert_eq!(seen, expected);
    }
}
