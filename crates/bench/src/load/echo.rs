//! Clients that publish to themselves: the load for several brokers that know nothing of each other.

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
use crate::setup::Client;

/// Clients that publish to themselves, as a test.
#[derive(Debug, Clone)]
pub(crate) struct EchoTest {
    pub(crate) sizes: Vec<u32>,
    /// Number of messages of each client.
    pub(crate) messages: u64,
    /// Messages of a client that may be under way.
    pub(crate) ahead: u64,
    /// Messages per second of all clients together; without it, each arrival is followed by the next message at once.
    pub(crate) rate: Option<f64>,
    pub(crate) payload_len: usize,
    pub(crate) qos: Qos,
    pub(crate) version: Version,
}

/// One thread's part. Each client subscribes to a topic of its own and publishes to it.
#[derive(Debug)]
pub(crate) struct Echo {
    members: Vec<Member>,
    messages: u64,
    ahead: u64,
    quality: Quality,
    version: Version,
    /// Time between two messages of a client, if they are scheduled.
    interval: Option<Duration>,
    /// When which client is to publish again, if messages are scheduled.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    has_begun: bool,
    arrived: u64,
    latency: Histogram<u64>,
    stray: Tally,
    /// The next packets: made once, and reused.
    batch: Vec<u8>,
}

#[derive(Debug)]
struct Member {
    number: u32,
    client: Client,
    stream: Stream,
    received: Sequence,
    exchanges: Exchanges,
    sent: u64,
    /// When each of the latest messages was published, or was due: message n is at n modulo the length.
    started: Vec<Instant>,
    /// When the latest message was to be published, if messages are scheduled.
    due: Instant,
}

impl Test for EchoTest {
    type Part = Echo;

    fn title(&self) -> String {
        let Self { messages, ahead, payload_len, version, .. } = self;
        let rate = self.rate.map_or(String::new(), |rate| format!(", {rate} per second"));
        format!(
            "echo: MQTT {version}, {}, {messages} × {payload_len} B per connection, {ahead} under way{rate}",
            self.quality()
        )
    }

    fn qos(&self) -> Qos {
        self.qos
    }

    fn sizes(&self) -> Vec<String> {
        self.sizes.iter().map(|size| format!("{size} connections")).collect()
    }

    fn connections(&self, size: usize) -> u64 {
        u64::from(self.sizes[size])
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Echo> {
        let size = self.sizes[size];
        let interval = self.rate.map(|rate| Duration::from_secs_f64(f64::from(size) / rate));
        let part = |worker| Echo {
            members: (0..size).skip(worker).step_by(workers).map(|n| self.member(run, n)).collect(),
            messages: self.messages,
            ahead: if interval.is_some() { 1 } else { self.ahead },
            quality: self.quality(),
            version: self.version,
            interval,
            due: BinaryHeap::new(),
            has_begun: false,
            arrived: 0,
            latency: latencies(),
            stray: Tally::default(),
            batch: Vec::new(),
        };
        (0..workers).map(part).collect()
    }
}

impl EchoTest {
    /// The window of acknowledgements is as wide as the one of arrivals.
    fn quality(&self) -> Quality {
        Quality { qos: self.qos, window: u16::try_from(self.ahead).unwrap_or(u16::MAX) }
    }

    fn member(&self, run: RunId, number: u32) -> Member {
        let topic = format!("echo/{number}");
        let now = Instant::now();
        Member {
            number,
            stream: Stream::new(run, number, &topic, self.payload_len, self.qos, self.version),
            client: Client::new(run, number as usize, Some(topic), self.quality()),
            received: Sequence::new(0),
            exchanges: Exchanges::new(self.version),
            sent: 0,
            started: vec![now; usize::try_from(self.ahead).unwrap_or(usize::MAX)],
            due: now,
        }
    }
}

impl Echo {
    /// Publishes the first messages, or schedules them evenly over one interval.
    fn begin(&mut self, connections: &mut Connections) -> Result<()> {
        self.has_begun = true;
        let now = Instant::now();
        for at in 0..self.members.len() {
            let Some(interval) = self.interval else {
                self.batch.clear();
                (0..self.ahead.min(self.messages)).for_each(|_| self.append(at, now));
                connections.send(at, &self.batch)?;
                continue;
            };
            let member = &mut self.members[at];
            member.due = now + interval.mul_f64(golden_fraction(member.number));
            self.due.push(Reverse((member.due, at)));
        }
        Ok(())
    }

