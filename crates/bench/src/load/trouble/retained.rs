//! A subscriber that asks for everything that is retained.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Delivery, Packet, Publish, Qos, Role, Version};

use super::super::{Outcome, Part, unexpected};
use super::{Course, Patience, Stage, Trouble, Troubled};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::{Exchanges, Quality, packet_id};
use crate::frames::for_each_packet;
use crate::message::RunId;
use crate::protocol::{packet_in, to_bytes, topic_name};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::Client;

/// Topics on the last level of one branch, so that the tree is not one long list.
const TOPICS_PER_BRANCH: u64 = 1_000;

/// Messages that one write carries.
const PER_WRITE: u64 = 64;

/// Messages that may be unacknowledged while they are stored: no server has a smaller Receive Maximum.
const WINDOW: u16 = 20;

/// Bytes of payload besides the number.
const NUMBER_LEN: usize = 8;

/// Numbers of the clients.
const PUBLISHER: usize = 0;
const READER: usize = 1;

/// Many retained messages, and one reader that asks for all of them.
#[derive(Debug, Clone)]
pub(crate) struct RetainedFlood {
    pub(crate) messages: u64,
    pub(crate) payload_len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The same messages, published to the reader at QoS 0 while it listens: what the reading alone costs.
    Live,
    Retained,
}

const FORMS: [(Form, &str); 2] = [(Form::Live, "fed live"), (Form::Retained, "retained")];

/// Connections: the publisher, and the reader once it is time.
#[derive(Debug)]
pub(crate) struct Flood {
    plan: RetainedFlood,
    form: Form,
    run: RunId,
    version: Version,
    stage: Arc<Course>,
    exchanges: Exchanges,
    /// Messages that were published.
    sent: u64,
    /// When the reader sent its SUBSCRIBE.
    asked: Option<Instant>,
    /// SUBACK has arrived.
    is_subscribed: bool,
    /// From asking to the latest arrival.
    took: Duration,
    received: Sequence,
    patience: Patience,
    is_over: bool,
    batch: Vec<u8>,
    payload: Vec<u8>,
    stray: Tally,
}

impl Trouble for RetainedFlood {
    type Part = Flood;

    fn title(&self, version: Version) -> String {
        let Self { messages, payload_len } = self;
        format!("retained-flood: MQTT {version}, one subscriber asks for {messages} × {payload_len} B")
    }

    fn forms(&self) -> Vec<String> {
        FORMS.iter().map(|(_, name)| (*name).to_owned()).collect()
    }

    fn connections(&self) -> u64 {
        2
    }

    fn suits_relay(&self, form: usize) -> bool {
        FORMS[form].0 == Form::Live
    }

    fn part(&self, form: usize, run: RunId, version: Version, stage: Arc<Course>) -> Flood {
        Flood {
            plan: self.clone(),
            form: FORMS[form].0,
            run,
            version,
            stage,
            exchanges: Exchanges::new(version),
            sent: 0,
            asked: None,
            is_subscribed: false,
            took: Duration::ZERO,
            received: Sequence::new(self.messages),
            patience: Patience::new(),
            is_over: false,
            batch: Vec::new(),
            payload: vec![0; self.payload_len.max(NUMBER_LEN)],
            stray: Tally::default(),
        }
    }
}

impl Flood {
    fn quality(&self) -> Quality {
        match self.form {
            Form::Live => Quality::AT_MOST_ONCE,
            Form::Retained => Quality { qos: Qos::AtLeastOnce, window: WINDOW },
        }
    }

    fn client(&self, number: usize) -> Client {
        match number {
            PUBLISHER => Client::new(self.run, number, None, self.quality()),
            _ => Client::new(self.run, number, Some(format!("{}/#", self.root())), Quality::AT_MOST_ONCE),
        }
    }

    /// Above all topics of the run: what an earlier one has left is not asked for.
    fn root(&self) -> String {
        format!("flood/{:x}", self.run)
    }

    /// Publishes as many messages as one write carries and the window has room for.
    fn publish_some(&mut self, connections: &mut Connections) -> Result<()> {
        let room = self.quality().room(&self.exchanges);
        let count = PER_WRITE.min(self.plan.messages - self.sent).min(room);
        self.batch.clear();
        let root = self.root();
        for number in self.sent..self.sent + count {
            self.append(number, &root);
        }
        self.exchanges.note_sent(count, self.quality().qos);
        self.sent += count;
        connections.send(PUBLISHER, &self.batch)
    }

