//! Checks of the simulator itself: a seed is one run, and a fault that is planted on purpose is found.

use turn::{Fault, plant};

use crate::runs::{Run, attempt, attempt_with};
use crate::scenario::Kind;
use crate::trace::Mode;
use crate::world::World;

/// Maximum number of runs that find a planted fault.
const RUNS_PER_FAULT: u64 = 3_000;
/// Number of runs with a disk that does not sync, and how many of them must lose something at least.
const RUNS_WITHOUT_SYNCS: (u64, usize) = (40, 5);

/// Whether all checks hold. Each prints a line.
pub(crate) fn hold() -> bool {
    let faults = Fault::ALL.into_iter().filter(|fault| !is_found(*fault)).count();
    let checks = [is_repeatable(), is_lossy_without_syncs()];
    faults == 0 && checks == [true; 2]
}

/// Plants a fault and runs seeds until one of them fails. Whether one has.
fn is_found(fault: Fault) -> bool {
    plant(Some(fault));
    let kind = match fault {
        _ if fault.is_of_reload() => Kind::Reload,
        // The ledger has to wait between two letters until a client has come back and has published.
        Fault::SkippedRound => Kind::Held,
        _ => Kind::Ordinary,
    };
    let fails = |seed: &u64| attempt(Run { kind, seed: *seed }, Mode::Off).err();
    let found = (0..RUNS_PER_FAULT).find_map(|seed| fails(&seed).map(|(finding, _)| (seed, finding)));
    plant(None);
    match found {
        Some((seed, finding)) => {
            let finding: String = finding.lines().next().unwrap_or_default().chars().take(120).collect();
            println!("{fault:?} is found by seed {seed}: {finding}");
            true
        }
        None => {
            println!("{fault:?} is not found by the first {RUNS_PER_FAULT} seeds");
            false
        }
    }
}

/// Whether the first seeds of each kind give good runs, and the same again, whatever was run before.
fn is_repeatable() -> bool {
    let seeds = |kind| if kind == Kind::Wide { 1 } else { 6 };
    let runs: Vec<Run> = Kind::ALL
        .into_iter()
        .flat_map(|(_, kind)| (0..seeds(kind)).map(move |seed| Run { kind, seed }))
        .collect();
    // A digest, or the finding of a run that fails.
    let outcome =
        |run: &Run| attempt(*run, Mode::Digest).map(|tally| tally.digest).map_err(|(finding, _)| finding);
    let first: Vec<_> = runs.iter().map(outcome).collect();
    let mut again: Vec<_> = runs.iter().rev().map(outcome).collect();
    again.reverse();
    let mut differ = 0;
    for ((run, first), again) in runs.iter().zip(first).zip(again) {
        if first != again || first.is_err() {
            differ += 1;
            println!("{run:?} fails, or is not the same again: {first:?}, {again:?}");
        }
    }
    println!("{differ} of {} runs fail, or are not the same again", runs.len());
    differ == 0
}

/// Whether enough runs lose something if the disk does not sync.
fn is_lossy_without_syncs() -> bool {
    let (runs, lossy_min) = RUNS_WITHOUT_SYNCS;
    let is_lossy = |seed: &u64| {
        let run = Run { kind: Kind::Ordinary, seed: *seed };
        attempt_with(run, Mode::Off, World::ignore_syncs).is_err()
    };
    let lossy = (0..runs).filter(is_lossy).count();
    println!("{lossy} of {runs} runs lose something with a disk that does not sync; {lossy_min} are enough");
    lossy >= lossy_min
}
