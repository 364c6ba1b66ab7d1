//! Sessions that end: invisible at once, freed bit by bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Fate, Interest, Now, QueueId, Subscriber};
use index::Change;
use topic::TopicFilter;

use crate::gauges::{add, subtract};
use crate::lines::fates::Whereabouts;
use crate::lines::pieces::pay;
use crate::lines::session::{Share, Unfinished};
use crate::lines::{Line, Lines, Owner};
use crate::queue::Queue;
use crate::queue::in_flight::State;
use crate::record::{Effects, RETRY_MS, Record, WillFate};
use crate::replies::Replies;
use crate::sessions::subscribe::subscription_bytes;
use crate::sessions::wills::DueWill;
use crate::sessions::{SessionWork, Sessions};

/// The most filters that are taken out of the index under one lock, and messages that are freed at a time.
const PIECE: usize = 64;
/// The units of work for that many messages.
const UNITS_OF_MESSAGES: usize = 4;

/// The remains of an ended session.
#[derive(Debug)]
pub(crate) struct Ending {
    session: QueueId,
    subscriber: Arc<Subscriber>,
    subscriptions: BTreeMap<Box<str>, Interest>,
    shares: BTreeMap<QueueId, Share>,
    cursors: BTreeMap<Box<str>, Unfinished>,
    queue: Queue,
}

impl Sessions {
    /// Forgets a session whose end is recorded, or of which nothing was. Its subscriptions lead nowhere any more; they
    /// and its messages are taken away by [`end_some`](SessionWork::end_some).
    pub(crate) fn remove(&mut self, lines: &mut Lines, replies: &Replies, id: QueueId, will: WillFate) {
        let line = lines.remove(id).expect("a session ends once");
        let Line { owner: Owner::Session(mut session), queue, .. } = *line else {
            unreachable!("it is a session")
        };
        lines.sweep.forget(id);
        self.claims.set_session(&session.subscriber.client_id, None);
        if session.lasting.is_some() && !replies.is_all_durable() {
            self.claims.set_ended(&session.subscriber.client_id, replies.committed());
        }
        self.claims.settle(&session.subscriber.client_id);
        let mut cursors = BTreeMap::new();
        if let Some(lasting) = session.lasting.take() {
            self.unreleased -= lasting.unreleased.len();
            self.timers.set(id, lasting.timer_ms, None);
            subtract(&lines.gauges.sessions, 1);
            session.subscriber.move_to(None);
            if session.open().is_some() {
                subtract(&lines.gauges.sessions_connected, 1);
            }
            if let Some(old) = lasting.will {
                subtract(&lines.gauges.wills_pending, usize::from(old.due_ms.is_some()));
                if will != WillFate::Dropped {
                    let principal = session.subscriber.principal();
                    self.wills.push(DueWill::new(Some(old.id), old.message, principal));
                }
            }
            cursors = lasting.cursors;
        }
        let shared =
            session.in_flight.iter().filter(|exchange| matches!(exchange.state, State::Shared { .. }));
        let shared = shared.map(|exchange| exchange.packet_id);
        lines.fates.session_ended(&session.subscriber, (queue.len(), queue.bytes()), shared);
        let lanes = session.in_flight.take_lanes();
        let lent: Vec<_> = session
            .in_flight
            .in_order()
            .into_iter()
            .filter_map(|exchange| match exchange.state {
                State::Shared { group, message } | State::Taken { group, message } => Some((group, message)),
                State::Own(..) | State::Released => None,
            })
            .collect();
        session.in_flight.iter().for_each(|exchange| self.moved.forget(exchange));
        let own = session.in_flight.len() - lent.len();
        lines.fates.count(Whereabouts::Window, (own, 0), &Fate::SessionEnded);
        // At once, and no more than a window of them: they go before everything that the groups have not sent yet.
        lent.into_iter().for_each(|(group, message)| lines.give_back(group, message));
        lanes.into_iter().for_each(|(group, lane)| lines.finish_in_lane(group, lane, 0));
        self.endings.push_back(Ending {
            session: id,
            subscriber: session.subscriber,
            subscriptions: session.subscriptions,
            shares: session.shares,
            cursors,
            queue,
        });
    }
}

