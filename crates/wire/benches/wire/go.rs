//! The codecs in Go, which a separate program measures.

use crate::cases::{Case, Values};
use crate::measure::{Costs, Measured, STEPS};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Serialize)]
struct Input<'a> {
    values: &'a Values,
    cases: &'a [Case],
    /// Time spent on each step of each case.
    budget_ns: u64,
}

#[derive(Deserialize)]
struct Output {
    codec: String,
    case: String,
    /// The encoded packet in hexadecimal digits.
    wire: String,
    steps: HashMap<String, Costs>,
}

/// The program that measures them, beside this one.
const PROGRAM: &str = "codec-speed-go";

/// Runs the program that measures all cases.
///
/// # Errors
/// If the program is not there, or fails.
pub(crate) fn measure(
    cases: &[Case],
    values: &Values,
    budget: Duration,
) -> Result<Vec<Measured>, Box<dyn Error>> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    let running = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut running = running.map_err(|error| format!("{}: {error}", program.display()))?;
    let input = Input { values, cases, budget_ns: u64::try_from(budget.as_nanos())? };
    serde_json::to_writer(running.stdin.take().ok_or("no standard input")?, &input)?;
    let outputs: Vec<Output> = serde_json::from_reader(running.stdout.take().ok_or("no standard output")?)?;
    if !running.wait()?.success() {
        return Err("the program failed".into());
    }
    outputs.into_iter().map(Output::into_measured).collect()
}

impl Output {
    fn into_measured(self) -> Result<Measured, Box<dyn Error>> {
        let costs = |step| self.steps.get(step).copied().ok_or("a step is missing");
        let [make, write, read, all] = STEPS.map(costs);
        let wire = hex(&self.wire)?;
        Ok(Measured { codec: self.codec, case: self.case, wire, costs: [make?, write?, read?, all?] })
    }
}

fn hex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}
