//! The clients, each with its connection and its history.

use std::collections::{BTreeSet, VecDeque};

use super::history::{History, Knowledge, Step};
use super::message::Message;
use super::publisher::{PublisherStep, Publishing, WINDOW};
use super::subscriber::{Delivery, SubscriberStep, Subscribing};
use super::world::Clock;
use crate::conversation::{self, PUBACK, PUBCOMP, PUBREC, PUBREL, lasting};
use crate::packet::{self, Connect, Will};
use crate::{Broker, Random, RawClient, Version};

const CONNACK: u8 = 0x20;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xB0;
/// The packet identifier of all requests. A subscriber has only one request at a time.
const REQUEST_ID: u16 = 60_000;

/// A client, which may have no connection at the moment.
pub(crate) trait Party {
    fn line(&mut self) -> &mut Option<RawClient>;
    fn hear(&mut self, packet: &[u8], clock: &Clock);
}

pub(crate) struct Publisher {
    pub(crate) id: u8,
    pub(crate) history: History<Publishing>,
    line: Option<RawClient>,
    /// The content of CONNACK on this connection, after it has arrived.
    pub(crate) greeting: Option<Greeting>,
}

/// The subscriptions and the behaviour of a subscriber.
#[derive(Debug)]
pub(crate) struct Character {
    pub(crate) client_id: &'static str,
    version: Version,
    pub(crate) filters: &'static [&'static str],
    pub(crate) qos: u8,
    /// The subscriber leaves with a probability of 1 in this number per turn; 0 means never.
    leaves_one_in: usize,
    /// The subscriber returns with a probability of 1 in this number per turn; 0 means never.
    returns_one_in: usize,
    /// Filters that the subscriber adds and removes at random.
    pub(crate) changes: &'static [&'static str],
}

/// All subscribers. Queues fill up for subscribers that are away. The broker has to copy old segments for a
/// subscriber that never returns.
pub(crate) const CHARACTERS: &[Character] = &[
    Character { leaves_one_in: 300, returns_one_in: 10, ..character("heron", &["data/#", "will/#"]) },
    Character {
        version: Version::V3_1_1,
        qos: 1,
        leaves_one_in: 40,
        returns_one_in: 40,
        ..character("newt", &["data/#"])
    },
    Character { leaves_one_in: 30, returns_one_in: 50, ..character("toad", &["data/#"]) },
    Character {
        version: Version::V3_1_1,
        leaves_one_in: 1,
        ..character("carp", &["data/0/0", "data/0/last"])
    },
    Character { leaves_one_in: 200, returns_one_in: 10, ..character("frog", &[SHARED]) },
    Character { leaves_one_in: 40, returns_one_in: 40, ..character("tadpole", &[SHARED]) },
    Character {
        leaves_one_in: 100,
        returns_one_in: 5,
        changes: &["flip/0", "flip/1", "flip/2", "flip/+", "$share/flips/flip/#"],
        ..character("flea", &["data/0/last"])
    },
];
const SHARED: &str = "$share/frogs/data/#";

const fn character(client_id: &'static str, filters: &'static [&'static str]) -> Character {
    Character {
        client_id,
        version: Version::V5,
        filters,
        qos: 2,
        leaves_one_in: 0,
        returns_one_in: 0,
        changes: &[],
    }
}

impl Character {
    /// Whether the subscriber is in the group. All members receive the group's messages together.
    pub(crate) fn is_member(&self) -> bool {
        self.filters.contains(&SHARED)
    }

    /// Whether the topic matches one of the permanent filters.
    pub(crate) fn is_for(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| match *filter {
            "data/#" | SHARED => topic.starts_with("data/"),
            "will/#" => topic.starts_with("will/"),
            name => name == topic,
        })
    }
}

