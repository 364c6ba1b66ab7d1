//! Runs of similar PUBLISH packets: a fast publisher sends them, and the receivers of one message share an
//! encoding.

use crate::header::{Limits, PacketType};
use crate::number::PacketId;
use crate::varint::{self, Parsed};
use crate::version::Version;

/// The DUP flag in the first byte of a PUBLISH (MQTT 5.0, section 3.3.1.1).
const DUP: u8 = 0b1000;

/// Consecutive PUBLISH packets that differ only in payload and, at QoS 1 and 2, in packet identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of packets, at least 1 unless [`renumber`] got no identifier.
    pub count: usize,
    /// Total length of the packets in bytes.
    pub len: usize,
    /// Total length of the payloads in bytes.
    pub payload_bytes: usize,
    /// Number of bytes between Remaining Length and payload.
    prefix_len: usize,
}

/// Counts the packets at the start of `bytes` that are like the first one.
///
/// Such packets are complete, within the limits, and have the first byte and the topic of the first packet, without
/// properties. Any other packet ends the run, and so does a broken one. The caller passes it to
/// [`decode`](crate::decode).
///
/// The caller has decoded the first packet, `bytes[..first_len]`. This packet must be a PUBLISH at QoS 0 without
/// alias and, in MQTT 5, without properties.
///
/// ```
/// use pondhawk_wire::{Limits, Version, publish_run};
///
/// let bytes = b"\x30\x04\x00\x01a1\x30\x05\x00\x01a22\x30\x04\x00\x01b3";
/// let run = publish_run(bytes, 6, Version::V3_1_1, &Limits::default());
/// assert_eq!((run.count, run.len, run.payload_bytes), (2, 13, 3));
/// assert!(run.payloads(bytes).eq([&b"1"[..], b"22"]));
/// ```
///
/// # Panics
/// If `bytes` does not begin with such a packet.
pub fn publish_run(bytes: &[u8], first_len: usize, version: Version, limits: &Limits) -> Run {
    let (first, behind) = bytes.split_at(first_len);
    let Body { start, .. } = Body::find(first).expect("the first packet was decoded");
    let topic_len = usize::from(u16::from_be_bytes([first[start], first[start + 1]]));
    let prefix_len = 2 + topic_len + usize::from(version.is_5());
    let head = &first[..start + prefix_len];
    let prefix = &head[start..];

    let first_payload_bytes = first_len - head.len();
    let (mut count, mut payload_bytes, mut rest) = (1, first_payload_bytes, behind);
    loop {
        // Payloads of equal length are the common case. All bytes before the payload are then equal too.
        while rest.len() >= first_len && rest.starts_with(head) {
            rest = &rest[first_len..];
            payload_bytes += first_payload_bytes;
            count += 1;
        }
        match like(rest, first[0], prefix) {
            Some(Body { start, end, .. }) if end <= limits.max_packet_bytes => {
                payload_bytes += end - start - prefix_len;
                rest = &rest[end..];
            }
            _ => break,
        }
        count += 1;
    }
    Run { count, len: bytes.len() - rest.len(), payload_bytes, prefix_len }
}

/// Counts the packets of a run at QoS 1 or 2, as [`publish_run`] does at QoS 0.
///
/// The packets of such a run may differ in payload and packet identifier. The run also ends before the first
/// identifier that `takes` refuses. The caller passes the rest to [`decode`](crate::decode).
///
/// ```
/// use pondhawk_wire::{Limits, Version, numbered_run};
///
/// let bytes = b"\x32\x06\0\x01a\0\x011\x32\x07\0\x01a\0\x0222\x32\x06\0\x01a\0\x033";
/// let run = numbered_run(bytes, 8, Version::V3_1_1, &Limits::default(), |packet_id| packet_id.value() < 3);
/// assert_eq!((run.count, run.len, run.payload_bytes), (2, 17, 3));
/// ```
///
/// # Panics
/// If `bytes` does not begin with such a packet, with a topic and, in MQTT 5, without properties.
pub fn numbered_run(
    bytes: &[u8],
    first_len: usize,
    version: Version,
    limits: &Limits,
    mut takes: impl FnMut(PacketId) -> bool,
) -> Run {
    let (first, behind) = bytes.split_at(first_len);
    let Numbered { body, id_at, payload_at } =
        Numbered::find(first, version).expect("the first packet was decoded");
    let topic = &first[body.start..id_at];
    let behind_id = &first[id_at + 2..payload_at];
    let mut run = Run {
        count: 1,
        len: first_len,
        payload_bytes: first_len - payload_at,
        prefix_len: payload_at - body.start,
    };
    let mut rest = behind;
    while let Some(body) = like(rest, first[0], topic) {
        let id_at = body.start + topic.len();
        let has_room = body.end - body.start >= run.prefix_len && body.end <= limits.max_packet_bytes;
        if !has_room || !rest[id_at + 2..].starts_with(behind_id) {
            break;
        }
        let packet_id = PacketId::new(u16::from_be_bytes([rest[id_at], rest[id_at + 1]]));
        if !packet_id.is_some_and(&mut takes) {
            break;
        }
        run.count += 1;
        run.payload_bytes += body.end - body.start - run.prefix_len;
        run.len += body.end;
        rest = &rest[body.end..];
    }
    run
}

