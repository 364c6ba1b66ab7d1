//! An operator who moves messages that wait from one queue to another, of sessions and groups, all or those of a filter.

use std::sync::{Arc, Mutex, PoisonError};

use ledger::{Move, Moved, MovedPiece, OperatorAnswer, Question, QueueOwner, Stopped};
use turn::{AskLedger, ToLedger};

use crate::broker::Process;
use crate::orders;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scene::Scene;
use crate::trace::note;

/// Out of a thousand orders: they concern all messages of a queue.
const ALL_PER_MILLE: usize = 600;

/// The operator who moves messages.
pub(crate) struct Moves {
    random: Random,
    /// Out of a thousand steps: an order.
    orders_per_mille: usize,
    /// The next part of an order that was not carried out whole.
    rest: Arc<Mutex<Option<Part>>>,
    moved: Arc<Mutex<usize>>,
    /// Numbers of orders of which the ledger has carried out a part, and of which the judge has not heard.
    done: Arc<Mutex<Vec<usize>>>,
    orders: usize,
}

/// A part of an order.
#[derive(Debug, Clone)]
struct Part {
    /// The number of the order.
    number: usize,
    order: Move,
}

impl Moves {
    pub(crate) fn draw(seed: u64) -> Self {
        // Its own numbers: the rest of a run is left to the same chance as without it.
        let mut random = Random::new(seed ^ 0x5EED_307E_A2D0_0000);
        let orders_per_mille = *random.pick(&[1, 5, 20]);
        let (rest, moved, done) = (Arc::default(), Arc::default(), Arc::default());
        Self { random, orders_per_mille, rest, moved, done, orders: 0 }
    }

    /// Number of messages that were moved.
    pub(crate) fn moved(&self) -> usize {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An order, if it is time for one.
    pub(crate) fn turn(&mut self, process: &mut Process, scenario: &Scenario, scene: &mut Scene) {
        self.tell(scene);
        if !self.random.chance(self.orders_per_mille) {
            return;
        }
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let part = rest.unwrap_or_else(|| {
            self.orders += 1;
            Part { number: self.orders, order: self.draw_order(scenario) }
        });
        let Part { number, order } = part.clone();
        note!(scene.trace, ("operator"), "{order:?}");
        let client = |of: &QueueOwner| {
            let is_it = |name: &str| matches!(of, QueueOwner::Client(client_id) if **client_id == *name);
            scenario.clients.iter().position(|client| is_it(&client.client_id))
        };
        let queues = [(&order.from, client(&order.from)), (&order.into, client(&order.into))];
        scene.oracle.ordered_move(number, queues, order.filter.as_deref());
        let (rest, moved, done) = (Arc::clone(&self.rest), Arc::clone(&self.moved), Arc::clone(&self.done));
        let answer = Box::new(move |answer| {
            done.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            let OperatorAnswer::Move(Moved::Some(piece)) = answer else { return };
            *moved.lock().unwrap_or_else(PoisonError::into_inner) += piece.messages;
            *rest.lock().unwrap_or_else(PoisonError::into_inner) = part.behind(&piece);
        });
        let question = Question::Move(Box::new(order));
        process.post_to_ledger(ToLedger::Ask(Box::new(AskLedger { question, answer })));
    }

    /// Tells the judge what was carried out.
    pub(crate) fn tell(&self, scene: &mut Scene) {
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        done.into_iter().for_each(|number| scene.oracle.moved(number));
    }

    fn draw_order(&mut self, scenario: &Scenario) -> Move {
        let random = &mut self.random;
        let (from, into) = (orders::draw_queue(scenario, random), orders::draw_queue(scenario, random));
        let filter = orders::draw_filter(scenario, ALL_PER_MILLE, random);
        Move { from, into, filter, after: None, until: None }
    }
}

impl Part {
    /// The part behind one that was carried out. `None` if nothing is left, or nothing can be done now.
    fn behind(&self, piece: &MovedPiece) -> Option<Self> {
        let is_over = match piece.stopped {
            Some(Stopped::Reading) => false,
            Some(_) => true,
            None => piece.next.is_none(),
        };
        let order = Move { after: piece.next, until: Some(piece.until), ..self.order.clone() };
        (!is_over).then_some(Self { number: self.number, order })
    }
}
