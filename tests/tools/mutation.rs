//! Checks that rows can fail: for each flag, a row must differ if our program does not get the flag.
//!
//! Each run has its own names, and is not affected by the remains of another. A row counts only if our program with
//! all flags does the same as Mosquitto's. A run that the time limit ends counts only if it has already sent or
//! printed something that Mosquitto's program does not.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::programs::{Outcome, Run, Side, words};
use crate::recorder::Conversation;
use crate::row::{self, Row};
use crate::rows::ROWS;
use crate::{Servers, differences, flags, for_each};

/// Flags without a visible effect, each with the reason.
const UNSEEN: &[(&str, &[&str], &str)] = &[
    ("--nodelay", &["pub", "sub", "rr"], "when bytes leave, and not which; ours never waits"),
    ("-M", &["sub", "rr"], "they have one message under way at the most"),
    ("-R", &["rr"], "mosquitto_rr does not obey it; `own` has a test of what ours does"),
];

/// A flag without a visible effect must not be noticed. Otherwise runs would disturb each other.
#[test]
fn a_flag_can_be_left_out_unnoticed_exactly_if_it_makes_no_difference() {
    let servers = Servers::start();
    let flags = flags();
    let bench = Bench::new(&servers);
    let wrong = for_each(flags.len(), |number| {
        let (tool, flag) = &flags[number];
        let is_noticed = (0..ROWS.len()).any(|row| bench.is_noticed(row, number, tool, flag));
        (is_noticed == is_unseen(tool, flag)).then(|| format!("{tool} {flag}"))
    });
    assert!(wrong.is_empty(), "of {}, not as it should be: {wrong:#?}", flags.len());
}

fn is_unseen(tool: &str, flag: &str) -> bool {
    UNSEEN.iter().any(|(name, tools, _)| *name == flag && tools.contains(&tool))
}

/// Returns all flags in the rows, with their tools.
fn flags() -> Vec<(&'static str, String)> {
    let mut flags = BTreeSet::new();
    for row in ROWS {
        flags.extend(flags::of_words(&words(row.arguments)).into_iter().map(|flag| (row.tool, flag.clone())));
    }
    flags.into_iter().collect()
}

/// The rows, with the results that all flags share.
struct Bench<'a> {
    servers: &'a Servers,
    rows: Vec<Tried>,
}

/// Results of a row with all of its flags.
#[derive(Default)]
struct Tried {
    theirs: OnceLock<Outcome>,
    is_same: OnceLock<bool>,
}

impl<'a> Bench<'a> {
    fn new(servers: &'a Servers) -> Self {
        Self { servers, rows: ROWS.iter().map(|_| Tried::default()).collect() }
    }

    fn is_noticed(&self, number: usize, flag_number: usize, tool: &str, flag: &str) -> bool {
        // The recorder sees published messages too. A mutated program may publish nothing, and a witness would wait
        // for it.
        let row = &Row { heard: 0, ..ROWS[number] };
        let rest = if row.tool == tool { without(row, flag) } else { Vec::new() };
        if rest.is_empty() {
            return false;
        }
        let run = |side, number, words: &[String]| Run { row, number, side, servers: self.servers }.of(words);
        let (all, tried) = (words(row.arguments), &self.rows[number]);
        let theirs = tried.theirs.get_or_init(|| run(Side::Mosquitto, number, &all));
        let is_same = || is_same(row, theirs, &run(Side::Mutated, number, &all));
        let mutated = run(Side::Mutated, (flag_number + 1) * 1_000 + number, &rest);
        is_other(row, theirs, &mutated) && *tried.is_same.get_or_init(is_same)
    }
}

/// Whether a run with all flags has the expected result.
fn is_same(row: &Row, theirs: &Outcome, ours: &Outcome) -> bool {
    !ours.is_killed() && differences(row, theirs, ours).is_empty()
}

/// Whether a run differs from the one of Mosquitto's program.
fn is_other(row: &Row, theirs: &Outcome, ours: &Outcome) -> bool {
    if !ours.is_killed() {
        return !differences(row, theirs, ours).is_empty();
    }
    let is_said = row.said.of(&theirs.said).starts_with(&row.said.of(&ours.said));
    !(theirs.output.starts_with(&ours.output) && is_said)
}

#[test]
fn a_run_that_was_ended_is_another_one_only_by_what_it_did() {
    let row = &row::subscribe(&[], "");
    let outcome = |code, output: &str, packets: &[&str]| {
        let packets = packets.iter().map(|packet| (*packet).to_owned()).collect();
        let said = vec![Conversation { way: "from here".to_owned(), packets }];
        Outcome { output: output.to_owned(), code, error: String::new(), heard: String::new(), said }
    };
    let theirs = outcome(Some(0), "one\n", &["Connect", "Subscribe"]);
    let other =
        |code, output: &str, packets: &[&str]| is_other(row, &theirs, &outcome(code, output, packets));
    for killed in [None, Some(124), Some(137)] {
        assert!(!other(killed, "one\n", &["Connect", "Subscribe"]));
        assert!(!other(killed, "", &["Connect"]));
        assert!(other(killed, "one\ntwo\n", &["Connect", "Subscribe"]));
        assert!(other(killed, "one\n", &["Connect", "Subscribe", "Unsubscribe"]));
        assert!(!is_same(row, &theirs, &outcome(killed, "one\n", &["Connect", "Subscribe"])));
    }
    assert!(!other(Some(0), "one\n", &["Connect", "Subscribe"]));
    assert!(other(Some(27), "one\n", &["Connect", "Subscribe"]));
    assert!(other(Some(0), "", &["Connect"]));
}

/// Returns the words of a row without the last occurrence of a flag and its values. Empty if the row does not have
/// it.
fn without(row: &Row, flag: &str) -> Vec<String> {
    let words = words(row.arguments);
    let split = flags::split(&words);
    let Some(at) = split.iter().rposition(|these| these[0] == flag) else { return Vec::new() };
    split
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != at)
        .flat_map(|(_, these)| these.to_vec())
        .collect()
}
