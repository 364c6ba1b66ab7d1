//! Findings about messages that did not come as they should, and about runs that failed.

use super::results::{Claim, Faults, Workload};

/// A kind of fault: its count, and its sentence after the name of the server.
type Kind = (fn(&Faults) -> u64, fn(&Faults, &Workload) -> String);

const LOST: Kind = (|faults| faults.lost, lost);
const OUT_OF_ORDER: Kind = (
    |faults| faults.out_of_order,
    |faults, _| format!("delivers {} messages out of order", faults.out_of_order),
);
const UNEXPECTED: Kind = (
    |faults| faults.unexpected,
    |faults, _| format!("sends {} packets that nobody expects", faults.unexpected),
);
const DUPLICATED: Kind =
    (|faults| faults.duplicated, |faults, _| format!("delivers {} messages again", faults.duplicated));

/// A sentence for each server that lost messages that it had acknowledged.
pub(super) fn broken_claims(claims: &[Claim]) -> Vec<String> {
    let broken = claims.iter().filter(|claim| claim.failure.is_none() && claim.lost > 0);
    let sentence = |claim: &Claim| {
        let Claim { server, lost, acknowledged, .. } = claim;
        format!("{server} lost {lost} of {acknowledged} messages that it had acknowledged before SIGKILL.")
    };
    broken.map(sentence).collect()
}

/// The sentence if no acknowledged message was lost; `None` if no check came to its end.
pub(super) fn kept_claims(claims: &[Claim]) -> Option<String> {
    let checked = claims.iter().filter(|claim| claim.failure.is_none()).count();
    (checked > 0).then(|| format!("None, by any of the {checked} servers that were killed."))
}

/// A sentence for each check of durability that has no result.
pub(super) fn failed_claims(claims: &[Claim]) -> Vec<String> {
    let sentence = |claim: &Claim| {
        let Claim { server, acknowledged, failure, .. } = claim;
        let why = failure.as_ref()?;
        Some(format!("{server}, check of durability: {why}, with {acknowledged} messages acknowledged."))
    };
    claims.iter().filter_map(sentence).collect()
}

/// A sentence for each server and each kind of fault.
pub(super) fn faults(names: &[&str], workload: &Workload) -> Vec<String> {
    // At QoS 1, a message may come again.
    let kinds = [LOST, OUT_OF_ORDER, UNEXPECTED, DUPLICATED];
    let kinds = if workload.qos == 1 { &kinds[..3] } else { &kinds[..] };
    let of = |name: &str, (count, text): &Kind| {
        let (mut columns, mut sum) = (Vec::new(), Faults::default());
        for size in 0..workload.sizes.len() {
            let Some(faults) = workload.cell(name, size).map(|cell| cell.faults()) else { continue };
            if count(&faults) > 0 {
                columns.push(size);
                sum.add(faults);
            }
        }
        let columns = in_words(workload, &columns)?;
        Some(format!("{name} {} in {}, {columns}.", text(&sum, workload), workload.title))
    };
    names.iter().flat_map(|name| kinds.iter().filter_map(|kind| of(name, kind)).collect::<Vec<_>>()).collect()
}

/// The share of the messages that was lost, or the number of them if it is small.
fn lost(faults: &Faults, workload: &Workload) -> String {
    let share = if faults.share_lost() >= 0.001 {
        format!("{:.1} %", faults.share_lost() * 100.0)
    } else {
        format!("{} of {}", faults.lost, faults.messages + faults.lost)
    };
    format!("loses {share} of the {}", workload.counted.noun())
}

/// A sentence for each server and each reason for which its runs failed.
pub(super) fn failures(names: &[&str], workload: &Workload) -> Vec<String> {
    let of = |name: &str| {
        let mut reasons: Vec<(&str, Vec<usize>)> = Vec::new();
        for size in 0..workload.sizes.len() {
            let Some(why) = workload.cell(name, size).and_then(|cell| cell.failure()) else { continue };
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, columns)) => columns.push(size),
                None => reasons.push((why, vec![size])),
            }
        }
        let sentence = |(why, columns): (&str, Vec<usize>)| {
            Some(format!("{name}, {}, {}: {why}.", workload.title, in_words(workload, &columns)?))
        };
        reasons.into_iter().filter_map(sentence).collect::<Vec<_>>()
    };
    names.iter().flat_map(|name| of(name)).collect()
}

/// Columns in words: all of them, a threshold if all later columns are among them, or a list. `None` of no columns.
pub(super) fn in_words(workload: &Workload, columns: &[usize]) -> Option<String> {
    let sizes = &workload.sizes;
    let (&first, rest) = columns.split_first()?;
    let (&last, middle) = match rest.split_last() {
        Some(split) => split,
        None => return Some(sizes[first].name.clone()),
    };
    let grows = || sizes.windows(2).all(|pair| pair[0].connections < pair[1].connections);
    if columns.len() == sizes.len() {
        return Some("in all columns".to_owned());
    }
    if columns.len() == sizes.len() - first && grows() {
        return Some(format!("from {} on", sizes[first].name));
    }
    let front: Vec<&str> =
        std::iter::once(&first).chain(middle).map(|column| &*sizes[*column].name).collect();
    Some(format!("{} and {}", front.join(", "), sizes[last].name))
}

