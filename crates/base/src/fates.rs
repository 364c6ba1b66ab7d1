//! The fates of the last messages for some sessions, which an operator has asked to record.
//!
//! Each thread has its own [`Fates`], and notes the messages that it decides about. Nothing is recorded before an operator
//! asks, and for no longer than the operator asks for. A [`FateRing`] is bounded in messages and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::{PacketId, Qos, ReasonCode};

use crate::{Message, Now};

/// The rest of a longer topic, in bytes, is not recorded.
const TOPIC_BYTES_MAX: usize = 1_024;
/// The same for the identifier of a publisher.
const PUBLISHER_BYTES_MAX: usize = 256;
/// Bytes of a record beside its topic and its publisher.
const RECORD_BYTES: usize = size_of::<FateRecord>();

/// The fate of a message for one session, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It waits in the queue of the session.
    Queued,
    /// It waits behind the window of the client.
    Waits,
    /// It was added to the output of the connection. At QoS 0, this is the last that is known of it.
    Sent,
    /// The client has confirmed a message of QoS 2 with PUBREC.
    Received,
    /// The client has acknowledged it to the end.
    Acknowledged,
    /// It was refused with this reason code: by the client, or because the rules do not allow the client to read it.
    Refused(ReasonCode),
    /// Another member of the group has received it.
    TakenBy(Arc<str>),
    /// The client has published it itself, and its subscription has No Local.
    NoLocal,
    /// Its publisher may not publish it. Nobody gets it.
    MayNotPublish,
    /// It was refused to its publisher with this reason code, because it cannot be stored. Nobody gets it.
    NotStored(ReasonCode),
    /// The rules do not allow the client to read it.
    MayNotRead,
    /// The client was not connected, and a message of QoS 0 does not wait.
    Absent,
    /// The client reads too slowly.
    Slow,
    /// It is larger than the client accepts.
    TooLarge,
    /// There was no memory for it.
    NoMemory,
    /// The queue, or the room behind the window, was full.
    QueueFull,
    /// It was dropped to make room for a later message.
    DroppedOldest,
    /// Its Message Expiry Interval had passed.
    Expired,
    /// The connection has ended, and the message went back to its group.
    Returned,
    /// The session has ended.
    SessionEnded,
    /// An operator has discarded it.
    Discarded,
    /// An operator has moved it to the queue of another session or group.
    Moved,
}

impl Fate {
    /// The fate as a word for programs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Waits => "waits",
            Self::Sent => "sent",
            Self::Received => "received",
            Self::Acknowledged => "acknowledged",
            Self::Refused(_) => "refused",
            Self::TakenBy(_) => "taken_by",
            Self::NoLocal => "no_local",
            Self::MayNotPublish => "may_not_publish",
            Self::NotStored(_) => "not_stored",
            Self::MayNotRead => "may_not_read",
            Self::Absent => "absent",
            Self::Slow => "slow",
            Self::TooLarge => "too_large",
            Self::NoMemory => "no_memory",
            Self::QueueFull => "queue_full",
            Self::DroppedOldest => "dropped_oldest",
            Self::Expired => "expired",
            Self::Returned => "returned",
            Self::SessionEnded => "session_ended",
            Self::Discarded => "discarded",
            Self::Moved => "moved",
        }
    }

    /// The fate of a message that its client has answered to the end.
    #[must_use]
    pub fn answered(reason: ReasonCode) -> Self {
        if reason.is_error() { Self::Refused(reason) } else { Self::Acknowledged }
    }

    /// Whether another fate may follow.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Queued | Self::Waits | Self::Sent | Self::Received)
    }
}

/// The parts of a message that a record keeps.
#[derive(Debug, Clone, Copy)]
pub struct FateOf<'a> {
    /// The identifier of its publisher, if it is known.
    pub publisher: Option<&'a str>,
    /// Its topic. `None` if the message is on disk alone.
    pub topic: Option<&'a str>,
    /// The QoS at which the session gets it.
    pub qos: Qos,
    /// The length of its payload, in bytes. `None` if the message is on disk alone.
    pub payload_bytes: Option<usize>,
    /// A number by which the thread knows it while it waits.
    pub key: Option<u64>,
    /// Its packet identifier on the way to the client.
    pub packet_id: Option<PacketId>,
}

impl<'a> FateOf<'a> {
    /// A message of which nothing but its QoS is known.
    #[must_use]
    pub fn unknown(qos: Qos) -> Self {
        Self { publisher: None, topic: None, qos, payload_bytes: None, key: None, packet_id: None }
    }

