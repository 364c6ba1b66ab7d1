//! What client libraries cost: messages per second of their process's CPU time, ours beside rumqttc and paho.golang, at
//! the same broker in the same run.
//!
//! One process publishes and another one receives, both with the same library, one connection each; they do nothing
//! else. Which of them waits for the other or for the broker makes no difference to their CPU time. The libraries take
//! turns, round after round, and the figures are medians.

mod job;
mod ours;
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
        _ => compare(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &[String]) -> Result<(), String> {
    let (mut messages, mut repeat) = (1_000_000, 3);
    for pair in arguments.chunks(2) {
        let [flag, value] = pair else { return Err(USAGE.to_owned()) };
        let value = value.parse().map_err(|_| USAGE.to_owned())?;
        match flag.as_str() {
            "--messages" => messages = value,
            "--repeat" => repeat = value,
            _ => return Err(USAGE.to_owned()),
        }
    }
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
