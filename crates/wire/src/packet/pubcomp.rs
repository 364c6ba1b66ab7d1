use core::fmt;

use crate::header::PacketType;
use crate::number::PacketId;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubRelReason;
use crate::rule::{self, Fault};
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBCOMP: an exchange at QoS 2 is over (section 3.7).
    ///
    /// Before MQTT 5 the reason is left out. The exchange is over for both reasons.
    PubComp, "PUBCOMP", PubRelReason, PUBCOMP_REASON, refuses_errors: false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    #[test]
    fn before_5_the_exchange_goes_on_without_a_reason() {
        let packet = PubComp::new(PacketId::MIN, PubRelReason::PacketIdentifierNotFound);
        assert_eq!(packet.encoded_len(Version::V3_1_1), Ok(4));
        assert_eq!(packet.encoded_len(Version::V5), Ok(5));
    }
}
