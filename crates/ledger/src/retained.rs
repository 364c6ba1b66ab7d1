//! Retained messages, in the order of their topics' levels, so that a filter is answered by a cursor
//! that any change may overtake.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use session::{Message, Now};
use topic::{TopicFilter, TopicName};

/// What one entry costs beside its topic and its message.
const ENTRY_BYTES: usize = 64;

/// The retained messages of a server.
#[derive(Debug, Default)]
pub struct Retained {
    /// By topic, with U+0000 (which no topic can hold) in place of `/`: a topic's children then follow
    /// it directly, before any sibling.
    values: BTreeMap<Box<[u8]>, Value>,
    bytes: usize,
    bytes_max: usize,
    /// Of the last value that was set.
    sequence: u64,
    /// Where the sweep for expired values goes on.
    swept: Option<Box<[u8]>>,
}

#[derive(Debug)]
struct Value {
    message: Arc<Message>,
    sequence: u64,
}

/// What became of a PUBLISH with RETAIN 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is the topic's value now, or the topic has none any more if its payload was empty.
    Done,
    /// There was no room; the topic has no value any more, since the old one is out of date.
    Full,
}

/// A walk through the values that match a filter, as they were when it began or newer.
#[derive(Debug)]
pub struct Cursor {
    filter: Box<str>,
    from: Bound<Box<[u8]>>,
    /// Values set later than this are not the cursor's: they went to the subscription when they were set.
    sequence: u64,
}

/// How far one step of a cursor may go.
#[derive(Debug, Clone, Copy)]
pub struct Stride {
    /// It ends with the message that reaches this size.
    pub bytes: usize,
    /// It ends after looking at as many values.
    pub visits: usize,
}

/// What a step of a cursor found.
#[derive(Debug)]
pub struct Step {
    /// In the order of their topics.
    pub messages: Vec<Arc<Message>>,
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

    /// What the values take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes `message` the value of its topic; an empty payload removes it (MQTT 5.0, 3.3.1.3).
    pub fn set(&mut self, message: &Arc<Message>) -> Stored {
        let key = key_of(message.topic());
        self.remove(&key);
        if message.payload().is_empty() {
            return Stored::Done;
        }
        let cost = cost(&key, message);
        if self.bytes + cost > self.bytes_max {
            return Stored::Full;
        }
        self.bytes += cost;
        self.sequence += 1;
        self.values.insert(key, Value { message: Arc::clone(message), sequence: self.sequence });
        Stored::Done
    }

    /// Whether [`set`](Self::set) will find room for the message.
    #[must_use]
    pub fn has_room_for(&self, message: &Message) -> bool {
        let key = key_of(message.topic());
        let old = self.values.get(&key).map_or(0, |old| cost(&key, &old.message));
        self.bytes - old + cost(&key, message) <= self.bytes_max
    }

    /// Whether this very message is the value of its topic.
    #[must_use]
    pub fn is_value(&self, message: &Arc<Message>) -> bool {
        self.values.get(&key_of(message.topic())).is_some_and(|value| Arc::ptr_eq(&value.message, message))
    }

