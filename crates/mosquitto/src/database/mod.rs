//! Mosquitto's database, `mosquitto.db`, in format version 6: sessions, subscriptions, queues and retained messages.
//!
//! ```text
//! header   00 B5 00 "mosquitto db" | checksum u32, always 0 | version u32
//! chunk    type u32 | length u32 | body of that length
//! ```
//!
//! Numbers of the format are big-endian. Numbers of 64 bits are in the order of the machine that wrote the file. A body is a
//! C structure with the padding of that machine, and texts behind it. The first chunk shows both.

mod body;

use std::collections::BTreeMap;
use std::fmt;

use body::{Body, Layout};

/// The bytes at the beginning of every database.
const MAGIC: &[u8; 15] = b"\x00\xB5\x00mosquitto db";
/// The version of the format that Mosquitto writes since 2.0.
const VERSION: u32 = 6;

/// The largest number of a message. New messages need larger ones.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The content of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Database {
    /// Whether Mosquitto wrote the file when it stopped. Otherwise the file is a snapshot, and changes behind it are missing.
    pub was_stopped: bool,
    /// Messages by their numbers, which grow with the time of arrival.
    pub messages: BTreeMap<u64, Message>,
    /// Sessions that outlive their connections.
    pub sessions: Vec<Session>,
    /// Subscriptions of these sessions.
    pub subscriptions: Vec<Subscription>,
    /// Messages that wait for a session, in the order of its queue.
    pub queued: Vec<Queued>,
    /// The numbers of messages that are retained.
    pub retained: Vec<u64>,
    /// Wills that wait. `mosquitto.db` has none, and `mosquitto.sqlite3` has some.
    pub wills: Vec<Will>,
}

/// A will that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Will {
    /// The client identifier of the session.
    pub client_id: String,
    /// The message that will be published.
    pub message: Message,
    /// Will Delay Interval in seconds.
    pub delay_secs: u32,
    /// The time in seconds since 1970 at which the will is due. `None` if its client was connected.
    pub due_unix_secs: Option<u64>,
}

/// A message that waits, or is retained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The topic name of the message.
    pub topic: String,
    /// The payload of the message.
    pub payload: Vec<u8>,
    /// The QoS with which the message was published.
    pub qos: u8,
    /// Whether the message was published with RETAIN 1.
    pub retain: bool,
    /// The client identifier of the publisher. Empty for messages of the broker.
    pub publisher: String,
    /// The time of expiry in seconds since 1970. `None` if the message never expires.
    pub expires_unix_secs: Option<u64>,
    /// The properties in the encoding of MQTT 5.0, without their length.
    pub properties: Vec<u8>,
}

/// A session that outlives its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The client identifier of the session.
    pub client_id: String,
    /// The user name with which the client last connected, if it gave one.
    pub user: Option<String>,
    /// Session Expiry Interval in seconds. `u32::MAX` is for ever.
    pub expiry_secs: u32,
    /// The time of expiry in seconds since 1970. `None` if the session never expires, or its client was connected.
    pub expires_unix_secs: Option<u64>,
}

/// A subscription of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The client identifier of the session.
    pub client_id: String,
    /// The topic filter, as the client sent it.
    pub filter: String,
    /// The QoS that was granted.
    pub qos: u8,
    /// The options of MQTT 5.0, as in SUBSCRIBE.
    pub options: u8,
    /// The Subscription Identifier. 0 is none.
    pub identifier: u32,
}

/// The progress of a message between a session and its client. Packet identifiers are those of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The client has not been sent the message.
    Waits,
    /// The client was sent the message, and has not said that the message has arrived.
    Sent(u16),
    /// The client has a message of QoS 2, and only the end of the exchange is missing.
    HandedOver(u16),
    /// The client has published the message with QoS 2, and has not released it.
    Incoming(u16),
}

impl Progress {
    /// The progress that Mosquitto stores as a direction, a state, and a packet identifier.
    #[must_use]
    pub fn of(direction: u8, state: u8, packet_id: u16) -> Self {
        match (direction, state) {
            (0, _) => Self::Incoming(packet_id),
            // Waiting for PUBCOMP, or about to send PUBREL again.
            (_, 6 | 8 | 9) => Self::HandedOver(packet_id),
            // Waiting for PUBACK or PUBREC, or about to send PUBLISH again.
            (_, 2..=5) if packet_id != 0 => Self::Sent(packet_id),
            _ => Self::Waits,
        }
    }
}