pub(crate) struct Subscriber {
    pub(crate) character: &'static Character,
    pub(crate) history: History<Subscribing>,
    line: Option<RawClient>,
    /// The content of CONNACK on this connection, after it has arrived.
    pub(crate) greeting: Option<Greeting>,
    /// The wanted filters. `None` for a subscriber that only continues its subscriptions.
    pub(crate) wanted: Option<BTreeSet<&'static str>>,
    asked: Option<String>,
    /// Messages that the subscriber has not acknowledged yet.
    waiting: VecDeque<Delivery>,
    /// Messages on this connection, in the order of arrival.
    pub(crate) received: Vec<Delivery>,
    /// Topics of unknown messages on this connection.
    pub(crate) strange: Vec<String>,
    /// Number of PINGREQ without an answer.
    pings: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Greeting {
    pub(crate) is_present: bool,
}

pub(crate) struct Ghost {
    pub(crate) id: u8,
    pub(crate) history: History<Haunting>,
    line: Option<RawClient>,
}

/// The knowledge of a ghost, a client whose only message is its will.
#[derive(Debug, Clone, Default)]
pub(crate) struct Haunting {
    pub(crate) last: u32,
    /// The broker has acknowledged the connection with the last will.
    pub(crate) is_certain: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum GhostStep {
    Connecting,
    Connected,
}

impl Step for GhostStep {
    fn is_sent(&self) -> bool {
        matches!(self, Self::Connecting)
    }
}

impl Knowledge for Haunting {
    type Step = GhostStep;

    fn learn(&mut self, step: &GhostStep) {
        match step {
            GhostStep::Connecting => *self = Self { last: self.last + 1, is_certain: false },
            GhostStep::Connected => self.is_certain = true,
        }
    }
}

impl Publisher {
    pub(crate) fn new(id: u8, history: History<Publishing>) -> Self {
        Self { id, history, line: None, greeting: None }
    }

    pub(crate) fn connect(&mut self, broker: &Broker) {
        let client_id = format!("publisher {}", self.id);
        let mut line = broker.connect();
        line.send(&lasting(Version::V5, &client_id).bytes());
        self.greeting = None;
        self.line = Some(line);
    }

    /// Publishes up to `count` messages, as long as the window has room.
    pub(crate) fn publish(&mut self, count: usize, clock: &Clock) {
        for _ in 0..count {
            let now = self.history.now();
            if self.greeting.is_none() || now.unfinished.len() >= WINDOW {
                return;
            }
            let message = Message::of_publisher(self.id, now.last + 1);
            self.send(message, now.free_packet_id(), 0, clock);
        }
    }

    fn send(&mut self, message: Message, packet_id: u16, dup: u8, clock: &Clock) {
        let first = 0x30 | dup | message.qos() << 1 | u8::from(message.is_retained());
        let bytes =
            conversation::publish(Version::V5, first, packet_id, &message.topic(), &[], &message.payload());
        self.say(PublisherStep::Published(message, packet_id), &bytes, clock);
    }

    fn release(&mut self, packet_id: u16, clock: &Clock) {
        self.say(PublisherStep::Releasing, &conversation::ack(PUBREL, packet_id), clock);
    }

    fn say(&mut self, step: PublisherStep, bytes: &[u8], clock: &Clock) {
        let Some(line) = &mut self.line else { return };
        self.history.note(clock.now(), step);
        line.send(bytes);
    }

    /// Repeats unfinished exchanges in their order [MQTT-4.4.0-1, MQTT-4.6.0-1].
    fn go_on(&mut self, clock: &Clock) {
        for unfinished in self.history.now().unfinished.clone() {
            if unfinished.is_received {
                self.release(unfinished.packet_id, clock);
            } else {
                self.send(unfinished.message, unfinished.packet_id, 0x08, clock);
            }
        }
    }
}

impl Party for Publisher {
    fn line(&mut self) -> &mut Option<RawClient> {
        &mut self.line
    }

