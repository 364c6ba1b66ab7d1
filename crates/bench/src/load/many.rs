//! A ramp of connections of which each publishes now and then: what a crowd costs that hardly talks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::{Qos, Version};

use super::pingtest::golden_fraction;
use super::{Outcome, PATIENCE, Part, Test, latencies, nanos, unexpected};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::{Exchanges, Quality};
use crate::frames::for_each_packet;
use crate::message::{RunId, Stream};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::{Client, IN_FLIGHT_MAX};

/// A ramp, as a test.
#[derive(Debug, Clone)]
pub(crate) struct ManyTest {
    pub(crate) sizes: Vec<u32>,
    /// Connections opened per second.
    pub(crate) ramp_per_sec: f64,
    /// Time between two messages of a connection.
    pub(crate) interval: Duration,
    /// Duration of publishing after all are connected.
    pub(crate) duration: Duration,
    pub(crate) payload_len: usize,
    pub(crate) quality: Quality,
    pub(crate) version: Version,
}

/// One thread's part. Each client subscribes to a topic of its own and publishes to it.
#[derive(Debug)]
pub(crate) struct Many {
    members: Vec<Member>,
    opened: usize,
    ready: usize,
    ramp_per_sec: f64,
    interval: Duration,
    duration: Duration,
    quality: Quality,
    version: Version,
    started: Option<Instant>,
    /// When publishing ends: known once all are connected.
    ends: Option<Instant>,
    /// When which member is to publish next.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    arrived: u64,
    published: u64,
    latency: Histogram<u64>,
    stray: Tally,
    /// The next packet: made once, and reused.
    batch: Vec<u8>,
}

#[derive(Debug)]
struct Member {
    number: u32,
    client: Client,
    stream: Stream,
    received: Sequence,
    exchanges: Exchanges,
    is_ready: bool,
    published: u64,
    /// When the first message was due.
    first_due: Instant,
    /// When the latest message was published.
    latest: Instant,
}

impl Test for ManyTest {
    type Part = Many;

    fn title(&self) -> String {
        let Self { interval, duration, payload_len, quality, version, .. } = self;
        format!(
            "many: MQTT {version}, {quality}, {payload_len} B per connection every {interval:?} for {duration:?}"
        )
    }

    fn qos(&self) -> Qos {
        self.quality.qos
    }

    fn sizes(&self) -> Vec<String> {
        self.sizes.iter().map(|size| format!("{size} connections")).collect()
    }

    fn connections(&self, size: usize) -> u64 {
        u64::from(self.sizes[size])
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Many> {
        let part = |worker| Many {
            members: (0..self.sizes[size])
                .skip(worker)
                .step_by(workers)
                .map(|n| self.member(run, n))
                .collect(),
            opened: 0,
            ready: 0,
            ramp_per_sec: self.ramp_per_sec / workers as f64,
            interval: self.interval,
            duration: self.duration,
            quality: self.quality,
            version: self.version,
            started: None,
            ends: None,
            due: BinaryHeap::new(),
            arrived: 0,
            published: 0,
            latency: latencies(),
            stray: Tally::default(),
            batch: Vec::new(),
        };
        (0..workers).map(part).collect()
    }
}

impl ManyTest {
    fn member(&self, run: RunId, number: u32) -> Member {
        let topic = format!("many/{number}");
        Member {
            number,
            stream: Stream::new(run, number, &topic, self.payload_len, self.quality.qos, self.version),
            client: Client::new(run, number as usize, Some(topic), self.quality),
            received: Sequence::new(0),
            exchanges: Exchanges::new(self.version),
            is_ready: false,
            published: 0,
            first_due: Instant::now(),
            latest: Instant::now(),
        }
    }
}

impl Many {
    /// Opens the connections that the ramp has come to, as far as the server keeps up.
    fn open_due(&mut self, now: Instant, connections: &mut Connections) -> Result<()> {
        let started = *self.started.get_or_insert(now);
        let ramp = (now - started).as_secs_f64() * self.ramp_per_sec;
        while self.opened < self.members.len()
            && self.opened as f64 <= ramp
            && self.opened - self.ready < IN_FLIGHT_MAX
        {
            connections.open(&self.members[self.opened].client.connect(self.version))?;
            self.opened += 1;
        }
        Ok(())
    }

