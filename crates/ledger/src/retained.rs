//! Retained messages, in the order of their topics' levels, so that a filter is answered by a cursor
//! that any change may overtake.
//!
//! Imports: `queue` and the parts below.

pub(crate) mod cursors;

mod branches;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use base::{Message, Now};
use protocol::Numbered;
use topic::{TopicFilter, TopicName};
use wire::Qos;

use crate::record::MessageId;

pub use branches::Branch;

/// Bytes of one entry beside its topic and its message.
const ENTRY_BYTES: usize = 64;
/// Length of a key up to which a visit costs about the same. A visit splits, compares and perhaps copies its key.
const SHORT_KEY_BYTES: usize = 1_024;

/// The retained messages of a server.
#[derive(Debug, Default)]
pub struct Retained {
    /// By topic, with U+0000 (which no topic can hold) in place of `/`: a topic's children then follow
    /// it directly, before any sibling.
    values: BTreeMap<Box<[u8]>, Value>,
    /// Without the server's own values.
    bytes: usize,
    /// Bytes of all values beside their messages.
    places_bytes: usize,
    /// The bytes of the messages of topics of which the record has a value.
    recorded_bytes: usize,
    bytes_max: usize,
    /// The key at which the sweep for expired values continues.
    swept: Option<Box<[u8]>>,
    /// Values that are in memory only: for want of space the record still says what was there before.
    unrecorded: BTreeSet<MessageId>,
}

#[derive(Debug)]
struct Value {
    message: Arc<Message>,
    id: MessageId,
    /// The record has a value of the topic: this one, or one that it has replaced in memory alone.
    is_on_record: bool,
}

impl Value {
    fn recorded_bytes(&self) -> usize {
        if self.is_on_record { self.message.size_bytes() } else { 0 }
    }
}

/// The result of storing a PUBLISH with RETAIN 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The message is the topic's value now, or the topic has none any more if its payload was empty.
    Done,
    /// There was no room; the topic has no value any more, since the old one is out of date.
    Full,
}

/// Whether it is one of the server's own, which are not recorded.
pub(crate) fn is_of_server(message: &Message) -> bool {
    message.publisher().is_none() && message.topic().first_level() == "$SYS"
}

/// A walk through the values that match a filter, as they were when it began or newer.
#[derive(Debug)]
pub struct Cursor {
    pub(crate) filter: Box<str>,
    /// The first topic that was not looked at, or one before it.
    pub(crate) from: Box<[u8]>,
    /// Values before this topic that are sent at QoS 0 were sent, though the cursor had to go back.
    pub(crate) sent_at_most_once: Box<[u8]>,
    pub(crate) upto: Upto,
}

/// Later values are not a cursor's: they went to the subscription when they were set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upto {
    pub(crate) last: MessageId,
    /// The same for those that are sent at QoS 0, which do not wait while a client is away.
    pub(crate) last_at_most_once: MessageId,
    /// The QoS granted to the subscription.
    pub(crate) granted: Qos,
}

impl Cursor {
    /// Whether the subscription is to be brought a value.
    fn brings(&self, key: &[u8], value: &Value) -> bool {
        match value.message.qos().min(self.upto.granted) {
            Qos::AtMostOnce => value.id <= self.upto.last_at_most_once && *key >= *self.sent_at_most_once,
            Qos::AtLeastOnce | Qos::ExactlyOnce => value.id <= self.upto.last,
        }
    }

    /// Goes back, to find again what could not be taken.
    pub(crate) fn rewind(&mut self, from: &[u8]) {
        let sent = std::mem::replace(&mut self.from, from.into());
        if sent > self.sent_at_most_once {
            self.sent_at_most_once = sent;
        }
    }
}

/// A cursor over all values that match a filter, whenever they were set, behind the topic `after`.
pub(crate) fn cursor_over_all(filter: TopicFilter<'_>, after: Option<TopicName<'_>>) -> Cursor {
    let last = MessageId(u64::MAX);
    Cursor {
        filter: filter.as_str().into(),
        from: after.map_or_else(|| first_key(filter.as_str()), behind_topic),
        sent_at_most_once: Box::default(),
        upto: Upto { last, last_at_most_once: last, granted: Qos::ExactlyOnce },
    }
}

