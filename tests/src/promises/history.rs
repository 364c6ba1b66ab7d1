//! What one client has sent and received, and when.

use crate::trace::Position;

/// Something that a client did, or that was done to it.
pub(crate) trait Step: Clone {
    /// Whether the client did it: then the broker cannot have known of it before.
    fn is_sent(&self) -> bool;
}

/// What a client knows, from what has happened to it.
pub(crate) trait Knowledge: Default {
    type Step: Step;

    fn learn(&mut self, step: &Self::Step);
}

/// All steps of a client in their order, and what follows from them.
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
    /// A position is that of the trace before a client sends, and after it has received.
    pub(crate) fn note(&mut self, at: Position, step: K::Step) {
        self.now.learn(&step);
        self.steps.push((at, step));
    }

    pub(crate) fn now(&self) -> &K {
        &self.now
    }

    /// The client as it may have been when the broker's disk was as a cut of the trace leaves it: it has sent all that can
    /// have had a consequence there, and has received all whose cause is there for certain. What else it has received in
    /// truth is taken for lost on its way.
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

    /// Where something was received.
    pub(crate) fn received_at(&self) -> impl Iterator<Item = Position> {
        self.steps.iter().filter(|(_, step)| !step.is_sent()).map(|(position, _)| *position)
    }
}
