//! Why a message reaches a subscriber, or does not. Follows the path of a message, and names each decision in words.
//!
//! The facts are gathered before ([`Situation`]); what follows from them is a function of them alone.

mod group;
mod publisher;
mod receiver;
mod rights;
pub(crate) mod seek;
#[cfg(test)]
mod tests;

use auth::Realms;
use base::{Interest, Level, Principal};
use broker::ClientLimits;
use serde_json::{Value, json};
use topic::TopicName;
use wire::Qos;

pub(crate) use group::{Choice, Group};
pub(crate) use receiver::matches;

/// The facts about a message that may go from a publisher to a subscriber.
#[derive(Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) publisher: Publisher<'a>,
    pub(crate) topic: &'a str,
    pub(crate) qos: Qos,
    pub(crate) subscriber: &'a str,
    /// The ban that keeps the subscriber out, in words.
    pub(crate) subscriber_ban: Option<&'a str>,
    /// `None` if the broker does not know the client.
    pub(crate) receiver: Option<Receiver<'a>>,
    pub(crate) broker: Broker<'a>,
}

/// The facts about a publisher.
#[derive(Debug)]
pub(crate) struct Publisher<'a> {
    pub(crate) client_id: &'a str,
    /// The user for whom it acts. `None` if the broker does not know the client.
    pub(crate) principal: Option<&'a Principal>,
    /// The ban that keeps it out, in words.
    pub(crate) ban: Option<&'a str>,
    /// The limits of its connection, if it is connected.
    pub(crate) limits: Option<ClientLimits>,
    /// Whether it is not read, because one of its receivers has no room.
    pub(crate) is_blocked: bool,
}

/// The facts about a subscriber.
#[derive(Debug)]
pub(crate) struct Receiver<'a> {
    pub(crate) principal: &'a Principal,
    /// `None` while it is not connected.
    pub(crate) connection: Option<Connection>,
    /// Whether its session outlives the connection.
    pub(crate) is_lasting: bool,
    /// Its subscriptions: all of them, or at least all that can match the topic.
    pub(crate) subscriptions: &'a [(Box<str>, Option<Interest>)],
    /// Whether the subscriptions above have no gap in which another one can match.
    pub(crate) has_all: bool,
    /// Number of its subscriptions, at least.
    pub(crate) subscription_count: usize,
    /// The groups among its subscriptions that match the topic.
    pub(crate) groups: &'a [Group],
    /// The queue that a further message may be too much for.
    pub(crate) queue: Queue,
    /// Messages that wait for it, in its queue and behind its window.
    pub(crate) waiting: usize,
}

/// The connection of a subscriber.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    /// The level of its output.
    pub(crate) level: Level,
    pub(crate) limits: ClientLimits,
    /// Messages of QoS 1 and 2 that it has not acknowledged.
    pub(crate) in_flight: usize,
}

/// Messages that wait, and the most that may.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) messages: usize,
    pub(crate) messages_max: usize,
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
}

impl Queue {
    /// The bound that leaves no room for a further message, in words.
    pub(crate) fn full(&self) -> Option<String> {
        let Self { messages, messages_max, bytes, bytes_max } = *self;
        if messages >= messages_max {
            return Some(format!("{messages} messages wait, and at most {messages_max} may"));
        }
        // A message that is longer than all of the bound fits into an empty queue.
        let is_full = bytes > 0 && bytes >= bytes_max;
        is_full.then(|| format!("{bytes} bytes of messages wait, and at most {bytes_max} may"))
    }
}

/// The facts about the broker.
#[derive(Debug)]
pub(crate) struct Broker<'a> {
    pub(crate) realms: &'a Realms,
    /// Whether there are rules, or sessions may have some from tokens.
    pub(crate) has_rules: bool,
    /// Maximum number of levels of a topic.
    pub(crate) topic_levels_max: usize,
    /// The rule for a full queue, as the configuration writes it.
    pub(crate) queue_full: &'a str,
    pub(crate) memory: Memory,
}

/// The account of memory, as far as messages depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Memory {
    /// There is enough for all messages.
    Enough,
    /// Queues and retained messages may not grow.
    ShortToKeep,
    /// Nothing new is admitted.
    Short,
    /// Nothing is left of the limit.
    Full,
}

/// The outcome for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The subscriber gets the message at once.
    Delivered,
    /// The message waits for the subscriber.
    Waits,
    /// The message goes to one member of a group, which may be another one.
    ToGroup,
    /// The subscriber does not get the message.
    NotDelivered,
    /// The facts do not decide.
    Unknown,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Waits => "waits",
            Self::ToGroup => "to-group",
            Self::NotDelivered => "not-delivered",
            Self::Unknown => "unknown",
        }
    }
}

/// An explanation: the outcome, the reason for it, and all steps on the way.
#[derive(Debug)]
pub(crate) struct Explanation {
    pub(crate) outcome: Outcome,
    /// A short name of the reason, for programs.
    pub(crate) reason: &'static str,
    pub(crate) steps: Vec<String>,
    /// Filters that nearly match, each with the difference.
    pub(crate) nearly: Vec<(Box<str>, String)>,
}

impl Explanation {
    /// The explanation in JSON.
    pub(crate) fn value(&self) -> Value {
        let nearly = self.nearly.iter().map(|(filter, why)| json!({ "filter": filter, "difference": why }));
        json!({
            "outcome": self.outcome.word(),
            "reason": self.reason,
            "steps": self.steps,
            "nearly_matching": nearly.collect::<Vec<_>>(),
        })
    }

    fn end(mut self, outcome: Outcome, reason: &'static str, step: impl Into<String>) -> Self {
        self.steps.push(step.into());
        Self { outcome, reason, ..self }
    }

    fn not_delivered(self, reason: &'static str, step: impl Into<String>) -> Self {
        self.end(Outcome::NotDelivered, reason, step)
    }
}

/// Explains the outcome for a message.
pub(crate) fn explain(of: &Situation<'_>) -> Explanation {
    let so_far = Explanation { outcome: Outcome::Unknown, reason: "", steps: Vec::new(), nearly: Vec::new() };
    let Ok(topic) = TopicName::new(of.topic) else {
        let text = format!("{} is no topic name: it is empty, too long, or has + or # in it", of.topic);
        return so_far.not_delivered("no_topic_name", text);
    };
    let published = match publisher::publish(so_far, of, topic) {
        Ok(published) => published,
        Err(ended) => return ended,
    };
    publisher::limit(subscribe(published, of, topic), of)
}

/// The part of the explanation about the presence of the subscriber, and all behind it.
fn subscribe(mut so_far: Explanation, of: &Situation<'_>, topic: TopicName<'_>) -> Explanation {
    let name = of.subscriber;
    if let Some(ban) = of.subscriber_ban {
        so_far.steps.push(format!("{name} is banned ({ban}): it cannot connect until the ban ends"));
    }
    match &of.receiver {
        Some(known) => receiver::receive(so_far, of, known, topic),
        None if of.subscriber_ban.is_some() => {
            let text = format!("{name} has no session: no message waits for it");
            so_far.not_delivered("subscriber_banned", text)
        }
        None => {
            let text = format!(
                "{name} is not connected and has no session: it never connected, its session has expired, or the session \
                 ended with the connection"
            );
            so_far.not_delivered("no_session", text)
        }
    }
}