    /// A stored message at this QoS, which the thread knows by `key`.
    #[must_use]
    pub fn message(message: &'a Message, qos: Qos, key: Option<u64>) -> Self {
        Self {
            publisher: message.publisher(),
            topic: Some(message.topic().as_str()),
            payload_bytes: Some(message.payload().len()),
            key,
            ..Self::unknown(qos)
        }
    }

    /// The same with a packet identifier.
    #[must_use]
    pub fn sent_as(self, packet_id: Option<PacketId>) -> Self {
        Self { packet_id, ..self }
    }
}

/// A message and its fate for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FateRecord {
    /// When the message was noted first, in milliseconds since 1970.
    pub noted_unix_ms: u64,
    /// When it met its present fate, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The identifier of its publisher, if it is known.
    pub publisher: Option<Box<str>>,
    /// The first bytes of its topic, at most 1,024. `None` if the message was on disk alone.
    pub topic: Option<Box<str>>,
    /// The QoS at which the session gets it.
    pub qos: Qos,
    /// The length of its payload, in bytes. `None` if the message is on disk alone.
    pub payload_bytes: Option<usize>,
    /// Its packet identifier on the way to the client.
    pub packet_id: Option<PacketId>,
    /// Its fate so far.
    pub fate: Fate,
    key: Option<u64>,
}

impl FateRecord {
    fn new(of: FateOf<'_>, fate: Fate, now: Now) -> Self {
        let FateOf { publisher, topic, qos, payload_bytes, key, packet_id } = of;
        Self {
            noted_unix_ms: now.unix_ms,
            unix_ms: now.unix_ms,
            publisher: publisher.map(|publisher| beginning(publisher, PUBLISHER_BYTES_MAX)),
            topic: topic.map(|topic| beginning(topic, TOPIC_BYTES_MAX)),
            qos,
            payload_bytes,
            packet_id,
            fate,
            key,
        }
    }

    /// Whether the message has come from this publisher, as far as its identifier is recorded. One that is not known may be any.
    #[must_use]
    pub fn may_be_from(&self, publisher: &str) -> bool {
        self.publisher.as_deref().is_none_or(|known| *known == *beginning(publisher, PUBLISHER_BYTES_MAX))
    }

    /// Whether the message has this topic, as far as the topic is recorded.
    #[must_use]
    pub fn has_topic(&self, topic: &str) -> bool {
        self.topic.as_deref().is_some_and(|known| *known == *beginning(topic, TOPIC_BYTES_MAX))
    }

    fn size_bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        RECORD_BYTES + text(&self.publisher) + text(&self.topic)
    }
}

fn beginning(text: &str, bytes_max: usize) -> Box<str> {
    text[..text.floor_char_boundary(bytes_max)].into()
}

/// The bounds of the ring of a session on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FateBounds {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum size of their records, in bytes. The last message is recorded in any case.
    pub bytes: usize,
}

/// The last messages for one session, as far as one thread decides about them.
#[derive(Debug)]
pub struct FateRing {
    client_id: Arc<str>,
    until_ms: u64,
    bounds: FateBounds,
    records: VecDeque<FateRecord>,
    bytes: usize,
    forgotten: u64,
}

impl FateRing {
    /// The identifier of the client.
    #[must_use]
    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Notes a message. A message that came after the end of the record is not noted.
    pub fn note(&mut self, of: FateOf<'_>, fate: Fate, now: Now) {
        if now.monotonic_ms >= self.until_ms {
            return;
        }
        let record = FateRecord::new(of, fate, now);
        self.bytes += record.size_bytes();
        self.records.push_back(record);
        while self.records.len() > self.bounds.messages.max(1)
            || (self.bytes > self.bounds.bytes && self.records.len() > 1)
        {
            let oldest = self.records.pop_front().expect("it has more than one");
            self.bytes -= oldest.size_bytes();
            self.forgotten += 1;
        }
    }

    /// Notes the next fate of a message that the thread knows by the key of `of`. Notes the message itself if it was not noted
    /// before.
    pub fn follow(&mut self, of: FateOf<'_>, fate: Fate, now: Now) {
        // A message that was sent is followed by its packet identifier, and its key may be that of another one by now.
        let is_it = |record: &&mut FateRecord| {
            record.key.is_some() && record.key == of.key && matches!(record.fate, Fate::Queued | Fate::Waits)
        };
        let Some(record) = self.records.iter_mut().rev().find(is_it) else {
            return self.note(of, fate, now);
        };
        record.fate = fate;
        record.unix_ms = now.unix_ms;
        record.packet_id = of.packet_id.or(record.packet_id);
    }

    /// Notes the next fate of a message on its way to the client.
    pub fn answered(&mut self, packet_id: PacketId, fate: Fate, now: Now) {
        let is_it = |record: &&mut FateRecord| {
            record.packet_id == Some(packet_id) && matches!(record.fate, Fate::Sent | Fate::Received)
        };
        if let Some(record) = self.records.iter_mut().rev().find(is_it) {
            record.fate = fate;
            record.unix_ms = now.unix_ms;
        }
    }

