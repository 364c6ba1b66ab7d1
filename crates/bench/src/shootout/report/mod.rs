//! Reports of a shoot-out: Markdown, and one HTML file with charts.

mod charts;
mod html;
mod markdown;

pub(super) use self::html::html;
pub(super) use self::markdown::markdown;

use super::findings::{QUANTITIES, Quantity};
use super::results::{Cell, Measure, Results, Workload};

/// Marks a rate that the generator may have limited.
const BOUND: &str = " *";

/// The text of a cell: the mean with half of its interval, and faults, if there are any.
fn cell_text(workload: &Workload, cell: &Cell, quantity: &Quantity) -> String {
    if let Some(why) = &cell.skipped {
        return format!("({why})");
    }
    let Some(estimate) = cell.estimate(quantity.measure) else {
        return if cell.failure().is_some() { "failed".to_owned() } else { "–".to_owned() };
    };
    let half = (estimate.high - estimate.low) / 2.0;
    let spread = if estimate.count > 1 { format!(" ± {}", (quantity.text)(half)) } else { String::new() };
    let is_of_generator =
        matches!(quantity.measure, Measure::MessagesPerSec | Measure::CompletionSecs | Measure::Latency(_));
    let bound = if is_of_generator && cell.is_bound_by_generator() { BOUND } else { "" };
    let faults = if workload.is_sound(cell) { "" } else { " †" };
    format!("{}{spread}{bound}{faults}", (quantity.text)(estimate.mean))
}

/// A setting or a note of a server as a sentence.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

/// The quantities that a workload has figures of, or the first one, whose cells then say why there are none.
fn quantities(workload: &Workload) -> Vec<&'static Quantity> {
    let has =
        |quantity: &&Quantity| workload.cells.iter().any(|cell| cell.estimate(quantity.measure).is_some());
    let known: Vec<_> = QUANTITIES.iter().filter(has).collect();
    if known.is_empty() { QUANTITIES.iter().take(1).collect() } else { known }
}

/// The explanations of the signs in tables.
fn legend(results: &Results) -> Vec<&'static str> {
    let workloads = || results.workloads.iter();
    let cells = || workloads().flat_map(|workload| &workload.cells);
    let mut legend = vec![
        "Mean of the rounds ± half of the interval that contains the true mean with 95 % (Student's distribution). Two \
         figures differ if their intervals do not overlap. The runs of all servers are interleaved.",
    ];
    if cells().any(Cell::is_bound_by_generator) {
        legend.push(
            "* The generator was over 90 % busy in a run: the figure may be its limit, not the server's.",
        );
    }
    let has_faults = |workload: &Workload| workload.cells.iter().any(|cell| !workload.is_sound(cell));
    if workloads().any(has_faults) {
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
        "{} processors ({}), {} of memory, Linux {}, data on {}{}{}; {:.0} minutes in all; generator: pondhawk {}.{}",
        machine.processors,
        machine.processor,
        crate::figure::bytes(machine.memory_bytes as f64),
        machine.kernel,
        machine.file_system,
        of("servers", &machine.server_cpus),
        of("generator", &machine.generator_cpus),
        (results.seconds / 60.0).ceil(),
        machine.generator,
        results
            .interruption
            .as_ref()
            .map_or(String::new(), |why| format!(" It did not run to its end: {why}."))
    )
}
