//! Compares how codecs create, write and read packets: `cargo xtask bench codec`.
//!
//! The program prints two tables, and before them each cell in which Pondhawk is not the fastest. It fails if Pondhawk
//! allocates to create, write or read a PUBLISH, or if two codecs write different packets for one case. A separate program,
//! `crates/bench/peers/wire`, measures the codecs in Go on the same cases; without Go, `--without-go` leaves them out.
//!
//! The definition of a step favours the other codecs. Payloads that a library keeps by reference are made
//! beforehand. The result is the median of many batches, so that batches with a garbage collection do not count.
//! Codecs in Rust alternate batch by batch, and therefore share the other load of the machine.

mod cases;
#[path = "../../../index/benches/counting_allocator.rs"]
mod counting_allocator;
mod go;
mod measure;
mod ntex;
mod ours;
mod rumq;
mod table;

use cases::{Case, VALUES};
use counting_allocator::CountingAllocator;
use measure::Measured;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Time spent on each step of each case.
const BUDGET: Duration = Duration::from_millis(300);

/// The same for a run that only checks that the program works.
const SHORT_BUDGET: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = arguments.iter().find(|word| !["--short", "--without-go"].contains(&word.as_str()))
    {
        eprintln!("codec-speed takes --short and --without-go, and not {unknown}");
        return ExitCode::FAILURE;
    }
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let budget = if has("--short") { SHORT_BUDGET } else { BUDGET };
    let cases = cases::all();
    let mut measured: Vec<Measured> = cases.iter().flat_map(|case| measure_case(case, budget)).collect();
    if !has("--without-go") {
        match go::measure(&cases, &VALUES, budget) {
            Ok(peers) => measured.extend(peers),
            Err(error) => {
                eprintln!("The codecs in Go were not measured: {error}\n(--without-go leaves them out.)");
                return ExitCode::FAILURE;
            }
        }
    }
    cases.iter().for_each(|case| ours::check_all_mean_the_same(case, &measured));
    table::print(&cases, &measured);
    let faults = table::faults(&cases, &measured);
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures the codecs in Rust on one case.
fn measure_case(case: &Case, budget: Duration) -> Vec<Measured> {
    let (rumqttc, ntex) = (version_of(rumq::NAME), version_of(ntex::NAME));
    ours::with_steps(case, &VALUES, |ours| {
        let codecs = [
            Some((ours::NAME, ours)),
            rumq::steps(case, &VALUES).map(|steps| (rumqttc.as_str(), steps)),
            ntex::steps(case, &VALUES).map(|steps| (ntex.as_str(), steps)),
        ];
        measure::in_turns(case, codecs.into_iter().flatten().collect(), budget)
    })
}

/// The name of a library with the version that this program is built with.
fn version_of(library: &str) -> String {
    let mut lines = include_str!("Cargo.lock").lines();
    let name = format!("name = \"{library}\"");
    let version = lines.find(|line| *line == name).and_then(|_| lines.next());
    let version = version.and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    format!("{library} {}", version.expect("the lock file has every library"))
}
