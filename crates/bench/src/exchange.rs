//! The acknowledgements of QoS 1 and 2 (MQTT 5.0 section 4.3).

use std::collections::VecDeque;
use std::fmt;

use wire::{Packet, PacketId, Qos, Role, Version};

use crate::error::{Error, Result};
use crate::protocol::packet_in;

/// First bytes of the packets of an exchange: type and flags.
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;

/// Number of packet identifiers.
const PACKET_IDS: u64 = u16::MAX as u64;

/// At which QoS a load publishes and subscribes, and how far a publisher runs ahead of its acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quality {
    pub(crate) qos: Qos,
    /// Most messages of one connection that are not acknowledged to the end; of no effect at QoS 0.
    pub(crate) window: u16,
}

/// Packets of one connection at QoS 1 or 2 whose exchange is not finished.
///
/// ```text
///             sender                                receiver
/// QoS 1       PUBLISH ─ PUBACK                      PUBLISH: PUBACK
/// QoS 2       PUBLISH ─ PUBREC: PUBREL ─ PUBCOMP    PUBLISH: PUBREC ─ PUBREL: PUBCOMP
/// ```
///
/// Nearly every server acknowledges in order. Then an exchange costs one look at each end of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Exchanges {
    version: Version,
    /// Number of messages that are finished, together with all messages before them.
    finished: u64,
    /// The messages sent since, from number `finished` on.
    sent: VecDeque<Step>,
    /// Messages that were received at QoS 2 and not released, in the order they were received in.
    unreleased: VecDeque<u16>,
}

/// The packet for which a sent message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    PubAck,
    PubRec,
    PubComp,
    /// Nothing: it is finished, before one that was sent earlier.
    Finished,
}

/// The packet identifier of the message with this number: used again after 65,535 others, which is more than any
/// window.
#[inline]
pub(crate) fn packet_id(number: u64) -> PacketId {
    let above_min = u16::try_from(number % PACKET_IDS).unwrap_or_default();
    PacketId::new(above_min + 1).unwrap_or(PacketId::MIN)
}

impl Quality {
    /// Nothing, at QoS 0.
    pub(crate) const AT_MOST_ONCE: Self = Self { qos: Qos::AtMostOnce, window: u16::MAX };

    /// Number of messages that a publisher may send now.
    #[inline]
    pub(crate) fn room(self, exchanges: &Exchanges) -> u64 {
        match self.qos {
            Qos::AtMostOnce => u64::MAX,
            Qos::AtLeastOnce | Qos::ExactlyOnce => u64::from(self.window) - exchanges.open(),
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QoS {}", self.qos as u8)
    }
}

impl Exchanges {
    /// A connection on which nothing was sent or received.
    pub(crate) fn new(version: Version) -> Self {
        Self { version, finished: 0, sent: VecDeque::new(), unreleased: VecDeque::new() }
    }

    /// Notes that the next `count` messages were sent at this QoS, each with the identifier that [`packet_id`] gives
    /// its number.
    #[inline]
    pub(crate) fn note_sent(&mut self, count: u64, qos: Qos) {
        let step = match qos {
            Qos::AtMostOnce => return,
            Qos::AtLeastOnce => Step::PubAck,
            Qos::ExactlyOnce => Step::PubRec,
        };
        (0..count).for_each(|_| self.sent.push_back(step));
    }

