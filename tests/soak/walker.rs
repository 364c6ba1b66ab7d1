//! A client of the crowd, with its connection if it has one, and the state that the broker must store for it.

use std::collections::{BTreeMap, VecDeque};

use pondhawk_tests::conversation::{self, Message, PUBACK, PUBCOMP, PUBREC, PUBREL};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Random, RawClient, Version};

use crate::line::{Line, Pace, Publishing, Will};
use crate::session::{Presence, Session};

const CONNACK: u8 = 0x20;
const SUBACK: u8 = 0x90;
const UNSUBACK: u8 = 0xB0;
const DISCONNECT: u8 = 0xE0;
const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;

/// Number of entries in a diary.
const DIARY_ENTRIES: usize = 60;
/// Reason codes with which the broker may end a connection: it stops, too much waits for a client that does not
/// read, or another connection has taken over the session.
const EXPECTED_ENDS: &[u8] = &[0x8B, 0x97, 0x8E];

/// The options of a new connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// Clean Start, or Clean Session before MQTT 5.
    pub(crate) is_clean: bool,
    /// Whether the session is to outlive the connection.
    pub(crate) lasts: bool,
    /// Whether the session expires after a second or two.
    pub(crate) is_brief: bool,
    pub(crate) has_will: bool,
}

/// A client of the crowd.
pub(crate) struct Walker {
    pub(crate) number: usize,
    pub(crate) client_id: String,
    pub(crate) version: Version,
    pub(crate) random: Random,
    pub(crate) line: Option<Line>,
    /// Whether a connection was cut before CONNACK. Its CONNECT may reach the ledger after that of a newer
    /// connection, from another thread. Until then it is uncertain which sessions exist.
    is_haunted: bool,
    /// Connections that were taken over, and that the broker must close.
    pub(crate) abandoned: Vec<RawClient>,
    pub(crate) session: Session,
    /// The last packet identifier of the previous connection, from which the next one continues.
    last_packet_id: u16,
    /// The length of the retained value on each of its topics; `None` if uncertain.
    pub(crate) retained: BTreeMap<String, Option<usize>>,
    /// The last requests and their answers, which are printed with a fault.
    diary: VecDeque<String>,
    /// Faults that the client has found.
    pub(crate) findings: Vec<String>,
    /// Reason codes with which the broker has ended or refused connections.
    pub(crate) ended: Vec<u8>,
    pub(crate) refused: u64,
    pub(crate) received: u64,
}

impl Walker {
    pub(crate) fn new(number: usize, random: Random) -> Self {
        Self {
            number,
            client_id: format!("walker {number}"),
            version: Version::ALL[number % 3],
            random,
            line: None,
            is_haunted: false,
            abandoned: Vec::new(),
            session: Session::absent(),
            last_packet_id: 0,
            retained: BTreeMap::new(),
            diary: VecDeque::new(),
            findings: Vec::new(),
            ended: Vec::new(),
            refused: 0,
            received: 0,
        }
    }

    pub(crate) fn is_in(&self) -> bool {
        self.line.as_ref().is_some_and(Line::is_in)
    }

    /// Connects. The new connection takes over from an existing one.
    pub(crate) fn connect(&mut self, broker: &Broker, arrival: Arrival) {
        let bytes = self.arrive(broker, arrival);
        self.line.as_mut().expect("it has just connected").send(&bytes);
    }

    /// Opens a connection, and returns the CONNECT, which the caller must send.
    pub(crate) fn arrive(&mut self, broker: &Broker, arrival: Arrival) -> Vec<u8> {
        if let Some(line) = self.line.take() {
            let raw = self.lose(line);
            self.abandoned.push(raw);
        }
        let Arrival { is_clean, lasts, is_brief, has_will } = arrival;
        let waits = has_will && self.version.is_5() && lasts && self.random.one_in(2);
        let delay = if waits { 600_u32 } else { u32::from(self.random.byte() & 1) };
        let will_topic = self.will_topic();
        let will_properties = [vec![0x18], delay.to_be_bytes().to_vec()].concat();
        let properties: &[u8] = if self.version.is_5() { &will_properties } else { &[] };
        let retain = self.random.one_in(3);
        let qos = self.random.byte() % 3;
        let will = packet::Will { retain, qos, properties, ..packet::Will::new(&will_topic, b"gone") };
        let expiry_secs: u32 = match (lasts, is_brief) {
            (true, false) => 36_000,
            (true, true) => 1,
            (false, _) => 0,
        };
        let mut connect_properties = [vec![0x11], expiry_secs.to_be_bytes().to_vec()].concat();
        if self.random.one_in(3) {
            connect_properties.extend(b"\x22\x00\x05");
        }
        if self.random.one_in(3) {
            connect_properties.extend(b"\x21\x00\x03");
        }
        let connect = Connect {
            clean_start: is_clean,
            will: has_will.then_some(will),
            properties: if self.version.is_5() { &connect_properties } else { &[] },
            ..Connect::new(self.version, &self.client_id)
        };
        let mut line = Line::new(broker.connect(), is_clean);
        (line.lasts, line.is_brief, line.last_packet_id) = (lasts, is_brief, self.last_packet_id);
        line.will = has_will.then_some(Will { waits });
        self.line = Some(line);
        let bytes = connect.bytes();
        self.note(format!("connects: {arrival:?}"));
        if has_will {
            self.doubt_will();
        }
        bytes
    }

