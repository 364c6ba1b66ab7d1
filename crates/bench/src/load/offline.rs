//! Messages for sessions whose clients are away: what storing costs, and whether everything is there when they come back.

use std::time::{Duration, Instant};

use wire::{Connected, Disconnect, Packet, Qos, Role, Version};

use super::trouble::Troubled;
use super::{Outcome, Part, Test, unexpected};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::{Exchanges, Quality};
use crate::frames::for_each_packet;
use crate::message::{RunId, Stream, claimed_stream};
use crate::protocol::{packet_in, to_bytes};
use crate::sequence::{Arrival, Sequence, Tally};
use crate::setup::{Client, IN_FLIGHT_MAX};

/// Publishers that store messages for sessions. The size is how many sessions each message goes to.
#[derive(Debug, Clone)]
pub(crate) struct OfflineTest {
    pub(crate) fanouts: Vec<usize>,
    pub(crate) sessions: usize,
    pub(crate) publishers: usize,
    /// For so long they publish.
    pub(crate) duration: Duration,
    pub(crate) window: u16,
    pub(crate) payload_len: usize,
    pub(crate) version: Version,
}

/// Connections: the publishers, the sessions for their first time, and the sessions when they come back.
///
/// ```text
/// Storing ── the time is over, and everything acknowledged ──► Stored ── the clock has stopped ──► Draining
/// ```
#[derive(Debug)]
pub(crate) struct Offline {
    test: OfflineTest,
    run: RunId,
    fanout: usize,
    /// By topic. Each publisher has the same number of them, one behind the other.
    streams: Vec<Stream>,
    publishers: Vec<Publisher>,
    readers: Vec<Reader>,
    phase: Phase,
    acknowledged: u64,
    /// Sessions that were let in again.
    returned: usize,
    received: u64,
    batch: Vec<u8>,
    stray: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Storing { since: Instant },
    Stored,
    Draining { since: Instant, took: Duration },
}

#[derive(Debug)]
struct Publisher {
    /// Goes over its topics in turn.
    sent: u64,
    exchanges: Exchanges,
}

/// A session that has come back.
#[derive(Debug)]
struct Reader {
    /// Of each topic that it gets.
    sequences: Vec<Sequence>,
    exchanges: Exchanges,
}

impl OfflineTest {
    /// Sessions of one group get the same messages.
    fn groups(&self, fanout: usize) -> usize {
        (self.sessions / fanout).max(1)
    }

    /// As many topics as sessions, or one for each publisher.
    fn topics_each(&self) -> usize {
        (self.sessions / self.publishers).max(1)
    }

    fn topics(&self) -> usize {
        self.topics_each() * self.publishers
    }

    fn quality(&self) -> Quality {
        Quality { qos: Qos::AtLeastOnce, window: self.window }
    }
}

impl Test for OfflineTest {
    type Part = Offline;

    fn title(&self) -> String {
        let Self { sessions, publishers, duration, window, payload_len, version, .. } = self;
        format!(
            "offline-sessions: MQTT {version}, QoS 1 with a window of {window}, {publishers} publishers, \
             {payload_len} B to {sessions} sessions in turn that are away, {} s",
            duration.as_secs_f64()
        )
    }

    fn qos(&self) -> Qos {
        Qos::AtLeastOnce
    }

    fn sizes(&self) -> Vec<String> {
        let name = |&fanout: &usize| match fanout {
            1 => "1 session per message".to_owned(),
            _ => format!("{fanout} sessions per message"),
        };
        self.fanouts.iter().map(name).collect()
    }

    fn suits_relay(&self, _: usize) -> bool {
        false
    }

    fn connections(&self, _: usize) -> u64 {
        (self.publishers + 2 * self.sessions) as u64
    }

    fn parts(&self, size: usize, run: RunId, _: usize) -> Vec<Offline> {
        let fanout = self.fanouts[size];
        let groups = self.groups(fanout);
        let stream = |(id, topic): (u32, usize)| {
            let name = format!("offline/{}/{}", topic % groups, topic / groups);
            Stream::new(run, id, &name, self.payload_len, Qos::AtLeastOnce, self.version)
        };
        let publisher = || Publisher { sent: 0, exchanges: Exchanges::new(self.version) };
        vec![Offline {
            test: self.clone(),
            run,
            fanout,
            streams: (0..).zip(0..self.topics()).map(stream).collect(),
            publishers: std::iter::repeat_with(publisher).take(self.publishers).collect(),
            readers: Vec::new(),
            phase: Phase::Waiting,
            acknowledged: 0,
            returned: 0,
            received: 0,
            batch: Vec::new(),
            stray: Tally::default(),
        }]
    }
}

impl Offline {
    fn session(&self, number: usize) -> Client {
        let filter = format!("offline/{}/+", number % self.test.groups(self.fanout));
        let number = self.test.publishers + number;
        Client::new(self.run, number, Some(filter), self.test.quality()).lasting()
    }

