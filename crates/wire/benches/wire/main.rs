//! Making, writing and reading packets, beside other codecs: `cargo bench -p pondhawk-wire`.
//!
//! Prints one table and fails unless Pondhawk takes fewer nanoseconds than every other codec for every step of every
//! case, and allocates nothing to write and to read a PUBLISH. The codecs in Go are measured by a program of their own,
//! in `crates/bench/peers/wire`, on the same cases; without Go, `-- --no-peers` leaves them out.
//!
//! What a step is, is chosen in favour of the others: payloads that a library keeps by reference are made before, the
//! median leaves out the batches that a garbage collector interrupted.

mod cases;
#[path = "../../../index/benches/counting_allocator.rs"]
mod counting_allocator;
mod go;
mod measure;
mod ours;
mod rumq;
mod table;

use cases::VALUES;
use counting_allocator::CountingAllocator;
use measure::Measured;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    let with_peers = !std::env::args().any(|argument| argument == "--no-peers");
    let cases = cases::all();
    let mut measured: Vec<Measured> = Vec::new();
    for case in &cases {
        measured.push(ours::measure(case, &VALUES));
        measured.extend(rumq::measure(case, &VALUES));
    }
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
