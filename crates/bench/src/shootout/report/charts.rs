//! The charts of a report, and the figures that they show.

use std::collections::BTreeSet;

use super::super::memory::Series;
use super::super::quantity::{QUANTITIES, Unit, milliseconds, ranked};
use super::super::results::{Cell, Measure, Results, Role, Run, Size, Workload};
use super::super::statistics::Estimate;
use super::drawing::{self, Axes, Bar, Chart, Line};
use super::signs::Sign;
use crate::error::Result;
use crate::figure;

/// Messages per second over connections; `None` if all sizes have the same number of connections.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn rates(results: &Results, workload: &Workload) -> Result<Option<Chart>> {
    let plain = || workload.sizes.iter().enumerate().filter(|(_, size)| size.share_of_best.is_none());
    let connections: BTreeSet<u64> = plain().map(|(_, size)| size.connections).collect();
    if connections.len() < 2 {
        return Ok(None);
    }
    let axes = Axes {
        x: "connections",
        y: "messages per second",
        is_x_logarithmic: true,
        x_text: |x| format!("{x:.0}"),
        y_text: figure::quantity,
        y_unit: 1.0,
        x_ticks: connections.iter().map(|connections| *connections as f64).collect(),
    };
    draw(results, &axes, |name| {
        let point = |(size, heading): (usize, &Size)| {
            let cell = workload.cell(name, size).filter(|cell| workload.is_sound(cell))?;
            Some((heading.connections as f64, cell.estimate(Measure::MessagesPerSec)?.mean))
        };
        plain().filter_map(point).collect()
    })
}

/// Latency over percentiles at one size; `None` if it was not measured.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn latency(results: &Results, workload: &Workload, size: usize) -> Result<Option<Chart>> {
    let axes = Axes {
        x: "percentile",
        y: "latency",
        is_x_logarithmic: true,
        x_text: |x| {
            let percentile = 100.0 - 100.0 / x;
            if x < 50.0 {
                format!("{percentile:.0} %")
            } else {
                format!("{percentile:.4} %")
                    .replace("0000 %", " %")
                    .replace(". %", " %")
                    .replace("00 %", " %")
            }
        },
        y_text: milliseconds,
        y_unit: 1.0,
        x_ticks: vec![2.0, 10.0, 100.0, 1_000.0, 10_000.0],
    };
    draw(results, &axes, |name| {
        let Some(cell) = workload.cell(name, size).filter(|cell| cell.failure().is_none()) else {
            return Vec::new();
        };
        let percentiles = cell.runs.iter().flat_map(|run| &run.latency_ms).map(|(percentile, _)| *percentile);
        let mut percentiles: Vec<f64> = percentiles.filter(|percentile| *percentile < 100.0).collect();
        percentiles.sort_by(f64::total_cmp);
        percentiles.dedup();
        let point = |percentile: f64| {
            let of_run = |run: &Run| {
                let at = run.latency_ms.iter().find(|(at, _)| (at - percentile).abs() < 1e-6);
                at.map(|(_, latency)| *latency)
            };
            let all: Vec<f64> = cell.runs.iter().filter_map(of_run).collect();
            // Messages that are slower: one in two, one in a hundred.
            Some((100.0 / (100.0 - percentile), figure::median(all).max(1e-3)))
        };
        percentiles.into_iter().filter_map(point).collect()
    })
}

/// CPU time per message at the largest plain size, as bars; `None` if it was not measured.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn cpu(results: &Results, workload: &Workload) -> Result<Option<Chart>> {
    let Some(size) = workload.sizes.iter().rposition(|size| size.share_of_best.is_none()) else {
        return Ok(None);
    };
    let bars = ranked(results, workload, size, &QUANTITIES[1]);
    if bars.len() < 2 {
        return Ok(None);
    }
    let bar = |(name, estimate): (String, Estimate)| Bar { sign: Sign::of(results, &name), name, estimate };
    let bars: Vec<Bar> = bars.into_iter().map(bar).collect();
    drawing::bars(&bars, &QUANTITIES[1].name_in(workload)).map(Some)
}

