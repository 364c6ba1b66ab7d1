//! What a shard knows of one connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use base::{ConnectionId, QueueId, Subscriber};
use index::DeepShape;
use protocol::{Deliver, Durability, EntryId};
use session::Session;
use wire::PacketId;

use crate::filters::{Filters, Shapes};
use crate::pressure::Blocker;
use crate::publish::Route;
use crate::requests::Request;
use crate::retained::Walks;
use crate::subscribe::Recordings;

/// A connection with its session. What most connections do not have is behind a pointer.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) session: Session<Tag>,
    /// What its answers wait for that promise something.
    pub(crate) durability: Durability,
    /// CONNACK has said that it is let in.
    pub(crate) is_in: bool,
    /// Its session has subscriptions that go on with what is retained, and the ledger tells of them bit by bit: what stands
    /// behind CONNECT waits.
    pub(crate) is_resuming: bool,
    /// Known from CONNECT on.
    pub(crate) subscriber: Option<Arc<Subscriber>>,
    pub(crate) filters: Filters,
    /// What they hold of memory.
    pub(crate) subscription_bytes: usize,
    /// The deep shapes among them.
    pub(crate) shapes: Option<Box<Shapes>>,
    /// Where its last PUBLISH went.
    pub(crate) route: Option<Box<Route>>,
    /// Answers to its subscriptions that are not complete.
    pub(crate) walks: Option<Box<Walks>>,
    /// Why it is not read.
    pub(crate) blocked: Option<Box<Blocker>>,
    /// A SUBSCRIBE or UNSUBSCRIBE that takes more than one turn; what stands behind it waits.
    pub(crate) request: Option<Box<Request>>,
    /// SUBSCRIBE and UNSUBSCRIBE packets that are answered when the ledger has recorded them.
    pub(crate) recording: Option<Box<Recordings>>,
    /// Shared filters that the ledger was asked for.
    joining: Option<Box<Joining>>,
    /// What has come out of its queue when its output, or the whole process, had no room.
    #[allow(clippy::box_collection, reason = "most clients have none: a pointer is all they pay")]
    pub(crate) deferred: Option<Box<Deferred>>,
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
    /// The shard's list of beginnings of packets names it.
    pub(crate) has_beginning: bool,
    /// How many of its messages went to the ledger, and how many of those are decided.
    pub(crate) posted: u32,
    pub(crate) decided: u32,
    /// The timer that counts; those that were armed for another time are stale.
    pub(crate) due_ms: Option<u64>,
}

/// Messages out of queues of the ledger for which the output had no room.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    messages: VecDeque<Deliver>,
    bytes: usize,
}

impl Deferred {
    pub(crate) fn push(&mut self, deliver: Deliver) {
        self.bytes += deliver.message.size_bytes();
        self.messages.push_back(deliver);
    }

    pub(crate) fn first(&self) -> Option<&Deliver> {
        self.messages.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Deliver> {
        let deliver = self.messages.pop_front()?;
        self.bytes -= deliver.message.size_bytes();
        Some(deliver)
    }
}

impl Client {
    pub(crate) fn new(session: Session<Tag>, durability: Durability) -> Self {
        Self {
            session,
            durability,
            is_in: false,
            is_resuming: false,
            subscriber: None,
            filters: Filters::default(),
            subscription_bytes: 0,
            shapes: None,
            route: None,
            walks: None,
            blocked: None,
            request: None,
            recording: None,
            joining: None,
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
            has_beginning: false,
            posted: 0,
            decided: 0,
            due_ms: None,
        }
    }

    /// The bytes of messages that wait for the window of the client, or for room in its output.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.session.waiting_bytes() + self.deferred.as_ref().map_or(0, |deferred| deferred.bytes)
    }

    /// Whether what it has sent waits for something that we do first.
    pub(crate) fn waits(&self) -> bool {
        self.session.is_claiming() || self.request.is_some() || self.is_resuming
    }

    /// The ledger is asked for a shared filter, which it may refuse. Returns how much memory that takes, in bytes.
    pub(crate) fn begin_joining(&mut self, filter: &str) -> usize {
        let joining = self.joining.get_or_insert_default();
        *joining.answers.entry(filter.into()).or_default() += 1;
        let bytes = joining_bytes(filter);
        joining.bytes += bytes;
        bytes
    }

    /// The ledger has answered once for a shared filter. Returns how much memory that gives back, in bytes.
    pub(crate) fn end_joining(&mut self, filter: &str) -> usize {
        let Some(joining) = &mut self.joining else { return 0 };
        let Some(answers) = joining.answers.get_mut(filter) else { return 0 };
        *answers -= 1;
        if *answers == 0 {
            joining.answers.remove(filter);
        }
        let bytes = joining_bytes(filter);
        joining.bytes -= bytes;
        if joining.answers.is_empty() {
            self.joining = None;
        }
        bytes
    }

    /// Whether another answer of the ledger for a shared filter is still to come.
    pub(crate) fn is_joining(&self, filter: &str) -> bool {
        self.joining.as_ref().is_some_and(|joining| joining.answers.contains_key(filter))
    }

    /// Shared filters that the ledger has not answered for, each with the number of answers that are still to come. The
    /// connection has ended, and nobody waits for them.
    pub(crate) fn take_joining(&mut self) -> HashMap<Box<str>, u32> {
        self.joining.take().map(|joining| joining.answers).unwrap_or_default()
    }

    /// The memory of the shared filters that the ledger has not answered for, in bytes.
    pub(crate) fn joining_bytes(&self) -> usize {
        self.joining.as_ref().map_or(0, |joining| joining.bytes)
    }

    /// Where messages wait for its session when it is gone, if the session lasts.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        self.subscriber.as_ref()?.queue
    }

    /// It has subscribed to a filter of this shape.
    pub(crate) fn add_shape(&mut self, shape: Option<DeepShape>) {
        if let Some(shape) = shape {
            self.shapes.get_or_insert_default().insert(shape);
        }
    }

    /// It has unsubscribed from a filter of this shape.
    pub(crate) fn remove_shape(&mut self, shape: Option<DeepShape>) {
        if let (Some(shape), Some(shapes)) = (shape, &mut self.shapes)
            && !shapes.remove(shape)
        {
            self.shapes = None;
        }
    }

    pub(crate) fn client_id(&self) -> &str {
        self.subscriber.as_ref().map_or("", |subscriber| &subscriber.client_id)
    }
}

/// Shared filters that the ledger was asked for.
#[derive(Debug, Default)]
struct Joining {
    /// How many of its answers are still to come, by filter.
    answers: HashMap<Box<str>, u32>,
    bytes: usize,
}

/// The memory of a shared filter until the ledger has answered, in bytes. The copy beside the answer to its packet is
/// counted there.
fn joining_bytes(filter: &str) -> usize {
    const BESIDE_TEXTS: usize = 80;
    filter.len() + BESIDE_TEXTS
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

    /// How many places there are.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.places.len()).expect("a shard has at most 2^25 connections")
    }

    /// The clients in the places from this one on; a place without one counts as none.
    pub(crate) fn in_slots(
        &self,
        slots: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (ConnectionId, &Client)> {
        let places = slots.filter_map(|slot| Some((slot, self.places.get(slot as usize)?)));
        places.filter_map(|(slot, place)| {
            let id = ConnectionId { slot, generation: place.generation };
            place.client.as_ref().map(|client| (id, client))
        })
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        let present = self.places.iter().zip(0..).filter(|(place, _)| place.client.is_some());
        present.map(|(place, slot)| ConnectionId { slot, generation: place.generation }).collect()
    }
}
