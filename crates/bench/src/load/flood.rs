//! Publishing as fast as the server takes it: loadtest, fanout and fanin.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use wire::Version;

use super::churn::{Churn, ChurnPlan};
use super::{Outcome, Part, Test, unexpected};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::frames::for_each_packet;
use crate::message::{RunId, Stream, claimed_stream};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::Client;

/// Who publishes to whom. The size is the number of connections (`Pairs`) or of the many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Half the connections subscribe each to a topic of its own, to which a partner publishes.
    Pairs,
    /// One publishes, many subscribe.
    OneToMany,
    /// Many publish, each to a topic of its own; one subscribes to all of them.
    ManyToOne,
}

/// A test that floods.
#[derive(Debug, Clone)]
pub(crate) struct FloodTest {
    pub(crate) pattern: Pattern,
    pub(crate) sizes: Vec<u32>,
    /// Messages that each publisher sends.
    pub(crate) messages: u64,
    /// Messages that one write carries.
    pub(crate) per_write: u64,
    pub(crate) payload_len: usize,
    pub(crate) version: Version,
    /// What one more connection does meanwhile.
    pub(crate) churn: Option<ChurnPlan>,
}

/// One thread's part of a flood. Subscribers are the first connections, publishers the next; the one that churns, if
/// it is in this part, is the last.
#[derive(Debug)]
pub(crate) struct Flood {
    /// All streams of the run, by number.
    streams: Arc<[Stream]>,
    clients: Vec<Client>,
    subscribers: Vec<Subscriber>,
    publishers: Vec<Publisher>,
    /// The publishers that have something left to say and whose connection takes it.
    ready: Vec<usize>,
    batch: Vec<u8>,
    messages: u64,
    per_write: u64,
    payload_len: usize,
    version: Version,
    arrived: u64,
    expected: u64,
    stray: Tally,
    churn: Option<Churn>,
}

#[derive(Debug)]
struct Subscriber {
    /// The first stream it receives; the others follow.
    first_stream: usize,
    sequences: Vec<Sequence>,
}

/// What a publisher sends is a function of the position in its stream of bytes, so that nothing has to be kept
/// when the kernel takes half a packet.
#[derive(Debug)]
struct Publisher {
    stream: usize,
    written_bytes: u64,
    is_blocked: bool,
}

impl Pattern {
    fn topics(self, size: u32) -> Vec<String> {
        match self {
            Self::Pairs => (0..size / 2).map(|pair| format!("loadtest/{pair}")).collect(),
            Self::OneToMany => vec!["fanout/0".to_owned()],
            Self::ManyToOne => (0..size).map(|publisher| format!("fanin/{publisher}")).collect(),
        }
    }

    /// The filters of the subscribers, each with the streams that match it.
    fn subscriptions(self, size: u32) -> Vec<(String, Range<usize>)> {
        match self {
            Self::Pairs => {
                self.topics(size).into_iter().enumerate().map(|(n, topic)| (topic, n..n + 1)).collect()
            }
            Self::OneToMany => (0..size).map(|_| ("fanout/0".to_owned(), 0..1)).collect(),
            Self::ManyToOne => vec![("fanin/+".to_owned(), 0..size as usize)],
        }
    }
}

impl Test for FloodTest {
    type Part = Flood;

    fn title(&self) -> String {
        let name = match self.pattern {
            Pattern::Pairs => "loadtest",
            Pattern::OneToMany => "fanout",
            Pattern::ManyToOne => "fanin",
        };
        let Self { messages, per_write, payload_len, version, .. } = self;
        let churn = self.churn.map_or(String::new(), |churn| format!("; {churn}"));
        format!(
            "{name}: MQTT {version}, {messages} × {payload_len} B per publisher, {per_write} per write{churn}"
        )
    }

    fn sizes(&self) -> Vec<String> {
        let name = |&size: &u32| match self.pattern {
            // An odd one out has no partner.
            Pattern::Pairs => format!("{} connections", size / 2 * 2),
            Pattern::OneToMany => format!("{size} subscribers"),
            Pattern::ManyToOne => format!("{size} publishers"),
        };
        self.sizes.iter().map(name).collect()
    }

