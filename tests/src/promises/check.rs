//! Checks whether a broker keeps its promises.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::clients::Subscriber;
use super::message::{Message, PUBLISHERS};
use super::subscriber::Fault;
use super::world::{World, wait_for_any};
use crate::conversation::{self, Conversation, PUBCOMP, PUBREL};
use crate::packet;
use crate::{Broker, Client, RawClient, Version, until};

/// Time limit for wills. A delayed will is due at most a second after the start of the broker. It may then wait for ten
/// seconds, for a receiver at QoS 0 whose output is over its mark.
const WILLS_TAKE: Duration = Duration::from_secs(15);
/// Topics that show which of the changing subscriptions exist.
const PROBES: &[&str] = &["flip/0", "flip/1", "flip/2"];

/// Result of a check.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Number of messages that the broker had acknowledged to their publisher.
    pub acknowledged: usize,
    /// Number of deliveries of such messages to a session or group that had not happened yet.
    pub outstanding: usize,
    /// Losses after an acknowledgement: messages, sessions, subscriptions and retained values.
    pub lost: Vec<String>,
    /// Messages of QoS 2 that were delivered more than once.
    pub twice: Vec<String>,
    /// Messages that were out of order or never published, and requests without an answer.
    pub wrong: Vec<String>,
}

impl Findings {
    /// Whether the broker has kept all promises.
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.twice.is_empty() && self.wrong.is_empty()
    }
}

/// Connects all clients to their sessions, and completes all exchanges of messages.
///
/// A wait fails if it is longer than `patience`.
pub fn check(world: &mut World, broker: &Broker, patience: Duration) -> Findings {
    let due = Due::of(world);
    let mut findings = Findings { acknowledged: world.acknowledged(), ..Findings::default() };
    findings.outstanding = due.each.iter().map(BTreeSet::len).sum::<usize>() + due.shared.len();
    // Retained values must be checked before any client publishes again.
    findings.check_retained(world, broker, patience);
    findings.go_on(world, broker, patience);
    let probed = findings.end(world, broker, &due, patience);
    findings.check_deliveries(world, &due);
    if probed {
        findings.check_subscriptions(world);
    }
    findings.check_order(world);
    findings
}

/// Messages that were acknowledged and have not been delivered.
struct Due {
    /// Messages for each subscriber that is not in the group.
    each: Vec<BTreeSet<Message>>,
    /// Messages for the members of the group together.
    shared: BTreeSet<Message>,
}

impl Due {
    fn of(world: &World) -> Self {
        let wills = world.ghosts.iter().filter_map(|ghost| ghost.will());
        let published = world.publishers.iter().flat_map(|publisher| &publisher.history.now().acknowledged);
        let promised: BTreeSet<Message> = published.copied().chain(wills).collect();
        let of = |subscriber: &Subscriber| -> BTreeSet<Message> {
            let owned = &subscriber.history.now().owned;
            let is_due = |message: &&Message| {
                subscriber.character.is_for(&message.topic()) && !owned.contains(message)
            };
            promised.iter().filter(is_due).copied().collect()
        };
        let (mut each, mut shared) = (Vec::new(), None::<BTreeSet<Message>>);
        for subscriber in &world.subscribers {
            if subscriber.character.is_member() {
                // A message that one member has received is received for the whole group.
                let due = of(subscriber);
                shared = Some(shared.map_or_else(|| due.clone(), |others| &others & &due));
                each.push(BTreeSet::new());
            } else {
                each.push(of(subscriber));
            }
        }
        Self { each, shared: shared.unwrap_or_default() }
    }

    /// Returns the due messages that have not arrived since.
    fn missing(&self, world: &World) -> Vec<(String, Message)> {
        let mut missing = Vec::new();
        let mut taken_by_members = BTreeSet::new();
        for (due, subscriber) in self.each.iter().zip(&world.subscribers) {
            let received: BTreeSet<Message> = subscriber.received.iter().map(|one| one.message).collect();
            let name = subscriber.character.client_id;
            missing.extend(due.difference(&received).map(|message| (name.to_owned(), *message)));
            if subscriber.character.is_member() {
                taken_by_members.extend(received);
            }
        }
        let of_group = self.shared.difference(&taken_by_members);
        missing.extend(of_group.map(|message| ("the group".to_owned(), *message)));
        missing
    }
}