/// Prepares a run at QoS 1 or 2 for another receiver: sets a new packet identifier and DUP 0 in each packet, in
/// place.
///
/// `next` supplies the identifiers. The result is the run of the packets that have a new identifier, and ends when
/// `next` returns `None`.
///
/// ```
/// use pondhawk_wire::{PacketId, Version, renumber};
///
/// let mut bytes = *b"\x3A\x06\0\x01a\0\x011\x3A\x06\0\x01a\0\x022";
/// let mut free = [7].into_iter().map(|number| PacketId::new(number).unwrap());
/// let run = renumber(&mut bytes, Version::V3_1_1, || free.next());
/// assert_eq!((run.count, run.len, run.payload_bytes), (1, 8, 1));
/// assert_eq!(&bytes[..8], b"\x32\x06\0\x01a\0\x071");
/// ```
pub fn renumber(bytes: &mut [u8], version: Version, mut next: impl FnMut() -> Option<PacketId>) -> Run {
    let mut run = Run { count: 0, len: 0, payload_bytes: 0, prefix_len: 0 };
    while let Some(Numbered { body, id_at, payload_at }) = Numbered::find(&bytes[run.len..], version)
        && let Some(packet_id) = next()
    {
        let packet = &mut bytes[run.len..][..body.end];
        packet[0] &= !DUP;
        packet[id_at..][..2].copy_from_slice(&packet_id.value().to_be_bytes());
        run.count += 1;
        run.len += body.end;
        run.payload_bytes += body.end - payload_at;
        run.prefix_len = payload_at - body.start;
    }
    run
}

/// Iterates over the packets of a run at QoS 1 or 2. Each item has the packet, its identifier and the length of its
/// payload in bytes.
pub fn numbered_packets(
    mut bytes: &[u8],
    version: Version,
) -> impl Iterator<Item = (&[u8], PacketId, usize)> {
    core::iter::from_fn(move || {
        let Numbered { body, id_at, payload_at } = Numbered::find(bytes, version)?;
        let packet_id = PacketId::new(u16::from_be_bytes([bytes[id_at], bytes[id_at + 1]]))?;
        let (packet, rest) = bytes.split_at(body.end);
        bytes = rest;
        Some((packet, packet_id, body.end - payload_at))
    })
}

impl Run {
    /// Returns the payloads of the run. `bytes` must begin with the bytes in which the run was counted.
    pub fn payloads<'a>(&self, bytes: &'a [u8]) -> RunPayloads<'a> {
        RunPayloads { rest: &bytes[..self.len], prefix_len: self.prefix_len }
    }
}

/// Iterator over the payloads of a [`Run`].
#[derive(Clone, Debug)]
pub struct RunPayloads<'a> {
    rest: &'a [u8],
    prefix_len: usize,
}

impl<'a> Iterator for RunPayloads<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let Body { start, end, .. } = Body::find(self.rest)?;
        let payload = self.rest.get(start + self.prefix_len..end)?;
        self.rest = &self.rest[end..];
        Some(payload)
    }
}

