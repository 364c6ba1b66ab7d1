//! The places for connections, of which those without a right token give way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The places for connections.
///
/// A stranger is a connection that has not sent a right token. Anybody who can reach the address can open as many of them as
/// there are places. So when no place is left, the oldest stranger is closed for a new connection.
#[derive(Debug)]
pub(crate) struct Doors {
    places: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
}

#[derive(Debug, Default)]
struct Strangers {
    last: u64,
    /// By their numbers, which grow.
    connections: BTreeMap<u64, AbortHandle>,
}

/// A connection that has its place.
#[derive(Debug)]
pub(crate) struct Visitor {
    number: u64,
    is_stranger: AtomicBool,
    doors: Arc<Doors>,
    _place: OwnedSemaphorePermit,
}

/// The place of a new connection.
pub(crate) enum Admission {
    /// There was a free place, or a stranger has left one.
    Admitted {
        visitor: Visitor,
        /// A stranger was closed.
        has_displaced: bool,
    },
    /// All places are taken by connections with right tokens.
    Full,
}

impl Doors {
    pub(crate) fn new(connections_max: usize) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(connections_max)), strangers: Mutex::default() })
    }

    /// Gives a new connection its place.
    pub(crate) async fn admit(self: &Arc<Self>) -> Admission {
        let free = Arc::clone(&self.places).try_acquire_owned().ok();
        let has_displaced = free.is_none();
        let place = match free {
            Some(place) => Some(place),
            None => {
                let oldest = self.strangers().connections.pop_first();
                let Some((_, oldest)) = oldest else { return Admission::Full };
                oldest.abort();
                // The place is free when the task of that connection has been dropped.
                Arc::clone(&self.places).acquire_owned().await.ok()
            }
        };
        let Some(place) = place else { return Admission::Full };
        let mut strangers = self.strangers();
        strangers.last += 1;
        let number = strangers.last;
        drop(strangers);
        let doors = Arc::clone(self);
        let visitor = Visitor { number, is_stranger: AtomicBool::new(true), doors, _place: place };
        Admission::Admitted { visitor, has_displaced }
    }

    /// Notes the task of a connection that has come in. The task must not have run yet.
    pub(crate) fn note(&self, number: u64, task: AbortHandle) {
        self.strangers().connections.insert(number, task);
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The connection has sent a right token: it keeps its place.
    pub(crate) fn is_known(&self) {
        if self.is_stranger.swap(false, Relaxed) {
            self.doors.strangers().connections.remove(&self.number);
        }
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.is_known();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// The outcome for a new connection, whose task stays.
    async fn come(doors: &Arc<Doors>, is_known: bool) -> Option<bool> {
        let Admission::Admitted { visitor, has_displaced } = doors.admit().await else { return None };
        let number = visitor.number();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            if is_known {
                visitor.is_known();
            }
            let _ = sender.send(());
            pending::<()>().await;
            drop(visitor);
        });
        doors.note(number, task.abort_handle());
        receiver.await.expect("the task runs");
        Some(has_displaced)
    }

    #[test]
    fn strangers_give_way_and_those_with_tokens_do_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it starts");
        runtime.block_on(async {
            let doors = Doors::new(2);
            assert_eq!(come(&doors, false).await, Some(false));
            assert_eq!(come(&doors, true).await, Some(false));
            assert_eq!(come(&doors, false).await, Some(true), "the stranger gives way");
            assert_eq!(come(&doors, true).await, Some(true), "and the next");
            assert_eq!(come(&doors, false).await, None, "nobody is left who could");
        });
    }
}