/// A message in the queue of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The client identifier of the session.
    pub client_id: String,
    /// The number of the message.
    pub message: u64,
    /// The QoS with which it is sent.
    pub qos: u8,
    /// Whether it is sent as a retained message.
    pub retain: bool,
    /// The identifiers of the subscriptions that the message belongs to.
    pub identifiers: Vec<u32>,
    /// The progress of the exchange.
    pub progress: Progress,
}

/// The reason why a file cannot be read as a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseError {
    /// The file does not begin like a database.
    Foreign,
    /// The file is a database in another version of the format.
    Version(u32),
    /// The file ends inside a chunk, at this byte.
    Torn(usize),
    /// The chunk at this byte contradicts itself or the rest of the file.
    Damaged(usize, &'static str),
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("this is no database of Mosquitto"),
            Self::Version(version) => write!(
                f,
                "the database has version {version} of the format, and only version 6 can be read: start and stop \
                 Mosquitto 2 with it once, and try again"
            ),
            Self::Torn(at) => write!(f, "the database is cut off at byte {at}"),
            Self::Damaged(at, why) => write!(f, "the database is damaged at byte {at}: {why}"),
        }
    }
}

impl std::error::Error for DatabaseError {}

impl Database {
    /// Reads a whole database.
    ///
    /// # Errors
    /// The file is foreign, old, torn or damaged.
    pub fn read(file: &[u8]) -> Result<Self, DatabaseError> {
        let header = file.get(..MAGIC.len() + 8).ok_or(DatabaseError::Foreign)?;
        if !header.starts_with(MAGIC) {
            return Err(DatabaseError::Foreign);
        }
        let version = u32::from_be_bytes([header[19], header[20], header[21], header[22]]);
        if version != VERSION {
            return Err(DatabaseError::Version(version));
        }
        let mut database = Self::default();
        let mut at = header.len();
        let mut layout = None;
        while at < file.len() {
            let head = file.get(at..at + 8).ok_or(DatabaseError::Torn(at))?;
            let kind = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let end = (at + 8).checked_add(length).ok_or(DatabaseError::Torn(at))?;
            let body = file.get(at + 8..end).ok_or(DatabaseError::Torn(at))?;
            layout = match (layout, kind) {
                (None, 1) => Some(Layout::of_first_chunk(body)),
                (Some(layout), 2..) => Some(layout),
                _ => {
                    let why = "the first chunk, and only that, is about the file";
                    return Err(DatabaseError::Damaged(at, why));
                }
            };
            database.chunk(kind, &mut Body::new(body, at, layout.unwrap_or_default()))?;
            at = end;
        }
        if layout.is_none() {
            return Err(DatabaseError::Torn(at));
        }
        database.check()?;
        Ok(database)
    }

    fn chunk(&mut self, kind: u32, body: &mut Body<'_>) -> Result<(), DatabaseError> {
        match kind {
            1 => {
                body.u64()?;
                self.was_stopped = body.u8()? != 0;
                if body.u8()? != 8 {
                    return Err(body.damaged("numbers of messages do not have 64 bits"));
                }
            }
            2 => {
                let (number, message) = message(body)?;
                if number > NUMBER_MAX {
                    return Err(body.damaged("the number of a message is too large"));
                }
                self.messages.insert(number, message);
            }
            3 => self.queued.push(queued(body)?),
            4 => self.retained.push(body.u64()?),
            5 => self.subscriptions.push(subscription(body)?),
            6 => self.sessions.push(session(body)?),
            // Chunks that are not known can be skipped.
            _ => {}
        }
        Ok(())
    }

    /// Looks for references to what is not there.
    fn check(&self) -> Result<(), DatabaseError> {
        let clients: std::collections::BTreeSet<&str> =
            self.sessions.iter().map(|session| session.client_id.as_str()).collect();
        let of_clients = self.queued.iter().map(|queued| &queued.client_id);
        let mut of_clients = of_clients.chain(self.subscriptions.iter().map(|of| &of.client_id));
        if !of_clients.all(|client_id| clients.contains(client_id.as_str())) {
            return Err(DatabaseError::Damaged(0, "a queue or a subscription belongs to no session"));
        }
        let mut messages =
            self.queued.iter().map(|queued| queued.message).chain(self.retained.iter().copied());
        if !messages.all(|message| self.messages.contains_key(&message)) {
            return Err(DatabaseError::Damaged(0, "a queue or a topic has a message that is not there"));
        }
        Ok(())
    }
}

