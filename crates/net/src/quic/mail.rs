//! Letters between the shard with the doors and the shards with the connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::Charge;
use broker::{Admission, Dismissal};
use layers::quic::{Begun, ConnectionEvent, EndpointEvent, Name};
use stream::Peer;

use crate::inbox::{Inbox, Wake};

/// Datagrams that wait for a shard, in bytes. While it has more, later datagrams for it are dropped.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// A letter to a shard.
pub(crate) enum Letter {
    /// From the shard with the doors, in their order.
    Deliveries {
        deliveries: Vec<Delivery>,
        /// Bytes of the datagrams.
        bytes: usize,
        _charge: Charge,
    },
    /// A reload has removed a listener, or has changed its rules.
    Dismiss { listener: u16, whom: Dismissal },
    /// To the shard with the doors.
    Told(Vec<(Name, EndpointEvent)>),
}

/// A thing that the shard of a connection has to know.
pub(crate) enum Delivery {
    /// A new connection, with the rules of its listener.
    Begun { name: Name, begun: Box<Begun>, peer: Peer, admission: Admission, listener: u16 },
    /// A datagram of this many bytes, or connection ids.
    Event { name: Name, event: ConnectionEvent, bytes: usize },
}

impl Delivery {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Begun { .. } => 0,
            Self::Event { bytes, .. } => *bytes,
        }
    }
}

/// The inbox of a shard.
pub(crate) struct Mail {
    inbox: Inbox<Letter>,
    waiting_bytes: AtomicUsize,
}

impl Mail {
    pub(crate) fn new(wake: Wake) -> Self {
        Self { inbox: Inbox::new(wake), waiting_bytes: AtomicUsize::new(0) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes.load(Ordering::Relaxed) > BYTES_MAX
    }

    /// Connections that were accepted under this number leave the shard.
    pub(crate) fn dismiss(&self, listener: u16, whom: Dismissal) {
        self.post(Letter::Dismiss { listener, whom });
    }

    pub(super) fn post(&self, letter: Letter) {
        if let Letter::Deliveries { bytes, .. } = &letter {
            self.waiting_bytes.fetch_add(*bytes, Ordering::Relaxed);
        }
        self.inbox.post(letter);
    }

    pub(super) fn take(&self, into: &mut Vec<Letter>) {
        self.inbox.take(into);
        let bytes = into.iter().map(|letter| match letter {
            Letter::Deliveries { bytes, .. } => *bytes,
            Letter::Told(_) | Letter::Dismiss { .. } => 0,
        });
        self.waiting_bytes.fetch_sub(bytes.sum(), Ordering::Relaxed);
    }
}
