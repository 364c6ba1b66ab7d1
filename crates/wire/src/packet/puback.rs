use core::fmt;

use crate::header::PacketType;
use crate::packet::AckProperties;
use crate::packet::ack::acknowledgement;
use crate::reason::PubAckReason;
use crate::rule::{self, Fault};
use crate::value::PacketId;
use crate::walk::{ControlPacket, Layout, Walk};

acknowledgement! {
    /// PUBACK: a message at QoS 1 was taken over, or why it was not (section 3.4).
    ///
    /// Before MQTT 5 it always says that it was: an error is refused, rather than turned into its opposite.
    PubAck, "PUBACK", PubAckReason, PUBACK_REASON, refuses_errors: true
}
