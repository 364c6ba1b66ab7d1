//! Answers of one kind, which leave in the order of their packets [MQTT-4.6.0-2] to [MQTT-4.6.0-4].

use std::collections::VecDeque;

use wire::PacketId;

/// Owed answers in their order. Each gets its outcome at any time, and leaves after all answers before it.
#[derive(Debug)]
pub(crate) struct InOrder<R> {
    owed: VecDeque<(PacketId, Option<R>)>,
    /// Number of answers at the front that have their outcome and wait for [`pop`](Self::pop).
    ready: usize,
}

impl<R> Default for InOrder<R> {
    fn default() -> Self {
        Self { owed: VecDeque::new(), ready: 0 }
    }
}

impl<R: Copy> InOrder<R> {
    /// Adds an owed answer without an outcome.
    pub(crate) fn push(&mut self, packet_id: PacketId) {
        self.owed.push_back((packet_id, None));
    }

    /// Adds an owed answer with its outcome.
    pub(crate) fn push_complete(&mut self, packet_id: PacketId, outcome: R) {
        self.owed.push_back((packet_id, Some(outcome)));
        self.advance();
    }

    /// Removes the last answer, if it has this identifier and no outcome.
    pub(crate) fn take_back(&mut self, packet_id: PacketId) {
        self.owed.pop_back_if(|owed| owed.0 == packet_id && owed.1.is_none());
    }

    /// Sets the outcome of the first answer with this identifier and without an outcome. Returns whether there was one.
    pub(crate) fn complete(&mut self, packet_id: PacketId, outcome: R) -> bool {
        let Some(found) = self.find(packet_id) else { return false };
        self.owed[found].1 = Some(outcome);
        self.advance();
        true
    }

    /// Sets the outcome of the last `count` answers, none of which has one.
    pub(crate) fn complete_last(&mut self, count: usize, outcome: R) {
        let first = self.owed.len().checked_sub(count).expect("the last packets are owed their answers");
        for (_, known) in self.owed.range_mut(first..) {
            debug_assert!(known.is_none(), "the packets have just come");
            *known = Some(outcome);
        }
        self.advance();
    }

    /// Removes the next answer that may leave.
    pub(crate) fn pop(&mut self) -> Option<(PacketId, R)> {
        self.ready = self.ready.checked_sub(1)?;
        let (packet_id, outcome) = self.owed.pop_front()?;
        Some((packet_id, outcome?))
    }

    pub(crate) fn len(&self) -> usize {
        self.owed.len()
    }

    /// Outcomes arrive in order, except those that are known at once: the first and the last answer are checked first.
    /// Otherwise all unanswered packets of the peer are searched.
    fn find(&self, packet_id: PacketId) -> Option<usize> {
        let is_it = |owed: &(PacketId, Option<R>)| owed.0 == packet_id && owed.1.is_none();
        if self.owed.get(self.ready).is_some_and(is_it) {
            return Some(self.ready);
        }
        if self.owed.back().is_some_and(is_it) {
            return Some(self.owed.len() - 1);
        }
        let mut behind = self.owed.range(self.ready..);
        behind.position(is_it).map(|at| self.ready + at)
    }

    fn advance(&mut self) {
        while self.owed.get(self.ready).is_some_and(|(_, outcome)| outcome.is_some()) {
            self.ready += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u16) -> PacketId {
        PacketId::new(number).expect("not 0")
    }

    #[test]
    fn complete_answers_wait_for_earlier_answers() {
        let mut answers = InOrder::default();
        for number in [3, 1, 2] {
            answers.push(id(number));
        }
        assert!(answers.complete(id(2), 'c') && answers.complete(id(1), 'b'));
        assert_eq!(answers.pop(), None);
        assert!(answers.complete(id(3), 'a'));
        assert!(!answers.complete(id(3), 'd'), "it has its outcome");
        answers.push_complete(id(3), 'd');
        let left: Vec<_> = std::iter::from_fn(|| answers.pop()).collect();
        assert_eq!(left, [(id(3), 'a'), (id(1), 'b'), (id(2), 'c'), (id(3), 'd')]);
        assert_eq!(answers.len(), 0);
    }
}
