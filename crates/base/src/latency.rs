//! How long work takes, counted by powers of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BUCKETS: usize = 24;

/// Counts durations by powers of two of microseconds. One thread adds to it, and any thread reads it.
#[derive(Debug, Default)]
pub struct Latency {
    counts: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
    longest_micros: AtomicU64,
}

/// The durations that were counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Numbers of durations of at most 1, 2, 4, … microseconds, and more than half of that. The last number is that of all
    /// longer durations too.
    pub counts: [u64; BUCKETS],
    /// Sum of the durations, in microseconds.
    pub sum_micros: u64,
    /// The longest duration, in microseconds.
    pub longest_micros: u64,
}

impl Latency {
    /// Counts a duration. Of two calls at the same time, one may be lost.
    pub fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (micros.max(1) - 1).checked_ilog2().map_or(0, |power| power as usize + 1);
        let count = &self.counts[bucket.min(BUCKETS - 1)];
        // Nobody else writes.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let sum_micros = self.sum_micros.load(Ordering::Relaxed).wrapping_add(micros);
        self.sum_micros.store(sum_micros, Ordering::Relaxed);
        if micros > self.longest_micros.load(Ordering::Relaxed) {
            self.longest_micros.store(micros, Ordering::Relaxed);
        }
    }

    /// The durations so far.
    #[must_use]
    pub fn read(&self) -> Latencies {
        Latencies {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum_micros: self.sum_micros.load(Ordering::Relaxed),
            longest_micros: self.longest_micros.load(Ordering::Relaxed),
        }
    }
}

impl Latencies {
    /// Adds durations that were counted elsewhere.
    pub fn add(&mut self, others: &Self) {
        self.counts.iter_mut().zip(&others.counts).for_each(|(sum, count)| *sum += count);
        self.sum_micros = self.sum_micros.wrapping_add(others.sum_micros);
        self.longest_micros = self.longest_micros.max(others.longest_micros);
    }

    /// Passes the figures with their topics below this one: `longest` and `sum` in microseconds, and in `le/N` the number of
    /// durations of at most N microseconds. A power of two that adds nothing is left out.
    pub fn figures(&self, topic: &str, say: &mut dyn FnMut(&str, String)) {
        say(&format!("{topic}/longest"), self.longest_micros.to_string());
        say(&format!("{topic}/sum"), self.sum_micros.to_string());
        let mut upto = 0;
        for (power, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            upto += count;
            say(&format!("{topic}/le/{}", 1_u64 << power), upto.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(micros: &[u64]) -> Latencies {
        let latency = Latency::default();
        micros.iter().for_each(|micros| latency.add(Duration::from_micros(*micros)));
        latency.read()
    }

    #[test]
    fn durations_are_counted_by_powers_of_two() {
        let read = latencies(&[0, 1, 2, 3, 4, 5, u64::MAX / 2]);
        assert_eq!(read.counts[..5], [2, 1, 2, 1, 0]);
        assert_eq!((read.counts[BUCKETS - 1], read.longest_micros), (1, u64::MAX / 2));
    }

    #[test]
    fn figures_count_up_to_a_power_and_leave_out_what_adds_nothing() {
        let mut sum = latencies(&[1, 3]);
        sum.add(&latencies(&[7, 100]));
        let mut figures = Vec::new();
        sum.figures("work", &mut |topic, value| figures.push(format!("{topic} {value}")));
        let expected = [
            "work/longest 100",
            "work/sum 111",
            "work/le/1 1",
            "work/le/4 2",
            "work/le/8 3",
            "work/le/128 4",
        ];
        assert_eq!(figures, expected);
    }
}
