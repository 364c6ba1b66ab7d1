//! Charts as SVG. Each server has a colour, a mark and dashes of its own, so that colour is never the only difference.

use std::collections::BTreeSet;

use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use super::super::quantity::{QUANTITIES, milliseconds, ranked};
use super::super::results::{Measure, Results, Workload};
use super::signs::{Mark, Sign};
use crate::error::{Error, Result};
use crate::figure;

const SIZE: (u32, u32) = (860, 400);
/// Pixels for the names of lines at the right.
const LABELS: i32 = 130;
/// The lowest place of such a name.
const LABELS_END: i32 = 360;
/// Pixels between two of these names.
const LABEL_STEP: i32 = 15;
const FONT: (&str, u32) = ("sans-serif", 13);

/// A line of a chart.
struct Line {
    name: String,
    sign: Sign,
    points: Vec<(f64, f64)>,
}

/// Messages per second over connections; `None` if all sizes have the same number of connections.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn rates(results: &Results, workload: &Workload) -> Result<Option<String>> {
    let plain = || workload.sizes.iter().enumerate().filter(|(_, size)| size.share_of_best.is_none());
    let connections: BTreeSet<u64> = plain().map(|(_, size)| size.connections).collect();
    if connections.len() < 2 {
        return Ok(None);
    }
    let lines = lines(results, |name| {
        let point = |(size, heading): (usize, &super::super::results::Size)| {
            let cell = workload.cell(name, size).filter(|cell| workload.is_sound(cell))?;
            Some((heading.connections as f64, cell.estimate(Measure::MessagesPerSec)?.mean))
        };
        plain().filter_map(point).collect()
    });
    if lines.is_empty() {
        return Ok(None);
    }
    let axes = Axes {
        x: "connections",
        y: "messages per second",
        x_text: |x| format!("{x:.0}"),
        y_text: figure::quantity,
        x_ticks: Vec::new(),
    };
    draw(&axes, &lines).map(Some)
}

/// Latency over percentiles at one size; `None` if it was not measured.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn latency(results: &Results, workload: &Workload, size: usize) -> Result<Option<String>> {
    let lines = lines(results, |name| {
        let Some(cell) = workload.cell(name, size).filter(|cell| cell.failure().is_none()) else {
            return Vec::new();
        };
        let percentiles = cell.runs.iter().flat_map(|run| &run.latency_ms).map(|(percentile, _)| *percentile);
        let mut percentiles: Vec<f64> = percentiles.filter(|percentile| *percentile < 100.0).collect();
        percentiles.sort_by(f64::total_cmp);
        percentiles.dedup();
        let point = |percentile: f64| {
            let of_run = |run: &super::super::results::Run| {
                let at = run.latency_ms.iter().find(|(at, _)| (at - percentile).abs() < 1e-6);
                at.map(|(_, latency)| *latency)
            };
            let all: Vec<f64> = cell.runs.iter().filter_map(of_run).collect();
            // Messages that are slower: one in two, one in a hundred.
            Some((100.0 / (100.0 - percentile), figure::median(all).max(1e-3)))
        };
        percentiles.into_iter().filter_map(point).collect()
    });
    if lines.is_empty() {
        return Ok(None);
    }
    let axes = Axes {
        x: "percentile",
        y: "latency",
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
        x_ticks: vec![2.0, 10.0, 100.0, 1_000.0, 10_000.0],
    };
    draw(&axes, &lines).map(Some)
}

/// CPU time per message at the largest plain size, as bars; `None` if it was not measured.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn cpu(results: &Results, workload: &Workload) -> Result<Option<String>> {
    let Some(size) = workload.sizes.iter().rposition(|size| size.share_of_best.is_none()) else {
        return Ok(None);
    };
    let bars = ranked(results, workload, size, &QUANTITIES[1]);
    if bars.len() < 2 {
        return Ok(None);
    }
    let height = 60 + 26 * u32::try_from(bars.len()).unwrap_or_default();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        draw_bars(&root, results, &bars, &QUANTITIES[1].name_in(workload)).map_err(drawing)?;
    }
    Ok(Some(svg))
}

fn draw_bars(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    results: &Results,
    bars: &[(String, super::super::statistics::Estimate)],
    quantity: &str,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let most = bars.iter().map(|(_, bar)| bar.high).fold(f64::MIN_POSITIVE, f64::max);
    let least = bars.iter().map(|(_, bar)| bar.mean).fold(f64::MAX, f64::min).max(1e-9);
    let (low, high) = (least / 2.0, most * 2.0);
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .margin_right(70)
        .x_label_area_size(36)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(
            (low..high).log_scale().with_key_points(steps(low, high)),
            0.0..bars.len() as f64,
        )?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(format!("{quantity} (logarithmic)"))
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| figure::quantity(*x))
        .label_style(FONT)
        .draw()?;
    for (row, (name, estimate)) in bars.iter().enumerate() {
        let bottom = (bars.len() - 1 - row) as f64;
        let Sign { colour, .. } = Sign::of(results, name);
        let bar = [(low, bottom + 0.2), (estimate.mean, bottom + 0.8)];
        chart.draw_series([Rectangle::new(bar, colour.filled())])?;
        let text = figure::quantity(estimate.mean);
        let at = chart.backend_coord(&(estimate.mean, bottom + 0.5));
        root.draw(&Text::new(text, (at.0 + 6, at.1 - 7), FONT))?;
        root.draw(&Text::new(name.clone(), (10, at.1 - 7), FONT))?;
    }
    root.present()?;
    Ok(())
}

