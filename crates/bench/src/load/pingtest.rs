//! Strict request and reply between pairs, with wildcard subscribers listening in on the first pair.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::{Qos, Version};

use super::{Outcome, PATIENCE, Part, Test, latencies, nanos, unexpected};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::{Exchanges, Quality};
use crate::frames::for_each_packet;
use crate::message::{RunId, Stream};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::Client;

/// Filter of the wildcard subscribers.
const WATCHED: &str = "pingtest/0/#";

/// Number of pairs and of wildcard subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PingtestSize {
    pub(crate) pairs: u32,
    pub(crate) wildcard_subscribers: u32,
}

impl FromStr for PingtestSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parse = || {
            let (pairs, rest) = text.split_once('p')?;
            let wildcard_subscribers = rest.strip_suffix('w')?.parse().ok()?;
            Some(Self { pairs: pairs.parse().ok().filter(|&pairs| pairs > 0)?, wildcard_subscribers })
        };
        parse().ok_or_else(|| format!("`{text}` is not of the form 400p20w: pairs, wildcard subscribers"))
    }
}

/// Request and reply, as a test.
#[derive(Debug, Clone)]
pub(crate) struct PingtestTest {
    pub(crate) sizes: Vec<PingtestSize>,
    /// Number of requests of each pair.
    pub(crate) messages: u64,
    /// Requests per second of all pairs together; without it, each reply is followed by the next request at once.
    pub(crate) rate: Option<f64>,
    pub(crate) payload_len: usize,
    pub(crate) quality: Quality,
    pub(crate) version: Version,
}

/// One thread's part. Connections: the requesters, the responders, the wildcard subscribers.
#[derive(Debug)]
pub(crate) struct Pingtest {
    run: RunId,
    pairs: Vec<Pair>,
    watchers: Vec<Watcher>,
    /// The requests and the replies of the first pair.
    watched: [Stream; 2],
    /// State of each connection.
    exchanges: Vec<Exchanges>,
    /// Packet for the connection that was read last: made once, and reused.
    batch: Vec<u8>,
    messages: u64,
    quality: Quality,
    version: Version,
    /// Time between two requests of a pair, if they are scheduled.
    interval: Option<Duration>,
    /// When which pair is to ask again, if they are scheduled.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    has_begun: bool,
    arrived: u64,
    watched_arrived: u64,
    latency: Histogram<u64>,
    stray: Tally,
}

#[derive(Debug)]
struct Pair {
    number: u32,
    requests: Stream,
    replies: Stream,
    requests_received: Sequence,
    replies_received: Sequence,
    /// Number of sent requests.
    sent: u64,
    /// When the latest request was sent, or should have been, had the reply before it come in time.
    started: Instant,
    /// When the latest request was to be sent, if they are scheduled.
    due: Instant,
}

#[derive(Debug)]
struct Watcher {
    number: usize,
    received: [Sequence; 2],
}

impl Test for PingtestTest {
    type Part = Pingtest;

    fn title(&self) -> String {
        let Self { messages, payload_len, quality, version, .. } = self;
        let rate = self.rate.map_or(String::new(), |rate| format!(", {rate} requests/s"));
        format!("pingtest: MQTT {version}, {quality}, {messages} × {payload_len} B per pair{rate}")
    }

    fn qos(&self) -> Qos {
        self.quality.qos
    }

    fn sizes(&self) -> Vec<String> {
        self.sizes.iter().map(|size| format!("{}p{}w", size.pairs, size.wildcard_subscribers)).collect()
    }

