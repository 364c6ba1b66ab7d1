//! Connections that leave because a reload has removed their listener, or has changed its rules: some of them in each turn.

use std::collections::VecDeque;

use base::ConnectionId;
use broker::Dismissal;

use crate::connection::Connections;
use crate::faults::Fault;

/// Connections that a turn looks at.
const LOOKED_AT_PER_TURN: u32 = 4_096;
/// Connections that a turn ends. Each may have subscriptions, a will, and others that wait for it.
const ENDED_PER_TURN: usize = 64;

/// The listeners whose connections leave, in the order of the reloads.
#[derive(Default)]
pub(crate) struct Departures(VecDeque<Departure>);

struct Departure {
    listener: u16,
    whom: Dismissal,
    /// The first place whose connection was not looked at.
    next: u32,
}

impl Departures {
    /// Begins to look for the connections of a listener, which accepts no more under this number.
    pub(crate) fn begin(&mut self, listener: u16, whom: Dismissal) {
        self.0.push_back(Departure { listener, whom, next: 0 });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the connections that this turn ends, of one listener.
    pub(crate) fn take_some<S>(
        &mut self,
        connections: &Connections<S>,
    ) -> Option<(Dismissal, Vec<ConnectionId>)> {
        let departure = self.0.front_mut()?;
        let until = departure.next.saturating_add(LOOKED_AT_PER_TURN).min(connections.places());
        let mut found = Vec::new();
        while departure.next < until && found.len() < ENDED_PER_TURN {
            let connection = connections.at(departure.next);
            let is_meant = |listener| listener == departure.listener || Fault::DismissedOthers.is_planted();
            found.extend(connection.filter(|(_, of)| is_meant(of.listener)).map(|(id, _)| id));
            departure.next += 1;
        }
        let whom = departure.whom;
        if departure.next >= connections.places() {
            self.0.pop_front();
        }
        Some((whom, found))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::connection::Connection;
    use stream::Peer;

    #[test]
    fn a_turn_ends_some_connections_and_all_of_the_listener_leave_in_the_end() {
        let mut connections = Connections::default();
        for number in 0..1_000 {
            connections.insert(Connection::new(
                (),
                Peer::Simulated(number),
                u16::from(number % 4 == 0),
                Arc::default(),
            ));
        }
        let mut departures = Departures::default();
        departures.begin(1, Dismissal::Everybody);
        departures.begin(2, Dismissal::Strangers);
        let mut left = 0;
        while let Some((whom, some)) = departures.take_some(&connections) {
            assert!(some.len() <= ENDED_PER_TURN);
            assert!(whom == Dismissal::Everybody || some.is_empty());
            for id in some {
                assert_eq!(connections.remove(id).expect("it is there").listener, 1);
                left += 1;
            }
        }
        assert_eq!(left, 250);
        assert!(departures.is_empty());
    }
}