    /// The session has ended, with all messages that wait or are not acknowledged.
    pub fn ended(&mut self, now: Now) {
        let is_lost = |record: &FateRecord| record.fate.is_open() && record.qos > Qos::AtMostOnce;
        for record in self.records.iter_mut().filter(|record| is_lost(record)) {
            record.fate = Fate::SessionEnded;
            record.unix_ms = now.unix_ms;
        }
    }
}

/// The rings of one thread.
#[derive(Debug, Default)]
pub struct Fates {
    rings: Vec<FateRing>,
    /// The publisher of the packets that are delivered now, if it is known.
    pub publisher: Option<Arc<str>>,
}

/// An order about the record of a session, or a question.
#[derive(Debug, Clone)]
pub enum AskFates {
    /// Begins the record of a session, or prolongs it, for this number of milliseconds.
    Begin {
        /// The identifier of the client.
        client_id: Arc<str>,
        /// The duration, from now on.
        for_ms: u64,
        /// The bounds of its ring.
        bounds: FateBounds,
    },
    /// Asks for the last messages.
    Read {
        /// The identifier of the client.
        client_id: Arc<str>,
    },
    /// Forgets the record of a session.
    Forget {
        /// The identifier of the client.
        client_id: Arc<str>,
    },
}

/// The record of a session on one thread.
#[derive(Debug, Clone, Default)]
pub struct FateList {
    /// The last messages, the oldest first.
    pub records: Vec<FateRecord>,
    /// Number of earlier messages that had no room.
    pub forgotten: u64,
}

impl Fates {
    /// The ring of a client, if there is one.
    pub fn ring(&mut self, client_id: &str) -> Option<&mut FateRing> {
        self.rings.iter_mut().find(|ring| *ring.client_id == *client_id)
    }

    /// The rings of all clients.
    pub fn rings(&mut self) -> impl Iterator<Item = &mut FateRing> {
        self.rings.iter_mut()
    }

    /// Carries out an order, or answers a question.
    ///
    /// Without a ring, `of` is `None`: a thread that records nothing has one branch to take.
    pub fn ask(of: &mut Option<Box<Self>>, ask: &AskFates, now: Now) -> FateList {
        match ask {
            AskFates::Begin { client_id, for_ms, bounds } => {
                of.get_or_insert_default().begin(
                    client_id,
                    now.monotonic_ms.saturating_add(*for_ms),
                    *bounds,
                );
                FateList::default()
            }
            AskFates::Read { client_id } => {
                of.as_mut().and_then(|fates| fates.read(client_id)).unwrap_or_default()
            }
            AskFates::Forget { client_id } => {
                if let Some(fates) = of {
                    fates.rings.retain(|ring| *ring.client_id != **client_id);
                    of.take_if(|fates| fates.rings.is_empty());
                }
                FateList::default()
            }
        }
    }

    fn begin(&mut self, client_id: &Arc<str>, until_ms: u64, bounds: FateBounds) {
        match self.ring(client_id) {
            Some(ring) => ring.until_ms = until_ms,
            None => self.rings.push(FateRing {
                client_id: Arc::clone(client_id),
                until_ms,
                bounds,
                records: VecDeque::new(),
                bytes: 0,
                forgotten: 0,
            }),
        }
    }

    fn read(&mut self, client_id: &str) -> Option<FateList> {
        let ring = self.ring(client_id)?;
        Some(FateList { records: ring.records.iter().cloned().collect(), forgotten: ring.forgotten })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: FateBounds = FateBounds { messages: 3, bytes: 1 << 20 };

    fn now(ms: u64) -> Now {
        Now { monotonic_ms: ms, unix_ms: 1_000_000 + ms }
    }

    fn message(topic: &str, key: u64) -> FateOf<'_> {
        FateOf {
            publisher: Some("toad"),
            topic: Some(topic),
            qos: Qos::AtLeastOnce,
            payload_bytes: Some(5),
            key: Some(key),
            packet_id: None,
        }
    }

    fn recorded(bounds: FateBounds) -> Option<Box<Fates>> {
        let mut fates = None;
        let begin = AskFates::Begin { client_id: "frog".into(), for_ms: 1_000, bounds };
        Fates::ask(&mut fates, &begin, now(0));
        fates
    }

    fn read(fates: &mut Option<Box<Fates>>) -> FateList {
        Fates::ask(fates, &AskFates::Read { client_id: "frog".into() }, now(0))
    }

    fn ring(fates: &mut Option<Box<Fates>>) -> &mut FateRing {
        fates.as_mut().and_then(|fates| fates.ring("frog")).expect("it was begun")
    }

