//! Load balancers: tables with a row for each balancer and number of replicas, and their differences in words.

use super::super::balancing::{Balancing, DIRECT};
use super::super::quantity::{LATENCIES, Quantity, Unit};
use super::super::results::{Cell, Measure, Workload};
use super::super::statistics::{Estimate, Verdict};
use super::tables::{CellText, Grid, Rows, cell_text};
use crate::load::Counted;

/// Columns of a workload in which messages go as fast as they can.
static FREE: [Quantity; 5] = [
    Quantity {
        measure: Measure::MessagesPerSec,
        name: "messages per second",
        more_is_better: true,
        unit: Unit::Count,
    },
    Quantity {
        measure: Measure::BalancerCpuSecsPerMillion,
        name: "CPU seconds per million messages, balancer",
        more_is_better: false,
        unit: Unit::Count,
    },
    Quantity {
        measure: Measure::CpuSecsPerMillion,
        name: "CPU seconds per million messages, replicas",
        more_is_better: false,
        unit: Unit::Count,
    },
    Quantity {
        measure: Measure::AllCpuSecsPerMillion,
        name: "CPU seconds per million messages, both",
        more_is_better: false,
        unit: Unit::Count,
    },
    Quantity {
        measure: Measure::BusiestPercent,
        name: "busiest replica, % of the CPU time of all replicas",
        more_is_better: false,
        unit: Unit::Count,
    },
];

/// Columns of a workload with messages on schedule.
static PACED: [Quantity; 3] = LATENCIES;

/// Quantities that are compared with those of clients without a balancer.
const COMPARED: [Measure; 3] =
    [Measure::MessagesPerSec, Measure::AllCpuSecsPerMillion, Measure::Latency(9_900)];

/// A quantity of a workload.
type Column<'a> = (&'a Workload, &'static Quantity);

/// The heading of the section.
pub(super) fn heading(balancing: &Balancing) -> String {
    format!("Load balancers in front of {}", balancing.server.name)
}

/// The explanation of the section, a paragraph each.
pub(super) fn texts(balancing: &Balancing) -> Vec<String> {
    let server = &balancing.server.name;
    let place = match &balancing.cpus {
        Some(cpus) => format!("Balancers run on processor {cpus}."),
        None => "A balancer and all replicas share the processors of the servers: each takes time from the \
                 others, and more replicas are not faster."
            .to_owned(),
    };
    vec![
        format!(
            "Every row is a balancer with a number of replicas of {server} behind it. The replicas know nothing of \
             each other. A publisher would not reach a subscriber of another replica. In the workloads of this \
             section, clients therefore publish to themselves, or only connect. A cluster has further costs, which \
             are not measured here."
        ),
        format!(
            "In the rows \"{DIRECT}\", the generator connects to the replicas in turn, without a balancer. The CPU \
             time of a balancer is that of all its processes, and the one of replicas is their sum. It contains the \
             work of the kernel for them. {place}"
        ),
    ]
}

/// A sentence for each balancer that was not measured.
pub(super) fn absences(balancing: &Balancing) -> Vec<String> {
    let of = |(name, why): (&String, &String)| format!("Not measured: {name}: {why}.");
    let absent = balancing.balancers.iter().filter_map(|one| Some((&one.name, one.absence.as_ref()?)));
    absent.map(of).collect()
}

/// The table of a workload, with a section for each number of replicas.
pub(super) fn grid(balancing: &Balancing, workload: &Workload) -> Grid {
    let quantities = quantities(workload);
    let section = |replicas: u32| {
        let rows = balancing.lineups.iter().filter(|row| row.replicas == replicas);
        let rows = rows.map(|row| {
            let cells = quantities.iter().map(|quantity| {
                let Some(cell) = workload.cell(&row.name, 0) else { return CellText::default() };
                cell_text(workload, cell, quantity)
            });
            (row.balancer.clone(), cells.collect())
        });
        let several = if replicas == 1 { "" } else { "s" };
        Rows { title: format!("{replicas} replica{several}"), rows: rows.collect() }
    };
    Grid {
        caption: format!("Load balancers in front of {}, {}", balancing.server.name, workload.title),
        headings: quantities.iter().map(|quantity| quantity.name_in(workload)).collect(),
        sections: balancing.replica_counts().into_iter().map(section).collect(),
    }
}

/// The differences between each balancer and none, a sentence for each quantity.
pub(super) fn differences(balancing: &Balancing) -> Vec<String> {
    let compared = |(_, quantity): &Column<'_>| COMPARED.contains(&quantity.measure);
    let columns: Vec<Column<'_>> = balancing.workloads.iter().flat_map(columns).filter(compared).collect();
    let mut names: Vec<&str> = Vec::new();
    for row in balancing.lineups.iter().filter(|row| row.balancer != DIRECT) {
        if !names.contains(&row.balancer.as_str()) {
            names.push(&row.balancer);
        }
    }
    let of = |name| columns.iter().filter_map(move |column| difference(balancing, name, column));
    names.iter().flat_map(|name| of(*name)).collect()
}

fn columns(workload: &Workload) -> impl Iterator<Item = Column<'_>> {
    quantities(workload).iter().map(move |quantity| (workload, quantity))
}

