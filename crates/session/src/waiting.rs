//! Messages that wait behind those in flight.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::Message;
use thin_vec::ThinVec;
use wire::Qos;

use crate::Settings;

/// A message for the client that waits for room in the window.
#[derive(Debug, Clone)]
pub struct Waiting<T = u64> {
    /// The message, shared with its other receivers.
    pub message: Arc<Message>,
    /// QoS with which it is sent, 1 or 2.
    pub qos: Qos,
    /// RETAIN with which it is sent.
    pub retain: bool,
    /// Identifiers of the subscriptions that match the message.
    pub identifiers: ThinVec<NonZeroU32>,
    /// Tag of the caller.
    pub tag: T,
}

/// Outcome of an attempt to let a message wait.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The message waits for the window.
    Waits,
    /// There is no room. The message is lost unless the caller has it.
    Full,
}

/// Number of messages for which an empty queue keeps memory. A queue that was long once frees the rest.
const KEPT: usize = 16;

/// Bound of the waiting messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum size by [`Message::size_bytes`], in bytes. One message may always wait.
    pub bytes: usize,
}

impl Bound {
    /// The bound of all clients.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self { messages: settings.waiting_messages_max, bytes: settings.waiting_bytes_max }
    }
}

/// A bounded first-in, first-out queue.
#[derive(Debug)]
pub(crate) struct WaitingQueue<T> {
    /// Messages, each with whether it counts against the bound.
    queue: VecDeque<(Waiting<T>, bool)>,
    bytes: usize,
    /// Number and size of the messages that count against the bound.
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
        // A message that is larger than the bound would otherwise never be sent.
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
