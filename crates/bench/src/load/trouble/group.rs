//! A shared group of which one member survives.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Qos, Version};

use super::super::{Outcome, Part, unexpected};
use super::{Course, Patience, Stage, Trouble, Troubled};
use crate::connections::{Connections, Load, Next};
use crate::error::Result;
use crate::exchange::{Exchanges, Quality};
use crate::frames::for_each_packet;
use crate::message::{RunId, STAMP_LEN, Stream, claimed_stream};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::Client;

/// Filter of all members.
const JOBS: &str = "$share/pond/jobs/+";

/// Messages of one key may be in order; each key is a publisher with a topic of its own.
const KEYS: usize = 16;

/// The survivor hears nothing more for so long before the others are taken to hold the rest.
const QUIET: Duration = Duration::from_millis(500);

/// Messages of a publisher that may be unacknowledged: no server has a smaller Receive Maximum.
const QUALITY: Quality = Quality { qos: Qos::AtLeastOnce, window: 20 };

/// Connections: the publishers are the first ones.
const SURVIVOR: usize = KEYS;

/// Required order of the messages of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dispatch {
    /// Nothing: members take turns, and how many messages came after a later one of their key is only told
    RoundRobin,
    /// The messages of one publisher come in their order, also when their member is lost
    KeyOrdered,
}

/// A group whose members but one take messages and acknowledge none, until their connections are lost.
#[derive(Debug, Clone)]
pub(crate) struct SharedQueue {
    pub(crate) messages: u64,
    pub(crate) members: u32,
    pub(crate) dispatch: Dispatch,
}

/// Connections: the publishers, the survivor, the others.
#[derive(Debug)]
pub(crate) struct Group {
    plan: SharedQueue,
    run: RunId,
    version: Version,
    stage: Arc<Course>,
    streams: Vec<Stream>,
    /// Of the publishers and of the survivor.
    exchanges: Vec<Exchanges>,
    /// In order for each key.
    sent: [u64; KEYS],
    received: Vec<Sequence>,
    arrived: u64,
    began: Option<Instant>,
    latest: Instant,
    took: Duration,
    are_others_lost: bool,
    patience: Patience,
    is_over: bool,
    batch: Vec<u8>,
    stray: Tally,
}

impl Trouble for SharedQueue {
    type Part = Group;

    fn title(&self, version: Version) -> String {
        let Self { messages, members, dispatch } = self;
        let order = match dispatch {
            Dispatch::RoundRobin => "in any order",
            Dispatch::KeyOrdered => "in the order of each",
        };
        format!(
            "shared-queue: MQTT {version}, {messages} messages of {KEYS} publishers, {order}, at QoS 1 to a group of {members}, all but one of which are lost with what they took"
        )
    }

    fn forms(&self) -> Vec<String> {
        vec!["shared queue".to_owned()]
    }

    fn connections(&self) -> u64 {
        u64::from(self.members) + KEYS as u64
    }

    fn suits_relay(&self, _: usize) -> bool {
        false
    }

    fn part(&self, _: usize, run: RunId, version: Version, stage: Arc<Course>) -> Group {
        let stream =
            |key: u32| Stream::new(run, key, &format!("jobs/{key}"), STAMP_LEN, QUALITY.qos, version);
        let of_key = |key| Sequence::new(self.of_key(key));
        Group {
            plan: self.clone(),
            run,
            version,
            stage,
            streams: (0..).map(stream).zip(0..KEYS).map(|(stream, _)| stream).collect(),
            exchanges: (0..=SURVIVOR).map(|_| Exchanges::new(version)).collect(),
            sent: [0; KEYS],
            received: (0..KEYS).map(of_key).collect(),
            arrived: 0,
            began: None,
            latest: Instant::now(),
            took: Duration::ZERO,
            are_others_lost: false,
            patience: Patience::new(),
            is_over: false,
            batch: Vec::new(),
            stray: Tally::default(),
        }
    }
}

impl SharedQueue {
    /// Number of messages that one publisher sends.
    fn of_key(&self, key: usize) -> u64 {
        let keys = KEYS as u64;
        (self.messages + keys - 1 - key as u64) / keys
    }
}

