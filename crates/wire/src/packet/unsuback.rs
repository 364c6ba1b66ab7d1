use core::fmt;

use crate::header::PacketType;
use crate::number::PacketId;
use crate::packet::AckProperties;
use crate::reason::UnsubAckReason;
use crate::repeated::OneOrMore;
use crate::rule::{self, Fault};
use crate::walk::{ControlPacket, Layout, Walk};

/// UNSUBACK: the answer to UNSUBSCRIBE (section 3.11).
///
/// Before MQTT 5 the packet has no reasons, and they are not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnsubAck<'a> {
    /// The identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// The properties of the whole answer; MQTT 5 only.
    pub properties: AckProperties<'a>,
    /// One reason for each filter, in their order \[MQTT-3.11.3-1\]. MQTT 5 requires reasons; before MQTT 5 there
    /// are none.
    pub reasons: Option<OneOrMore<'a, UnsubAckReason>>,
}

impl<'a> ControlPacket<'a> for UnsubAck<'a> {
    const TYPE: PacketType = PacketType::UnsubAck;
}

impl<'a> Layout<'a> for UnsubAck<'a> {
    fn layout<W: Walk<'a, Self>>(walk: &mut W) -> Result<W::Built, Fault> {
        let packet_id = walk.field(|packet| packet.packet_id)?;
        let properties = walk.properties(|packet| &packet.properties)?;
        let reasons = if walk.version().is_5() {
            Some(walk.list(&rule::NO_UNSUBACK_REASON, |packet| packet.reasons)?)
        } else {
            None
        };
        Ok(walk.build(|| Self { packet_id, properties, reasons }))
    }
}

/// Writes the packet as in `UNSUBACK id=1 Success, No subscription existed`.
impl fmt::Display for UnsubAck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UNSUBACK id={}{}", self.packet_id, self.properties)?;
        self.reasons.map_or(Ok(()), |reasons| write!(f, " {reasons}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EncodeError, Version};

    #[test]
    fn reasons_are_needed_in_5_and_left_out_before() {
        let packet = UnsubAck { packet_id: PacketId::MIN, properties: AckProperties::EMPTY, reasons: None };
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
        assert!(matches!(packet.encoded_len(Version::V5), Err(EncodeError::Forbidden(_))));
        let packet = UnsubAck { reasons: OneOrMore::new(UnsubAckReason::ALL), ..packet };
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
        assert_eq!(packet.encoded_len(Version::V5), Ok(12));
    }
}
