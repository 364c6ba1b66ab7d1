//! Run after run, until one fails or the time is up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::controls;
use crate::scenario::Kind;
use crate::tally::Tally;
use crate::trace::Mode;
use crate::world::World;

/// Seeds that are run every time.
const FIXED_SEEDS: u64 = 100;
/// Seeds of which a run has failed once, for a fault of the broker, the journal, or the judge: they stay. A run is not what
/// it was after a change of what is left to chance, so what they have found has tests of its own too.
const ONCE_FAILED: [u64; 24] = [
    11, 32, 41, 322, 355, 464, 507, 736, 1_006, 1_400, 1_471, 2_002, 2_015, 2_103, 2_248, 2_362, 2_507,
    2_910, 3_107, 1_000_556, 1_004_196, 1_004_256, 1_013_632, 2_005_930,
];
/// The same of runs in which the space on the disk is what matters.
const ONCE_FAILED_OF_DISK: [u64; 14] =
    [78, 351, 365, 606, 1_412, 1_603, 2_663, 5_092, 7_004, 7_154, 20_692, 102_027, 102_313, 200_535];
/// The same of runs with reloads: what CONNECT was granted, and what CONNACK said, was not the same.
const ONCE_FAILED_OF_RELOAD: [u64; 4] = [1_573, 2_989, 5_909, 7_124];
/// The kinds of fresh seeds in turn, if nothing is said: those with a bound on the log take several times as long.
const FRESH_KINDS: [Kind; 11] = [
    Kind::Disk,
    Kind::Ordinary,
    Kind::Memory,
    Kind::Ordinary,
    Kind::Held,
    Kind::Disk,
    Kind::Reload,
    Kind::Wide,
    Kind::Discard,
    Kind::Move,
    Kind::Held,
];
/// Number of events that are shown when a run fails.
const LAST_EVENTS: usize = 80;

/// A finding may name topics and payloads, which may be long.
const FINDING_CHARS_MAX: usize = 2_000;

/// The runs that were requested.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    only: Option<Kind>,
    seed: Option<u64>,
    seconds: Option<u64>,
    runs: Option<u64>,
    trace: bool,
    twice: bool,
    /// Also after a run that has failed.
    goes_on: bool,
    /// The simulator itself is checked.
    controls: bool,
}

impl Options {
    /// # Errors
    /// The argument that cannot be understood.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                text.parse().map_err(|_| format!("{argument} needs a number, not {text}"))
            };
            match argument.as_str() {
                "--only" => options.only = Some(kind(arguments.next().as_deref())?),
                "--seed" => options.seed = Some(number()?),
                "--seconds" => options.seconds = Some(number()?),
                "--runs" => options.runs = Some(number()?),
                "--trace" => options.trace = true,
                "--twice" => options.twice = true,
                "--go-on" => options.goes_on = true,
                "--controls" => options.controls = true,
                other => return Err(format!("there is no option {other}")),
            }
        }
        Ok(options)
    }
}

/// One simulated run of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
}

