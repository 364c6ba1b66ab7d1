//! Compares `pondhawk pub`, `sub` and `rr` with the programs of Mosquitto that they replace.
//!
//! Both programs get the same arguments and the same broker. They must have the same standard output, exit code,
//! packets to the broker, and messages from it.
//!
//! `rows` is the table of comparisons. Each row runs Mosquitto's program and then ours through a `recorder`, which
//! decodes their packets. The help of Mosquitto's programs (`--help`) lists the flags. The test fails for a flag
//! that no row has and that is not refused by name. `mutation` shows that rows can fail: it leaves out each flag.

mod encrypted;
mod faulty;
mod flags;
mod manual;
mod mosquitto;
mod mutation;
mod own;
mod presets;
mod programs;
mod proxy;
mod recorder;
mod replay;
mod row;
mod rows;
mod terminal;

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mosquitto::Mosquitto;
use pondhawk_tests::{Broker, Options};
use programs::{Outcome, Run, Side, words};
use row::{Row, Server, Standard};
use rows::ROWS;

/// Number of rows that run at the same time. Programs wait more than they compute.
const THREADS: usize = 4;

/// The brokers that rows need.
struct Servers {
    pondhawk: Broker,
    mosquitto: Mosquitto,
}

impl Servers {
    fn start() -> Self {
        Self { pondhawk: Broker::start(&Options::default()), mosquitto: Mosquitto::start() }
    }

    fn port(&self, server: Server) -> u16 {
        match server {
            Server::Pondhawk => self.pondhawk.address().port(),
            Server::Mosquitto => self.mosquitto.port(),
            Server::Private => self.mosquitto.private_port(),
            Server::Guarded => self.mosquitto.guarded_port(),
        }
    }
}

#[test]
fn each_row_comes_to_the_same() {
    let servers = Servers::start();
    let findings = for_each(ROWS.len(), |number| {
        let row = &ROWS[number];
        let [theirs, ours] = [Side::Mosquitto, Side::Pondhawk]
            .map(|side| Run { row, number, side, servers: &servers }.of(&words(row.arguments)));
        let differences = differences(row, &theirs, &ours);
        (!differences.is_empty()).then(|| format!("{} {}\n{differences}", row.tool, row.arguments))
    });
    assert!(findings.is_empty(), "{} of {} rows:\n{}", findings.len(), ROWS.len(), findings.join("\n"));
    assert!(servers.pondhawk.stop().success());
}

/// Calls `work` for each number below `count`, on several threads. Returns the results in any order.
fn for_each<T: Send>(count: usize, work: impl Fn(usize) -> Option<T> + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let next = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count);
    let some = || std::iter::from_fn(next).filter_map(&work).collect::<Vec<_>>();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("one that panics says why")).collect()
    })
}

/// Describes the differences between both programs.
fn differences(row: &Row, theirs: &Outcome, ours: &Outcome) -> String {
    let first_lines = [first_line(theirs), first_line(ours)];
    let is_same_error = match row.error {
        Standard::Same => first_lines[0] == first_lines[1],
        Standard::Ours(_) => ours.error.is_empty() == theirs.error.is_empty(),
    };
    let mut lines = String::new();
    let mut tell = |what: &str, is_same: bool, theirs: &dyn Debug, ours: &dyn Debug| {
        if !is_same {
            lines.push_str(&format!("  {what}\n    theirs: {theirs:?}\n    ours:   {ours:?}\n"));
        }
    };
    tell("standard output", theirs.output == ours.output, &theirs.output, &ours.output);
    let code = |outcome: &Outcome| outcome.code.map(|code| if row.lacks_tls && code == 8 { 1 } else { code });
    tell("exit code", code(theirs) == code(ours), &theirs.code, &ours.code);
    tell("standard error", is_same_error, &theirs.error, &ours.error);
    tell("what others hear", theirs.heard == ours.heard, &theirs.heard, &ours.heard);
    let (theirs, mut ours) = (row.said.of(&theirs.said), row.said.of(&ours.said));
    // mosquitto_sub may or may not send DISCONNECT before it closes the connection, if more messages arrive than it
    // needs.
    let is_goodbye = |packet: &String| packet.starts_with("Disconnect(");
    if row.tool == "sub" && !theirs.iter().any(is_goodbye) {
        ours.retain(|packet| !is_goodbye(packet));
    }
    for number in 0..theirs.len().max(ours.len()) {
        let (theirs, ours) = (theirs.get(number), ours.get(number));
        tell("what is said to the broker", theirs == ours, &theirs, &ours);
    }
    lines
}

/// The first line of an error. The lines after it explain how to get help, in each program's own words.
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
            let is_in_row = ROWS
                .iter()
                .any(|row| row.tool == tool && flags::of_words(&words(row.arguments)).contains(&&flag));
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
fn unsupported_flags_and_values_are_refused_by_name() {
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
