//! Publishing as fast as the server takes it: loadtest, fanout and fanin.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use wire::{Qos, Version};

use super::churn::{Churn, ChurnPlan};
use super::{Outcome, Part, Test, unexpected};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::{Exchanges, Quality};
use crate::frames::for_each_packet;
use crate::message::{RunId, Stream, claimed_stream};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::Client;

/// Publishers and their subscribers. The size is the number of connections (`Pairs`) or of the many.
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
    pub(crate) quality: Quality,
    pub(crate) version: Version,
    /// Subscriptions of one more connection meanwhile.
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
    /// The publishers that are [`Progress::Ready`].
    ready: Vec<usize>,
    /// The next packet: made once, and reused.
    batch: Vec<u8>,
    messages: u64,
    per_write: u64,
    payload_len: usize,
    quality: Quality,
    version: Version,
    arrived: u64,
    expected: u64,
    stray: Tally,
    churn: Option<Churn>,
    has_delivered: bool,
    /// Number of parts of the run that have not delivered everything. Until there are none, the churn continues.
    undelivered: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Subscriber {
    /// The first stream it receives; the others follow.
    first_stream: usize,
    sequences: Vec<Sequence>,
    exchanges: Exchanges,
}

#[derive(Debug)]
struct Publisher {
    stream: usize,
    /// Number of sent messages.
    sent: u64,
    exchanges: Exchanges,
    progress: Progress,
}

/// Whether a publisher can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Ready,
    /// When the kernel has taken what was sent.
    Blocked,
    /// When a message is acknowledged: as many as may be are not.
    WindowFull,
    /// It has said everything.
    Done,
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

impl FloodTest {
    /// Deliveries at the size with this index, if each publisher sends one message.
    pub(crate) fn deliveries_of_one_each(&self, size: usize) -> u64 {
        let size = u64::from(self.sizes[size]);
        match self.pattern {
            Pattern::Pairs => size / 2,
            Pattern::OneToMany | Pattern::ManyToOne => size,
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
        let Self { messages, per_write, payload_len, quality, version, .. } = self;
        let window = match quality.qos {
            Qos::AtMostOnce => String::new(),
            _ => format!(" with a window of {}", quality.window),
        };
        let churn = self.churn.map_or(String::new(), |churn| format!("; {churn}"));
        format!(
            "{name}: MQTT {version}, {quality}{window}, {messages} × {payload_len} B per publisher, {per_write} per write{churn}"
        )
    }

    fn qos(&self) -> Qos {
        self.quality.qos
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
        let stream = |(id, topic): (u32, &String)| {
            Stream::new(run, id, topic, self.payload_len, self.quality.qos, self.version)
        };
        let streams: Arc<[Stream]> = (0..).zip(&topics).map(stream).collect();
        let undelivered = Arc::new(AtomicUsize::new(workers));
        let mut parts: Vec<Flood> = (0..workers).map(|_| self.empty_part(&streams, &undelivered)).collect();
        let mut number = 0..;
        let mut client = |filter| Client::new(run, number.next().unwrap_or_default(), filter, self.quality);
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
    fn empty_part(&self, streams: &Arc<[Stream]>, undelivered: &Arc<AtomicUsize>) -> Flood {
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
            quality: self.quality,
            version: self.version,
            arrived: 0,
            expected: 0,
            stray: Tally::default(),
            churn: None,
            has_delivered: false,
            undelivered: Arc::clone(undelivered),
        }
    }
}

impl Flood {
    fn add_subscriber(&mut self, client: Client, streams: Range<usize>) {
        let sequences: Vec<_> = streams.clone().map(|_| Sequence::new(self.messages)).collect();
        self.expected += self.messages * sequences.len() as u64;
        self.clients.push(client);
        let exchanges = Exchanges::new(self.version);
        self.subscribers.push(Subscriber { first_stream: streams.start, sequences, exchanges });
    }