impl SessionWork<'_> {
    /// Goes on freeing what ended sessions have left.
    pub(crate) fn end_some(&mut self, units: &mut usize, to: &mut impl Effects) {
        while *units > 0
            && let Some(mut ending) = self.sessions.endings.pop_front()
        {
            *units -= 1;
            if !self.end_step(&mut ending, units, to) {
                self.sessions.endings.push_front(ending);
            }
        }
    }

    /// Ends one piece. Returns whether nothing is left.
    fn end_step(&mut self, ending: &mut Ending, units: &mut usize, to: &mut impl Effects) -> bool {
        if let Some((group, share)) = ending.shares.pop_first() {
            let is_last = self.lines.group(group).is_some_and(|group| group.members == 1);
            if is_last {
                // If this record is refused, recovery removes the group, because it has no members.
                let _ = self.replies.record_end_of(self.lines, group, to);
            }
            let lanes = self.lines.leave(&ending.subscriber, ending.session, group, &share);
            *units = units.saturating_sub(lanes);
        } else if !ending.cursors.is_empty() {
            let _ = ending.cursors.pop_first();
        } else if !ending.subscriptions.is_empty() {
            self.unsubscribe_piece(ending, units);
        } else {
            *units = units.saturating_sub(UNITS_OF_MESSAGES);
            return ending.queue.free(PIECE);
        }
        false
    }

    fn unsubscribe_piece(&mut self, ending: &mut Ending, units: &mut usize) {
        let mut piece: Vec<Box<str>> = Vec::new();
        while piece.is_empty() || piece.len() < PIECE && *units > 0 {
            let Some((filter, _)) = ending.subscriptions.pop_first() else { break };
            if pay(units, &filter).is_none() {
                *units = 0;
            }
            piece.push(filter);
        }
        self.sessions.subscription_bytes -=
            piece.iter().map(|filter| subscription_bytes(filter)).sum::<usize>();
        let filters = piece.iter().filter_map(|filter| TopicFilter::new(filter).ok());
        let plain = filters.filter(|filter| filter.shared().is_none());
        let changes = plain.map(|filter| Change::Unsubscribe { filter, subscriber: &ending.subscriber });
        self.lines.index.apply(changes, &mut Vec::new());
    }

    /// Looks after the sessions whose time has come: a will that has waited long enough, the end.
    pub(crate) fn look_at_timers(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        while *units > 0
            && let Some(id) = self.sessions.timers.pop(now.monotonic_ms)
        {
            *units -= 1;
            self.look_at_timer(id, now, to);
        }
    }

    fn look_at_timer(&mut self, id: QueueId, now: Now, to: &mut impl Effects) {
        let session = self.lines.session_mut(id).and_then(|session| session.lasting.as_mut());
        let session = session.expect("what has a timer is a session that lasts");
        session.timer_ms = None;
        let is_due = |due_ms: Option<u64>| due_ms.is_some_and(|due_ms| due_ms <= now.monotonic_ms);
        if is_due(session.expires_ms) {
            let fate = session.fate_at_end();
            let record = Record::Ended { session: session.incarnation, will: fate };
            match self.replies.commit(&[record], to) {
                Ok(()) => {
                    add(&self.gauges.sessions_expired, 1);
                    return self.sessions.remove(self.lines, self.replies, id, fate);
                }
                Err(refusal) => {
                    // When nothing will be recorded any more, it ends after the restart.
                    let is_tried_again = !self.replies.is_poisoned();
                    session.expires_ms = is_tried_again.then_some(now.monotonic_ms + RETRY_MS);
                    let _ = self.replies.reason(refusal);
                }
            }
        }
        let principal = self.lines.principal_of(id);
        let session = self.lines.session_mut(id).and_then(|session| session.lasting.as_mut());
        let session = session.expect("what has a timer is a session that lasts");
        if let Some(will) = session.will.as_mut().filter(|will| is_due(will.due_ms)) {
            let record = Record::WillDue { session: session.incarnation };
            // One that cannot be recorded is better published twice than never.
            if self.replies.commit(&[record], to).is_err() && !self.replies.is_poisoned() {
                will.due_ms = Some(now.monotonic_ms + RETRY_MS);
            } else if let Some(will) = session.will.take() {
                subtract(&self.gauges.wills_pending, 1);
                self.sessions.wills.push(DueWill::new(Some(will.id), will.message, principal));
            }
        }
        let due_ms = session.next_timer_ms();
        self.sessions.timers.set(id, None, due_ms);
        session.timer_ms = due_ms;
    }
}
