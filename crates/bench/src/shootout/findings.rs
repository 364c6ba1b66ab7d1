//! Findings in words, made from the figures alone.

use super::faults::{broken_claims, failed_claims, failures, faults, kept_claims};
use super::quantity::{QUANTITIES, Quantity, RELAY, is_comparable, ranked};
use super::results::{Results, Workload};
use super::statistics::Verdict;
use crate::load::Counted;

/// Findings under headings.
pub(super) struct Findings {
    /// Messages that servers had acknowledged, and lost when they were killed.
    pub(super) broken_claims: Vec<String>,
    /// The sentence if no server has lost any, and some were killed.
    kept_claims: Option<String>,
    /// The first server, from whose side defeats are told.
    subject: String,
    /// Where the first server is worse than another.
    pub(super) defeats: Vec<String>,
    /// Messages lost, duplicated or out of order while servers ran.
    pub(super) faults: Vec<String>,
    /// Runs and checks that did not end.
    pub(super) failures: Vec<String>,
    /// The order of the servers in each workload, by messages per second.
    pub(super) rankings: Vec<String>,
}

/// A heading, its findings, and the sentence if there are none. Without such a sentence, an empty list has no heading.
pub(super) type List<'a> = (String, &'a [String], Option<String>);

impl Findings {
    pub(super) fn of(results: &Results) -> Self {
        let of_all = |of: fn(&[&str], &Workload) -> Vec<String>| {
            results.all_workloads().flat_map(|(workload, names)| of(&names, workload)).collect::<Vec<_>>()
        };
        let subject = results.present().next().map(|server| server.name.clone()).unwrap_or_default();
        Self {
            broken_claims: broken_claims(&results.claims),
            kept_claims: kept_claims(&results.claims),
            subject,
            defeats: defeats(results),
            faults: of_all(faults),
            failures: [of_all(failures), failed_claims(&results.claims)].concat(),
            rankings: results.workloads.iter().flat_map(|workload| rankings(results, workload)).collect(),
        }
    }

    /// All findings in the order of the report: broken promises first, then defeats of the first server.
    pub(super) fn lists(&self) -> [List<'_>; 5] {
        let none = Some("None.".to_owned());
        [
            (
                "Acknowledged messages lost after SIGKILL".to_owned(),
                &self.broken_claims,
                self.kept_claims.clone(),
            ),
            (format!("Where {} loses", self.subject), &self.defeats, None),
            ("Messages lost, repeated or out of order under load".to_owned(), &self.faults, none),
            ("Runs that failed".to_owned(), &self.failures, None),
            ("Order by rate (~ no difference between neighbours)".to_owned(), &self.rankings, None),
        ]
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
    let title = &first.title;
    let [own, theirs] = [first.own, first.theirs].map(|value| quantity.unit.text(value));
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{results, run};
    use super::super::results::Role;
    use super::*;

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