    /// The first connection of a session that has come back.
    fn first_reader(&self) -> usize {
        self.test.publishers + self.test.sessions
    }

    /// All sessions say goodbye, and are away from then on.
    fn leave(&mut self, connections: &mut Connections) -> Result<()> {
        let farewell = to_bytes(Disconnect::default(), self.test.version);
        for session in self.test.publishers..self.first_reader() {
            connections.send(session, &farewell)?;
            connections.cut(session);
        }
        Ok(())
    }

    /// Lets a publisher write as much as its window has room for.
    fn store(&mut self, number: usize, connections: &mut Connections) -> Result<()> {
        let topics = self.test.topics_each() as u64;
        let publisher = &mut self.publishers[number];
        let count = self.test.quality().room(&publisher.exchanges);
        if count == 0 || connections.is_behind(number) {
            return Ok(());
        }
        self.batch.clear();
        let streams = &self.streams[number * self.test.topics_each()..][..self.test.topics_each()];
        for sent in publisher.sent..publisher.sent + count {
            let stream = &streams[usize::try_from(sent % topics).unwrap_or_default()];
            stream.append_in(sent, sent / topics, &mut self.batch);
        }
        publisher.sent += count;
        publisher.exchanges.note_sent(count, Qos::AtLeastOnce);
        connections.send(number, &self.batch)
    }

    fn are_all_acknowledged(&self) -> bool {
        self.publishers.iter().all(|publisher| publisher.exchanges.are_finished())
    }

    /// Number of messages that were sent to a topic.
    fn sent_to(&self, topic: usize) -> u64 {
        let each = self.test.topics_each();
        let behind = each - 1 - topic % each;
        (self.publishers[topic / each].sent + behind as u64) / each as u64
    }

    /// The topics of a session's group.
    fn topics_of(&self, session: usize) -> impl Iterator<Item = usize> + use<> {
        let groups = self.test.groups(self.fanout);
        (session % groups..self.test.topics()).step_by(groups)
    }

    fn reader(&self, session: usize) -> Reader {
        let sequences = self.topics_of(session).map(|topic| Sequence::new(self.sent_to(topic))).collect();
        Reader { sequences, exchanges: Exchanges::new(self.test.version) }
    }

    /// As many as were sent, times the sessions that each goes to.
    fn stored(&self) -> u64 {
        (0..self.test.sessions)
            .flat_map(|session| self.topics_of(session))
            .map(|topic| self.sent_to(topic))
            .sum()
    }

    fn receive_stored(&mut self, session: usize, packet: &[u8]) -> Result<()> {
        let reader = &mut self.readers[session];
        if reader.exchanges.take(packet, &mut self.batch)? {
            return Ok(());
        }
        if packet[0] >> 4 != 3 {
            return self.let_in(packet);
        }
        let groups = self.test.groups(self.fanout);
        let topic = claimed_stream(packet, self.test.payload_len).filter(|topic| *topic < self.streams.len());
        let arrival = topic.filter(|topic| topic % groups == session % groups).and_then(|topic| {
            let stream = &self.streams[topic];
            // It may have been on its way when the session left.
            let number = stream.number_in(packet).or_else(|| stream.number_in_copy(packet))?;
            Some(reader.sequences[topic / groups].record(number))
        });
        match arrival {
            Some(Arrival::New) => self.received += 1,
            Some(Arrival::Duplicate) => {}
            Some(Arrival::Unknown) | None => unexpected(packet, self.test.version, &mut self.stray)?,
        }
        if let Phase::Draining { since, took } = &mut self.phase {
            *took = since.elapsed();
        }
        Ok(())
    }

    fn let_in(&mut self, packet: &[u8]) -> Result<()> {
        // MQTT 3.1 has no Session Present: there the messages show it.
        let is_told = self.test.version != Version::V3_1;
        match packet_in(packet, Some(self.test.version), Role::Server)? {
            Packet::ConnAck(answer)
                if answer.outcome == (Connected::Accepted { session_present: is_told })
                    || answer.outcome == (Connected::Accepted { session_present: true }) =>
            {
                self.returned += 1;
                Ok(())
            }
            other => Err(Error::Server(format!("answered {other} to a session that came back"))),
        }
    }
}

