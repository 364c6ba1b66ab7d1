//! `pondhawk pub`, `sub` and `rr` beside the programs that they stand in for: the same arguments, the same broker; then the
//! same standard output, the same exit code, the same messages.
//!
//! `rows` is the table. Each row is run with Mosquitto's program and with ours, one after the other. Which flags there are,
//! Mosquitto's programs say themselves (`--help`): a flag that no row has, and that is not refused by name, fails the test.

mod flags;
mod manual;
mod mosquitto;
mod own;
mod programs;
mod rows;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mosquitto::Mosquitto;
use pondhawk_tests::{Broker, Options};
use programs::{Outcome, Place, Side, run};
use rows::{ROWS, Row, Server, Standard};

/// So many rows at a time: they wait more than they compute.
const THREADS: usize = 4;

#[test]
fn each_row_comes_to_the_same() {
    let pondhawk = Broker::start(&Options::default());
    let mosquitto = Mosquitto::start();
    let next = AtomicUsize::new(0);
    let findings: Vec<String> = thread::scope(|scope| {
        let work = || {
            let mut findings = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(row) = ROWS.get(number) else { break findings };
                let port = match row.server {
                    Server::Pondhawk | Server::Nobody => pondhawk.address().port(),
                    Server::Mosquitto => mosquitto.port(),
                };
                findings.extend(compare(row, number, port, &mosquitto));
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a row that panics says why")).collect()
    });
    assert!(findings.is_empty(), "{} of {} rows:\n{}", findings.len(), ROWS.len(), findings.join("\n"));
    assert!(pondhawk.stop().success());
}

/// Runs a row on both sides; what is not the same, in words.
fn compare(row: &Row, number: usize, port: u16, mosquitto: &Mosquitto) -> Option<String> {
    let sides = [Side::Mosquitto, Side::Pondhawk];
    let [theirs, ours] = sides.map(|side| run(row, &Place::new(row, number, side, port, mosquitto)));
    let is_same = theirs.output == ours.output && theirs.code == ours.code && theirs.heard == ours.heard;
    let is_same_error = match row.error {
        Standard::Same => first_line(&theirs) == first_line(&ours),
        Standard::Ours(_) => ours.error.is_empty() == theirs.error.is_empty(),
    };
    (!is_same || !is_same_error)
        .then(|| format!("{} {}\n  theirs: {theirs:?}\n  ours:   {ours:?}", row.tool, row.arguments))
}

/// What an error begins with; behind it comes how to get help, in words of one's own.
fn first_line(outcome: &Outcome) -> Option<&str> {
    outcome.error.lines().find(|line| !line.is_empty())
}

#[test]
fn every_flag_of_the_real_help_is_in_a_row_or_refused_by_name() {
    let mut missing = Vec::new();
    for tool in ["pub", "sub", "rr"] {
        let flags = flags::of_help(tool);
        assert!(flags.len() > 30, "the help of mosquitto_{tool} is read: {flags:?}");
        for flag in flags {
            let is_in_row =
                ROWS.iter().any(|row| row.tool == tool && programs::words(row.arguments).contains(&flag));
            if !is_in_row
                && !rows::REFUSED.contains(&flag.as_str())
                && !rows::OWN_TEXT.contains(&flag.as_str())
            {
                missing.push(format!("mosquitto_{tool} {flag}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    for tool in ["pub", "sub", "rr"] {
        let flags = rows::REFUSED.iter().map(|flag| (*flag, "value", format!("Error: {flag} is refused: ")));
        let values = rows::REFUSED_VALUES.iter();
        let values =
            values.map(|(flag, value)| (*flag, *value, format!("Error: {flag} {value} is refused: ")));
        for (flag, value, expected) in flags.chain(values) {
            let (code, error) = programs::ours(tool, &["-t", "a", flag, value]);
            assert_eq!(code, Some(1), "{tool} {flag}: {error}");
            assert!(error.starts_with(&expected), "{tool} {flag}: {error}");
        }
    }
}

#[test]
fn help_and_version_are_our_own() {
    for tool in ["pub", "sub", "rr"] {
        let (output, code) = programs::output(tool, &["--help"]);
        assert_eq!(code, Some(0), "{tool}");
        for flag in flags::of_help(tool) {
            assert!(output.contains(&flag), "{tool} --help does not know {flag}");
        }
        let (output, code) = programs::output(tool, &["--version"]);
        assert_eq!((output.starts_with("pondhawk "), code), (true, Some(0)), "{output}");
    }
}