    fn will_topic(&self) -> String {
        format!("lastwill/{}", self.number)
    }

    /// Records that the will may be retained, or not.
    pub(crate) fn doubt_will(&mut self) {
        self.retained.insert(self.will_topic(), None);
    }

    /// Records the loss of a connection. It is uncertain which of the last packets the broker has read.
    fn lose(&mut self, line: Line) -> RawClient {
        self.note(format!("loses a connection: {}", line.state()));
        for (filter, _) in line.requests.iter().flat_map(|request| &request.filters) {
            self.session.doubt_subscription(filter);
        }
        self.leave_open(&line);
        self.is_haunted |= !line.is_greeted;
        if line.is_in() {
            self.end_unless_lasting(&line);
            self.session.has_pending_will = line.lasts && line.will.is_some_and(|will| will.waits);
        } else if line.lasts || self.session.lasts || self.session.presence == Presence::Unknown {
            self.session.doubt();
            if line.is_clean {
                // The broker may have begun a new session, in which the next connection goes on.
                self.session.doubt_subscriptions();
            }
        } else {
            self.session.end();
        }
        line.raw
    }

    /// Keeps unacknowledged exchanges open: retained values, and messages of QoS 2.
    fn leave_open(&mut self, line: &Line) {
        self.last_packet_id = line.last_packet_id;
        self.doubt_values(line);
        let open = line.publishing.iter().filter(|(_, publishing)| publishing.qos == 2);
        self.session.unreleased.extend(open.map(|(packet_id, _)| *packet_id));
    }

    fn doubt_values(&mut self, line: &Line) {
        for (topic, _) in line.publishing.values().filter_map(|publishing| publishing.retained.as_ref()) {
            self.retained.insert(topic.clone(), None);
        }
    }

    fn end_unless_lasting(&mut self, line: &Line) {
        if !line.lasts {
            self.session.end();
        } else if line.is_brief {
            self.session.doubt();
        }
    }

    /// Resets the connection, without DISCONNECT.
    pub(crate) fn cut(&mut self) {
        if let Some(line) = self.line.take() {
            self.lose(line).reset();
        }
    }

    /// Records that the broker has read DISCONNECT, and all packets before it.
    fn left(&mut self, line: &Line) {
        self.note(format!("has left: {}", line.state()));
        if !line.is_greeted {
            // CONNACK was lost with the rest of the broker's packets.
            if !line.is_clean {
                self.session.doubt();
            } else {
                self.session.begin(false, line.lasts);
            }
        }
        for request in &line.requests {
            for (filter, _) in &request.filters {
                self.session.assume_subscription(filter, request.qos);
            }
        }
        self.leave_open(line);
        self.end_unless_lasting(line);
    }

    /// Handles the end of the broker's process. Packets that it had sent count, and all other state is uncertain.
    pub(crate) fn survive(&mut self) {
        if let Some(line) = &mut self.line {
            let (packets, _) = line.raw.arrived();
            packets.iter().for_each(|packet| self.hear_packet(packet));
        }
        if let Some(line) = self.line.take() {
            self.lose(line);
        }
        self.abandoned.clear();
        self.session.survive();
    }

    /// Reads and handles packets that have arrived.
    pub(crate) fn hear(&mut self) {
        self.abandoned.retain_mut(|raw| !raw.arrived().1);
        let Some(line) = &mut self.line else { return };
        if let Pace::Stuck(turns) = &mut line.pace {
            *turns = turns.saturating_sub(1);
            if *turns == 0 {
                line.pace = Pace::Swift;
            }
            return line.flush();
        }
        let (packets, is_closed) = line.raw.arrived();
        packets.iter().for_each(|packet| self.hear_packet(packet));
        let Some(line) = &mut self.line else { return };
        line.answer();
        if is_closed {
            self.closed();
        }
    }

