//! Packets of a trace as bytes, in two parts that follow each other.

use std::borrow::Cow;

use wire::{Decoded, Limits, Packet, decode};

/// Packet types (section 2.1.2).
const RESERVED: u8 = 0;
pub(crate) const CONNECT: u8 = 1;
pub(crate) const PUBLISH: u8 = 3;
/// The beginning of a packet that cannot be read, which shows why: of a CONNECT fixed header, protocol name, level and flags.
const VISIBLE_BYTES: usize = 14;
const LENGTH_BYTES_MAX: usize = 4;

/// The byte at a place of two parts.
fn byte(first: &[u8], second: &[u8], at: usize) -> Option<u8> {
    first.get(at).or_else(|| second.get(at - first.len())).copied()
}

/// The bytes in a range of two parts.
fn bytes<'a>(first: &'a [u8], second: &'a [u8], from: usize, to: usize) -> Option<Cow<'a, [u8]>> {
    let split = first.len();
    if to <= split {
        return first.get(from..to).map(Cow::Borrowed);
    }
    if from >= split {
        return second.get(from - split..to - split).map(Cow::Borrowed);
    }
    Some(Cow::Owned([&first[from..], second.get(..to - split)?].concat()))
}

/// The length of the fixed header, and the Remaining Length (section 2.1.4). `None` if it is incomplete or too long.
fn header(first: &[u8], second: &[u8]) -> Option<(usize, usize)> {
    let mut remaining = 0;
    for place in 0..LENGTH_BYTES_MAX {
        let next = byte(first, second, 1 + place)?;
        remaining |= usize::from(next & 0x7f) << (7 * place);
        if next < 0x80 {
            return Some((2 + place, remaining));
        }
    }
    None
}

/// The length of the packet at the beginning, if all of it is there.
pub(crate) fn len(first: &[u8], second: &[u8]) -> Option<usize> {
    let (header_bytes, remaining) = header(first, second)?;
    let len = header_bytes + remaining;
    (len <= first.len() + second.len()).then_some(len)
}

/// The type of the packet at the beginning; 0 without a packet.
pub(crate) fn kind(first: &[u8], second: &[u8]) -> u8 {
    byte(first, second, 0).map_or(0, |byte| byte >> 4)
}

/// Whether the first packet may still become whole.
pub(crate) fn is_incomplete(first: &[u8], second: &[u8]) -> bool {
    let there = first.len() + second.len();
    match header(first, second) {
        Some((header_bytes, remaining)) => {
            // Another packet is refused at once.
            kind(first, second) == CONNECT && header_bytes + remaining > there
        }
        None => kind(first, second) == CONNECT && there <= LENGTH_BYTES_MAX,
    }
}

/// The place in `second` of the first byte that the broker refuses, as far as the headers of packets tell, or of a CONNECT. It is
/// 0 if that is in `first`, which begins with a packet. Nobody knows what is behind it.
pub(crate) fn first_refused(first: &[u8], second: &[u8], packet_bytes_max: usize) -> Option<usize> {
    let there = first.len() + second.len();
    let mut at = 0;
    while at < there {
        let (one, two) = (first.get(at..).unwrap_or_default(), &second[at.saturating_sub(first.len())..]);
        let refused = Some(at.saturating_sub(first.len()));
        if matches!(kind(one, two), RESERVED | CONNECT) {
            return refused;
        }
        match header(one, two) {
            Some((header_bytes, remaining)) if header_bytes + remaining <= packet_bytes_max => {
                at += header_bytes + remaining;
            }
            // The header goes on in the next read.
            None if there - at <= LENGTH_BYTES_MAX => return None,
            Some(_) | None => return refused,
        }
    }
    None
}

