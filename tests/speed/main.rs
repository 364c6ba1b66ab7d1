//! What client libraries cost: messages per second of their process's CPU time, ours beside rumqttc and paho.golang, at
//! the same broker in the same run.
//!
//! One process publishes and another one receives, both with the same library, one connection each; they do nothing
//! else. Which of them waits for the other or for the broker makes no difference to their CPU time. The libraries take
//! turns, round after round, and the figures are medians.

mod job;
mod ours;
mod pipeline;
mod rumqttc;
mod table;

use std::env;
use std::process::ExitCode;

use crate::job::{Job, Library};
use crate::table::Table;

const USAGE: &str = "usage: client-speed [--messages N] [--repeat N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("child") => {
            Job::of_arguments(&arguments[1..]).map_or_else(|| Err(USAGE.to_owned()), Job::carry_out)
        }
        Some("pipeline") => {
            let counts = counts(&arguments[1..], pipeline::USAGE);
            counts.and_then(|(messages, repeat)| pipeline::compare(messages, repeat))
        }
        _ => counts(&arguments, USAGE).and_then(|(messages, repeat)| compare(messages, repeat)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of messages and of rounds.
fn counts(arguments: &[String], usage: &str) -> Result<(usize, usize), String> {
    let (mut messages, mut repeat) = (1_000_000, 3);
    for pair in arguments.chunks(2) {
        let [flag, value] = pair else { return Err(usage.to_owned()) };
        let value = value.parse().map_err(|_| usage.to_owned())?;
        match flag.as_str() {
            "--messages" => messages = value,
            "--repeat" => repeat = value,
            _ => return Err(usage.to_owned()),
        }
    }
    Ok((messages, repeat))
}

fn compare(messages: usize, repeat: usize) -> Result<(), String> {
    let mut table = Table::default();
    for _ in 0..repeat {
        for (qos, library) in [0, 1].into_iter().flat_map(|qos| Library::ALL.map(|library| (qos, library))) {
            table.add(library, qos, job::measure(library, qos, messages)?);
        }
    }
    println!("client libraries, {messages} messages of {} bytes, MQTT 5", job::PAYLOAD_BYTES);
    println!("{table}");
    Ok(())
}