/// The texts of a chart with two logarithmic axes.
struct Axes {
    x: &'static str,
    y: &'static str,
    x_text: fn(f64) -> String,
    y_text: fn(f64) -> String,
    /// Values with a mark, if they are not those of the points.
    x_ticks: Vec<f64>,
}

fn draw(axes: &Axes, lines: &[Line]) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw_lines(&root, axes, lines).map_err(drawing)?;
    }
    Ok(svg)
}

fn draw_lines(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    axes: &Axes,
    lines: &[Line],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|line| &line.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::MAX, f64::min).max(1e-9);
        (least, points().map(of).fold(least, f64::max))
    };
    let ((left, right), (bottom, top)) = (range(|point| point.0), range(|point| point.1));
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .margin_right(LABELS)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (left..right * 1.0001).log_scale().with_key_points(marks(axes, lines)),
            (bottom / 1.5..top * 1.5).log_scale().with_key_points(steps(bottom / 1.5, top * 1.5)),
        )?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|x| (axes.x_text)(*x))
        .y_label_formatter(&|y| (axes.y_text)(*y))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .label_style(FONT)
        .draw()?;
    let mut labels = Vec::new();
    for line in lines {
        let style = line.sign.colour.stroke_width(2);
        let points = line.points.iter().copied();
        match line.sign.dash {
            None => chart.draw_series(LineSeries::new(points, style))?,
            Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?,
        };
        for at in &line.points {
            draw_mark(chart.plotting_area(), *at, line.sign)?;
        }
        labels.extend(line.points.last().map(|last| (chart.backend_coord(last), line)));
    }
    draw_labels(root, labels)?;
    root.present()?;
    Ok(())
}

/// Draws names beside the ends of their lines. Names of lines that end together stand below each other.
fn draw_labels(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    mut labels: Vec<((i32, i32), &Line)>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    labels.sort_by_key(|(at, ..)| at.1);
    let mut lowest = i32::MIN;
    for ((_, y), ..) in &mut labels {
        *y = (*y).max(lowest);
        lowest = *y + LABEL_STEP;
    }
    let below = lowest - LABEL_STEP - LABELS_END;
    for ((x, y), line) in labels {
        let y = y - below.max(0);
        // A name that stands below its line is found by the mark.
        draw_mark(root, (x + 14, y), line.sign)?;
        let style = TextStyle::from(FONT).color(&line.sign.colour);
        root.draw(&Text::new(line.name.clone(), (x + 24, y - 7), style))?;
    }
    Ok(())
}

/// Draws the mark of a server at a point.
fn draw_mark<T: CoordTranslate>(
    area: &DrawingArea<SVGBackend<'_>, T>,
    at: T::From,
    Sign { colour, mark, .. }: Sign,
) -> std::result::Result<(), Box<dyn std::error::Error>>
where
    T::From: Clone + 'static,
{
    match mark {
        Mark::Disc => area.draw(&Circle::new(at, 4, colour.filled()))?,
        Mark::Ring => area.draw(&Circle::new(at, 4, colour.stroke_width(2)))?,
        Mark::Triangle => area.draw(&TriangleMarker::new(at, 5, colour.filled()))?,
        Mark::Cross => area.draw(&Cross::new(at, 4, colour.stroke_width(2)))?,
        Mark::Square => {
            let corners = [(-4, -4), (4, 4)];
            area.draw(&(EmptyElement::at(at) + Rectangle::new(corners, colour.filled())))?;
        }
    }
    Ok(())
}

/// The steps of a logarithmic axis: 1, 2, 5 and 10, or 1 and 10 if there are many.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let digits: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    // From the power below the least value on.
    let first = 10_f64.powf(low.log10().floor());
    let powers =
        std::iter::successors(Some(first), |power| Some(power * 10.0)).take_while(|power| *power <= high);
    let steps = powers.flat_map(|power| digits.iter().map(move |digit| digit * power));
    steps.filter(|step| (low..=high).contains(step)).collect()
}

/// The marks of the horizontal axis.
fn marks(axes: &Axes, lines: &[Line]) -> Vec<f64> {
    let mut marks = axes.x_ticks.clone();
    if marks.is_empty() {
        marks = lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
    }
    marks
}

/// A line for each server that has points.
fn lines(results: &Results, points: impl Fn(&str) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line =
        |name: &str| Line { name: name.to_owned(), sign: Sign::of(results, name), points: points(name) };
    let mut lines: Vec<Line> = results.present().map(|server| line(&server.name)).collect();
    for line in &mut lines {
        // A logarithmic axis has no others.
        line.points.retain(|(x, y)| x.is_normal() && y.is_normal() && *x > 0.0 && *y > 0.0);
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

fn drawing(error: impl std::fmt::Display) -> Error {
    Error::Io { doing: "draw a chart".to_owned(), source: std::io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::results;
    use super::*;

    #[test]
    fn a_chart_names_every_server_that_has_points() {
        let results = results();
        let svg = rates(&results, &results.workloads[0]).unwrap().unwrap();
        for name in ["mine", "other", "relay", "connections", "messages per second"] {
            assert!(svg.contains(name), "{name}: {svg}");
        }
        let svg = cpu(&results, &results.workloads[0]).unwrap();
        assert!(svg.is_none(), "one server alone delivered everything");
        assert!(latency(&results, &results.workloads[0], 0).unwrap().is_none());
    }
}
