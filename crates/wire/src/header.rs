//! The fixed header (section 2.1), checked byte by byte as the bytes arrive.

use crate::packet::PublishFlags;
use crate::rule::{self, Fault};
use crate::varint::{self, Parsed};
use crate::version::{Role, Version};
use crate::walk::Flags;

/// Type of a packet: the upper four bits of the first byte (section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names say it.
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// All 15 types, ascending.
    pub const ALL: [Self; 15] = [
        Self::Connect,
        Self::ConnAck,
        Self::Publish,
        Self::PubAck,
        Self::PubRec,
        Self::PubRel,
        Self::PubComp,
        Self::Subscribe,
        Self::SubAck,
        Self::Unsubscribe,
        Self::UnsubAck,
        Self::PingReq,
        Self::PingResp,
        Self::Disconnect,
        Self::Auth,
    ];

    /// Returns the type in the first byte of a packet. `None` for type 0, which is reserved.
    pub const fn from_first_byte(first: u8) -> Option<Self> {
        match first >> 4 {
            0 => None,
            number => Some(Self::ALL[number as usize - 1]),
        }
    }

    /// Flags that the standard demands in the fixed header of this type. Does not apply to PUBLISH, whose flags
    /// vary.
    pub(crate) const fn reserved_flags(self) -> u8 {
        match self {
            Self::PubRel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    fn flags_rule(self) -> Fault {
        match self {
            Self::PubRel => &rule::PUBREL_FLAGS,
            Self::Subscribe => &rule::SUBSCRIBE_FLAGS,
            Self::Unsubscribe => &rule::UNSUBSCRIBE_FLAGS,
            Self::Disconnect => &rule::DISCONNECT_FLAGS,
            Self::Auth => &rule::AUTH_FLAGS,
            _ => &rule::FLAGS,
        }
    }

    /// The end that sends this type, if only one of the two does.
    const fn only_from(self) -> Option<Role> {
        match self {
            Self::Connect | Self::Subscribe | Self::Unsubscribe | Self::PingReq => Some(Role::Client),
            Self::ConnAck | Self::SubAck | Self::UnsubAck | Self::PingResp => Some(Role::Server),
            _ => None,
        }
    }

    /// The Remaining Length, if all packets of the type have the same length.
    const fn fixed_len(self, version: Version) -> Option<u32> {
        match self {
            Self::PingReq | Self::PingResp => Some(0),
            _ if version.is_5() => None,
            Self::Disconnect => Some(0),
            Self::ConnAck | Self::PubAck | Self::PubRec | Self::PubRel | Self::PubComp | Self::UnsubAck => {
                Some(2)
            }
            _ => None,
        }
    }
}

/// Limits of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a packet in bytes, fixed header included. A longer packet is refused as soon as its length
    /// is known, before it is buffered.
    pub max_packet_bytes: usize,
    /// The end that sends the packets, if known. Packets and fields that this end may not send are refused.
    pub sender: Option<Role>,
}

/// The limits of the protocol itself: packets of 268,435,460 bytes, from either end.
impl Default for Limits {
    fn default() -> Self {
        Self { max_packet_bytes: 5 + varint::MAX as usize, sender: None }
    }
}

/// A fixed header that is complete and valid.
#[derive(Clone, Copy)]
pub(crate) struct FixedHeader {
    pub(crate) packet_type: PacketType,
    pub(crate) flags: u8,
    /// Length of the header in bytes.
    pub(crate) len: usize,
    /// Length of the whole packet in bytes.
    pub(crate) total: usize,
    /// Whether Remaining Length is encoded in as few bytes as possible.
    pub(crate) is_shortest: bool,
}

impl FixedHeader {
    /// Parses the header at the start of `bytes`; `None` means that more bytes are needed. `version` is `None`
    /// before CONNECT.
    #[inline]
    pub(crate) fn read(
        bytes: &[u8],
        version: Option<Version>,
        limits: &Limits,
    ) -> Result<Option<Self>, Fault> {
        let Some((&first, behind)) = bytes.split_first() else { return Ok(None) };
        let packet_type = check_first_byte(first, version, limits.sender)?;
        let (value, len, is_shortest) = match varint::parse(behind) {
            Parsed::Value { value, len, is_shortest } => (value, 1 + len, is_shortest),
            Parsed::Partial => return Ok(None),
            Parsed::TooLong => return Err(&rule::LENGTH_TOO_LONG),
        };
        if !is_shortest && version.is_some_and(Version::is_5) {
            return Err(&rule::LENGTH_NOT_SHORTEST);
        }
        let total = len + value as usize;
        if total > limits.max_packet_bytes {
            return Err(match limits.sender {
                Some(Role::Server) => &rule::SERVER_PACKET_TOO_LARGE,
                _ => &rule::CLIENT_PACKET_TOO_LARGE,
            });
        }
        if let Some(fixed) = packet_type.fixed_len(version.unwrap_or(Version::V5))
            && value != fixed
        {
            return Err(if value < fixed { &rule::TRUNCATED } else { &rule::SURPLUS });
        }
        Ok(Some(Self { packet_type, flags: first & 0x0F, len, total, is_shortest }))
    }
}

/// Applies all rules about the first byte, and returns the type of the packet.
#[inline]
fn check_first_byte(first: u8, version: Option<Version>, sender: Option<Role>) -> Result<PacketType, Fault> {
    let Some(version) = version else {
        // Before CONNECT the version is not known. MQTT 3.1.1 and 5 allow no other first byte.
        return if first == (PacketType::Connect as u8) << 4 {
            Ok(PacketType::Connect)
        } else {
            Err(&rule::NOT_CONNECT)
        };
    };
    let packet_type = PacketType::from_first_byte(first).ok_or(&rule::UNKNOWN_TYPE)?;
    match packet_type {
        PacketType::Publish => {
            PublishFlags::from_bits(first & 0x0F)?;
            return Ok(packet_type);
        }
        PacketType::Auth if !version.is_5() => return Err(&rule::UNKNOWN_TYPE),
        PacketType::Connect => return Err(&rule::SECOND_CONNECT),
        _ => {}
    }
    if let (Some(only), Some(sender)) = (packet_type.only_from(), sender)
        && only != sender
    {
        return Err(&rule::WRONG_SENDER);
    }
    // MQTT 3.1 has a DUP flag in more packets than PUBLISH, and does not use the other flags.
    if first & 0x0F != packet_type.reserved_flags() && version != Version::V3_1 {
        return Err(packet_type.flags_rule());
    }
    Ok(packet_type)
}
