//! How long commits take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BUCKETS: usize = 24;

/// Counts durations by powers of two of microseconds.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    counts: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
    longest_micros: AtomicU64,
}

/// How long commits took, from when they were begun until they were durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// How many took at most 1, 2, 4, … microseconds, and more than half of that; the last has all that took longer.
    pub counts: Vec<u64>,
    /// All of them together, in microseconds.
    pub sum_micros: u64,
    /// The longest, in microseconds.
    pub longest_micros: u64,
}

impl Latency {
    pub(crate) fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (micros.max(1) - 1).checked_ilog2().map_or(0, |power| power as usize + 1);
        self.counts[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
        self.longest_micros.fetch_max(micros, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Latencies {
        Latencies {
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum_micros: self.sum_micros.load(Ordering::Relaxed),
            longest_micros: self.longest_micros.load(Ordering::Relaxed),
        }
    }
}

#[test]
fn durations_are_counted_by_powers_of_two() {
    let latency = Latency::default();
    for micros in [0, 1, 2, 3, 4, 5, u64::MAX / 2] {
        latency.add(Duration::from_micros(micros));
    }
    let read = latency.read();
    assert_eq!(read.counts[..5], [2, 1, 2, 1, 0]);
    assert_eq!((read.counts[BUCKETS - 1], read.longest_micros), (1, u64::MAX / 2));
}
