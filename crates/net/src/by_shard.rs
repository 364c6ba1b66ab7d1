//! What each shard has counted, for operators who look for the busiest one.

use broker::Totals;

use crate::Operator;

impl Operator {
    /// The counters of each shard.
    #[must_use]
    pub fn totals_by_shard(&self) -> Vec<Totals> {
        self.parts().counters.iter().map(|counters| Totals::of([&**counters])).collect()
    }
}
