//! Maps from packet identifiers.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use wire::PacketId;

/// What is known of packet identifiers that are in use. It keeps its memory, so that messages that come and go cost
/// none. There are so few identifiers that nobody can choose a slow set of them: the hash needs no key.
pub(crate) type PacketIdMap<V> = HashMap<PacketId, V, FixedState>;

/// The identifier behind this one.
pub(crate) fn after(packet_id: PacketId) -> PacketId {
    PacketId::new(packet_id.value().wrapping_add(1)).unwrap_or(PacketId::MIN)
}
