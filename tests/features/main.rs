//! Runs `features/*.feature` against the real broker, over TCP and over QUIC: one in a process of its own for each scenario.
//!
//! Words on the command line choose the scenarios whose names contain one of them.

mod bytes;
mod steps;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use cucumber::gherkin::Scenario;
use cucumber::writer::{Basic, Coloring, Stats as _, Verbosity};
use cucumber::{World as _, WriterExt as _, cli};
use futures::executor::block_on;

use steps::{Pond, SHARDS, USES_QUIC};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let ways = [(1, false), (4, false), (1, true), (4, true)];
    let outcomes = ways.map(|(shards, uses_quic)| run(shards, uses_quic, words.clone()));
    let passed: usize = outcomes.iter().map(|outcome| outcome.passed).sum();
    let failed: usize = outcomes.iter().map(|outcome| outcome.failed).sum();
    // An empty folder is no success.
    let is_good = failed == 0 && (passed > 0 || !words.is_empty());
    let verdict = if is_good { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Number of scenarios, or other reasons to fail.
struct Outcome {
    passed: usize,
    failed: usize,
}

fn run(shards: u16, uses_quic: bool, words: Vec<String>) -> Outcome {
    USES_QUIC.store(uses_quic, Ordering::Relaxed);
    SHARDS.store(shards, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../features");
    let output = Output::default();
    let writer = Basic::new(output.clone(), Coloring::Never, Verbosity::ShowWorld).summarized();
    let cucumber = Pond::cucumber()
        .with_writer(writer.fail_on_skipped())
        // One broker at a time; steps block.
        .max_concurrent_scenarios(1)
        // Words and flags of cargo's own harness are ours to understand.
        .with_cli(cli::Opts::<_, _, _, cli::Empty>::default());
    let is_wanted = move |scenario: &Scenario| {
        words.is_empty() || words.iter().any(|word| scenario.name.contains(word.as_str()))
    };
    let writer = block_on(cucumber.filter_run(folder, move |_, _, scenario| is_wanted(scenario)));
    let scenarios = writer.scenarios_stats();
    let failed = scenarios.failed + scenarios.skipped + writer.parsing_errors() + writer.hook_errors();
    let way = if uses_quic { "QUIC" } else { "TCP" };
    println!("features over {way}, {shards} shard(s): {} passed, {failed} failed", scenarios.passed);
    if failed > 0 {
        println!("{}", output.failures());
    }
    Outcome { passed: scenarios.passed, failed }
}

/// The output of cucumber, which is printed only after a failure.
#[derive(Debug, Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    /// The scenarios in which a step failed, and what is said of files that cannot be read.
    fn failures(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let begins = |line: &str| ["Feature", "Scenario", "["].iter().any(|word| line.starts_with(word));
        let mut blocks = vec![String::new()];
        for line in text.lines() {
            if begins(line.trim_start()) {
                blocks.push(String::new());
            }
            blocks.last_mut().expect("there is one").extend([line, "\n"]);
        }
        blocks.retain(|block| block.contains('✘') || !begins(block.trim_start()));
        blocks.concat()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
