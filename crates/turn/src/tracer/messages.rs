//! A trace by topic: the PUBLISH packets of all clients whose topics match a filter.
//!
//! ```text
//! bytes of a client ─► trace_publisher ─► brain ─► trace_published: the packets of the client, then those of its receivers
//!                                           └────► queued: packets to receivers, held back until then
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::ConnectionId;
use broker::Shard;
use stream::Peer;
use topic::TopicName;
use wire::{Decoded, Limits, Packet, PublishTopic, Role, TopicAlias, Version, decode};

use super::{NAME_BYTES_MAX, Tracer, named};
use crate::connection::Connection;
use crate::host::Host;
use crate::io::Io;
use crate::packets::{self, PUBLISH};
use crate::trace::{TraceEvent, TraceRecord};

/// Maximum number of topic aliases that a shard remembers.
const ALIASES_MAX: usize = 65_536;

/// The topic aliases whose topics match the filter of a trace.
#[derive(Default)]
pub(super) struct Aliases {
    of: HashMap<ConnectionId, HashSet<(Role, TopicAlias)>>,
    count: usize,
}

/// A client whose packets are handed to the brain. It may be gone behind them.
pub(super) struct Publisher {
    id: ConnectionId,
    peer: Peer,
    listener: u16,
    version: Option<Version>,
    client_id: Arc<str>,
    is_followed: bool,
    /// Records are held back that are about itself, and are its first ones. The record in front of them has its part of the limit.
    needs_begin: bool,
    /// Records that wait for those of its packets, with their parts of the limit.
    held: Vec<TraceRecord>,
}

impl Tracer {
    /// Records the messages of the topic among the packets that a client has sent, and then the records that were held back.
    ///
    /// Packets behind one that ends the connection are not told apart, unless that is a DISCONNECT or cannot be decoded. Returns
    /// the connection if it is followed.
    fn send_published(&mut self, packets: &[u8]) -> Option<ConnectionId> {
        let mut publisher = self.publisher.take()?;
        if publisher.needs_begin {
            self.begin_publisher(&mut publisher);
        }
        let mut rest = packets;
        while let Ok(Decoded::Packet { packet, len }) = decode(rest, publisher.version, &Limits::default()) {
            if matches!(packet, Packet::Disconnect(_)) {
                break;
            }
            let (whole, behind) = rest.split_at(len);
            if let Packet::Publish(publish) = &packet
                && self.is_meant(publisher.id, Role::Client, &publish.topic)
            {
                self.begin_publisher(&mut publisher);
                self.trace.send_bytes(self.unix_ms, self.shard, publisher.id, (Role::Client, whole));
            }
            rest = behind;
        }
        publisher.held.into_iter().for_each(|record| self.trace.send_reserved(record));
        publisher.is_followed.then_some(publisher.id)
    }

    /// Begins with a publisher in front of its first record, and names it: it may be gone behind its packets.
    fn begin_publisher(&mut self, publisher: &mut Publisher) {
        if publisher.is_followed || !(publisher.needs_begin || self.reserve_begin()) {
            return;
        }
        publisher.is_followed = true;
        let Publisher { id, peer, listener, version, client_id, .. } = &*publisher;
        let (peer, listener, version) = (*peer, *listener, *version);
        self.push(*id, TraceEvent::Begun { peer, listener, version, is_from_start: false });
        self.push(*id, named(client_id));
    }

    /// Takes the parts of the first record of a connection and of its name from the limit.
    fn reserve_begin(&self) -> bool {
        self.trace.reserve(0) && self.trace.reserve(NAME_BYTES_MAX)
    }

    /// A PUBLISH packet, in two parts, or several in the first one, is queued for a receiver.
    pub(crate) fn queued<S>(
        &mut self,
        id: ConnectionId,
        connection: &mut Connection<S>,
        parts: (&[u8], &[u8]),
    ) {
        let Some(version) = connection.version.filter(|_| self.is_by_topic()) else { return };
        let (mut head, shared) = parts;
        while !self.trace.is_over()
            && let Some(len) = packets::len(head, shared)
        {
            let (own, behind) = head.split_at(len.min(head.len()));
            let parts = if len <= head.len() { (own, &[][..]) } else { (own, &shared[..len - own.len()]) };
            if packets::kind(parts.0, parts.1) == PUBLISH && self.is_message(id, version, parts) {
                self.hold(id, connection, parts);
            }
            head = behind;
            if head.is_empty() {
                break;
            }
        }
    }