/// The topic name of a PUBLISH packet (section 3.3.2.1). `None` if it is incomplete or no text.
pub(crate) fn topic<'a>(first: &'a [u8], second: &'a [u8]) -> Option<Cow<'a, str>> {
    let (at, _) = header(first, second)?;
    let len = u16::from_be_bytes([byte(first, second, at)?, byte(first, second, at + 1)?]);
    match bytes(first, second, at + 2, at + 2 + usize::from(len))? {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// A PUBLISH packet of MQTT 5 without its payload.
pub(crate) fn without_payload(first: &[u8], second: &[u8]) -> Option<Vec<u8>> {
    let (start, _) = header(first, second)?;
    let topic_bytes = u16::from_be_bytes([byte(first, second, start)?, byte(first, second, start + 1)?]);
    let has_identifier = byte(first, second, 0)? & 0b110 != 0;
    let properties = start + 2 + usize::from(topic_bytes) + 2 * usize::from(has_identifier);
    // A length has the form of a Remaining Length, which stands behind one byte.
    let (length_bytes, properties_bytes) = match properties.checked_sub(first.len()) {
        None => header(&first[properties - 1..], second)?,
        Some(at) => header(&[0], second.get(at..)?)?,
    };
    let end = properties + length_bytes - 1 + properties_bytes;
    let kept = bytes(first, second, start, end)?;
    let mut packet = vec![byte(first, second, 0)?];
    let mut left = kept.len();
    loop {
        let more = if left > 0x7f { 0x80 } else { 0 };
        packet.push(u8::try_from(left & 0x7f).unwrap_or(0) | more);
        left >>= 7;
        if more == 0 {
            break;
        }
    }
    packet.extend_from_slice(&kept);
    Some(packet)
}

/// Replaces the password in a CONNECT packet at the beginning by asterisks, or nearly all if it cannot be read or is none.
/// Returns the length of the packet, or of all bytes if these are none.
pub(crate) fn mask_connect(bytes: &mut [u8]) -> usize {
    let (len, visible) = match decode(bytes, None, &Limits::default()) {
        Ok(Decoded::Packet { packet: Packet::Connect(connect), len }) => {
            // The password is the last field (section 3.1.3).
            (len, len - connect.password().map_or(0, |password| password.as_bytes().len()))
        }
        _ => (bytes.len(), bytes.len().min(VISIBLE_BYTES)),
    };
    bytes[visible..len].fill(b'*');
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to cut bytes into two parts.
    fn cuts(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..=bytes.len()).map(|at| bytes.split_at(at))
    }

    #[test]
    fn a_message_without_its_payload_is_a_message_however_it_is_cut() {
        let mut packet = b"\x32\xb4\x01\0\x03a/b\0\x07".to_vec();
        let property = [&b"\x26\0\x01k\0\x7f"[..], &[b'v'; 127]].concat();
        packet.extend([u8::try_from(property.len() & 0x7f).unwrap() | 0x80, 1]);
        packet.extend(&property);
        packet.resize(3 + 0xb4, b'p');
        let Ok(Decoded::Packet { packet: Packet::Publish(whole), .. }) =
            decode(&packet, Some(wire::Version::V5), &Limits::default())
        else {
            panic!("a message");
        };
        for (first, second) in cuts(&packet) {
            assert_eq!(len(first, second), Some(packet.len()));
            assert_eq!(topic(first, second).as_deref(), Some("a/b"));
            let alone = without_payload(first, second).expect("a packet");
            match decode(&alone, Some(wire::Version::V5), &Limits::default()) {
                Ok(Decoded::Packet { packet: Packet::Publish(publish), len }) => {
                    assert_eq!((publish.topic, publish.payload.len(), len), (whole.topic, 0, alone.len()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_further_connect_is_found_and_a_payload_is_none() {
        let refused = |first, second| first_refused(first, second, 1_000);
        let packets = b"\xc0\0\x30\x05\0\x01t\x10\x00\x10\x00";
        for (first, second) in cuts(packets) {
            assert_eq!(refused(first, second), Some(9_usize.saturating_sub(first.len())));
        }
        assert_eq!(refused(b"\x30\x80", b"\x01\0\x01t\x10\x10"), None, "it is in the payload");
        assert_eq!(
            (refused(b"", b""), refused(b"\xc0", b""), refused(b"\x30", b"\x80\x80")),
            (None, None, None)
        );
    }

    /// A CONNECT may stand behind them, and nobody reads that far.
    #[test]
    fn bytes_behind_a_packet_that_the_broker_refuses_are_found() {
        for wrong in [&b"\r\n\x10"[..], b"\0\x10", b"\x30\xff\xff\xff\xff\x10", b"\x30\xff\xff\xff\x7f\x10"] {
            let packets = [b"\xc0\0", wrong].concat();
            for (first, second) in cuts(&packets) {
                let found = first_refused(first, second, 1_000);
                assert_eq!(found, Some(2_usize.saturating_sub(first.len())), "{packets:?}");
            }
        }
    }

    #[test]
    fn a_password_is_masked_also_in_a_packet_that_nobody_understands() {
        let good = b"\x10\x17\x00\x04MQTT\x04\xC2\x00\x00\x00\x01c\x00\x03ann\x00\x03ann\xc0\0".to_vec();
        let mut masked = good.clone();
        assert_eq!(mask_connect(&mut masked), good.len() - 2);
        assert!(masked.ends_with(b"\x03***\xc0\0"));
        // The level of a bridge of Mosquitto.
        let mut odd = good;
        odd[8] = 0x84;
        let len = odd.len();
        assert_eq!(mask_connect(&mut odd), len);
        assert!(odd[14..].iter().all(|byte| *byte == b'*'));
        let mut http = b"GET / HTTP/1.1\r\n".to_vec();
        assert_eq!((mask_connect(&mut http), http.as_slice()), (16, &b"GET / HTTP/1.1**"[..]));
    }
}
