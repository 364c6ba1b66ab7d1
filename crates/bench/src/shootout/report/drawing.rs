//! Drawing of charts as SVG, for wide and for narrow screens.
//!
//! Each server has a colour, a mark and dashes of its own, so that colour is never the only difference.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use super::super::statistics::Estimate;
use super::signs::{Mark, Sign};
use crate::error::{Error, Result};
use crate::figure;

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Pixels between two names of lines.
const LABEL_STEP: i32 = 15;

/// The most marks on a line.
const MARKS_MAX: usize = 8;

/// A chart in both sizes: a phone would show the wide one with letters too small to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chart {
    pub(super) wide: String,
    pub(super) narrow: String,
}

/// The size of a chart and of its parts, in pixels.
struct Frame {
    width: u32,
    height: u32,
    /// The space for the names of servers, at the right of lines and at the left of bars.
    labels: i32,
    /// The space for the texts of the vertical axis.
    y_axis: u32,
    font: (&'static str, u32),
}

const WIDE: Frame = Frame { width: 860, height: 400, labels: 130, y_axis: 80, font: ("sans-serif", 15) };
const NARROW: Frame = Frame { width: 400, height: 360, labels: 100, y_axis: 64, font: ("sans-serif", 15) };

/// A line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) sign: Sign,
    pub(super) points: Vec<(f64, f64)>,
}

/// A bar of a chart.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) sign: Sign,
    pub(super) estimate: Estimate,
}

/// The horizontal axis of lines; the vertical one is logarithmic.
pub(super) struct Axes {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) is_x_logarithmic: bool,
    pub(super) x_text: fn(f64) -> String,
    pub(super) y_text: fn(f64) -> String,
    /// The value of which the vertical axis has round multiples.
    pub(super) y_unit: f64,
    /// Values with a mark, if the axis does not choose them.
    pub(super) x_ticks: Vec<f64>,
}

/// The places of a horizontal axis, from left to right.
struct Places {
    ends: Range<f64>,
    marks: Vec<f64>,
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "pixels of a chart")]
    fn map(&self, place: &f64, (left, right): (i32, i32)) -> i32 {
        let share = (place - self.ends.start) / (self.ends.end - self.ends.start);
        left + (share * f64::from(right - left)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.clone()
    }
}

impl Axes {
    /// The place of a value on the horizontal axis.
    fn place(&self, x: f64) -> f64 {
        if self.is_x_logarithmic { x.log10() } else { x }
    }

    /// The value at a place.
    fn value(&self, place: f64) -> f64 {
        if self.is_x_logarithmic { 10_f64.powf(place) } else { place }
    }

    /// Whether both axes have a place for a point.
    pub(super) fn has(&self, (x, y): (f64, f64)) -> bool {
        self.place(x).is_finite() && y.is_normal() && y > 0.0
    }
}

/// Draws lines; there has to be a point.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn lines(axes: &Axes, lines: &[Line]) -> Result<Chart> {
    in_both(|frame| {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (frame.width, frame.height)).into_drawing_area();
            draw_lines(&root, frame, axes, lines).map_err(drawing)?;
        }
        Ok(svg)
    })
}

/// Draws bars of a quantity, the first one at the top.
///
/// # Errors
/// If the chart cannot be drawn.
pub(super) fn bars(bars: &[Bar], quantity: &str) -> Result<Chart> {
    let height = 60 + 26 * u32::try_from(bars.len()).unwrap_or_default();
    in_both(|frame| {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (frame.width, height)).into_drawing_area();
            draw_bars(&root, frame, bars, quantity).map_err(drawing)?;
        }
        Ok(svg)
    })
}

fn in_both(draw: impl Fn(&Frame) -> Result<String>) -> Result<Chart> {
    Ok(Chart { wide: draw(&WIDE)?, narrow: draw(&NARROW)? })
}

fn draw_bars(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    frame: &Frame,
    bars: &[Bar],
    quantity: &str,
) -> Drawn {
    root.fill(&WHITE)?;
    let most = bars.iter().map(|bar| bar.estimate.high).fold(f64::MIN_POSITIVE, f64::max);
    let least = bars.iter().map(|bar| bar.estimate.mean).fold(f64::MAX, f64::min).max(1e-9);
    let (low, high) = (least / 2.0, most * 2.0);
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .margin_right(70)
        .x_label_area_size(36)
        .y_label_area_size(frame.labels)
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
        .label_style(frame.font)
        .draw()?;
    for (row, Bar { name, sign, estimate }) in bars.iter().enumerate() {
        let bottom = (bars.len() - 1 - row) as f64;
        let bar = [(low, bottom + 0.2), (estimate.mean, bottom + 0.8)];
        chart.draw_series([Rectangle::new(bar, sign.colour.filled())])?;
        let text = figure::quantity(estimate.mean);
        let at = chart.backend_coord(&(estimate.mean, bottom + 0.5));
        root.draw(&Text::new(text, (at.0 + 6, at.1 - 7), frame.font))?;
        root.draw(&Text::new(name.clone(), (10, at.1 - 7), frame.font))?;
    }
    root.present()?;
    Ok(())
}

