//! A publisher and a subscriber of numbered messages, who go on after each end of their connection where they were.

use std::collections::{BTreeMap, BTreeSet};

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Version};

const VERSION: Version = Version::V3_1_1;
const TOPIC: &str = "numbers";
/// So many messages are not acknowledged at a time.
const WINDOW: usize = 20;
/// Messages of one QoS come in their order: one of each is the last.
const LAST: [u32; 2] = [u32::MAX, u32::MAX - 1];

/// PUBLISH at QoS 1 or 2.
pub(crate) fn publish(first: u8, topic: &str, packet_id: u16, payload: &[u8]) -> Vec<u8> {
    let of_message = [&packet_id.to_be_bytes()[..], payload].concat();
    packet::publish_with(VERSION, first, topic, &[], &of_message)
}

/// Publishes at QoS 1 and 2 in turn.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    last: u32,
    /// By packet identifier: the number, and whether PUBREC has come.
    unfinished: BTreeMap<u16, (u32, bool)>,
    acknowledged: BTreeSet<u32>,
}

/// Even numbers are of QoS 2.
fn is_exactly_once(number: u32) -> bool {
    number.is_multiple_of(2)
}

impl Publisher {
    /// Connects again and sends again what was not finished, in its order.
    pub(crate) fn connect(&mut self, broker: &Broker) -> Client {
        let connect = Connect { clean_start: false, ..Connect::new(VERSION, "publisher") };
        let mut client = broker.client_with(&connect);
        let mut unfinished: Vec<_> = self.unfinished.iter().collect();
        unfinished.sort_by_key(|(_, (number, _))| *number);
        for (packet_id, (number, is_received)) in unfinished {
            if *is_received {
                client.send(&acknowledgement(0x62, *packet_id));
            } else {
                let dup = 0b1000;
                client.send(&message(dup, *packet_id, *number));
            }
        }
        client
    }

    /// One more message, if the window has a place for it.
    pub(crate) fn send(&mut self, client: &mut Client) {
        if self.unfinished.len() < WINDOW {
            self.last += 1;
            let packet_id = (1..).find(|id| !self.unfinished.contains_key(id)).expect("a window of a few");
            self.unfinished.insert(packet_id, (self.last, false));
            client.send(&message(0, packet_id, self.last));
        }
    }

    /// Takes one answer.
    pub(crate) fn hear(&mut self, client: &mut Client) {
        let answer = client.read_packet();
        let packet_id = u16::from_be_bytes([answer[2], answer[3]]);
        let Some((number, is_received)) = self.unfinished.get_mut(&packet_id) else { return };
        match answer[0] {
            0x50 => {
                self.acknowledged.insert(*number);
                *is_received = true;
                client.send(&acknowledgement(0x62, packet_id));
            }
            0x40 | 0x70 => {
                self.acknowledged.insert(*number);
                self.unfinished.remove(&packet_id);
            }
            other => panic!("{other:02x} for a publisher"),
        }
    }

    pub(crate) fn publish_last(&mut self, client: &mut Client) {
        for (packet_id, number) in (1..).zip(LAST) {
            client.send(&message(0, packet_id, number));
        }
    }

    pub(crate) fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = u32> {
        self.acknowledged.iter().copied()
    }

    pub(crate) fn exactly_once(&self) -> impl Iterator<Item = u32> {
        self.acknowledged().filter(|number| is_exactly_once(*number))
    }
}

fn message(dup: u8, packet_id: u16, number: u32) -> Vec<u8> {
    let first = if is_exactly_once(number) { 0x34 } else { 0x32 };
    publish(first | dup, TOPIC, packet_id, &number.to_be_bytes())
}

fn acknowledgement(first: u8, packet_id: u16) -> Vec<u8> {
    packet::packet(first, &packet_id.to_be_bytes())
}

/// Counts what it receives, in a session that lasts.
#[derive(Debug, Default)]
pub(crate) struct Subscriber {
    counts: BTreeMap<u32, usize>,
    /// Packet identifiers of QoS 2 that are not released.
    unreleased: BTreeSet<u16>,
}

impl Subscriber {
    pub(crate) fn subscribe(&mut self, broker: &Broker) {
        let mut client = self.connect(broker);
        client.send(&packet::subscribe_with(VERSION, 1, TOPIC, 2));
        client.expect(&packet::suback(VERSION, 1, 2));
    }

    pub(crate) fn connect(&self, broker: &Broker) -> Client {
        broker.client_with(&Connect { clean_start: false, ..Connect::new(VERSION, "subscriber") })
    }

    /// Takes one packet, and answers it.
    pub(crate) fn hear(&mut self, client: &mut Client) {
        let packet = client.read_packet();
        let at = 4 + TOPIC.len();
        match packet[0] & 0xF6 {
            0x62 => {
                let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
                self.unreleased.remove(&packet_id);
                client.send(&acknowledgement(0x70, packet_id));
            }
            0x32 | 0x34 => {
                let packet_id = u16::from_be_bytes([packet[at], packet[at + 1]]);
                let number = u32::from_be_bytes(packet[at + 2..].try_into().expect("a number"));
                let is_exactly_once = packet[0] & 0b110 == 0b100;
                if !is_exactly_once || self.unreleased.insert(packet_id) {
                    *self.counts.entry(number).or_default() += 1;
                }
                client.send(&acknowledgement(if is_exactly_once { 0x50 } else { 0x40 }, packet_id));
            }
            other => panic!("{other:02x} for a subscriber"),
        }
    }

    /// Whether something is under way to it that it has not seen: then it may wait for it.
    pub(crate) fn is_behind(&self, publisher: &Publisher) -> bool {
        publisher.acknowledged().any(|number| self.count(number) == 0)
    }

    pub(crate) fn count(&self, number: u32) -> usize {
        self.counts.get(&number).copied().unwrap_or(0)
    }

    pub(crate) fn has_last(&self) -> bool {
        LAST.iter().all(|number| self.count(*number) > 0)
    }
}