    fn hear(&mut self, packet: &[u8], clock: &Clock) {
        let now = clock.now();
        let packet_id = || u16::from_be_bytes([packet[2], packet[3]]);
        let is_refused = packet.get(4).is_some_and(|reason| *reason >= 0x80);
        match packet[0] {
            CONNACK if packet::is_accepted(packet) => {
                self.history.note(now, PublisherStep::Connected);
                self.greeting = Some(Greeting { is_present: conversation::session_present(packet) });
                self.go_on(clock);
            }
            PUBACK | PUBREC if is_refused => self.history.note(now, PublisherStep::Refused(packet_id())),
            PUBACK => self.history.note(now, PublisherStep::Acknowledged(packet_id())),
            PUBREC => {
                self.history.note(now, PublisherStep::Acknowledged(packet_id()));
                if self.history.now().is_received(packet_id()) {
                    self.release(packet_id(), clock);
                }
            }
            PUBCOMP => self.history.note(now, PublisherStep::Completed(packet_id())),
            _ => {}
        }
    }
}

impl Subscriber {
    pub(crate) fn new(character: &'static Character, history: History<Subscribing>, is_asking: bool) -> Self {
        Self {
            character,
            history,
            line: None,
            greeting: None,
            wanted: is_asking.then(|| character.filters.iter().copied().collect()),
            asked: None,
            waiting: VecDeque::new(),
            received: Vec::new(),
            strange: Vec::new(),
            pings: 0,
        }
    }

    pub(crate) fn connect(&mut self, broker: &Broker) {
        let mut line = broker.connect();
        line.send(&lasting(self.character.version, self.character.client_id).bytes());
        self.line = Some(line);
        self.greeting = None;
        self.asked = None;
        self.waiting.clear();
        self.received.clear();
        self.strange.clear();
        self.pings = 0;
    }

    /// Leaves, returns, or changes a subscription, at random according to the character.
    pub(crate) fn live(&mut self, random: &mut Random, broker: &Broker, clock: &Clock) {
        let Character { leaves_one_in, returns_one_in, changes, .. } = *self.character;
        let happens = |random: &mut Random, one_in| one_in > 0 && random.one_in(one_in);
        if self.line.is_none() {
            if happens(random, returns_one_in) {
                self.connect(broker);
            }
        } else if happens(random, leaves_one_in) {
            self.line = None;
        } else if !changes.is_empty() && self.greeting.is_some() && self.asked.is_none() && random.one_in(4) {
            let filter = random.of_list(changes);
            let wanted = self.wanted.get_or_insert_default();
            if !wanted.remove(filter) {
                wanted.insert(filter);
            }
            self.ask(clock);
        }
    }

    /// Whether the broker has acknowledged all wanted changes of subscriptions.
    pub(crate) fn is_settled(&self) -> bool {
        self.greeting.is_some() && self.asked.is_none() && self.next_request().is_none()
    }

    /// Acknowledges waiting messages in order, except the last `left`, so that some messages remain in flight.
    pub(crate) fn answer(&mut self, left: usize, clock: &Clock) {
        while self.waiting.len() > left
            && let Some(line) = &mut self.line
            && let Some(delivery) = self.waiting.pop_front()
        {
            let first = if delivery.qos == 2 { PUBREC } else { PUBACK };
            self.history.note(clock.now(), SubscriberStep::Answered(delivery));
            line.send(&conversation::ack(first, delivery.packet_id));
        }
    }

    pub(crate) fn ping(&mut self) {
        if let Some(line) = &mut self.line {
            line.send(&[0xC0, 0x00]);
            self.pings += 1;
        }
    }

    /// Whether all PINGREQ are answered, or no answer can arrive.
    pub(crate) fn has_pong(&mut self) -> bool {
        self.pings == 0 || self.line.is_none()
    }

    fn next_request(&self) -> Option<(&'static str, bool)> {
        let wanted = self.wanted.as_ref()?;
        let filters = &self.history.now().filters;
        let all = self.character.filters.iter().chain(self.character.changes);
        all.map(|filter| (*filter, wanted.contains(filter))).find(|(filter, is_wanted)| {
            filters
                .get(*filter)
                .map_or(*is_wanted, |known| known.is_wanted != *is_wanted || !known.is_certain)
        })
    }

    fn ask(&mut self, clock: &Clock) {
        let Some((filter, is_wanted)) = self.next_request() else { return };
        let Some(line) = &mut self.line else { return };
        let Character { version, qos, .. } = *self.character;
        let bytes = if is_wanted {
            let rest = conversation::filter(filter, qos);
            conversation::request(version, 0x82, REQUEST_ID, &[], &rest)
        } else {
            conversation::request(version, 0xA2, REQUEST_ID, &[], &packet::string(filter))
        };
        self.history.note(clock.now(), SubscriberStep::Asked { filter: filter.to_owned(), is_wanted });
        line.send(&bytes);
        self.asked = Some(filter.to_owned());
    }