fn draw_lines(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    frame: &Frame,
    axes: &Axes,
    lines: &[Line],
) -> Drawn {
    root.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|line| &line.points).map(|(x, y)| (axes.place(*x), *y));
    let range = |of: fn((f64, f64)) -> f64| {
        let (least, most) =
            (points().map(of).fold(f64::MAX, f64::min), points().map(of).fold(f64::MIN, f64::max));
        (least, most.max(least))
    };
    let ((left, right), (bottom, top)) = (range(|point| point.0), range(|point| point.1));
    let (bottom, top) = (bottom / 1.5, top * 1.5);
    let y_marks = steps(bottom / axes.y_unit, top / axes.y_unit).into_iter().map(|step| step * axes.y_unit);
    let y_marks: Vec<f64> = y_marks.collect();
    // An axis has a length, even if all points lie above one another.
    let right = right.max(left + 1e-4);
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .margin_right(frame.labels)
        .x_label_area_size(40)
        .y_label_area_size(frame.y_axis)
        .build_cartesian_2d(
            Places { ends: left..right, marks: marks(axes, lines) },
            (bottom..top).log_scale().with_key_points(y_marks),
        )?;
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|place| (axes.x_text)(axes.value(*place)))
        .y_label_formatter(&|y| (axes.y_text)(*y))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .label_style(frame.font)
        .draw()?;
    let mut labels = Vec::new();
    for line in lines {
        let style = line.sign.colour.stroke_width(2);
        let points: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (axes.place(*x), *y)).collect();
        match line.sign.dash {
            None => chart.draw_series(LineSeries::new(points.clone(), style))?,
            Some((dash, gap)) => {
                chart.draw_series(DashedLineSeries::new(points.clone(), dash, gap, style))?
            }
        };
        for at in points.iter().step_by(points.len().div_ceil(MARKS_MAX)) {
            draw_mark(chart.plotting_area(), *at, line.sign)?;
        }
        labels.extend(points.last().map(|(_, y)| (chart.backend_coord(&(right, *y)), line)));
    }
    draw_labels(root, frame, labels)?;
    root.present()?;
    Ok(())
}

/// Draws names at the right, at the height of the ends of their lines. Names of lines that end together stand below each
/// other.
fn draw_labels(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    frame: &Frame,
    mut labels: Vec<((i32, i32), &Line)>,
) -> Drawn {
    // The axis and its text lie below.
    let labels_end = i32::try_from(frame.height).unwrap_or_default() - 40;
    labels.sort_by_key(|(at, ..)| at.1);
    let mut lowest = i32::MIN;
    for ((_, y), ..) in &mut labels {
        *y = (*y).max(lowest);
        lowest = *y + LABEL_STEP;
    }
    let below = lowest - LABEL_STEP - labels_end;
    for ((x, y), line) in labels {
        let y = y - below.max(0);
        // A name that stands below its line is found by the mark.
        draw_mark(root, (x + 14, y), line.sign)?;
        let style = TextStyle::from(frame.font).color(&line.sign.colour);
        root.draw(&Text::new(line.name.clone(), (x + 24, y - 7), style))?;
    }
    Ok(())
}

/// Draws the mark of a server at a point.
fn draw_mark<T: CoordTranslate>(
    area: &DrawingArea<SVGBackend<'_>, T>,
    at: T::From,
    Sign { colour, mark, .. }: Sign,
) -> Drawn
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

/// The places of the marks of the horizontal axis.
fn marks(axes: &Axes, lines: &[Line]) -> Vec<f64> {
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let marks = match axes.x_ticks.as_slice() {
        [] => even_steps(values().fold(0.0, f64::max)),
        ticks => ticks.to_vec(),
    };
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    marks.into_iter().filter(|at| (least..=most).contains(at)).map(|value| axes.place(value)).collect()
}

/// From 0 on, at most six steps of 1, 2 or 5 times a power of ten.
fn even_steps(most: f64) -> Vec<f64> {
    let power = 10_f64.powf((most.max(1e-9) / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| most / step <= 5.0);
    let step = step.unwrap_or(most);
    (0..6).map(|count| f64::from(count) * step).take_while(|at| *at <= most).collect()
}

fn drawing(error: impl std::fmt::Display) -> Error {
    Error::Io { doing: "draw a chart".to_owned(), source: std::io::Error::other(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_axis_has_few_round_marks() {
        assert_eq!(even_steps(3.75), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(even_steps(60.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(even_steps(0.25), [0.0, 0.05, 0.1, 0.15000000000000002, 0.2, 0.25]);
    }
}
