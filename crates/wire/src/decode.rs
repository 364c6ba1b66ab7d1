use crate::header::{FixedHeader, Limits, PacketType};
use crate::packet::Packet;
use crate::read::Reader;
use crate::rule::{Fault, Violation};
use crate::version::Version;

/// What the first bytes of a stream are.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // Returned in place and taken apart at once; nothing may be allocated.
pub enum Decoded<'a> {
    /// A packet, which borrows from the bytes.
    Packet {
        /// The packet.
        packet: Packet<'a>,
        /// How many bytes it took; the next one begins behind them.
        len: usize,
    },
    /// The beginning of a packet, in order as far as it goes.
    Need {
        /// The length of the whole packet, once the fixed header is there: within the limits.
        total: Option<usize>,
    },
}

/// Reads the packet at the start of `bytes`. Allocates nothing; strings and payload are borrowed.
///
/// `version` is `None` for the first packet of a connection, which is a CONNECT; afterwards it is what
/// [`Connect::version`](crate::Connect::version) said.
///
/// ```
/// use wire::{Decoded, Limits, Packet, Version, decode};
///
/// let bytes = b"\x30\x08\x00\x03a/bhey";
/// let Decoded::Packet { packet: Packet::Publish(publish), len: 10 } =
///     decode(bytes, Some(Version::V3_1_1), &Limits::default())?
/// else {
///     panic!("a PUBLISH of 10 bytes")
/// };
/// assert_eq!(publish.payload, b"hey");
///
/// // Two of ten bytes: the length is known.
/// let need = decode(&bytes[..2], Some(Version::V3_1_1), &Limits::default())?;
/// assert_eq!(need, Decoded::Need { total: Some(10) });
/// # Ok::<(), wire::Violation>(())
/// ```
///
/// # Errors
/// A [`Violation`], as soon as the bytes that are there show it: a wrong first byte after one byte, a packet
/// that is too long after its length.
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