    fn is_message(&mut self, id: ConnectionId, version: Version, parts: (&[u8], &[u8])) -> bool {
        let subject = self.trace.subject();
        let name = packets::topic(parts.0, parts.1);
        let is_named = name.as_ref().is_some_and(|name| !name.is_empty());
        let is_meant = name
            .as_deref()
            .is_some_and(|name| TopicName::new(name).is_ok_and(|name| subject.has_topic(name)));
        // An alias takes a look at the properties, and most messages have nothing to do with any.
        let has_alias = version == Version::V5 && (is_meant || !is_named || self.aliases.has_any(id));
        if !has_alias {
            return is_meant;
        }
        let Some(alone) = packets::without_payload(parts.0, parts.1) else { return is_meant };
        match decode(&alone, Some(version), &Limits::default()) {
            Ok(Decoded::Packet { packet: Packet::Publish(publish), .. }) => {
                self.is_meant(id, Role::Server, &publish.topic)
            }
            _ => is_meant,
        }
    }

    fn hold<S>(&mut self, id: ConnectionId, connection: &mut Connection<S>, (head, shared): (&[u8], &[u8])) {
        self.begin_held(id, connection);
        // Reserved before the copy is made: there may be a thousand receivers of a megabyte.
        if self.trace.reserve(head.len() + shared.len()) {
            self.push(id, TraceEvent::Bytes(Role::Server, [head, shared].concat().into()));
        }
    }

    /// Begins to follow a connection whose records are held back, with room for its name.
    pub(super) fn begin_held<S>(&mut self, id: ConnectionId, connection: &mut Connection<S>) {
        if self.follows(connection) {
            return;
        }
        let own = self.publisher.as_ref().filter(|publisher| publisher.id == id);
        let is_own = own.is_some();
        if own.is_some_and(|publisher| publisher.needs_begin) || !self.reserve_begin() {
            return;
        }
        if let Some(publisher) = self.publisher.as_mut().filter(|_| is_own) {
            publisher.needs_begin = true;
        } else {
            connection.traced = self.trace.number();
            let Connection { peer, listener, version, .. } = *connection;
            self.push(id, TraceEvent::Begun { peer, listener, version, is_from_start: false });
            self.unnamed.push(id);
        }
    }

    /// Sends a record that has its part of the limit, or holds it back.
    pub(super) fn push(&mut self, connection: ConnectionId, event: TraceEvent) {
        let record = TraceRecord { unix_ms: self.unix_ms, shard: self.shard, connection, event };
        match &mut self.publisher {
            Some(publisher) => publisher.held.push(record),
            None => self.trace.send_reserved(record),
        }
    }

    fn is_meant(&mut self, id: ConnectionId, sender: Role, topic: &PublishTopic<'_>) -> bool {
        let matches = |name| self.trace.subject().has_topic(name);
        match *topic {
            PublishTopic::Name(name) => matches(name),
            PublishTopic::NameWithAlias(name, alias) => {
                let is_meant = matches(name);
                self.aliases.note(id, (sender, alias), is_meant);
                is_meant
            }
            PublishTopic::Alias(alias) => self.aliases.is_meant(id, (sender, alias)),
        }
    }
}

impl Aliases {
    fn note(&mut self, id: ConnectionId, alias: (Role, TopicAlias), is_meant: bool) {
        if !is_meant {
            let was_meant = self.of.get_mut(&id).is_some_and(|known| known.remove(&alias));
            self.count -= usize::from(was_meant);
        } else if self.count < ALIASES_MAX {
            self.count += usize::from(self.of.entry(id).or_default().insert(alias));
        }
    }

    fn has_any(&self, id: ConnectionId) -> bool {
        self.of.contains_key(&id)
    }

    fn is_meant(&self, id: ConnectionId, alias: (Role, TopicAlias)) -> bool {
        self.of.get(&id).is_some_and(|known| known.contains(&alias))
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.count -= self.of.remove(&id).map_or(0, |known| known.len());
    }
}

impl<H: Host> Io<H> {
    /// Bytes of a client are handed to the brain next. Returns whether a trace by topic wants to see those that it is done with.
    pub(crate) fn trace_publisher(&mut self, id: ConnectionId, brain: &Shard) -> bool {
        let Some(tracer) = self.tracer.as_mut().filter(|tracer| tracer.is_by_topic()) else {
            return false;
        };
        let (Some(connection), Some(client)) = (self.connections.get(id), brain.let_in(id)) else {
            return false;
        };
        let Connection { peer, listener, version, .. } = *connection;
        tracer.publisher = Some(Publisher {
            id,
            peer,
            listener,
            version,
            client_id: Arc::clone(&client.client_id),
            is_followed: tracer.follows(connection),
            needs_begin: false,
            held: Vec::new(),
        });
        true
    }

    /// The brain is done with these whole packets of the client.
    pub(crate) fn trace_published(&mut self, packets: &[u8]) {
        let Some(tracer) = &mut self.tracer else { return };
        if let Some(id) = tracer.send_published(packets)
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.traced = tracer.number();
        }
    }
}
