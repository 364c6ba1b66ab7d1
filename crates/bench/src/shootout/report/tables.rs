//! The texts of all tables, whatever their markup is.

use super::super::quantity::{QUANTITIES, Quantity, Unit, best};
use super::super::results::{Cell, Claim, Measure, Results, Role, Workload};
use crate::figure::{self, Sample};
use crate::load::Counted;

/// Marks a rate that the generator may have limited.
const BOUND: &str = " *";

/// Marks a figure of runs with faults.
const FAULTY: &str = " †";

/// A table: servers are rows.
pub(super) struct Grid {
    pub(super) caption: String,
    /// Headings of all columns but that of the servers.
    pub(super) headings: Vec<String>,
    pub(super) sections: Vec<Rows>,
}

/// The rows under a heading, each with the name of a server.
pub(super) struct Rows {
    pub(super) title: String,
    pub(super) rows: Vec<(String, Vec<CellText>)>,
}

/// The text of a cell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CellText {
    /// The mean, or a text instead of it.
    pub(super) mean: String,
    /// Spread, unit and marks.
    pub(super) rest: String,
    /// Whether the mean is the best one of its column.
    pub(super) is_best: bool,
}

impl CellText {
    fn plain(text: impl Into<String>) -> Self {
        Self { mean: text.into(), ..Self::default() }
    }
}

/// The first column of each workload that has a rate to compare; `None` if there is none.
///
/// The original shoot-out had this table: servers, tests, means and standard deviations.
pub(super) fn overview(results: &Results) -> Option<Grid> {
    let has_rate = |workload: &&Workload| {
        let Some(first) = workload.sizes.first() else { return false };
        let has_rate = |cell: &Cell| cell.size == 0 && cell.estimate(Measure::MessagesPerSec).is_some();
        first.role == Role::Load
            && !first.is_paced
            && workload.counted == Counted::Messages
            && workload.cells.iter().any(has_rate)
    };
    let workloads: Vec<&Workload> = results.workloads.iter().filter(has_rate).collect();
    let heading = |workload: &&Workload| format!("{}, {}", workload.title, workload.sizes[0].name);
    let bests: Vec<_> = workloads.iter().map(|workload| best(results, workload, 0, &QUANTITIES[0])).collect();
    let row = |name: &str| {
        let cells = workloads.iter().zip(&bests).map(|(workload, best)| {
            let cell = workload.cell(name, 0);
            let text = cell.map_or_else(|| CellText::plain("–"), |cell| rate_text(workload, cell));
            CellText { is_best: best.as_deref() == Some(name), ..text }
        });
        (name.to_owned(), cells.collect())
    };
    (!workloads.is_empty()).then(|| Grid {
        caption: "Messages per second in the first column of each workload: mean ± standard deviation"
            .to_owned(),
        headings: workloads.iter().map(heading).collect(),
        sections: vec![Rows {
            title: "messages per second, ± standard deviation".to_owned(),
            rows: results.present().map(|server| row(&server.name)).collect(),
        }],
    })
}

/// Mean and standard deviation of the rate.
fn rate_text(workload: &Workload, cell: &Cell) -> CellText {
    let runs = cell.runs.iter().filter(|run| run.failure.is_none());
    let rates: Vec<f64> = runs.filter_map(|run| run.value(Measure::MessagesPerSec)).collect();
    match Sample::of(&rates) {
        Some(sample) => {
            let (mean, rest) = Unit::Count.texts(sample.mean, sample.standard_deviation);
            CellText { mean, rest: rest + &marks(workload, cell, Measure::MessagesPerSec), is_best: false }
        }
        None => cell_text(workload, cell, &QUANTITIES[0]),
    }
}

/// All figures of a workload.
pub(super) fn of_workload(results: &Results, workload: &Workload) -> Grid {
    let sizes = 0..workload.sizes.len();
    let section = |quantity: &'static Quantity| {
        let bests: Vec<_> = sizes.clone().map(|size| best(results, workload, size, quantity)).collect();
        let row = |name: &str| {
            let cells = bests.iter().enumerate().map(|(size, best)| {
                let cell = workload.cell(name, size);
                let text =
                    cell.map_or_else(|| CellText::plain("–"), |cell| cell_text(workload, cell, quantity));
                CellText { is_best: best.as_deref() == Some(name), ..text }
            });
            (name.to_owned(), cells.collect())
        };
        Rows {
            title: quantity.name_in(workload),
            rows: results.present().map(|server| row(&server.name)).collect(),
        }
    };
    Grid {
        caption: format!("{}: figures of all servers", workload.title),
        headings: workload.sizes.iter().map(|size| size.name.clone()).collect(),
        sections: quantities(workload).into_iter().map(section).collect(),
    }
}

