//! The quantities of a report, their units, and the order of servers in them.

use super::results::{Measure, Results, Role, Size, Workload};
use super::statistics::Estimate;
use crate::figure;
use crate::load::Counted;

/// The relay forwards bytes without a protocol: it is a ceiling, and no rival.
pub(super) const RELAY: &str = "relay";

/// A value from which a unit is used, the size of the unit, and its name.
type Step = (f64, f64, &'static str);

/// The unit of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Bytes,
    Seconds,
    Milliseconds,
}

/// A quantity with its name, and whether more of it is better.
#[derive(Clone, Copy)]
pub(super) struct Quantity {
    pub(super) measure: Measure,
    pub(super) name: &'static str,
    pub(super) more_is_better: bool,
    pub(super) unit: Unit,
}

/// Quantities of latency.
pub(super) const LATENCIES: [Quantity; 3] = [
    Quantity {
        measure: Measure::Latency(5_000),
        name: "latency, p50",
        more_is_better: false,
        unit: Unit::Milliseconds,
    },
    Quantity {
        measure: Measure::Latency(9_900),
        name: "latency, p99",
        more_is_better: false,
        unit: Unit::Milliseconds,
    },
    Quantity {
        measure: Measure::Latency(9_990),
        name: "latency, p99.9",
        more_is_better: false,
        unit: Unit::Milliseconds,
    },
];

/// The quantities of a report, in its order.
pub(super) const QUANTITIES: [Quantity; 9] = [
    Quantity {
        measure: Measure::MessagesPerSec,
        name: "messages per second",
        more_is_better: true,
        unit: Unit::Count,
    },
    Quantity {
        measure: Measure::CpuSecsPerMillion,
        name: "CPU seconds per million messages",
        more_is_better: false,
        unit: Unit::Count,
    },
    Quantity {
        measure: Measure::CompletionSecs,
        name: "time until the demand is met",
        more_is_better: false,
        unit: Unit::Seconds,
    },
    LATENCIES[0],
    LATENCIES[1],
    LATENCIES[2],
    Quantity {
        measure: Measure::PeakBytes,
        name: "largest resident memory",
        more_is_better: false,
        unit: Unit::Bytes,
    },
    Quantity {
        measure: Measure::AfterBytes,
        name: "resident memory after the clients have gone",
        more_is_better: false,
        unit: Unit::Bytes,
    },
    Quantity {
        measure: Measure::ConnectionBytes,
        name: "memory per connection",
        more_is_better: false,
        unit: Unit::Bytes,
    },
];

impl Unit {
    /// The steps of the unit, the largest first.
    fn steps(self) -> &'static [Step] {
        match self {
            Self::Count => &[(1e6, 1e6, " M"), (1e3, 1e3, " k"), (0.0, 1.0, "")],
            // Whole bytes as far as the cost of a connection, for which servers are compared.
            Self::Bytes => &[
                (1_073_741_824.0, 1_073_741_824.0, " GiB"),
                (1_048_576.0, 1_048_576.0, " MiB"),
                (10_240.0, 1_024.0, " KiB"),
                (0.0, 1.0, " B"),
            ],
            Self::Seconds => &[(1.0, 1.0, " s"), (1e-3, 1e-3, " ms"), (0.0, 1e-6, " µs")],
            Self::Milliseconds => &[(1e3, 1e3, " s"), (1.0, 1.0, " ms"), (0.0, 1e-3, " µs")],
        }
    }

    /// The value with its unit.
    pub(super) fn text(self, value: f64) -> String {
        let (mean, rest) = self.texts(value, None);
        mean + &rest
    }

    /// The digits of a mean, and the text behind them: the spread, if there is one, and the unit of both.
    pub(super) fn texts(self, mean: f64, spread: Option<f64>) -> (String, String) {
        // The larger one decides, so that neither has more than three digits before the point.
        let larger = mean.abs().max(spread.unwrap_or_default()) * 1.0005;
        let step = self.steps().iter().find(|(from, ..)| larger >= *from);
        let (_, size, name) = step.copied().unwrap_or((0.0, 1.0, ""));
        let digits = |value: f64| match (value / size).abs() {
            scaled if name == " B" || scaled >= 999.0 => format!("{:.0}", value / size),
            _ => figure::quantity(value / size),
        };
        let spread = spread.map_or(String::new(), |spread| format!(" ± {}", digits(spread)));
        (digits(mean), format!("{spread}{name}"))
    }
}

impl Quantity {
    /// Its name in the table of a workload.
    pub(super) fn name_in(&self, workload: &Workload) -> String {
        self.name_of(workload.counted)
    }

