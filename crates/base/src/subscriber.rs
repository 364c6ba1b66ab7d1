//! A subscriber, to which an entry of the index leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{ConnectionId, Dispatch, Gauge, Members, Place, QueueId, ShardId};

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
    members: Option<Box<Members>>,
}

impl Subscriber {
    /// A session that ends with its connection.
    #[must_use]
    pub fn new(client_id: Arc<str>, shard: ShardId, connection: ConnectionId) -> Self {
        let place = AtomicU64::new(Place { shard, connection }.bits());
        Self { client_id, queue: None, gauge: Gauge::default(), place, members: None }
    }

    /// A lasting session without a connection.
    #[must_use]
    pub fn lasting(client_id: Arc<str>, queue: QueueId) -> Self {
        Self {
            client_id,
            queue: Some(queue),
            gauge: Gauge::default(),
            place: AtomicU64::new(0),
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

    /// Members of the group; `None` for a session.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        self.members.as_deref()
    }
}
