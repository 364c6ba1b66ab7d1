//! The recorded past, as far as it decides whether a difference may come from a race of the recording.
//!
//! A server may process packets of different connections in any order. If a client subscribed while another one published,
//! the recording shows only one of two correct results. A message is in doubt if its publication and a change of the
//! subscriber's session overlapped: neither was answered before the other one was sent.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use topic::{TopicFilterBuf, TopicName};
use wire::Qos;

use super::packet::{Message, hash};
use super::script::Posted;

/// Maximum time that a message needs from publisher to subscriber, where no answer shows its arrival.
const WAY_MAX: Duration = Duration::from_secs(1);

/// Number of publications that are remembered at least. At most twice as many are in memory, with about 100 bytes each.
const PUBLICATIONS: usize = 1 << 18;

/// Number of retained topics that are remembered at least, and of the publications to each.
const RETAINED_TOPICS: usize = PUBLICATIONS / RETAINED_EACH;
const RETAINED_EACH: usize = 4;

/// Number of changes of a session that are remembered.
const CHANGES_MAX: usize = 64;

/// A point of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Number of the step.
    pub(crate) step: u64,
    /// Time since 1970.
    pub(crate) time: Duration,
}

/// A map that forgets its oldest entries.
#[derive(Debug)]
struct Recent<K, V> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Number of entries that are kept at least.
    kept: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    fn new(kept: usize) -> Self {
        Self { new: HashMap::new(), old: HashMap::new(), kept }
    }

    fn of(&self, key: &K) -> Option<&V> {
        self.new.get(key).or_else(|| self.old.get(key))
    }

    fn of_mut(&mut self, key: &K) -> Option<&mut V> {
        self.new.get_mut(key).or_else(|| self.old.get_mut(key))
    }

    fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= self.kept {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }
}

/// The last publication of a content or of a retained topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publication {
    /// Session of the publisher.
    pub(crate) publisher: u32,
    sent: Moment,
    /// Position of the server's answer.
    answered: Option<u64>,
    /// Several publishers have published this.
    pub(crate) is_shared: bool,
    /// The same was published before.
    is_repeated: bool,
    /// Another publisher published to the retained topic before this one had its answer.
    is_contested: bool,
    /// The client has sent the message again because the first one had no answer.
    is_sent_again: bool,
}

impl Publication {
    /// Whether the publication may have been under way at a moment.
    fn may_be_open_at(&self, moment: Moment) -> bool {
        match self.answered {
            Some(step) => step > moment.step,
            None => self.sent.time + WAY_MAX > moment.time,
        }
    }
}

/// A change of a session, from its request to its answer.
#[derive(Debug)]
pub(crate) struct Change {
    sent: Moment,
    /// Position of the answer.
    answered: Option<u64>,
    reach: Reach,
}

/// The messages that a change of a session can affect.
#[derive(Debug)]
pub(crate) enum Reach {
    /// Messages to these filters: SUBSCRIBE and UNSUBSCRIBE.
    Filters(Vec<TopicFilterBuf>),
    /// All messages: the session begins or ends.
    All,
    /// Messages of QoS 0, because the session itself continues.
    Qos0,
}

impl Reach {
    fn has(&self, message: &Message) -> bool {
        match self {
            Self::Filters(filters) => {
                filters.iter().any(|filter| filter.filter().matches(message.topic.name()))
            }
            Self::All => true,
            Self::Qos0 => message.qos == Qos::AtMostOnce,
        }
    }
}

/// The changes of one session.
#[derive(Debug, Default)]
pub(crate) struct Changes(VecDeque<Change>);

impl Changes {
    pub(crate) fn begin(&mut self, sent: Moment, reach: Reach) {
        if self.0.len() == CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Change { sent, answered: None, reach });
    }

    /// Notes the answer to the change that was sent at this step.
    pub(crate) fn answer(&mut self, sent_step: u64, step: u64) {
        if let Some(change) = self.0.iter_mut().rev().find(|change| change.sent.step == sent_step) {
            change.answered = Some(step);
        }
    }

    /// Restricts the change that was sent at this step to messages of QoS 0: the session itself continues.
    pub(crate) fn narrow(&mut self, sent_step: u64) {
        if let Some(change) = self.0.iter_mut().rev().find(|change| change.sent.step == sent_step) {
            change.reach = Reach::Qos0;
        }
    }
}