/// How far one step of a cursor may go.
#[derive(Debug, Clone, Copy)]
pub struct Stride {
    /// Size of messages in bytes, and of topics beyond 1 KiB that were looked at. The value that reaches it is the last of a step.
    pub bytes: usize,
    /// Maximum number of values that a step looks at.
    pub visits: usize,
}

/// The result of one step of a cursor.
#[derive(Debug)]
pub struct Step {
    /// In the order of their topics.
    pub messages: Vec<Numbered>,
    /// Nothing more will be found.
    pub done: bool,
}

impl Retained {
    /// An empty store for at most `bytes_max` bytes of topics and messages.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// How many topics have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no topic has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Bytes of the values, without the server's own.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of the messages that the record has, or will have when the record of their topic is copied.
    pub(crate) fn recorded_bytes(&self) -> usize {
        self.recorded_bytes
    }

    /// Bytes of the values beside their messages.
    pub(crate) fn places_bytes(&self) -> usize {
        self.places_bytes
    }

    /// Whether as much or more is free again when the message takes the place of its topic's value.
    pub(crate) fn shrinks_with(&self, message: &Message) -> bool {
        let old = self.values.get(&key_of(message.topic()));
        old.is_some_and(|old| old.message.size_bytes() >= message.size_bytes())
    }

    /// Makes `message` the value of its topic; an empty payload removes it (MQTT 5.0, 3.3.1.3). Its number is higher than
    /// those of all before.
    pub fn set(&mut self, id: MessageId, message: &Arc<Message>) -> Stored {
        let has_room = self.has_room_for(message);
        let key = key_of(message.topic());
        let was_on_record = self.values.get(&key).is_some_and(|old| old.is_on_record);
        self.remove(&key);
        if message.payload().is_empty() {
            return Stored::Done;
        }
        if !has_room {
            return Stored::Full;
        }
        let is_on_record = was_on_record || !(self.unrecorded.contains(&id) || is_of_server(message));
        self.insert(key, Value { message: Arc::clone(message), id, is_on_record });
        Stored::Done
    }

    /// The same for a value that was acknowledged in an earlier process: the bound may have been higher then.
    ///
    /// Returns whether the value was there already.
    pub(crate) fn restore(&mut self, id: MessageId, message: &Arc<Message>) -> bool {
        let key = key_of(message.topic());
        let old = self.remove(&key);
        if !message.payload().is_empty() {
            self.insert(key, Value { message: Arc::clone(message), id, is_on_record: true });
        }
        old == Some(id)
    }

    fn insert(&mut self, key: Box<[u8]>, value: Value) {
        let cost = cost(&key, &value.message);
        self.bytes += bounded(cost, &value.message);
        self.places_bytes += cost - value.message.size_bytes();
        self.recorded_bytes += value.recorded_bytes();
        self.values.insert(key, value);
    }

    /// Whether [`set`](Self::set) will find room for the message: below the bound, or in the place of a value that is
    /// not smaller. The bound is for what clients retain: the server's own values are few, and always find room.
    #[must_use]
    pub fn has_room_for(&self, message: &Message) -> bool {
        if is_of_server(message) {
            return true;
        }
        let key = key_of(message.topic());
        let old = self.values.get(&key).map_or(0, |old| cost(&key, &old.message));
        let new = cost(&key, message);
        new <= old || self.bytes - old + new <= self.bytes_max
    }

    /// Changes the bound. Values beyond a lower bound stay.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// How far the values are over their bound, in bytes: it was higher when they were acknowledged.
    pub(crate) fn over_bytes(&self) -> usize {
        self.bytes.saturating_sub(self.bytes_max)
    }

    /// Whether the message with this number is the value of the topic.
    #[must_use]
    pub fn is_value(&self, topic: TopicName<'_>, id: MessageId) -> bool {
        self.values.get(&key_of(topic)).is_some_and(|value| value.id == id)
    }

    /// The value with this number, which is about to be set, is not on the record.
    pub(crate) fn note_unrecorded(&mut self, id: MessageId) {
        self.unrecorded.insert(id);
    }

