//! The codecs in Go, which a separate program measures.

use crate::cases::{Case, Values};
use crate::measure::{Costs, Measured, STEPS};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Serialize)]
struct Input<'a> {
    values: &'a Values,
    cases: &'a [Case],
}

#[derive(Deserialize)]
struct Output {
    codec: String,
    case: String,
    /// The encoded packet in hexadecimal digits.
    wire: String,
    steps: HashMap<String, Costs>,
}

/// Builds the Go program, and runs it to measure all cases.
///
/// # Errors
/// If Go or its modules are not available, or the program fails.
pub(crate) fn measure(cases: &[Case], values: &Values) -> Result<Vec<Measured>, Box<dyn Error>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers/wire");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wire-peers");
    let built = Command::new("go").arg("build").arg("-o").arg(&program).arg(".").current_dir(source).status();
    if !built.map_err(|error| format!("go does not start: {error}"))?.success() {
        return Err("go build failed".into());
    }
    let mut running = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    serde_json::to_writer(running.stdin.take().ok_or("no standard input")?, &Input { values, cases })?;
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