/// All publications of the recording that are still remembered.
#[derive(Debug)]
pub(crate) struct Past {
    by_content: Recent<u64, Publication>,
    /// The last publications to each retained topic, with the hashes of their contents.
    retained: Recent<u64, VecDeque<(u64, Publication)>>,
    /// Hashes of messages that have arrived as recorded.
    arrived: Recent<u64, ()>,
    /// How often the recorded server had to send a message of a shared subscription to another member, by content. The
    /// earlier ones may be missing.
    sent_again: Recent<u64, u32>,
}

impl Past {
    pub(crate) fn new() -> Self {
        Self {
            by_content: Recent::new(PUBLICATIONS),
            retained: Recent::new(RETAINED_TOPICS),
            arrived: Recent::new(PUBLICATIONS),
            sent_again: Recent::new(PUBLICATIONS),
        }
    }

    /// Notes that a session publishes a message.
    pub(crate) fn publish(&mut self, publisher: u32, posted: &Posted, sent: Moment) {
        let new = |old: Option<&Publication>| {
            let other = old.filter(|old| old.publisher != publisher);
            let is_contested = other.is_some_and(|old| old.may_be_open_at(sent));
            let is_shared = other.is_some() || old.is_some_and(|old| old.is_shared);
            let is_repeated = old.is_some();
            let is_sent_again =
                posted.dup && old.is_some_and(|old| old.publisher == publisher && old.answered.is_none());
            let answered = None;
            Publication { publisher, sent, answered, is_shared, is_repeated, is_contested, is_sent_again }
        };
        let publication = new(self.by_content.of(&posted.content));
        self.by_content.insert(posted.content, publication);
        if posted.retain {
            let topic = hash(posted.topic.name().as_str());
            let mut all = self.retained.of(&topic).cloned().unwrap_or_default();
            let publication = new(all.back().map(|(_, last)| last));
            if all.len() == RETAINED_EACH {
                all.pop_front();
            }
            all.push_back((posted.content, publication));
            self.retained.insert(topic, all);
        }
    }

    /// Notes the answer to a publication.
    pub(crate) fn answer(&mut self, posted: &Posted, step: u64) {
        let topic = hash(posted.topic.name().as_str());
        let retained = self.retained.of_mut(&topic).filter(|_| posted.retain).into_iter().flatten();
        let retained =
            retained.filter(|(content, _)| *content == posted.content).map(|(_, publication)| publication);
        for publication in self.by_content.of_mut(&posted.content).into_iter().chain(retained) {
            if publication.sent.step < step {
                publication.answered.get_or_insert(step);
            }
        }
    }

    /// Notes that a message has arrived as recorded.
    pub(crate) fn arrive(&mut self, all: u64) {
        self.arrived.insert(all, ());
    }

    /// Whether an equal message has arrived as recorded, although it was published only once.
    pub(crate) fn is_repetition(&self, all: u64, message: &Message) -> bool {
        self.arrived.of(&all).is_some()
            && self.of(message).is_some_and(|publication| !publication.is_repeated)
    }

    /// Whether an equal message has arrived as recorded, and its publisher sent the message twice because the connection
    /// ended. A server may deliver such a message once or twice.
    pub(crate) fn is_second_delivery(&self, all: u64, message: &Message) -> bool {
        self.arrived.of(&all).is_some()
            && self.of(message).is_some_and(|publication| publication.is_sent_again)
    }

    /// Notes that the recorded server sends a message of a shared subscription to another member.
    pub(crate) fn send_again(&mut self, content: u64) {
        let count = self.sent_again.of(&content).copied().unwrap_or_default();
        self.sent_again.insert(content, count + 1);
    }

    /// Whether one of several equal messages of a shared subscription may be missing.
    pub(crate) fn is_sent_again(&self, message: &Message) -> bool {
        self.sent_again.of(&message.content).is_some_and(|count| *count > 0)
    }

    /// Excuses that one of these messages is missing. Returns whether there is an excuse.
    pub(crate) fn excuse(&mut self, message: &Message) -> bool {
        let count = self.sent_again.of_mut(&message.content).filter(|count| **count > 0);
        count.map(|count| *count -= 1).is_some()
    }

    /// The last publication of a message.
    pub(crate) fn of(&self, message: &Message) -> Option<&Publication> {
        self.by_content.of(&message.content)
    }