impl Findings {
    fn check_retained(&mut self, world: &World, broker: &Broker, patience: Duration) {
        let bounds: Vec<Bounds> = (0..PUBLISHERS)
            .flat_map(|publisher| [1, 2].map(|qos| Bounds::of(world, publisher, qos)))
            .collect();
        let needed = bounds.iter().filter(|bounds| bounds.is_needed()).map(|bounds| bounds.topic.as_str());
        let found = retained(broker, &needed.collect(), patience);
        for bounds in &bounds {
            if let Some(complaint) = bounds.complaint(found.get(&bounds.topic)) {
                self.lost.push(complaint);
            }
        }
    }

    /// Connects all clients, and lets publishers finish their exchanges.
    fn go_on(&mut self, world: &mut World, broker: &Broker, patience: Duration) {
        let had_sessions: Vec<bool> =
            world.subscribers.iter().map(|subscriber| subscriber.history.now().has_session).collect();
        world.connect_subscribers(broker);
        let is_greeted =
            |world: &mut World| world.subscribers.iter().all(|subscriber| subscriber.greeting.is_some());
        if !world.pump_until(patience, is_greeted) {
            self.wrong.push("not all subscribers are let in".to_owned());
        }
        for (subscriber, was_there) in world.subscribers.iter().zip(had_sessions) {
            let is_there = subscriber.greeting.is_none_or(|greeting| greeting.is_present);
            if was_there && !is_there {
                self.lost.push(format!("the session of {}", subscriber.character.client_id));
            }
        }
        let had_sessions: Vec<bool> =
            world.publishers.iter().map(|publisher| publisher.history.now().has_session).collect();
        for publisher in &mut world.publishers {
            publisher.connect(broker);
        }
        let is_finished = |world: &mut World| {
            world
                .publishers
                .iter()
                .all(|one| one.greeting.is_some() && one.history.now().unfinished.is_empty())
        };
        if !world.pump_until(patience, is_finished) {
            for publisher in &world.publishers {
                let unfinished = &publisher.history.now().unfinished;
                let is_let_in = publisher.greeting.is_some();
                self.wrong.push(format!(
                    "publisher {}, let in: {is_let_in}, waits for {unfinished:?}",
                    publisher.id
                ));
            }
        }
        for (publisher, had_session) in world.publishers.iter().zip(had_sessions) {
            if had_session && publisher.greeting.is_some_and(|greeting| !greeting.is_present) {
                self.lost.push(format!("the session of publisher {}", publisher.id));
            }
        }
    }

    /// Publishes the last messages, and waits for them. Also waits for wills that are missing.
    ///
    /// Returns whether the messages that show the subscriptions have arrived.
    fn end(&mut self, world: &mut World, broker: &Broker, due: &Due, patience: Duration) -> bool {
        let mut herald = broker.client(Version::V5, "herald");
        for topic in PROBES {
            announce(&mut herald, 1, topic, b"probe");
        }
        for last in [1, 2].map(Message::last) {
            announce(&mut herald, last.qos(), &last.topic(), &last.payload());
        }
        let has_ended = world.pump_until(patience, has_ended);
        if !has_ended {
            self.lost.push("a subscription: what was published last does not come".to_owned());
        }
        // After two answers, all messages that the broker still had on their way have arrived.
        for _ in 0..2 {
            world.ping();
            world.pump_until(patience, |world| world.subscribers.iter_mut().all(Subscriber::has_pong));
        }
        let is_will = |message: &Message| message.topic().starts_with("will/");
        if due.missing(world).iter().any(|(_, message)| is_will(message)) {
            world.pump_until(WILLS_TAKE, |world| {
                !due.missing(world).iter().any(|(_, message)| is_will(message))
            });
        }
        has_ended
    }

