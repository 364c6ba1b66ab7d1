use core::fmt;

use crate::header::PacketType;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubRelReason;
use crate::rule::{self, Fault};
use crate::value::PacketId;
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBREL: the sender of a message at QoS 2 will not send it again (section 3.6).
    ///
    /// Before MQTT 5 the reason is left out: the exchange goes on in the same way with both.
    PubRel, "PUBREL", PubRelReason, PUBREL_REASON, refuses_errors: false
}
