//! Compares how codecs make, write and read packets: `cargo bench -p pondhawk-wire`.
//!
//! The benchmark prints one table. The run fails unless Pondhawk takes fewer nanoseconds than every other codec for
//! every step of every case, and allocates nothing to write and to read a PUBLISH. A separate program in
//! `crates/bench/peers/wire` measures the codecs in Go on the same cases; without Go, `-- --no-peers` leaves them
//! out.
//!
//! The definition of a step favours the other codecs. Payloads that a library keeps by reference are made
//! beforehand. The result is the median of many batches, so that batches with a garbage collection do not count.
//! Codecs in Rust alternate batch by batch, and therefore share the other load of the machine.

mod cases;
#[path = "../../../index/benches/counting_allocator.rs"]
mod counting_allocator;
mod go;
mod measure;
mod ours;
mod rumq;
mod table;

use cases::{Case, VALUES};
use counting_allocator::CountingAllocator;
use measure::Measured;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    let with_peers = !std::env::args().any(|argument| argument == "--no-peers");
    let cases = cases::all();
    let mut measured: Vec<Measured> = cases.iter().flat_map(measure_case).collect();
    if with_peers {
        match go::measure(&cases, &VALUES) {
            Ok(peers) => measured.extend(peers),
            Err(error) => {
                eprintln!("The codecs in Go were not measured: {error}\n(-- --no-peers leaves them out.)");
                return ExitCode::FAILURE;
            }
        }
    }
    cases.iter().for_each(|case| ours::check_all_mean_the_same(case, &measured));
    table::print(&cases, &measured);
    let faults = table::faults(&cases, &measured);
    faults.iter().for_each(|fault| println!("{fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures the codecs in Rust on one case.
fn measure_case(case: &Case) -> Vec<Measured> {
    ours::with_steps(case, &VALUES, |ours| {
        let codecs = [Some((ours::NAME, ours)), rumq::steps(case, &VALUES).map(|steps| (rumq::NAME, steps))];
        measure::in_turns(case, codecs.into_iter().flatten().collect())
    })
}