    fn connections(&self, size: usize) -> u64 {
        u64::from(self.sizes[size]) + 1 + u64::from(self.churn.is_some())
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Flood> {
        let size = self.sizes[size];
        let topics = self.pattern.topics(size);
        let stream =
            |(id, topic): (u32, &String)| Stream::new(run, id, topic, self.payload_len, self.version);
        let streams: Arc<[Stream]> = (0..).zip(&topics).map(stream).collect();
        let mut parts: Vec<Flood> = (0..workers).map(|_| self.empty_part(&streams)).collect();
        let mut number = 0..;
        let mut client = |filter| Client::new(run, number.next().unwrap_or_default(), filter);
        for (n, (filter, matching)) in self.pattern.subscriptions(size).into_iter().enumerate() {
            parts[n % workers].add_subscriber(client(Some(filter)), matching);
        }
        for stream in 0..streams.len() {
            parts[stream % workers].add_publisher(client(None), stream);
        }
        if let Some(plan) = self.churn {
            parts[0].clients.push(client(None));
            parts[0].churn = Some(Churn::new(plan, self.version));
        }
        parts
    }
}

impl FloodTest {
    fn empty_part(&self, streams: &Arc<[Stream]>) -> Flood {
        Flood {
            streams: Arc::clone(streams),
            clients: Vec::new(),
            subscribers: Vec::new(),
            publishers: Vec::new(),
            ready: Vec::new(),
            batch: Vec::new(),
            messages: self.messages,
            per_write: self.per_write,
            payload_len: self.payload_len,
            version: self.version,
            arrived: 0,
            expected: 0,
            stray: Tally::default(),
            churn: None,
        }
    }
}

impl Flood {
    fn add_subscriber(&mut self, client: Client, streams: Range<usize>) {
        let sequences: Vec<_> = streams.clone().map(|_| Sequence::new(self.messages)).collect();
        self.expected += self.messages * sequences.len() as u64;
        self.clients.push(client);
        self.subscribers.push(Subscriber { first_stream: streams.start, sequences });
    }

    fn add_publisher(&mut self, client: Client, stream: usize) {
        self.clients.push(client);
        self.ready.push(self.publishers.len());
        self.publishers.push(Publisher { stream, written_bytes: 0, is_blocked: false });
    }

    fn is_delivered(&self) -> bool {
        // A thread may have publishers and no subscribers.
        self.arrived == self.expected
            && self.ready.is_empty()
            && !self.publishers.iter().any(|p| p.is_blocked)
    }

    /// Handles a packet on a connection that is no subscriber's.
    #[cold]
    fn handle_aside(&mut self, connection: usize, packet: &[u8]) -> Result<()> {
        match &mut self.churn {
            Some(churn) if connection + 1 == self.clients.len() => churn.handle_packet(packet),
            _ => unexpected(packet, self.version, &mut self.stray),
        }
    }

    /// Sends the requests of the churn that are due, each in a write of its own.
    fn send_churn(&mut self, connections: &mut Connections) -> Result<()> {
        let Some(churn) = &mut self.churn else { return Ok(()) };
        while let Some(packet) = churn.next_packet(Instant::now()) {
            connections.send(self.clients.len() - 1, &packet)?;
        }
        Ok(())
    }

    /// Lets a publisher write once. Returns whether it can write again.
    #[inline]
    fn write_batch(&mut self, publisher: usize, connections: &mut Connections) -> Result<bool> {
        let connection = self.subscribers.len() + publisher;
        let publisher = &mut self.publishers[publisher];
        let stream = &self.streams[publisher.stream];
        let packet_len = stream.packet_len() as u64;
        let first = publisher.written_bytes / packet_len;
        self.batch.clear();
        for number in first..self.messages.min(first + self.per_write) {
            stream.append(number, &mut self.batch);
        }
        let unwritten = &self.batch[remainder(publisher.written_bytes, packet_len)..];
        let written = connections.write(connection, unwritten)?;
        publisher.written_bytes += written as u64;
        publisher.is_blocked = written < unwritten.len();
        Ok(!publisher.is_blocked && publisher.written_bytes < self.messages * packet_len)
    }
}

impl Load for Flood {
    #[inline]
    fn receive(&mut self, connection: usize, bytes: &[u8], _: &mut Connections) -> Result<usize> {
        let Some(subscriber) = self.subscribers.get_mut(connection) else {
            return for_each_packet(bytes, |packet| self.handle_aside(connection, packet));
        };
        for_each_packet(bytes, |packet| {
            match subscriber.record(packet, &self.streams, self.payload_len) {
                Some(Arrival::New) => self.arrived += 1,
                Some(Arrival::Duplicate) => {}
                Some(Arrival::Unknown) | None => unexpected(packet, self.version, &mut self.stray)?,
            }
            Ok(())
        })
    }

    fn handle_writable(&mut self, connection: usize) {
        let Some(number) = connection.checked_sub(self.subscribers.len()) else { return };
        if let Some(publisher) = self.publishers.get_mut(number).filter(|publisher| publisher.is_blocked) {
            publisher.is_blocked = false;
            self.ready.push(number);
        }
    }

    fn shows_progress(&self, connection: usize) -> bool {
        connection < self.subscribers.len() + self.publishers.len()
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        if self.is_delivered() {
            return Ok(Next::WhenWoken);
        }
        let mut at = 0;
        while at < self.ready.len() {
            // Between any two writes: a turn takes milliseconds, in which many requests are due.
            self.send_churn(connections)?;
            if self.write_batch(self.ready[at], connections)? {
                at += 1;
            } else {
                self.ready.swap_remove(at);
            }
        }
        self.send_churn(connections)?;
        let until_churn = self.churn.as_ref().and_then(Churn::until_next);
        Ok(if self.ready.is_empty() { until_churn.map_or(Next::WhenWoken, Next::After) } else { Next::Now })
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }

