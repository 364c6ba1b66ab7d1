//! How much would have to be on disk, if only what is live was.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use session::Message;

/// The bytes of messages that are on the record and still needed, each counted once, as long as somebody has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live(Arc<AtomicUsize>);

/// What one message counts for.
#[derive(Debug)]
pub(crate) struct LiveBytes {
    live: Live,
    bytes: usize,
}

/// A message that waits in queues, or is on its way out of them. There is one of these for each message that waits: it
/// is as small as it can be.
#[derive(Debug)]
pub(crate) struct Kept {
    message: Arc<Message>,
    /// Nothing if it is not on the record.
    live: Option<Live>,
}

impl Live {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, message: &Message) -> LiveBytes {
        self.add(message);
        LiveBytes { live: self.clone(), bytes: bytes(message) }
    }

    fn add(&self, message: &Message) {
        self.0.fetch_add(bytes(message), Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// About what a record of it takes: what a message holds of memory beside its bytes is as much.
fn bytes(message: &Message) -> usize {
    message.size_bytes()
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        self.live.subtract(self.bytes);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(live) = &self.live {
            live.subtract(bytes(&self.message));
        }
    }
}

impl Kept {
    pub(crate) fn recorded(message: Arc<Message>, live: &Live) -> Arc<Self> {
        live.add(&message);
        Arc::new(Self { message, live: Some(live.clone()) })
    }

    pub(crate) fn unrecorded(message: Arc<Message>) -> Arc<Self> {
        Arc::new(Self { message, live: None })
    }
}

impl Deref for Kept {
    type Target = Arc<Message>;

    fn deref(&self) -> &Arc<Message> {
        &self.message
    }
}
