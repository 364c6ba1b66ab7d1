//! Messages that wait behind those that are under way.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::Message;
use thin_vec::ThinVec;
use wire::Qos;

/// A message for the client that waits until there is a place among those under way.
#[derive(Debug, Clone)]
pub struct Waiting<T = u64> {
    /// The message.
    pub message: Arc<Message>,
    /// What it is sent with, 1 or 2.
    pub qos: Qos,
    /// RETAIN as it is sent.
    pub retain: bool,
    /// The identifiers of the subscriptions that it comes for.
    pub identifiers: ThinVec<NonZeroU32>,
    /// Whatever the caller wants to find again.
    pub tag: T,
}

/// What became of a message that was to wait.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It waits.
    Waits,
    /// There is no room, and it is lost unless the caller has it.
    Full,
}

/// An empty queue keeps the memory of so many messages: one that was long once is not kept long.
const KEPT: usize = 16;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) messages: usize,
    /// By [`Message::size_bytes`]; one message may always wait.
    pub(crate) bytes: usize,
}

/// First in, first out, bounded.
#[derive(Debug)]
pub(crate) struct WaitingQueue<T> {
    /// Each with whether it is bounded.
    queue: VecDeque<(Waiting<T>, bool)>,
    bytes: usize,
    /// Those that are bounded, and their bytes.
    bounded: usize,
    bounded_bytes: usize,
}

impl<T> Default for WaitingQueue<T> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), bytes: 0, bounded: 0, bounded_bytes: 0 }
    }
}

impl<T> WaitingQueue<T> {
    pub(crate) fn push(&mut self, waiting: Waiting<T>, bound: Bound) -> Wait {
        let bytes = weight_bytes(&waiting);
        let fits = self.bounded < bound.messages && self.bounded_bytes.saturating_add(bytes) <= bound.bytes;
        // What is larger than everything that may wait would otherwise never come through.
        if !fits && self.bounded > 0 {
            return Wait::Full;
        }
        self.bounded += 1;
        self.bounded_bytes += bytes;
        self.bytes += bytes;
        self.queue.push_back((waiting, true));
        Wait::Waits
    }

    pub(crate) fn push_unbounded(&mut self, waiting: Waiting<T>) {
        self.bytes += weight_bytes(&waiting);
        self.queue.push_back((waiting, false));
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting<T>> {
        let (waiting, is_bounded) = self.queue.pop_front()?;
        let bytes = weight_bytes(&waiting);
        self.bytes -= bytes;
        if is_bounded {
            self.bounded -= 1;
            self.bounded_bytes -= bytes;
        }
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
        Some(waiting)
    }

    pub(crate) fn front(&self) -> Option<&Waiting<T>> {
        self.queue.front().map(|(waiting, _)| waiting)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiting<T>> {
        self.queue.iter().map(|(waiting, _)| waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn weight_bytes<T>(waiting: &Waiting<T>) -> usize {
    waiting.message.size_bytes() + size_of_val(&*waiting.identifiers)
}