    fn add_publisher(&mut self, client: Client, stream: usize) {
        self.clients.push(client);
        self.ready.push(self.publishers.len());
        let exchanges = Exchanges::new(self.version);
        self.publishers.push(Publisher { stream, sent: 0, exchanges, progress: Progress::Ready });
    }

    /// Whether everything has been sent, has arrived, and is acknowledged to the end.
    fn is_delivered(&self) -> bool {
        self.arrived == self.expected && self.publishers.iter().all(Publisher::is_done) && self.is_settled()
    }

    /// Whether every exchange of QoS 1 and 2 is finished.
    fn is_settled(&self) -> bool {
        let of_subscribers = self.subscribers.iter().map(|subscriber| &subscriber.exchanges);
        let of_publishers = self.publishers.iter().map(|publisher| &publisher.exchanges);
        of_subscribers.chain(of_publishers).all(Exchanges::are_finished)
    }

    fn note_delivery(&mut self) {
        if !self.has_delivered && self.is_delivered() {
            self.has_delivered = true;
            self.undelivered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Number of parts of the run that have not delivered everything.
    pub(super) fn undelivered(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.undelivered)
    }

    /// Whether every part of the run has delivered everything.
    fn have_all_delivered(&self) -> bool {
        self.undelivered.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn receive_messages(&mut self, subscriber: usize, bytes: &[u8]) -> Result<usize> {
        let subscriber = &mut self.subscribers[subscriber];
        for_each_packet(bytes, |packet| {
            if subscriber.exchanges.take(packet, &mut self.batch)? {
                return Ok(());
            }
            match subscriber.record(packet, &self.streams, self.payload_len) {
                Some(Arrival::New) => self.arrived += 1,
                Some(Arrival::Duplicate) => {}
                Some(Arrival::Unknown) | None => unexpected(packet, self.version, &mut self.stray)?,
            }
            Ok(())
        })
    }

    #[inline]
    fn receive_acknowledgements(&mut self, number: usize, bytes: &[u8]) -> Result<usize> {
        let publisher = &mut self.publishers[number];
        let used = for_each_packet(bytes, |packet| {
            if publisher.exchanges.take(packet, &mut self.batch)? {
                return Ok(());
            }
            unexpected(packet, self.version, &mut self.stray)
        })?;
        if publisher.progress == Progress::WindowFull {
            self.resume(number);
        }
        Ok(used)
    }

    /// Lets a publisher go on that had to wait, unless its window is full.
    fn resume(&mut self, number: usize) {
        let publisher = &mut self.publishers[number];
        if self.quality.room(&publisher.exchanges) == 0 {
            publisher.progress = Progress::WindowFull;
        } else {
            publisher.progress = Progress::Ready;
            self.ready.push(number);
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

    /// Lets a publisher that is ready write once. Returns whether it can write again.
    #[inline]
    fn write_batch(&mut self, publisher: usize, connections: &mut Connections) -> Result<bool> {
        let connection = self.subscribers.len() + publisher;
        let publisher = &mut self.publishers[publisher];
        let room = self.quality.room(&publisher.exchanges);
        let unsent = self.messages - publisher.sent;
        let count = self.per_write.min(unsent).min(room);
        self.batch.clear();
        for number in publisher.sent..publisher.sent + count {
            self.streams[publisher.stream].append(number, &mut self.batch);
        }
        connections.send(connection, &self.batch)?;
        publisher.sent += count;
        publisher.exchanges.note_sent(count, self.quality.qos);
        publisher.progress = match () {
            () if count == unsent => Progress::Done,
            () if connections.is_behind(connection) => Progress::Blocked,
            () if count == room => Progress::WindowFull,
            () => Progress::Ready,
        };
        Ok(publisher.progress == Progress::Ready)
    }
}

impl Load for Flood {
    #[inline]
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        self.batch.clear();
        let used = match connection.checked_sub(self.subscribers.len()) {
            None => self.receive_messages(connection, bytes)?,
            Some(publisher) if publisher < self.publishers.len() => {
                self.receive_acknowledgements(publisher, bytes)?
            }
            Some(_) => for_each_packet(bytes, |packet| match &mut self.churn {
                Some(churn) => churn.handle_packet(packet),
                None => unexpected(packet, self.version, &mut self.stray),
            })?,
        };
        // The packets of one read are answered in one write.
        if !self.batch.is_empty() {
            connections.send(connection, &self.batch)?;
        }
        Ok(used)
    }

    fn handle_writable(&mut self, connection: usize) {
        let Some(number) = connection.checked_sub(self.subscribers.len()) else { return };
        if self.publishers.get(number).is_some_and(|publisher| publisher.progress == Progress::Blocked) {
            self.resume(number);
        }
    }

    fn shows_progress(&self, connection: usize) -> bool {
        connection < self.subscribers.len() + self.publishers.len()
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        self.note_delivery();
        if self.have_all_delivered() {
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
        match &self.churn {
            None => self.has_delivered,
            Some(churn) => self.have_all_delivered() && churn.is_answered(),
        }
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
        if self.have_all_delivered() && !self.is_complete() {
            return Err(Error::Server("left a SUBSCRIBE or UNSUBSCRIBE on other topics unanswered".into()));
        }
        if self.arrived == self.expected && !self.is_settled() {
            return Err(Error::unacknowledged());
        }
        let mut tally = self.stray;
        for sequence in self.subscribers.iter().flat_map(|subscriber| &subscriber.sequences) {
            tally.add(sequence.tally());
        }
        let churned = self.churn.as_ref().map(Churn::outcome);
        Ok(Outcome { messages: self.arrived, tally, churned, ..Outcome::default() })
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

impl Publisher {
    fn is_done(&self) -> bool {
        self.progress == Progress::Done
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::num::NonZeroU32;

    use super::super::churn::ChurnPlace;
    use super::*;
    use crate::measure::Target;

    const MESSAGES: u64 = 10;
    const QUALITY: Quality = Quality { qos: Qos::AtLeastOnce, window: 4 };

    /// One pair in MQTT 3.1.1, at QoS 0.
    fn pair() -> FloodTest {
        FloodTest {
            pattern: Pattern::Pairs,
            sizes: vec![2],
            messages: MESSAGES,
            per_write: 3,
            payload_len: 20,
            quality: Quality::AT_MOST_ONCE,
            version: Version::V3_1_1,
            churn: None,
        }
    }

    /// A part, connected, and the other ends of its connections.
    fn connected(part: &Flood) -> (Connections, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let packet_len_max = part.packet_len_max();
        let target = Target::at(listener.local_addr().unwrap());
        let mut connections = Connections::new(&target, packet_len_max, 0).unwrap();
        let connect = |_: &Client| {
            connections.open(&[]).unwrap();
            listener.accept().unwrap().0
        };
        let streams = part.clients.iter().map(connect).collect();
        (connections, streams)
    }

    /// The messages and answers of a subscriber for a stream of packets in two pieces.
    fn received(test: &FloodTest, packets: impl Fn(&[Stream]) -> Vec<u8>) -> (Flood, Vec<u8>) {
        let mut part = test.parts(0, 7, 1).remove(0);
        let (mut connections, mut streams) = connected(&part);
        let bytes = packets(&part.streams);
        let used = part.receive(0, &bytes[..bytes.len() / 2], &mut connections).unwrap();
        assert_eq!(part.receive(0, &bytes[used..], &mut connections).unwrap(), bytes.len() - used);
        drop(connections);
        let mut answers = Vec::new();
        streams[0].read_to_end(&mut answers).unwrap();
        (part, answers)
    }

    fn tally_of(pattern: Pattern, packets: impl Fn(&[Stream]) -> Vec<u8>) -> Tally {
        received(&FloodTest { pattern, ..pair() }, packets).0.outcome().unwrap().tally
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
        let other = Stream::new(8, 0, "loadtest/0", 20, Qos::AtMostOnce, Version::V3_1_1);
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
        let mut part = FloodTest { version: Version::V5, ..pair() }.parts(0, 0, 1).remove(0);
        let nobody = Target::at("127.0.0.1:1".parse().unwrap());
        let mut connections = Connections::new(&nobody, 64, 0).unwrap();
        let quota_exceeded = [0xE0, 1, 0x97];
        let error = part.receive(0, &quota_exceeded, &mut connections).unwrap_err();
        assert!(error.to_string().contains("Quota exceeded"), "{error}");
    }

    #[test]
    fn every_message_is_acknowledged_again_and_a_copy_counts_as_duplicated() {
        let test = FloodTest { quality: QUALITY, ..pair() };
        let (part, answers) = received(&test, |streams| packets(&streams[0], [0, 0, 1]));
        assert_eq!(answers, [0x40, 2, 0, 1, 0x40, 2, 0, 1, 0x40, 2, 0, 2]);
        assert_eq!(part.outcome().unwrap().tally, Tally { lost: 8, duplicated: 1, ..Tally::default() });
    }

    #[test]
    fn a_publisher_waits_while_its_window_is_full() {
        let mut part = FloodTest { quality: QUALITY, ..pair() }.parts(0, 7, 1).remove(0);
        let (mut connections, mut streams) = connected(&part);
        let mut expect = |part: &Flood, numbers: Range<u64>| {
            let expected = packets(&part.streams[0], numbers);
            let mut sent = vec![0; expected.len()];
            streams[1].read_exact(&mut sent).unwrap();
            assert_eq!(sent, expected);
        };
        assert_eq!(part.publish(&mut connections).unwrap(), Next::Now);
        expect(&part, 0..3);
        assert_eq!(part.publish(&mut connections).unwrap(), Next::WhenWoken);
        expect(&part, 3..4);
        part.receive(1, &[0x40, 2, 0, 2], &mut connections).unwrap();
        assert_eq!(part.publish(&mut connections).unwrap(), Next::WhenWoken);
        part.receive(1, &[0x40, 2, 0, 1], &mut connections).unwrap();
        assert_eq!(part.publish(&mut connections).unwrap(), Next::WhenWoken);
        expect(&part, 4..6);
    }

    #[test]
    fn a_message_delivered_but_not_acknowledged_fails_the_run() {
        let test = FloodTest { messages: 1, quality: QUALITY, ..pair() };
        let mut part = test.parts(0, 7, 1).remove(0);
        let (mut connections, _streams) = connected(&part);
        part.publish(&mut connections).unwrap();
        let packet = packets(&part.streams[0], 0..1);
        part.receive(0, &packet, &mut connections).unwrap();
        part.publish(&mut connections).unwrap();
        assert!(!part.is_complete());
        assert!(part.outcome().unwrap_err().to_string().contains("acknowledge"));
    }

    #[test]
    fn topics_come_and_go_until_every_thread_has_its_messages() {
        let topics_per_sec = NonZeroU32::new(1).unwrap();
        let plan = ChurnPlan { topics_per_sec, place: ChurnPlace::Apart };
        let test = FloodTest { sizes: vec![4], messages: 1, churn: Some(plan), ..pair() };
        let mut parts = test.parts(0, 7, 2);
        let deliver = |at: usize, parts: &mut [Flood]| {
            let (mut connections, streams) = connected(&parts[at]);
            parts[at].publish(&mut connections).unwrap();
            let packet = packets(&parts[at].streams[at], 0..1);
            parts[at].receive(0, &packet, &mut connections).unwrap();
            parts[at].publish(&mut connections).unwrap();
            (connections, streams)
        };
        let (mut connections, _streams) = deliver(0, &mut parts);
        assert!(matches!(parts[0].publish(&mut connections).unwrap(), Next::After(_)));
        deliver(1, &mut parts);
        assert!(parts[1].is_complete());
        assert_eq!(parts[0].publish(&mut connections).unwrap(), Next::WhenWoken);
        let granted = [0x90, 3, 0, 1, 0];
        assert!(!parts[0].is_complete());
        parts[0].receive(2, &granted, &mut connections).unwrap();
        assert!(parts[0].is_complete());
    }
}
