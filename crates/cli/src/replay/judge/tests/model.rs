//! A model of a server with one lasting session, its recorder, and the player of a recording.
//!
//! The recorded server uses the lowest free packet identifier, and the server of the replay another one for each message.

use std::collections::VecDeque;
use std::time::Duration;

use wire::{PacketType, Qos, Version};

use super::super::super::exchange::Acknowledgement;
use super::super::super::packet::Seen;
use super::super::super::past::Moment;
use super::super::super::report::Report;
use super::super::super::script::Said;
use super::super::Judge;
use super::{Message, connect, judge, publish, seen};

pub(super) const AT_LEAST_ONCE: Qos = Qos::AtLeastOnce;
pub(super) const EXACTLY_ONCE: Qos = Qos::ExactlyOnce;

pub(super) fn brief(first: u8, packet_id: u16) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    vec![first, 2, high, low]
}

/// A server with one lasting session.
pub(super) struct Server {
    pub(super) version: Version,
    /// The next packet identifier. `None` stands for the lowest free one.
    pub(super) next_id: Option<u16>,
    pub(super) has_session: bool,
    pub(super) is_connected: bool,
    pub(super) open: Vec<Open>,
    pub(super) queued: VecDeque<Message>,
    /// Forgets the first message that is not acknowledged when the connection ends.
    pub(super) is_faulty: bool,
}

pub(super) struct Open {
    pub(super) packet_id: u16,
    pub(super) message: Message,
    pub(super) is_released: bool,
}

impl Server {
    pub(super) fn new(version: Version, next_id: Option<u16>) -> Self {
        let (open, queued) = (Vec::new(), VecDeque::new());
        Self { version, next_id, has_session: false, is_connected: false, open, queued, is_faulty: false }
    }

    pub(super) fn connect(&mut self) -> Vec<Vec<u8>> {
        // MQTT 3.1 has no Session Present.
        let session_present = self.has_session && self.version != Version::V3_1;
        let mut sent = vec![vec![0x20, 2, u8::from(session_present), 0]];
        (self.has_session, self.is_connected) = (true, true);
        sent.extend(self.open.iter().map(|open| match open.is_released {
            true => brief(0x62, open.packet_id),
            false => publish(open.packet_id, open.message, true),
        }));
        let queued = std::mem::take(&mut self.queued);
        sent.extend(queued.into_iter().filter_map(|message| self.publish(message)));
        sent
    }

    pub(super) fn end(&mut self) {
        self.is_connected = false;
        if self.is_faulty && self.open.iter().any(|open| !open.is_released) {
            let first = self.open.iter().position(|open| !open.is_released).expect("there is one");
            self.open.remove(first);
            self.is_faulty = false;
        }
    }

    pub(super) fn publish(&mut self, message: Message) -> Option<Vec<u8>> {
        if !self.is_connected {
            self.queued.push_back(message);
            return None;
        }
        let is_free = |packet_id: &u16| self.open.iter().all(|open| open.packet_id != *packet_id);
        let lowest = (self.next_id.unwrap_or(1)..).find(is_free);
        let packet_id = lowest.expect("an identifier is free");
        self.next_id = self.next_id.map(|_| packet_id + 1);
        self.open.push(Open { packet_id, message, is_released: false });
        Some(publish(packet_id, message, false))
    }

    /// Reads an answer of the client, which has to fit to an open exchange.
    pub(super) fn read(&mut self, answer: &[u8]) -> Option<Vec<u8>> {
        let packet_id = u16::from_be_bytes([answer[2], answer[3]]);
        let at = self.open.iter().position(|open| open.packet_id == packet_id);
        let at = at.unwrap_or_else(|| panic!("{answer:x?} is about no open exchange"));
        let open = &mut self.open[at];
        match (answer[0], open.message.0, open.is_released) {
            (0x50, EXACTLY_ONCE, false) => {
                open.is_released = true;
                return Some(brief(0x62, packet_id));
            }
            (0x40, AT_LEAST_ONCE, false) | (0x70, EXACTLY_ONCE, true) => drop(self.open.remove(at)),
            _ => panic!("{answer:x?} does not fit to the stage of the exchange"),
        }
        None
    }
}

/// An event of a recording, or a cause outside of the session.
pub(super) enum Event {
    Open(u64),
    Publish(Message),
    Server(u64, Vec<u8>),
    Client(u64, Vec<u8>),
    End(u64),
}