fn message(body: &mut Body<'_>) -> Result<(u64, Message), DatabaseError> {
    let (number, expires_unix_secs) = (body.u64()?, body.time()?);
    let payload_bytes = body.u32()? as usize;
    let _packet_id = body.u16()?;
    let (publisher_bytes, user_bytes, topic_bytes) = (body.u16()?, body.u16()?, body.u16()?);
    let _port = body.u16()?;
    let (qos, retain) = (body.qos()?, body.u8()? != 0);
    let publisher = body.text(publisher_bytes)?;
    let _user = body.text(user_bytes)?;
    let topic = body.text(topic_bytes)?;
    let payload = body.bytes(payload_bytes)?.to_vec();
    let properties = body.properties()?.to_vec();
    Ok((number, Message { topic, payload, qos, retain, publisher, expires_unix_secs, properties }))
}

fn queued(body: &mut Body<'_>) -> Result<Queued, DatabaseError> {
    let message = body.u64()?;
    let packet_id = body.u16()?;
    let client_bytes = body.u16()?;
    let (qos, state, flags, direction) = (body.qos()?, body.u8()?, body.u8()?, body.u8()?);
    let client_id = body.text(client_bytes)?;
    let identifiers = body.identifiers()?;
    let progress = Progress::of(direction, state, packet_id);
    Ok(Queued { client_id, message, qos, retain: flags & 0xF0 != 0, identifiers, progress })
}

fn subscription(body: &mut Body<'_>) -> Result<Subscription, DatabaseError> {
    let identifier = body.u32()?;
    let (client_bytes, filter_bytes) = (body.u16()?, body.u16()?);
    let (qos, options) = (body.qos()?, body.u8()?);
    let _padding = body.u16()?;
    let client_id = body.text(client_bytes)?;
    let filter = body.text(filter_bytes)?;
    Ok(Subscription { client_id, filter, qos, options, identifier })
}

fn session(body: &mut Body<'_>) -> Result<Session, DatabaseError> {
    let expires_unix_secs = body.time()?;
    let expiry_secs = body.u32()?;
    let _packet_id = body.u16()?;
    let client_bytes = body.u16()?;
    let _port = body.u16()?;
    let user_bytes = body.u16()?;
    body.end_of_session()?;
    let client_id = body.text(client_bytes)?;
    let user = Some(body.text(user_bytes)?).filter(|user| !user.is_empty());
    Ok(Session { client_id, user, expiry_secs, expires_unix_secs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_message_leaves_room_for_others() {
        let of = |number: u64| {
            let first = [&1u64.to_le_bytes()[..], &[1, 8, 0, 0, 0, 0, 0, 0]].concat();
            let message = [&number.to_le_bytes()[..], &[0; 24]].concat();
            let chunk = |kind: u8, body: &[u8]| {
                let length = u8::try_from(body.len()).expect("a short chunk");
                [&[0, 0, 0, kind, 0, 0, 0, length][..], body].concat()
            };
            let file =
                [&MAGIC[..], &[0, 0, 0, 0, 0, 0, 0, 6], &chunk(1, &first), &chunk(2, &message)].concat();
            Database::read(&file).map(|database| database.messages.len())
        };
        assert_eq!(of(NUMBER_MAX), Ok(1));
        assert_eq!(
            of(NUMBER_MAX + 1),
            Err(DatabaseError::Damaged(47, "the number of a message is too large"))
        );
    }

    #[test]
    fn the_state_of_a_queued_message_tells_the_progress() {
        let of = |direction: u8, state: u8, packet_id: u8| {
            let chunk =
                [5, 0, 0, 0, 0, 0, 0, 0, 0, packet_id, 0, 1, 2, state, 0x10, direction, b'a', 2, 0x0B, 9];
            let queued = queued(&mut Body::new(&chunk, 0, Layout::default())).expect("a chunk");
            assert_eq!((queued.message, queued.qos, queued.retain, &*queued.client_id), (5, 2, true, "a"));
            assert_eq!(queued.identifiers, [9]);
            queued.progress
        };
        for state in [6, 8, 9] {
            assert_eq!(of(1, state, 3), Progress::HandedOver(3));
        }
        for state in [2, 3, 4, 5] {
            assert_eq!(of(1, state, 3), Progress::Sent(3));
            assert_eq!(of(1, state, 0), Progress::Waits);
        }
        assert_eq!(of(1, 11, 3), Progress::Waits);
        assert_eq!(of(0, 7, 3), Progress::Incoming(3));
        assert_eq!(of(0, 11, 3), Progress::Incoming(3));
    }
}