    fn receive(&mut self, packet: &[u8], clock: &Clock) {
        let publish = conversation::Message::parse(self.character.version, packet);
        let Some(message) = Message::parse(&publish.topic, &publish.payload) else {
            self.strange.push(publish.topic);
            if let Some(line) = self.line.as_mut().filter(|_| publish.qos == 1) {
                line.send(&conversation::ack(PUBACK, publish.packet_id));
            }
            return;
        };
        let delivery = Delivery { message, qos: publish.qos, packet_id: publish.packet_id };
        self.history.note(clock.now(), SubscriberStep::Delivered(delivery));
        self.received.push(delivery);
        self.waiting.push_back(delivery);
    }
}

impl Party for Subscriber {
    fn line(&mut self) -> &mut Option<RawClient> {
        &mut self.line
    }

    fn hear(&mut self, packet: &[u8], clock: &Clock) {
        match packet[0] {
            CONNACK if packet::is_accepted(packet) => {
                self.history.note(clock.now(), SubscriberStep::Connected);
                self.greeting = Some(Greeting { is_present: conversation::session_present(packet) });
                self.ask(clock);
            }
            SUBACK | UNSUBACK => {
                // The reason code, if there is one, is the last byte. A refused subscriber repeats the request, but
                // not at once.
                let has_reason = packet[0] == SUBACK || self.character.version.is_5();
                let is_refused = has_reason && packet.last().is_some_and(|reason| *reason >= 0x80);
                if let Some(filter) = self.asked.take().filter(|_| !is_refused) {
                    self.history.note(clock.now(), SubscriberStep::Granted { filter });
                    self.ask(clock);
                }
            }
            PUBREL => {
                let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
                self.history.note(clock.now(), SubscriberStep::Released(packet_id));
                if let Some(line) = &mut self.line {
                    line.send(&conversation::ack(PUBCOMP, packet_id));
                }
            }
            0xD0 => self.pings = self.pings.saturating_sub(1),
            first if first & 0xF0 == 0x30 => self.receive(packet, clock),
            _ => {}
        }
    }
}

/// A Will Delay Interval of one second. The delay ends before the check, and possibly while the broker is down.
const DELAYED: &[u8] = b"\x18\x00\x00\x00\x01";

impl Ghost {
    pub(crate) fn new(id: u8, history: History<Haunting>) -> Self {
        Self { id, history, line: None }
    }

    /// The will that must be published if the ghost is not heard of again. `None` if the broker has not
    /// acknowledged it.
    pub(crate) fn will(&self) -> Option<Message> {
        let Haunting { last, is_certain } = *self.history.now();
        is_certain.then(|| Message::of_ghost(self.id, last))
    }

    /// Connects with another will, or disconnects without DISCONNECT, at random.
    pub(crate) fn live(&mut self, random: &mut Random, broker: &Broker, clock: &Clock) {
        if let Some(line) = self.line.take_if(|_| random.one_in(20)) {
            line.reset();
        } else if self.line.is_none() && random.one_in(20) {
            let mut line = broker.connect();
            self.history.note(clock.now(), GhostStep::Connecting);
            let message = Message::of_ghost(self.id, self.history.now().last);
            let (topic, payload) = (message.topic(), message.payload());
            let properties = if self.id.is_multiple_of(2) { DELAYED } else { &[] };
            let will = Will { qos: message.qos(), properties, ..Will::new(&topic, &payload) };
            let client_id = format!("ghost {}", self.id);
            line.send(&Connect { will: Some(will), ..lasting(Version::V5, &client_id) }.bytes());
            self.line = Some(line);
        }
    }
}

impl Party for Ghost {
    fn line(&mut self) -> &mut Option<RawClient> {
        &mut self.line
    }

    fn hear(&mut self, packet: &[u8], clock: &Clock) {
        if packet::is_accepted(packet) {
            self.history.note(clock.now(), GhostStep::Connected);
        }
    }
}
