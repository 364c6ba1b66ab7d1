//! Variable byte integers (section 1.5.5): seven bits a byte, least significant first, at most four bytes.

use crate::field::Reader;
use crate::rule::{self, Fault};
use crate::sink::{EncodeError, Sink};

/// The greatest value: 268,435,455.
pub(crate) const MAX: u32 = (1 << 28) - 1;

/// What the first bytes say.
pub(crate) enum Parsed {
    /// All of it was there.
    Value { value: u32, len: usize, is_shortest: bool },
    /// It goes on behind the bytes that are there.
    Partial,
    /// The fourth byte says that it goes on.
    TooLong,
}

#[inline]
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            return Parsed::Value { value, len: at + 1, is_shortest: byte != 0 || at == 0 };
        }
    }
    if bytes.len() < 4 { Parsed::Partial } else { Parsed::TooLong }
}

/// Reads one inside a packet of MQTT 5.
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

#[inline]
pub(crate) fn write<S: Sink + ?Sized>(value: usize, sink: &mut S) -> Result<(), EncodeError> {
    let (bytes, len) = encode(value)?;
    sink.put(&bytes[..len]);
    Ok(())
}

/// Writes `first` and behind it the value, in one piece.
#[inline]
pub(crate) fn write_behind<S: Sink + ?Sized>(
    first: u8,
    value: usize,
    sink: &mut S,
) -> Result<(), EncodeError> {
    if value < 0x80 {
        sink.put(&[first, value.to_le_bytes()[0]]);
        return Ok(());
    }
    let ([a, b, c, d], len) = encode(value)?;
    sink.put(&[first, a, b, c, d][..1 + len]);
    Ok(())
}

#[inline]
fn encode(value: usize) -> Result<([u8; 4], usize), EncodeError> {
    let seven_bits = |from: u32| (value >> from).to_le_bytes()[0] & 0x7F;
    let more = |from| seven_bits(from) | 0x80;
    match len(value)? {
        1 => Ok(([seven_bits(0), 0, 0, 0], 1)),
        2 => Ok(([more(0), seven_bits(7), 0, 0], 2)),
        3 => Ok(([more(0), more(7), seven_bits(14), 0], 3)),
        _ => Ok(([more(0), more(7), more(14), seven_bits(21)], 4)),
    }
}

/// How many bytes the value takes.
#[inline]
pub(crate) fn len(value: usize) -> Result<usize, EncodeError> {
    match value {
        0..=0x7F => Ok(1),
        0x80..=0x3FFF => Ok(2),
        0x4000..=0x1F_FFFF => Ok(3),
        0x20_0000..=0xFFF_FFFF => Ok(4),
        _ => Err(EncodeError::TooLong),
    }
}
