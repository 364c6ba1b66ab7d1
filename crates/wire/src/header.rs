//! The fixed header (section 2.1), judged byte for byte as it arrives.

use crate::packet::PublishFlags;
use crate::rule::{self, Fault};
use crate::varint::{self, Parsed};
use crate::version::{Role, Version};
use crate::walk::Flags;

/// What a packet is, by the upper four bits of its first byte (section 2.1.2).
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
    /// All 15.
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

    /// The type that the first byte of a packet says: there is no type 0.
    pub const fn from_first_byte(first: u8) -> Option<Self> {
        match first >> 4 {
            0 => None,
            number => Some(Self::ALL[number as usize - 1]),
        }
    }

    /// The flags that this type has in its fixed header; PUBLISH has flags of its own.
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

    /// Who sends it, if only one of the two does.
    const fn only_from(self) -> Option<Role> {
        match self {
            Self::Connect | Self::Subscribe | Self::Unsubscribe | Self::PingReq => Some(Role::Client),
            Self::ConnAck | Self::SubAck | Self::UnsubAck | Self::PingResp => Some(Role::Server),
            _ => None,
        }
    }

    /// The Remaining Length, where all packets of the type have the same.
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

/// What a decoder accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest packet, in bytes, fixed header included. A longer one is refused as soon as its length is
    /// known, before it is buffered.
    pub max_packet_bytes: usize,
    /// The end that sends the packets, where that is known: packets and fields that this end may not send are
    /// refused.
    pub sender: Option<Role>,
}

/// What the protocol allows, from either end.
impl Default for Limits {
    fn default() -> Self {
        Self { max_packet_bytes: 5 + varint::MAX as usize, sender: None }
    }
}

/// A fixed header that is all there and in order.
#[derive(Clone, Copy)]
pub(crate) struct FixedHeader {
    pub(crate) packet_type: PacketType,
    pub(crate) flags: u8,
    /// Bytes of the header itself.
    pub(crate) len: usize,
    /// Bytes of the packet.
    pub(crate) total: usize,
    /// Whether Remaining Length is as short as can be.
    pub(crate) is_shortest: bool,
}

impl FixedHeader {
    /// `None`: more bytes are needed. `version` is `None` before CONNECT.
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

/// Everything that the first byte can do wrong.
#[inline]
fn check_first_byte(first: u8, version: Option<Version>, sender: Option<Role>) -> Result<PacketType, Fault> {
    let Some(version) = version else {
        // The version is not known yet, and two of the three have no other first byte.
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