/// Resident memory over time in the last round at one size: the last one with a load that is the same for all; `None` if
/// nobody looked. Returns the name of the size, too.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn memory<'w>(results: &Results, workload: &'w Workload) -> Result<Option<(&'w str, Chart)>> {
    let has_series = |cell: &Cell| last_series(cell).is_some();
    let is_shown = |(size, heading): &(usize, &Size)| {
        heading.share_of_best.is_none()
            && heading.role != Role::Control
            && workload.cells.iter().any(|cell| cell.size == *size && has_series(cell))
    };
    let Some((size, heading)) = workload.sizes.iter().enumerate().rfind(is_shown) else { return Ok(None) };
    let axes = Axes {
        x: "seconds since the server accepted connections",
        y: "resident memory",
        is_x_logarithmic: false,
        x_text: |x| format!("{}", (x * 100.0).round() / 100.0),
        y_text: |bytes| Unit::Bytes.text(bytes),
        y_unit: 1_048_576.0,
        x_ticks: Vec::new(),
    };
    let chart = draw(results, &axes, |name| {
        let series = workload.cell(name, size).and_then(last_series);
        series.map(|series| series.points().collect()).unwrap_or_default()
    })?;
    Ok(chart.map(|chart| (heading.name.as_str(), chart)))
}

/// Memory in the last run that has a series.
fn last_series(cell: &Cell) -> Option<&Series> {
    cell.runs.iter().map(|run| &run.memory).rfind(|series| !series.is_empty())
}

/// Draws a line for each server that has points; `None` if no server has any.
fn draw(results: &Results, axes: &Axes, points: impl Fn(&str) -> Vec<(f64, f64)>) -> Result<Option<Chart>> {
    let line = |name: &str| {
        let mut points = points(name);
        points.retain(|point| axes.has(*point));
        Line { name: name.to_owned(), sign: Sign::of(results, name), points }
    };
    let mut lines: Vec<Line> = results.present().map(|server| line(&server.name)).collect();
    lines.retain(|line| !line.points.is_empty());
    if lines.is_empty() { Ok(None) } else { drawing::lines(axes, &lines).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::results;
    use super::*;

    #[test]
    fn a_chart_names_every_server_that_has_points() {
        let results = results();
        let chart = rates(&results, &results.workloads[0]).unwrap().unwrap();
        for svg in [chart.wide, chart.narrow] {
            for name in ["mine", "other", "relay", "connections", "messages per second"] {
                assert!(svg.contains(name), "{name}: {svg}");
            }
        }
        let svg = cpu(&results, &results.workloads[0]).unwrap();
        assert!(svg.is_none(), "one server alone delivered everything");
        assert!(latency(&results, &results.workloads[0], 0).unwrap().is_none());
    }

    #[test]
    fn memory_is_shown_where_the_servers_were_looked_at() {
        let mut results = results();
        assert_eq!(
            memory(&results, &results.workloads[0]).unwrap(),
            None,
            "an older version made the figures"
        );
        let series = |bytes: &[u64]| Series { interval_secs: 0.5, bytes: bytes.to_vec() };
        for cell in &mut results.workloads[0].cells {
            cell.runs[0].memory = series(&[1 << 30; 3]);
            if cell.server == "mine" {
                cell.runs[1].memory = series(&[3 << 20, 5 << 20, 4 << 20]);
            }
        }
        let (size, Chart { wide, .. }) = memory(&results, &results.workloads[0]).unwrap().unwrap();
        assert_eq!(size, "500 connections");
        for text in ["mine", "other", "relay", "resident memory", "5.00 MiB", "1000 MiB", "0.5"] {
            assert!(wide.contains(text), "{text}: {wide}");
        }
        results.workloads[0].sizes[1].role = Role::Control;
        let (size, _) = memory(&results, &results.workloads[0]).unwrap().unwrap();
        assert_eq!(size, "100 connections");
    }
}
