//! One connection of a client: what is on its way on it, in both directions.

use std::collections::{BTreeMap, VecDeque};

use pondhawk_tests::RawClient;
use pondhawk_tests::conversation::{PUBACK, PUBCOMP, PUBREC, PUBREL, ack};

/// How fast a client reads and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Everything at once.
    Swift,
    /// At most one answer a turn.
    Slow,
    /// Nothing at all, for so many turns.
    Stuck(u32),
}

/// A SUBSCRIBE or UNSUBSCRIBE that was not answered.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) packet_id: u16,
    /// Each with whether there was such a subscription, where the client can tell.
    pub(crate) filters: Vec<(String, Option<bool>)>,
    /// The QoS that a SUBSCRIBE asks for.
    pub(crate) qos: Option<u8>,
}

/// A PUBLISH that was not answered to the end.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) qos: u8,
    /// The topic whose value it sets or clears, and the length of the value.
    pub(crate) retained: Option<(String, usize)>,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) raw: RawClient,
    /// Clean Session, or Clean Start.
    pub(crate) is_clean: bool,
    /// CONNACK has come.
    pub(crate) is_greeted: bool,
    /// DISCONNECT was sent: the broker closes.
    pub(crate) is_leaving: bool,
    /// Whether the session outlives it.
    pub(crate) lasts: bool,
    /// Nobody knows when a session of so short an expiry ends.
    pub(crate) is_brief: bool,
    pub(crate) will: Option<Will>,
    pub(crate) pace: Pace,
    /// Sent, but not taken by the system yet.
    unsent: Vec<u8>,
    /// The rest of a packet that has begun; nothing else is sent meanwhile.
    pub(crate) rest: Vec<u8>,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) publishing: BTreeMap<u16, Publishing>,
    answers: VecDeque<Vec<u8>>,
    /// Topics that stand behind an alias.
    pub(crate) aliases: BTreeMap<u16, String>,
    pub(crate) last_packet_id: u16,
    /// The last packets in both directions, as far as they are about messages: for whoever looks for what went wrong.
    trace: VecDeque<String>,
}

/// So many packets are remembered.
const TRACED: usize = 24;

/// What is known of a will.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Will {
    /// Its delay is longer than anybody stays away.
    pub(crate) waits: bool,
}

impl Line {
    pub(crate) fn new(raw: RawClient, is_clean: bool) -> Self {
        Self {
            raw,
            is_clean,
            is_greeted: false,
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

    /// Remembers a packet.
    pub(crate) fn note(&mut self, what: String) {
        if self.trace.len() == TRACED {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    /// The last packets.
    pub(crate) fn trace(&self) -> String {
        self.trace.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Sends bytes; those that the connection does not take at once with the next turns.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.flush();
    }

    /// Sends what could not be sent before.
    pub(crate) fn flush(&mut self) {
        if !self.unsent.is_empty() {
            let sent = self.raw.offer(&self.unsent);
            self.unsent.drain(..sent);
        }
    }

    /// Sends the beginning of a packet, and keeps the rest.
    pub(crate) fn begin(&mut self, packet: &[u8], length: usize) {
        let (begun, rest) = packet.split_at(length.min(packet.len()));
        self.send(begun);
        self.rest = rest.to_vec();
    }

    /// Sends the rest of what has begun.
    pub(crate) fn finish_packet(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.send(&rest);
    }

    /// Whether the client is connected, and stays.
    pub(crate) fn is_in(&self) -> bool {
        self.is_greeted && !self.is_leaving
    }

    /// Whether something else can be sent.
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

    /// Notes an answer that a message or its release takes.
    pub(crate) fn owe(&mut self, first: u8, packet_id: u16) {
        self.answers.push_back(ack(first, packet_id));
    }

    /// The answers that a client of this pace gives now, with a packet that has begun before them.
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

    /// PUBACK, PUBREC or PUBCOMP of a message of our own. The reason, if the broker has refused it.
    pub(crate) fn acknowledged(&mut self, packet: &[u8]) -> Option<(Publishing, Option<u8>)> {
        let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
        let refusal = packet.get(4).copied().filter(|reason| *reason >= 0x80);
        match packet[0] {
            PUBREC if refusal.is_none() => {
                // Not within a packet that has begun.
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
