//! Messages of QoS 1 and 2 to the peer, until they are acknowledged (MQTT 5.0, 4.3.2 and 4.3.3).
//!
//! Both roles send messages in the same way. `B` is the part of each message that is kept: a server keeps nothing, a
//! client keeps the message, to send it again after a reconnect.

use std::collections::hash_map::Entry;

use wire::{Delivery, PacketId, PubRel, PubRelReason, Qos, brief_pubrel};

use crate::ids::{PacketIdMap, after};
use crate::in_order::InOrder;

/// Maximum number of open exchanges. With half of all identifiers free, a search for a free one passes over fewer than
/// one used identifier on average, in whatever order the peer acknowledges.
pub(crate) const INFLIGHT_MAX: u16 = 32_767;

/// The sender's half of the exchanges of one session.
#[derive(Debug)]
pub(crate) struct Outbound<B> {
    open: PacketIdMap<Exchange<B>>,
    /// The identifier that was used last.
    last: PacketId,
    releases: InOrder<()>,
}

#[derive(Debug)]
struct Exchange<B> {
    stage: Stage,
    body: B,
}

/// ```text
///  PUBLISH                      PUBACK
/// ────────► AtLeastOnce ────────────────────────────────────────────────►
///
///  PUBLISH               PUBREC             PUBREL              PUBCOMP
/// ────────► ExactlyOnce ────────► Received ────────► Released ──────────►
///               └──────────── PUBREC with an error ─────────────────────►
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// PUBLISH of QoS 1 was sent, and waits for PUBACK.
    AtLeastOnce,
    /// PUBLISH of QoS 2 was sent, and waits for PUBREC.
    ExactlyOnce,
    /// Waits until PUBREL may leave.
    Received,
    /// PUBREL was sent, and waits for PUBCOMP.
    Released,
}

/// Meaning of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledged<B> {
    /// The exchange is over.
    Over(B),
    /// PUBREC. The caller completes [`Ticket::PubRel`](base::Ticket::PubRel).
    Received,
    /// PUBREC for a released message: PUBREL is sent again.
    Again,
    /// A repeated acknowledgement, which the answer to the first one answers.
    Repeated,
    /// The identifier is unknown.
    Unknown,
    /// An acknowledgement of the wrong kind, or at the wrong time, for this exchange.
    Misplaced,
}

impl<B> Default for Outbound<B> {
    fn default() -> Self {
        Self { open: PacketIdMap::default(), last: PacketId::MAX, releases: InOrder::default() }
    }
}

impl<B> Outbound<B> {
    /// Number of open exchanges.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Finds an identifier that is neither in use here nor according to `is_used_elsewhere`. The caller keeps to
    /// [`INFLIGHT_MAX`].
    pub(crate) fn unused(&mut self, is_used_elsewhere: impl Fn(PacketId) -> bool) -> PacketId {
        self.last = after(self.last);
        while is_used_elsewhere(self.last) || self.open.contains_key(&self.last) {
            self.last = after(self.last);
        }
        self.last
    }

    /// Stage and body of an exchange.
    pub(crate) fn get_mut(&mut self, packet_id: PacketId) -> Option<(Stage, &mut B)> {
        self.open.get_mut(&packet_id).map(|exchange| (exchange.stage, &mut exchange.body))
    }

