//! A stream of messages: the driver's end and the application's end.
//!
//! All messages of one read are handed over together, and received together. Each end has a list of its own, and
//! the lock is held only while a list changes hands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Task, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::Instant;

use crate::message::Message;

/// The driver's end of a stream, with messages that wait to leave.
///
/// They wait for the [`flush`](Self::flush) after a read, or for room in the stream.
#[derive(Debug)]
pub(crate) struct Outlet {
    shared: Arc<Shared>,
    held: VecDeque<Message>,
    held_bytes: usize,
    /// Time at which the first message arrived after the reader had closed the stream.
    unread: Option<Instant>,
}

/// The application's end of a stream.
#[derive(Debug)]
pub(crate) struct Inlet {
    shared: Arc<Shared>,
    /// Messages that were received from the driver and not taken out.
    came: VecDeque<Message>,
}

/// A stream whose room can be waited for.
#[derive(Debug)]
pub(crate) struct Room(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bound: Bound,
    /// Number of messages that have left the driver and have not been taken out. Only the driver increases it.
    count: AtomicUsize,
    /// Total size of these messages.
    bytes: AtomicUsize,
    /// The driver waits until a message is taken out.
    is_awaited: AtomicBool,
    /// The reader has closed the stream. Set under the lock.
    is_closed: AtomicBool,
    /// Number of messages that were dropped for lack of room.
    dropped: AtomicU64,
    between: Mutex<Between>,
}

/// Bound of a stream. One message may always be in the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// Number and total size of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Amount {
    /// Whether a stream with this amount has room for another message.
    fn is_below(self, bound: Bound) -> bool {
        self.messages < bound.messages && self.bytes < bound.bytes
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), std::ops::Add::add)
    }
}

/// Messages between both ends, and the tasks that wait.
#[derive(Debug, Default)]
struct Between {
    messages: VecDeque<Message>,
    /// The driver's end is gone, and no more messages arrive.
    is_over: bool,
    reader: Option<Waker>,
    driver: Option<Waker>,
}

impl Outlet {
    /// Makes both ends of a stream that stores messages up to a bound.
    pub(crate) fn new(bound: Bound) -> (Self, Inlet) {
        let shared = Arc::new(Shared {
            bound,
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            between: Mutex::default(),
        });
        let inlet = Inlet { shared: Arc::clone(&shared), came: VecDeque::new() };
        (Self { shared, held: VecDeque::new(), held_bytes: 0, unread: None }, inlet)
    }

    /// Whether the reader has closed the stream.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Relaxed)
    }

    /// Notes the arrival of a message after the close, and returns the time since the first such message.
    pub(crate) fn unread_for(&mut self) -> Duration {
        self.unread.get_or_insert_with(Instant::now).elapsed()
    }

    /// The messages that wait to leave.
    pub(crate) fn held(&self) -> Amount {
        Amount { messages: self.held.len(), bytes: self.held_bytes }
    }

    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Removes the messages that wait to leave.
    pub(crate) fn take_held(&mut self) -> VecDeque<Message> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    pub(crate) fn room(&self) -> Room {
        Room(Arc::clone(&self.shared))
    }

    /// Stores a message until the next [`flush`](Self::flush).
    pub(crate) fn hold(&mut self, message: Message) {
        self.held_bytes += message.size_bytes();
        self.held.push_back(message);
    }

    /// Stores a message until the next [`flush`](Self::flush), behind the others. Returns the amount by which the
    /// stream exceeds its room: the message, or nothing.
    ///
    /// With `drops_when_full`, a message of QoS 0 without room is dropped and counted instead.
    pub(crate) fn take(&mut self, message: Message, drops_when_full: bool) -> Amount {
        let is_full = !(self.shared.amount() + self.held()).is_below(self.shared.bound);
        if is_full && drops_when_full && message.owes_nothing() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return Amount::default();
        }
        let amount = Amount { messages: 1, bytes: message.size_bytes() };
        self.hold(message);
        if is_full { amount } else { Amount::default() }
    }

    /// Hands over the messages for which there is room, and returns those left.
    ///
    /// If the reader has closed the stream, the messages are dropped. Unacknowledged ones arrive again on another
    /// connection.
    pub(crate) fn flush(&mut self) -> Amount {
        if self.held.is_empty() {
            return Amount::default();
        }
        let mut between = self.shared.lock();
        if self.is_closed() {
            drop(between);
            self.take_held().into_iter().for_each(Message::renounce);
            return Amount::default();
        }
        let leaving = self.leaving();
        self.shared.add(leaving);
        self.held_bytes -= leaving.bytes;
        if between.messages.is_empty() && leaving.messages == self.held.len() {
            std::mem::swap(&mut between.messages, &mut self.held);
        } else {
            between.messages.extend(self.held.drain(..leaving.messages));
        }
        wake(between, |between| between.reader.take());
        self.held()
    }

    /// The waiting messages for which there is room.
    fn leaving(&self) -> Amount {
        let (there, bound) = (self.shared.amount(), self.shared.bound);
        let all = self.held();
        if (there + all).messages <= bound.messages && (there + all).bytes <= bound.bytes {
            return all;
        }
        let mut leaving = Amount::default();
        for message in &self.held {
            if !(there + leaving).is_below(bound) {
                break;
            }
            leaving = leaving + Amount { messages: 1, bytes: message.size_bytes() };
        }
        leaving
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let mut between = self.shared.lock();
        between.is_over = true;
        // The application may still read and accept these messages. They exceed the bound once, and nothing follows
        // them.
        if !self.is_closed() {
            self.shared.add(self.held());
            between.messages.append(&mut self.held);
        }
        wake(between, |between| between.reader.take());
        self.held.drain(..).for_each(Message::renounce);
    }
}

