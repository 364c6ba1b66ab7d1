//! Clients that leave because a reload has removed their listener, or has changed its rules.

use base::{ConnectionId, Now};
use wire::DisconnectReason;

use crate::effects::Outside;
use crate::{Effects, Shard};

/// The clients of a listener that are to leave after a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dismissal {
    /// All: the listener is gone, or its clients have to prove who they are in another way.
    Everybody,
    /// Clients that have not proved who they are, and clients that have not connected yet.
    Strangers,
    /// Clients with a user name that they have not proved, and clients that have not connected yet.
    Unproved,
}

impl Shard {
    /// Ends a connection if its client is to leave. Returns whether it is.
    pub fn dismiss(&mut self, id: ConnectionId, whom: Dismissal, now: Now, to: &mut impl Effects) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let principal = client.subscriber.as_ref().map(|subscriber| subscriber.principal());
        let may_stay = principal.is_some_and(|principal| match whom {
            Dismissal::Everybody => false,
            Dismissal::Strangers => principal.is_proved,
            Dismissal::Unproved => principal.is_proved || principal.user.is_none(),
        });
        if may_stay {
            return false;
        }
        self.counters.ended_reload.add(1);
        let why = "its listener was removed, or has other rules";
        let to = &mut Outside::new(now, to);
        self.give_up(id, DisconnectReason::AdministrativeAction, why, to);
        true
    }
}
