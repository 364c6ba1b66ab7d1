//! The messages of the load tests: made once per publisher, then only renumbered; checked byte by byte.

use wire::{Delivery, Packet, PacketId, Publish, Qos, Role, Version};

use crate::exchange::packet_id;
use crate::protocol::{packet_in, to_bytes, topic_name};

/// Bytes at the start of every payload that say which message it is: run, stream, number.
pub(crate) const STAMP_LEN: usize = 16;

/// Distance from the start of the stamp to its number.
const NUMBER_AT: usize = 8;

/// The flag in the first byte of a PUBLISH that may have been sent before.
const DUP: u8 = 0b1000;

/// Numbers the runs, so that what a server kept from an earlier run is recognised as such.
pub(crate) type RunId = u32;

/// The one PUBLISH packet that a stream consists of, over and over, with the number counting up, and at QoS 1 and 2
/// the packet identifier.
///
/// A stream is what one publisher sends to one topic. The payload is a 16-byte stamp, little endian, followed by
/// zeros: run (4 bytes), stream (4 bytes), number (8 bytes).
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    topic: String,
    packet: Vec<u8>,
    /// The packet, eight bytes at a time; what is left over is in the last word, with some bytes once more.
    words: Vec<Word>,
    last_word: Word,
    stamp_at: usize,
    /// Position of the packet identifier, if there is one.
    id_at: Option<usize>,
    qos: Qos,
    version: Version,
}

/// Eight bytes of a packet, and which of their bits are the same in all packets of the stream.
#[derive(Debug, Clone, Copy)]
struct Word {
    value: u64,
    mask: u64,
}

impl Stream {
    /// Stream `id` of a run: `payload_len` bytes of payload (at least [`STAMP_LEN`]) to `topic`.
    pub(crate) fn new(
        run: RunId,
        id: u32,
        topic: &str,
        payload_len: usize,
        qos: Qos,
        version: Version,
    ) -> Self {
        let mut payload = vec![0; payload_len.max(STAMP_LEN)];
        payload[..4].copy_from_slice(&run.to_le_bytes());
        payload[4..NUMBER_AT].copy_from_slice(&id.to_le_bytes());
        let publish = Publish { delivery: delivery(qos), ..Publish::new(topic_name(topic), &payload) };
        let packet = to_bytes(publish, version);
        let stamp_at = packet.len() - payload.len();
        // Between them there is, in MQTT 5, the length of no properties.
        let id_at = (qos != Qos::AtMostOnce).then(|| stamp_at - usize::from(version.is_5()) - 2);
        let number_at = stamp_at + NUMBER_AT;
        let mut mask = vec![0xFF; packet.len()];
        mask[number_at..number_at + 8].fill(0);
        id_at.into_iter().for_each(|at| mask[at..at + 2].fill(0));
        let word = |(value, mask): (&[u8; 8], &[u8; 8])| Word::new(*value, *mask);
        let words = packet.as_chunks().0.iter().zip(mask.as_chunks().0).map(word).collect();
        let last_word =
            packet.last_chunk().zip(mask.last_chunk()).map(word).expect("a packet is longer than a word");
        Self { topic: topic.to_owned(), packet, words, last_word, stamp_at, id_at, qos, version }
    }

    /// Length of each packet, bytes.
    pub(crate) fn packet_len(&self) -> usize {
        self.packet.len()
    }

    /// Appends the packet with this number to `bytes`.
    #[inline]
    pub(crate) fn append(&self, number: u64, bytes: &mut Vec<u8>) {
        self.append_in(number, number, bytes);
    }

    /// The same for a publisher that has more streams: `exchange` counts the messages of all of them.
    #[inline]
    pub(crate) fn append_in(&self, exchange: u64, number: u64, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend_from_slice(&self.packet);
        let packet = &mut bytes[start..];
        let number_at = self.stamp_at + NUMBER_AT;
        packet[number_at..number_at + 8].copy_from_slice(&number.to_le_bytes());
        if let Some(at) = self.id_at {
            packet[at..at + 2].copy_from_slice(&packet_id(exchange).value().to_be_bytes());
        }
    }

    /// The number of a packet of this stream as its subscriber receives it; `None` if it is anything else.
    ///
    /// Every byte is compared. A packet that is encoded in another way (with properties, say) and still means
    /// the same message is accepted too, more slowly.
    #[inline]
    pub(crate) fn number_in(&self, packet: &[u8]) -> Option<u64> {
        if packet.len() != self.packet.len() || self.differs(packet) {
            return self.number_in_other_form(packet);
        }
        Some(number_at_start(&packet[self.stamp_at + NUMBER_AT..]))
    }

    /// The same where the packet may say that it was sent before.
    pub(crate) fn number_in_copy(&self, packet: &[u8]) -> Option<u64> {
        let mut first_copy = packet.to_vec();
        *first_copy.first_mut()? &= !DUP;
        self.number_in(&first_copy)
    }

    /// Whether a packet of the same length has any other byte besides the number.
    ///
    /// Most packets have some thirty bytes: comparing words in line is cheaper than calls of memcmp.
    #[inline]
    fn differs(&self, packet: &[u8]) -> bool {
        let words = packet.as_chunks().0.iter().zip(&self.words);
        let bits = words.fold(0, |bits, (bytes, word)| bits | word.difference(bytes));
        bits | packet.last_chunk().map_or(0, |bytes| self.last_word.difference(bytes)) != 0
    }

