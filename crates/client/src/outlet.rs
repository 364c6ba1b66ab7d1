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
    messages_max: usize,
    /// Number of messages that have left the driver and have not been taken out. Only the driver increases it.
    count: AtomicUsize,
    /// The driver waits until a message is taken out.
    is_awaited: AtomicBool,
    /// The reader has closed the stream. Set under the lock.
    is_closed: AtomicBool,
    /// Number of messages that were dropped for lack of room.
    dropped: AtomicU64,
    between: Mutex<Between>,
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
    /// Makes both ends of a stream that stores at most `messages_max` messages, at least 1.
    pub(crate) fn new(messages_max: usize) -> (Self, Inlet) {
        let shared = Arc::new(Shared {
            messages_max,
            count: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            between: Mutex::default(),
        });
        let inlet = Inlet { shared: Arc::clone(&shared), came: VecDeque::new() };
        (Self { shared, held: VecDeque::new(), unread: None }, inlet)
    }

    /// Whether the reader has closed the stream.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Relaxed)
    }

    /// Notes the arrival of a message after the close, and returns the time since the first such message.
    pub(crate) fn unread_for(&mut self) -> Duration {
        self.unread.get_or_insert_with(Instant::now).elapsed()
    }

    /// Number of messages that wait to leave.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Removes the messages that wait to leave.
    pub(crate) fn take_held(&mut self) -> VecDeque<Message> {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn room(&self) -> Room {
        Room(Arc::clone(&self.shared))
    }

    /// Stores a message until the next [`flush`](Self::flush).
    pub(crate) fn hold(&mut self, message: Message) {
        self.held.push_back(message);
    }

    /// Stores a message until the next [`flush`](Self::flush), behind the others, and returns whether it exceeds
    /// the room.
    ///
    /// With `drops_when_full`, a message of QoS 0 without room is dropped and counted instead.
    pub(crate) fn take(&mut self, message: Message, drops_when_full: bool) -> bool {
        let is_full = self.held.len() >= self.shared.room();
        if is_full && drops_when_full && message.owes_nothing() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.held.push_back(message);
        is_full
    }

    /// Hands over the messages for which there is room, and returns the number of those left.
    ///
    /// If the reader has closed the stream, the messages are dropped. Unacknowledged ones arrive again on another
    /// connection.
    pub(crate) fn flush(&mut self) -> usize {
        if self.held.is_empty() {
            return 0;
        }
        let mut between = self.shared.lock();
        if self.is_closed() {
            drop(between);
            self.held.drain(..).for_each(Message::renounce);
            return 0;
        }
        let leaving = self.shared.room().min(self.held.len());
        self.shared.count.fetch_add(leaving, Ordering::SeqCst);
        if between.messages.is_empty() && leaving == self.held.len() {
            std::mem::swap(&mut between.messages, &mut self.held);
        } else {
            between.messages.extend(self.held.drain(..leaving));
        }
        wake(between, |between| between.reader.take());
        self.held.len()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let mut between = self.shared.lock();
        between.is_over = true;
        // The application may still read and accept these messages. They exceed the bound once, and nothing follows
        // them.
        if !self.is_closed() {
            self.shared.count.fetch_add(self.held.len(), Ordering::SeqCst);
            between.messages.append(&mut self.held);
        }
        wake(between, |between| between.reader.take());
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
        self.came.pop_front().inspect(|_| self.shared.make_room())
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
        let has_room = shared.room() > 0 || shared.is_closed.load(Ordering::SeqCst);
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Shared {
    /// Number of messages that may still leave the driver.
    fn room(&self) -> usize {
        self.messages_max.saturating_sub(self.count.load(Ordering::SeqCst))
    }

    /// Counts a message as taken out, and wakes the driver if it waits.
    fn make_room(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
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
