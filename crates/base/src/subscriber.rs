//! A subscriber: to whom an entry of the index leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{ConnectionId, Dispatch, Gauge, Members, Place, QueueId, ShardId};

/// Somebody who subscribes: a session, or a group of them that share a subscription.
#[derive(Debug)]
pub struct Subscriber {
    /// The client identifier; it exists once, shared by ledger, session and subscriber. Of a group, its whole filter.
    pub client_id: Arc<str>,
    /// Where messages wait for it while it is not connected; a session that ends with its connection has none.
    pub queue: Option<QueueId>,
    /// How full its output is.
    pub gauge: Gauge,
    /// Where its connection is, in the bits of [`Place`].
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

    /// A session that outlives its connections, and is not connected.
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

    /// Where it is connected, if it is.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        Place::from_bits(self.place.load(Ordering::SeqCst))
    }

    /// It has connected, or is not connected any more. Only the ledger moves a session, and raises the generation of
    /// its filters afterwards (`index::Index::touch`), because routes remember places.
    pub fn move_to(&self, place: Option<Place>) {
        self.place.store(place.map_or(0, Place::bits), Ordering::SeqCst);
    }

    /// Those who share the subscription, if this is a group.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        self.members.as_deref()
    }
}