    #[cold]
    fn number_in_other_form(&self, packet: &[u8]) -> Option<u64> {
        let Ok(Packet::Publish(publish)) = packet_in(packet, Some(self.version), Role::Server) else {
            return None;
        };
        let payload = publish.payload;
        let own_payload = &self.packet[self.stamp_at..];
        let is_same = publish.topic.name().is_some_and(|name| name.as_str() == self.topic)
            && publish.delivery.qos() == self.qos
            && !publish.delivery.dup()
            && !publish.retain
            && payload.len() == own_payload.len()
            && payload[..NUMBER_AT] == own_payload[..NUMBER_AT]
            && payload[STAMP_LEN..] == own_payload[STAMP_LEN..];
        is_same.then(|| number_at_start(&payload[NUMBER_AT..]))
    }
}

impl Word {
    fn new(value: [u8; 8], mask: [u8; 8]) -> Self {
        Self { value: u64::from_le_bytes(value), mask: u64::from_le_bytes(mask) }
    }

    #[inline]
    fn difference(self, bytes: &[u8; 8]) -> u64 {
        (u64::from_le_bytes(*bytes) ^ self.value) & self.mask
    }
}

/// Fields of a PUBLISH for its QoS, when it is sent for the first time.
fn delivery(qos: Qos) -> Delivery {
    let (packet_id, dup) = (PacketId::MIN, false);
    match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
    }
}

/// The stream that a packet claims to be of, if its payload is `payload_len` long and it is a message of ours.
#[inline]
pub(crate) fn claimed_stream(packet: &[u8], payload_len: usize) -> Option<usize> {
    let stamp = packet.len().checked_sub(payload_len).and_then(|at| packet.get(at..at + STAMP_LEN))?;
    usize::try_from(u32::from_le_bytes([stamp[4], stamp[5], stamp[6], stamp[7]])).ok()
}

#[inline]
fn number_at_start(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_of(stream: &Stream, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.append(number, &mut bytes);
        bytes
    }

    #[test]
    fn a_packet_is_recognised_by_its_own_stream_with_its_number() {
        for (version, qos) in Version::ALL.into_iter().flat_map(|version| Qos::ALL.map(|qos| (version, qos)))
        {
            let stream = Stream::new(1, 7, "loadtest/7", 20, qos, version);
            assert_eq!(stream.number_in(&packet_of(&stream, 12_345_678_901)), Some(12_345_678_901));
            assert_eq!(claimed_stream(&packet_of(&stream, 3), 20), Some(7));
        }
    }

    #[test]
    fn a_packet_has_the_identifier_of_its_number_and_is_recognised_with_any_other() {
        for version in Version::ALL {
            let stream = Stream::new(1, 7, "a", 20, Qos::AtLeastOnce, version);
            let mut packet = packet_of(&stream, 65_535 + 0x0102);
            let id_at = stream.id_at.unwrap();
            assert_eq!(packet[id_at - 1..id_at + 2], [b'a', 1, 3]);
            packet[id_at..id_at + 2].fill(0xFF);
            assert_eq!(stream.number_in(&packet), Some(65_535 + 0x0102));
        }
    }

    #[test]
    fn a_packet_that_may_have_been_sent_before_is_not_recognised() {
        let stream = Stream::new(1, 7, "loadtest/7", 20, Qos::ExactlyOnce, Version::V5);
        let mut packet = packet_of(&stream, 5);
        packet[0] |= 0b1000;
        assert_eq!(stream.number_in(&packet), None);
    }

    #[test]
    fn another_run_stream_topic_length_or_qos_and_any_altered_byte_are_not_recognised() {
        let stream_of =
            |run, id, topic, payload_len, qos| Stream::new(run, id, topic, payload_len, qos, Version::V3_1_1);
        for (qos, other_qos) in
            Qos::ALL.into_iter().zip([Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::AtMostOnce])
        {
            let stream = stream_of(1, 7, "loadtest/7", 20, qos);
            let others = [
                stream_of(2, 7, "loadtest/7", 20, qos),
                stream_of(1, 8, "loadtest/7", 20, qos),
                stream_of(1, 7, "loadtest/8", 20, qos),
                stream_of(1, 7, "loadtest/7", 21, qos),
                stream_of(1, 7, "loadtest/7", 20, other_qos),
            ];
            for other in others {
                assert_eq!(stream.number_in(&packet_of(&other, 0)), None);
            }
            let packet = packet_of(&stream, 0);
            let number_at = stream.stamp_at + NUMBER_AT;
            let is_free = |at: &usize| {
                (number_at..number_at + 8).contains(at)
                    || stream.id_at.is_some_and(|id| (id..id + 2).contains(at))
            };
            for at in (0..packet.len()).filter(|at| !is_free(at)) {
                let mut altered = packet.clone();
                altered[at] ^= 0x80;
                assert_eq!(stream.number_in(&altered), None, "byte {at} altered");
            }
        }
    }
}