    /// The value of a topic, which has this number, is on the record.
    pub(crate) fn note_recorded(&mut self, topic: TopicName<'_>, id: MessageId) {
        self.unrecorded.remove(&id);
        if let Some(value) = self.values.get_mut(&key_of(topic)) {
            self.recorded_bytes -= value.recorded_bytes();
            value.is_on_record = true;
            self.recorded_bytes += value.recorded_bytes();
        }
    }

    /// Whether the record has a value of a topic, so that it has to be said when there is none any more.
    pub(crate) fn is_on_record(&self, topic: &str) -> bool {
        self.values.get(&key_of_text(topic)).is_some_and(|value| value.is_on_record)
    }

    /// The value of a topic, if it is not on the record.
    pub(crate) fn unrecorded(&self, topic: TopicName<'_>) -> Option<(MessageId, &Arc<Message>)> {
        if self.unrecorded.is_empty() {
            return None;
        }
        let value = self.values.get(&key_of(topic))?;
        self.unrecorded.contains(&value.id).then_some((value.id, &value.message))
    }

    /// Whether the value of a topic is the message with this number.
    pub(crate) fn is_numbered(&self, topic: TopicName<'_>, id: MessageId) -> bool {
        self.values.get(&key_of(topic)).is_some_and(|value| value.id == id)
    }