fn quantities(workload: &Workload) -> &'static [Quantity] {
    let is_paced = workload.sizes.first().is_some_and(|size| size.is_paced);
    match workload.counted {
        // The busiest replica has no meaning for clients that leave.
        Counted::Connections => &FREE[..4],
        Counted::Messages | Counted::Handshakes if is_paced => &PACED,
        Counted::Messages | Counted::Handshakes => &FREE,
    }
}

fn heading_of((workload, quantity): &Column<'_>) -> String {
    format!("{}: {}", workload.title, quantity.name_in(workload))
}

/// The estimate of a row without faults.
fn sound(workload: &Workload, row: &str, measure: Measure) -> Option<Estimate> {
    let is_sound = |cell: &&Cell| workload.is_sound(cell);
    workload.cell(row, 0).filter(is_sound)?.estimate(measure)
}

/// The numbers of replicas with one result.
struct Kind {
    words: &'static str,
    replicas: Vec<u32>,
    /// The means of the balancer and of clients without one, for the first number.
    first: Option<[f64; 2]>,
}

/// The sentence about one quantity; `None` if no number of replicas has figures of both.
fn difference(balancing: &Balancing, name: &str, column: &Column<'_>) -> Option<String> {
    let (workload, quantity) = *column;
    let words = ["worse than direct", "better than direct", "no difference", "too few rounds"];
    let mut kinds = words.map(|words| Kind { words, replicas: Vec::new(), first: None });
    for replicas in balancing.replica_counts() {
        let [own, direct] = [name, DIRECT]
            .map(|name| sound(workload, &balancing.row(name, replicas)?.name, quantity.measure));
        let (Some(own), Some(direct)) = (own, direct) else { continue };
        let worse = if quantity.more_is_better { Verdict::Less } else { Verdict::More };
        let place = match own.against(direct) {
            Verdict::TooFewRounds => 3,
            Verdict::NoDifference => 2,
            verdict if verdict == worse => 0,
            Verdict::Less | Verdict::More => 1,
        };
        kinds[place].replicas.push(replicas);
        kinds[place].first.get_or_insert([own.mean, direct.mean]);
    }
    let part = |Kind { words, replicas, first }: &Kind| {
        let [own, direct] = (*first)?.map(|mean| quantity.unit.text(mean));
        let several = if replicas == &[1] { "" } else { "s" };
        let with = replicas.first()?;
        Some(format!(
            "{words} with {} replica{several} (with {with}: {own}, direct {direct})",
            listed(replicas)
        ))
    };
    let parts: Vec<String> = kinds.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("{name}, {}: {}.", heading_of(column), parts.join("; ")))
}

/// Numbers in words, such as `1, 2 and 4`.
fn listed(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    match texts.split_last() {
        Some((last, front)) if !front.is_empty() => format!("{} and {last}", front.join(", ")),
        _ => texts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{balancing, run};
    use super::super::super::results::Run;
    use super::*;

    fn texts_of(grid: &Grid, section: usize, name: &str) -> Vec<String> {
        let (_, cells) = grid.sections[section].rows.iter().find(|(row, _)| row == name).unwrap();
        cells.iter().map(|cell| format!("{}{}", cell.mean, cell.rest)).collect()
    }

    #[test]
    fn each_balancer_has_a_row_for_each_number_of_replicas_and_a_column_for_each_cost() {
        let balancing = balancing();
        let grid = grid(&balancing, &balancing.workloads[0]);
        let titles: Vec<&str> = grid.sections.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["1 replica", "2 replicas"]);
        assert_eq!(grid.headings[1], "CPU seconds per million messages, balancer");
        let counts = balancing.workloads.iter().map(|workload| quantities(workload).len());
        assert_eq!(counts.collect::<Vec<_>>(), [5, 3, 4]);
        // A second of the replicas, and half a second of the balancer, for 100 or 101 messages.
        let direct = texts_of(&grid, 0, "direct");
        assert_eq!(direct[..4], ["200 ± 6.35", "–", "4.99 ± 0.158 k", "4.99 ± 0.158 k"]);
        let front = texts_of(&grid, 0, "front");
        assert_eq!(front[..4], ["100 ± 6.35", "4.98 ± 0.315 k", "9.95 ± 0.629 k", "14.9 ± 0.944 k"]);
    }

    #[test]
    fn the_differences_to_clients_without_a_balancer_are_in_words() {
        let mut balancing = balancing();
        let sentences = differences(&balancing);
        assert_eq!(
            sentences[0],
            "front, echo: messages per second: worse than direct with 1 and 2 replicas (with 1: 100, direct 200)."
        );
        balancing.workloads[0].cells[1].runs = vec![run(199, 0), run(202, 0)];
        let sentences = differences(&balancing);
        let expected =
            "worse than direct with 2 replicas (with 2: 100, direct 200); no difference with 1 replica (";
        assert!(sentences[0].contains(expected), "{sentences:?}");
    }

    #[test]
    fn a_balancer_that_loses_connections_is_not_compared_and_its_row_says_so() {
        let mut balancing = balancing();
        let failed = Run { failure: Some("closed connection 7".into()), ..Run::default() };
        balancing.workloads[0].cells[1].runs = vec![failed];
        assert_eq!(texts_of(&grid(&balancing, &balancing.workloads[0]), 0, "front")[0], "failed");
        assert!(differences(&balancing)[0].contains("worse than direct with 2 replicas"));
    }
}
