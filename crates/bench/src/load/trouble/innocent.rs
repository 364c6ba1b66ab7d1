//! Clients that want little: pairs that exchange messages on schedule, and measure how long each takes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::{Qos, Version};

use super::super::{Outcome, Part, latencies, nanos, unexpected};
use super::{Course, Stage};
use crate::connections::{Connections, Load, Next};
use crate::error::Result;
use crate::exchange::Quality;
use crate::frames::for_each_packet;
use crate::message::{RunId, STAMP_LEN, Stream};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::Client;

/// The first of their client identifiers and streams: far from those of any trouble.
const FIRST_NUMBER: u32 = 90_000_000;

/// Number of innocent clients and of their messages.
#[derive(Debug, Clone)]
pub(crate) struct InnocentPlan {
    pub(crate) pairs: u32,
    /// Messages per second of all pairs together.
    pub(crate) rate: f64,
    /// Duration of their exchange without trouble.
    pub(crate) duration: Duration,
}

/// All innocent clients of a run. Connections: the subscribers, then the publishers.
#[derive(Debug)]
pub(crate) struct Innocents {
    run: RunId,
    pairs: Vec<Pair>,
    version: Version,
    stage: Arc<Course>,
    /// Without trouble they end by themselves.
    ends_after: Option<Duration>,
    interval: Duration,
    /// When the first message was published.
    started: Option<Instant>,
    /// When the next message is due, and which pair publishes it.
    due: Instant,
    turn: usize,
    has_ended: bool,
    arrived: u64,
    published: u64,
    latency: Histogram<u64>,
    stray: Tally,
    batch: Vec<u8>,
}

#[derive(Debug)]
struct Pair {
    stream: Stream,
    received: Sequence,
    published: u64,
    /// When the messages were published that have not arrived.
    under_way: VecDeque<(u64, Instant)>,
}

impl InnocentPlan {
    pub(crate) fn connections(&self) -> u64 {
        2 * u64::from(self.pairs)
    }

    pub(super) fn part(&self, run: RunId, version: Version, stage: Arc<Course>, is_alone: bool) -> Innocents {
        let pair = |number| {
            let topic = format!("innocent/{number}");
            let id = FIRST_NUMBER + number;
            let stream = Stream::new(run, id, &topic, STAMP_LEN, Qos::AtMostOnce, version);
            Pair { stream, received: Sequence::new(0), published: 0, under_way: VecDeque::new() }
        };
        Innocents {
            run,
            pairs: (0..self.pairs).map(pair).collect(),
            version,
            stage,
            ends_after: is_alone.then_some(self.duration),
            interval: Duration::from_secs_f64(1.0 / self.rate),
            started: None,
            due: Instant::now(),
            turn: 0,
            has_ended: false,
            arrived: 0,
            published: 0,
            latency: latencies(),
            stray: Tally::default(),
            batch: Vec::new(),
        }
    }
}

impl fmt::Display for InnocentPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} innocent pairs with {} messages/s", self.pairs, self.rate)
    }
}

impl Innocents {
    fn publish_due(&mut self, now: Instant, connections: &mut Connections) -> Result<()> {
        while self.due <= now {
            let pair = &mut self.pairs[self.turn];
            self.batch.clear();
            pair.stream.append(pair.published, &mut self.batch);
            pair.under_way.push_back((pair.published, Instant::now()));
            pair.received.expect_another();
            pair.published += 1;
            self.published += 1;
            connections.send(self.pairs.len() + self.turn, &self.batch)?;
            self.turn = (self.turn + 1) % self.pairs.len();
            self.due += self.interval;
        }
        Ok(())
    }

    fn handle_message(&mut self, at: usize, packet: &[u8]) -> Result<()> {
        let pair = &mut self.pairs[at];
        let Some(number) = pair.stream.number_in(packet) else {
            return unexpected(packet, self.version, &mut self.stray);
        };
        match pair.received.record(number) {
            Arrival::New => self.arrived += 1,
            Arrival::Duplicate => return Ok(()),
            Arrival::Unknown => return unexpected(packet, self.version, &mut self.stray),
        }
        while let Some(&(first, published)) = pair.under_way.front().filter(|(first, _)| *first <= number) {
            pair.under_way.pop_front();
            if first == number {
                self.latency.saturating_record(nanos(published.elapsed()));
            }
        }
        Ok(())
    }

    fn is_over(&self, started: Instant, now: Instant) -> bool {
        match self.ends_after {
            Some(duration) => now - started >= duration,
            None => self.stage.now() == Stage::Over,
        }
    }
}

impl Load for Innocents {
    fn receive(&mut self, connection: usize, bytes: &[u8], _: &mut Connections) -> Result<usize> {
        for_each_packet(bytes, |packet| match connection < self.pairs.len() {
            true => self.handle_message(connection, packet),
            false => unexpected(packet, self.version, &mut self.stray),
        })
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        if self.stage.now() == Stage::Preparing {
            return Ok(Next::After(self.interval));
        }
        let now = Instant::now();
        if self.started.is_none() {
            self.due = now;
        }
        let started = *self.started.get_or_insert(now);
        self.has_ended |= self.is_over(started, now);
        if self.has_ended {
            return Ok(Next::WhenWoken);
        }
        self.publish_due(now, connections)?;
        Ok(Next::After(self.due.saturating_duration_since(Instant::now())))
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn expected(&self) -> u64 {
        let secs = self.ends_after.unwrap_or_default().as_secs_f64();
        let expected = (secs / self.interval.as_secs_f64()).round();
        // An estimate for the progress bar.
        Duration::try_from_secs_f64(expected).map_or(0, |count| count.as_secs())
    }

    fn is_complete(&self) -> bool {
        self.has_ended && self.arrived == self.published
    }
}

impl Part for Innocents {
    fn clients(&self) -> Vec<Client> {
        let pairs = self.pairs.len();
        let client = |at: usize| {
            let filter = (at < pairs).then(|| format!("innocent/{at}"));
            Client::new(self.run, FIRST_NUMBER as usize + at, filter, Quality::AT_MOST_ONCE)
        };
        (0..2 * pairs).map(client).collect()
    }

    fn packet_len_max(&self) -> usize {
        self.pairs.iter().map(|pair| pair.stream.packet_len()).max().unwrap_or(0)
    }

    fn outcome(self) -> Result<Outcome> {
        let mut tally = self.stray;
        self.pairs.iter().for_each(|pair| tally.add(pair.received.tally()));
        Ok(Outcome { tally, latency: Some(self.latency), ..Outcome::default() })
    }
}