    /// All values, in the order of their topics.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.values.values().map(|value| &value.message)
    }

    /// A cursor over what matches `filter` now.
    #[must_use]
    pub fn cursor(&self, filter: TopicFilter<'_>) -> Cursor {
        let from = Bound::Included(literal_prefix(filter.as_str()));
        Cursor { filter: filter.as_str().into(), from, sequence: self.sequence }
    }

    /// Goes on with a cursor for one stride.
    pub fn step(&self, cursor: &mut Cursor, stride: Stride, now: Now) -> Step {
        let mut found = Step { messages: Vec::new(), done: false };
        let mut bytes = 0;
        let mut visits = 0;
        'seek: loop {
            for (key, value) in self.values.range::<[u8], _>((as_ref(&cursor.from), Bound::Unbounded)) {
                visits += 1;
                let next = match place(&cursor.filter, key) {
                    Place::Match => {
                        if value.sequence <= cursor.sequence && !value.message.is_expired(now) {
                            bytes += value.message.size_bytes();
                            found.messages.push(Arc::clone(&value.message));
                        }
                        None
                    }
                    Place::Before(next) => Some(next),
                    Place::Past => break,
                };
                let ends = bytes >= stride.bytes || visits >= stride.visits;
                if ends || next.is_some() {
                    cursor.from = next.map_or_else(|| Bound::Excluded(key.clone()), Bound::Included);
                }
                match (ends, &cursor.from) {
                    (true, _) => return found,
                    (false, Bound::Included(next)) if **next > **key => continue 'seek,
                    (false, _) => {}
                }
            }
            found.done = true;
            return found;
        }
    }

    /// Looks at the next `visits` values and removes those that are expired. Returns how many.
    pub fn sweep(&mut self, visits: usize, now: Now) -> usize {
        let expired = self.next_expired(visits, now);
        expired.iter().for_each(|key| self.remove(key));
        expired.len()
    }

    /// Looks at the next `visits` values. Returns the topics of those that are expired.
    pub(crate) fn look_for_expired(&mut self, visits: usize, now: Now) -> Vec<String> {
        let topic = |key: Box<[u8]>| key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect();
        let expired = self.next_expired(visits, now).into_iter();
        expired.filter_map(|key| String::from_utf8(topic(key)).ok()).collect()
    }

    /// The topic has no value any more.
    pub(crate) fn clear(&mut self, topic: &str) {
        self.remove(&key_of_text(topic));
    }

    fn next_expired(&mut self, visits: usize, now: Now) -> Vec<Box<[u8]>> {
        let from = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut expired = Vec::new();
        let mut looked_at = 0;
        for (key, value) in self.values.range::<[u8], _>((as_ref(&from), Bound::Unbounded)).take(visits) {
            looked_at += 1;
            if value.message.is_expired(now) {
                expired.push(key.clone());
            }
            if looked_at == visits {
                self.swept = Some(key.clone());
            }
        }
        expired
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.values.remove(key) {
            self.bytes -= cost(key, &old.message);
        }
    }
}

/// Where a key lies, seen from a filter.
enum Place {
    Match,
    /// No key before this one, and after the one in question, can match.
    Before(Box<[u8]>),
    /// No later key can match.
    Past,
}

/// Compares level by level (MQTT 5.0, 4.7).
fn place(filter: &str, key: &[u8]) -> Place {
    let mut levels = key.split(|byte| *byte == 0);
    // The part of the key that the filter has accepted, up to the end of its last level.
    let mut accepted = 0;
    for (number, wanted) in filter.split('/').enumerate() {
        let level = levels.next();
        let hidden = number == 0 && level.is_some_and(|level| level.starts_with(b"$"));
        let start = if number == 0 { 0 } else { accepted + 1 };
        match (wanted, level) {
            // [MQTT-4.7.2-1]: go on behind the topics that begin with `$`.
            ("#" | "+", Some(_)) if hidden => return Place::Before([b'$' + 1].into()),
            ("#", _) => return Place::Match,
            ("+", Some(level)) => accepted = start + level.len(),
            (literal, Some(level)) if literal.as_bytes() == level => accepted = start + level.len(),
            (literal, Some(level)) if level < literal.as_bytes() => {
                return Place::Before([&key[..start], literal.as_bytes()].concat().into());
            }
            (_, Some(_)) if number == 0 => return Place::Past,
            (_, Some(_)) => return Place::Before(behind(&key[..accepted])),
            ("+", None) => return Place::Before([key, &[0]].concat().into()),
            (literal, None) => return Place::Before([key, &[0], literal.as_bytes()].concat().into()),
        }
    }
    match levels.next() {
        None => Place::Match,
        Some(_) => Place::Before(behind(&key[..accepted])),
    }
}

/// The first key that is neither `key` nor below it.
fn behind(key: &[u8]) -> Box<[u8]> {
    [key, &[1]].concat().into()
}

/// Where the keys that can match begin.
fn literal_prefix(filter: &str) -> Box<[u8]> {
    let literal = filter.split('/').take_while(|level| !matches!(*level, "#" | "+"));
    literal.collect::<Vec<_>>().join("\0").into_bytes().into()
}

fn key_of(topic: TopicName<'_>) -> Box<[u8]> {
    key_of_text(topic.as_str())
}

fn key_of_text(topic: &str) -> Box<[u8]> {
    topic.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect()
}

fn cost(key: &[u8], message: &Message) -> usize {
    key.len() + message.size_bytes() + ENTRY_BYTES
}

fn as_ref(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