/// The results of the checks of durability.
pub(super) fn of_claims(claims: &[Claim]) -> Grid {
    let headings = ["acknowledged before SIGKILL", "per second", "acknowledged and lost"];
    let row = |claim: &Claim| {
        let is_known = claim.acknowledged > 0 || claim.failure.is_none();
        let of_known = |text: String| CellText::plain(if is_known { text } else { "–".to_owned() });
        let per_sec = figure::quantity(claim.acknowledged as f64 / claim.seconds.max(1e-9));
        let lost = match &claim.failure {
            Some(why) => format!("failed: {why}"),
            None => claim.lost.to_string(),
        };
        let cells = vec![of_known(claim.acknowledged.to_string()), of_known(per_sec), CellText::plain(lost)];
        (claim.server.clone(), cells)
    };
    Grid {
        caption: "Messages that were acknowledged before SIGKILL, and lost".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        sections: vec![Rows {
            title: "QoS 1, lasting session".to_owned(),
            rows: claims.iter().map(row).collect(),
        }],
    }
}

/// The quantities that a workload has figures of, or the first one, whose cells then say why there are none.
pub(super) fn quantities(workload: &Workload) -> Vec<&'static Quantity> {
    let has =
        |quantity: &&Quantity| workload.cells.iter().any(|cell| cell.estimate(quantity.measure).is_some());
    let known: Vec<_> = QUANTITIES.iter().filter(has).collect();
    if known.is_empty() { QUANTITIES.iter().take(1).collect() } else { known }
}

/// The mean with half of its interval, and the marks of the cell.
pub(super) fn cell_text(workload: &Workload, cell: &Cell, quantity: &Quantity) -> CellText {
    if let Some(why) = &cell.skipped {
        return CellText::plain(format!("({why})"));
    }
    let Some(estimate) = cell.estimate(quantity.measure) else {
        return CellText::plain(if cell.failure().is_some() { "failed" } else { "–" });
    };
    let spread = (estimate.count > 1).then(|| (estimate.high - estimate.low) / 2.0);
    let (mean, rest) = quantity.unit.texts(estimate.mean, spread);
    CellText { mean, rest: rest + &marks(workload, cell, quantity.measure), is_best: false }
}

/// Signs for the limit of the generator, and for faults.
fn marks(workload: &Workload, cell: &Cell, measure: Measure) -> String {
    let is_of_generator =
        matches!(measure, Measure::MessagesPerSec | Measure::CompletionSecs | Measure::Latency(_));
    let bound = if is_of_generator && cell.is_bound_by_generator() { BOUND } else { "" };
    let faults = if workload.is_sound(cell) { "" } else { FAULTY };
    format!("{bound}{faults}")
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{claim, results, run};
    use super::*;

    fn texts(grid: &Grid, section: usize, server: &str) -> Vec<String> {
        let (_, cells) = grid.sections[section].rows.iter().find(|(name, _)| name == server).unwrap();
        let text = |cell: &CellText| {
            let sign = if cell.is_best { "best " } else { "" };
            format!("{sign}{}{}", cell.mean, cell.rest)
        };
        cells.iter().map(text).collect()
    }

    #[test]
    fn the_overview_has_means_and_standard_deviations_of_first_columns() {
        let mut results = results();
        let grid = overview(&results).unwrap();
        assert_eq!(grid.headings, ["loadtest, 100 connections"]);
        // The interval of two values is 12.7 deviations wide at each side; the deviation itself is 0.707.
        assert_eq!(texts(&grid, 0, "mine"), ["100 ± 0.707"]);
        assert_eq!(texts(&grid, 0, "other"), ["best 200 ± 0.707"]);
        assert_eq!(texts(&grid, 0, "relay"), ["900 ± 0.707"]);
        results.workloads[0].sizes[0].is_paced = true;
        assert!(overview(&results).is_none(), "the schedule makes the rate");
    }

    #[test]
    fn the_best_broker_of_each_column_is_marked() {
        let mut results = results();
        results.workloads[0].cells[4].runs = vec![run(150, 0), run(160, 0)];
        let grid = of_workload(&results, &results.workloads[0]);
        assert_eq!(texts(&grid, 0, "other"), ["best 200 ± 6.35", "best 155 ± 63.5"]);
        let marked = grid.sections[0].rows.iter().flat_map(|(_, cells)| cells).filter(|cell| cell.is_best);
        assert_eq!(marked.count(), 2);
    }

    #[test]
    fn a_failed_check_of_a_claim_shows_the_messages_that_were_acknowledged() {
        let failure = Some("did not answer".to_owned());
        let failed = Claim { failure: failure.clone(), ..claim("other", 12_028, 0) };
        let early = Claim { failure, ..claim("early", 0, 0) };
        let grid = of_claims(&[claim("mine", 100, 7), failed, early]);
        assert_eq!(texts(&grid, 0, "mine"), ["100", "50.0", "7"]);
        assert_eq!(texts(&grid, 0, "other"), ["12028", "6.01 k", "failed: did not answer"]);
        assert_eq!(texts(&grid, 0, "early"), ["–", "–", "failed: did not answer"]);
    }
}
