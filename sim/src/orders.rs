//! The operators who change queues while clients use them.

use crate::broker::Process;
use crate::discards::Discards;
use crate::moves::Moves;
use crate::scenario::{Kind, Scenario};
use crate::scene::Scene;
use crate::tally::Tally;

/// The operator of a kind of runs, if it has one.
pub(crate) enum Orders {
    None,
    Discards(Discards),
    Moves(Moves),
}

impl Orders {
    pub(crate) fn draw(kind: Kind, seed: u64) -> Self {
        match kind {
            Kind::Discard => Self::Discards(Discards::draw(seed)),
            Kind::Move => Self::Moves(Moves::draw(seed)),
            _ => Self::None,
        }
    }

    /// An order, if it is time for one.
    pub(crate) fn turn(&mut self, process: &mut Process, scenario: &Scenario, scene: &mut Scene) {
        match self {
            Self::None => {}
            Self::Discards(discards) => discards.turn(process, scenario, scene),
            Self::Moves(moves) => moves.turn(process, scenario, scene),
        }
    }

    /// Tells the judge what was carried out.
    pub(crate) fn tell(&self, scenario: &Scenario, scene: &mut Scene) {
        match self {
            Self::None => {}
            Self::Discards(discards) => discards.tell(scenario, scene),
            Self::Moves(moves) => moves.tell(scene),
        }
    }

    /// Adds the number of messages to the counts of the run.
    pub(crate) fn count(&self, tally: &mut Tally) {
        match self {
            Self::None => {}
            Self::Discards(discards) => tally.discarded = discards.discarded(),
            Self::Moves(moves) => tally.moved = moves.moved(),
        }
    }
}
