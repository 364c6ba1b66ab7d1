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

/// A message in one queue, or on its way out of it.
#[derive(Debug)]
pub(crate) struct Kept {
    message: Arc<Message>,
    share: Share,
}

/// For a message that goes into queues: makes one [`Kept`] for each.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    message: &'a Arc<Message>,
    share: Share,
}

/// Who takes a message off the count. Most go into one queue: for these there is nothing to allocate.
#[derive(Debug)]
enum Share {
    /// It is not on the record.
    None,
    Sole(Live),
    /// The last of them.
    Shared(Arc<LiveBytes>),
}

impl Live {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, message: &Message) -> LiveBytes {
        let bytes = bytes(message);
        self.add(bytes);
        LiveBytes { live: self.clone(), bytes }
    }

    /// There is one writer, the ledger: no need for an atomic addition.
    fn add(&self, bytes: usize) {
        self.0.store(self.bytes().wrapping_add(bytes), Ordering::Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        self.0.store(self.bytes().wrapping_sub(bytes), Ordering::Relaxed);
    }
}

/// About what a record of it takes: what a message holds of memory beside its bytes is as much.
fn bytes(message: &Message) -> usize {
    message.size_bytes()
}

impl<'a> Keeping<'a> {
    /// A message that goes into so many queues; `live` counts it if it is on the record.
    pub(crate) fn new(message: &'a Arc<Message>, queues: usize, live: Option<&Live>) -> Self {
        let share = match (live, queues) {
            (None, _) => Share::None,
            (Some(live), 0 | 1) => Share::Sole(live.clone()),
            (Some(live), _) => Share::Shared(Arc::new(live.count(message))),
        };
        Self { message, share }
    }

    /// For one of its queues.
    pub(crate) fn one(&self) -> Kept {
        let share = match &self.share {
            Share::None => Share::None,
            Share::Sole(live) => {
                live.add(bytes(self.message));
                Share::Sole(live.clone())
            }
            Share::Shared(bytes) => Share::Shared(Arc::clone(bytes)),
        };
        Kept { message: Arc::clone(self.message), share }
    }
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        self.live.subtract(self.bytes);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Share::Sole(live) = &self.share {
            live.subtract(bytes(&self.message));
        }
    }
}

impl Deref for Kept {
    type Target = Arc<Message>;

    fn deref(&self) -> &Arc<Message> {
        &self.message
    }
}
