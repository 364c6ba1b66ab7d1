//! State of one connection in a shard.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use base::{ConnectionId, Identity, QueueId, Subscriber};
use index::DeepShape;
use protocol::{Deliver, EntryId};
use session::{Bound, Session};
use wire::PacketId;

use crate::Counts;
use crate::control::Controlling;
use crate::filters::{Filters, Shapes};
use crate::login::Verifying;
use crate::login::scram::Authenticating;
use crate::mount::Mount;
use crate::pace::Pace;
use crate::pressure::Blocker;
use crate::publish::Route;
use crate::requests::Request;
use crate::retained::Walks;
use crate::subscribe::Recordings;

/// The time of a timer that is not armed.
pub(crate) const NEVER: u64 = u64::MAX;

/// A connection with its session. Parts that most connections do not need are behind a pointer.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) session: Session<Tag>,
    /// The mount point of its listener, if there is one; from the claim on with the topic prefix of its roles. A pointer takes
    /// no more than a number would, because of the fields beside it.
    pub(crate) mount: Option<Arc<Mount>>,
    /// The rules of its listener about users and promises, by their place in [`Entries`](crate::login::Entries).
    pub(crate) entry: u16,
    /// The counts of its listener and user. Before it is let in, it has no user.
    pub(crate) counts: Arc<Counts>,
    /// CONNACK has said that it is let in.
    pub(crate) is_in: bool,
    /// Its session has subscriptions that go on with what is retained, and the ledger tells of them bit by bit: what stands
    /// behind CONNECT waits.
    pub(crate) is_resuming: bool,
    /// Known from the claim of the client identifier on.
    pub(crate) subscriber: Option<Arc<Subscriber>>,
    pub(crate) filters: Filters,
    /// Memory of the subscriptions, in bytes.
    pub(crate) subscription_bytes: usize,
    /// Route of its last PUBLISH.
    pub(crate) route: Option<Box<Route>>,
    /// Why it is not read.
    pub(crate) blocked: Option<Box<Blocker>>,
    /// How many messages it has acknowledged, which is progress.
    pub(crate) acknowledged: u64,
    /// Its acknowledgements are held back until a subscriber of its is not behind any more.
    pub(crate) is_held: bool,
    /// Memory for topic aliases and exchanges of QoS 2, as charged to the account, in bytes.
    pub(crate) inbound_bytes: usize,
    /// Something waits for it because the process was full, and is tried again.
    pub(crate) is_stalled: bool,
    /// The client has changes to the index that are not written.
    pub(crate) has_changes: bool,
    /// The shard's list of beginnings of packets names it.
    pub(crate) has_beginning: bool,
    /// How many of its messages went to the ledger, and how many of those are decided.
    pub(crate) posted: u32,
    pub(crate) decided: u32,
    /// The timer that counts; those that were armed for another time are stale. [`NEVER`] while there is none.
    pub(crate) due_ms: u64,
    aside: Option<Box<Aside>>,
}

/// Parts of a connection that few connections have, or for a short time: for all others they are one pointer.
#[derive(Debug)]
pub(crate) struct Aside {
    /// The deep shapes among its subscriptions.
    pub(crate) shapes: Option<Box<Shapes>>,
    /// Answers to its subscriptions that are not complete.
    pub(crate) walks: Option<Box<Walks>>,
    /// A SUBSCRIBE or UNSUBSCRIBE that takes more than one turn; what stands behind it waits.
    pub(crate) request: Option<Box<Request>>,
    /// SUBSCRIBE and UNSUBSCRIBE packets that are answered when the ledger has recorded them.
    pub(crate) recording: Option<Box<Recordings>>,
    /// Shared filters that the ledger was asked for.
    joining: Option<Box<Joining>>,
    /// Messages that left its queue when its output, or the whole process, had no room.
    pub(crate) deferred: Option<Box<Deferred>>,
    /// Messages of groups that are under way to it under numbers of its own.
    pub(crate) shares: Option<Box<Shares>>,
    /// Identity of the subscriber for which its acknowledgements were held back last, while this client is in the list
    /// of clients that wait for it.
    pub(crate) held_for: Option<u64>,
    /// The longest expiry of its session that its roles allow, in seconds.
    pub(crate) expiry_secs_max: Option<u32>,
    /// The session expiry from DISCONNECT, in seconds.
    pub(crate) expiry_secs: Option<u32>,
    /// When its connection ends, because something of its could not be stored.
    pub(crate) ends_ms: Option<u64>,
    /// When its connection ends, because its token expires, in seconds since 1970.
    pub(crate) until_unix_secs: Option<u64>,
    /// Answers that were sent while its output was full.
    pub(crate) untaken_answer_bytes: usize,
    /// The CONNECT whose password is being checked.
    pub(crate) verifying: Option<Box<Verifying>>,
    /// The exchange by which it proves that it knows a password.
    pub(crate) authenticating: Option<Box<Authenticating>>,
    /// The message with commands that are being carried out.
    pub(crate) controlling: Option<Controlling>,
    /// Messages that it may not publish, and has.
    pub(crate) denied: u64,
    /// The limits of its messages in each second, if its roles have some.
    pub(crate) pace: Option<Box<Pace>>,
    /// The bound of the messages that wait behind its window, if its roles have one.
    pub(crate) role_bound: Option<Bound>,
}

