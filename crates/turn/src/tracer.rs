//! The part of a shard in a trace: finds the connections that the trace is about, and sends records of what crosses them.
//!
//! Without a trace, each read, each write, each packet to a client and each hand-over to the brain costs one comparison.

mod copying;
mod messages;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use auth::{Suspect, Whom};
use base::{ConnectionId, ShardId};
use broker::{Notice, Shard};
use stream::Peer;
use topic::TopicName;
use wire::{Decoded, Limits, Packet, Role, decode};

use crate::connection::{Connection, Connections};
use crate::host::Host;
use crate::io::Io;
use crate::packets;
use crate::trace::{Trace, TraceEvent, TraceSubject};

pub(crate) use copying::Copying;
use messages::{Aliases, Publisher};

/// Connections that a turn looks at when a trace begins.
const LOOKED_AT_PER_TURN: u32 = 1_024;
/// Maximum length of a decision in characters: it contains texts of clients.
const DECISION_CHARS_MAX: usize = 1_024;
/// Room for the name of a client. The rest of a longer one is cut.
const NAME_BYTES_MAX: usize = 256;

/// A trace on one shard.
pub(crate) struct Tracer {
    trace: Arc<Trace>,
    shard: ShardId,
    unix_ms: u64,
    /// The first place of connections that was not looked at. `None` when all were.
    next: Option<u32>,
    /// Followed connections without a record so far.
    silent: HashSet<ConnectionId>,
    /// Bytes that waited for a connection when the trace began, which may begin inside a packet. They are not recorded.
    queued_before: HashMap<ConnectionId, usize>,
    /// Connections whose clients were let in, in this turn.
    let_in: Vec<ConnectionId>,
    /// Connections whose clients are to be named at the end of the turn.
    unnamed: Vec<ConnectionId>,
    /// The client whose packets are being handed to the brain, in a trace by topic.
    publisher: Option<Publisher>,
    aliases: Aliases,
}

impl Tracer {
    pub(crate) fn new(trace: Arc<Trace>, shard: ShardId, unix_ms: u64) -> Self {
        let next = matches!(trace.subject(), TraceSubject::Clients(_)).then_some(0);
        Self {
            trace,
            shard,
            unix_ms,
            next,
            silent: HashSet::new(),
            queued_before: HashMap::new(),
            let_in: Vec::new(),
            unnamed: Vec::new(),
            publisher: None,
            aliases: Aliases::default(),
        }
    }

    /// A turn begins. Returns whether the trace goes on.
    pub(crate) fn begin_turn(&mut self, unix_ms: u64) -> bool {
        self.unix_ms = unix_ms;
        !self.trace.is_over()
    }

    /// Whether it has work for another turn.
    pub(crate) fn is_busy(&self) -> bool {
        self.next.is_some() || !self.unnamed.is_empty() || !self.let_in.is_empty()
    }

    pub(crate) fn number(&self) -> u32 {
        self.trace.number()
    }

    fn follows<S>(&self, connection: &Connection<S>) -> bool {
        connection.traced == self.trace.number()
    }

    /// Whether all bytes of this connection are recorded.
    pub(crate) fn follows_bytes<S>(&self, connection: &Connection<S>) -> bool {
        self.follows(connection) && self.whom().is_some() && !self.trace.is_over()
    }

    fn whom(&self) -> Option<&Whom> {
        match self.trace.subject() {
            TraceSubject::Clients(whom) => Some(whom),
            TraceSubject::Topic { .. } => None,
        }
    }

    fn is_by_topic(&self) -> bool {
        matches!(self.trace.subject(), TraceSubject::Topic { .. })
    }

    fn send(&self, connection: ConnectionId, event: TraceEvent) {
        self.trace.send(self.unix_ms, self.shard, connection, event);
    }

    /// Begins to follow a connection at its first byte, or behind what is queued for it.
    fn begin<S>(&mut self, id: ConnectionId, connection: &mut Connection<S>, is_from_start: bool) {
        connection.traced = self.trace.number();
        if is_from_start {
            return self.send_begun(id, connection, true, None);
        }
        self.silent.insert(id);
        if connection.waiting_bytes() > 0 && self.whom().is_some() {
            self.queued_before.insert(id, connection.waiting_bytes());
        }
    }

    /// Sends the first record of a connection. Its client is named at the end of the turn unless its name is given.
    fn send_begun<S>(
        &mut self,
        id: ConnectionId,
        connection: &Connection<S>,
        is_from_start: bool,
        name: Option<&str>,
    ) {
        let Connection { peer, listener, version, .. } = *connection;
        self.send(id, TraceEvent::Begun { peer, listener, version, is_from_start });
        if let Some(name) = name {
            self.send(id, TraceEvent::Named(name.into()));
        } else if self.trace.reserve(NAME_BYTES_MAX) {
            self.unnamed.push(id);
        }
    }

