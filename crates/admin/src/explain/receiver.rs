//! The part of an explanation about the subscriber: its filters, its rights, its queue and its connection.

use auth::Action;
use base::{Budget, Interest, Level};
use topic::{TopicFilter, TopicName};
use wire::Qos;

use super::rights::may;
use super::{Connection, Explanation, Memory, Outcome, Receiver, Situation, group};
use crate::nearly;

/// Maximum number of filters in an answer that nearly match.
const NEARLY_MAX: usize = 10;
/// Maximum number of filters that are compared for that: about 20 ms.
const COMPARED_MAX: usize = 10_000;

/// Follows the message from the subscriptions on.
pub(super) fn receive(
    mut so_far: Explanation,
    of: &Situation<'_>,
    receiver: &Receiver<'_>,
    topic: TopicName<'_>,
) -> Explanation {
    let matching: Vec<_> =
        receiver.subscriptions.iter().filter(|(filter, _)| matches(filter, topic)).collect();
    if matching.is_empty() {
        return no_match(so_far, of, receiver, topic);
    }
    let is_own = of.publisher.client_id == of.subscriber;
    let counts = |interest: &Option<Interest>| !(is_own && interest.is_some_and(Interest::no_local));
    for (filter, interest) in &matching {
        let options = match interest {
            Some(interest) => format!(" with QoS {}", interest.qos() as u8),
            None => String::new(),
        };
        let no_local = if counts(interest) { "" } else { ", but No Local leaves out its own messages" };
        so_far.steps.push(format!("the filter {filter} of {} matches{options}{no_local}", of.subscriber));
    }
    let (shared, plain): (Vec<_>, Vec<_>) =
        matching.into_iter().partition(|(filter, _)| filter.starts_with("$share/"));
    let plain: Vec<_> = plain.into_iter().filter(|(_, interest)| counts(interest)).collect();
    if plain.is_empty() && shared.is_empty() {
        let text = format!("all of these have No Local, and {} is the publisher itself", of.subscriber);
        return so_far.not_delivered("no_local", text);
    }
    match may(of.broker.realms, receiver.principal, (of.subscriber, topic), Action::Receive) {
        Ok(text) => so_far.steps.push(text),
        Err(text) => return so_far.not_delivered("receive_not_authorized", text),
    }
    if plain.is_empty() {
        return group::share(so_far, of, receiver, &shared);
    }
    let granted = plain.iter().filter_map(|(_, interest)| interest.map(Interest::qos)).max();
    let qos = granted.map_or(of.qos, |granted| granted.min(of.qos));
    so_far.steps.push(format!(
        "the message has QoS {}, and reaches {} with QoS {}",
        of.qos as u8, of.subscriber, qos as u8
    ));
    let ended = deliver(so_far, of, receiver, qos);
    let is_away = matches!(ended.reason, "offline" | "offline_qos_0");
    match of.subscriber_ban {
        Some(_) if is_away => Explanation { reason: "subscriber_banned", ..ended },
        _ => ended,
    }
}

/// Follows the message through the queue, if it has one, to the connection.
fn deliver(so_far: Explanation, of: &Situation<'_>, receiver: &Receiver<'_>, qos: Qos) -> Explanation {
    let (name, waiting) = (of.subscriber, receiver.waiting);
    let must_wait = receiver.connection.is_none_or(|connection| {
        connection.level != Level::Open || waiting > 0 || connection.is_window_full()
    });
    // A session that ends with its connection has no queue for a message that can be sent at once.
    let is_queued = qos != Qos::AtMostOnce && (receiver.is_lasting || must_wait);
    if is_queued && let Some(text) = lacks_memory(of, receiver) {
        return so_far.not_delivered("memory_short", text);
    }
    if is_queued && let Some(full) = receiver.queue.full() {
        let rule = if receiver.is_lasting { of.broker.queue_full } else { "" };
        let (outcome, effect) = effect_of(rule);
        return so_far.end(outcome, "queue_full", format!("for {name}, {full}: {effect}"));
    }
    match receiver.connection {
        Some(connection) => send(so_far, of, (receiver, connection), qos),
        None if qos != Qos::AtMostOnce => {
            let text =
                format!("{name} is not connected: the message waits in its queue, behind {waiting} others");
            so_far.end(Outcome::Waits, "offline", text)
        }
        None => {
            let text = format!("{name} is not connected, and a message of QoS 0 does not wait");
            so_far.not_delivered("offline_qos_0", text)
        }
    }
}

/// The effect of a rule for a full queue. A session that ends with its connection has no rule.
pub(super) fn effect_of(rule: &str) -> (Outcome, String) {
    let (outcome, effect) = match rule {
        "drop-oldest" => (Outcome::Waits, "the oldest messages are dropped to make room"),
        "drop-newest" => (Outcome::NotDelivered, "the message is dropped"),
        "refuse" => (Outcome::NotDelivered, "nobody gets the message, and its publisher is told"),
        "end-session" => (Outcome::NotDelivered, "the next message ends the session"),
        _ => (Outcome::NotDelivered, "the next message ends the session, as it ends with its connection"),
    };
    let rule = if rule.is_empty() { String::new() } else { format!("`queue_full` is {rule}, and ") };
    (outcome, format!("{rule}{effect}"))
}

