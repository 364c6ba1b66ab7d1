//! Tickets for answers that wait.

use wire::PacketId;

/// An answer that waits until its promise is true. It belongs to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ticket {
    /// Answer to a PUBLISH of QoS 1: PUBACK.
    PubAck(PacketId),
    /// Answer to a PUBLISH of QoS 2: PUBREC.
    PubRec(PacketId),
    /// Answer to a PUBREC: PUBREL.
    PubRel(PacketId),
    /// Answer to a PUBREL: PUBCOMP.
    PubComp(PacketId),
}
