//! Messages that are on the record and still needed: how much of the disk they take if only what is live was there, and
//! how much of memory.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use session::{Message, Now};

use crate::Address;

/// The bytes of messages that are on the record, each counted once, as long as somebody has it.
///
/// Each ledger has one, and a process one ledger, or a test some more. It stays until the process ends: every message has it, and if they counted who has it,
/// each would wait, at its beginning and its end, for everything that was stored before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live(&'static Bytes);

#[derive(Debug, Default)]
struct Bytes {
    /// Needed.
    all: AtomicUsize,
    /// Needed by queues, and in memory.
    in_memory: AtomicUsize,
}

/// What one message counts for.
#[derive(Debug)]
pub(crate) struct LiveBytes {
    live: Live,
    bytes: usize,
    /// How many queues have it in memory.
    in_memory: AtomicU32,
    /// Itself, while anybody has: it is not read once for each queue.
    message: Mutex<Weak<Message>>,
}

/// A message in one queue, or on its way out of it. It may be on disk alone until its turn comes.
#[derive(Debug)]
pub(crate) struct Kept {
    message: Option<Arc<Message>>,
    /// Where it can be read again, if it is on disk alone, or was.
    address: Option<Address>,
    size_bytes: u32,
    /// It is on its way from the disk.
    is_wanted: bool,
    /// Milliseconds since 1970.
    expires_unix_ms: Option<NonZeroU64>,
    share: Share,
}

/// For a message that goes into queues: makes one [`Kept`] for each.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    /// None if it stays on the disk.
    message: Option<&'a Arc<Message>>,
    size_bytes: usize,
    expires_unix_ms: Option<u64>,
    address: Option<Address>,
    share: Share,
}

/// Who takes a message off the count. Most go into one queue: for these there is nothing to allocate.
///
/// Its kind takes a whole word, because it is moved in words: a half of one that was just written is waited for.
#[derive(Debug)]
#[repr(u64)]
enum Share {
    /// It is not on the record.
    None,
    Sole(Live),
    /// The last of them.
    Shared(Arc<LiveBytes>),
}

impl Live {
    /// A new count, which stays for as long as the process.
    pub(crate) fn for_ever() -> Self {
        Self(Box::leak(Box::default()))
    }

    pub(crate) fn bytes(self) -> usize {
        self.0.all.load(Ordering::Relaxed)
    }

    /// What of it waits in memory.
    pub(crate) fn in_memory_bytes(self) -> usize {
        self.0.in_memory.load(Ordering::Relaxed)
    }

    /// Of a message of so many bytes.
    pub(crate) fn count(self, bytes: usize) -> LiveBytes {
        add(&self.0.all, bytes);
        LiveBytes { live: self, bytes, in_memory: AtomicU32::new(0), message: Mutex::default() }
    }
}

/// There is one writer, the ledger: no need for an atomic addition.
fn add(count: &AtomicUsize, bytes: usize) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
}

