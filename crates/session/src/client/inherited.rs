//! Packet identifiers of a session that an earlier program has left. Some may be open at the server, and this program
//! does not know them.

use std::collections::{BTreeSet, VecDeque};

use base::Now;
use wire::{PacketId, PubRel, PubRelReason};

use super::Client;

/// Number of identifiers that are released at a time.
const RELEASED_AT_A_TIME: usize = 64;

/// Knowledge about the identifiers of such a session.
///
/// The server would take a message of QoS 2 under an open identifier for the earlier message, and the new message would
/// be lost. PUBREL ends any open exchange, and after PUBCOMP the identifier is free. Messages wait for that.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// The largest identifier for which PUBREL was sent.
    last: u16,
    /// Identifiers with a PUBREL and without a PUBCOMP so far.
    releasing: BTreeSet<PacketId>,
    /// Identifiers that are open neither at the server nor here.
    free: VecDeque<PacketId>,
}

impl<T> Client<T> {
    /// Whether an identifier is ready for a new message.
    pub(super) fn has_identifier(&self) -> bool {
        let is_used = |id: &PacketId| self.link.as_ref().is_some_and(|link| link.requests.contains_key(id));
        self.inherited.as_ref().is_none_or(|inherited| inherited.free.iter().any(|id| !is_used(id)))
    }

    /// Takes an identifier for a new message. [`has_identifier`](Self::has_identifier) must be true.
    pub(super) fn take_identifier(&mut self) -> PacketId {
        let requests = self.link.as_ref().map(|link| &link.requests);
        let is_used = |id: PacketId| requests.is_some_and(|requests| requests.contains_key(&id));
        let Some(inherited) = &mut self.inherited else { return self.outbound.unused(is_used) };
        let place = inherited.free.iter().position(|id| !is_used(*id));
        let free = place.and_then(|place| inherited.free.remove(place));
        free.expect("it was looked whether an identifier is free")
    }

    /// Frees the identifier of an exchange that is over.
    pub(super) fn give_identifier_back(&mut self, packet_id: PacketId) {
        if let Some(inherited) = &mut self.inherited {
            inherited.free.push_back(packet_id);
        }
    }

    /// Handles PUBCOMP if it is an answer to such a PUBREL. Then the identifier is free, and messages may continue.
    pub(super) fn is_released(&mut self, packet_id: PacketId, now: Now, into: &mut Vec<u8>) -> bool {
        let Some(inherited) = &mut self.inherited else { return false };
        if !inherited.releasing.remove(&packet_id) {
            return false;
        }
        inherited.free.push_back(packet_id);
        self.flush(now, into);
        true
    }

    /// Releases some identifiers, because messages wait for one.
    pub(super) fn release_some(&mut self, into: &mut Vec<u8>) {
        let (Some(inherited), Some(link)) = (&mut self.inherited, &self.link) else { return };
        if !(link.is_connected && inherited.releasing.is_empty()) {
            return;
        }
        while inherited.releasing.len() < RELEASED_AT_A_TIME.min(link.server.window.into())
            && let Some(next) = inherited.last.checked_add(1).and_then(PacketId::new)
        {
            inherited.last = next.value();
            if self.outbound.get_mut(next).is_none() {
                inherited.releasing.insert(next);
                link.receiver().write(&PubRel::new(next, PubRelReason::Success).into(), into);
            }
        }
    }

    /// Sends PUBRELs without an answer again, on another connection.
    pub(super) fn release_again(&mut self, into: &mut Vec<u8>) {
        let (Some(inherited), Some(link)) = (&self.inherited, &self.link) else { return };
        for packet_id in &inherited.releasing {
            link.receiver().write(&PubRel::new(*packet_id, PubRelReason::Success).into(), into);
        }
    }
}
