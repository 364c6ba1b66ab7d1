//! Runs a random mixed load against the real broker. At quiet points in between, compares the broker's state with
//! the knowledge of its clients.
//!
//! The load has forty clients of all versions that connect, subscribe, publish, leave and lose connections at
//! random. Beside them are the clients of [`promises`](pondhawk_tests::promises), which record the broker's
//! acknowledgements. From time to time the broker is stopped or killed. It starts again with another number of
//! shards and another dispatch of shared subscriptions.
//!
//! At a quiet point the load has stopped, and each client clears up the doubts that a lost connection has left. The
//! broker's gauges, account of memory and descriptors are then compared with the knowledge of the clients, twice.
//! At first all clients are connected. Then messages wait for some absent clients or, at one in four quiet points,
//! no clients and no state are left. Resident memory is a line through all quiet points of a broker's life, which
//! must not rise.
//!
//! usage: `soak [--minutes N] [--seed S] [--share PERCENT]`. The seed determines the actions of clients and their
//! order. The machine determines their timing.
#![forbid(unsafe_code)]

mod acts;
mod crowd;
#[cfg(test)]
mod doubt;
mod figure;
mod filter;
mod line;
mod pace;
mod probe;
mod report;
mod session;
mod soak;
mod walker;
mod watcher;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::soak::{Plan, Soak};

const USAGE: &str = "usage: soak [--minutes N] [--seed S] [--share PERCENT]";

/// Default number of minutes for a run.
const MINUTES: u64 = 5;
/// Default load in percent of one core.
const SHARE_PERCENT: u64 = 25;

fn main() -> ExitCode {
    let plan = match parse(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("error: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let minutes = plan.length.as_secs() / 60;
    println!("seed {}, {minutes} minutes", plan.seed);
    let mut soak = Soak::new(plan);
    let has_ended = catch_unwind(AssertUnwindSafe(|| soak.play())).is_ok();
    println!("\n{}", soak.report);
    if has_ended && soak.report.findings.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("error: again with: cargo xtask soak --minutes {minutes} --seed {}", plan.seed);
    ExitCode::FAILURE
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    // The default seed differs each time, to find faults that no earlier run has found.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let (mut minutes, mut seed, mut share) = (MINUTES, now, SHARE_PERCENT);
    while let Some(argument) = arguments.next() {
        let number = arguments.next().and_then(|number| number.parse().ok());
        let number: u64 = number.ok_or_else(|| format!("{argument} needs a whole number"))?;
        match argument.as_str() {
            "--minutes" => minutes = number,
            "--seed" => seed = number,
            "--share" => share = number,
            _ => return Err(format!("there is no option {argument}")),
        }
    }
    Ok(Plan { length: Duration::from_secs(60 * minutes), seed, share })
}
