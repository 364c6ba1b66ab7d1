//! What a shard knows of one connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use index::{ConnectionId, QueueId, Subscriber};
use ledger::{Deliver, Durability, EntryId};
use session::Session;
use wire::PacketId;

use crate::filters::Filters;
use crate::pressure::Blocker;
use crate::publish::Route;
use crate::retained::Walks;
use crate::subscribe::Recording;

/// A connection with its session. What most connections do not have is behind a pointer.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) session: Session<Tag>,
    /// What its answers wait for that promise something.
    pub(crate) durability: Durability,
    /// CONNACK has said that it is let in.
    pub(crate) is_in: bool,
    /// Known from CONNECT on.
    pub(crate) subscriber: Option<Arc<Subscriber>>,
    pub(crate) filters: Filters,
    /// Where its last PUBLISH went.
    pub(crate) route: Option<Box<Route>>,
    /// Answers to its subscriptions that are not complete.
    pub(crate) walks: Option<Box<Walks>>,
    /// Why it is not read.
    pub(crate) blocked: Option<Box<Blocker>>,
    /// SUBSCRIBE and UNSUBSCRIBE packets that are answered when the ledger has recorded them.
    #[allow(clippy::box_collection, reason = "most clients have none: a pointer is all they pay")]
    pub(crate) recording: Option<Box<Vec<Recording>>>,
    /// What has come out of its queue when its output, or the whole process, had no room.
    #[allow(clippy::box_collection, reason = "most clients have none: a pointer is all they pay")]
    pub(crate) deferred: Option<Box<VecDeque<Deliver>>>,
    /// Messages of groups that are under way to it under numbers of its own.
    pub(crate) shares: Option<Box<Shares>>,
    /// How many messages it has acknowledged, which is progress.
    pub(crate) acknowledged: u64,
    /// Its acknowledgements are held back until a subscriber of its is not behind any more.
    pub(crate) is_held: bool,
    /// The identity of the subscriber for which they were held back last, while this client stands in the list of those
    /// who wait for it.
    pub(crate) held_for: Option<u64>,
    /// What DISCONNECT has changed the session's expiry to.
    pub(crate) expiry_secs: Option<u32>,
    /// What it takes to remember what it has sent, as it stands on the account.
    pub(crate) inbound_bytes: usize,
    /// When its connection ends, because something of its could not be stored.
    pub(crate) ends_ms: Option<u64>,
    /// Answers that were sent while its output was full.
    pub(crate) untaken_answer_bytes: usize,
    /// Something waits for it because the process was full, and is tried again.
    pub(crate) is_stalled: bool,
    /// It has changes to the index that are not written.
    pub(crate) has_changes: bool,
    /// How many of its messages went to the ledger, and how many of those are decided.
    pub(crate) posted: u32,
    pub(crate) decided: u32,
    /// The timer that counts; those that were armed for another time are stale.
    pub(crate) due_ms: Option<u64>,
}

impl Client {
    pub(crate) fn new(session: Session<Tag>, durability: Durability) -> Self {
        Self {
            session,
            durability,
            is_in: false,
            subscriber: None,
            filters: Filters::default(),
            route: None,
            walks: None,
            blocked: None,
            recording: None,
            deferred: None,
            shares: None,
            acknowledged: 0,
            is_held: false,
            held_for: None,
            expiry_secs: None,
            inbound_bytes: 0,
            ends_ms: None,
            untaken_answer_bytes: 0,
            is_stalled: false,
            has_changes: false,
            posted: 0,
            decided: 0,
            due_ms: None,
        }
    }

    /// Where messages wait for its session when it is gone, if the session lasts.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        self.subscriber.as_ref()?.queue
    }

    pub(crate) fn client_id(&self) -> &str {
        self.subscriber.as_ref().map_or("", |subscriber| &subscriber.client_id)
    }
}

/// A message of a group, as the ledger knows it.
pub(crate) type Share = (QueueId, EntryId);

/// What comes with messages that wait: where they are from, if that is a group.
pub(crate) type Tag = Option<Share>;

/// What groups have given to a client whose session ends with its connection.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Under way, by packet identifier.
    pub(crate) in_flight: HashMap<PacketId, Share>,
    /// How many wait behind the window.
    pub(crate) waiting: usize,
}

/// The clients of one shard, in the places that `net` gave their connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    places: Vec<Place>,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    client: Option<Client>,
}

impl Clients {
    pub(crate) fn insert(&mut self, id: ConnectionId, client: Client) {
        let slot = id.slot as usize;
        if slot >= self.places.len() {
            self.places.resize_with(slot + 1, Place::default);
        }
        self.places[slot] = Place { generation: id.generation, client: Some(client) };
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Client> {
        let place = self.places.get(id.slot as usize)?;
        if place.generation == id.generation { place.client.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Client> {
        let place = self.places.get_mut(id.slot as usize)?;
        if place.generation == id.generation { place.client.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Client> {
        let place = self.places.get_mut(id.slot as usize)?;
        if place.generation == id.generation { place.client.take() } else { None }
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        let present = self.places.iter().zip(0..).filter(|(place, _)| place.client.is_some());
        present.map(|(place, slot)| ConnectionId { slot, generation: place.generation }).collect()
    }
}
