//! Reports of a shoot-out: Markdown, and one HTML file with charts.

mod charts;
mod html;
mod markdown;

pub(super) use self::html::html;
pub(super) use self::markdown::markdown;

use super::findings::{Quantity, is_sound};
use super::results::{Cell, Results, Workload};

/// Marks a rate that the generator may have limited.
const BOUND: &str = " *";

/// The text of a cell: the mean with half of its interval, and faults, if there are any.
fn cell_text(cell: &Cell, quantity: &Quantity) -> String {
    if let Some(why) = &cell.skipped {
        return format!("({why})");
    }
    let Some(estimate) = cell.estimate(quantity.measure) else {
        return if cell.failure().is_some() { "failed".to_owned() } else { "–".to_owned() };
    };
    let half = (estimate.high - estimate.low) / 2.0;
    let spread = if estimate.count > 1 { format!(" ± {}", (quantity.text)(half)) } else { String::new() };
    let bound = if quantity.more_is_better && cell.is_bound_by_generator() { BOUND } else { "" };
    let faults = if is_sound(cell) { "" } else { " †" };
    format!("{}{spread}{bound}{faults}", (quantity.text)(estimate.mean))
}

/// Whether any cell of a workload has a quantity.
fn has(workload: &Workload, quantity: &Quantity) -> bool {
    workload.cells.iter().any(|cell| cell.estimate(quantity.measure).is_some())
}

/// The explanations of the signs in tables.
fn legend(results: &Results) -> Vec<&'static str> {
    let cells = || results.workloads.iter().flat_map(|workload| &workload.cells);
    let mut legend = vec![
        "Mean of the rounds ± half of the interval that contains it with 95 % (bootstrap). The runs of all servers are \
         interleaved.",
    ];
    if cells().any(Cell::is_bound_by_generator) {
        legend.push(
            "* The generator was over 90 % busy in a run: the rate may be its limit, not the server's.",
        );
    }
    if cells().any(|cell| cell.skipped.is_none() && !is_sound(cell)) {
        legend.push("† Messages were lost, duplicated or out of order, or a run failed: see the findings.");
    }
    legend
}

/// The machine in one sentence.
fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let of = |what: &str, cpus: &Option<String>| {
        cpus.as_ref().map_or(String::new(), |cpus| format!(", {what} on processor {cpus}"))
    };
    format!(
        "{} processors ({}), {} of memory, Linux {}{}{}; {:.0} minutes in all; generator: pondhawk {}.",
        machine.processors,
        machine.processor,
        crate::figure::bytes(machine.memory_bytes as f64),
        machine.kernel,
        of("servers", &machine.server_cpus),
        of("generator", &machine.generator_cpus),
        (results.seconds / 60.0).ceil(),
        machine.generator
    )
}