    /// Sends the first record of a connection in front of another one, if there was none.
    fn break_silence<S>(&mut self, id: ConnectionId, connection: &Connection<S>, name: Option<&str>) {
        if !self.silent.is_empty() && self.silent.remove(&id) {
            self.send_begun(id, connection, false, name);
        }
    }

    fn send_bytes<S>(&mut self, id: ConnectionId, connection: &Connection<S>, sender: Role, bytes: &[u8]) {
        if bytes.is_empty() || self.trace.is_over() {
            return;
        }
        self.break_silence(id, connection, None);
        self.trace.send_bytes(self.unix_ms, self.shard, id, (sender, bytes));
    }

    /// The socket of a followed connection has taken these bytes.
    pub(crate) fn written<S>(&mut self, id: ConnectionId, connection: &Connection<S>, bytes: &[u8]) {
        let mut skipped = 0;
        if let Some(queued) = self.queued_before.get_mut(&id) {
            skipped = bytes.len().min(*queued);
            *queued -= skipped;
            if *queued == 0 {
                self.queued_before.remove(&id);
            }
        }
        self.send_bytes(id, connection, Role::Server, &bytes[skipped..]);
    }

    /// A connection is freed.
    pub(crate) fn closed<S>(&mut self, id: ConnectionId, connection: &Connection<S>) {
        if self.follows(connection) && !self.silent.remove(&id) {
            self.send(id, TraceEvent::Closed);
        }
        self.queued_before.remove(&id);
        self.aliases.forget(id);
    }

    /// Something was decided about a client that its packets do not tell, or not whole.
    pub(crate) fn decided<S>(
        &mut self,
        id: ConnectionId,
        connection: &mut Connection<S>,
        notice: Notice<'_>,
    ) {
        if let Notice::Connected { client_id, .. } = notice {
            if self.follows(connection) {
                self.send(id, TraceEvent::Named(client_id.into()));
            } else if self.whom().is_some() {
                self.let_in.push(id);
            }
            return;
        }
        let Some((client_id, text)) = in_words(notice) else { return };
        let subject = self.trace.subject();
        let is_meant = match (subject, notice) {
            // Also a connection on which no whole CONNECT came. The user is unknown here.
            (TraceSubject::Clients(whom), _) => whom.matches(&suspect(client_id, None, connection.peer)),
            (TraceSubject::Topic { .. }, Notice::Denied { topic, mount_bytes, .. }) => {
                let own = topic.get(mount_bytes..).and_then(|own| TopicName::new(own).ok());
                own.is_some_and(|own| subject.has_topic(own))
            }
            (TraceSubject::Topic { .. }, _) => return,
        };
        let decision: String = text.chars().take(DECISION_CHARS_MAX).collect();
        if self.is_by_topic() {
            if is_meant {
                // The packet that it is about is recorded first.
                self.begin_held(id, connection);
                if self.trace.reserve(decision.len()) {
                    self.push(id, TraceEvent::Decision(decision));
                }
            }
            return;
        }
        if is_meant && !self.follows(connection) {
            self.begin(id, connection, false);
        }
        if self.follows(connection) {
            self.break_silence(id, connection, Some(client_id));
            self.send(id, TraceEvent::Decision(decision));
        }
    }

    /// Looks at some connections that were there before the trace, and at those whose clients were just let in.
    fn look<S>(&mut self, connections: &mut Connections<S>, brain: &Shard) {
        for id in std::mem::take(&mut self.let_in) {
            if let Some(connection) = connections.get_mut(id) {
                self.begin_if_meant(id, connection, brain, true);
            }
        }
        let Some(next) = self.next else { return };
        let until = next.saturating_add(LOOKED_AT_PER_TURN).min(connections.places());
        for slot in next..until {
            if let Some((id, connection)) = connections.at_mut(slot) {
                self.begin_if_meant(id, connection, brain, false);
            }
        }
        self.next = (until < connections.places()).then_some(until);
    }

    fn begin_if_meant<S>(
        &mut self,
        id: ConnectionId,
        connection: &mut Connection<S>,
        brain: &Shard,
        is_new: bool,
    ) {
        let (Some(whom), Some(client)) = (self.whom(), brain.let_in(id)) else { return };
        let principal = client.principal();
        let suspect = suspect(&client.client_id, principal.user.as_deref(), connection.peer);
        if whom.matches(&suspect) && !self.follows(connection) {
            // CONNACK waits for a client that was just let in, and is the first packet that is recorded.
            self.begin(id, connection, false);
            if is_new {
                self.queued_before.remove(&id);
                self.break_silence(id, connection, Some(&client.client_id));
            }
            let unparsed = std::mem::take(&mut connection.unparsed);
            self.send_read(id, connection, (&[], &unparsed), brain.packet_bytes_max(id));
            connection.unparsed = unparsed;
        }
    }

