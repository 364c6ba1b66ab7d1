//! The results of a soak.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::figure::Figure;

/// The values of one figure over all quiet points.
#[derive(Debug, Clone, Default)]
struct Range {
    compared: u64,
    least: u64,
    most: u64,
    /// The largest difference between the permitted maximum and minimum.
    tolerance: u64,
}

/// Resident memory of one broker over its life, at similar quiet points.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trend {
    /// Pairs of seconds since the start of the broker, and bytes.
    points: Vec<(f64, f64)>,
}

/// Number of points at the beginning of a life that do not count, because allocators and caches are still growing.
const WARM_UP_POINTS: usize = 3;
/// Minimum number of points for a result.
const POINTS_MIN: usize = 5;
/// Maximum growth of resident memory in bytes between the first and the last point that counts, on a line through
/// all of them.
///
/// A load leaves a few MiB behind, and the broker collects up to 16 MiB before it returns memory to the system.
pub(crate) const GROWTH_MAX_BYTES: f64 = 20.0 * 1_048_576.0;

impl Trend {
    pub(crate) fn note(&mut self, at: Duration, bytes: u64) {
        self.points.push((at.as_secs_f64(), bytes as f64));
    }

    /// Growth in bytes from the first to the last point that counts; `None` if there are too few points.
    pub(crate) fn growth_bytes(&self) -> Option<f64> {
        let points = self.points.get(WARM_UP_POINTS..)?;
        if points.len() < POINTS_MIN {
            return None;
        }
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (middle, level) = (mean(|point| point.0), mean(|point| point.1));
        let together: f64 = points.iter().map(|(at, bytes)| (at - middle) * (bytes - level)).sum();
        let spread: f64 = points.iter().map(|(at, _)| (at - middle).powi(2)).sum();
        let span = points.last()?.0 - points.first()?.0;
        (spread > 0.0).then(|| together / spread * span)
    }

    fn line(&self) -> Option<String> {
        let growth = self.growth_bytes()?;
        let (first, last) = (self.points.first()?, self.points.last()?);
        Some(format!(
            "{} points in {:.0} s: {:.1} MiB at first, {:.1} MiB at last, {:+.2} MiB after warm-up (at most {:+.0})",
            self.points.len(),
            last.0 - first.0,
            first.1 / 1_048_576.0,
            last.1 / 1_048_576.0,
            growth / 1_048_576.0,
            GROWTH_MAX_BYTES / 1_048_576.0
        ))
    }
}

/// All results that are printed at the end.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: BTreeMap<String, Range>,
    pub(crate) trends: Vec<Trend>,
    pub(crate) quiet_points: u64,
    pub(crate) terminated: u64,
    pub(crate) killed: u64,
    /// Number of messages of QoS 1 and 2 whose delivery was checked.
    pub(crate) promised: u64,
    pub(crate) received: u64,
    pub(crate) refused: u64,
    /// Number of connections that the broker has ended, by reason code.
    pub(crate) ended: BTreeMap<u8, u64>,
    pub(crate) findings: Vec<String>,
}

impl Report {
    pub(crate) fn note(&mut self, figures: &[Figure]) {
        for Figure { name, least, most, is } in figures {
            let Some(is) = *is else { continue };
            let range =
                self.figures.entry(name.clone()).or_insert(Range { least: u64::MAX, ..Range::default() });
            range.compared += 1;
            range.least = range.least.min(is);
            range.most = range.most.max(is);
            range.tolerance = range.tolerance.max(most - least);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>9} {:>12} {:>12} {:>12}", "figure", "compared", "least", "most", "tolerance")?;
        for (name, Range { compared, least, most, tolerance }) in &self.figures {
            writeln!(f, "{name:<32} {compared:>9} {least:>12} {most:>12} {tolerance:>12}")?;
        }
        for line in self.trends.iter().filter_map(Trend::line) {
            writeln!(f, "resident memory, {line}")?;
        }
        let Self { quiet_points, terminated, killed, promised, received, refused, .. } = self;
        writeln!(
            f,
            "{quiet_points} quiet points, {terminated} restarts by SIGTERM, {killed} by SIGKILL; {promised} acknowledged \
             messages checked, {received} others received, {refused} requests and messages refused"
        )?;
        for (reason, count) in &self.ended {
            writeln!(f, "the broker has ended {count} connections with {reason:#04x}")?;
        }
        write!(f, "{} findings", self.findings.len())?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_what_a_line_through_the_points_rises() {
        let trend = |bytes: &dyn Fn(u64) -> u64| {
            let mut trend = Trend::default();
            (0..20).for_each(|at| trend.note(Duration::from_secs(at), bytes(at)));
            trend.growth_bytes().expect("there are enough points")
        };
        assert!((trend(&|at| 1_000 + 10 * at) - 160.0).abs() < 0.001);
        assert!(trend(&|at| 1_000 + at % 2).abs() < 1.0);
        assert!(trend(&|at| if at < 3 { 0 } else { 5_000 }).abs() < 0.001, "warm-up does not count");
        assert!(Trend::default().growth_bytes().is_none());
    }
}