    /// Number of sent messages, from the oldest unfinished one on.
    #[inline]
    fn open(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Whether every exchange is finished, in both directions.
    pub(crate) fn are_finished(&self) -> bool {
        self.sent.is_empty() && self.unreleased.is_empty()
    }

    /// Takes a packet from the server, and appends what is to be sent in return to `answers`. Returns whether that is
    /// all: `false` for a PUBLISH, whose message is for the caller, and for packets that belong to no exchange.
    ///
    /// # Errors
    /// If the server acknowledges what was not sent, or refuses a message.
    #[inline]
    pub(crate) fn take(&mut self, packet: &[u8], answers: &mut Vec<u8>) -> Result<bool> {
        match *packet {
            [PUBACK, 2, high, low] => self.advance(Step::PubAck, [high, low], answers)?,
            [PUBREC, 2, high, low] => self.advance(Step::PubRec, [high, low], answers)?,
            [PUBCOMP, 2, high, low] => self.advance(Step::PubComp, [high, low], answers)?,
            [PUBREL, 2, high, low] => self.release([high, low], answers)?,
            [0x30..=0x3F, ..] => {
                self.answer_publish(packet, answers);
                return Ok(false);
            }
            _ => return self.take_other_form(packet, answers),
        }
        Ok(true)
    }

    /// An acknowledgement with a reason code, in MQTT 5; anything else is nobody's.
    #[cold]
    fn take_other_form(&mut self, packet: &[u8], answers: &mut Vec<u8>) -> Result<bool> {
        let first = packet.first().copied().unwrap_or_default();
        if ![PUBACK, PUBREC, PUBREL, PUBCOMP].contains(&first) {
            return Ok(false);
        }
        let packet = packet_in(packet, Some(self.version), Role::Server)?;
        let (is_refusal, packet_id) = match packet {
            Packet::PubAck(ack) => (ack.reason.is_error(), ack.packet_id),
            Packet::PubRec(ack) => (ack.reason.is_error(), ack.packet_id),
            Packet::PubRel(ack) => (ack.reason.is_error(), ack.packet_id),
            Packet::PubComp(ack) => (ack.reason.is_error(), ack.packet_id),
            _ => return Ok(false),
        };
        if is_refusal {
            return Err(Error::Server(format!("answered {packet}")));
        }
        let [high, low] = packet_id.value().to_be_bytes();
        self.take(&[first, 2, high, low], answers)
    }

    #[inline]
    fn answer_publish(&mut self, packet: &[u8], answers: &mut Vec<u8>) {
        let Some([high, low]) = publish_packet_id(packet) else { return };
        if packet[0] & 0b110 == 0b010 {
            answers.extend_from_slice(&[PUBACK, 2, high, low]);
        } else {
            self.unreleased.push_back(u16::from_be_bytes([high, low]));
            answers.extend_from_slice(&[PUBREC, 2, high, low]);
        }
    }

    /// The server has received a message, or that it is released.
    #[inline]
    fn advance(&mut self, expected: Step, id: [u8; 2], answers: &mut Vec<u8>) -> Result<()> {
        let Some(step) = self.sent_with_id(id).filter(|step| **step == expected) else {
            return Err(unasked(expected, id));
        };
        if expected == Step::PubRec {
            *step = Step::PubComp;
            answers.extend_from_slice(&[PUBREL, 2, id[0], id[1]]);
            return Ok(());
        }
        *step = Step::Finished;
        while self.sent.front() == Some(&Step::Finished) {
            self.sent.pop_front();
            self.finished += 1;
        }
        Ok(())
    }

    #[inline]
    fn sent_with_id(&mut self, id: [u8; 2]) -> Option<&mut Step> {
        let id = u64::from(u16::from_be_bytes(id));
        let first_id = u64::from(packet_id(self.finished).value());
        let at = if id >= first_id { id - first_id } else { id + PACKET_IDS - first_id };
        self.sent.get_mut(usize::try_from(at).ok()?)
    }

    /// The server will not send a message again.
    #[inline]
    fn release(&mut self, id: [u8; 2], answers: &mut Vec<u8>) -> Result<()> {
        let number = u16::from_be_bytes(id);
        if self.unreleased.front() == Some(&number) {
            self.unreleased.pop_front();
        } else {
            let at = self.unreleased.iter().position(|open| *open == number);
            let at = at.ok_or_else(|| Error::Server(format!("sent PUBREL {number}, which was not open")))?;
            self.unreleased.remove(at);
        }
        answers.extend_from_slice(&[PUBCOMP, 2, id[0], id[1]]);
        Ok(())
    }
}

#[cold]
fn unasked(step: Step, id: [u8; 2]) -> Error {
    let name = match step {
        Step::PubAck => "PUBACK",
        Step::PubRec => "PUBREC",
        Step::PubComp | Step::Finished => "PUBCOMP",
    };
    Error::Server(format!("sent {name} {}, which nothing was waiting for", u16::from_be_bytes(id)))
}

/// The packet identifier of a PUBLISH, which comes behind the topic; `None` at QoS 0.
#[inline]
fn publish_packet_id(packet: &[u8]) -> Option<[u8; 2]> {
    let (&first, rest) = packet.split_first()?;
    if first & 0b110 == 0 {
        return None;
    }
    let length_bytes = 1 + rest.iter().position(|byte| byte & 0x80 == 0)?;
    let (topic_len, rest) = rest.get(length_bytes..)?.split_first_chunk()?;
    rest.get(usize::from(u16::from_be_bytes(*topic_len))..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use wire::{Delivery, PubAck, PubAckReason, Publish};

    use super::*;
    use crate::protocol::{to_bytes, topic_name};

    fn exchanges(sent: u64, qos: Qos) -> Exchanges {
        let mut exchanges = Exchanges::new(Version::V5);
        exchanges.note_sent(sent, qos);
        exchanges
    }

    /// Answers to these packets of four bytes, each written as its first byte and its identifier.
    fn answers(exchanges: &mut Exchanges, packets: &[(u8, u8)]) -> Result<Vec<(u8, u8)>> {
        let mut answers = Vec::new();
        for &(first, id) in packets {
            assert!(exchanges.take(&[first, 2, 0, id], &mut answers)?);
        }
        Ok(answers.chunks(4).map(|answer| (answer[0], answer[3])).collect())
    }

    #[test]
    fn a_message_at_qos_1_is_finished_by_puback() {
        let mut exchanges = exchanges(2, Qos::AtLeastOnce);
        assert_eq!(answers(&mut exchanges, &[(PUBACK, 1)]).unwrap(), []);
        assert_eq!(exchanges.open(), 1);
        answers(&mut exchanges, &[(PUBACK, 2)]).unwrap();
        assert!(exchanges.are_finished());
    }

    #[test]
    fn a_message_at_qos_2_is_released_when_it_is_received_and_finished_by_pubcomp() {
        let mut exchanges = exchanges(2, Qos::ExactlyOnce);
        let released = answers(&mut exchanges, &[(PUBREC, 1), (PUBREC, 2), (PUBCOMP, 1)]).unwrap();
        assert_eq!(released, [(PUBREL, 1), (PUBREL, 2)]);
        assert_eq!(exchanges.open(), 1);
        answers(&mut exchanges, &[(PUBCOMP, 2)]).unwrap();
        assert!(exchanges.are_finished());
    }

    #[test]
    fn acknowledgements_may_come_in_any_order_and_the_window_begins_at_the_oldest() {
        let mut exchanges = exchanges(3, Qos::AtLeastOnce);
        answers(&mut exchanges, &[(PUBACK, 3), (PUBACK, 2)]).unwrap();
        assert_eq!(exchanges.open(), 3);
        answers(&mut exchanges, &[(PUBACK, 1)]).unwrap();
        assert!(exchanges.are_finished());
    }

    #[test]
    fn unexpected_acknowledgements_are_errors() {
        let wrong: [(Qos, &[(u8, u8)]); 6] = [
            (Qos::AtLeastOnce, &[(PUBACK, 3)]),
            (Qos::AtLeastOnce, &[(PUBACK, 1), (PUBACK, 1)]),
            (Qos::AtLeastOnce, &[(PUBACK, 2), (PUBACK, 2)]),
            (Qos::AtLeastOnce, &[(PUBREC, 1)]),
            (Qos::ExactlyOnce, &[(PUBCOMP, 1)]),
            (Qos::ExactlyOnce, &[(PUBREL, 1)]),
        ];
        for (qos, packets) in wrong {
            assert!(answers(&mut exchanges(2, qos), packets).is_err(), "{packets:02x?}");
        }
    }

    #[test]
    fn packet_identifiers_go_round_without_0() {
        assert_eq!([0, 65_534, 65_535].map(|number| packet_id(number).value()), [1, 65_535, 1]);
        let mut exchanges = exchanges(65_535, Qos::AtLeastOnce);
        let mut none = Vec::new();
        for id in 1..=65_534_u16 {
            let [high, low] = id.to_be_bytes();
            exchanges.take(&[PUBACK, 2, high, low], &mut none).unwrap();
        }
        exchanges.note_sent(2, Qos::AtLeastOnce);
        for [high, low] in [[0, 2], [0, 1], [0xFF, 0xFF]] {
            exchanges.take(&[PUBACK, 2, high, low], &mut none).unwrap();
        }
        assert!(exchanges.are_finished());
    }

    #[test]
    fn a_message_is_acknowledged_as_its_qos_demands_and_left_to_the_caller() {
        let payload = vec![0; 200];
        let packet = |delivery| {
            to_bytes(Publish { delivery, ..Publish::new(topic_name("a/b"), &payload) }, Version::V5)
        };
        let (packet_id, dup) = (PacketId::new(0x0107).unwrap(), false);
        let mut exchanges = exchanges(0, Qos::AtMostOnce);
        let mut answers = Vec::new();
        for delivery in [
            Delivery::AtMostOnce,
            Delivery::AtLeastOnce { packet_id, dup },
            Delivery::ExactlyOnce { packet_id, dup },
        ] {
            assert!(!exchanges.take(&packet(delivery), &mut answers).unwrap());
        }
        assert_eq!(answers, [PUBACK, 2, 1, 7, PUBREC, 2, 1, 7]);
        assert!(!exchanges.are_finished());
        answers.clear();
        assert!(exchanges.take(&[PUBREL, 2, 1, 7], &mut answers).unwrap());
        assert_eq!(answers, [PUBCOMP, 2, 1, 7]);
        assert!(exchanges.are_finished());
    }

    #[test]
    fn a_reason_code_is_read_and_a_refusal_is_an_error() {
        let mut exchanges = exchanges(2, Qos::AtLeastOnce);
        let mut take = |id, reason| {
            let packet = to_bytes(PubAck::new(packet_id(id), reason), Version::V5);
            exchanges.take(&packet, &mut Vec::new())
        };
        assert!(take(0, PubAckReason::NoMatchingSubscribers).unwrap());
        let error = take(1, PubAckReason::QuotaExceeded).unwrap_err();
        assert!(error.to_string().contains("Quota exceeded"), "{error}");
    }

    #[test]
    fn packets_of_no_exchange_are_left_to_the_caller() {
        let mut answers = Vec::new();
        for packet in [&[0xD0, 0][..], &[0xE0, 1, 0x97], &[0x90, 3, 0, 1, 0]] {
            assert!(!exchanges(1, Qos::ExactlyOnce).take(packet, &mut answers).unwrap());
        }
        assert!(answers.is_empty());
    }
}
