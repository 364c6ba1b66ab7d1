//! An operator who discards messages that wait, out of queues of sessions and groups, all or those of a filter.

use std::sync::{Arc, Mutex, PoisonError};

use ledger::{Discard, Discarded, OperatorAnswer, Question, QueueOwner};
use turn::{AskLedger, ToLedger};

use crate::broker::Process;
use crate::orders;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scene::Scene;
use crate::trace::note;

/// Out of a thousand orders: they concern all messages of a queue.
const ALL_PER_MILLE: usize = 400;

/// The operator who discards messages.
pub(crate) struct Discards {
    random: Random,
    /// Out of a thousand steps: an order.
    orders_per_mille: usize,
    /// The next part of an order that was not carried out whole.
    rest: Arc<Mutex<Option<Part>>>,
    discarded: Arc<Mutex<usize>>,
    /// Parts that were carried out, and of which the judge has not heard.
    done: Arc<Mutex<Vec<Part>>>,
    orders: usize,
}

/// A part of an order.
#[derive(Debug, Clone)]
struct Part {
    /// The number of the order.
    number: usize,
    order: Discard,
}

impl Discards {
    pub(crate) fn draw(seed: u64) -> Self {
        // Its own numbers: the rest of a run is left to the same chance as without it.
        let mut random = Random::new(seed ^ 0x5EED_D15C_A2D0_0000);
        let orders_per_mille = *random.pick(&[1, 5, 20]);
        let (rest, discarded, done) = (Arc::default(), Arc::default(), Arc::default());
        Self { random, orders_per_mille, rest, discarded, done, orders: 0 }
    }

    /// Number of messages that were discarded.
    pub(crate) fn discarded(&self) -> usize {
        *self.discarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An order, if it is time for one.
    pub(crate) fn turn(&mut self, process: &mut Process, scenario: &Scenario, scene: &mut Scene) {
        self.tell(scenario, scene);
        if !self.random.chance(self.orders_per_mille) {
            return;
        }
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Part { number, order } = rest.unwrap_or_else(|| {
            self.orders += 1;
            Part { number: self.orders, order: self.draw_order(scenario) }
        });
        note!(scene.trace, ("operator"), "{order:?}");
        let (rest, discarded) = (Arc::clone(&self.rest), Arc::clone(&self.discarded));
        let done = Arc::clone(&self.done);
        let again = order.clone();
        let answer = Box::new(move |answer| {
            let OperatorAnswer::Discard(Discarded::Some { messages, next, until, is_reading, .. }) = answer
            else {
                return;
            };
            let part = Part { number, order: again.clone() };
            done.lock().unwrap_or_else(PoisonError::into_inner).push(part);
            *discarded.lock().unwrap_or_else(PoisonError::into_inner) += messages;
            let after = if is_reading { again.after } else { next };
            let is_done = !is_reading && next.is_none();
            let order = Discard { after, until: Some(until), ..again };
            let next = (!is_done).then_some(Part { number, order });
            *rest.lock().unwrap_or_else(PoisonError::into_inner) = next;
        });
        let question = Question::Discard(Box::new(order));
        process.post_to_ledger(ToLedger::Ask(Box::new(AskLedger { question, answer })));
    }

    /// Tells the judge what was carried out.
    pub(crate) fn tell(&self, scenario: &Scenario, scene: &mut Scene) {
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        for Part { number, order: Discard { of, filter, .. } } in done {
            let is_it = |client_id: &str| matches!(&of, QueueOwner::Client(name) if **name == *client_id);
            let client = scenario.clients.iter().position(|client| is_it(&client.client_id));
            scene.oracle.discarded(number, &of, client, filter.as_deref());
        }
    }

    fn draw_order(&mut self, scenario: &Scenario) -> Discard {
        let of = orders::draw_queue(scenario, &mut self.random);
        let filter = orders::draw_filter(scenario, ALL_PER_MILLE, &mut self.random);
        Discard { of, filter, after: None, until: None }
    }
}