    /// Handles the end of the connection by the broker.
    pub(crate) fn closed(&mut self) {
        let Some(line) = self.line.take() else { return };
        // A broker that refuses a CONNECT does not read what comes behind it.
        if line.is_leaving && !line.is_refused {
            self.left(&line);
        } else {
            self.lose(line);
        }
    }

    /// Handles a packet from the broker.
    pub(crate) fn hear_packet(&mut self, packet: &[u8]) {
        let Some(line) = &mut self.line else { return };
        match packet[0] {
            CONNACK => self.connected(packet),
            SUBACK | UNSUBACK => self.answered(packet),
            PUBACK | PUBREC | PUBCOMP => {
                let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
                if packet[0] == PUBCOMP {
                    self.session.unreleased.remove(&packet_id);
                }
                let acknowledged = line.acknowledged(packet);
                if let Some((publishing, refusal)) = acknowledged {
                    self.published(publishing, refusal);
                }
            }
            PUBREL => {
                let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
                line.note(format!("<62:{packet_id}"));
                line.owe(PUBCOMP, packet_id);
            }
            DISCONNECT => {
                let reason = packet.get(2).copied().unwrap_or(0);
                self.ended.push(reason);
                if !EXPECTED_ENDS.contains(&reason) {
                    self.find(&format!("the broker ends its connection with {reason:#04x}"));
                }
            }
            first if first & 0xF0 == 0x30 => self.receive(packet),
            _ => {}
        }
    }

    fn connected(&mut self, packet: &[u8]) {
        let Some(line) = &mut self.line else { return };
        if line.is_greeted {
            return self.find("a second CONNACK");
        }
        if !packet::is_accepted(packet) {
            self.ended.push(packet[3]);
            line.is_refused = true;
            return;
        }
        line.is_greeted = true;
        let (is_clean, lasts) = (line.is_clean, line.lasts);
        let says_present = conversation::session_present(packet);
        let had = self.session.presence;
        self.note(format!("is let in: a session {says_present}, had {had:?}, haunted {}", self.is_haunted));
        if self.is_haunted || had == Presence::Unknown && self.version == Version::V3_1 {
            self.session.doubt_subscriptions();
        }
        let was_there = if self.version == Version::V3_1 {
            // CONNACK does not say whether the session exists. Subscriptions that may exist are doubtful: the client
            // ends them later, which does nothing if the session is a new one.
            !is_clean && had != Presence::Absent
        } else {
            match (says_present, had) {
                _ if self.is_haunted => {}
                (true, _) if is_clean => self.find("Session Present after a clean start"),
                (true, Presence::Absent) => self.find("a session is there that had ended"),
                (false, Presence::Present) if !is_clean => self.find("its session is gone"),
                _ => {}
            }
            says_present
        };
        self.session.begin(was_there, lasts);
        let unreleased: Vec<u8> =
            self.session.unreleased.iter().flat_map(|id| conversation::ack(PUBREL, *id)).collect();
        if !was_there {
            self.session.unreleased.clear();
        } else if let Some(line) = &mut self.line {
            line.send(&unreleased);
        }
    }

