//! Measurement of time and allocations of one step.

use crate::cases::Case;
use crate::counting_allocator::Tally;
use serde::Deserialize;
use std::time::{Duration, Instant};

/// Number of packets between two readings of the clock.
pub(crate) const BATCH: usize = 256;

/// Packets are written one after another until the buffer has at least this many bytes, which fit into the
/// first-level cache.
pub(crate) const BUFFER_BYTES: usize = 8_192;

/// The steps: one packet is created of plain values, written into a buffer, read from bytes, and all three together.
pub(crate) const STEPS: [&str; 4] = ["create", "write", "read", "all three"];

/// Costs of one codec for one case.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) codec: String,
    pub(crate) case: String,
    /// The packet in the encoding of this codec.
    pub(crate) wire: Vec<u8>,
    /// Costs in the order of [`STEPS`].
    pub(crate) costs: [Costs; 4],
}

/// Costs of one step per packet.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Costs {
    pub(crate) ns: f64,
    pub(crate) allocations: f64,
}

/// Time and allocations of one batch.
pub(crate) struct Sample {
    took: Duration,
    allocations: u64,
}

/// Measures a batch of [`BATCH`] calls of `one`. The caller prepares the data of `one` beforehand.
pub(crate) fn sample(mut one: impl FnMut()) -> Sample {
    let before = Tally::now();
    let begin = Instant::now();
    for _ in 0..BATCH {
        one();
    }
    let took = begin.elapsed();
    let after = Tally::now();
    Sample { took, allocations: after.allocations - before.allocations }
}

/// The steps of one codec for one case.
pub(crate) struct Steps<'s> {
    /// The packet in the encoding of this codec.
    pub(crate) wire: Vec<u8>,
    /// Functions that handle a batch of packets each, in the order of [`STEPS`].
    pub(crate) batches: [Box<dyn FnMut() -> Sample + 's>; 4],
}

/// Measures the codecs in alternation, and returns the medians of their times.
pub(crate) fn in_turns(case: &Case, mut codecs: Vec<(&str, Steps<'_>)>, budget: Duration) -> Vec<Measured> {
    let costs: Vec<Vec<Costs>> = (0..STEPS.len())
        .map(|step| {
            in_turns_step(codecs.iter_mut().map(|(_, steps)| &mut steps.batches[step]).collect(), budget)
        })
        .collect();
    let measured = codecs.into_iter().enumerate().map(|(codec, (name, steps))| Measured {
        codec: name.into(),
        case: case.name.clone(),
        wire: steps.wire,
        costs: std::array::from_fn(|step| costs[step][codec]),
    });
    measured.collect()
}

fn in_turns_step(mut batches: Vec<&mut Box<dyn FnMut() -> Sample + '_>>, budget: Duration) -> Vec<Costs> {
    let mut warm = || batches.iter_mut().map(|batch| batch()).collect::<Vec<Sample>>();
    warm();
    let settled = warm();
    let mut times = vec![Vec::new(); batches.len()];
    let begin = Instant::now();
    // At least one batch, however late this thread runs.
    while times[0].is_empty() || begin.elapsed() < budget {
        batches.iter_mut().zip(&mut times).for_each(|(batch, times)| times.push(batch().took));
    }
    settled.iter().zip(times).map(|(sample, times)| sample.costs(times)).collect()
}

impl Sample {
    /// Costs per packet: the allocations of this sample, and the median of `times`.
    fn costs(&self, mut times: Vec<Duration>) -> Costs {
        times.sort_unstable();
        let per_packet = |count: f64| count / BATCH as f64;
        Costs {
            ns: per_packet(times[times.len() / 2].as_nanos() as f64),
            allocations: per_packet(self.allocations as f64),
        }
    }
}
