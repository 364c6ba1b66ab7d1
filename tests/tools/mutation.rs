//! Rows can fail: for each flag there is one that is not the same when our program is not given that flag.

use std::collections::BTreeSet;

use crate::programs::{Run, Side, words};
use crate::row::Row;
use crate::rows::ROWS;
use crate::{Servers, differences, flags, for_each};

/// Flags that make no difference that could be seen, each with the reason.
const UNSEEN: &[(&str, &[&str], &str)] = &[
    ("--nodelay", &["pub", "sub", "rr"], "when bytes leave, and not which; ours never waits"),
    ("-M", &["sub", "rr"], "they have one message under way at the most"),
    ("-R", &["rr"], "mosquitto_rr does not obey it; `own` has a test of what ours does"),
];

#[test]
fn no_flag_can_be_left_out_unnoticed() {
    let servers = Servers::start();
    let flags = flags();
    let unnoticed = for_each(flags.len(), |number| {
        let (tool, flag) = &flags[number];
        let mut rows =
            ROWS.iter().enumerate().filter(|(_, row)| row.tool == *tool && !without(row, flag).is_empty());
        let is_noticed = rows.any(|(number, row)| is_noticed(row, number, flag, &servers));
        (!is_noticed).then(|| format!("{tool} {flag}"))
    });
    assert!(unnoticed.is_empty(), "no row of {} fails without {unnoticed:#?}", flags.len());
}

/// All that are in a row, of each tool.
fn flags() -> Vec<(&'static str, String)> {
    let is_seen = |tool: &str, flag: &str| {
        !UNSEEN.iter().any(|(name, tools, _)| *name == flag && tools.contains(&tool))
    };
    let mut flags = BTreeSet::new();
    for row in ROWS {
        let words = words(row.arguments);
        let known = flags::of_words(&words).into_iter().filter(|flag| is_seen(row.tool, flag));
        flags.extend(known.map(|flag| (row.tool, flag.clone())));
    }
    flags.into_iter().collect()
}

fn is_noticed(row: &Row, number: usize, flag: &str, servers: &Servers) -> bool {
    // What is published is told by the recorder too. Without a word it may be that nothing is, and others would wait for it.
    let row = &Row { heard: 0, ..*row };
    let run = |side, words: &[String]| Run { row, number, side, servers }.of(words);
    let theirs = run(Side::Mosquitto, &words(row.arguments));
    let ours = run(Side::Mutated, &without(row, flag));
    !differences(row, &theirs, &ours).is_empty()
}

/// The words of a row but for the last time that this flag is there, and what follows it; none if it is not.
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
