//! The operators who change queues while clients use them.

use ledger::QueueOwner;

use crate::broker::Process;
use crate::discards::Discards;
use crate::moves::Moves;
use crate::random::Random;
use crate::scenario::{Kind, Scenario};
use crate::scene::Scene;
use crate::tally::Tally;

/// Out of a thousand queues of an order: it is that of a group.
const GROUPS_PER_MILLE: usize = 300;

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

/// A queue for an order.
pub(crate) fn draw_queue(scenario: &Scenario, random: &mut Random) -> QueueOwner {
    let groups = filters(scenario, true);
    if !groups.is_empty() && random.chance(GROUPS_PER_MILLE) {
        QueueOwner::Group((*random.pick(&groups)).into())
    } else {
        QueueOwner::Client(random.pick(&scenario.clients).client_id.as_str().into())
    }
}

/// The filter of an order. `None` for all messages: so many of a thousand orders are about all.
pub(crate) fn draw_filter(
    scenario: &Scenario,
    all_per_mille: usize,
    random: &mut Random,
) -> Option<Box<str>> {
    let plain = filters(scenario, false);
    let is_all = plain.is_empty() || random.chance(all_per_mille);
    (!is_all).then(|| (*random.pick(&plain)).into())
}

fn filters(scenario: &Scenario, is_shared: bool) -> Vec<&str> {
    let filters = scenario.filters.iter().filter(|filter| filter.is_shared == is_shared);
    filters.map(|filter| filter.text.as_str()).collect()
}
