//! The whole broker under a seeded simulation: shards, ledger, disk, network, clock and clients in one thread.
//!
//! Everything that is left to chance in the world is drawn from one number, the seed. Chance decides who has the next
//! turn and how far it gets, and which packets a client sends. It also decides when a connection is cut, when the disk
//! is slow or full or fails, and when the process ends. A judge hears what the clients hear, and knows what must be
//! true. A run that fails prints its seed, and the same seed gives the same run again.
//!
//! `cargo xtask sim` runs fresh seeds, `cargo xtask sim --seed S` one of them.

#![forbid(unsafe_code)]

mod broker;
mod client;
mod configuration;
mod controls;
mod decay;
mod discards;
mod disk;
mod most;
mod moves;
mod network;
mod operator;
mod oracle;
mod orders;
mod pressure;
mod random;
mod runs;
mod scenario;
mod scene;
mod tally;
mod trace;
mod witness;
mod world;

use std::process::ExitCode;

const USAGE: &str = "\
pondhawk-sim [--only KIND] [--seed S] [--seconds N] [--runs N] [--go-on] [--trace] [--twice]
pondhawk-sim --controls

  --only KIND  run one kind only: `ordinary`; `disk`, where the log has a bound; `memory`, where there is little;
               `held`, where threads do not run for a while; `wide`, where many get the same large messages; `reload`,
               where the configuration changes; `discard` and `move`, where an operator discards messages that wait,
               or moves them to other queues. If nothing is said, ordinary, and all kinds among the fresh seeds
  --seed S     run this seed only; with --runs, so many beginning with this one
  --seconds N  run the fixed seeds, then fresh ones for N seconds; 60 if nothing is said
  --runs N     run so many seeds, and those that have failed once
  --go-on      run the rest too when one has failed
  --trace      print every event
  --twice      run each seed twice before it counts, and fail if the runs differ
  --controls   check the simulator itself: planted faults are found, a disk that does not sync loses something, and a seed
               gives the same run again";

fn main() -> ExitCode {
    let options = match runs::Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    if runs::run(&options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