impl Group {
    /// The connections of those that acknowledge nothing.
    fn others(&self) -> Range<usize> {
        SURVIVOR + 1..SURVIVOR + self.plan.members as usize
    }

    fn publish_some(&mut self, key: usize, connections: &mut Connections) -> Result<()> {
        let sent = self.sent[key];
        let count = QUALITY.room(&self.exchanges[key]).min(self.plan.of_key(key) - sent);
        if count == 0 {
            return Ok(());
        }
        self.batch.clear();
        for number in sent..sent + count {
            self.streams[key].append(number, &mut self.batch);
        }
        self.exchanges[key].note_sent(count, QUALITY.qos);
        self.sent[key] += count;
        connections.send(key, &self.batch)
    }

    fn handle_message(&mut self, packet: &[u8]) -> Result<()> {
        let key = claimed_stream(packet, STAMP_LEN).filter(|key| *key < self.streams.len());
        // A message that another member had may say that it was sent before.
        let arrival = key.and_then(|key| {
            let number = self.streams[key].number_in_copy(packet)?;
            Some(self.received[key].record(number))
        });
        match arrival {
            Some(Arrival::New) => {
                self.arrived += 1;
                self.took = self.began.map(|began| began.elapsed()).unwrap_or_default();
            }
            Some(Arrival::Duplicate) => {}
            Some(Arrival::Unknown) | None => unexpected(packet, self.version, &mut self.stray)?,
        }
        Ok(())
    }

    /// When the survivor has what it gets while the others hold theirs, they are lost.
    fn lose_others(&mut self, connections: &mut Connections) {
        let is_quiet = self.sent.iter().sum::<u64>() == self.plan.messages && self.latest.elapsed() > QUIET;
        if is_quiet && !self.are_others_lost {
            self.are_others_lost = true;
            self.patience.renew();
            self.others().for_each(|other| connections.cut(other));
        }
    }
}

impl Load for Group {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        if self.others().contains(&connection) {
            return for_each_packet(bytes, |_| Ok(()));
        }
        self.latest = Instant::now();
        self.patience.renew();
        self.batch.clear();
        let mut answers = std::mem::take(&mut self.batch);
        let used = for_each_packet(bytes, |packet| {
            if self.exchanges[connection].take(packet, &mut answers)? {
                return Ok(());
            }
            match connection {
                SURVIVOR => self.handle_message(packet),
                _ => unexpected(packet, self.version, &mut self.stray),
            }
        })?;
        if !answers.is_empty() {
            connections.send(connection, &answers)?;
        }
        self.batch = answers;
        Ok(used)
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        self.began.get_or_insert_with(Instant::now);
        if self.stage.now() == Stage::Preparing {
            self.stage.enter(Stage::Running);
        }
        (0..KEYS).try_for_each(|key| self.publish_some(key, connections))?;
        self.lose_others(connections);
        if !self.is_over && (self.arrived == self.plan.messages || self.patience.is_at_its_end()) {
            self.is_over = true;
            self.stage.enter(Stage::Over);
        }
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn expected(&self) -> u64 {
        self.plan.messages
    }

    fn is_complete(&self) -> bool {
        self.is_over
    }
}

impl Part for Group {
    fn clients(&self) -> Vec<Client> {
        let client = |number| {
            let filter = (number >= SURVIVOR).then(|| JOBS.to_owned());
            Client::new(self.run, number, filter, QUALITY)
        };
        (0..SURVIVOR + self.plan.members as usize).map(client).collect()
    }

    fn packet_len_max(&self) -> usize {
        self.streams.iter().map(Stream::packet_len).max().unwrap_or(0)
    }

    fn outcome(self) -> Result<Outcome> {
        let mut tally = self.stray;
        self.received.iter().for_each(|sequence| tally.add(sequence.tally()));
        let troubled = Troubled {
            expected: self.plan.messages,
            received: self.arrived,
            took: self.took,
            out_of_order: tally.out_of_order,
        };
        if self.plan.dispatch == Dispatch::RoundRobin {
            // It is told, and is no fault.
            tally.out_of_order = 0;
        }
        Ok(Outcome { tally, troubled: Some(troubled), ..Outcome::default() })
    }
}