impl Load for Offline {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        self.batch.clear();
        let used = match connection.checked_sub(self.first_reader()) {
            Some(session) => for_each_packet(bytes, |packet| self.receive_stored(session, packet))?,
            None => for_each_packet(bytes, |packet| {
                let publisher = self.publishers.get_mut(connection);
                match publisher.map(|publisher| publisher.exchanges.take(packet, &mut self.batch)) {
                    Some(Ok(true)) => self.acknowledged += 1,
                    Some(Err(error)) => return Err(error),
                    // A session that has just left.
                    None => {}
                    Some(Ok(false)) => unexpected(packet, self.test.version, &mut self.stray)?,
                }
                Ok(())
            })?,
        };
        if !self.batch.is_empty() && connection >= self.first_reader() {
            connections.send(connection, &self.batch)?;
        }
        Ok(used)
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        match self.phase {
            Phase::Waiting => {
                self.leave(connections)?;
                self.phase = Phase::Storing { since: Instant::now() };
                return Ok(Next::Now);
            }
            Phase::Storing { since } if since.elapsed() < self.test.duration => {
                (0..self.publishers.len()).try_for_each(|number| self.store(number, connections))?;
            }
            Phase::Storing { .. } if self.are_all_acknowledged() => self.phase = Phase::Stored,
            Phase::Storing { .. } | Phase::Stored => {}
            Phase::Draining { .. } => {
                while self.readers.len() < self.test.sessions
                    && self.readers.len() - self.returned < IN_FLIGHT_MAX
                {
                    let session = self.readers.len();
                    self.readers.push(self.reader(session));
                    connections.open(&self.session(session).connect(self.test.version))?;
                }
            }
        }
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        match self.phase {
            Phase::Draining { .. } => self.received,
            _ => self.acknowledged,
        }
    }

    fn expected(&self) -> u64 {
        // The server decides the number of packets.
        0
    }

    fn is_complete(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Storing { .. } => false,
            Phase::Stored => true,
            Phase::Draining { .. } => self.returned == self.test.sessions && self.received == self.stored(),
        }
    }
}

impl Part for Offline {
    fn clients(&self) -> Vec<Client> {
        let publisher = |number| Client::new(self.run, number, None, self.test.quality());
        let sessions = (0..self.test.sessions).map(|number| self.session(number));
        (0..self.test.publishers).map(publisher).chain(sessions).collect()
    }

    fn packet_len_max(&self) -> usize {
        self.streams.iter().map(Stream::packet_len).max().unwrap_or(0)
    }

    fn begin_aftermath(&mut self) -> bool {
        self.phase = Phase::Draining { since: Instant::now(), took: Duration::ZERO };
        true
    }

    fn outcome(self) -> Result<Outcome> {
        if !self.are_all_acknowledged() {
            return Err(Error::unacknowledged());
        }
        let mut tally = self.stray;
        let sequences = self.readers.iter().flat_map(|reader| &reader.sequences);
        sequences.for_each(|sequence| tally.add(sequence.tally()));
        let took = if let Phase::Draining { took, .. } = self.phase { took } else { Duration::ZERO };
        let troubled = Troubled {
            expected: self.stored(),
            received: self.received,
            took,
            out_of_order: tally.out_of_order,
        };
        Ok(Outcome { messages: self.acknowledged, tally, troubled: Some(troubled), ..Outcome::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(fanout: usize) -> Offline {
        let test = OfflineTest {
            fanouts: vec![fanout],
            sessions: 20,
            publishers: 4,
            duration: Duration::from_secs(1),
            window: 10,
            payload_len: 16,
            version: Version::V3_1_1,
        };
        test.parts(0, 7, 1).remove(0)
    }

    #[test]
    fn each_message_goes_to_as_many_sessions_as_asked_for() {
        for fanout in [1, 10] {
            let mut part = part(fanout);
            part.publishers.iter_mut().zip([7, 0, 12, 1]).for_each(|(publisher, sent)| publisher.sent = sent);
            assert_eq!((0..20).map(|topic| part.sent_to(topic)).sum::<u64>(), 20);
            assert_eq!([0, 1, 2, 4, 5, 10, 15].map(|topic| part.sent_to(topic)), [2, 2, 1, 1, 0, 3, 1]);
            assert_eq!(part.stored(), 20 * fanout as u64);
        }
    }

    #[test]
    fn a_session_that_comes_back_must_have_everything_in_order_and_nothing_else() {
        let mut part = part(1);
        part.publishers[0].sent = 15;
        part.readers = vec![part.reader(0), part.reader(1)];
        let packets = |topic: usize, numbers: &[u64], part: &Offline| {
            let each = |number: &u64| {
                let mut packet = Vec::new();
                part.streams[topic].append(*number, &mut packet);
                packet
            };
            numbers.iter().map(each).collect::<Vec<_>>()
        };
        for (topic, session, numbers) in [(0, 0, vec![0, 2, 1]), (1, 1, vec![0, 0]), (2, 1, vec![0])] {
            for packet in packets(topic, &numbers, &part) {
                part.receive_stored(session, &packet).unwrap();
            }
        }
        let tally = part.outcome().unwrap().tally;
        assert_eq!(tally, Tally { lost: 2, duplicated: 1, out_of_order: 1, unexpected: 1 });
    }

    #[test]
    fn a_session_that_is_not_there_any_more_fails_the_run() {
        let mut part = part(1);
        part.readers = vec![part.reader(0)];
        let fresh = [0x20, 2, 0, 0];
        assert!(part.receive_stored(0, &fresh).unwrap_err().to_string().contains("came back"));
        part.receive_stored(0, &[0x20, 2, 1, 0]).unwrap();
        assert_eq!(part.returned, 1);
    }
}