    /// Bytes were read, behind those that the connection has kept.
    fn read<S>(&mut self, id: ConnectionId, connection: &mut Connection<S>, bytes: &[u8], brain: &Shard) {
        let Some(whom) = self.whom().filter(|_| !self.trace.is_over()) else { return };
        let packet_bytes_max = brain.packet_bytes_max(id);
        if self.follows(connection) {
            if self.silent.contains(&id)
                && let Some(client) = brain.let_in(id)
            {
                self.break_silence(id, connection, Some(&client.client_id));
            }
            let unparsed = std::mem::take(&mut connection.unparsed);
            self.send_read(id, connection, (&unparsed, bytes), packet_bytes_max);
            connection.unparsed = unparsed;
            return;
        }
        // A client that has sent CONNECT is looked at when it is let in.
        if brain.has_begun(id) || packets::is_incomplete(&connection.unparsed, bytes) {
            return;
        }
        let mut first = [connection.unparsed.as_slice(), bytes].concat();
        let (client_id, user) = match decode(&first, None, &Limits::default()) {
            Ok(Decoded::Packet { packet: Packet::Connect(connect), .. }) => {
                let user = connect.user_name().map(|user| user.as_str().to_owned());
                (connect.client_id.as_str().to_owned(), user)
            }
            Ok(_) | Err(_) => Default::default(),
        };
        if whom.matches(&suspect(&client_id, user.as_deref(), connection.peer)) {
            let rest = packets::mask_connect(&mut first);
            self.begin(id, connection, true);
            self.send_bytes(id, connection, Role::Client, &first[..rest]);
            self.send_read(id, connection, (&[], &first[rest..]), packet_bytes_max);
        }
    }

    /// Sends bytes that were read behind those that were kept, up to a packet that the broker refuses, such as a further CONNECT.
    /// Nobody is to read a password in it or behind it.
    fn send_read<S>(
        &mut self,
        id: ConnectionId,
        connection: &Connection<S>,
        (kept, bytes): (&[u8], &[u8]),
        packet_bytes_max: usize,
    ) {
        if packets::first_refused(&[], kept, packet_bytes_max).is_some() {
            // The line about it is there already.
            return;
        }
        let end = packets::first_refused(kept, bytes, packet_bytes_max);
        let recorded = end.unwrap_or(bytes.len());
        self.send_bytes(id, connection, Role::Client, &bytes[..recorded]);
        if recorded < bytes.len() {
            let text =
                format!("{} B, which are not recorded: no packet that may come here", bytes.len() - recorded);
            self.send(id, TraceEvent::Decision(text));
        }
    }

    /// Names clients whose records were begun in this turn. There is room for the names, also if there is no more for records.
    fn name_clients(&mut self, brain: &Shard) {
        for id in std::mem::take(&mut self.unnamed) {
            if let Some(client) = brain.let_in(id) {
                self.push(id, named(&client.client_id));
            }
        }
    }
}

/// A record with the name of a client, which has room for it.
fn named(client_id: &str) -> TraceEvent {
    TraceEvent::Named(client_id[..client_id.floor_char_boundary(NAME_BYTES_MAX)].into())
}

fn suspect<'a>(client_id: &'a str, user: Option<&'a str>, peer: Peer) -> Suspect<'a> {
    let address = match peer {
        Peer::Inet(address) => Some(address.ip()),
        Peer::Process { .. } | Peer::Simulated(_) => None,
    };
    Suspect { client_id, user, address }
}

/// The client of a decision, and the decision in words. `None` if the packets tell it.
fn in_words(notice: Notice<'_>) -> Option<(&str, String)> {
    match notice {
        Notice::Refused { client_id, reason, why } => {
            Some((client_id, format!("refused: 0x{:02X} ({reason}), {why}", reason.code())))
        }
        Notice::Denied { client_id, topic, messages, .. } => {
            Some((client_id, format!("not allowed to publish to {topic:?} ({messages} so far)")))
        }
        Notice::Disconnected { client_id, reason, why } => {
            Some((client_id, format!("disconnected: 0x{:02X} ({reason}), {why}", reason.code())))
        }
        Notice::Connected { .. } | Notice::Subscribed { .. } | Notice::Unsubscribed { .. } => None,
    }
}

impl<H: Host> Io<H> {
    /// Shows what was read from a connection to a trace.
    pub(crate) fn trace_read(&mut self, id: ConnectionId, bytes: &[u8], brain: &Shard) {
        if let (Some(tracer), Some(connection)) = (&mut self.tracer, self.connections.get_mut(id)) {
            tracer.read(id, connection, bytes, brain);
        }
    }

    /// The part of a trace at the end of a turn, before anything is written: looks for its clients, and names them.
    pub(crate) fn trace_clients(&mut self, brain: &Shard) {
        if let Some(tracer) = &mut self.tracer {
            tracer.look(&mut self.connections, brain);
            tracer.name_clients(brain);
        }
    }

    /// A trace has ended, and lets go of its memory.
    pub(crate) fn end_trace(&mut self, number: u32) {
        self.tracer.take_if(|tracer| tracer.number() == number);
    }
}
