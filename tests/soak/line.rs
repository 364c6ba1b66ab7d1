//! A connection of a client, with the packets on their way in both directions.

use std::collections::{BTreeMap, VecDeque};

use pondhawk_tests::RawClient;
use pondhawk_tests::conversation::{PUBACK, PUBCOMP, PUBREC, PUBREL, ack};

/// The speed at which a client reads and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The client answers all packets at once.
    Swift,
    /// The client sends at most one answer per turn.
    Slow,
    /// The client does not read, for this number of turns.
    Stuck(u32),
}

/// A SUBSCRIBE or UNSUBSCRIBE without an answer.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) packet_id: u16,
    /// The filters. Each has whether the subscription existed before, if that is certain.
    pub(crate) filters: Vec<(String, Option<bool>)>,
    /// The requested QoS of a SUBSCRIBE; `None` for UNSUBSCRIBE.
    pub(crate) qos: Option<u8>,
}

/// A PUBLISH whose exchange is not complete.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) qos: u8,
    /// The topic of the retained value and the length of the value, if the message sets or clears one.
    pub(crate) retained: Option<(String, usize)>,
}

/// A connection and the state of its exchanges.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) raw: RawClient,
    /// Clean Start, or Clean Session before MQTT 5.
    pub(crate) is_clean: bool,
    /// CONNACK of success has arrived.
    pub(crate) is_greeted: bool,
    /// The broker has refused the CONNECT.
    pub(crate) is_refused: bool,
    /// DISCONNECT was sent, and the broker will close the connection.
    pub(crate) is_leaving: bool,
    /// Whether the session outlives the connection.
    pub(crate) lasts: bool,
    /// Whether the expiry is so short that the end of the session is uncertain.
    pub(crate) is_brief: bool,
    pub(crate) will: Option<Will>,
    pub(crate) pace: Pace,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// The rest of a packet that has begun. No other packet may be sent before it.
    pub(crate) rest: Vec<u8>,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) publishing: BTreeMap<u16, Publishing>,
    answers: VecDeque<Vec<u8>>,
    /// The topics of topic aliases.
    pub(crate) aliases: BTreeMap<u16, String>,
    pub(crate) last_packet_id: u16,
    /// The last packets of messages in both directions, to help in the analysis of a failure.
    trace: VecDeque<String>,
}

/// Number of packets that are remembered.
const TRACED: usize = 24;

/// The knowledge about a will.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Will {
    /// Whether the delay of the will is longer than any absence of a client.
    pub(crate) waits: bool,
}

impl Line {
    pub(crate) fn new(raw: RawClient, is_clean: bool) -> Self {
        Self {
            raw,
            is_clean,
            is_greeted: false,
            is_refused: false,
            is_leaving: false,
            lasts: false,
            is_brief: false,
            will: None,
            pace: Pace::Swift,
            unsent: Vec::new(),
            rest: Vec::new(),
            requests: VecDeque::new(),
            publishing: BTreeMap::new(),
            answers: VecDeque::new(),
            aliases: BTreeMap::new(),
            last_packet_id: 0,
            trace: VecDeque::new(),
        }
    }

    /// Remembers a packet for the analysis of a failure.
    pub(crate) fn note(&mut self, what: String) {
        if self.trace.len() == TRACED {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    /// The state of the connection as text, for the analysis of a failure.
    pub(crate) fn state(&self) -> String {
        let Self { is_clean, is_greeted, is_refused, is_leaving, lasts, is_brief, .. } = self;
        format!(
            "clean {is_clean}, greeted {is_greeted}, refused {is_refused}, leaving {is_leaving}, lasts {lasts}, \
             brief {is_brief}, {} requests open",
            self.requests.len()
        )
    }

    /// The remembered packets as text.
    pub(crate) fn trace(&self) -> String {
        self.trace.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Sends bytes. Later turns send the bytes that the socket does not accept at once.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.flush();
    }

    /// Sends bytes that the socket did not accept before.
    pub(crate) fn flush(&mut self) {
        if !self.unsent.is_empty() {
            let sent = self.raw.offer(&self.unsent);
            self.unsent.drain(..sent);
        }
    }

    /// Sends the beginning of a packet, and stores the rest.
    pub(crate) fn begin(&mut self, packet: &[u8], length: usize) {
        let (begun, rest) = packet.split_at(length.min(packet.len()));
        self.send(begun);
        self.rest = rest.to_vec();
    }

    /// Sends the rest of a packet that has begun.
    pub(crate) fn finish_packet(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.send(&rest);
    }

    /// Whether the client is connected, and stays connected.
    pub(crate) fn is_in(&self) -> bool {
        self.is_greeted && !self.is_leaving
    }

    /// Whether another packet can be sent.
    pub(crate) fn is_free(&self) -> bool {
        self.is_in() && self.rest.is_empty() && self.unsent.is_empty()
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_free()
            && self.requests.is_empty()
            && self.publishing.is_empty()
            && self.answers.is_empty()
            && self.pace == Pace::Swift
    }

    /// Whether a request for this filter has no answer yet.
    pub(crate) fn is_asked(&self, filter: &str) -> bool {
        self.requests.iter().flat_map(|request| &request.filters).any(|(asked, _)| asked == filter)
    }

    pub(crate) fn is_reading(&self) -> bool {
        !matches!(self.pace, Pace::Stuck(_))
    }

    pub(crate) fn next_packet_id(&mut self) -> u16 {
        loop {
            self.last_packet_id = self.last_packet_id % 2_000 + 1;
            let is_taken = self.publishing.contains_key(&self.last_packet_id)
                || self.requests.iter().any(|request| request.packet_id == self.last_packet_id);
            if !is_taken {
                return self.last_packet_id;
            }
        }
    }

    /// Records an answer that a PUBLISH or PUBREL requires.
    pub(crate) fn owe(&mut self, first: u8, packet_id: u16) {
        self.answers.push_back(ack(first, packet_id));
    }

    /// Sends the answers of this turn according to the pace, unless a packet has begun.
    pub(crate) fn answer(&mut self) {
        if !self.rest.is_empty() || !self.is_in() {
            return self.flush();
        }
        let count = match self.pace {
            Pace::Swift => self.answers.len(),
            Pace::Slow => 1,
            Pace::Stuck(_) => 0,
        };
        let answers: Vec<Vec<u8>> = self.answers.drain(..count.min(self.answers.len())).collect();
        for answer in &answers {
            self.note(format!(">{:02x}:{}", answer[0], u16::from_be_bytes([answer[2], answer[3]])));
        }
        let answers = answers.concat();
        if !answers.is_empty() {
            self.send(&answers);
        }
        self.flush();
    }

    /// Handles PUBACK, PUBREC or PUBCOMP. Returns the message if its exchange is over, and the reason of a refusal.
    pub(crate) fn acknowledged(&mut self, packet: &[u8]) -> Option<(Publishing, Option<u8>)> {
        let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
        let refusal = packet.get(4).copied().filter(|reason| *reason >= 0x80);
        match packet[0] {
            PUBREC if refusal.is_none() => {
                // PUBREL must not be sent inside a packet that has begun.
                self.answers.push_back(ack(PUBREL, packet_id));
                None
            }
            PUBACK | PUBREC | PUBCOMP => {
                self.publishing.remove(&packet_id).map(|publishing| (publishing, refusal))
            }
            _ => None,
        }
    }
}
