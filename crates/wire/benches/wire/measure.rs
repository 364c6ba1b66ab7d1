//! Times and allocations of one step.

use crate::counting_allocator::Tally;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// Packets that are handled between two looks at the clock.
pub(crate) const BATCH: usize = 256;

/// Time spent on each step of each case.
const BUDGET: Duration = Duration::from_millis(40);

pub(crate) const STEPS: [&str; 4] = ["make", "write", "read", "all"];

/// What one codec needs for one case.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) codec: String,
    pub(crate) case: String,
    /// The packet as the codec writes it.
    pub(crate) wire: Vec<u8>,
    /// In the order of [`STEPS`].
    pub(crate) costs: [Costs; 4],
}

/// Per packet.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Costs {
    pub(crate) ns: f64,
    pub(crate) allocations: f64,
    pub(crate) bytes: f64,
}

/// What one batch took.
pub(crate) struct Sample {
    took: Duration,
    allocations: u64,
    bytes: u64,
}

/// Handles a batch of packets; what `batch` needs for it has been made before.
pub(crate) fn sample(mut one: impl FnMut()) -> Sample {
    let before = Tally::now();
    let begin = Instant::now();
    for _ in 0..BATCH {
        one();
    }
    let took = begin.elapsed();
    let after = Tally::now();
    Sample {
        took,
        allocations: after.allocations - before.allocations,
        bytes: after.bytes_allocated - before.bytes_allocated,
    }
}

/// Runs batches until the budget is spent, and takes the median of their times.
pub(crate) fn costs(mut batch: impl FnMut() -> Sample) -> Costs {
    batch();
    let Sample { allocations, bytes, .. } = batch();
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < BUDGET {
        times.push(batch().took);
    }
    times.sort_unstable();
    let per_packet = |count: f64| count / BATCH as f64;
    Costs {
        ns: per_packet(times[times.len() / 2].as_nanos() as f64),
        allocations: per_packet(allocations as f64),
        bytes: per_packet(bytes as f64),
    }
}