    /// Appends the next message of a client to what is written; `started` is the time that its latency counts from.
    fn append(&mut self, at: usize, started: Instant) {
        let member = &mut self.members[at];
        let place = member.place(member.sent);
        member.started[place] = started;
        member.stream.append(member.sent, &mut self.batch);
        member.exchanges.note_sent(1, self.quality.qos);
        // Messages behind a lost one that were never sent are not lost.
        member.received.expect_another();
        member.sent += 1;
    }

    /// Notes an arrival, and appends the message that may be sent instead.
    fn handle_message(&mut self, at: usize, packet: &[u8]) -> Result<()> {
        let member = &mut self.members[at];
        if member.exchanges.take(packet, &mut self.batch)? {
            return Ok(());
        }
        let Some(number) = member.stream.number_in(packet).filter(|number| *number < member.sent) else {
            return unexpected(packet, self.version, &mut self.stray);
        };
        if member.received.record(number) != Arrival::New {
            return Ok(());
        }
        let now = Instant::now();
        self.latency.saturating_record(nanos(now - member.started[member.place(number)]));
        self.arrived += 1;
        if member.sent == self.messages {
            return Ok(());
        }
        match self.interval {
            None => self.append(at, now),
            Some(interval) => {
                member.due += interval;
                let due = member.due;
                // The server made this client late: what it waited counts, so nothing is omitted.
                if due <= now {
                    self.append(at, due);
                } else {
                    self.due.push(Reverse((due, at)));
                }
            }
        }
        Ok(())
    }
}

impl Member {
    /// The place of a message's time.
    fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.started.len() as u64).unwrap_or_default()
    }
}

impl Load for Echo {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        self.batch.clear();
        let used = for_each_packet(bytes, |packet| self.handle_message(connection, packet))?;
        // All that one read allows leaves in one write.
        if !self.batch.is_empty() {
            connections.send(connection, &self.batch)?;
        }
        Ok(used)
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        if !self.has_begun {
            self.begin(connections)?;
        }
        while let Some(&Reverse((due, at))) = self.due.peek() {
            let now = Instant::now();
            if due > now {
                return Ok(Next::After(due - now));
            }
            self.due.pop();
            // The client was free when its time came: if our own timer is late, that is not the server's latency.
            self.batch.clear();
            self.append(at, now);
            connections.send(at, &self.batch)?;
        }
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn expected(&self) -> u64 {
        self.messages * self.members.len() as u64
    }

    fn is_complete(&self) -> bool {
        self.arrived() == self.expected() && self.members.iter().all(|one| one.exchanges.are_finished())
    }
}

impl Part for Echo {
    fn clients(&self) -> Vec<Client> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    fn packet_len_max(&self) -> usize {
        self.members.iter().map(|member| member.stream.packet_len()).max().unwrap_or(0)
    }

    fn patience(&self) -> Duration {
        PATIENCE + self.interval.unwrap_or_default()
    }

    fn outcome(self) -> Result<Outcome> {
        if self.arrived() == self.expected() && !self.is_complete() {
            return Err(Error::unacknowledged());
        }
        let mut tally = self.stray;
        self.members.iter().for_each(|member| tally.add(member.received.tally()));
        Ok(Outcome { messages: self.arrived, tally, latency: Some(self.latency), ..Outcome::default() })
    }
}
