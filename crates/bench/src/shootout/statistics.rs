//! Means with intervals, and what may be said about their differences.

use serde::{Deserialize, Serialize};

/// Samples that are drawn with replacement for an interval.
const RESAMPLES: usize = 2_000;

/// Part of the means of these samples that lies in the interval.
const CONFIDENCE: f64 = 0.95;

/// A mean, and the bootstrap interval of 95 % around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) count: usize,
}

/// The order of two estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Less,
    /// The intervals overlap: nothing can be said.
    NoDifference,
    More,
}

impl Estimate {
    /// The estimate of some values. The interval of one value is the value itself.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| (0..count).map(|_| values[dice.below(count)]).sum::<f64>() / count as f64)
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
        let outside = (1.0 - CONFIDENCE) / 2.0;
        Some(Self { mean, low: at(outside), high: at(1.0 - outside), count })
    }

    /// Half of the interval, as a share of the mean.
    pub(super) fn precision(self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.mean.abs() }
    }

    /// Compares two estimates. A single value is compared with nothing.
    pub(super) fn against(self, other: Self) -> Verdict {
        let can_tell = self.count > 1 && other.count > 1;
        match () {
            () if can_tell && self.high < other.low => Verdict::Less,
            () if can_tell && self.low > other.high => Verdict::More,
            () => Verdict::NoDifference,
        }
    }
}

/// Numbers that are the same in each run: a report made again from its data does not change.
struct Dice(u64);

impl Dice {
    /// A number below `bound` (splitmix64).
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from((mixed ^ mixed >> 31) % bound).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_contains_the_mean_and_narrows_with_more_values() {
        let of = |count: usize| {
            let values: Vec<f64> = (0..count).map(|n| if n % 2 == 0 { 9.0 } else { 11.0 }).collect();
            Estimate::of(&values).unwrap()
        };
        let (few, many) = (of(4), of(100));
        for estimate in [few, many] {
            assert!(estimate.low <= estimate.mean && estimate.mean <= estimate.high, "{estimate:?}");
            assert!((estimate.mean - 10.0).abs() < 1e-9);
        }
        // The standard error of 100 values that deviate by 1 is 0.1.
        assert!((0.15..0.25).contains(&(many.high - many.mean)), "{many:?}");
        assert!(few.precision() > 2.0 * many.precision());
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn a_difference_is_stated_if_the_intervals_do_not_overlap() {
        let of = |values: &[f64]| Estimate::of(values).unwrap();
        let (slow, fast, wide) = (of(&[9.0, 10.0, 11.0]), of(&[20.0, 21.0, 22.0]), of(&[8.0, 15.0, 30.0]));
        assert_eq!(slow.against(fast), Verdict::Less);
        assert_eq!(fast.against(slow), Verdict::More);
        assert_eq!(slow.against(wide), Verdict::NoDifference);
        assert_eq!(of(&[1.0]).against(fast), Verdict::NoDifference);
    }
}