/// Sets the packet identifier of an encoded PUBLISH, in place.
///
/// Receivers whose packets differ only in the identifier can share one encoding.
///
/// ```
/// use pondhawk_wire::{Delivery, PacketId, Publish, Version, set_packet_id};
///
/// let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
/// let mut bytes = Vec::new();
/// Publish { delivery, ..Publish::new(topic::topic!("a"), b"hey") }.encode(Version::V5, &mut bytes)?;
/// set_packet_id(&mut bytes, PacketId::new(0x1234).unwrap());
/// assert_eq!(bytes, b"\x32\x09\0\x01a\x12\x34\0hey");
/// # Ok::<(), pondhawk_wire::EncodeError>(())
/// ```
///
/// # Panics
/// If `bytes` does not begin with a PUBLISH of QoS 1 or 2.
pub fn set_packet_id(bytes: &mut [u8], packet_id: PacketId) {
    let has_id = bytes.first().is_some_and(|first| first >> 4 == 3 && first & 0b110 != 0);
    assert!(has_id, "only a PUBLISH of QoS 1 or 2 has a packet identifier");
    let Body { start, .. } = Body::find(bytes).expect("a packet that was encoded");
    let topic_len = usize::from(u16::from_be_bytes([bytes[start], bytes[start + 1]]));
    bytes[start + 2 + topic_len..][..2].copy_from_slice(&packet_id.value().to_be_bytes());
}

/// Recognises a PUBACK, PUBREC, PUBREL or PUBCOMP of four bytes at the start of `bytes`, which means Success in
/// every version.
///
/// Most answers to PUBLISH packets have this form. Other bytes return `None`, and are left to
/// [`decode`](crate::decode).
///
/// ```
/// use pondhawk_wire::{PacketId, PacketType, brief_acknowledgement};
///
/// assert_eq!(brief_acknowledgement(b"\x40\x02\0\x07"), Some((PacketType::PubAck, PacketId::new(7).unwrap())));
/// assert_eq!(brief_acknowledgement(b"\x40\x03\0\x07\x10"), None);
/// ```
#[inline]
pub fn brief_acknowledgement(bytes: &[u8]) -> Option<(PacketType, PacketId)> {
    let &[first, 2, high, low, ..] = bytes else { return None };
    let packet_type = match first {
        0x40 => PacketType::PubAck,
        0x50 => PacketType::PubRec,
        0x62 => PacketType::PubRel,
        0x70 => PacketType::PubComp,
        _ => return None,
    };
    PacketId::new(u16::from_be_bytes([high, low])).map(|packet_id| (packet_type, packet_id))
}

/// Encodes a PUBACK of four bytes that means Success in every version. [`brief_acknowledgement`] reads it.
///
/// ```
/// use pondhawk_wire::{PacketId, PubAck, PubAckReason, Version, brief_puback};
///
/// let packet_id = PacketId::new(7).unwrap();
/// for version in Version::ALL {
///     let mut bytes = Vec::new();
///     PubAck::new(packet_id, PubAckReason::Success).encode(version, &mut bytes).unwrap();
///     assert_eq!(bytes, brief_puback(packet_id));
/// }
/// ```
#[inline]
#[must_use]
pub fn brief_puback(packet_id: PacketId) -> [u8; 4] {
    brief(0x40, packet_id)
}

/// Encodes a PUBREC of four bytes that means Success in every version. [`brief_acknowledgement`] reads it.
///
/// ```
/// use pondhawk_wire::{PacketId, PubAckReason, PubRec, Version, brief_pubrec};
///
/// let packet_id = PacketId::new(7).unwrap();
/// for version in Version::ALL {
///     let mut bytes = Vec::new();
///     PubRec::new(packet_id, PubAckReason::Success).encode(version, &mut bytes).unwrap();
///     assert_eq!(bytes, brief_pubrec(packet_id));
/// }
/// ```
#[inline]
#[must_use]
pub fn brief_pubrec(packet_id: PacketId) -> [u8; 4] {
    brief(0x50, packet_id)
}

/// Encodes a PUBREL of four bytes that means Success in every version. [`brief_acknowledgement`] reads it.
///
/// ```
/// use pondhawk_wire::{PacketId, PubRel, PubRelReason, Version, brief_pubrel};
///
/// let packet_id = PacketId::new(7).unwrap();
/// for version in Version::ALL {
///     let mut bytes = Vec::new();
///     PubRel::new(packet_id, PubRelReason::Success).encode(version, &mut bytes).unwrap();
///     assert_eq!(bytes, brief_pubrel(packet_id));
/// }
/// ```
#[inline]
#[must_use]
pub fn brief_pubrel(packet_id: PacketId) -> [u8; 4] {
    brief(0x62, packet_id)
}

