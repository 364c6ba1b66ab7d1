//! Findings in words, made from the figures alone.

use super::results::{Measure, Results, Role, Size, Workload};
use super::statistics::{Estimate, Verdict};
use crate::figure;
use crate::load::Counted;

/// The relay forwards bytes without a protocol: it is a ceiling, and no rival.
pub(super) const RELAY: &str = "relay";

/// A quantity with its name, and whether more of it is better.
pub(super) struct Quantity {
    pub(super) measure: Measure,
    pub(super) name: &'static str,
    pub(super) more_is_better: bool,
    pub(super) text: fn(f64) -> String,
}

/// The quantities of a report, in its order.
pub(super) const QUANTITIES: [Quantity; 9] = [
    Quantity {
        measure: Measure::MessagesPerSec,
        name: "messages per second",
        more_is_better: true,
        text: figure::quantity,
    },
    Quantity {
        measure: Measure::CpuSecsPerMillion,
        name: "CPU seconds per million messages",
        more_is_better: false,
        text: figure::quantity,
    },
    Quantity {
        measure: Measure::CompletionSecs,
        name: "time until the demand is met",
        more_is_better: false,
        text: seconds,
    },
    Quantity {
        measure: Measure::Latency(5_000),
        name: "latency, p50",
        more_is_better: false,
        text: milliseconds,
    },
    Quantity {
        measure: Measure::Latency(9_900),
        name: "latency, p99",
        more_is_better: false,
        text: milliseconds,
    },
    Quantity {
        measure: Measure::Latency(9_990),
        name: "latency, p99.9",
        more_is_better: false,
        text: milliseconds,
    },
    Quantity {
        measure: Measure::PeakBytes,
        name: "largest resident memory",
        more_is_better: false,
        text: figure::bytes,
    },
    Quantity {
        measure: Measure::AfterBytes,
        name: "resident memory after the clients have gone",
        more_is_better: false,
        text: figure::bytes,
    },
    Quantity {
        measure: Measure::ConnectionBytes,
        name: "memory per connection",
        more_is_better: false,
        text: figure::bytes,
    },
];

/// Findings under headings.
pub(super) struct Findings {
    /// Where the first server is worse than another.
    pub(super) defeats: Vec<String>,
    /// Messages lost, duplicated or out of order.
    pub(super) faults: Vec<String>,
    /// Runs that did not end.
    pub(super) failures: Vec<String>,
    /// The order of the servers in each workload, by messages per second.
    pub(super) rankings: Vec<String>,
}

impl Quantity {
    /// Its name in the table of a workload.
    pub(super) fn name_in(&self, workload: &Workload) -> String {
        self.name_of(workload.counted)
    }

    /// Its name where these things are counted.
    fn name_of(&self, counted: Counted) -> String {
        self.name.replace("messages", counted.noun())
    }
}

impl Findings {
    pub(super) fn of(results: &Results) -> Self {
        Self {
            defeats: defeats(results),
            faults: results.workloads.iter().flat_map(|workload| faults(results, workload)).collect(),
            failures: results.workloads.iter().flat_map(|workload| failures(results, workload)).collect(),
            rankings: results.workloads.iter().flat_map(|workload| rankings(results, workload)).collect(),
        }
    }
}

/// A sentence for each quantity and each server that is better in it, and one about what could not be decided.
fn defeats(results: &Results) -> Vec<String> {
    let Some(subject) = results.present().next().map(|server| server.name.clone()) else { return Vec::new() };
    let rivals = || results.present().filter(|server| server.name != subject && server.name != RELAY);
    let mut defeats = Vec::new();
    let (mut compared, mut undecided) = (0, 0);
    let kinds = QUANTITIES.iter().flat_map(|quantity| Counted::ALL.map(|counted| (quantity, counted)));
    for (quantity, counted) in kinds {
        for rival in rivals() {
            let columns = columns(results, quantity, counted, [&subject, &rival.name]);
            compared += columns.len();
            undecided += columns.iter().filter(|column| column.verdict == Verdict::TooFewRounds).count();
            defeats.extend(defeat(&columns, &quantity.name_of(counted), quantity, [&subject, &rival.name]));
        }
    }
    if defeats.is_empty() {
        defeats
            .push(format!("None of {compared} comparisons with a broker shows a worse figure of {subject}."));
    }
    if undecided > 0 {
        defeats.push(format!("{undecided} of {compared} comparisons have too few rounds to decide them."));
    }
    defeats
}