/// Parts of a client that has none of them.
static NOTHING: Aside = Aside::NOTHING;

/// An [`Aside`] of a client that has none of it: as a value, and as the pattern of that value.
macro_rules! nothing {
    () => {
        Aside {
            shapes: None,
            walks: None,
            request: None,
            recording: None,
            joining: None,
            deferred: None,
            shares: None,
            held_for: None,
            expiry_secs_max: None,
            expiry_secs: None,
            ends_ms: None,
            until_unix_secs: None,
            untaken_answer_bytes: 0,
            verifying: None,
            authenticating: None,
            controlling: None,
            denied: 0,
            pace: None,
            role_bound: None,
        }
    };
}

impl Aside {
    const NOTHING: Self = nothing!();

    fn is_nothing(&self) -> bool {
        matches!(self, nothing!())
    }
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
    pub(crate) fn new(session: Session<Tag>, counts: Arc<Counts>) -> Self {
        Self {
            session,
            counts,
            mount: None,
            entry: 0,
            is_in: false,
            is_resuming: false,
            subscriber: None,
            filters: Filters::default(),
            subscription_bytes: 0,
            route: None,
            blocked: None,
            acknowledged: 0,
            is_held: false,
            inbound_bytes: 0,
            is_stalled: false,
            has_changes: false,
            has_beginning: false,
            posted: 0,
            decided: 0,
            due_ms: NEVER,
            aside: None,
        }
    }

    /// The parts that few have.
    pub(crate) fn aside(&self) -> &Aside {
        self.aside.as_deref().unwrap_or(&NOTHING)
    }

    /// The same, if it has any.
    pub(crate) fn aside_mut(&mut self) -> Option<&mut Aside> {
        self.aside.as_deref_mut()
    }

    /// The same, to give it one. Call [`tidy`](Self::tidy) when it has none any more.
    pub(crate) fn make_aside(&mut self) -> &mut Aside {
        self.aside.get_or_insert_with(|| Box::new(Aside::NOTHING))
    }

    /// Frees the memory of these parts when none of them is left.
    pub(crate) fn tidy(&mut self) {
        self.aside.take_if(|aside| aside.is_nothing());
    }

    /// Answers to its subscriptions that are not complete, if there are any.
    pub(crate) fn walks_mut(&mut self) -> Option<&mut Walks> {
        self.aside_mut()?.walks.as_deref_mut()
    }

    /// When its connection ends, because something of its could not be stored.
    pub(crate) fn ends_ms(&self) -> Option<u64> {
        self.aside().ends_ms
    }

    /// Takes the SUBSCRIBE or UNSUBSCRIBE that takes more than one turn, if there is one.
    pub(crate) fn take_request(&mut self) -> Option<Box<Request>> {
        let request = self.aside_mut()?.request.take();
        self.tidy();
        request
    }

    /// The client is not in the list of clients that wait for this subscriber any more.
    pub(crate) fn forget_held_for(&mut self, subscriber: &Arc<Subscriber>) {
        if let Some(aside) = self.aside_mut()
            && aside.held_for.take_if(|held_for| *held_for == subscriber.identity()).is_some()
        {
            self.tidy();
        }
    }

