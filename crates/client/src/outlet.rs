//! The driver's end of a stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::time::Instant;

use crate::message::Message;

/// How many messages had no room in a stream.
pub(crate) type Dropped = Arc<AtomicU64>;

/// Where messages leave the driver, and those that have come and wait for room there.
#[derive(Debug)]
pub(crate) struct Outlet {
    to: Sender<Message>,
    dropped: Dropped,
    held: VecDeque<Message>,
    /// When the first message came that nobody reads.
    unread: Option<Instant>,
}

/// The application's end.
#[derive(Debug)]
pub(crate) struct Inlet {
    pub(crate) messages: Receiver<Message>,
    dropped: Dropped,
}

impl Outlet {
    /// Both ends of a stream that holds so many messages, at least 1.
    pub(crate) fn new(messages_max: usize) -> (Self, Inlet) {
        let (to, messages) = channel(messages_max);
        let dropped = Dropped::default();
        (
            Self { to, dropped: Arc::clone(&dropped), held: VecDeque::new(), unread: None },
            Inlet { messages, dropped },
        )
    }

    /// Nobody reads it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// One more message comes that nobody reads: how long ago the first one did.
    pub(crate) fn unread_for(&mut self) -> Duration {
        self.unread.get_or_insert_with(Instant::now).elapsed()
    }

    /// So many wait for room.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// What waits for room, and now does not any more.
    pub(crate) fn take_held(&mut self) -> VecDeque<Message> {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn sender(&self) -> Sender<Message> {
        self.to.clone()
    }

    /// Keeps a message until the next [`flush`](Self::flush).
    pub(crate) fn hold(&mut self, message: Message) {
        self.held.push_back(message);
    }

    /// Takes one more message, behind those that are held, and tells whether it is held too. At QoS 0 it may be dropped
    /// in place of that.
    pub(crate) fn take(&mut self, message: Message, drops_when_full: bool) -> bool {
        let refused = if self.held.is_empty() {
            match self.to.try_send(message) {
                Ok(()) | Err(TrySendError::Closed(_)) => return false,
                Err(TrySendError::Full(message)) => message,
            }
        } else {
            message
        };
        if drops_when_full && refused.owes_nothing() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.held.push_back(refused);
        true
    }

    /// Lets out what there is room for, and tells how much is still held. If nobody reads it any more, what was not
    /// acknowledged comes again on another connection.
    pub(crate) fn flush(&mut self) -> usize {
        while let Some(message) = self.held.pop_front() {
            match self.to.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.held.push_front(message);
                    break;
                }
                Err(TrySendError::Closed(_)) => self.held.clear(),
            }
        }
        self.held.len()
    }
}

impl Inlet {
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
