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

/// A message that waits in queues, or is on its way out of them.
#[derive(Debug)]
pub(crate) struct Kept {
    message: Arc<Message>,
    /// Nothing if it is not on the record.
    _bytes: Option<LiveBytes>,
}

impl Live {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, message: &Message) -> LiveBytes {
        // About what a record of it takes: what a message holds of memory beside its bytes is as much.
        let bytes = message.size_bytes();
        self.0.fetch_add(bytes, Ordering::Relaxed);
        LiveBytes { live: self.clone(), bytes }
    }
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        self.live.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Kept {
    pub(crate) fn recorded(message: Arc<Message>, live: &Live) -> Arc<Self> {
        let _bytes = Some(live.count(&message));
        Arc::new(Self { message, _bytes })
    }

    pub(crate) fn unrecorded(message: Arc<Message>) -> Arc<Self> {
        Arc::new(Self { message, _bytes: None })
    }
}

impl Deref for Kept {
    type Target = Arc<Message>;

    fn deref(&self) -> &Arc<Message> {
        &self.message
    }
}
