//! Questions of operators to the ledger. The cost of each answer has a bound that no client can raise.

pub(crate) mod census;
mod groups;
mod moves;
mod queues;
mod state;

use std::ops::Bound;
use std::sync::Arc;

use base::{AskFates, FateList, Interest, Message, Now, Place, Principal};
use topic::TopicFilter;

use crate::Ledger;
use crate::lines::Line;
use crate::record::{Effects, MessageId, Record};
use crate::retained::{Branch, Cursor, Stride};

pub use groups::{GroupFacts, MemberPiece};
pub use moves::{Move, Moved, MovedPiece, Stopped};
pub use queues::{Discard, Discarded, QueueOwner, QueuePiece, QueuedFacts};

/// Maximum number of places that one answer visits, of sessions and of groups.
const LINES_PER_ANSWER: u32 = 256;
/// Maximum number of subscriptions in one answer.
const SUBSCRIPTIONS_PER_ANSWER: usize = 256;
/// Maximum number of levels in one answer.
const BRANCHES_PER_ANSWER: usize = 128;
/// Bounds of one answer about retained messages.
const RETAINED_PER_ANSWER: Stride = Stride { bytes: 256 * 1024, visits: 256 };

/// A question to the ledger, or an order.
#[derive(Debug)]
pub enum Question {
    /// Asks for nothing but an answer.
    Ping,
    /// The connection and the session of a client identifier.
    Client {
        /// The identifier of the client.
        client_id: Box<str>,
    },
    /// Lasting sessions, in the places from this one on.
    Sessions {
        /// The first place, from 0.
        from_slot: u32,
    },
    /// Subscriptions of a lasting session, and shared ones of any session, in the order of their bytes.
    Subscriptions {
        /// The identifier of the client.
        client_id: Box<str>,
        /// The filter behind which the answer begins; an empty one for the first.
        after: Box<str>,
    },
    /// Groups that share a subscription, in the places from this one on.
    Groups {
        /// The first place, from 0.
        from_slot: u32,
    },
    /// One group, by its filter.
    Group {
        /// Its filter, with `$share/GROUP/`.
        filter: Box<str>,
    },
    /// Members of a group.
    Members {
        /// The filter of the group, with `$share/GROUP/`.
        filter: Box<str>,
        /// The first place, from 0.
        from: usize,
    },
    /// Messages that wait in a queue.
    Queue {
        /// The queue that is asked about.
        of: QueueOwner,
        /// The message behind which the answer begins. `None` for the first one.
        after: Option<MessageId>,
    },
    /// Discards messages that wait in a queue, those of one window.
    Discard(Box<Discard>),
    /// Moves messages that wait in a queue to another queue, those of one window.
    Move(Box<Move>),
    /// Retained messages that match a filter, in the order of their topics.
    Retained(Box<Cursor>),
    /// The topics with retained messages as a tree: the levels behind some levels.
    Branches {
        /// The levels above. `None` for the first levels of all topics.
        under: Option<Box<str>>,
        /// The level behind which the answer begins.
        after: Option<Box<str>>,
    },
    /// Ends a lasting session whose client is not connected.
    EndSession {
        /// The identifier of the client.
        client_id: Box<str>,
    },
    /// Begins, reads or ends the record of the last messages for a session.
    Fates(AskFates),
}

/// Filters with their granted options, and whether more follow.
pub type SubscriptionPiece = (Vec<(Box<str>, Interest)>, bool);

/// The answer to a [`Question`].
#[derive(Debug)]
pub enum Answer {
    /// The ledger works, and has answered.
    Pong,
    /// The client. `None` if nobody has the identifier.
    Client(Option<Found>),
    /// Some sessions, and the place where the next answer begins. `None` behind the last place.
    Sessions(Vec<SessionFacts>, Option<u32>),
    /// Some subscriptions, and whether more follow. `None` if there is no such session.
    Subscriptions(Option<SubscriptionPiece>),
    /// Some groups, and the place where the next answer begins. `None` behind the last place.
    Groups(Vec<GroupFacts>, Option<u32>),
    /// The group. `None` if there is none.
    Group(Option<GroupFacts>),
    /// Some members. `None` if there is no such group.
    Members(Option<MemberPiece>),
    /// Some messages of a queue. `None` if there is no such queue.
    Queue(Option<QueuePiece>),
    /// The effect of [`Question::Discard`].
    Discard(Discarded),
    /// The effect of [`Question::Move`].
    Move(Moved),
    /// Some messages, and the cursor for the next ones. `None` behind the last one.
    Retained(Vec<Arc<Message>>, Option<Box<Cursor>>),
    /// Some levels, and the level behind which the next answer begins. `None` behind the last level.
    Branches(Vec<Branch>, Option<String>),
    /// The effect of [`Question::EndSession`].
    EndSession(Ended),
    /// The last messages for a session, as far as the ledger decides about them.
    Fates(FateList),
}