/// Runs what was asked for. Whether all went well.
pub(crate) fn run(options: &Options) -> bool {
    if options.controls {
        return controls::hold();
    }
    let mode = match (options.trace, options.twice) {
        (true, _) => Mode::Print,
        (false, true) => Mode::Digest,
        (false, false) => Mode::Off,
    };
    let mut all = Summary::default();
    let begun = Instant::now();
    let kind = options.only.unwrap_or_default();
    let mut one = |run| one(run, mode, &mut all) || options.goes_on;
    let of_kind = |seed| Run { kind, seed };
    match (options.seed, options.runs) {
        (Some(seed), runs) => (seed..seed + runs.unwrap_or(1)).map(of_kind).all(&mut one),
        (None, Some(runs)) => fixed_seeds(kind, runs).all(&mut one),
        (None, None) => {
            let until = begun + Duration::from_secs(options.seconds.unwrap_or(60));
            let mut fixed = fixed_seeds(kind, FIXED_SEEDS);
            let fresh = fresh_seeds().map(|seed| Run { kind: kind_of_fresh(options.only, seed), seed });
            fixed.all(&mut one) && fresh.take_while(|_| Instant::now() < until).all(&mut one)
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let Summary { runs, failed, all } = all;
    let Tally {
        steps,
        published,
        delivered,
        crashes,
        recycled,
        failures,
        given_disk,
        tight,
        in_parts,
        reloads,
        discarded,
        moved,
        ..
    } = all;
    println!(
        "{runs} runs, {steps} steps, {published} messages published, {delivered} delivered; {crashes} crashes, {failures} \
         failures of the journal, {recycled} segments used again, {given_disk} limits raised in the end; memory was \
         short in {tight} steps, and an output above 256 KiB in {in_parts}; {reloads} reloads; {discarded} messages discarded and {moved} moved by an operator; in {seconds:.1} s"
    );
    if failed > 0 {
        println!("{failed} runs have failed");
    }
    failed == 0
}

/// The kind of this name.
fn kind(name: Option<&str>) -> Result<Kind, String> {
    let found = Kind::ALL.iter().find(|(known, _)| name == Some(known)).map(|(_, kind)| *kind);
    found.ok_or_else(|| {
        "--only needs a kind: ordinary, disk, memory, held, wide, reload, discard or move".to_owned()
    })
}

#[derive(Debug, Default)]
struct Summary {
    runs: u64,
    failed: u64,
    all: Tally,
}

impl Summary {
    fn add(&mut self, tally: &Tally) {
        let all = &mut self.all;
        all.steps += tally.steps;
        all.published += tally.published;
        all.delivered += tally.delivered;
        all.crashes += tally.crashes;
        all.recycled += tally.recycled;
        all.failures += tally.failures;
        all.given_disk += tally.given_disk;
        all.tight += tally.tight;
        all.in_parts += tally.in_parts;
        all.reloads += tally.reloads;
        all.discarded += tally.discarded;
        all.moved += tally.moved;
    }
}

/// Returns the first seeds of a kind, and the seeds that have failed once.
fn fixed_seeds(kind: Kind, first: u64) -> impl Iterator<Item = Run> {
    let once_failed: &[u64] = match kind {
        Kind::Ordinary => &ONCE_FAILED,
        Kind::Disk => &ONCE_FAILED_OF_DISK,
        Kind::Reload => &ONCE_FAILED_OF_RELOAD,
        Kind::Memory | Kind::Held | Kind::Wide | Kind::Discard | Kind::Move => &[],
    };
    let later = once_failed.iter().copied().filter(move |seed| *seed >= first);
    (0..first).chain(later).map(move |seed| Run { kind, seed })
}

/// Seeds that no run has had, most likely: the clock gives the first.
fn fresh_seeds() -> impl Iterator<Item = u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = u64::try_from(since.as_millis()).unwrap_or(0) * 1_000;
    first..
}

/// Returns the kind of a fresh run: any kind in turn, unless one kind was requested.
fn kind_of_fresh(only: Option<Kind>, seed: u64) -> Kind {
    let turn = seed % FRESH_KINDS.len() as u64;
    only.unwrap_or(FRESH_KINDS[usize::try_from(turn).expect("small")])
}

fn one(run: Run, mode: Mode, all: &mut Summary) -> bool {
    let Run { kind, seed } = run;
    all.runs += 1;
    if mode == Mode::Digest && digest_of(run) != digest_of(run) {
        println!("seed {seed}: two runs were not the same");
        all.failed += 1;
        return false;
    }
    match attempt(run, mode) {
        Ok(tally) => {
            all.add(&tally);
            true
        }
        Err((finding, _)) => {
            all.failed += 1;
            if mode != Mode::Print {
                let lines = attempt(run, Mode::Keep(LAST_EVENTS)).err().map(|(_, lines)| lines);
                lines.into_iter().flatten().for_each(|line| println!("{line}"));
            }
            let only = kind.name();
            let finding: String = finding.chars().take(FINDING_CHARS_MAX).collect();
            println!("seed {seed}: {finding}\nagain: cargo xtask sim --only {only} --seed {seed} --trace");
            false
        }
    }
}

/// Returns a digest, which is the same for two equal runs; `None` if the run failed.
fn digest_of(run: Run) -> Option<u64> {
    attempt(run, Mode::Digest).ok().map(|tally| tally.digest)
}

/// Runs one seed.
///
/// # Errors
/// What was wrong, and the last events.
pub(crate) fn attempt(run: Run, mode: Mode) -> Result<Tally, (String, Vec<String>)> {
    attempt_with(run, mode, |_| {})
}

/// The same in a world that is not as it should be.
pub(crate) fn attempt_with(
    run: Run,
    mode: Mode,
    change: impl FnOnce(&World),
) -> Result<Tally, (String, Vec<String>)> {
    let panicked = Arc::new(Mutex::new(None));
    let said = Arc::clone(&panicked);
    std::panic::set_hook(Box::new(move |panic| {
        if let Ok(mut said) = said.lock() {
            *said = Some(format!("{panic}\n{}", std::backtrace::Backtrace::capture()));
        }
    }));
    let mut world = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world = world.insert(World::new(run.kind, run.seed, mode));
        change(world);
        world.run()
    }));
    drop(std::panic::take_hook());
    let finding = match outcome {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(finding)) => finding,
        Err(_) => panicked.lock().ok().and_then(|mut said| said.take()).unwrap_or_default(),
    };
    let lines = world.iter().flat_map(|world| world.trace().lines().map(str::to_owned)).collect();
    Err((finding, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_runs_are_of_both_kinds_if_nothing_is_said() {
        let kinds = |only| (0..110).filter(move |seed| kind_of_fresh(only, *seed) == Kind::Disk).count();
        assert_eq!([None, Some(Kind::Disk), Some(Kind::Ordinary)].map(kinds), [20, 110, 0]);
    }

    #[test]
    fn options_are_read_or_refused() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(str::to_owned));
        let expected = Options { only: Some(Kind::Disk), seed: Some(7), trace: true, ..Options::default() };
        assert_eq!(parse("--only disk --seed 7 --trace"), Ok(expected));
        assert!(parse("--only disc").is_err() && parse("--only").is_err());
        assert!(parse("--seed x").is_err() && parse("--seed").is_err() && parse("--sed 7").is_err());
    }
}
