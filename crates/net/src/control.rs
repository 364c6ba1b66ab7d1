//! Commands of administrators that wait for the thread that carries them out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{ConnectionId, Realm, ShardId};
use broker::{ControlBusy, ControlRequest};

/// Maximum number of messages with commands that wait. A connection has at most one.
const WAITING_MAX: usize = 256;
/// Maximum bytes of these messages. One is always taken, whatever its length.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A message with commands.
#[derive(Debug)]
pub struct Order {
    pub(crate) from: Orderer,
    /// The commands, with their administrator.
    pub request: ControlRequest,
}

/// The receiver of the answers to commands.
pub(crate) enum Orderer {
    /// A connection, which gets the acknowledgement. The answers are published.
    Client(ShardId, ConnectionId),
    /// An operator. The function must not block.
    Operator(Box<dyn FnOnce(Box<[u8]>) + Send>),
}

impl fmt::Debug for Orderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(shard, connection) => {
                f.debug_tuple("Client").field(shard).field(connection).finish()
            }
            Self::Operator(_) => f.write_str("Operator"),
        }
    }
}

/// The realm and the client identifier that stand for operators, who have none.
const OPERATOR: (Realm, &str) = (Realm::NONE, "[admin]");

/// Messages with commands in the order in which they came.
pub struct Orders {
    waiting: Mutex<Waiting>,
    /// Tells the thread that carries commands out to [`take`](Orders::take) some.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Waiting {
    orders: VecDeque<Order>,
    bytes: usize,
}

impl Orders {
    /// No orders. `wake` is called, from any thread, when the first one has come, and when some are left behind those that
    /// were taken.
    #[must_use]
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { waiting: Mutex::default(), wake: Box::new(wake) }
    }

    /// At most `count` messages. The thread is told again if more wait, so that other events have their turn between.
    #[must_use]
    pub fn take(&self, count: usize) -> Vec<Order> {
        let mut waiting = self.lock();
        let taken = waiting.orders.len().min(count);
        let orders: Vec<Order> = waiting.orders.drain(..taken).collect();
        waiting.bytes -= orders.iter().map(|order| order.request.payload.len()).sum::<usize>();
        let has_more = !waiting.orders.is_empty();
        drop(waiting);
        if has_more {
            (self.wake)();
        }
        orders
    }

    /// Adds commands of an operator. `answer` gets the answers, and must not block. It is dropped if the broker ends.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn submit_for_operator(
        &self,
        payload: Vec<u8>,
        user: Arc<str>,
        answer: Box<dyn FnOnce(Box<[u8]>) + Send>,
    ) -> Result<(), ControlBusy> {
        let (realm, client_id) = OPERATOR;
        let request =
            ControlRequest { realm, user: Some(user), client_id: client_id.into(), payload: payload.into() };
        self.submit(Order { from: Orderer::Operator(answer), request })
    }

    pub(crate) fn submit(&self, order: Order) -> Result<(), ControlBusy> {
        let bytes = order.request.payload.len();
        let mut waiting = self.lock();
        let is_first = waiting.orders.is_empty();
        let is_full = waiting.orders.len() >= WAITING_MAX || waiting.bytes + bytes > WAITING_BYTES_MAX;
        if is_full && !is_first {
            return Err(ControlBusy);
        }
        waiting.bytes += bytes;
        waiting.orders.push_back(order);
        drop(waiting);
        if is_first {
            (self.wake)();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in the critical sections can panic half-way, so that a poisoned lock is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("waiting", &self.lock().orders.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    fn order(bytes: usize) -> Order {
        let connection = ConnectionId { slot: 0, generation: 0 };
        let payload = vec![b'x'; bytes].into();
        let request = ControlRequest { realm: Realm(0), user: None, client_id: "a".into(), payload };
        Order { from: Orderer::Client(ShardId::new(0), connection), request }
    }

    #[test]
    fn orders_are_bounded_in_number_and_in_bytes_and_the_first_one_wakes() {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let orders = Orders::new(move || {
            count.fetch_add(1, Relaxed);
        });
        assert_eq!(orders.submit(order(WAITING_BYTES_MAX + 1)), Ok(()), "alone it has room");
        assert_eq!(orders.submit(order(0)), Err(ControlBusy));
        assert_eq!([orders.take(9).len(), orders.take(9).len()], [1, 0]);
        let submitted = (0..1_000).take_while(|_| orders.submit(order(1)).is_ok()).count();
        assert_eq!((submitted, woken.load(Relaxed)), (WAITING_MAX, 2));
    }

    #[test]
    fn orders_that_are_left_wake_again() {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let orders = Orders::new(move || {
            count.fetch_add(1, Relaxed);
        });
        (0..5).for_each(|_| orders.submit(order(1)).expect("there is room"));
        let taken = [(); 3].map(|()| (orders.take(2).len(), woken.load(Relaxed)));
        assert_eq!(taken, [(2, 2), (2, 3), (1, 3)]);
        assert_eq!(orders.lock().bytes, 0);
    }
}