fn defeat(
    columns: &[Column],
    name: &str,
    quantity: &Quantity,
    [subject, rival]: [&str; 2],
) -> Option<String> {
    let wanted = if quantity.more_is_better { Verdict::More } else { Verdict::Less };
    let mut lost = columns.iter().filter(|column| column.verdict == wanted);
    let first = lost.next()?;
    let (count, all) = (1 + lost.count(), columns.len());
    let (title, text) = (&first.title, quantity.text);
    let (own, theirs) = (text(first.own), text(first.theirs));
    let but = if first.is_sound { "" } else { " (with faults, see below)" };
    Some(format!(
        "{name}: {rival} is better in {count} of {all} columns, as in {title}: {theirs}{but}, {subject} {own}."
    ))
}

/// A column in which two servers have a quantity.
struct Column {
    title: String,
    own: f64,
    theirs: f64,
    verdict: Verdict,
    is_sound: bool,
}

/// The columns of workloads that count these things.
fn columns(
    results: &Results,
    quantity: &Quantity,
    counted: Counted,
    [subject, rival]: [&str; 2],
) -> Vec<Column> {
    let column = |workload: &Workload, size: usize| {
        let heading = &workload.sizes[size];
        let own = workload.cell(subject, size)?.estimate(quantity.measure)?;
        let cell = workload.cell(rival, size)?;
        let theirs = cell.estimate(quantity.measure)?;
        is_comparable(heading, quantity).then(|| Column {
            title: format!("{}, {}", workload.title, heading.name),
            own: own.mean,
            theirs: theirs.mean,
            verdict: theirs.against(own),
            is_sound: workload.is_sound(cell),
        })
    };
    let of_workload = |workload: &Workload| {
        (0..workload.sizes.len()).filter_map(|size| column(workload, size)).collect::<Vec<_>>()
    };
    let workloads = results.workloads.iter().filter(|workload| workload.counted == counted);
    workloads.flat_map(of_workload).collect()
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

/// A sentence for each server that did not deliver every message once and in order.
fn faults(results: &Results, workload: &Workload) -> Vec<String> {
    let of = |name: &str| {
        let mut faulty = (0..workload.sizes.len()).filter_map(|size| {
            let faults = workload.cell(name, size)?.faults();
            faults.any_at(workload.qos).then_some((size, faults))
        });
        let (first, faults) = faulty.next()?;
        let and_more = if faulty.next().is_some() { ", and in further columns" } else { "" };
        let share = if faults.share_lost() >= 0.001 {
            format!("{:.1} %", faults.share_lost() * 100.0)
        } else {
            format!("{} of {}", faults.lost, faults.messages + faults.lost)
        };
        let counts = [
            (faults.lost, format!("loses {share} of the {}", workload.counted.noun())),
            (faults.duplicated, format!("delivers {} messages again", faults.duplicated)),
            (faults.out_of_order, format!("delivers {} messages out of order", faults.out_of_order)),
            (faults.unexpected, format!("sends {} packets that nobody expects", faults.unexpected)),
        ];
        let counts: Vec<_> =
            counts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        let (title, size) = (&workload.title, &workload.sizes[first].name);
        Some(format!("{name} {} in {title}, {size}{and_more}.", counts.join(", ")))
    };
    results.present().filter_map(|server| of(&server.name)).collect()
}

fn failures(results: &Results, workload: &Workload) -> Vec<String> {
    let of = |name: &str| {
        let failed = |size: usize| Some((size, workload.cell(name, size)?.failure()?.to_owned()));
        let (size, why) = (0..workload.sizes.len()).find_map(failed)?;
        Some(format!("{name}, {}, {}: {why}.", workload.title, workload.sizes[size].name))
    };
    results.present().filter_map(|server| of(&server.name)).collect()
}

/// For each size the servers from the fastest on. `~` stands between neighbours whose intervals overlap.
fn rankings(results: &Results, workload: &Workload) -> Vec<String> {
    let ranking = |size: usize| {
        if workload.sizes[size].is_paced {
            return None;
        }
        let ranked = ranked(results, workload, size, &QUANTITIES[0]);
        if ranked.iter().all(|(_, estimate)| estimate.count < 2) {
            return None;
        }
        let (first, rest) = ranked.split_first()?;
        let mut text = first.0.clone();
        let mut before = first;
        for server in rest {
            let sign = if before.1.against(server.1) == Verdict::More { ">" } else { "~" };
            text.push_str(&format!(" {sign} {}", server.0));
            before = server;
        }
        let is_left_out = |name: &&str| {
            let cell = workload.cell(name, size);
            cell.is_some_and(|cell| cell.skipped.is_none() && !workload.is_sound(cell))
        };
        let names = results.present().map(|server| server.name.as_str());
        let left_out: Vec<&str> = names.filter(is_left_out).collect();
        if !left_out.is_empty() {
            text.push_str(&format!("; not ranked for their faults: {}", left_out.join(", ")));
        }
        Some(format!("{}, {}: {text}.", workload.title, workload.sizes[size].name))
    };
    (0..workload.sizes.len()).filter_map(ranking).collect()
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

fn seconds(value: f64) -> String {
    milliseconds(value * 1e3)
}

pub(super) fn milliseconds(value: f64) -> String {
    let duration = std::time::Duration::try_from_secs_f64(value / 1e3);
    duration.map_or_else(|_| "?".to_owned(), figure::duration)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::results::{Cell, Machine, Run, Server};
    use super::*;

    fn server(name: &str) -> Server {
        Server {
            name: name.into(),
            language: "Rust".into(),
            version: "1".into(),
            command: "command".into(),
            files: Vec::new(),
            fairness: vec!["setting: reason".into()],
            notes: Vec::new(),
            layers: Vec::new(),
            absence: None,
        }
    }

    fn run(per_sec: u64, lost: u64) -> Run {
        Run { messages: per_sec, seconds: 1.0, lost, cpu_secs: Some(1.0), ..Run::default() }
    }

    fn cell(server: &str, size: usize, runs: Vec<Run>) -> Cell {
        Cell { server: server.into(), size, skipped: None, runs }
    }

    /// Two sizes; `other` is faster at the first one, and loses a tenth at the second one.
    pub(in super::super) fn results() -> Results {
        let size = |name: &str, connections| Size {
            name: name.into(),
            connections,
            share_of_best: None,
            is_paced: false,
            role: Role::Load,
        };
        let cells = vec![
            cell("mine", 0, vec![run(100, 0), run(101, 0)]),
            cell("other", 0, vec![run(200, 0), run(201, 0)]),
            cell("relay", 0, vec![run(900, 0), run(901, 0)]),
            cell("mine", 1, vec![run(100, 0), run(120, 0)]),
            cell("other", 1, vec![run(900, 100), run(900, 100)]),
            cell("relay", 1, vec![Run { failure: Some("ended during the run".into()), ..Run::default() }]),
        ];
        Results {
            title: "A shoot-out".into(),
            command: "pondhawk shootout".into(),
            machine: Machine {
                started: 0,
                processor: "a processor".into(),
                processors: 2,
                memory_bytes: 1 << 30,
                kernel: "6".into(),
                server_cpus: Some("0".into()),
                generator_cpus: None,
                generator: "1".into(),
                file_system: "ext4 on /dev/vda".into(),
            },
            seconds: 1.0,
            interruption: None,
            servers: ["mine", "other", "relay"].map(server).to_vec(),
            workloads: vec![Workload {
                name: "loadtest".into(),
                title: "loadtest".into(),
                text: "Text.".into(),
                bench: "loadtest --conns 100,500".into(),
                qos: 0,
                counted: Counted::Messages,
                sizes: vec![size("100 connections", 100), size("500 connections", 500)],
                cells,
            }],
            claims: Vec::new(),
        }
    }

    #[test]
    fn a_defeat_is_named_and_one_by_the_relay_is_none() {
        let findings = Findings::of(&results());
        // By rate, and by the processor's time that follows from it.
        assert_eq!(findings.defeats.len(), 2, "{:?}", findings.defeats);
        assert_eq!(
            findings.defeats[0],
            "messages per second: other is better in 2 of 2 columns, as in loadtest, 100 connections: 200, mine 100."
        );
    }

    #[test]
    fn one_round_decides_nothing_and_the_report_says_so() {
        let mut results = results();
        results.workloads[0].cells.iter_mut().for_each(|cell| cell.runs.truncate(1));
        let defeats = Findings::of(&results).defeats;
        assert!(defeats[0].starts_with("None of 4 comparisons"), "{defeats:?}");
        assert!(defeats[1].starts_with("4 of 4 comparisons have too few rounds"), "{defeats:?}");
    }

    #[test]
    fn rates_of_paced_workloads_are_not_compared() {
        let mut results = results();
        for size in &mut results.workloads[0].sizes {
            size.is_paced = true;
        }
        let findings = Findings::of(&results);
        assert!(findings.defeats.iter().all(|defeat| !defeat.starts_with("messages per second")));
        assert_eq!(findings.rankings, [""; 0]);
    }

    #[test]
    fn handshakes_are_no_messages() {
        let mut results = results();
        results.workloads[0].counted = Counted::Handshakes;
        let findings = Findings::of(&results);
        assert!(findings.defeats[0].starts_with("handshakes per second: other"), "{:?}", findings.defeats);
        assert!(findings.faults[0].contains("of the handshakes"), "{:?}", findings.faults);
    }

    #[test]
    fn controls_and_latency_beside_a_demand_are_not_compared() {
        let defeats_as = |role: Role| {
            let mut results = results();
            for size in &mut results.workloads[0].sizes {
                (size.role, size.is_paced) = (role, role != Role::Load);
            }
            for (number, cell) in (1..).zip(&mut results.workloads[0].cells) {
                for run in &mut cell.runs {
                    run.latency_ms = vec![(99.0, 100.0 / f64::from(number))];
                    run.completion_secs = Some(100.0 / f64::from(number));
                }
            }
            Findings::of(&results).defeats
        };
        assert!(defeats_as(Role::Control)[0].starts_with("None of 0 "), "{:?}", defeats_as(Role::Control));
        let beside = defeats_as(Role::Demand);
        assert!(beside.iter().any(|defeat| defeat.starts_with("time until")), "{beside:?}");
        assert!(beside.iter().all(|defeat| !defeat.starts_with("latency")), "{beside:?}");
    }

    #[test]
    fn losses_and_failures_have_their_place_and_their_share() {
        let findings = Findings::of(&results());
        assert_eq!(findings.faults, ["other loses 10.0 % of the messages in loadtest, 500 connections."]);
        assert_eq!(findings.failures, ["relay, loadtest, 500 connections: ended during the run."]);
    }

    #[test]
    fn no_difference_is_stated_where_there_is_none() {
        let mut results = results();
        let ranking = "loadtest, 100 connections: relay > other > mine.";
        assert_eq!(Findings::of(&results).rankings[0], ranking);
        results.workloads[0].cells[1].runs = vec![run(90, 0), run(112, 0)];
        let rankings = Findings::of(&results).rankings;
        assert_eq!(rankings[0], "loadtest, 100 connections: relay > other ~ mine.");
        assert_eq!(
            rankings[1],
            "loadtest, 500 connections: mine; not ranked for their faults: other, relay."
        );
    }
}
