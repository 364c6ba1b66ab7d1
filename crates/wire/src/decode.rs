use crate::header::{FixedHeader, Limits, PacketType};
use crate::packet::Packet;
use crate::read::Reader;
use crate::rule::{Fault, Violation};
use crate::version::Version;

/// Result of [`decode`]: a complete packet, or the number of bytes that are needed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // Returned in place and taken apart at once; nothing may be allocated.
pub enum Decoded<'a> {
    /// The bytes begin with a complete packet.
    Packet {
        /// The packet, which borrows strings and payload.
        packet: Packet<'a>,
        /// Length of the packet in bytes, fixed header included. The next packet begins after these bytes.
        len: usize,
    },
    /// The bytes are a valid beginning of a packet, which is not complete yet.
    Need {
        /// Length of the whole packet in bytes, within the limits. `None` until the fixed header is complete.
        total: Option<usize>,
    },
}

/// Decodes the packet at the start of `bytes`, without allocation: strings and payload are borrowed.
///
/// `version` is `None` for the first packet of a connection, which must be a CONNECT. For all later packets
/// `version` is the value of [`Connect::version`](crate::Connect::version).
///
/// ```
/// use pondhawk_wire::{Decoded, Limits, Packet, Version, decode};
///
/// let bytes = b"\x30\x08\x00\x03a/bhey";
/// let Decoded::Packet { packet: Packet::Publish(publish), len: 10 } =
///     decode(bytes, Some(Version::V3_1_1), &Limits::default())?
/// else {
///     panic!("a PUBLISH of 10 bytes")
/// };
/// assert_eq!(publish.payload, b"hey");
///
/// // The first two of ten bytes are enough to know the length.
/// let need = decode(&bytes[..2], Some(Version::V3_1_1), &Limits::default())?;
/// assert_eq!(need, Decoded::Need { total: Some(10) });
/// # Ok::<(), pondhawk_wire::Violation>(())
/// ```
///
/// # Errors
/// A [`Violation`], as soon as the available bytes show a violation: after one byte for a wrong first byte, and
/// after the Remaining Length for a packet that is too long.
#[inline]
pub fn decode<'a>(
    bytes: &'a [u8],
    version: Option<Version>,
    limits: &Limits,
) -> Result<Decoded<'a>, Violation> {
    let header = match FixedHeader::read(bytes, version, limits) {
        Ok(Some(header)) => header,
        Ok(None) => return Ok(Decoded::Need { total: None }),
        Err(fault) => return Err(violation(fault, version)),
    };
    let Some(body) = bytes.get(header.len..header.total) else {
        return Ok(Decoded::Need { total: Some(header.total) });
    };
    let mut from = Reader {
        rest: body,
        version: version.unwrap_or(Version::V3_1_1),
        is_version_known: version.is_some(),
        flags: header.flags,
        is_shortest: header.is_shortest,
        sender: limits.sender,
    };
    let decoded = |packet| Decoded::Packet { packet, len: header.total };
    match version {
        Some(version) => {
            Packet::read(header.packet_type, &mut from, decoded, |fault, _| Violation::of(fault, version))
        }
        None => Packet::read(PacketType::Connect, &mut from, decoded, |fault, from| {
            Violation::in_connect(fault, from.is_version_known.then_some(from.version))
        }),
    }
}

#[cold]
fn violation(fault: Fault, version: Option<Version>) -> Violation {
    match version {
        Some(version) => Violation::of(fault, version),
        None => Violation::in_connect(fault, None),
    }
}