    fn connections(&self, size: usize) -> u64 {
        2 * u64::from(self.sizes[size].pairs) + u64::from(self.sizes[size].wildcard_subscribers)
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Pingtest> {
        let size = self.sizes[size];
        let mut parts: Vec<Pingtest> = (0..workers).map(|_| self.empty_part(run, size.pairs)).collect();
        for (number, worker) in (0..size.pairs).zip((0..workers).cycle()) {
            parts[worker].pairs.push(self.pair(run, number));
        }
        for (number, worker) in (0..size.wildcard_subscribers as usize).zip((0..workers).cycle()) {
            let received = [Sequence::new(self.messages), Sequence::new(self.messages)];
            parts[worker].watchers.push(Watcher { number, received });
        }
        for part in &mut parts {
            part.exchanges = vec![Exchanges::new(self.version); 2 * part.pairs.len() + part.watchers.len()];
        }
        parts
    }
}

impl PingtestTest {
    fn empty_part(&self, run: RunId, pairs: u32) -> Pingtest {
        Pingtest {
            run,
            pairs: Vec::new(),
            watchers: Vec::new(),
            watched: self.streams(run, 0),
            exchanges: Vec::new(),
            batch: Vec::new(),
            messages: self.messages,
            quality: self.quality,
            version: self.version,
            interval: self.rate.map(|rate| Duration::from_secs_f64(f64::from(pairs) / rate)),
            due: BinaryHeap::with_capacity(pairs as usize),
            has_begun: false,
            arrived: 0,
            watched_arrived: 0,
            latency: latencies(),
            stray: Tally::default(),
        }
    }

    fn pair(&self, run: RunId, number: u32) -> Pair {
        let [requests, replies] = self.streams(run, number);
        Pair {
            number,
            requests,
            replies,
            requests_received: Sequence::new(self.messages),
            replies_received: Sequence::new(self.messages),
            sent: 0,
            started: Instant::now(),
            due: Instant::now(),
        }
    }

    fn streams(&self, run: RunId, pair: u32) -> [Stream; 2] {
        [("request", 2 * pair), ("reply", 2 * pair + 1)].map(|(name, id)| {
            let topic = format!("pingtest/{pair}/{name}");
            Stream::new(run, id, &topic, self.payload_len, self.quality.qos, self.version)
        })
    }
}

impl Pingtest {
    /// Sends the first requests, or schedules them evenly over one interval.
    fn begin(&mut self, connections: &mut Connections) -> Result<()> {
        self.has_begun = true;
        let now = Instant::now();
        for at in 0..self.pairs.len() {
            match self.interval {
                None => self.ask_unprompted(at, now, connections)?,
                Some(interval) => {
                    let pair = &mut self.pairs[at];
                    pair.due = now + interval.mul_f64(golden_fraction(pair.number));
                    self.due.push(Reverse((pair.due, at)));
                }
            }
        }
        Ok(())
    }

    /// Sends the next request of a pair by itself.
    fn ask_unprompted(&mut self, at: usize, started: Instant, connections: &mut Connections) -> Result<()> {
        self.batch.clear();
        self.ask(at, started);
        connections.send(at, &self.batch)
    }

    /// Appends the next request of a pair to what is written; `started` is the time that its latency counts from.
    fn ask(&mut self, at: usize, started: Instant) {
        let pair = &mut self.pairs[at];
        pair.started = started;
        pair.requests.append(pair.sent, &mut self.batch);
        pair.sent += 1;
        self.exchanges[at].note_sent(1, self.quality.qos);
    }

    /// A requester has received something.
    fn handle_reply(&mut self, at: usize, packet: &[u8]) -> Result<()> {
        let pair = &mut self.pairs[at];
        let Some(number) = pair.replies.number_in(packet).filter(|number| *number < pair.sent) else {
            return unexpected(packet, self.version, &mut self.stray);
        };
        if pair.replies_received.record(number) != Arrival::New {
            return Ok(());
        }
        self.arrived += 1;
        if number + 1 != pair.sent {
            return Ok(());
        }
        let now = Instant::now();
        self.latency.saturating_record(nanos(now - pair.started));
        if pair.sent == self.messages {
            return Ok(());
        }
        match self.interval {
            None => self.ask(at, now),
            Some(interval) => {
                pair.due += interval;
                // The server made this pair late: what it waited counts, so nothing is omitted.
                if pair.due <= now {
                    self.ask(at, self.pairs[at].due);
                } else {
                    self.due.push(Reverse((pair.due, at)));
                }
            }
        }
        Ok(())
    }

