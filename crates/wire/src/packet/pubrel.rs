use core::fmt;

use crate::header::PacketType;
use crate::number::PacketId;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubRelReason;
use crate::rule::{self, Fault};
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBREL: the sender of a message at QoS 2 will not send it again (section 3.6).
    ///
    /// Before MQTT 5 the reason is left out. The exchange continues in the same way for both reasons.
    PubRel, "PUBREL", PubRelReason, PUBREL_REASON, refuses_errors: false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    #[test]
    fn before_5_the_exchange_goes_on_without_a_reason() {
        let packet = PubRel::new(PacketId::MIN, PubRelReason::PacketIdentifierNotFound);
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
        assert_eq!(packet.encoded_len(Version::V5), Ok(5));
    }
}
