//! A stream of messages: the driver's end, and the application's.
//!
//! What a read brings goes over in one piece, and is taken over in one: both ends have a list of their own, and a lock
//! is for the moment in which one of them changes hands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Task, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::Instant;

use crate::message::Message;

/// Where messages leave the driver, and those that have come and wait to leave: for the [`flush`](Self::flush) behind
/// a read, or for room.
#[derive(Debug)]
pub(crate) struct Outlet {
    shared: Arc<Shared>,
    held: VecDeque<Message>,
    /// When the first message came that nobody reads.
    unread: Option<Instant>,
}

/// The application's end.
#[derive(Debug)]
pub(crate) struct Inlet {
    shared: Arc<Shared>,
    /// What has been taken over and not taken out.
    came: VecDeque<Message>,
}

/// To wait for room in a stream.
#[derive(Debug)]
pub(crate) struct Room(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    messages_max: usize,
    /// So many have left the driver and have not been taken out. Only the driver adds to it.
    count: AtomicUsize,
    /// The driver waits until one is taken out.
    is_awaited: AtomicBool,
    /// Nobody reads any more; set under the lock.
    is_closed: AtomicBool,
    /// So many had no room.
    dropped: AtomicU64,
    between: Mutex<Between>,
}

/// What has left the driver and has not been taken over.
#[derive(Debug, Default)]
struct Between {
    messages: VecDeque<Message>,
    /// The driver is gone: there will be no more.
    is_over: bool,
    reader: Option<Waker>,
    driver: Option<Waker>,
}

impl Outlet {
    /// Both ends of a stream that holds so many messages, at least 1.
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

    /// Nobody reads it any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Relaxed)
    }

    /// One more message comes that nobody reads: how long ago the first one did.
    pub(crate) fn unread_for(&mut self) -> Duration {
        self.unread.get_or_insert_with(Instant::now).elapsed()
    }

    /// So many wait to leave.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// What waits for room, and now does not any more.
    pub(crate) fn take_held(&mut self) -> VecDeque<Message> {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn room(&self) -> Room {
        Room(Arc::clone(&self.shared))
    }

    /// Keeps a message until the next [`flush`](Self::flush).
    pub(crate) fn hold(&mut self, message: Message) {
        self.held.push_back(message);
    }

    /// Keeps one more message until the next [`flush`](Self::flush), behind those that are held, and tells whether there
    /// is no room for it. At QoS 0 it may be dropped in place of that.
    pub(crate) fn take(&mut self, message: Message, drops_when_full: bool) -> bool {
        let is_full = self.held.len() >= self.shared.room();
        if is_full && drops_when_full && message.owes_nothing() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.held.push_back(message);
        is_full
    }

    /// Lets out what there is room for, and tells how much is still held. If nobody reads it any more, what was not
    /// acknowledged comes again on another connection.
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
        // Nobody else has it any more, and it may be accepted: it has room now.
        if !self.is_closed() {
            self.shared.count.fetch_add(self.held.len(), Ordering::SeqCst);
            between.messages.append(&mut self.held);
        }
        wake(between, |between| between.reader.take());
    }
}

impl Inlet {
    /// The next message; `None` when there will be none any more.
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

    /// The next message, if it is there.
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
    /// Waits until a message may leave, or nobody reads the stream any more.
    pub(crate) fn poll(&self, task: &mut Task<'_>) -> Poll<()> {
        let Self(shared) = self;
        shared.lock().driver = Some(task.waker().clone());
        shared.is_awaited.store(true, Ordering::SeqCst);
        // Looked at last: who has taken a message out before may not have seen that somebody waits.
        let has_room = shared.room() > 0 || shared.is_closed.load(Ordering::SeqCst);
        if has_room { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Shared {
    /// So many more may leave the driver.
    fn room(&self) -> usize {
        self.messages_max.saturating_sub(self.count.load(Ordering::SeqCst))
    }

    /// A message has been taken out.
    fn make_room(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
        if self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst) {
            wake(self.lock(), |between| between.driver.take());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Between> {
        // Whoever held it has only moved messages: they are whole.
        self.between.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes who waits, when the lock is free again.
fn wake(mut between: MutexGuard<'_, Between>, who: impl FnOnce(&mut Between) -> Option<Waker>) {
    let waker = who(&mut between);
    drop(between);
    if let Some(waker) = waker {
        waker.wake();
    }
}
