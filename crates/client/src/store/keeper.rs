//! Brings a store up to date with the session, once for each turn of the driver.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use session::client::{Client, Stored, UnderWay};
use tokio::time::timeout;
use wire::PacketId;

use crate::error::{ConnectError, Ended};
use crate::options::Options;

use super::record::{Contents, Group, HEADER, Identity};
use super::{HeldStore, SharedStore};

/// Size of a store, in bytes, below which it is never rewritten.
const REWRITTEN_FROM_BYTES: usize = 1 << 20;

/// The store of a connection, and what it has of the session.
///
/// The keeper compares the session with its own notes after each turn, and appends what has changed. The cost of a turn
/// grows with the messages in flight and with what is new, and not with the messages that wait.
pub(crate) struct Keeper {
    /// The store, or the error after which nobody knows its contents, and nothing more is written to it.
    store: Result<HeldStore, Arc<io::Error>>,
    bytes: usize,
    /// The store is rewritten when it has more bytes.
    rewritten_at_bytes: usize,
    notes: Notes,
}

/// The part of the session that is in the store.
#[derive(Default)]
struct Notes {
    identity: Identity,
    /// Tags of the messages that wait, in order.
    waiting: VecDeque<u64>,
    under_way: HashMap<u64, Noted>,
    unreleased: BTreeSet<PacketId>,
    /// Number of comparisons so far.
    turn: u64,
}

/// A message that was sent, as the store has it.
struct Noted {
    is_received: bool,
    /// The last comparison that has found the message in the session.
    seen: u64,
}

/// A session that an earlier program has stored.
pub(crate) struct Restored {
    pub(crate) keeper: Keeper,
    /// `None` if nothing was stored.
    pub(crate) stored: Option<Stored<u64>>,
}

impl Options {
    /// Reads the session store, if there is one. A client without an identifier gets that of the stored session.
    pub(crate) async fn restore(&mut self) -> Result<Option<Restored>, ConnectError> {
        let Some(store) = &self.store else { return Ok(None) };
        let opened = timeout(self.connect_timeout, Keeper::open(store, self.name(), self.is_clean())).await;
        let in_use =
            |_| Err(io::Error::new(io::ErrorKind::ResourceBusy, "another client uses the session store"));
        let restored = opened.unwrap_or_else(in_use).map_err(|error| Ended::Store(Arc::new(error)));
        let restored = restored.map_err(ConnectError::Ended)?;
        if let Some(stored) = &restored.stored
            && self.name().is_empty()
        {
            self.rename(&stored.client_id);
        }
        Ok(Some(restored))
    }
}

impl Keeper {
    /// Reads the store for a client with this identifier, which may be empty. With `is_fresh`, discards the contents.
    pub(crate) async fn open(store: &SharedStore, client_id: &str, is_fresh: bool) -> io::Result<Restored> {
        let mut held = store.hold().await;
        let (held, bytes) = blocking(move || {
            let bytes = held.load();
            (held, bytes)
        })
        .await?;
        let bytes = bytes?;
        let contents = if is_fresh { None } else { Contents::read(&bytes)? };
        if let Some(Contents { identity, .. }) = &contents
            && !(client_id.is_empty() || identity.client_id.is_empty() || *identity.client_id == *client_id)
        {
            let why = format!("the stored session is that of the client {:?}", identity.client_id);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let stored = contents.map(Contents::into_stored);
        // The first turn rewrites the store, also because an incomplete group may be at its end.
        let keeper = Self { store: Ok(held), bytes: 0, rewritten_at_bytes: 0, notes: Notes::default() };
        Ok(Restored { keeper, stored })
    }

    /// Stores what has changed. The packets of the turn may leave afterwards.
    ///
    /// After an error, each later call returns the same error.
    pub(crate) async fn keep(&mut self, session: &Client<u64>) -> Result<(), Arc<io::Error>> {
        if let Err(error) = &self.store {
            return Err(Arc::clone(error));
        }
        let group = self.notes.changes(session);
        let must_rewrite = self.bytes == 0;
        if group.is_empty() && !must_rewrite {
            return Ok(());
        }
        let mut bytes = Vec::new();
        group.write(&mut bytes);
        let is_whole = must_rewrite || self.bytes + bytes.len() > self.rewritten_at_bytes;
        if is_whole {
            bytes.clear();
            bytes.extend(HEADER);
            self.notes = Notes::default();
            self.notes.changes(session).write(&mut bytes);
            self.bytes = 0;
            self.rewritten_at_bytes = REWRITTEN_FROM_BYTES.max(3 * bytes.len());
        }
        self.bytes += bytes.len();
        // A panic of the store leaves this error behind.
        let mut store = std::mem::replace(&mut self.store, Err(Arc::new(panicked())))?;
        let written = blocking(move || {
            let written = if is_whole { store.replace(&bytes) } else { store.append(&bytes) };
            written.map(|()| store)
        });
        self.store = written.await.flatten().map_err(Arc::new);
        self.store.as_ref().map(|_| ()).map_err(Arc::clone)
    }
}

impl Notes {
    /// Records what has changed since the last call, and notes it.
    fn changes(&mut self, session: &Client<u64>) -> Group {
        let mut group = Group::default();
        self.turn += 1;
        let identity = (session.client_id(), session.has_session(), session.is_inherited());
        let noted = &self.identity;
        if identity != (&*noted.client_id, noted.has_session, noted.is_inherited) {
            let (client_id, has_session, is_inherited) = identity;
            self.identity = Identity { client_id: client_id.into(), has_session, is_inherited };
            group.identity(&self.identity);
        }
        let left = self.take_left(session);
        self.note_under_way(session, &left, &mut group);
        self.note_waiting(session, &mut group);
        self.note_unreleased(session, &mut group);
        group
    }

