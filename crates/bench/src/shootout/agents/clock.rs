//! The comparison of two clocks by round trips.
//!
//! ```text
//! here      sent ───────────────────── received
//! agent            └─► its clock ─┘
//! ```
//!
//! The agent reads its clock at some moment between `sent` and `received`. The middle is wrong by at most half of the round
//! trip, whatever the way there and the way back take.

use std::time::Duration;

/// One round trip, nanoseconds of both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    pub(super) sent: u64,
    pub(super) agent: u64,
    pub(super) received: u64,
}

/// The difference of the clock of an agent from our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Nanoseconds that the clock of the agent is ahead.
    offset_nanos: i128,
    /// The offset is wrong by at most this.
    pub(super) uncertainty: Duration,
}

impl Comparison {
    /// The comparison by the fastest round trip; `None` without one.
    pub(super) fn of(trips: &[RoundTrip]) -> Option<Self> {
        let duration = |trip: &&RoundTrip| trip.received.saturating_sub(trip.sent);
        let fastest = trips.iter().min_by_key(duration)?;
        let middle = (i128::from(fastest.sent) + i128::from(fastest.received)) / 2;
        Some(Self {
            offset_nanos: i128::from(fastest.agent) - middle,
            uncertainty: Duration::from_nanos(duration(&fastest).div_ceil(2)),
        })
    }

    /// The time of the agent's clock at this time of ours.
    pub(super) fn there(self, here: u64) -> u64 {
        u64::try_from((i128::from(here) + self.offset_nanos).max(0)).unwrap_or(u64::MAX)
    }

    /// The time of our clock at this time of the agent's, which may be before our clock began.
    pub(super) fn here(self, there: u64) -> i128 {
        i128::from(there) - self.offset_nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent whose clock is this far ahead, seen over two ways of different length.
    fn trip(sent: u64, ahead: u64, there: u64, back: u64) -> RoundTrip {
        RoundTrip { sent, agent: sent + there + ahead, received: sent + there + back }
    }

    #[test]
    fn the_fastest_round_trip_decides_and_its_half_bounds_the_error() {
        for (there, back) in [(100, 100), (20, 180), (199, 1)] {
            let trips =
                [trip(0, 5_000, 9_000, 100), trip(20_000, 5_000, there, back), trip(50_000, 5_000, 1, 900)];
            let comparison = Comparison::of(&trips).unwrap();
            assert_eq!(comparison.uncertainty, Duration::from_nanos(100));
            assert!((comparison.offset_nanos - 5_000).unsigned_abs() <= 100, "{comparison:?}");
            assert_eq!(comparison.here(comparison.there(70_000)), 70_000);
        }
        assert_eq!(Comparison::of(&[]), None);
    }

    #[test]
    fn a_clock_may_be_behind() {
        let comparison = Comparison::of(&[RoundTrip { sent: 1_000, agent: 40, received: 1_020 }]).unwrap();
        assert_eq!((comparison.there(2_010), comparison.here(40)), (1_040, 1_010));
        assert_eq!(comparison.there(0), 0, "its clock had not begun");
    }
}
