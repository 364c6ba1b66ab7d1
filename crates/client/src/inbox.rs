//! One stream for all that belongs to no other.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use futures_core::Stream;

use crate::message::Message;
use crate::outlet::Inlet;

/// Everything that the server sends and that belongs to no [`Messages`](crate::Messages): each message once, in the order
/// in which it came, whatever filters it matches.
///
/// It ends when the connection does, after what had come before.
#[derive(Debug)]
pub struct Inbox(Inlet);

impl Inbox {
    pub(crate) fn new(inlet: Inlet) -> Self {
        Self(inlet)
    }

    /// The next message, as soon as there is one; `None` when there will be none any more. To drop the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Message> {
        poll_fn(|task| self.0.poll_next(task)).await.map(Message::taken)
    }

    /// So many messages of QoS 0 were thrown away because it was full: see [`Options::drop_when_full`].
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