impl Inlet {
    /// Polls for the next message; `None` after the last one.
    pub(crate) fn poll_next(&mut self, task: &mut Task<'_>) -> Poll<Option<Message>> {
        let turn = ready!(coop::poll_proceed(task));
        if self.came.is_empty() {
            let mut between = self.shared.lock();
            std::mem::swap(&mut between.messages, &mut self.came);
            if self.came.is_empty() && !between.is_over {
                between.reader = Some(task.waker().clone());
                return Poll::Pending;
            }
        }
        turn.made_progress();
        Poll::Ready(self.take_out())
    }

    /// Returns the next message, if one has arrived.
    pub(crate) fn try_next(&mut self) -> Option<Message> {
        if self.came.is_empty() {
            std::mem::swap(&mut self.shared.lock().messages, &mut self.came);
        }
        self.take_out()
    }

    fn take_out(&mut self) -> Option<Message> {
        self.came.pop_front().inspect(|message| self.shared.make_room(message.size_bytes()))
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        let mut between = self.shared.lock();
        self.shared.is_closed.store(true, Ordering::SeqCst);
        let unread = std::mem::take(&mut between.messages);
        wake(between, |between| between.driver.take());
        self.came.drain(..).chain(unread).for_each(Message::renounce);
    }
}

impl Room {
    /// Waits until a message may leave, or the reader closes the stream.
    pub(crate) fn poll(&self, task: &mut Task<'_>) -> Poll<()> {
        let Self(shared) = self;
        shared.lock().driver = Some(task.waker().clone());
        shared.is_awaited.store(true, Ordering::SeqCst);
        // Checked after `is_awaited` is set: a reader that took a message earlier may not have seen the flag.
        let has_room = shared.amount().is_below(shared.bound) || shared.is_closed.load(Ordering::SeqCst);
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Shared {
    /// The messages in the stream.
    fn amount(&self) -> Amount {
        let load = |number: &AtomicUsize| number.load(Ordering::SeqCst);
        Amount { messages: load(&self.count), bytes: load(&self.bytes) }
    }

    fn add(&self, amount: Amount) {
        self.count.fetch_add(amount.messages, Ordering::SeqCst);
        self.bytes.fetch_add(amount.bytes, Ordering::SeqCst);
    }

    /// Counts a message of this size as taken out, and wakes the driver if it waits.
    fn make_room(&self, bytes: usize) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst) {
            wake(self.lock(), |between| between.driver.take());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Between> {
        // A panic under the lock cannot leave broken data: the lock only guards moves of messages.
        self.between.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one of the waiting tasks, after releasing the lock.
fn wake(mut between: MutexGuard<'_, Between>, who: impl FnOnce(&mut Between) -> Option<Waker>) {
    let waker = who(&mut between);
    drop(between);
    if let Some(waker) = waker {
        waker.wake();
    }
}
