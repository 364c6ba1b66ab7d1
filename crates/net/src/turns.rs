//! How long the turns of shards take.

use std::fmt;
use std::time::Duration;

use base::{Latencies, Latency, ShardId};
use protocol::Instruments;

/// The times of turns, by shard. A packet that comes in waits for the turn that is under way. What it causes on its shard, and
/// what nothing has to be recorded for, is sent by the end of the next one.
pub(crate) struct Turns(Box<[OfShard]>);

/// Each shard writes to cache lines of its own. Processors fetch these in pairs of 64 bytes.
#[derive(Default)]
#[repr(align(128))]
struct OfShard(Latency);

impl Turns {
    pub(crate) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| OfShard::default()).collect())
    }

    /// A turn of this shard has ended. Only its thread calls this.
    pub(crate) fn add(&self, shard: ShardId, took: Duration) {
        self.0[shard.number()].0.add(took);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("shards", &self.0.len()).finish_non_exhaustive()
    }
}

impl Instruments for Turns {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        let mut sum = Latencies::default();
        self.0.iter().for_each(|shard| sum.add(&shard.0.read()));
        sum.figures("turns_us", say);
    }
}

#[test]
fn the_turns_of_all_shards_are_counted_together() {
    let turns = Turns::new(2);
    turns.add(ShardId::new(0), Duration::from_micros(2));
    turns.add(ShardId::new(1), Duration::from_micros(30));
    let mut figures = Vec::new();
    turns.read(&mut |topic, value| figures.push(format!("{topic} {value}")));
    assert_eq!(figures, ["turns_us/longest 30", "turns_us/sum 32", "turns_us/le/2 1", "turns_us/le/32 2"]);
}
