//! A random mixed load against the real broker, and quiet points in between at which everything that the broker holds is
//! what its clients explain.
//!
//! The load: forty clients of all versions that connect, subscribe, publish, leave and are cut at random, beside those of
//! [`promises`](pondhawk_tests::promises), who note what the broker has acknowledged. From time to time the broker is
//! stopped or killed, and started with another number of shards and another dispatch of shared subscriptions.
//!
//! At a quiet point the load has stopped, and everything is settled: each client makes certain what it was cut off from. Then
//! the broker's gauges, account of memory and descriptors are compared with what the clients know, three times: with
//! everybody connected; with some away and messages waiting for them; and now and then with nobody left and nothing kept.
//! Resident memory is a line through all quiet points of a broker's life, which may not rise.
//!
//! usage: `soak [--minutes N] [--seed S] [--share PERCENT]`. The seed decides what clients do, in what order; when what
//! happens is the machine's.
#![forbid(unsafe_code)]

mod acts;
mod crowd;
mod figure;
mod filter;
mod line;
mod pace;
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

/// If nothing else is said.
const MINUTES: u64 = 5;
/// Of one core.
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
    // Another one each time: what nobody has seen yet is what is looked for.
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