fn subtract(count: &AtomicUsize, bytes: usize) {
    count.store(count.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
}

impl<'a> Keeping<'a> {
    /// A message that goes into so many queues; `live` counts it if it is on the record. With an address it need not stay
    /// in memory.
    pub(crate) fn new(
        message: &'a Arc<Message>,
        queues: usize,
        live: Option<Live>,
        address: Option<Address>,
    ) -> Self {
        let (size_bytes, expires_unix_ms) = (message.size_bytes(), message.expires_unix_ms());
        let share = live.map_or(Share::None, |live| Share::among(queues, live, size_bytes));
        if let Share::Shared(bytes) = &share {
            // Somebody may have it while all queues have it on the disk: then it is not read.
            *bytes.message() = Arc::downgrade(message);
        }
        Self { message: Some(message), size_bytes, expires_unix_ms, address, share }
    }

    /// A message of so many bytes that is on the record and stays there.
    pub(crate) fn away(
        size_bytes: usize,
        expires_unix_ms: Option<u64>,
        queues: usize,
        live: Live,
        address: Address,
    ) -> Self {
        let share = Share::among(queues, live, size_bytes);
        Self { message: None, size_bytes, expires_unix_ms, address: Some(address), share }
    }

    /// For one of its queues, of which it may be the only one that it is recorded in: in memory, unless it is to stay on the
    /// disk and can be read again.
    #[inline]
    pub(crate) fn one(&self, is_recorded: bool, stays_away: bool) -> Kept {
        let address = self.address.filter(|_| is_recorded);
        let message = self.message.filter(|_| !(stays_away && address.is_some()));
        let size_bytes = self.size_bytes;
        let share = match &self.share {
            Share::None => Share::None,
            Share::Sole(live) => {
                add(&live.0.all, size_bytes);
                Share::Sole(*live)
            }
            Share::Shared(bytes) => Share::Shared(Arc::clone(bytes)),
        };
        if message.is_some() {
            share.count_queue(size_bytes);
        }
        Kept {
            message: message.cloned(),
            address,
            // No packet is longer.
            size_bytes: u32::try_from(size_bytes).unwrap_or(u32::MAX),
            is_wanted: false,
            expires_unix_ms: self.expires_unix_ms.and_then(NonZeroU64::new),
            share,
        }
    }
}

impl Share {
    fn among(queues: usize, live: Live, size_bytes: usize) -> Self {
        match queues {
            0 | 1 => Self::Sole(live),
            _ => Self::Shared(Arc::new(live.count(size_bytes))),
        }
    }

    /// One queue more has it in memory.
    #[inline]
    fn count_queue(&self, size_bytes: usize) {
        match self {
            Self::None => {}
            Self::Sole(live) => add(&live.0.in_memory, size_bytes),
            Self::Shared(bytes) => bytes.count_queue(),
        }
    }
}

impl Kept {
    /// The message, if it is in memory.
    pub(crate) fn message(&self) -> Option<&Arc<Message>> {
        self.message.as_ref()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes as usize
    }

    pub(crate) fn expires(&self) -> bool {
        self.expires_unix_ms.is_some()
    }

    /// As [`Message::is_expired`].
    pub(crate) fn is_expired(&self, now: Now) -> bool {
        self.expires_unix_ms.is_some_and(|expires| expires.get() < now.unix_ms)
    }

    pub(crate) fn address(&self) -> Option<Address> {
        self.address
    }

    /// Its record was copied there. Where it was not known where it stands, it stays in memory.
    pub(crate) fn set_address(&mut self, address: Option<Address>) {
        if self.address.is_some() && address.is_some() {
            self.address = address;
        }
    }

    /// It is in memory, and its record may go.
    pub(crate) fn stay(&mut self) {
        debug_assert!(self.message.is_some(), "a member has it");
        self.address = None;
    }

    /// Out of memory, if it can be read again.
    pub(crate) fn put_away(&mut self) {
        if self.address.is_some() && self.message.take().is_some() {
            self.uncount();
        }
    }

    /// Into memory.
    pub(crate) fn bring(&mut self, message: Arc<Message>) {
        self.is_wanted = false;
        if self.message.is_none() {
            self.share.count_queue(self.size_bytes());
            self.message = Some(match &self.share {
                Share::Shared(bytes) => bytes.the_one(message),
                _ => message,
            });
        }
    }

    /// Where it is to be read from, if it is not in memory nor on its way there. It is from then on. What another queue has
    /// in memory is not read.
    pub(crate) fn want(&mut self) -> Option<Address> {
        let elsewhere = match &self.share {
            Share::Shared(bytes) if self.message.is_none() => bytes.message().upgrade(),
            _ => None,
        };
        if let Some(message) = elsewhere {
            self.bring(message);
        }
        let is_away = self.message.is_none() && !self.is_wanted;
        self.is_wanted |= is_away;
        self.address.filter(|_| is_away)
    }

    /// What was on its way has not come.
    pub(crate) fn miss(&mut self) {
        self.is_wanted = false;
    }

    fn uncount(&self) {
        match &self.share {
            Share::None => {}
            Share::Sole(live) => subtract(&live.0.in_memory, self.size_bytes()),
            Share::Shared(bytes) => bytes.put_away(),
        }
    }
}

impl LiveBytes {
    fn message(&self) -> MutexGuard<'_, Weak<Message>> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all queues have that have it in memory: this one, unless there is one already, which another queue was read.
    fn the_one(&self, message: Arc<Message>) -> Arc<Message> {
        let mut known = self.message();
        known.upgrade().unwrap_or_else(|| {
            *known = Arc::downgrade(&message);
            message
        })
    }

    fn count_queue(&self) {
        let queues = self.in_memory.load(Ordering::Relaxed);
        self.in_memory.store(queues + 1, Ordering::Relaxed);
        if queues == 0 {
            add(&self.live.0.in_memory, self.bytes);
        }
    }

    fn put_away(&self) {
        let queues = self.in_memory.load(Ordering::Relaxed);
        self.in_memory.store(queues - 1, Ordering::Relaxed);
        if queues == 1 {
            subtract(&self.live.0.in_memory, self.bytes);
        }
    }
}

impl Drop for LiveBytes {
    fn drop(&mut self) {
        subtract(&self.live.0.all, self.bytes);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.message.is_some() {
            self.uncount();
        }
        if let Share::Sole(live) = &self.share {
            subtract(&live.0.all, self.size_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_for_one_of_its_queues_and_counted_once() {
        let live = Live::for_ever();
        let address = Some(Address { at: NonZeroU64::MIN, bytes: 1, checksum: 0 });
        let read = || Arc::new(Message::of_server("t", b"payload").expect("a topic"));
        let mut queues: Vec<Kept> = {
            let message = read();
            let keeping = Keeping::new(&message, 2, Some(live), address);
            (0..2).map(|_| keeping.one(true, false)).collect()
        };
        let bytes = queues[0].size_bytes();
        assert_eq!((live.bytes(), live.in_memory_bytes()), (bytes, bytes));
        queues.iter_mut().for_each(Kept::put_away);
        assert_eq!((live.bytes(), live.in_memory_bytes()), (bytes, 0));
        assert_eq!(queues[0].want(), address);
        assert_eq!(queues[0].want(), None, "it is on its way");
        queues[0].bring(read());
        assert_eq!(queues[1].want(), None, "another queue has it");
        assert!(queues[1].message().is_some());
        assert_eq!(live.in_memory_bytes(), bytes);
        drop(queues);
        assert_eq!((live.bytes(), live.in_memory_bytes()), (0, 0));
    }

    /// Two queues ask for it before it has come to either.
    #[test]
    fn a_message_that_was_read_twice_is_in_memory_once() {
        let live = Live::for_ever();
        let address = Some(Address { at: NonZeroU64::MIN, bytes: 1, checksum: 0 });
        let read = || Arc::new(Message::of_server("t", b"payload").expect("a topic"));
        let mut queues: Vec<Kept> = {
            let message = read();
            let keeping = Keeping::new(&message, 3, Some(live), address);
            (0..3).map(|_| keeping.one(true, true)).collect()
        };
        assert_eq!((queues[0].want(), queues[1].want()), (address, address));
        queues[0].bring(read());
        queues[1].bring(read());
        drop(queues.remove(0));
        assert_eq!(queues[1].want(), None, "one of them is still there");
        let messages: Vec<_> = queues.iter().filter_map(Kept::message).collect();
        assert!(Arc::ptr_eq(messages[0], messages[1]));
        assert_eq!(live.in_memory_bytes(), queues[0].size_bytes());
    }
}
