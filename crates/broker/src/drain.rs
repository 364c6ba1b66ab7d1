//! Drain: new clients are refused, and those that are connected leave one after the other.
//!
//! ```text
//!              order                    time over, nobody left
//!   serving ──────────► draining ─────────────────────────────► drained
//!      ▲                 │  nobody comes in                        │ nobody comes in
//!      └─────────────────┴─────────────── order ───────────────────┘
//! ```

use std::sync::Arc;

use base::ConnectionId;
use protocol::{Cause, Claim};
use session::Details;
use wire::{DisconnectReason, ReasonCode, Utf8, Version};

use crate::effects::Outside;
use crate::ending::{By, Ending};
use crate::{Effects, Shard};

/// Time between two looks at the clients that are to leave, in milliseconds.
const TICK_MS: u64 = 100;
/// The same while no client is connected.
const IDLE_TICK_MS: u64 = 1_000;
/// Maximum number of clients that leave in a turn. Each may have subscriptions, a will, and others that wait for it.
const ENDED_PER_TURN: u64 = 64;
/// Places of connections that a turn looks at.
const PLACES_PER_TURN: u32 = 4_096;
const WHY: &str = "the broker is being drained";

/// The order to drain a shard.
#[derive(Debug, Clone)]
pub struct Drain {
    /// Another server for the clients. MQTT 5.0 has a property for it, and other versions have none.
    pub server_reference: Option<Arc<str>>,
    /// Time in which the clients leave, evenly spread, in milliseconds.
    pub over_ms: u64,
}

/// A drain under way.
#[derive(Debug)]
pub(crate) struct Draining {
    order: Drain,
    begun_ms: u64,
    /// Clients that were connected at that time.
    begun_with: u64,
    /// Clients that have left since because of the drain.
    gone: u64,
    /// The time of the next look.
    next_ms: u64,
    /// Clients that are to leave now.
    due: u64,
    /// The first place whose client was not looked at since `due` was set.
    at: u32,
}

impl Draining {
    fn new(order: Drain, connected: u64, now_ms: u64) -> Self {
        let (begun_ms, next_ms) = (now_ms, now_ms);
        Self { order, begun_ms, begun_with: connected, gone: 0, next_ms, due: 0, at: 0 }
    }

    pub(crate) fn poll_timeout(&self) -> u64 {
        self.next_ms
    }

    pub(crate) fn has_work(&self) -> bool {
        self.due > 0
    }

    /// Finds out how many clients are to leave now. `connected` is the number of those that are still here.
    fn look(&mut self, connected: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.begun_ms);
        self.due = if passed_ms >= self.order.over_ms {
            connected
        } else {
            let planned = self.begun_with.saturating_mul(passed_ms) / self.order.over_ms;
            planned.saturating_sub(self.gone).min(connected)
        };
        self.next_ms = now_ms + if connected == 0 { IDLE_TICK_MS } else { TICK_MS };
    }
}

impl Shard {
    /// Begins to drain the shard, or ends that.
    pub(crate) fn drain(&mut self, order: Option<Drain>, now_ms: u64) {
        let connected = self.counters.clients_connected.value();
        self.draining = order.map(|order| Draining::new(order, connected, now_ms));
    }

    /// Finds out who is to leave, if it is time.
    pub(crate) fn look_at_drain(&mut self, now_ms: u64) {
        let connected = self.counters.clients_connected.value();
        if let Some(draining) = self.draining.as_mut().filter(|draining| draining.next_ms <= now_ms) {
            draining.look(connected, now_ms);
        }
    }

    /// Lets some of the clients go that are to leave.
    pub(crate) fn drain_some(&mut self, to: &mut Outside<'_, impl Effects>) {
        let Some(draining) = self.draining.as_mut().filter(|draining| draining.has_work()) else { return };
        let until = draining.at.saturating_add(PLACES_PER_TURN).min(self.clients.slots());
        let most = usize::try_from(draining.due.min(ENDED_PER_TURN)).unwrap_or(usize::MAX);
        let connected = self.clients.in_slots(draining.at..until).filter(|(_, client)| client.is_in);
        let some: Vec<ConnectionId> = connected.map(|(id, _)| id).take(most).collect();
        draining.due -= some.len() as u64;
        draining.gone += some.len() as u64;
        draining.at = match some.last() {
            Some(last) if some.len() == most => last.slot + 1,
            _ => until,
        };
        if draining.at >= self.clients.slots() {
            // Those who have come in behind the look are the concern of the next one.
            (draining.at, draining.due) = (0, 0);
        }
        for id in some {
            self.counters.ended_draining.add(1);
            self.tell_of_drain(id, to);
            let reason = ReasonCode::ServerShuttingDown;
            self.end(id, Ending { reason, why: WHY, cause: Cause::WithWill, by: By::Server }, to);
            to.close(id);
        }
    }

    /// Refuses a client because of a drain. Returns its claim if there is no drain.
    pub(crate) fn refuse_by_drain(
        &mut self,
        id: ConnectionId,
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Claim> {
        if self.draining.is_none() {
            return Some(claim);
        }
        self.counters.refused_draining.add(1);
        self.tell_of_drain(id, to);
        self.turn_away_named(id, (ReasonCode::ServerUnavailable, WHY), claim, to);
        None
    }

    /// Tells a client where to go, in CONNACK or DISCONNECT, as far as its version has words for that.
    fn tell_of_drain(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let reference = self.draining.as_ref().and_then(|draining| draining.order.server_reference.clone());
        let Some(client) = self.clients.get(id) else { return };
        let reference = reference.filter(|_| client.session.version() == Some(Version::V5));
        // In CONNACK, this code becomes 0x88, and 3 before MQTT 5.
        let reason = reference
            .as_ref()
            .map_or(DisconnectReason::ServerShuttingDown, |_| DisconnectReason::UseAnotherServer);
        let server_reference = reference.as_deref().and_then(|text| Utf8::new(text).ok());
        // A client may accept small packets only.
        for server_reference in [server_reference, None] {
            let details = Details { server_reference, ..Details::default() };
            let Some(packet) = client.session.disconnect_with(reason, &details) else { return };
            self.scratch.clear();
            if client.session.write(&packet, &mut self.scratch) {
                self.counters.packets_sent.add(1);
                return to.send(id, &self.scratch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_evenly_over_the_time() {
        let order = Drain { server_reference: None, over_ms: 60_000 };
        let mut draining = Draining::new(order, 3, 1_000);
        let mut left = Vec::new();
        while left.len() < 3 {
            let now_ms = draining.poll_timeout();
            draining.look(3 - left.len() as u64, now_ms);
            draining.gone += draining.due;
            (0..draining.due).for_each(|_| left.push(now_ms - 1_000));
        }
        assert_eq!(left, [20_000, 40_000, 60_000]);
    }
}
