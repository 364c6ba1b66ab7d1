//! A subscriber, to which an entry of the index leads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::{ConnectionId, Dispatch, Gauge, Members, Place, Principal, QueueId, ShardId};

/// A session, or a group of sessions that share a subscription.
#[derive(Debug)]
pub struct Subscriber {
    /// Client identifier, which ledger, session and subscriber share. For a group: its whole filter.
    pub client_id: Arc<str>,
    /// Queue for messages while it is not connected. A session that ends with its connection has none.
    pub queue: Option<QueueId>,
    /// Fill level of its output.
    pub gauge: Gauge,
    /// Place of its connection, in the bits of [`Place`].
    place: AtomicU64,
    /// The user for whom it acts. Only lookups read it: a cached route has their result.
    principal: RwLock<Arc<Principal>>,
    members: Option<Box<Members>>,
}

impl Subscriber {
    /// A session that ends with its connection.
    #[must_use]
    pub fn new(client_id: Arc<str>, shard: ShardId, connection: ConnectionId) -> Self {
        let place = AtomicU64::new(Place { shard, connection }.bits());
        let principal = RwLock::new(Principal::anonymous());
        Self { client_id, queue: None, gauge: Gauge::default(), place, principal, members: None }
    }

    /// The same session, for this user.
    #[must_use]
    pub fn with_principal(self, principal: Arc<Principal>) -> Self {
        Self { principal: RwLock::new(principal), ..self }
    }

    /// A lasting session without a connection.
    #[must_use]
    pub fn lasting(client_id: Arc<str>, queue: QueueId) -> Self {
        Self {
            client_id,
            queue: Some(queue),
            gauge: Gauge::default(),
            place: AtomicU64::new(0),
            principal: RwLock::new(Principal::anonymous()),
            members: None,
        }
    }

    /// A group without members (MQTT 5.0, 4.8.2).
    #[must_use]
    pub fn group(filter: Arc<str>, queue: QueueId, dispatch: Dispatch) -> Self {
        Self { members: Some(Box::new(Members::new(dispatch))), ..Self::lasting(filter, queue) }
    }

    /// Place of its connection; `None` without one.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        Place::from_bits(self.place.load(Ordering::SeqCst))
    }

    /// Sets the place of its connection. Only the ledger moves a session, and then raises the generation of its filters
    /// (`index::Index::touch`), because routes remember places.
    pub fn move_to(&self, place: Option<Place>) {
        self.place.store(place.map_or(0, Place::bits), Ordering::SeqCst);
    }

    /// The user for whom it acts.
    #[must_use]
    pub fn principal(&self) -> Arc<Principal> {
        Arc::clone(&self.principal.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the user for whom it acts. Only the ledger calls this, before it moves a lasting session to a connection: the
    /// move invalidates routes.
    pub fn set_principal(&self, principal: Arc<Principal>) {
        *self.principal.write().unwrap_or_else(PoisonError::into_inner) = principal;
    }

    /// Members of the group; `None` for a session.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        self.members.as_deref()
    }
}