    fn append(&mut self, number: u64, root: &str) {
        self.payload[..NUMBER_LEN].copy_from_slice(&number.to_le_bytes());
        let topic = format!("{root}/{}/{}", number / TOPICS_PER_BRANCH, number % TOPICS_PER_BRANCH);
        let delivery = match self.form {
            Form::Live => Delivery::AtMostOnce,
            Form::Retained => Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false },
        };
        let publish = Publish {
            delivery,
            retain: self.form == Form::Retained,
            ..Publish::new(topic_name(&topic), &self.payload)
        };
        self.batch.extend_from_slice(&to_bytes(publish, self.version));
    }

    /// Goes on with what is to be done before the reader asks, and then lets it in.
    fn prepare(&mut self, connections: &mut Connections) -> Result<Next> {
        let is_stored = self.form == Form::Live || self.sent == self.plan.messages;
        if is_stored && self.exchanges.are_finished() {
            self.stage.enter(Stage::Running);
            connections.open(&self.client(READER).connect(self.version))?;
        } else if self.sent < self.plan.messages && !connections.is_behind(PUBLISHER) {
            while self.sent < self.plan.messages && self.quality().room(&self.exchanges) > 0 {
                self.publish_some(connections)?;
            }
        }
        Ok(Next::WhenWoken)
    }

    /// Feeds a reader that listens, as fast as the server takes it.
    fn feed(&mut self, connections: &mut Connections) -> Result<Next> {
        while self.is_subscribed && self.sent < self.plan.messages && !connections.is_behind(PUBLISHER) {
            self.publish_some(connections)?;
            if self.sent.is_multiple_of(16 * PER_WRITE) {
                // The reader reads between.
                return Ok(Next::Now);
            }
        }
        Ok(Next::WhenWoken)
    }

    fn handle_message(&mut self, packet: &[u8], asked: Instant) -> Result<()> {
        let arrival = self.number_in(packet).map(|number| self.received.record(number));
        match arrival {
            Some(Arrival::New) => self.took = asked.elapsed(),
            Some(Arrival::Duplicate) => {}
            Some(Arrival::Unknown) | None => unexpected(packet, self.version, &mut self.stray)?,
        }
        Ok(())
    }

    /// The number of a message, which has the right shape: type, RETAIN, length.
    fn number_in(&self, packet: &[u8]) -> Option<u64> {
        let first = if self.form == Form::Retained { 0x31 } else { 0x30 };
        let payload = packet.get(packet.len().checked_sub(self.payload.len())?..)?;
        (packet[0] == first).then(|| payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))?
    }

    fn look_whether_it_is_over(&mut self) {
        let is_everything_here = self.received.arrived() == self.plan.messages;
        if self.asked.is_some() && (is_everything_here || self.patience.is_at_its_end()) {
            self.is_over = true;
            self.stage.enter(Stage::Over);
        }
    }
}

impl Load for Flood {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        self.patience.renew();
        if connection == PUBLISHER {
            return for_each_packet(bytes, |packet| match self.exchanges.take(packet, &mut self.batch)? {
                true => Ok(()),
                false => unexpected(packet, self.version, &mut self.stray),
            });
        }
        for_each_packet(bytes, |packet| {
            if let Some(asked) = self.asked.filter(|_| packet[0] >> 4 == 3) {
                return self.handle_message(packet, asked);
            }
            match packet_in(packet, Some(self.version), Role::Server)? {
                Packet::SubAck(answer) if answer.reasons.iter().all(|reason| !reason.is_error()) => {
                    self.is_subscribed = true;
                    Ok(())
                }
                Packet::ConnAck(_) => {
                    self.client(READER).handle_packet(packet, self.version, connection, connections)?;
                    self.asked = Some(Instant::now());
                    Ok(())
                }
                other => Err(Error::Server(format!("answered {other} to a subscriber"))),
            }
        })
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        match (self.stage.now(), self.form) {
            (Stage::Preparing, _) if self.patience.is_at_its_end() => {
                Err(Error::Server(format!("stopped taking retained messages after {}", self.sent)))
            }
            (Stage::Preparing, _) => self.prepare(connections),
            (Stage::Running, form) => {
                self.look_whether_it_is_over();
                if form == Form::Live { self.feed(connections) } else { Ok(Next::WhenWoken) }
            }
            (Stage::Over, _) => Ok(Next::WhenWoken),
        }
    }

    fn arrived(&self) -> u64 {
        self.received.arrived()
    }

    fn expected(&self) -> u64 {
        self.plan.messages
    }

    fn is_complete(&self) -> bool {
        self.is_over
    }
}

impl Part for Flood {
    fn clients(&self) -> Vec<Client> {
        vec![self.client(PUBLISHER)]
    }

    fn packet_len_max(&self) -> usize {
        // Topic, fixed header and properties are short.
        self.payload.len() + 256
    }

    fn outcome(self) -> Result<Outcome> {
        // In which order retained messages come is the server's business.
        let tally = Tally { out_of_order: 0, ..self.received.tally() };
        let mut all = self.stray;
        all.add(tally);
        let troubled = Troubled {
            expected: self.plan.messages,
            received: self.received.arrived(),
            took: self.took,
            out_of_order: 0,
        };
        Ok(Outcome { tally: all, troubled: Some(troubled), ..Outcome::default() })
    }
}