    fn check_deliveries(&mut self, world: &World, due: &Due) {
        let missing = due.missing(world).into_iter();
        self.lost.extend(missing.map(|(name, message)| format!("{message}, for {name}")));
        let mut of_members = BTreeMap::new();
        for subscriber in &world.subscribers {
            let (name, known) = (subscriber.character.client_id, subscriber.history.now());
            for fault in &known.faults {
                match fault {
                    Fault::Twice(message) => self.twice.push(format!("{message}, to {name}")),
                    Fault::Confused { is, was } => {
                        self.lost.push(format!("{is}, for {name}, which takes it for {was}"));
                    }
                }
            }
            if subscriber.character.is_member() {
                for message in &known.exactly_once {
                    *of_members.entry(*message).or_insert(0) += 1;
                }
            }
        }
        let last = Message::last(2);
        let often = of_members.into_iter().filter(|(message, count)| *count > 1 && *message != last);
        self.twice.extend(often.map(|(message, _)| format!("{message}, to two members")));
    }

    /// Checks that certain subscriptions have received their messages, and that certainly ended ones have not.
    fn check_subscriptions(&mut self, world: &World) {
        for subscriber in world.subscribers.iter().filter(|one| !one.character.changes.is_empty()) {
            let filters = &subscriber.history.now().filters;
            for topic in PROBES {
                let is_matching = |filter: &&str| [topic, "flip/+", "$share/flips/flip/#"].contains(filter);
                let matching = subscriber.character.changes.iter().filter(|filter| is_matching(filter));
                let known: Vec<_> = matching.filter_map(|filter| filters.get(*filter)).collect();
                let has_come = subscriber.strange.iter().any(|strange| strange == topic);
                if known.iter().any(|filter| filter.is_certain && filter.is_wanted) && !has_come {
                    self.lost.push(format!("a subscription that matches {topic}"));
                }
                if known.iter().all(|filter| filter.is_certain && !filter.is_wanted) && has_come {
                    self.lost.push(format!("the end of a subscription that matches {topic}"));
                }
            }
        }
    }

    /// Messages of one topic and QoS arrive in order, and all of them were published. [MQTT-4.6.0-6]
    fn check_order(&mut self, world: &World) {
        let repeated: BTreeSet<Message> =
            world.publishers.iter().flat_map(|one| one.history.now().repeated.iter().copied()).collect();
        for subscriber in &world.subscribers {
            let name = subscriber.character.client_id;
            let mut seen = BTreeSet::new();
            let mut last: BTreeMap<(String, u8), Message> = BTreeMap::new();
            for delivery in &subscriber.received {
                let message = delivery.message;
                // A publisher may send a repeated message, or a second attempt, after later messages.
                let is_out_of_order =
                    message.qos() == 1 && repeated.contains(&message) || world.refused.contains(&message);
                if !seen.insert(message) || is_out_of_order || subscriber.character.is_member() {
                    continue;
                }
                let before = last.insert((message.topic(), message.qos()), message);
                if let Some(before) = before.filter(|before| *before > message) {
                    self.wrong.push(format!("{message} behind {before}, to {name}"));
                }
            }
            let strange = subscriber.strange.iter().filter(|topic| !PROBES.contains(&topic.as_str()));
            self.wrong.extend(
                strange.map(|topic| format!("a message on {topic} that nobody has published, to {name}")),
            );
        }
    }
}

/// Publishes until the broker has the space for the message. The broker may still be preparing segments.
fn announce(herald: &mut Client, qos: u8, topic: &str, payload: &[u8]) {
    until("a message is accepted", || {
        herald.publish_at(qos, 1, topic, payload);
        let answer = herald.read_packet();
        answer.get(4).is_none_or(|reason| *reason < 0x80).then_some(())
    });
    if qos == 2 {
        herald.acknowledge(PUBREL, 1);
        herald.expect_ack(PUBCOMP, 1);
    }
}