    /// Publishes what is due; a message is never put off because an earlier one has not arrived.
    fn publish_due(&mut self, now: Instant, connections: &mut Connections) -> Result<()> {
        while let Some(&Reverse((due, at))) = self.due.peek() {
            if due > now {
                break;
            }
            self.due.pop();
            if self.ends.is_some_and(|ends| due >= ends) {
                continue;
            }
            let member = &mut self.members[at];
            self.batch.clear();
            member.stream.append(member.published, &mut self.batch);
            connections.send(at, &self.batch)?;
            member.exchanges.note_sent(1, self.quality.qos);
            member.received.expect_another();
            member.published += 1;
            member.latest = now;
            self.published += 1;
            self.due.push(Reverse((due + self.interval, at)));
        }
        Ok(())
    }

    fn set_up(&mut self, at: usize, packet: &[u8], connections: &mut Connections) -> Result<()> {
        let member = &mut self.members[at];
        if !member.client.handle_packet(packet, self.version, at, connections)? {
            return Ok(());
        }
        let now = Instant::now();
        member.is_ready = true;
        member.first_due = now + self.interval.mul_f64(golden_fraction(member.number));
        self.due.push(Reverse((member.first_due, at)));
        self.ready += 1;
        if self.ready == self.members.len() {
            self.ends = Some(now + self.duration);
        }
        Ok(())
    }

    fn handle_message(&mut self, at: usize, packet: &[u8]) -> Result<()> {
        let member = &mut self.members[at];
        if member.exchanges.take(packet, &mut self.batch)? {
            return Ok(());
        }
        let arrival = member.stream.number_in(packet).map(|number| (number, member.received.record(number)));
        match arrival {
            Some((number, Arrival::New)) => {
                self.arrived += 1;
                let started = member.published_at(number, self.interval);
                self.latency.saturating_record(nanos(started.elapsed()));
                Ok(())
            }
            Some((_, Arrival::Duplicate)) => Ok(()),
            Some((_, Arrival::Unknown)) | None => unexpected(packet, self.version, &mut self.stray),
        }
    }
}

impl Member {
    /// When a message was published, or, if others have been since, when it was due.
    fn published_at(&self, number: u64, interval: Duration) -> Instant {
        if number + 1 == self.published {
            return self.latest;
        }
        let intervals = u32::try_from(number).unwrap_or(u32::MAX);
        self.first_due + interval.saturating_mul(intervals)
    }
}

impl Load for Many {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        self.batch.clear();
        let used = for_each_packet(bytes, |packet| match self.members[connection].is_ready {
            true => self.handle_message(connection, packet),
            false => self.set_up(connection, packet, connections),
        })?;
        if !self.batch.is_empty() {
            connections.send(connection, &self.batch)?;
        }
        Ok(used)
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        let now = Instant::now();
        self.open_due(now, connections)?;
        self.publish_due(now, connections)?;
        let of_ramp = Duration::from_secs_f64(1.0 / self.ramp_per_sec);
        let next_due = self.due.peek().map(|Reverse((due, _))| due.saturating_duration_since(now));
        Ok(match (self.opened < self.members.len(), next_due) {
            (true, Some(due)) => Next::After(due.min(of_ramp)),
            (true, None) => Next::After(of_ramp),
            (false, Some(due)) => Next::After(due),
            (false, None) => Next::WhenWoken,
        })
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn expected(&self) -> u64 {
        // An estimate for the progress bar: how long the ramp takes is the server's affair too.
        let per_member = self.duration.as_millis() / self.interval.as_millis().max(1);
        u64::try_from(per_member).unwrap_or(u64::MAX).saturating_mul(self.members.len() as u64)
    }

    fn is_complete(&self) -> bool {
        self.ends.is_some()
            && self.due.is_empty()
            && self.arrived == self.published
            && self.members.iter().all(|member| member.exchanges.are_finished())
    }
}

impl Part for Many {
    fn clients(&self) -> Vec<Client> {
        // They connect while the clock runs.
        Vec::new()
    }

    fn packet_len_max(&self) -> usize {
        self.members.iter().map(|member| member.stream.packet_len()).max().unwrap_or(0)
    }

    fn patience(&self) -> Duration {
        PATIENCE + self.interval
    }

    fn outcome(self) -> Result<Outcome> {
        if self.ready < self.members.len() {
            let (ready, all) = (self.ready, self.members.len());
            return Err(Error::Server(format!("let {ready} of {all} clients connect and subscribe")));
        }
        if self.arrived == self.published && !self.is_complete() {
            return Err(Error::unacknowledged());
        }
        let mut tally = self.stray;
        self.members.iter().for_each(|member| tally.add(member.received.tally()));
        Ok(Outcome { messages: self.arrived, tally, latency: Some(self.latency), ..Outcome::default() })
    }
}