    /// Handles SUBACK or UNSUBACK.
    fn answered(&mut self, packet: &[u8]) {
        let Some(line) = &mut self.line else { return };
        let header = 1 + packet[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let packet_id = u16::from_be_bytes([packet[header], packet[header + 1]]);
        let Some(place) = line.requests.iter().position(|request| request.packet_id == packet_id) else {
            return self.find("an answer to no request");
        };
        let request = line.requests.remove(place).expect("it is there");
        let has_reasons = packet[0] == SUBACK || self.version.is_5();
        for (at, (filter, was_there)) in request.filters.iter().enumerate() {
            let reason = if has_reasons { packet[packet.len() - request.filters.len() + at] } else { 0 };
            self.note(format!(
                "hears {reason:#04x} for request {packet_id}: {filter}, was there {was_there:?}"
            ));
            if reason >= 0x80 {
                // A subscription that existed before a refusal may still exist.
                self.refused += 1;
                self.session.doubt_subscription(filter);
                continue;
            }
            self.session.confirm_subscription(filter, request.qos);
            let is_to_end = request.qos.is_none() && has_reasons;
            match (reason, was_there) {
                _ if self.is_haunted => {}
                (NO_SUBSCRIPTION_EXISTED, Some(true)) if is_to_end => {
                    self.find(&format!("UNSUBACK says that there was no subscription to {filter}"));
                }
                (0, Some(false)) if is_to_end => {
                    self.find(&format!("UNSUBACK says that there was a subscription to {filter}"));
                }
                _ => {}
            }
        }
    }

    fn published(&mut self, publishing: Publishing, refusal: Option<u8>) {
        self.refused += u64::from(refusal.is_some());
        if let Some((topic, length)) = publishing.retained {
            self.retained.insert(topic, refusal.is_none().then_some(length));
        }
    }

    fn receive(&mut self, packet: &[u8]) {
        self.received += 1;
        let message = Message::parse(self.version, packet);
        self.session.owed.remove(&message.payload);
        let Some(line) = &mut self.line else { return };
        if message.qos > 0 {
            line.note(format!("<{:02x}:{}", packet[0], message.packet_id));
        }
        match message.qos {
            0 => {}
            1 => line.owe(PUBACK, message.packet_id),
            _ => line.owe(PUBREC, message.packet_id),
        }
    }

    pub(crate) fn find(&mut self, what: &str) {
        self.findings.push(format!("{} (MQTT {}): {what}", self.client_id, self.version));
        let diary = self.diary.drain(..).map(|entry| format!("    {entry}"));
        self.findings.extend(diary);
    }

    /// Remembers a request, an answer, or the end of a connection.
    pub(crate) fn note(&mut self, entry: String) {
        if self.diary.len() == DIARY_ENTRIES {
            self.diary.pop_front();
        }
        self.diary.push_back(entry);
    }

    /// Clears the doubt after a connection that was cut before CONNACK. The broker has had time to read its
    /// CONNECT.
    ///
    /// If its CONNECT was handled after that of a newer connection, no answer has told the client which session it
    /// has now, and which requests of the older connection were carried out. A new session has no subscriptions.
    pub(crate) fn calm(&mut self, broker: &Broker) {
        if std::mem::take(&mut self.is_haunted) {
            self.session.doubt();
            self.connect(broker, Arrival { is_clean: true, ..Arrival::default() });
        }
    }

    /// Makes requests that resolve doubts. Returns whether all state is certain, and nothing is on its way.
    pub(crate) fn settle(&mut self, broker: &Broker) -> bool {
        let session = &self.session;
        let Some(line) = &mut self.line else {
            if session.presence == Presence::Absent {
                return self.abandoned.is_empty();
            }
            let is_clean = self.version == Version::V3_1 && session.presence == Presence::Unknown;
            let lasts = !is_clean;
            self.connect(broker, Arrival { is_clean, lasts, ..Arrival::default() });
            return false;
        };
        line.pace = Pace::Swift;
        line.finish_packet();
        line.answer();
        if line.is_brief && line.is_in() {
            self.connect(broker, Arrival { lasts: true, ..Arrival::default() });
            return false;
        }
        if line.is_free() && line.requests.is_empty() {
            let doubtful = self.session.doubtful();
            if !doubtful.is_empty() {
                self.unsubscribe(doubtful);
                return false;
            }
        }
        let Some(line) = &self.line else { return false };
        line.is_idle()
            && self.session.is_certain()
            && self.session.unreleased.is_empty()
            && self.abandoned.is_empty()
    }

    /// Describes the client, with the packets for which it waits.
    pub(crate) fn state(&self) -> String {
        let line = self.line.as_ref().map(|line| {
            format!(
                "greeted {}, leaving {}, {:?}, {} requests, {} messages unacknowledged",
                line.is_greeted,
                line.is_leaving,
                line.pace,
                line.requests.len(),
                line.publishing.len()
            )
        });
        let Self { client_id, version, session, abandoned, .. } = self;
        let (presence, doubtful) = (session.presence, session.doubtful());
        let filters: Vec<&str> = session.filters().map(|(filter, _)| filter).collect();
        let (unreleased, open) = (session.unreleased.len(), abandoned.len());
        let trace = self.line.as_ref().map_or_else(String::new, Line::trace);
        format!(
            "{client_id} (MQTT {version}): {}; session {presence:?}, lasts {}, subscriptions {filters:?}, \
             doubtful {doubtful:?}, {unreleased} unreleased, {open} connections taken over and open; \
             last packets {trace}",
            line.unwrap_or_else(|| "not connected".to_owned()),
            session.lasts
        )
    }
}
