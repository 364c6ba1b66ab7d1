//! Writes `docs/CONFORMANCE.md`: each normative statement of MQTT 5.0 and 3.1.1, the broker's behaviour, and the
//! tests.
//!
//! The statements are in `tests/conformance/statements.tsv`. The doc comment of a test names the statements that
//! the test shows. CONTRIBUTING.md has the syntax.

mod broken;
mod evidence;
mod page;
mod references;
mod source;
mod statements;
mod table;

use std::fs;
use std::process::ExitCode;

use evidence::Evidence;
use statements::Statements;

use crate::house::House;
use crate::log::Log;

const PAGE: &str = "docs/CONFORMANCE.md";

/// Mode of a run: write or check the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    Write,
    /// Fail if the page is not up to date.
    Check,
}

/// Runs `draw`, which chooses statements to break, or `break`, which breaks rules and runs their tests.
///
/// # Errors
/// If an argument is unknown, or as the documentation of [`broken`] says.
pub(crate) fn probe(house: &House, words: &[String]) -> Result<ExitCode, String> {
    let number = |word: &String| word.parse::<u64>().map_err(|_| format!("`{word}` is no number"));
    match words.split_first() {
        Some((word, ids)) if word == "break" => broken::run(house, ids),
        Some((word, [count, rest @ ..])) if word == "draw" => {
            let count = usize::try_from(number(count)?).unwrap_or(usize::MAX);
            broken::draw(house, rest.first().map(number).transpose()?, count)
        }
        _ => Err("after conformance comes nothing, `break [ID…]` or `draw COUNT [SEED]`".to_owned()),
    }
}

/// Matches statements and tests, and writes or checks the page.
///
/// # Errors
/// If a test names an unknown statement, a statement has neither a test nor an excuse, an excused statement has a
/// test, or the page is not up to date.
pub(crate) fn run(house: &House, aim: Aim, log: &mut Log) -> Result<(), String> {
    let statements = Statements::read(house.root())?;
    let evidence = Evidence::collect(house.root(), &statements)?;
    let page = page::render(&statements, &evidence);
    let path = house.root().join(PAGE);
    match aim {
        Aim::Write => fs::write(&path, page).map_err(|error| format!("{PAGE}: {error}"))?,
        Aim::Check if fs::read_to_string(&path).is_ok_and(|found| found == page) => {}
        Aim::Check => return Err(format!("{PAGE} is not current: run `cargo xtask docs`")),
    }
    judge(&statements, &evidence, log)
}

fn judge(statements: &Statements, evidence: &Evidence, log: &mut Log) -> Result<(), String> {
    let (mut shown, mut excused, mut faults) = (0, 0, Vec::new());
    for statement in statements.iter() {
        match (statement.excuse.is_empty(), evidence.of(&statement.id).is_empty()) {
            (true, false) => shown += 1,
            (false, true) => excused += 1,
            (true, true) => faults.push(format!("error: {}: no test shows it", statement.id)),
            (false, false) => faults.push(format!("error: {}: excused, and a test shows it", statement.id)),
        }
    }
    log.remark(format!("{shown} statements shown by tests, {excused} excused, {} at fault", faults.len()));
    for fault in &faults {
        log.note(fault);
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("{} statements are at fault", faults.len())) }
}
