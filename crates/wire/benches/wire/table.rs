//! The tables of results, and the demands on the results.

use crate::cases::{Case, Kind};
use crate::measure::{Costs, Measured, STEPS};
use crate::ours;

/// Prints the cells in which Pondhawk is not the fastest, and then a row for each step of each case, with a column for each
/// codec: first times and allocations, then rates.
pub(crate) fn print(cases: &[Case], measured: &[Measured]) {
    println!("codec-speed\n");
    let (losses, count) = losses(cases, measured);
    if losses.is_empty() {
        println!("Pondhawk takes the least time in all {count} rows.");
    } else {
        println!("Pondhawk does not take the least time in {} of {count} rows:\n", losses.len());
        losses.iter().for_each(|loss| println!("- {loss}"));
    }
    println!("\nNanoseconds / allocations of one packet:\n");
    print_grid(cases, measured, |Costs { ns, allocations }| {
        let digits = if ns < 100.0 { 1 } else { 0 };
        format!("{ns:.digits$} / {allocations:.0}")
    });
    println!("\nThousands of packets per second (kHz), one after another:\n");
    print_grid(cases, measured, |costs| grouped(1e6 / costs.ns));
}

/// Returns one line for each demand that the results do not meet.
pub(crate) fn faults(cases: &[Case], measured: &[Measured]) -> Vec<String> {
    let of_publish = cases.iter().filter(|case| case.packet == Kind::Publish);
    let steps = of_publish.flat_map(|case| {
        let own = find(measured, ours::NAME, case);
        own.into_iter().flat_map(move |own| STEPS.iter().zip(own.costs).map(move |step| (case, step)))
    });
    let allocating = steps.filter(|(_, (_, costs))| costs.allocations > 0.0);
    let fault = |(case, (step, costs)): (&Case, (&&str, Costs))| {
        format!("FAILED: {}, {step}: {} allocations", case.name, costs.allocations)
    };
    allocating.map(fault).collect()
}

/// One line for each row in which another codec is at least as fast, and the number of all rows.
fn losses(cases: &[Case], measured: &[Measured]) -> (Vec<String>, usize) {
    let mut losses = Vec::new();
    for case in cases {
        for (step, name) in STEPS.iter().enumerate() {
            let of_case = measured.iter().filter(|measured| measured.case == case.name);
            let ns = |measured: &&Measured| measured.costs[step].ns;
            let fastest = of_case.min_by(|one, other| ns(one).total_cmp(&ns(other)));
            let own = find(measured, ours::NAME, case);
            let (Some(fastest), Some(own)) = (fastest, own) else { continue };
            if fastest.codec != ours::NAME {
                let (own, theirs) = (ns(&own), ns(&fastest));
                losses.push(format!("{}, {name}: {own:.1} ns, {} {theirs:.1} ns", case.name, fastest.codec));
            }
        }
    }
    (losses, cases.len() * STEPS.len())
}

fn print_grid(cases: &[Case], measured: &[Measured], show: impl Fn(Costs) -> String) {
    let codecs = codecs(measured);
    let mut rows =
        vec![["packet", "step"].into_iter().chain(codecs.iter().copied()).map(str::to_owned).collect()];
    for case in cases {
        for (step, name) in STEPS.iter().enumerate() {
            let cell = |codec: &&str| {
                find(measured, codec, case).map_or("–".into(), |found| show(found.costs[step]))
            };
            let names = [case.name.clone(), (*name).to_owned()];
            rows.push(names.into_iter().chain(codecs.iter().map(cell)).collect::<Vec<String>>());
        }
    }
    let columns = 0..rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = columns.map(width).collect();
    for (place, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (text, width))| match column {
            0 | 1 => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        });
        println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        if place == 0 {
            let lines = widths.iter().enumerate().map(|(column, width)| match column {
                0 | 1 => "-".repeat(width + 2),
                _ => format!("{}:", "-".repeat(width + 1)),
            });
            println!("|{}|", lines.collect::<Vec<_>>().join("|"));
        }
    }
}

/// A number with spaces between groups of three digits; three digits are significant.
fn grouped(number: f64) -> String {
    let unit = 10_f64.powf((number.log10().floor() - 2.0).max(0.0));
    let digits = format!("{:.0}", (number / unit).round() * unit);
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(String::from_utf8_lossy);
    let head =
        std::iter::once(digits[..first].into()).filter(|head: &std::borrow::Cow<'_, str>| !head.is_empty());
    head.chain(groups).collect::<Vec<_>>().join(" ")
}

fn find<'m>(measured: &'m [Measured], codec: &str, case: &Case) -> Option<&'m Measured> {
    measured.iter().find(|measured| measured.codec == codec && measured.case == case.name)
}

/// The codecs in the order of their first case, with Pondhawk first.
fn codecs(measured: &[Measured]) -> Vec<&str> {
    let mut codecs = Vec::new();
    for found in measured {
        if !codecs.contains(&found.codec.as_str()) {
            codecs.push(&found.codec);
        }
    }
    codecs
}
