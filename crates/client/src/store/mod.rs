//! Sessions that outlive the program: where they are stored, and when.

mod file;
mod keeper;
mod record;

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

pub use file::FileStore;
pub(crate) use keeper::{Keeper, Restored};

/// A place for the session of one client, which outlives the program.
///
/// A store holds one sequence of bytes. The client chooses the bytes, and only ever appends to them or replaces all of
/// them. [`FileStore`] stores them in a file. A store of another kind, such as a row of a database or a block of flash
/// memory, implements these three methods.
///
/// The client calls the methods on a thread on which they may block. An error ends the client with
/// [`Ended::Store`](crate::Ended::Store), because a packet must not leave before its effects are in the store.
pub trait SessionStore: Send + 'static {
    /// Returns all bytes of the store; the result is empty if nothing was stored.
    ///
    /// # Errors
    /// The bytes cannot be read, or another program uses the store.
    fn load(&mut self) -> io::Result<Vec<u8>>;

    /// Appends bytes, and returns when they would survive a power failure.
    ///
    /// If the machine fails during the call, the store may have none, the first part or all of `bytes` afterwards.
    /// Nothing else may have changed.
    ///
    /// # Errors
    /// The bytes may not be in the store.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Replaces all bytes by others, and returns when these would survive a power failure.
    ///
    /// If the machine fails during the call, the store has either the old bytes or the new ones.
    ///
    /// # Errors
    /// The store has the old bytes or the new ones.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// The store in the options, whose clones share it. One connection at a time holds the lock.
#[derive(Clone)]
pub(crate) struct SharedStore(Arc<Mutex<Box<dyn SessionStore>>>);

/// The store of a connection.
pub(crate) type HeldStore = OwnedMutexGuard<Box<dyn SessionStore>>;

impl SharedStore {
    pub(crate) fn new(store: impl SessionStore) -> Self {
        Self(Arc::new(Mutex::new(Box::new(store))))
    }

    /// Waits until no other connection holds the store. The end of a failed attempt may still hold it for a moment.
    pub(crate) async fn hold(&self) -> HeldStore {
        Arc::clone(&self.0).lock_owned().await
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionStore")
    }
}
