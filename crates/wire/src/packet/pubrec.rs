use core::fmt;

use crate::header::PacketType;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubAckReason;
use crate::rule::{self, Fault};
use crate::value::PacketId;
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBREC: a message at QoS 2 was taken over, or why it was not (section 3.5).
    ///
    /// Before MQTT 5 it always says that it was: an error is refused, rather than turned into its opposite.
    PubRec, "PUBREC", PubAckReason, PUBREC_REASON, refuses_errors: true
}