    /// All values, in the order of their topics.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.values.values().map(|value| &value.message)
    }

    /// A cursor over what matches `filter` and was set up to that message.
    #[must_use]
    pub fn cursor(&self, filter: TopicFilter<'_>, last: MessageId) -> Cursor {
        let upto = Upto { last, last_at_most_once: last, granted: Qos::ExactlyOnce };
        Cursor {
            filter: filter.as_str().into(),
            from: first_key(filter.as_str()),
            sent_at_most_once: Box::default(),
            upto,
        }
    }

    /// Goes on with a cursor for one stride.
    pub fn step(&self, cursor: &mut Cursor, stride: Stride, now: Now) -> Step {
        let mut found = Step { messages: Vec::new(), done: false };
        let mut bytes = 0;
        let mut visits = 0;
        'seek: loop {
            for (key, value) in
                self.values.range::<[u8], _>((Bound::Included(&*cursor.from), Bound::Unbounded))
            {
                visits += 1;
                bytes += key.len().saturating_sub(SHORT_KEY_BYTES);
                let next = match position(&cursor.filter, key) {
                    Position::Match => {
                        if cursor.brings(key, value) && !value.message.is_expired(now) {
                            bytes += value.message.size_bytes();
                            found
                                .messages
                                .push(Numbered { id: value.id, message: Arc::clone(&value.message) });
                        }
                        None
                    }
                    Position::Before(next) => Some(next),
                    Position::Past => break,
                };
                let ends = bytes >= stride.bytes || visits >= stride.visits;
                let seeks = next.is_some();
                if ends || seeks {
                    cursor.from = next.unwrap_or_else(|| successor(key));
                }
                match (ends, seeks) {
                    (true, _) => return found,
                    (false, true) => continue 'seek,
                    (false, false) => {}
                }
            }
            found.done = true;
            if let Some(last) = found.messages.last() {
                cursor.from = behind_topic(last.message.topic());
            }
            return found;
        }
    }

    /// Looks at the next `visits` values and removes those that are expired. Returns how many.
    pub fn sweep(&mut self, visits: usize, now: Now) -> usize {
        let expired = self.next_expired(visits, usize::MAX, now);
        for key in &expired {
            let _ = self.remove(key);
        }
        expired.len()
    }

    /// Looks at the next `visits` values, or until the topics of those that are expired take `bytes_max`. Returns these
    /// topics.
    pub(crate) fn look_for_expired(&mut self, visits: usize, bytes_max: usize, now: Now) -> Vec<String> {
        let topic = |key: Box<[u8]>| key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect();
        let expired = self.next_expired(visits, bytes_max, now).into_iter();
        expired.filter_map(|key| String::from_utf8(topic(key)).ok()).collect()
    }

    /// The topic has no value any more.
    pub(crate) fn clear(&mut self, topic: &str) {
        self.remove(&key_of_text(topic));
    }

    fn next_expired(&mut self, visits: usize, bytes_max: usize, now: Now) -> Vec<Box<[u8]>> {
        let from = self.swept.take();
        let mut expired = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        for (key, value) in self
            .values
            .range::<[u8], _>((from.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
            .take(visits)
        {
            looked_at += 1;
            if value.message.is_expired(now) {
                bytes += key.len();
                expired.push(key.clone());
            }
            if looked_at == visits || bytes >= bytes_max {
                self.swept = Some(key.clone());
                break;
            }
        }
        expired
    }

    /// Returns the number of the value that was there.
    fn remove(&mut self, key: &[u8]) -> Option<MessageId> {
        let old = self.values.remove(key)?;
        let cost = cost(key, &old.message);
        self.bytes -= bounded(cost, &old.message);
        self.places_bytes -= cost - old.message.size_bytes();
        self.recorded_bytes -= old.recorded_bytes();
        self.unrecorded.remove(&old.id);
        Some(old.id)
    }
}

/// The position of a key relative to the keys that a filter matches.
enum Position {
    Match,
    /// No key before this one, and after the one in question, can match.
    Before(Box<[u8]>),
    /// No later key can match.
    Past,
}

/// Compares level by level (MQTT 5.0, 4.7).
fn position(filter: &str, key: &[u8]) -> Position {
    let mut levels = key.split(|byte| *byte == 0);
    // The part of the key that the filter has accepted, up to the end of its last level.
    let mut accepted = 0;
    for (number, wanted) in filter.split('/').enumerate() {
        let level = levels.next();
        let hidden = number == 0 && level.is_some_and(|level| level.starts_with(b"$"));
        let start = if number == 0 { 0 } else { accepted + 1 };
        match (wanted, level) {
            // [MQTT-4.7.2-1]: go on behind the topics that begin with `$`.
            ("#" | "+", Some(_)) if hidden => return Position::Before([b'$' + 1].into()),
            ("#", _) => return Position::Match,
            ("+", Some(level)) => accepted = start + level.len(),
            (literal, Some(level)) if literal.as_bytes() == level => accepted = start + level.len(),
            (literal, Some(level)) if level < literal.as_bytes() => {
                return Position::Before([&key[..start], literal.as_bytes()].concat().into());
            }
            (_, Some(_)) if number == 0 => return Position::Past,
            (_, Some(_)) => return Position::Before(behind(&key[..accepted])),
            ("+", None) => return Position::Before([key, &[0]].concat().into()),
            (literal, None) => return Position::Before([key, &[0], literal.as_bytes()].concat().into()),
        }
    }
    match levels.next() {
        None => Position::Match,
        Some(_) => Position::Before(behind(&key[..accepted])),
    }
}

/// The first key that is neither `key` nor below it.
fn behind(key: &[u8]) -> Box<[u8]> {
    [key, &[1]].concat().into()
}

/// Returns the key at which a cursor continues after a topic.
pub(crate) fn behind_topic(topic: TopicName<'_>) -> Box<[u8]> {
    successor(&key_of(topic))
}

/// There is no key between the two.
fn successor(key: &[u8]) -> Box<[u8]> {
    [key, &[0]].concat().into()
}

/// Returns the first key that can match.
pub(crate) fn first_key(filter: &str) -> Box<[u8]> {
    let literal = filter.split('/').take_while(|level| !matches!(*level, "#" | "+"));
    literal.collect::<Vec<_>>().join("\0").into_bytes().into()
}

fn key_of(topic: TopicName<'_>) -> Box<[u8]> {
    key_of_text(topic.as_str())
}

fn key_of_text(topic: &str) -> Box<[u8]> {
    topic.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

/// How much of the cost of a value is below the bound for what clients retain.
fn bounded(cost: usize, message: &Message) -> usize {
    if is_of_server(message) { 0 } else { cost }
}

fn cost(key: &[u8], message: &Message) -> usize {
    key.len() + message.size_bytes() + ENTRY_BYTES
}
