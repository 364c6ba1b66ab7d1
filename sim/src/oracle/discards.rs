//! Orders of an operator to discard messages: copies that may be missing because of them, and no others.

use std::collections::{BTreeMap, BTreeSet};

use ledger::QueueOwner;

use super::sessions::Session;
use super::settlement::Missed;
use super::{Oracle, Tick};

/// The orders that the ledger has begun to carry out, by their numbers.
pub(super) type Orders = BTreeMap<usize, Order>;

/// An order of which the ledger has carried out a part.
#[derive(Debug)]
pub(super) struct Order {
    queue: Queue,
    /// The number of the filter. `None` if all messages are meant.
    filter: Option<usize>,
    /// A message that was published later stays: it came behind the last one that is meant.
    until: Tick,
    /// Number of crashes at that time. After another one, numbers of messages that were lost are given to new messages.
    crashes: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Queue {
    Client(usize),
    /// By the number of its filter.
    Group(usize),
}

impl Oracle {
    /// The ledger has carried out a part of an order. `client`: the number of the client whose queue it is.
    pub(crate) fn discarded(
        &mut self,
        number: usize,
        of: &QueueOwner,
        client: Option<usize>,
        filter: Option<&str>,
    ) {
        let filter_number = |text: &str| self.filters.iter().position(|filter| filter == text);
        let queue = match of {
            QueueOwner::Client(_) => Queue::Client(client.expect("the queue is of a client of the run")),
            QueueOwner::Group(text) => Queue::Group(filter_number(text).expect("the group is of the run")),
        };
        let filter = filter.map(|text| filter_number(text).expect("the filter is of the run"));
        let begun = Order { queue, filter, until: self.tick, crashes: self.crashes };
        let order = self.orders.entry(number).or_insert(begun);
        if order.crashes < self.crashes {
            (order.until, order.crashes) = (self.tick, self.crashes);
        }
    }

    /// The topics of messages that orders have discarded in this process, from the queue of the session or of its groups.
    pub(super) fn topics_discarded_for(&self, session: &Session) -> BTreeSet<usize> {
        let is_its_own = |order: &&Order| match order.queue {
            Queue::Client(client) => client == session.client,
            Queue::Group(filter) => session.shares(|shared| shared == filter),
        };
        let of_process = self.orders.values().filter(|order| order.crashes == self.crashes);
        let is_meant =
            |order: &Order, topic: usize| order.filter.is_none_or(|filter| self.matches[filter][topic]);
        let all = 0..self.topics.len();
        of_process
            .filter(is_its_own)
            .flat_map(|order| all.clone().filter(move |topic| is_meant(order, *topic)))
            .collect()
    }

    /// Whether an order of an operator explains that a copy is missing.
    pub(super) fn is_discarded(&self, missed: &Missed) -> bool {
        let message = self.message(missed.no);
        let queue = missed.group.map_or(Queue::Client(missed.client), Queue::Group);
        self.orders.values().any(|order| {
            order.queue == queue
                && message.published <= order.until
                && order.filter.is_none_or(|filter| self.matches[filter][message.topic])
        })
    }
}