    #[test]
    fn a_message_has_one_record_with_its_last_fate() {
        let mut fates = recorded(BOUNDS);
        let packet_id = PacketId::new(7);
        ring(&mut fates).follow(message("a", 1), Fate::Waits, now(1));
        ring(&mut fates).follow(message("a", 1).sent_as(packet_id), Fate::Sent, now(2));
        ring(&mut fates).answered(packet_id.expect("it is not 0"), Fate::Acknowledged, now(3));
        // The key is that of another message by now.
        ring(&mut fates).follow(message("b", 1), Fate::Expired, now(4));
        let FateList { records, forgotten } = read(&mut fates);
        let [first, second] = &records[..] else { panic!("{records:?}") };
        assert_eq!((&first.fate, first.packet_id), (&Fate::Acknowledged, packet_id));
        assert_eq!((first.noted_unix_ms, first.unix_ms), (1_000_001, 1_000_003));
        assert_eq!((second.topic.as_deref(), &second.fate, forgotten), (Some("b"), &Fate::Expired, 0));
    }

    #[test]
    fn the_key_of_a_message_that_was_sent_may_be_that_of_another_one() {
        let mut fates = recorded(BOUNDS);
        let packet_id = PacketId::new(7);
        ring(&mut fates).follow(message("a", 1), Fate::Waits, now(1));
        ring(&mut fates).follow(message("a", 1).sent_as(packet_id), Fate::Sent, now(2));
        ring(&mut fates).follow(message("b", 1), Fate::Waits, now(3));
        ring(&mut fates).answered(packet_id.expect("it is not 0"), Fate::Acknowledged, now(4));
        let FateList { records, .. } = read(&mut fates);
        let found: Vec<_> = records.iter().map(|record| (record.topic.as_deref(), &record.fate)).collect();
        assert_eq!(found, [(Some("a"), &Fate::Acknowledged), (Some("b"), &Fate::Waits)]);
    }

    #[test]
    fn a_ring_is_bounded_in_messages_and_in_bytes() {
        let mut fates = recorded(BOUNDS);
        for topic in ["a", "b", "c", "d", "e"] {
            ring(&mut fates).note(message(topic, 0), Fate::Sent, now(1));
        }
        let FateList { records, forgotten } = read(&mut fates);
        let topics: Vec<_> = records.iter().filter_map(|record| record.topic.as_deref()).collect();
        assert_eq!((&topics[..], forgotten), (&["c", "d", "e"][..], 2));
        let mut fates = recorded(FateBounds { messages: 100, bytes: 4 * TOPIC_BYTES_MAX });
        let long = "é".repeat(TOPIC_BYTES_MAX);
        (0..100).for_each(|_| ring(&mut fates).note(message(&long, 0), Fate::Sent, now(1)));
        let FateList { records, .. } = read(&mut fates);
        let bytes: usize = records.iter().map(FateRecord::size_bytes).sum();
        assert!(bytes <= 4 * TOPIC_BYTES_MAX && records.len() > 1, "{bytes} B, {}", records.len());
    }

    #[test]
    fn nothing_is_noted_after_the_end_and_a_forgotten_record_is_gone() {
        let mut fates = recorded(BOUNDS);
        ring(&mut fates).note(message("a", 1), Fate::Queued, now(999));
        ring(&mut fates).note(message("b", 2), Fate::Queued, now(1_000));
        ring(&mut fates).follow(message("a", 1), Fate::Expired, now(2_000));
        let FateList { records, .. } = read(&mut fates);
        assert_eq!(records.iter().map(|record| record.fate.clone()).collect::<Vec<_>>(), [Fate::Expired]);
        Fates::ask(&mut fates, &AskFates::Forget { client_id: "toad".into() }, now(0));
        assert!(fates.is_some());
        Fates::ask(&mut fates, &AskFates::Forget { client_id: "frog".into() }, now(0));
        assert!(fates.is_none(), "one branch is left of it");
    }

    #[test]
    fn the_end_of_a_session_is_the_end_of_its_open_messages() {
        let mut fates = recorded(BOUNDS);
        ring(&mut fates).note(message("a", 1), Fate::Waits, now(1));
        ring(&mut fates).note(message("b", 2), Fate::Slow, now(1));
        let once = FateOf { qos: Qos::AtMostOnce, ..message("c", 3) };
        ring(&mut fates).note(once, Fate::Sent, now(1));
        ring(&mut fates).ended(now(2));
        let all: Vec<_> = read(&mut fates).records.into_iter().map(|record| record.fate).collect();
        assert_eq!(all, [Fate::SessionEnded, Fate::Slow, Fate::Sent]);
    }
}
