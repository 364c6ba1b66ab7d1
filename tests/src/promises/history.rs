//! The packets that one client has sent and received, with their times.

use crate::trace::Position;

/// An action of a client, or an event at a client.
pub(crate) trait Step: Clone {
    /// Whether the step is an action of the client. The broker cannot have known about it before.
    fn is_sent(&self) -> bool;
}

/// The knowledge of a client, as a result of its steps.
pub(crate) trait Knowledge: Default {
    type Step: Step;

    fn learn(&mut self, step: &Self::Step);
}

/// All steps of a client in order, and the resulting knowledge.
#[derive(Debug, Clone)]
pub(crate) struct History<K: Knowledge> {
    steps: Vec<(Position, K::Step)>,
    now: K,
}

impl<K: Knowledge> Default for History<K> {
    fn default() -> Self {
        Self { steps: Vec::new(), now: K::default() }
    }
}

impl<K: Knowledge> History<K> {
    /// Adds a step. `at` is the position in the trace before the client sends, or after it has received.
    pub(crate) fn note(&mut self, at: Position, step: K::Step) {
        self.now.learn(&step);
        self.steps.push((at, step));
    }

    pub(crate) fn now(&self) -> &K {
        &self.now
    }

    /// Returns the client as it may have been at a cut of the trace.
    ///
    /// The client has sent all packets that can have had consequences on the broker's disk at that time. It has
    /// received only the packets whose cause was certainly on the disk. Later packets count as lost on their way.
    pub(crate) fn cut(&self, at: Position) -> Self {
        let is_before = |(position, step): &&(Position, K::Step)| {
            if step.is_sent() { *position < at } else { *position <= at }
        };
        let mut history = Self::default();
        for (position, step) in self.steps.iter().take_while(is_before) {
            history.note(*position, step.clone());
        }
        history
    }

    /// Returns the positions of the packets that the client received.
    pub(crate) fn received_at(&self) -> impl Iterator<Item = Position> {
        self.steps.iter().filter(|(_, step)| !step.is_sent()).map(|(position, _)| *position)
    }
}