    fn expected(&self) -> u64 {
        self.expected
    }

    fn is_complete(&self) -> bool {
        self.is_delivered() && self.churn.as_ref().is_none_or(Churn::is_answered)
    }
}

impl Part for Flood {
    fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    fn packet_len_max(&self) -> usize {
        self.streams.iter().map(Stream::packet_len).max().unwrap_or(0)
    }

    fn outcome(self) -> Result<Outcome> {
        if self.is_delivered() && !self.is_complete() {
            return Err(Error::Server("left a SUBSCRIBE or UNSUBSCRIBE on other topics unanswered".into()));
        }
        let mut tally = self.stray;
        for sequence in self.subscribers.iter().flat_map(|subscriber| &subscriber.sequences) {
            tally.add(sequence.tally());
        }
        let churned = self.churn.as_ref().map(Churn::outcome);
        Ok(Outcome { messages: self.arrived, tally, latency: None, churned })
    }
}

impl Subscriber {
    /// Notes a packet; `None` if it is no message that this subscriber asked for.
    #[inline]
    fn record(&mut self, packet: &[u8], streams: &[Stream], payload_len: usize) -> Option<Arrival> {
        let stream = claimed_stream(packet, payload_len)?;
        let sequence = self.sequences.get_mut(stream.checked_sub(self.first_stream)?)?;
        Some(sequence.record(streams[stream].number_in(packet)?))
    }
}

/// How far into a packet a position in a stream of them is.
fn remainder(position: u64, packet_len: u64) -> usize {
    usize::try_from(position % packet_len).expect("a packet that exists fits into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: u64 = 10;

    /// What a subscriber makes of a stream of packets, given in two pieces.
    fn tally_of(pattern: Pattern, packets: impl Fn(&[Stream]) -> Vec<u8>) -> Tally {
        let test = FloodTest {
            pattern,
            sizes: vec![2],
            messages: MESSAGES,
            per_write: 1,
            payload_len: 20,
            version: Version::V3_1_1,
            churn: None,
        };
        let mut part = test.parts(0, 7, 1).remove(0);
        let bytes = packets(&part.streams);
        let mut connections = Connections::new("127.0.0.1:1".parse().unwrap(), 64, 0).unwrap();
        let used = part.receive(0, &bytes[..bytes.len() / 2], &mut connections).unwrap();
        assert_eq!(part.receive(0, &bytes[used..], &mut connections).unwrap(), bytes.len() - used);
        part.outcome().unwrap().tally
    }

    fn packets(stream: &Stream, numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        numbers.into_iter().for_each(|number| stream.append(number, &mut bytes));
        bytes
    }

    #[test]
    fn a_stream_that_arrives_whole_is_clean() {
        assert!(tally_of(Pattern::Pairs, |streams| packets(&streams[0], 0..MESSAGES)).is_clean());
    }

    #[test]
    fn every_fault_is_counted_as_what_it_is() {
        let tally = tally_of(Pattern::Pairs, |streams| packets(&streams[0], [0, 1, 1, 5, 4, 6, MESSAGES, 9]));
        assert_eq!(tally, Tally { lost: 4, duplicated: 1, out_of_order: 1, unexpected: 1 });
    }

    #[test]
    fn a_message_of_another_run_is_unexpected() {
        let other = Stream::new(8, 0, "loadtest/0", 20, Version::V3_1_1);
        let tally = tally_of(Pattern::Pairs, |streams| {
            [packets(&streams[0], 0..MESSAGES), packets(&other, [3])].concat()
        });
        assert_eq!(tally, Tally { unexpected: 1, ..Tally::default() });
    }

    #[test]
    fn each_publisher_has_an_order_of_its_own() {
        let tally = tally_of(Pattern::ManyToOne, |streams| {
            [packets(&streams[1], 0..MESSAGES), packets(&streams[0], 0..MESSAGES)].concat()
        });
        assert!(tally.is_clean());
    }

    #[test]
    fn a_disconnect_ends_the_run() {
        let mut part = FloodTest {
            pattern: Pattern::Pairs,
            sizes: vec![2],
            messages: 1,
            per_write: 1,
            payload_len: 16,
            version: Version::V5,
            churn: None,
        }
        .parts(0, 0, 1)
        .remove(0);
        let mut connections = Connections::new("127.0.0.1:1".parse().unwrap(), 64, 0).unwrap();
        let quota_exceeded = [0xE0, 1, 0x97];
        let error = part.receive(0, &quota_exceeded, &mut connections).unwrap_err();
        assert!(error.to_string().contains("Quota exceeded"), "{error}");
    }
}
