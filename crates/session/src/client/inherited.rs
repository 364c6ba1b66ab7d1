//! Packet identifiers of a session that an earlier program has left: some may be open at the server, and nobody here knows
//! which.

use std::collections::{BTreeSet, VecDeque};

use base::Now;
use wire::{PacketId, PubRel, PubRelReason};

use super::Client;

/// So many identifiers are released at a time.
const RELEASED_AT_A_TIME: usize = 64;

/// What is known of the identifiers of such a session.
///
/// A message of QoS 2 under an identifier that is open would be taken for the earlier one, sent again, and lost. PUBREL
/// ends whatever was open, or nothing; behind PUBCOMP the identifier is free. Messages wait for that.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Those up to this one have been asked about.
    last: u16,
    /// PUBREL was sent, and PUBCOMP has not come.
    releasing: BTreeSet<PacketId>,
    /// Open neither at the server nor here.
    free: VecDeque<PacketId>,
}

impl<T> Client<T> {
    /// Whether a message can be sent for want of nothing but a place.
    pub(super) fn has_identifier(&self) -> bool {
        let is_used = |id: &PacketId| self.link.as_ref().is_some_and(|link| link.requests.contains_key(id));
        self.inherited.as_ref().is_none_or(|inherited| inherited.free.iter().any(|id| !is_used(id)))
    }

    /// An identifier for a new message; there is one that [is free](Self::has_identifier).
    pub(super) fn take_identifier(&mut self) -> PacketId {
        let requests = self.link.as_ref().map(|link| &link.requests);
        let is_used = |id: PacketId| requests.is_some_and(|requests| requests.contains_key(&id));
        let Some(inherited) = &mut self.inherited else { return self.outbound.unused(is_used) };
        let place = inherited.free.iter().position(|id| !is_used(*id));
        let free = place.and_then(|place| inherited.free.remove(place));
        free.expect("it was looked whether an identifier is free")
    }

    /// An exchange of ours is over.
    pub(super) fn give_identifier_back(&mut self, packet_id: PacketId) {
        if let Some(inherited) = &mut self.inherited {
            inherited.free.push_back(packet_id);
        }
    }

    /// PUBCOMP, if that is the answer to what this asked; then the identifier is free, and messages may go on.
    pub(super) fn is_released(&mut self, packet_id: PacketId, now: Now, into: &mut Vec<u8>) -> bool {
        let Some(inherited) = &mut self.inherited else { return false };
        if !inherited.releasing.remove(&packet_id) {
            return false;
        }
        inherited.free.push_back(packet_id);
        self.flush(now, into);
        true
    }

    /// Messages wait for an identifier: releases some.
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

    /// There is another connection: what was not answered is asked again.
    pub(super) fn release_again(&mut self, into: &mut Vec<u8>) {
        let (Some(inherited), Some(link)) = (&self.inherited, &self.link) else { return };
        for packet_id in &inherited.releasing {
            link.receiver().write(&PubRel::new(*packet_id, PubRelReason::Success).into(), into);
        }
    }
}