/// A client identifier that somebody has.
#[derive(Debug, Clone)]
pub struct Found {
    /// The connection that has it.
    pub place: Option<Place>,
    /// The session that lasts.
    pub session: Option<SessionFacts>,
}

/// The effect of the order to end a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The session has ended.
    Ended,
    /// There is no such session that lasts.
    NoSession,
    /// The client is connected. Disconnect it first.
    Connected,
    /// The end cannot be recorded now.
    NotRecorded,
}

/// A session that outlives its connection.
#[derive(Debug, Clone)]
pub struct SessionFacts {
    /// Its place among all sessions, for [`Question::Sessions`].
    pub slot: u32,
    /// The identifier of its client.
    pub client_id: Arc<str>,
    /// The user for whom it acts.
    pub principal: Arc<Principal>,
    /// Whether its client is connected.
    pub is_connected: bool,
    /// Session Expiry Interval in seconds. [`u32::MAX`] is for ever.
    pub expiry_secs: u32,
    /// While its client is not connected: the time until its expiry, in milliseconds.
    pub expires_in_ms: Option<u64>,
    /// While its client is not connected: since when, in milliseconds since 1970.
    pub left_unix_ms: Option<u64>,
    /// Number of its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait for its client.
    pub queued_messages: usize,
    /// The bytes of these messages.
    pub queued_bytes: usize,
    /// Messages on their way to its client.
    pub in_flight: usize,
    /// Whether it has a will.
    pub has_will: bool,
}

impl Ledger {
    /// Answers a question, or carries out an order.
    pub fn ask(&mut self, question: Question, now: Now, to: &mut impl Effects) -> Answer {
        self.lines.fates.now = now;
        match question {
            Question::Ping => Answer::Pong,
            Question::Fates(ask) => Answer::Fates(self.lines.fates.ask(&ask, now)),
            Question::Client { client_id } => Answer::Client(self.answer_client(&client_id, now)),
            Question::Sessions { from_slot } => {
                let (lines, next) = self.lines.in_slots(from_slot, LINES_PER_ANSWER);
                Answer::Sessions(lines.filter_map(|line| facts(line, now)).collect(), next)
            }
            Question::Subscriptions { client_id, after } => {
                Answer::Subscriptions(self.answer_subscriptions(&client_id, &after))
            }
            Question::Groups { from_slot } => self.answer_groups(from_slot),
            Question::Group { filter } => Answer::Group(self.answer_group(&filter)),
            Question::Members { filter, from } => Answer::Members(self.answer_members(&filter, from)),
            Question::Queue { of, after } => Answer::Queue(self.answer_queue(&of, after, now, to)),
            Question::Discard(discard) => Answer::Discard(self.discard(&discard, now, to)),
            Question::Move(order) => Answer::Move(self.move_messages(&order, now, to)),
            Question::Retained(mut cursor) => {
                let step = self.retained.step(&mut cursor, RETAINED_PER_ANSWER, now);
                let messages = step.messages.into_iter().map(|found| found.message).collect();
                Answer::Retained(messages, (!step.done).then_some(cursor))
            }
            Question::Branches { under, after } => {
                let (under, after) = (under.as_deref(), after.as_deref());
                let (found, next) = self.retained.branches(under, after, BRANCHES_PER_ANSWER, now);
                Answer::Branches(found, next)
            }
            Question::EndSession { client_id } => {
                Answer::EndSession(self.end_by_operator(&client_id, now, to))
            }
        }
    }

    fn answer_client(&self, client_id: &str, now: Now) -> Option<Found> {
        let client = self.sessions.claims.find(client_id)?;
        let session = client.session.and_then(|id| self.lines.find(id)).and_then(|line| facts(line, now));
        let place = client.holder.as_ref().map(|holder| holder.place);
        (place.is_some() || session.is_some()).then_some(Found { place, session })
    }

    fn answer_subscriptions(&self, client_id: &str, after: &str) -> Option<SubscriptionPiece> {
        let session = self.lines.session(self.sessions.claims.find(client_id)?.session?)?;
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        let mut rest = session.subscriptions.range::<str, _>(behind);
        let first = rest.by_ref().take(SUBSCRIPTIONS_PER_ANSWER);
        let found = first.map(|(filter, interest)| (filter.clone(), *interest)).collect();
        Some((found, rest.next().is_some()))
    }