/// Encodes a PUBCOMP of four bytes that means Success in every version. [`brief_acknowledgement`] reads it.
///
/// ```
/// use pondhawk_wire::{PacketId, PubComp, PubRelReason, Version, brief_pubcomp};
///
/// let packet_id = PacketId::new(7).unwrap();
/// for version in Version::ALL {
///     let mut bytes = Vec::new();
///     PubComp::new(packet_id, PubRelReason::Success).encode(version, &mut bytes).unwrap();
///     assert_eq!(bytes, brief_pubcomp(packet_id));
/// }
/// ```
#[inline]
#[must_use]
pub fn brief_pubcomp(packet_id: PacketId) -> [u8; 4] {
    brief(0x70, packet_id)
}

/// An acknowledgement without a reason, which begins with this byte.
#[inline]
fn brief(first_byte: u8, packet_id: PacketId) -> [u8; 4] {
    let [high, low] = packet_id.value().to_be_bytes();
    [first_byte, 2, high, low]
}

/// Returns the body of the packet at the start of `bytes`, if the packet is complete and begins like the run.
#[inline]
fn like(bytes: &[u8], first_byte: u8, prefix: &[u8]) -> Option<Body> {
    if *bytes.first()? != first_byte {
        return None;
    }
    let body = Body::find(bytes)?;
    let is_like = body.is_shortest && bytes.get(body.start..body.end)?.starts_with(prefix);
    is_like.then_some(body)
}

/// Positions in a PUBLISH at QoS 1 or 2 without properties.
struct Numbered {
    body: Body,
    id_at: usize,
    payload_at: usize,
}

impl Numbered {
    /// Returns `None` if `bytes` does not begin with such a packet, or the packet is incomplete.
    #[inline]
    fn find(bytes: &[u8], version: Version) -> Option<Self> {
        let body = Body::find(bytes)?;
        let packet = bytes.get(..body.end)?;
        let topic_len =
            usize::from(u16::from_be_bytes([*packet.get(body.start)?, *packet.get(body.start + 1)?]));
        let id_at = body.start + 2 + topic_len;
        let payload_at = id_at + 2 + usize::from(version.is_5());
        (payload_at <= body.end).then_some(Self { body, id_at, payload_at })
    }
}

/// Position of the bytes after the fixed header of a packet.
struct Body {
    start: usize,
    end: usize,
    is_shortest: bool,
}

impl Body {
    #[inline]
    fn find(bytes: &[u8]) -> Option<Self> {
        match varint::parse(bytes.get(1..)?) {
            Parsed::Value { value, len, is_shortest } => {
                Some(Self { start: 1 + len, end: 1 + len + value as usize, is_shortest })
            }
            Parsed::Partial | Parsed::TooLong => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8], first_len: usize, version: Version) -> Run {
        publish_run(bytes, first_len, version, &Limits::default())
    }

    #[test]
    fn acknowledgements_of_four_bytes_are_read_without_a_parser() {
        let id = PacketId::new(0x0107);
        for (first, packet_type) in [
            (0x40, PacketType::PubAck),
            (0x50, PacketType::PubRec),
            (0x62, PacketType::PubRel),
            (0x70, PacketType::PubComp),
        ] {
            let expected = id.map(|id| (packet_type, id));
            assert_eq!(brief_acknowledgement(&[first, 2, 1, 7, 0xC0, 0]), expected, "{first:02x}");
            assert_eq!(brief_acknowledgement(&[first, 2, 0, 0]), None, "identifier 0");
            assert_eq!(brief_acknowledgement(&[first, 3, 1, 7, 0]), None, "a longer one");
            assert_eq!(brief_acknowledgement(&[first, 2, 1]), None, "not all there");
            assert_eq!(brief_acknowledgement(&[first | 1, 2, 1, 7]), None, "other flags");
        }
    }

    #[test]
    fn a_run_ends_where_a_packet_differs_in_more_than_its_payload() {
        for (next, why) in [
            (&b"\x30\x04\0\x01bx"[..], "another topic"),
            (b"\x30\x05\0\x02axx", "a longer topic"),
            (b"\x31\x04\0\x01ax", "retained"),
            (b"\x32\x06\0\x01a\0\x01x", "QoS 1"),
            (b"\xc0\0", "PINGREQ"),
            (b"\x30\x04\0\x01a", "a packet not all there"),
            (b"\x30\xFF\xFF\xFF\xFF", "no packet"),
            (b"\x30", "one byte"),
            (b"", "nothing"),
        ] {
            let bytes = [b"\x30\x04\0\x01ax\x30\x03\0\x01a", next].concat();
            let run = run(&bytes, 6, Version::V3_1_1);
            assert_eq!((run.count, run.len, run.payload_bytes), (2, 11, 1), "{why}");
            assert!(run.payloads(&bytes).eq([&b"x"[..], b""]), "{why}");
        }
    }

