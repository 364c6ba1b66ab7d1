//! Maps from packet identifiers.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use wire::PacketId;

/// Map of the packet identifiers in use. It keeps its memory, so that changes cost no allocation. The hash needs no
/// key: with so few identifiers, nobody can choose a slow set.
pub(crate) type PacketIdMap<V> = HashMap<PacketId, V, FixedState>;

/// The next identifier; 1 after the last.
pub(crate) fn after(packet_id: PacketId) -> PacketId {
    PacketId::new(packet_id.value().wrapping_add(1)).unwrap_or(PacketId::MIN)
}