/// The recorded server and its client.
pub(super) struct Recorder {
    pub(super) server: Server,
    pub(super) connection: u64,
    pub(super) events: Vec<Event>,
    pub(super) to_client: VecDeque<Vec<u8>>,
    pub(super) to_server: VecDeque<Vec<u8>>,
}

impl Recorder {
    pub(super) fn new(version: Version) -> Self {
        let (to_client, to_server) = (VecDeque::new(), VecDeque::new());
        let mut recorder = Self {
            server: Server::new(version, None),
            connection: 0,
            events: Vec::new(),
            to_client,
            to_server,
        };
        recorder.open();
        recorder
    }

    pub(super) fn open(&mut self) {
        self.connection += 1;
        self.events.push(Event::Open(self.connection));
        let sent = self.server.connect();
        sent.into_iter().for_each(|packet| self.send(packet));
    }

    pub(super) fn send(&mut self, packet: Vec<u8>) {
        self.events.push(Event::Server(self.connection, packet.clone()));
        self.to_client.push_back(packet);
    }

    pub(super) fn publish(&mut self, message: Message) {
        self.events.push(Event::Publish(message));
        let sent = self.server.publish(message);
        sent.into_iter().for_each(|packet| self.send(packet));
    }

    /// The server sends this message on the next connection only.
    pub(super) fn publish_late(&mut self, message: Message) {
        self.events.push(Event::Publish(message));
        self.server.queued.push_back(message);
    }

    /// The client answers the next packet that needs an answer.
    pub(super) fn answer(&mut self) -> bool {
        while let Some(packet) = self.to_client.pop_front() {
            let (first, id) = match packet[0] {
                0x62 => (0x70, &packet[2..4]),
                0x32 | 0x3a => (0x40, &packet[5..7]),
                0x34 | 0x3c => (0x50, &packet[5..7]),
                _ => continue,
            };
            let answer = brief(first, u16::from_be_bytes([id[0], id[1]]));
            self.events.push(Event::Client(self.connection, answer.clone()));
            self.to_server.push_back(answer);
            return true;
        }
        false
    }

    /// The server reads the next answer.
    pub(super) fn read(&mut self) -> bool {
        let Some(answer) = self.to_server.pop_front() else { return false };
        let sent = self.server.read(&answer);
        sent.into_iter().for_each(|packet| self.send(packet));
        true
    }

    pub(super) fn complete(&mut self) {
        while self.answer() || self.read() {}
    }

    /// The connection ends. The server reads this number of answers, and its packets are not recorded any more.
    pub(super) fn end(&mut self, reads: usize) {
        for answer in self.to_server.drain(..).take(reads) {
            let _ = self.server.read(&answer);
        }
        self.to_client.clear();
        self.server.end();
        self.events.push(Event::End(self.connection));
    }
}

/// The accidents of a replay.
pub(super) trait Chance {
    /// Number of packets that are under way and arrive before the next step.
    fn arrivals(&mut self) -> usize;
    /// Number of answers that the server reads when the connection ends.
    fn reads_at_end(&mut self) -> usize;
    /// Whether the client still receives the packets that are under way when the connection ends.
    fn receives_at_end(&mut self) -> bool;
}

/// No accident, except at the end of a connection.
#[derive(Clone, Copy)]
pub(super) struct AtEnd {
    pub(super) reads: usize,
    pub(super) receives: bool,
}

impl Chance for AtEnd {
    fn arrivals(&mut self) -> usize {
        0
    }

    fn reads_at_end(&mut self) -> usize {
        self.reads
    }

    fn receives_at_end(&mut self) -> bool {
        self.receives
    }
}

/// The server of the replay, and the client that the judge leads.
pub(super) struct Play<C> {
    pub(super) judge: Judge,
    pub(super) server: Server,
    pub(super) connection: u64,
    pub(super) to_client: VecDeque<Vec<u8>>,
    pub(super) to_server: VecDeque<Vec<u8>>,
    pub(super) chance: C,
    pub(super) moment: Moment,
    /// Time between two steps.
    pub(super) pause: Duration,
    pub(super) gave_up: u32,
}

/// The result of a replay.
pub(super) struct Played {
    pub(super) report: Report,
    /// Number of exchanges that are open at the end.
    pub(super) open: usize,
    pub(super) gave_up: u32,
}