    /// All exchanges, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PacketId, Stage, &B)> {
        self.open.iter().map(|(packet_id, exchange)| (*packet_id, exchange.stage, &exchange.body))
    }

    /// Ends an exchange at any stage.
    pub(crate) fn remove(&mut self, packet_id: PacketId) -> Option<B> {
        self.open.remove(&packet_id).map(|exchange| exchange.body)
    }

    /// Ends all exchanges. Identifiers continue where they were.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Stage, B)> {
        self.releases = InOrder::default();
        self.open.drain().map(|(_, exchange)| (exchange.stage, exchange.body))
    }

    /// Begins an exchange with an unused identifier; `qos` is 1 or 2.
    pub(crate) fn begin(&mut self, packet_id: PacketId, qos: Qos, dup: bool, body: B) -> Delivery {
        let (stage, delivery) = match qos {
            Qos::AtMostOnce => return Delivery::AtMostOnce,
            Qos::AtLeastOnce => (Stage::AtLeastOnce, Delivery::AtLeastOnce { packet_id, dup }),
            Qos::ExactlyOnce => (Stage::ExactlyOnce, Delivery::ExactlyOnce { packet_id, dup }),
        };
        self.open.insert(packet_id, Exchange { stage, body });
        delivery
    }

    /// Begins an exchange whose PUBREL belongs to an earlier connection, and returns the PUBREL.
    pub(crate) fn begin_release(&mut self, packet_id: PacketId, body: B) -> PubRel<'static> {
        self.open.insert(packet_id, Exchange { stage: Stage::Released, body });
        PubRel::new(packet_id, PubRelReason::Success)
    }

    /// Handles a PUBACK, which ends an exchange of QoS 1.
    pub(crate) fn puback(&mut self, packet_id: PacketId) -> Acknowledged<B> {
        self.end(packet_id, Stage::AtLeastOnce)
    }

    /// Handles a PUBREC; `is_error` if it refuses the message.
    pub(crate) fn pubrec(&mut self, packet_id: PacketId, is_error: bool) -> Acknowledged<B> {
        let Some(exchange) = self.open.get_mut(&packet_id) else { return Acknowledged::Unknown };
        match exchange.stage {
            Stage::AtLeastOnce => Acknowledged::Misplaced,
            Stage::ExactlyOnce if is_error => self.end(packet_id, Stage::ExactlyOnce),
            Stage::ExactlyOnce => {
                exchange.stage = Stage::Received;
                self.releases.push(packet_id);
                Acknowledged::Received
            }
            Stage::Received => Acknowledged::Repeated,
            Stage::Released if is_error => Acknowledged::Repeated,
            Stage::Released => Acknowledged::Again,
        }
    }

    /// Handles a PUBCOMP, which ends an exchange of QoS 2.
    pub(crate) fn pubcomp(&mut self, packet_id: PacketId) -> Acknowledged<B> {
        self.end(packet_id, Stage::Released)
    }

    fn end(&mut self, packet_id: PacketId, stage: Stage) -> Acknowledged<B> {
        match self.open.entry(packet_id) {
            Entry::Vacant(_) => Acknowledged::Unknown,
            Entry::Occupied(open) if open.get().stage != stage => Acknowledged::Misplaced,
            Entry::Occupied(open) => Acknowledged::Over(open.remove().body),
        }
    }

    /// Lets PUBREL leave for a message with a PUBREC. PUBRELs leave in the order of the PUBRECs [MQTT-4.6.0-4].
    pub(crate) fn complete_release(&mut self, packet_id: PacketId, into: &mut Vec<u8>) {
        if !self.releases.complete(packet_id, ()) {
            return;
        }
        while let Some((packet_id, ())) = self.releases.pop() {
            if let Some(exchange) = self.open.get_mut(&packet_id) {
                exchange.stage = Stage::Released;
            }
            into.extend_from_slice(&brief_pubrel(packet_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// On average: the identifiers in use are neighbours, and one round passes over them once.
    #[test]
    fn a_peer_that_acknowledges_in_the_worst_order_costs_two_probes_for_each_message() {
        const ROUNDS: u32 = 200_000;
        let (mut outbound, probes) = (Outbound::default(), Cell::new(0_u32));
        let begin = |outbound: &mut Outbound<()>| {
            let packet_id = outbound.unused(|_| {
                probes.set(probes.get() + 1);
                false
            });
            outbound.begin(packet_id, Qos::AtLeastOnce, false, ());
            packet_id
        };
        let mut last = PacketId::MAX;
        for _ in 0..INFLIGHT_MAX {
            last = begin(&mut outbound);
        }
        assert_eq!((outbound.len(), probes.get()), (INFLIGHT_MAX.into(), INFLIGHT_MAX.into()));
        // The last exchange ends each time, so that all others stay neighbours.
        for _ in 0..ROUNDS {
            assert_eq!(outbound.puback(last), Acknowledged::Over(()));
            last = begin(&mut outbound);
        }
        let of_rounds = probes.get() - u32::from(INFLIGHT_MAX);
        assert!((ROUNDS..=2 * ROUNDS).contains(&of_rounds), "{of_rounds} probes");
    }
}