/// Whether the last messages have arrived at all clients that must receive them.
fn has_ended(world: &mut World) -> bool {
    let has_last = |subscriber: &Subscriber| {
        [1, 2]
            .map(Message::last)
            .iter()
            .all(|last| subscriber.received.iter().any(|one| one.message == *last))
    };
    let is_to_get_it = |subscriber: &&Subscriber| {
        let known = subscriber.history.now();
        let is_certain = |filter: &&str| known.filters.get(*filter).is_some_and(|filter| filter.is_certain);
        subscriber.greeting.is_some_and(|greeting| greeting.is_present)
            && subscriber.character.filters.iter().all(is_certain)
    };
    let (members, others): (Vec<_>, Vec<_>) = world
        .subscribers
        .iter()
        .filter(is_to_get_it)
        .partition(|subscriber| subscriber.character.is_member());
    // The group may give a message to a member of which it is uncertain whether it has joined.
    let of_group = |last: &Message| {
        let mut members = world.subscribers.iter().filter(|subscriber| subscriber.character.is_member());
        members.any(|member| member.received.iter().any(|delivery| delivery.message == *last))
    };
    others.into_iter().all(has_last) && (members.is_empty() || [1, 2].map(Message::last).iter().all(of_group))
}

/// The values that may be retained on one topic.
struct Bounds {
    topic: String,
    /// Values with this QoS from the last acknowledged one on.
    values: Vec<Message>,
    /// One of the values was acknowledged.
    is_certain: bool,
}

impl Bounds {
    fn of(world: &World, publisher: u8, qos: u8) -> Self {
        let now = world.publishers[usize::from(publisher)].history.now();
        let messages = (1..=now.last).map(|number| Message::of_publisher(publisher, number));
        let mut values: Vec<Message> =
            messages.filter(|message| message.is_retained() && message.qos() == qos).collect();
        let last = values.iter().rposition(|value| now.acknowledged.contains(value));
        values.drain(..last.unwrap_or(0));
        Self { topic: format!("kept/{publisher}/{qos}"), values, is_certain: last.is_some() }
    }

    /// Whether the topic must have a retained value.
    fn is_needed(&self) -> bool {
        self.is_certain && !self.values.iter().any(|value| value.is_clearing())
    }

    fn complaint(&self, found: Option<&Option<Message>>) -> Option<String> {
        match found {
            None if self.is_needed() => Some(format!("the retained value of {}", self.topic)),
            None => None,
            Some(Some(value)) if self.values.contains(value) => None,
            Some(value) => {
                let number = value.map_or(0, Message::number);
                Some(format!("a newer retained value of {} than {number}", self.topic))
            }
        }
    }
}

/// Returns all retained values of publishers, and waits for the needed ones.
fn retained(
    broker: &Broker,
    needed: &BTreeSet<&str>,
    patience: Duration,
) -> BTreeMap<String, Option<Message>> {
    let mut line: RawClient = broker.client(Version::V5, "collector").into_raw();
    line.send(&packet::subscribe(Version::V5, 1, "kept/#"));
    let mut found = BTreeMap::new();
    let end = Instant::now() + patience;
    let mut is_asked = false;
    while Instant::now() < end {
        let (packets, is_closed) = line.arrived();
        for packet in packets {
            if packet[0] & 0xF0 == 0x30 {
                let publish = conversation::Message::parse(Version::V5, &packet);
                found.insert(publish.topic.clone(), Message::parse(&publish.topic, &publish.payload));
            } else if packet[0] == 0xD0 {
                return found;
            }
        }
        if is_closed {
            break;
        }
        // PINGRESP follows all other retained values that the broker sends. Values after it do no harm.
        if !is_asked && needed.iter().all(|topic| found.contains_key(*topic)) {
            is_asked = true;
            line.send(&[0xC0, 0x00]);
        }
        wait_for_any(&[&line], Duration::from_millis(20));
    }
    found
}
