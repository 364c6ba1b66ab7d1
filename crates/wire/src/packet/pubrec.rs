use core::fmt;

use crate::header::PacketType;
use crate::number::PacketId;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubAckReason;
use crate::rule::{self, Fault};
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBREC: the receiver has accepted a message at QoS 2, or says why not (section 3.5).
    ///
    /// Before MQTT 5 the packet always means acceptance. An error is refused there, because it would become its
    /// opposite.
    PubRec, "PUBREC", PubAckReason, PUBREC_REASON, refuses_errors: true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EncodeError, Version};

    #[test]
    fn before_5_a_refusal_is_not_turned_into_its_opposite() {
        let packet = PubRec::new(PacketId::MIN, PubAckReason::QuotaExceeded);
        assert!(matches!(packet.encoded_len(Version::V3_1_1), Err(EncodeError::Forbidden(_))));
        assert_eq!(packet.encoded_len(Version::V5), Ok(5));
        let packet = PubRec::new(PacketId::MIN, PubAckReason::NoMatchingSubscribers);
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
    }
}