#[cfg(test)]
mod tests {
    use super::super::findings::Findings;
    use super::super::fixture::{cell, claim, results, run};
    use super::super::results::{Results, Size};
    use super::*;

    const NAMES: [&str; 3] = ["mine", "other", "relay"];

    /// Sizes with 250, 500, 750 and 1000 connections, where `other` loses a tenth at some of them.
    fn with_losses_at(lossy: [bool; 4]) -> Results {
        let mut results = results();
        let workload = &mut results.workloads[0];
        let size = |connections: u64| Size {
            name: format!("{connections} connections"),
            connections,
            ..workload.sizes[0].clone()
        };
        workload.sizes = [250, 500, 750, 1000].map(size).to_vec();
        let cells = lossy.into_iter().enumerate();
        workload.cells = cells
            .map(|(size, is_lossy)| cell("other", size, vec![run(90, 10 * u64::from(is_lossy))]))
            .collect();
        results
    }

    #[test]
    fn columns_with_a_fault_are_a_threshold_or_a_list() {
        let columns = |lossy: [bool; 4]| {
            let results = with_losses_at(lossy);
            let [sentence] = faults(&NAMES, &results.workloads[0]).try_into().unwrap();
            let columns =
                sentence.strip_prefix("other loses 10.0 % of the messages in loadtest, ").map(str::to_owned);
            columns.unwrap_or(sentence)
        };
        assert_eq!(columns([false, false, true, true]), "from 750 connections on.");
        assert_eq!(columns([false, false, false, true]), "1000 connections.");
        assert_eq!(columns([true, true, true, true]), "in all columns.");
        let listed = "250 connections, 500 connections and 1000 connections.";
        assert_eq!(columns([true, true, false, true]), listed);
        assert_eq!(columns([false, true, true, false]), "500 connections and 750 connections.");
    }

    #[test]
    fn columns_that_do_not_grow_have_no_threshold() {
        let mut results = with_losses_at([false, false, true, true]);
        results.workloads[0].sizes[3].connections = 750;
        let sentence = &faults(&NAMES, &results.workloads[0])[0];
        assert!(sentence.ends_with("750 connections and 1000 connections."), "{sentence}");
    }

    #[test]
    fn each_kind_of_fault_has_its_own_columns() {
        let mut results = with_losses_at([false, false, true, true]);
        results.workloads[0].cells[0].runs[0].duplicated = 5;
        let of = |results: &Results| faults(&NAMES, &results.workloads[0]);
        assert_eq!(of(&results)[1], "other delivers 5 messages again in loadtest, 250 connections.");
        results.workloads[0].qos = 1;
        assert_eq!(of(&results).len(), 1, "at QoS 1, a message may come again");
    }

    #[test]
    fn runs_that_failed_for_one_reason_are_one_sentence() {
        let mut results = with_losses_at([false; 4]);
        for cell in &mut results.workloads[0].cells[1..] {
            let is_last = cell.size == 3;
            cell.runs[0].failure = Some(if is_last { "ended" } else { "did not answer" }.to_owned());
        }
        let expected = [
            "other, loadtest, 500 connections and 750 connections: did not answer.",
            "other, loadtest, 1000 connections: ended.",
        ];
        assert_eq!(failures(&NAMES, &results.workloads[0]), expected);
    }

    #[test]
    fn losses_and_failures_have_their_place_and_their_share() {
        let findings = Findings::of(&results());
        assert_eq!(findings.faults, ["other loses 10.0 % of the messages in loadtest, 500 connections."]);
        assert_eq!(findings.failures, ["relay, loadtest, 500 connections: ended during the run."]);
    }

    #[test]
    fn acknowledged_messages_that_are_lost_come_first_whoever_lost_them() {
        let mut results = results();
        results.claims = vec![claim("mine", 100, 1), claim("other", 50, 0), claim("third", 40, 40)];
        let findings = Findings::of(&results);
        let [(title, items, _), ..] = findings.lists();
        assert_eq!(title, "Acknowledged messages lost after SIGKILL");
        let expected = [
            "mine lost 1 of 100 messages that it had acknowledged before SIGKILL.",
            "third lost 40 of 40 messages that it had acknowledged before SIGKILL.",
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn none_is_said_only_of_servers_that_were_checked() {
        let none = |claims: Vec<Claim>| {
            let findings = Findings::of(&Results { claims, ..results() });
            let [(_, items, or_else), ..] = findings.lists();
            assert_eq!(items, [""; 0]);
            or_else
        };
        let failed = Claim { failure: Some("did not answer".into()), ..claim("other", 50, 0) };
        assert_eq!(none(Vec::new()), None);
        assert_eq!(none(vec![failed.clone()]), None);
        let expected = "None, by any of the 1 servers that were killed.";
        assert_eq!(none(vec![claim("mine", 100, 0), failed]).as_deref(), Some(expected));
    }

    #[test]
    fn a_check_of_a_claim_that_failed_is_a_failure() {
        let mut results = results();
        let failure = Some("did not answer within 10 s".to_owned());
        results.claims = vec![Claim { failure, ..claim("other", 50, 0) }];
        let expected =
            "other, check of durability: did not answer within 10 s, with 50 messages acknowledged.";
        assert_eq!(Findings::of(&results).failures[1], expected);
    }
}