    /// Whether a recorded message may be missing: it arrived while the subscriber's session changed.
    pub(crate) fn may_be_missing(&self, message: &Message, arrived: Moment, changes: &Changes) -> bool {
        if self.is_retained_in_doubt(message, changes) {
            return true;
        }
        let Some(publication) = self.of(message) else { return false };
        changes.0.iter().any(|change| {
            let is_after_change = change.answered.is_some_and(|step| step < publication.sent.step);
            !is_after_change && change.sent.step < arrived.step && change.reach.has(message)
        })
    }

    /// Whether a message that was not recorded may arrive: it was published while the subscriber's session changed, or
    /// shortly before the end of the recording.
    pub(crate) fn may_be_extra(&self, message: &Message, end: Option<Moment>, changes: &Changes) -> bool {
        if self.is_retained_in_doubt(message, changes) {
            return true;
        }
        let Some(publication) = self.of(message) else { return false };
        let is_at_end = end.is_some_and(|end| publication.sent.time + WAY_MAX > end.time);
        let raced = changes.0.iter().any(|change| {
            let is_after_change = change.answered.is_some_and(|step| step < publication.sent.step);
            // An answer to the publisher does not show that the message has reached its subscribers.
            let is_before_change = publication.sent.time + WAY_MAX < change.sent.time
                || matches!(change.reach, Reach::Filters(_)) && !publication.may_be_open_at(change.sent);
            !is_after_change && !is_before_change && change.reach.has(message)
        });
        is_at_end || raced
    }

    /// Whether the retained value of a topic depends on a race: of two publishers, or of a publisher and the subscriber.
    fn is_retained_in_doubt(&self, message: &Message, changes: &Changes) -> bool {
        if !message.retain {
            return false;
        }
        let Some(all) = self.retained.of(&hash(message.topic.name().as_str())) else { return false };
        all.iter().any(|(_, publication)| {
            let raced = changes.0.iter().any(|change| {
                let is_after_change = change.answered.is_some_and(|step| step < publication.sent.step);
                !is_after_change && publication.may_be_open_at(change.sent) && change.reach.has(message)
            });
            publication.is_contested || raced
        })
    }
}

/// Whether one of these filters is shared, and matches the topic.
pub(crate) fn is_shared(filters: &[TopicFilterBuf], topic: TopicName<'_>) -> bool {
    filters.iter().any(|filter| filter.filter().shared().is_some() && filter.filter().matches(topic))
}

#[cfg(test)]
mod tests {
    use topic::{TopicFilter, TopicName, TopicNameBuf};

    use super::*;

    fn moment(step: u64) -> Moment {
        Moment { step, time: Duration::from_secs(10 * step) }
    }

    fn posted(payload: &[u8]) -> Posted {
        let topic = TopicNameBuf::from(TopicName::new("t").expect("a topic name"));
        let content = hash(("t", payload));
        Posted {
            topic,
            content,
            qos: Qos::AtLeastOnce,
            retain: true,
            dup: false,
            packet_id: Some(1),
            alias: None,
        }
    }

    /// The verdict comes some time after the race, and more may have been published meanwhile.
    #[test]
    fn a_retained_message_that_raced_with_a_subscription_is_in_doubt_after_later_publications() {
        let subscribed = |raced: bool| {
            let (mut past, mut changes) = (Past::new(), Changes::default());
            let filter = TopicFilterBuf::from(TopicFilter::new("t").expect("a filter"));
            past.publish(1, &posted(b"first"), moment(1));
            past.answer(&posted(b"first"), 2);
            if raced {
                past.publish(1, &posted(b"second"), moment(3));
            }
            changes.begin(moment(4), Reach::Filters(vec![filter]));
            if !raced {
                past.publish(1, &posted(b"second"), moment(6));
            }
            changes.answer(4, 5);
            past.answer(&posted(b"second"), 7);
            past.publish(1, &posted(b"third"), moment(8));
            past.answer(&posted(b"third"), 9);
            let Posted { topic, content, qos, retain, packet_id, dup, .. } = posted(b"first");
            let message = Message { topic, content, qos, retain, dup, packet_id };
            past.may_be_extra(&message, None, &changes)
        };
        assert!(subscribed(true));
        assert!(!subscribed(false));
    }
}