    /// The bytes of messages that wait for the window of the client, or for room in its output.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.session.waiting_bytes() + self.aside().deferred.as_ref().map_or(0, |deferred| deferred.bytes)
    }

    /// Whether what it has sent waits for something that we do first.
    pub(crate) fn waits(&self) -> bool {
        let aside = self.aside();
        let is_asking = aside.request.is_some() || aside.controlling.is_some();
        self.session.is_claiming() || is_asking || self.is_resuming || self.is_paced()
    }

    /// The ledger is asked for a shared filter, which it may refuse. Returns how much memory that takes, in bytes.
    pub(crate) fn begin_joining(&mut self, filter: &str) -> usize {
        let joining = self.make_aside().joining.get_or_insert_default();
        *joining.answers.entry(filter.into()).or_default() += 1;
        let bytes = joining_bytes(filter);
        joining.bytes += bytes;
        bytes
    }

    /// The ledger has answered once for a shared filter. Returns how much memory that gives back, in bytes.
    pub(crate) fn end_joining(&mut self, filter: &str) -> usize {
        let Some(joining) = self.aside_mut().and_then(|aside| aside.joining.as_mut()) else { return 0 };
        let Some(answers) = joining.answers.get_mut(filter) else { return 0 };
        *answers -= 1;
        if *answers == 0 {
            joining.answers.remove(filter);
        }
        let bytes = joining_bytes(filter);
        joining.bytes -= bytes;
        if joining.answers.is_empty() {
            self.make_aside().joining = None;
            self.tidy();
        }
        bytes
    }

    /// Whether another answer of the ledger for a shared filter is still to come.
    pub(crate) fn is_joining(&self, filter: &str) -> bool {
        self.aside().joining.as_ref().is_some_and(|joining| joining.answers.contains_key(filter))
    }

    /// Shared filters that the ledger has not answered for, each with the number of answers that are still to come. The
    /// connection has ended, and nobody waits for them.
    pub(crate) fn take_joining(&mut self) -> HashMap<Box<str>, u32> {
        let joining = self.aside_mut().and_then(|aside| aside.joining.take());
        joining.map(|joining| joining.answers).unwrap_or_default()
    }

    /// The memory of the shared filters that the ledger has not answered for, in bytes.
    pub(crate) fn joining_bytes(&self) -> usize {
        self.aside().joining.as_ref().map_or(0, |joining| joining.bytes)
    }

    /// Returns the queue of a lasting session, in which messages wait while the client is gone.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        self.subscriber.as_ref()?.queue
    }

    /// The client has subscribed to a filter of this shape.
    pub(crate) fn add_shape(&mut self, shape: Option<DeepShape>) {
        if let Some(shape) = shape {
            self.make_aside().shapes.get_or_insert_default().insert(shape);
        }
    }

    /// The client has unsubscribed from a filter of this shape.
    pub(crate) fn remove_shape(&mut self, shape: Option<DeepShape>) {
        if let (Some(shape), Some(aside)) = (shape, self.aside_mut())
            && aside.shapes.take_if(|shapes| !shapes.remove(shape)).is_some()
        {
            self.tidy();
        }
    }

    pub(crate) fn client_id(&self) -> &str {
        let aside = self.aside();
        let verifying = aside.verifying.as_ref().map(|verifying| &verifying.claim);
        let authenticating = aside.authenticating.as_ref().and_then(|begun| begun.claim.as_ref());
        let claimed = verifying.or(authenticating).map(|claim| &claim.subscriber);
        self.subscriber.as_ref().or(claimed).map_or("", |subscriber| &subscriber.client_id)
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

/// Tag of a waiting message: the group it is from, if any.
pub(crate) type Tag = Option<Share>;

/// Messages that groups have given to a client whose session ends with its connection.
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

    /// All clients of the shard.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.places.iter().filter_map(|place| place.client.as_ref())
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        let present = self.places.iter().zip(0..).filter(|(place, _)| place.client.is_some());
        present.map(|(place, slot)| ConnectionId { slot, generation: place.generation }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million idle clients have it a million times. A new field of few clients belongs into [`Aside`].
    #[test]
    fn a_connection_without_anything_under_way_is_small() {
        assert!(size_of::<Place>() <= 216, "{}", size_of::<Place>());
    }

    #[test]
    fn the_memory_of_rare_parts_is_free_after_the_last_of_them() {
        let session = Session::new(base::Now { monotonic_ms: 0, unix_ms: 0 });
        let mut client = Client::new(session, Arc::default());
        assert!(client.aside().is_nothing() && client.aside.is_none());
        client.begin_joining("$share/g/a");
        client.make_aside().ends_ms = Some(1);
        client.end_joining("$share/g/a");
        assert!(client.aside.is_some(), "the other is there");
        client.make_aside().ends_ms = None;
        client.tidy();
        assert!(client.aside.is_none());
    }
}