    /// Removes the messages that no longer wait, and returns their tags.
    fn take_left(&mut self, session: &Client<u64>) -> BTreeSet<u64> {
        let first = session.waiting().next().map(|waiting| waiting.tag);
        let mut left = BTreeSet::new();
        while let Some(tag) = self.waiting.pop_front_if(|tag| first.is_none_or(|first| *tag < first)) {
            left.insert(tag);
        }
        left
    }

    fn note_under_way(&mut self, session: &Client<u64>, left: &BTreeSet<u64>, group: &mut Group) {
        let turn = self.turn;
        let mut changed = Vec::new();
        for sent in session.under_way() {
            match self.under_way.get_mut(sent.tag) {
                Some(noted) => {
                    noted.seen = turn;
                    if sent.message.is_none() && !noted.is_received {
                        changed.push(sent);
                    }
                }
                None => changed.push(sent),
            }
        }
        // In the order of PUBLISHes, and of PUBRECs, in which the next program sends again.
        changed.sort_unstable_by_key(|sent| sent.order);
        for UnderWay { packet_id, message, tag, .. } in changed {
            match message {
                Some(message) => {
                    if !left.contains(tag) {
                        group.message(*tag, message);
                    }
                    group.sent(*tag, packet_id);
                }
                None => group.received(*tag, packet_id),
            }
            self.under_way.insert(*tag, Noted { is_received: message.is_none(), seen: turn });
        }
        self.under_way.retain(|tag, noted| {
            let is_there = noted.seen == turn;
            if !is_there {
                group.done(*tag);
            }
            is_there
        });
        for tag in left.iter().filter(|tag| !self.under_way.contains_key(*tag)) {
            group.done(*tag);
        }
    }

    fn note_waiting(&mut self, session: &Client<u64>, group: &mut Group) {
        let last = self.waiting.back().copied().unwrap_or_default();
        let new: Vec<_> = session.waiting().rev().take_while(|waiting| waiting.tag > last).collect();
        for waiting in new.into_iter().rev() {
            group.message(waiting.tag, &waiting.message);
            self.waiting.push_back(waiting.tag);
        }
    }

    fn note_unreleased(&mut self, session: &Client<u64>, group: &mut Group) {
        let now: BTreeSet<PacketId> = session.unreleased().collect();
        self.unreleased.difference(&now).for_each(|packet_id| group.released(*packet_id));
        now.difference(&self.unreleased).for_each(|packet_id| group.unreleased(*packet_id));
        self.unreleased = now;
    }
}

/// Runs an operation of a store where it may block.
async fn blocking<T: Send + 'static>(operation: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(operation).await.map_err(|_| panicked())
}

fn panicked() -> io::Error {
    io::Error::other("the session store has panicked")
}
