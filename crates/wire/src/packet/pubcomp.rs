use core::fmt;

use crate::header::PacketType;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubRelReason;
use crate::rule::{self, Fault};
use crate::value::PacketId;
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBCOMP: an exchange at QoS 2 is over (section 3.7).
    ///
    /// Before MQTT 5 the reason is left out: the exchange is over with both.
    PubComp, "PUBCOMP", PubRelReason, PUBCOMP_REASON, refuses_errors: false
}
