//! Variable byte integers (section 1.5.5): seven bits per byte, least significant first, at most four bytes.

use crate::read::Reader;
use crate::rule::{self, Fault};
use crate::sink::Sink;

/// The greatest value: 268,435,455.
pub(crate) const MAX: u32 = (1 << 28) - 1;

/// Result of parsing the first bytes.
pub(crate) enum Parsed {
    /// A complete integer, and its length in bytes.
    Value { value: u32, len: usize, is_shortest: bool },
    /// The integer continues after the available bytes.
    Partial,
    /// The fourth byte announces a fifth.
    TooLong,
}

#[inline]
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    if let Some(&byte) = bytes.first()
        && byte < 0x80
    {
        return Parsed::Value { value: byte.into(), len: 1, is_shortest: true };
    }
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            return Parsed::Value { value, len: at + 1, is_shortest: byte != 0 || at == 0 };
        }
    }
    if bytes.len() < 4 { Parsed::Partial } else { Parsed::TooLong }
}

/// Reads an integer inside a packet of MQTT 5.
#[inline]
pub(crate) fn read(from: &mut Reader<'_>) -> Result<u32, Fault> {
    match parse(from.rest) {
        Parsed::Value { value, len, is_shortest: true } => {
            from.rest = &from.rest[len..];
            Ok(value)
        }
        Parsed::Value { .. } => Err(&rule::LENGTH_NOT_SHORTEST),
        Parsed::Partial => Err(&rule::TRUNCATED),
        Parsed::TooLong => Err(&rule::LENGTH_TOO_LONG),
    }
}

/// Writes a value of at most [`MAX`].
///
/// A packet with a longer part is refused as too long. Greater values reach this function only in the walk that
/// counts.
#[inline]
pub(crate) fn write<S: Sink + ?Sized>(value: usize, sink: &mut S) {
    let [a, b, c, d] = groups(value);
    match len(value) {
        1 => sink.put_byte(a),
        2 => sink.put(&[a | MORE, b]),
        3 => sink.put(&[a | MORE, b | MORE, c]),
        _ => sink.put(&[a | MORE, b | MORE, c | MORE, d]),
    }
}

/// Writes `first` and then the value, in one piece if the value is short.
#[inline(always)]
pub(crate) fn write_behind<S: Sink + ?Sized>(first: u8, value: usize, sink: &mut S) {
    let [a, b, ..] = groups(value);
    match len(value) {
        1 => sink.put(&[first, a]),
        2 => sink.put(&[first, a | MORE, b]),
        _ => {
            sink.put_byte(first);
            write(value, sink);
        }
    }
}

/// The bit that announces another byte.
const MORE: u8 = 0x80;

/// Splits a value into groups of seven bits, least significant first.
#[inline]
fn groups(value: usize) -> [u8; 4] {
    [0, 7, 14, 21].map(|shift| (value >> shift).to_le_bytes()[0] & 0x7F)
}

/// Number of bytes for a value of at most [`MAX`].
#[inline]
pub(crate) const fn len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// [MQTT-1.5.5-1]
    #[test]
    fn the_limits_of_table_1_1_take_1_to_4_bytes() {
        let limits: [(usize, &[u8]); 8] = [
            (0, b"\x00"),
            (127, b"\x7F"),
            (128, b"\x80\x01"),
            (16_383, b"\xFF\x7F"),
            (16_384, b"\x80\x80\x01"),
            (2_097_151, b"\xFF\xFF\x7F"),
            (2_097_152, b"\x80\x80\x80\x01"),
            (268_435_455, b"\xFF\xFF\xFF\x7F"),
        ];
        for (value, wanted) in limits {
            let mut bytes = Vec::new();
            write(value, &mut bytes);
            assert_eq!((&bytes[..], len(value)), (wanted, wanted.len()));
            let mut behind = Vec::new();
            write_behind(0x30, value, &mut behind);
            assert_eq!((behind[0], &behind[1..]), (0x30, wanted));
            assert!(matches!(
                parse(wanted),
                Parsed::Value { value: found, len, is_shortest: true }
                    if found as usize == value && len == wanted.len()
            ));
            for end in 0..wanted.len() {
                assert!(matches!(parse(&wanted[..end]), Parsed::Partial));
            }
        }
        assert!(matches!(parse(b"\x80\x80\x80\x80"), Parsed::TooLong));
        assert!(matches!(parse(b"\x81\x80\x00"), Parsed::Value { value: 1, len: 3, is_shortest: false }));
    }
}
