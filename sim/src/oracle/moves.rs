//! Orders of an operator to move messages: copies that come to other clients because of them, once, and are not lost.

use std::collections::BTreeMap;

use ledger::QueueOwner;
use wire::Qos;

use super::sessions::Session;
use super::settlement::Missed;
use super::{Message, MessageNo, Oracle, SessionNo, Tick};

/// The orders of the operator, by their numbers.
pub(super) type Moves = BTreeMap<usize, MoveOrder>;

/// An order of which the ledger may have carried out a part.
#[derive(Debug)]
pub(super) struct MoveOrder {
    from: Queue,
    into: Queue,
    /// The number of the filter. `None` if all messages are meant.
    filter: Option<usize>,
    /// A message that was published later stays. `Tick::MAX` before the ledger has answered.
    until: Tick,
    /// Number of crashes at that time. After another one, numbers of messages that were lost are given to new messages.
    crashes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Client(usize),
    /// By the number of its filter.
    Group(usize),
}

impl Oracle {
    /// The operator gives an order, or asks for the next part of one. Each queue comes with the number of its client.
    pub(crate) fn ordered_move(
        &mut self,
        number: usize,
        queues: [(&QueueOwner, Option<usize>); 2],
        filter: Option<&str>,
    ) {
        let filter_number = |text: &str| self.filters.iter().position(|filter| filter == text);
        let [from, into] = queues.map(|(of, client)| match of {
            QueueOwner::Client(_) => Queue::Client(client.expect("the queue is of a client of the run")),
            QueueOwner::Group(text) => Queue::Group(filter_number(text).expect("the group is of the run")),
        });
        let filter = filter.map(|text| filter_number(text).expect("the filter is of the run"));
        let begun = MoveOrder { from, into, filter, until: Tick::MAX, crashes: self.crashes };
        let order = self.moves.entry(number).or_insert(begun);
        if order.crashes < self.crashes {
            (order.until, order.crashes) = (Tick::MAX, self.crashes);
        }
    }

    /// The ledger has carried out a part of an order.
    pub(crate) fn moved(&mut self, number: usize) {
        let tick = self.tick;
        if let Some(order) = self.moves.get_mut(&number) {
            order.until = order.until.min(tick);
        }
    }

    /// The process is gone: what it was told and has not answered is over.
    pub(super) fn forget_moves_under_way(&mut self) {
        let tick = self.tick;
        self.moves.values_mut().for_each(|order| order.until = order.until.min(tick));
    }

    fn moves_of<'a>(&'a self, message: &'a Message) -> impl Iterator<Item = &'a MoveOrder> {
        self.moves.values().filter(|order| {
            message.published <= order.until
                && order.filter.is_none_or(|filter| self.matches[filter][message.topic])
        })
    }

    /// Whether an order may have brought a message to a session.
    pub(super) fn may_be_moved_to(&self, session: &Session, message: &Message) -> bool {
        self.moves_of(message).any(|order| match order.into {
            Queue::Client(client) => client == session.client,
            Queue::Group(filter) => session.spans.iter().any(|span| span.wish.filter == filter),
        })
    }

    /// Whether an order explains that a copy is missing where it was due.
    pub(super) fn is_moved(&self, missed: &Missed) -> bool {
        let from = missed.group.map_or(Queue::Client(missed.client), Queue::Group);
        self.moves_of(self.message(missed.no)).any(|order| order.from == from)
    }

    /// The number of copies that orders have taken from where they were due, and that nobody has. Copies that came to a
    /// session which has ended are not among them.
    pub(super) fn lost_in_moves(&self, moved: &[&Missed], alive: &[SessionNo]) -> usize {
        let mut of_messages = BTreeMap::<MessageNo, usize>::new();
        for missed in moved {
            *of_messages.entry(missed.no).or_default() += 1;
        }
        let lost = |(no, missed): (MessageNo, usize)| {
            let message = self.message(no);
            if self.moves_of(message).any(|order| self.may_lose(order.into, message, alive)) {
                return 0;
            }
            let taken: usize = self.sessions.iter().map(|session| usize::from(session.receipts_of(no))).sum();
            let received = self.received_where_due(no, alive);
            (received + missed).saturating_sub(taken)
        };
        of_messages.into_iter().map(lost).sum()
    }

    /// Whether a message may be lost in a queue, because a session ends or does not take it.
    fn may_lose(&self, queue: Queue, message: &Message, alive: &[SessionNo]) -> bool {
        let is_alive = |session: &Session| {
            alive.iter().any(|number| std::ptr::eq(&raw const self.sessions[number.0], session))
        };
        let mut members = self.sessions.iter().filter(|session| match queue {
            Queue::Client(client) => session.client == client,
            Queue::Group(filter) => session.spans.iter().any(|span| span.wish.filter == filter),
        });
        let is_group = matches!(queue, Queue::Group(_));
        let takes_less = |session: &Session| {
            is_group
                && session
                    .spans
                    .iter()
                    .any(|span| span.wish.qos == Qos::AtMostOnce || span.end_asked.is_some())
        };
        members.any(|session| !is_alive(session) || !session.takes(message) || takes_less(session))
    }

    /// A message of QoS 2 comes to all sessions together at most as often as ways lead to them.
    pub(super) fn check_moved_once(&self) -> Result<(), String> {
        if self.moves.is_empty() {
            return Ok(());
        }
        for number in 0..self.messages.len() {
            let no = MessageNo(u32::try_from(number).expect("a run is short"));
            let message = self.message(no);
            if message.will.is_some() {
                continue;
            }
            let exactly = |session: &Session| usize::from(session.receipts_with(no, Qos::ExactlyOnce));
            let taken: usize = self.sessions.iter().map(exactly).sum();
            let ways: usize = self.sessions.iter().map(|session| self.ways(session, message)).sum();
            if taken > ways {
                return Err(format!("{} comes {taken} times at QoS 2, on {ways} ways", self.name(no)));
            }
        }
        Ok(())
    }
}
