//! Reports of a shoot-out: Markdown, and one HTML file with charts.
//!
//! `tables` has the texts of all tables, `contents` the ids of headings, and `signs` the colours of servers.
//! `balancing` has the section about load balancers. `charts` has the figures of charts, and `drawing` their lines.

mod balancing;
mod charts;
mod contents;
mod drawing;
mod html;
mod machine;
mod markdown;
mod signs;
mod tables;

pub(super) use self::html::html;
pub(super) use self::markdown::markdown;

use super::faults::in_words;
use super::quantity::{Quantity, best};
use super::results::{Cell, Measure, Results, Role, Workload};

/// Heading of the explanations of signs.
const LEGEND: &str = "How to read the tables";

/// Heading of the checks of durability.
const CLAIMS: &str = "Acknowledged means stored?";

/// Heading of the settings.
const SERVERS: &str = "Servers and their settings";

/// A setting or a note of a server as a sentence.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

/// The explanations of the signs in tables.
fn legend(results: &Results) -> Vec<&'static str> {
    let workloads = || results.workloads.iter();
    let all_workloads = || results.all_workloads().map(|(workload, _)| workload);
    let cells = || all_workloads().flat_map(|workload| &workload.cells);
    let mut legend = vec![
        "Mean of the rounds ± half of the interval that contains the true mean with 95 % (Student's \
         distribution), in one unit. Two figures differ if their intervals do not overlap. The runs of all \
         servers are interleaved.",
    ];
    if tables::overview(results).is_some() {
        legend.push("In the overview, ± is the standard deviation of the rounds.");
    }
    let has_best = |workload: &Workload, quantity: &Quantity| {
        (0..workload.sizes.len()).any(|size| best(results, workload, size, quantity).is_some())
    };
    if workloads()
        .any(|workload| tables::quantities(workload).iter().any(|quantity| has_best(workload, quantity)))
    {
        legend.push(
            "Bold: the best mean of a broker without faults, in columns in which servers are compared. The \
             relay is no broker. The intervals say whether the next server differs.",
        );
    }
    if cells().any(Cell::is_bound_by_generator) {
        legend.push(
            "* The generator was over 90 % busy in a run: the figure may be its limit, not the server's.",
        );
    }
    let has_faults = |workload: &Workload| workload.cells.iter().any(|cell| !workload.is_sound(cell));
    if all_workloads().any(has_faults) {
        legend.push("† Messages were lost, duplicated or out of order, or a run failed: see the findings.");
    }
    legend
}

/// Whether the latency at a size was measured without a schedule.
fn is_closed_loop(workload: &Workload, size: usize) -> bool {
    let has_latency = |cell: &Cell| cell.size == size && cell.estimate(Measure::Latency(5_000)).is_some();
    let heading = &workload.sizes[size];
    heading.role == Role::Load && !heading.is_paced && workload.cells.iter().any(has_latency)
}

/// A warning, if a workload has latency that was measured without a schedule.
fn closed_loop(workload: &Workload) -> Option<String> {
    let sizes = 0..workload.sizes.len();
    let columns: Vec<usize> = sizes.filter(|size| is_closed_loop(workload, *size)).collect();
    let columns = in_words(workload, &columns)?;
    Some(format!(
        "Latency without a schedule ({columns}): each client waits for an answer before its next request. A \
         stall of the server delays one request of each client only, and many quick answers hide it. Do not \
         compare these figures with latency on schedule."
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::results;
    use super::*;

    #[test]
    fn latency_without_a_schedule_has_a_warning() {
        let mut results = results();
        assert_eq!(closed_loop(&results.workloads[0]), None, "no latency was measured");
        for cell in results.workloads[0].cells.iter_mut().filter(|cell| cell.server == "mine") {
            cell.runs.iter_mut().for_each(|run| run.latency_ms = vec![(50.0, 1.0)]);
        }
        let warning = closed_loop(&results.workloads[0]).unwrap();
        assert!(warning.starts_with("Latency without a schedule (in all columns): "), "{warning}");
        results.workloads[0].sizes[0].is_paced = true;
        let warning = closed_loop(&results.workloads[0]).unwrap();
        assert!(warning.starts_with("Latency without a schedule (500 connections): "), "{warning}");
        let pages = [markdown(&results), html(&results).unwrap()];
        assert!(pages.iter().all(|page| page.contains(&warning)));
        results.workloads[0].sizes[1].role = Role::Control;
        assert_eq!(closed_loop(&results.workloads[0]), None);
    }
}
