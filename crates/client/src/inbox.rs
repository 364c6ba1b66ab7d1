//! One stream for all messages that belong to no other.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use futures_core::Stream;

use crate::message::Message;
use crate::outlet::Inlet;

/// All messages that belong to no [`Messages`](crate::Messages), each once, in the order in which they arrived.
///
/// A message that matches several filters of the inbox still arrives once. The inbox ends when the connection ends,
/// after the messages that arrived before.
#[derive(Debug)]
pub struct Inbox(Inlet);

impl Inbox {
    pub(crate) fn new(inlet: Inlet) -> Self {
        Self(inlet)
    }

    /// Waits for the next message; `None` after the last one. Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|task| self.0.poll_next(task)).await.map(Message::taken)
    }

    /// Number of messages of QoS 0 that were dropped because the inbox was full. See [`Options::drop_when_full`].
    ///
    /// [`Options::drop_when_full`]: crate::Options::drop_when_full
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

impl Stream for Inbox {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Message>> {
        self.0.poll_next(task).map(|message| message.map(Message::taken))
    }
}