/// The reason why there is no memory for a message that waits, in words.
fn lacks_memory(of: &Situation<'_>, receiver: &Receiver<'_>) -> Option<String> {
    let (name, memory) = (of.subscriber, of.broker.memory);
    let has_little = receiver.queue.bytes <= Budget::WAITING_BYTES_ALLOWED;
    if !receiver.is_lasting {
        let is_ended = memory >= Memory::Short && !has_little;
        return is_ended.then(|| format!("memory is short, and much waits for {name}: its session ends"));
    }
    let leaves_soon = receiver.connection.is_some() && has_little && memory != Memory::Full;
    let is_refused = memory >= Memory::ShortToKeep && !leaves_soon;
    is_refused.then(|| {
        format!("memory is short, and the message has to wait for {name}: it is refused, and nobody gets it")
    })
}

/// Follows the message to the socket.
pub(super) fn send(
    mut so_far: Explanation,
    of: &Situation<'_>,
    (receiver, connection): (&Receiver<'_>, Connection),
    qos: Qos,
) -> Explanation {
    let (name, waiting, is_stored) = (of.subscriber, receiver.waiting, qos != Qos::AtMostOnce);
    let bytes_max = connection.limits.packet_bytes_max;
    if bytes_max < least_bytes(of.topic, receiver, qos) {
        let text = format!(
            "{name} accepts packets of at most {bytes_max} bytes, and the topic alone is longer: the message is dropped"
        );
        return so_far.not_delivered("too_large", text);
    }
    if bytes_max != usize::MAX {
        so_far.steps.push(format!(
            "{name} accepts packets of at most {bytes_max} bytes (Maximum Packet Size): a larger message is dropped"
        ));
    }
    match connection.level {
        Level::Slow if !is_stored => {
            let text = format!("{name} reads too slowly: QoS 0 is dropped until it has caught up");
            so_far.not_delivered("slow", text)
        }
        Level::Slow | Level::Over => {
            let text = format!("the output of {name} is full: the message waits, behind {waiting} others");
            so_far.end(Outcome::Waits, "full", text)
        }
        Level::Open if is_stored && (waiting > 0 || connection.is_window_full()) => {
            let text = format!(
                "{name} has not acknowledged {} messages, and at most {} may be on their way: the message waits, behind \
                 {waiting} others",
                connection.in_flight, connection.limits.window
            );
            so_far.end(Outcome::Waits, "window_full", text)
        }
        Level::Open => {
            let text = format!("{name} is connected and has room: it gets the message");
            so_far.end(Outcome::Delivered, "delivered", text)
        }
    }
}

/// The size of the packet without payload and properties, in bytes. The subscriber does not see its mount point.
fn least_bytes(topic: &str, receiver: &Receiver<'_>, qos: Qos) -> usize {
    /// Type, length, the length of the topic, and the length of the properties.
    const HEAD_BYTES: usize = 1 + 1 + 2 + 1;
    let tenant = receiver.principal.tenant.as_deref();
    let hidden_bytes = tenant.map_or(0, |tenant| tenant.mount.len() + tenant.prefix.len());
    let identifier_bytes = if qos == Qos::AtMostOnce { 0 } else { 2 };
    HEAD_BYTES + identifier_bytes + topic.len().saturating_sub(hidden_bytes)
}

impl Connection {
    /// Whether the client has to acknowledge a message before the next one is sent.
    fn is_window_full(&self) -> bool {
        self.in_flight >= usize::from(self.limits.window)
    }
}

fn no_match(
    mut so_far: Explanation,
    of: &Situation<'_>,
    receiver: &Receiver<'_>,
    topic: TopicName<'_>,
) -> Explanation {
    let filters = receiver.subscriptions.iter().take(COMPARED_MAX);
    let near = filters.filter_map(|(filter, _)| Some((filter.clone(), nearly::difference(filter, topic)?)));
    so_far.nearly = near.take(NEARLY_MAX).collect();
    let (name, seen) = (of.subscriber, receiver.subscriptions.len());
    if !receiver.has_all {
        let text = format!("none of the {seen} filters of {name} that were looked at matches; it has more");
        return so_far.end(Outcome::Unknown, "too_many_subscriptions", text);
    }
    let none_matches = match receiver.subscription_count.max(seen) {
        0 => format!("{name} has no subscriptions"),
        1 => format!("{name} has one subscription, which does not match"),
        count => format!("{name} has {count} subscriptions, and none matches"),
    };
    let text = match so_far.nearly.first() {
        None => none_matches,
        Some((filter, why)) => format!("{none_matches}, but {filter} nearly does: {why}"),
    };
    so_far.not_delivered("no_matching_filter", text)
}

/// Whether a filter, which may be shared, matches.
pub(crate) fn matches(filter: &str, topic: TopicName<'_>) -> bool {
    TopicFilter::new(filter).is_ok_and(|filter| filter.matches(topic))
}
