//! Means with intervals, and what may be said about their differences.

/// Quantiles of Student's distribution at 97.5 %, for 1, 2, 3 … degrees of freedom.
///
/// A bootstrap of three values is an interval from the least to the greatest of them, which contains the mean in three
/// cases of four only.
const STUDENT: [f64; 15] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
];

/// The same for many degrees of freedom.
const NORMAL: f64 = 1.96;

/// A mean, and the interval that contains the true one with 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// One of them has no interval.
    TooFewRounds,
}

impl Estimate {
    /// The estimate of some values. The interval of one value is the value itself.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let freedom = count - 1;
        let half = match freedom {
            0 => 0.0,
            _ => {
                let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
                let student = STUDENT.get(freedom - 1).copied().unwrap_or(NORMAL);
                student * (squares / freedom as f64 / count as f64).sqrt()
            }
        };
        Some(Self { mean, low: mean - half, high: mean + half, count })
    }

    /// Half of the interval, as a share of the mean.
    pub(super) fn precision(self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.mean.abs() }
    }

    /// Compares two estimates.
    pub(super) fn against(self, other: Self) -> Verdict {
        match () {
            () if self.count < 2 || other.count < 2 => Verdict::TooFewRounds,
            () if self.high < other.low => Verdict::Less,
            () if self.low > other.high => Verdict::More,
            () => Verdict::NoDifference,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number between 0 and 1 (splitmix64).
    fn dice(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Values that scatter like rounds of a run: the sum of twelve throws is nearly normal.
    fn rounds(count: usize, state: &mut u64) -> Vec<f64> {
        (0..count).map(|_| 100.0 + (0..12).map(|_| dice(state)).sum::<f64>() - 6.0).collect()
    }

    #[test]
    fn the_interval_contains_the_mean_in_19_of_20_cases() {
        let mut state = 1;
        for count in [3, 5, 10] {
            let contains = |estimate: Estimate| estimate.low <= 100.0 && 100.0 <= estimate.high;
            let hits =
                (0..2_000).filter(|_| contains(Estimate::of(&rounds(count, &mut state)).unwrap())).count();
            assert!((1_860..=1_940).contains(&hits), "{hits} of 2000 with {count} rounds");
        }
    }

    #[test]
    fn equal_servers_are_seldom_told_apart() {
        let mut state = 2;
        let mut of = || Estimate::of(&rounds(3, &mut state)).unwrap();
        let differences = (0..2_000).filter(|_| of().against(of()) != Verdict::NoDifference).count();
        assert!(differences < 40, "{differences} of 2000");
    }

    #[test]
    fn a_difference_is_stated_if_the_intervals_do_not_overlap() {
        let of = |values: &[f64]| Estimate::of(values).unwrap();
        let (slow, fast, wide) = (of(&[9.8, 10.0, 10.2]), of(&[20.8, 21.0, 21.2]), of(&[8.0, 15.0, 30.0]));
        assert_eq!(slow.against(fast), Verdict::Less);
        assert_eq!(fast.against(slow), Verdict::More);
        assert_eq!(slow.against(wide), Verdict::NoDifference);
        assert_eq!(of(&[1.0]).against(fast), Verdict::TooFewRounds);
        assert_eq!(Estimate::of(&[]), None);
    }
}