impl Played {
    #[track_caller]
    pub(super) fn assert_clean(&self, case: &str) {
        assert_eq!(self.report.differences(), 0, "{case}: {}", self.report.text());
        assert_eq!(self.open, 0, "{case}: an exchange stays open");
        assert_eq!(self.gave_up, 0, "{case}: the replay has waited for a packet in vain");
    }
}

impl<C: Chance> Play<C> {
    pub(super) fn of(recorder: Recorder, chance: C, pause: Duration) -> Played {
        let server = Server::new(recorder.server.version, Some(101));
        Self::with(server, recorder, chance, pause)
    }

    pub(super) fn with(server: Server, recorder: Recorder, chance: C, pause: Duration) -> Played {
        let mut play = Self {
            judge: judge(),
            server,
            connection: 0,
            to_client: VecDeque::new(),
            to_server: VecDeque::new(),
            chance,
            moment: Moment { step: 0, time: Duration::ZERO },
            pause,
            gave_up: 0,
        };
        recorder.events.into_iter().for_each(|event| play.step(event));
        play.settle();
        while play.progress() {}
        let (open, gave_up) = (play.server.open.len(), play.gave_up);
        Played { report: play.judge.finish(), open, gave_up }
    }

    pub(super) fn step(&mut self, event: Event) {
        for _ in 0..self.chance.arrivals() {
            self.progress();
        }
        if !matches!(event, Event::Server(..)) {
            if let (Event::End(_), false) = (&event, self.chance.receives_at_end()) {
                // A packet of an exchange may be lost.
                self.to_client.retain(|packet| packet[0] == 0x20);
            }
            self.settle();
        }
        self.moment = Moment { step: self.moment.step + 1, time: self.moment.time + self.pause };
        self.judge.advance(self.moment);
        self.judge.sweep();
        self.answer();
        match event {
            Event::Open(connection) => {
                connect(&mut self.judge, connection, "frog", self.server.version);
                self.connection = connection;
                self.to_client.extend(self.server.connect());
            }
            Event::Publish(message) => self.to_client.extend(self.server.publish(message)),
            Event::Server(connection, packet) => {
                self.judge.expect(connection, seen(&packet));
                self.answer();
            }
            Event::Client(connection, answer) => self.acknowledge(connection, &answer),
            Event::End(connection) => self.end(connection),
        }
    }

    pub(super) fn acknowledge(&mut self, connection: u64, answer: &[u8]) {
        let packet_id = u16::from_be_bytes([answer[2], answer[3]]);
        let packet_type = match answer[0] {
            0x40 => PacketType::PubAck,
            0x50 => PacketType::PubRec,
            _ => PacketType::PubComp,
        };
        let said = Acknowledgement { packet_type, packet_id, is_refusal: false };
        let now = self.judge.acknowledge(connection, said);
        self.judge.said(connection, &Said::Acknowledge(said));
        self.to_server.extend(now.map(|now| brief(answer[0], now)));
    }

    pub(super) fn end(&mut self, connection: u64) {
        self.judge.client_ends(connection);
        for answer in self.to_server.drain(..).take(self.chance.reads_at_end()) {
            self.to_client.extend(self.server.read(&answer));
        }
        if self.chance.receives_at_end() {
            for packet in self.to_client.drain(..) {
                self.judge.receive(connection, seen(&packet));
            }
        }
        self.judge.take_answers();
        self.to_client.clear();
        self.to_server.clear();
        self.server.end();
        self.judge.receive(connection, Seen::end());
        self.judge.expect(connection, Seen::end());
    }

    /// Waits until the expected packets have arrived, as the player does.
    pub(super) fn settle(&mut self) {
        while self.judge.waiting() > 0 {
            if !self.progress() {
                self.judge.give_up();
                self.gave_up += 1;
            }
        }
    }

    /// A packet arrives at the client or, if none is under way, at the server.
    pub(super) fn progress(&mut self) -> bool {
        if let Some(packet) = self.to_client.pop_front() {
            self.judge.receive(self.connection, seen(&packet));
            self.answer();
            return true;
        }
        let Some(answer) = self.to_server.pop_front() else { return false };
        self.to_client.extend(self.server.read(&answer));
        true
    }

    pub(super) fn answer(&mut self) {
        for answer in self.judge.take_answers() {
            if answer.connection == self.connection && self.server.is_connected {
                self.to_server.push_back(answer.bytes.to_vec());
            }
        }
    }
}