    /// Its name where these things are counted.
    pub(super) fn name_of(&self, counted: Counted) -> String {
        self.name.replace("messages", counted.noun())
    }
}

/// Whether a quantity of two servers says anything about them, because both had the same load.
///
/// The rate of messages on schedule is that of the schedule. A share of the best rate is a load of its own for each
/// server. Without a schedule, latency is the number of pairs divided by the rate, and hides stalls. Beside a demand, other
/// clients have as many messages as the server takes time.
pub(super) fn is_comparable(heading: &Size, quantity: &Quantity) -> bool {
    let is_latency = matches!(quantity.measure, Measure::Latency(_));
    let is_of_role = match heading.role {
        Role::Load => true,
        Role::Control => false,
        Role::Demand => !is_latency,
    };
    is_of_role
        && heading.share_of_best.is_none()
        && if heading.is_paced { quantity.measure != Measure::MessagesPerSec } else { !is_latency }
}

/// The servers without faults, the best first.
pub(super) fn ranked(
    results: &Results,
    workload: &Workload,
    size: usize,
    quantity: &Quantity,
) -> Vec<(String, Estimate)> {
    let estimate = |name: &str| {
        let cell = workload.cell(name, size).filter(|cell| workload.is_sound(cell))?;
        Some((name.to_owned(), cell.estimate(quantity.measure)?))
    };
    let mut ranked: Vec<_> = results.present().filter_map(|server| estimate(&server.name)).collect();
    ranked.sort_by(|(_, a), (_, b)| {
        let order = a.mean.total_cmp(&b.mean);
        if quantity.more_is_better { order.reverse() } else { order }
    });
    ranked
}

/// The server with the best mean of a column, if servers are compared there.
///
/// The relay is no rival, and one round decides nothing.
pub(super) fn best(
    results: &Results,
    workload: &Workload,
    size: usize,
    quantity: &Quantity,
) -> Option<String> {
    if !is_comparable(&workload.sizes[size], quantity) {
        return None;
    }
    let mut ranked = ranked(results, workload, size, quantity);
    ranked.retain(|(name, estimate)| name != RELAY && estimate.count > 1);
    if ranked.len() < 2 { None } else { ranked.into_iter().next().map(|(name, _)| name) }
}

/// The text of a time in milliseconds.
pub(super) fn milliseconds(value: f64) -> String {
    Unit::Milliseconds.text(value)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::results;
    use super::*;

    #[test]
    fn a_mean_and_its_spread_have_one_unit() {
        let text = |unit: Unit, mean: f64, spread: f64| {
            let (mean, rest) = unit.texts(mean, Some(spread));
            mean + &rest
        };
        assert_eq!(text(Unit::Bytes, 39_424.0, 7_695.0), "38.5 ± 7.51 KiB");
        assert_eq!(text(Unit::Bytes, 8_068.0, 120.4), "8068 ± 120 B");
        assert_eq!(text(Unit::Bytes, 8_068.0, 12_288.0), "7.88 ± 12.0 KiB");
        assert_eq!(text(Unit::Count, 9_650.0, 333.0), "9.65 ± 0.333 k");
        assert_eq!(text(Unit::Milliseconds, 0.897, 0.030_1), "897 ± 30.1 µs");
        assert_eq!(text(Unit::Seconds, 0.897, 1.2), "0.897 ± 1.20 s");
        assert_eq!(text(Unit::Count, 3e9, 1e6), "3000 ± 1.00 M");
    }

    #[test]
    fn a_value_alone_reads_as_in_other_tables() {
        for exponent in -3..34 {
            let value = 1.7 * 2_f64.powi(exponent);
            let duration = std::time::Duration::from_secs_f64(value / 1e3);
            assert_eq!(Unit::Bytes.text(value), figure::bytes(value));
            assert_eq!(Unit::Milliseconds.text(value), figure::duration(duration));
            if value < 1e9 {
                assert_eq!(Unit::Count.text(value), figure::quantity(value));
            }
        }
    }

    #[test]
    fn the_best_server_is_a_broker_without_faults_where_servers_are_compared() {
        let mut results = results();
        let best_at =
            |results: &Results, size: usize| best(results, &results.workloads[0], size, &QUANTITIES[0]);
        assert_eq!(best_at(&results, 0).as_deref(), Some("other"));
        assert_eq!(best_at(&results, 1), None, "one broker alone delivered everything");
        for cell in &mut results.workloads[0].cells {
            cell.runs.truncate(1);
        }
        assert_eq!(best_at(&results, 0), None, "one round decides nothing");
        results = super::super::fixture::results();
        results.workloads[0].sizes[0].is_paced = true;
        assert_eq!(best_at(&results, 0), None, "the schedule makes the rate");
    }
}