    #[test]
    fn a_numbered_run_ends_where_a_packet_differs_in_more_than_payload_and_identifier() {
        for (next, why) in [
            (&b"\x32\x06\0\x01b\0\x03x"[..], "another topic"),
            (b"\x32\x07\0\x02ax\0\x03x", "a longer topic"),
            (b"\x3A\x06\0\x01a\0\x03x", "sent again"),
            (b"\x33\x06\0\x01a\0\x03x", "retained"),
            (b"\x34\x06\0\x01a\0\x03x", "QoS 2"),
            (b"\x32\x06\0\x01a\0\0x", "no identifier"),
            (b"\x32\x06\0\x01a\0\x09x", "an identifier that is not taken"),
            (b"\x32\x04\0\x01a\0", "too short for one"),
            (b"\x32\x06\0\x01a\0\x03", "a packet not all there"),
            (b"\x32", "one byte"),
            (b"", "nothing"),
        ] {
            let bytes = [b"\x32\x06\0\x01a\0\x01x\x32\x05\0\x01a\0\x02", next].concat();
            let takes = |packet_id: PacketId| packet_id.value() < 9;
            let run = numbered_run(&bytes, 8, Version::V3_1_1, &Limits::default(), takes);
            assert_eq!((run.count, run.len, run.payload_bytes), (2, 15, 1), "{why}");
            assert!(run.payloads(&bytes).eq([&b"x"[..], b""]), "{why}");
            let last = numbered_packets(&bytes[..run.len], Version::V3_1_1).last();
            assert_eq!(last, Some((&b"\x32\x05\0\x01a\0\x02"[..], PacketId::new(2).unwrap(), 0)));
        }
    }

    #[test]
    fn properties_end_a_numbered_run() {
        let bytes = b"\x32\x07\0\x01a\0\x01\0x\x32\x07\0\x01a\0\x02\0y\x32\x09\0\x01a\0\x03\x02\x01\x01z";
        let run = numbered_run(bytes, 9, Version::V5, &Limits::default(), |_| true);
        assert_eq!((run.count, run.len), (2, 18));
        assert!(run.payloads(bytes).eq([b"x", b"y"]));
    }

    #[test]
    fn a_packet_identifier_is_changed_in_place() {
        let mut bytes = *b"\x34\x06\0\x01a\0\x01x";
        set_packet_id(&mut bytes, PacketId::MAX);
        assert_eq!(&bytes, b"\x34\x06\0\x01a\xFF\xFFx");
    }

    #[test]
    #[should_panic(expected = "only a PUBLISH of QoS 1 or 2 has a packet identifier")]
    fn a_packet_without_identifier_gets_none() {
        let mut bytes = *b"\x30\x04\0\x01ax";
        set_packet_id(&mut bytes, PacketId::MAX);
    }

    #[test]
    fn properties_end_a_run() {
        let bytes = b"\x30\x05\0\x01a\0x\x30\x05\0\x01a\0y\x30\x07\0\x01a\x02\x01\x01z";
        let run = run(bytes, 7, Version::V5);
        assert_eq!((run.count, run.len), (2, 14));
        assert!(run.payloads(bytes).eq([b"x", b"y"]));
    }

    #[test]
    fn a_first_length_that_is_not_the_shortest_is_one_of_3_x() {
        let bytes = b"\x30\x84\0\0\x01ax\x30\x84\0\0\x01ay\x30\x04\0\x01az";
        let run = run(bytes, 7, Version::V3_1_1);
        assert!(run.payloads(bytes).eq([b"x", b"y", b"z"]));
    }

    #[test]
    fn a_packet_over_the_limit_is_left_to_decode() {
        let bytes = b"\x30\x04\0\x01ax\x30\x05\0\x01axx";
        let limits = Limits { max_packet_bytes: 6, sender: None };
        assert_eq!(publish_run(bytes, 6, Version::V3_1_1, &limits).count, 1);
    }
}
