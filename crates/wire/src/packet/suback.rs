use core::fmt;

use crate::header::PacketType;
use crate::number::PacketId;
use crate::packet::AckProperties;
use crate::reason::SubAckReason;
use crate::repeated::OneOrMore;
use crate::rule::{self, Fault};
use crate::walk::{ControlPacket, Layout, Walk};

/// SUBACK: the answer to SUBSCRIBE (section 3.9).
///
/// MQTT 3.1.1 has one failure code, 0x80, for all reasons. MQTT 3.1 has none, and a failure is refused there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubAck<'a> {
    /// The identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// The properties of the whole answer; MQTT 5 only.
    pub properties: AckProperties<'a>,
    /// One reason for each subscription, in their order \[MQTT-3.9.3-1\].
    pub reasons: OneOrMore<'a, SubAckReason>,
}

impl<'a> ControlPacket<'a> for SubAck<'a> {
    const TYPE: PacketType = PacketType::SubAck;
}

impl<'a> Layout<'a> for SubAck<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let packet_id = walk.field(|packet| packet.packet_id)?;
        let properties = walk.properties(|packet| &packet.properties)?;
        let reasons = walk.list(&rule::NO_SUBACK_REASON, |packet| Some(packet.reasons))?;
        Ok(walk.build(|| Self { packet_id, properties, reasons }))
    }
}

/// Writes the packet as in `SUBACK id=1 Granted QoS 1, Not authorized`.
impl fmt::Display for SubAck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SUBACK id={}{} {}", self.packet_id, self.properties, self.reasons)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{EncodeError, Version};

    fn encoded(reasons: &[SubAckReason], version: Version) -> Result<Vec<u8>, EncodeError> {
        let reasons = OneOrMore::new(reasons).unwrap();
        let packet = SubAck { packet_id: PacketId::MIN, properties: AckProperties::EMPTY, reasons };
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).map(|_| bytes)
    }

    /// [3.1.1 MQTT-3.9.3-2]
    #[test]
    fn a_failure_is_what_the_version_has_for_it() {
        let reasons = [SubAckReason::GrantedQos1, SubAckReason::NotAuthorized];
        assert_eq!(encoded(&reasons, Version::V5).unwrap(), b"\x90\x05\0\x01\0\x01\x87");
        assert_eq!(encoded(&reasons, Version::V3_1_1).unwrap(), b"\x90\x04\0\x01\x01\x80");
        assert!(encoded(&reasons, Version::V3_1).is_err());
        assert_eq!(encoded(&reasons[..1], Version::V3_1).unwrap(), b"\x90\x03\0\x01\x01");
    }
}