    /// Ends a session as if its time had come.
    fn end_by_operator(&mut self, client_id: &str, now: Now, to: &mut impl Effects) -> Ended {
        // After a restart, the session may still stand as connected.
        let known = self.sessions.claims.find(client_id).and_then(|client| client.session);
        known.into_iter().for_each(|id| self.session_work().settle(id, now, to));
        let Some(client) = self.sessions.claims.find(client_id) else { return Ended::NoSession };
        let (id, is_held) = (client.session, client.holder.is_some());
        let session = id.and_then(|id| Some((id, self.lines.session(id)?)));
        let Some((id, session)) = session else { return Ended::NoSession };
        let Some(lasting) = &session.lasting else {
            return if is_held { Ended::Connected } else { Ended::NoSession };
        };
        if is_held || session.online.is_some() {
            return Ended::Connected;
        }
        let fate = lasting.fate_at_end();
        let record = Record::Ended { session: lasting.incarnation, will: fate };
        if let Err(refusal) = self.replies.commit(&[record], to) {
            let _ = self.replies.reason(refusal);
            return Ended::NotRecorded;
        }
        self.sessions.remove(&mut self.lines, &self.replies, id, fate);
        self.show();
        self.settle_account();
        Ended::Ended
    }
}

impl Cursor {
    /// A cursor over all retained messages that match a filter, from the first one that is behind the topic `after`.
    ///
    /// The cursor also finds messages that were set after it began.
    #[must_use]
    pub fn over_all(filter: TopicFilter<'_>, after: Option<topic::TopicName<'_>>) -> Self {
        crate::retained::cursor_over_all(filter, after)
    }

    /// The position of the cursor, for [`at`](Self::at).
    #[must_use]
    pub fn position(&self) -> &[u8] {
        &self.from
    }

    /// The same cursor at this position.
    #[must_use]
    pub fn at(self, position: &[u8]) -> Self {
        Self { from: position.into(), ..self }
    }
}

/// `None` for a group, and for a session that ends with its connection.
fn facts(line: &Line, now: Now) -> Option<SessionFacts> {
    let session = line.session()?;
    let lasting = session.lasting.as_ref()?;
    Some(SessionFacts {
        slot: session.subscriber.queue.map_or(0, |queue| queue.slot),
        client_id: Arc::clone(&session.subscriber.client_id),
        principal: session.subscriber.principal(),
        is_connected: session.online.is_some(),
        expiry_secs: lasting.expiry_secs,
        expires_in_ms: lasting.expires_ms.map(|at_ms| at_ms.saturating_sub(now.monotonic_ms)),
        left_unix_ms: lasting.left_unix_ms,
        subscriptions: session.subscriptions.len(),
        queued_messages: line.queue.len(),
        queued_bytes: line.queue.bytes(),
        in_flight: session.in_flight.len(),
        has_will: lasting.will.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use wire::Qos;

    use super::*;
    use crate::record::{Incarnation, WillFate};
    use crate::settings::Settings;

    const NOW: Now = Now { monotonic_ms: 2_000, unix_ms: 2_000 };

    pub(super) fn ledger(records: Vec<Record<'static>>) -> Ledger {
        let index = Arc::new(index::Subscriptions::new([1, 2]));
        Ledger::recover(Settings::default(), index, records, NOW)
    }

    fn sessions(count: u64) -> Vec<Record<'static>> {
        let session = |number: u64| {
            let session = Incarnation(number);
            let interest = Interest::new(Qos::AtLeastOnce);
            [
                Record::Session { session, client_id: format!("client-{number}").into() },
                Record::Subscribed { session, filter: "a/#".into(), interest },
                Record::Left { session, expiry_secs: 60, unix_ms: 1_000, will: WillFate::Dropped },
            ]
        };
        (1..=count).flat_map(session).collect()
    }

    #[test]
    fn sessions_are_listed_in_pieces() {
        let ledger = ledger(sessions(1_000));
        let (mut from_slot, mut listed, mut answers) = (Some(0), 0, 0);
        while let Some(slot) = from_slot {
            let (lines, next) = ledger.lines.in_slots(slot, LINES_PER_ANSWER);
            listed += lines.filter_map(|line| facts(line, NOW)).count();
            (from_slot, answers) = (next, answers + 1);
        }
        assert_eq!((listed, answers), (1_000, 4));
    }

    #[test]
    fn a_session_is_found_by_its_client_identifier() {
        let ledger = ledger(sessions(3));
        let found = ledger.answer_client("client-2", NOW).expect("it is there");
        let session = found.session.expect("it lasts");
        assert_eq!((&*session.client_id, session.subscriptions, found.place), ("client-2", 1, None));
        assert_eq!(session.expires_in_ms, Some(59_000));
        assert!(ledger.answer_client("client-4", NOW).is_none());
        let (subscriptions, has_more) = ledger.answer_subscriptions("client-2", "").expect("it is there");
        assert_eq!((&*subscriptions[0].0, has_more), ("a/#", false));
        assert_eq!(ledger.answer_subscriptions("client-2", "a/#").map(|(rest, _)| rest.len()), Some(0));
    }
}