    /// A responder has received something.
    fn handle_request(&mut self, at: usize, packet: &[u8]) -> Result<()> {
        let responder = self.pairs.len() + at;
        let pair = &mut self.pairs[at];
        let Some(number) = pair.requests.number_in(packet).filter(|number| *number < pair.sent) else {
            return unexpected(packet, self.version, &mut self.stray);
        };
        if pair.requests_received.record(number) == Arrival::New {
            self.arrived += 1;
            pair.replies.append(number, &mut self.batch);
            self.exchanges[responder].note_sent(1, self.quality.qos);
        }
        Ok(())
    }

    /// A wildcard subscriber has received something.
    fn handle_watched(&mut self, watcher: usize, packet: &[u8]) -> Result<()> {
        let numbers = self.watched.each_ref().map(|stream| stream.number_in(packet));
        let arrival = match numbers {
            [Some(number), _] => self.watchers[watcher].received[0].record(number),
            [_, Some(number)] => self.watchers[watcher].received[1].record(number),
            [None, None] => Arrival::Unknown,
        };
        match arrival {
            Arrival::New => self.watched_arrived += 1,
            Arrival::Duplicate => {}
            Arrival::Unknown => unexpected(packet, self.version, &mut self.stray)?,
        }
        Ok(())
    }

    fn watched_expected(&self) -> u64 {
        2 * self.messages * self.watchers.len() as u64
    }
}

impl Load for Pingtest {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        let pairs = self.pairs.len();
        self.batch.clear();
        let used = for_each_packet(bytes, |packet| {
            if self.exchanges[connection].take(packet, &mut self.batch)? {
                return Ok(());
            }
            match connection {
                requester if requester < pairs => self.handle_reply(requester, packet),
                responder if responder < 2 * pairs => self.handle_request(responder - pairs, packet),
                watcher => self.handle_watched(watcher - 2 * pairs, packet),
            }
        })?;
        // An acknowledgement and the reply or request behind it leave together.
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
            // The pair was free when its time came: if our own timer is late, that is not the server's latency.
            self.ask_unprompted(at, now, connections)?;
        }
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        self.arrived + self.watched_arrived
    }

    fn expected(&self) -> u64 {
        2 * self.messages * self.pairs.len() as u64 + self.watched_expected()
    }

    fn is_complete(&self) -> bool {
        self.arrived() == self.expected() && self.exchanges.iter().all(Exchanges::are_finished)
    }
}

impl Part for Pingtest {
    fn clients(&self) -> Vec<Client> {
        let pairs = self.pairs.iter();
        let requesters =
            pairs.clone().map(|pair| (3 * pair.number as usize, format!("pingtest/{}/reply", pair.number)));
        let responders =
            pairs.map(|pair| (3 * pair.number as usize + 1, format!("pingtest/{}/request", pair.number)));
        let watchers = self.watchers.iter().map(|watcher| (3 * watcher.number + 2, WATCHED.to_owned()));
        let clients = requesters.chain(responders).chain(watchers);
        clients.map(|(number, filter)| Client::new(self.run, number, Some(filter), self.quality)).collect()
    }

    fn packet_len_max(&self) -> usize {
        let own = self.pairs.iter().flat_map(|pair| [&pair.requests, &pair.replies]);
        own.chain(&self.watched).map(Stream::packet_len).max().unwrap_or(0)
    }

    fn patience(&self) -> Duration {
        PATIENCE + self.interval.unwrap_or_default()
    }

    fn outcome(self) -> Result<Outcome> {
        if self.arrived() == self.expected() && !self.is_complete() {
            return Err(Error::unacknowledged());
        }
        let mut tally = self.stray;
        let of_pairs = self.pairs.iter().flat_map(|pair| [&pair.requests_received, &pair.replies_received]);
        let of_watchers = self.watchers.iter().flat_map(|watcher| &watcher.received);
        of_pairs.chain(of_watchers).for_each(|sequence| tally.add(sequence.tally()));
        Ok(Outcome { messages: self.arrived, tally, latency: Some(self.latency), ..Outcome::default() })
    }
}

/// Fractions of 1 that are spread evenly for any count of consecutive numbers.
pub(super) fn golden_fraction(number: u32) -> f64 {
    const GOLDEN_RATIO_CONJUGATE: f64 = 0.618_033_988_749_894_9;
    (f64::from(number) * GOLDEN_RATIO_CONJUGATE).fract()
}
