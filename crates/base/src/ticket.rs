//! Answers that wait.

use wire::PacketId;

/// An answer that waits until what it promises is true. It belongs to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ticket {
    /// To a PUBLISH of QoS 1.
    PubAck(PacketId),
    /// To a PUBLISH of QoS 2.
    PubRec(PacketId),
    /// To a PUBREC.
    PubRel(PacketId),
    /// To a PUBREL.
    PubComp(PacketId),
}
