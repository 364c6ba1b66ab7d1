//! Run after run, until one fails or the time is up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::trace::Mode;
use crate::world::{Tally, World};

/// Seeds that are run every time.
const FIXED_SEEDS: u64 = 100;
/// Seeds of which a run has failed once, for a fault of the broker, the journal, or the judge: they stay. A run is not what
/// it was after a change of what is left to chance, so what they have found has tests of its own too.
const ONCE_FAILED: [u64; 23] = [
    11, 32, 41, 322, 355, 464, 507, 736, 1_006, 1_400, 2_002, 2_015, 2_103, 2_248, 2_362, 2_507, 2_910,
    3_107, 1_000_556, 1_004_196, 1_004_256, 1_013_632, 2_005_930,
];
/// So many events are shown when a run fails.
const LAST_EVENTS: usize = 80;

/// What is to be run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    seed: Option<u64>,
    seconds: Option<u64>,
    runs: Option<u64>,
    trace: bool,
    twice: bool,
}

impl Options {
    /// # Errors
    /// What cannot be understood.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                text.parse().map_err(|_| format!("{argument} needs a number, not {text}"))
            };
            match argument.as_str() {
                "--seed" => options.seed = Some(number()?),
                "--seconds" => options.seconds = Some(number()?),
                "--runs" => options.runs = Some(number()?),
                "--trace" => options.trace = true,
                "--twice" => options.twice = true,
                other => return Err(format!("there is no option {other}")),
            }
        }
        Ok(options)
    }
}

/// Runs what was asked for. Whether all went well.
pub(crate) fn run(options: &Options) -> bool {
    let mode = match (options.trace, options.twice) {
        (true, _) => Mode::Print,
        (false, true) => Mode::Digest,
        (false, false) => Mode::Off,
    };
    let mut all = Summary::default();
    let begun = Instant::now();
    let went_well = match (options.seed, options.runs) {
        (Some(seed), runs) => (seed..seed + runs.unwrap_or(1)).all(|seed| one(seed, mode, &mut all)),
        (None, Some(runs)) => fixed_seeds(runs).all(|seed| one(seed, mode, &mut all)),
        (None, None) => {
            let until = begun + Duration::from_secs(options.seconds.unwrap_or(60));
            fixed_seeds(FIXED_SEEDS).all(|seed| one(seed, mode, &mut all))
                && fresh_seeds().take_while(|_| Instant::now() < until).all(|seed| one(seed, mode, &mut all))
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let Summary { runs, all: Tally { steps, published, delivered, crashes, recycled, failures, .. } } = all;
    println!(
        "{runs} runs, {steps} steps, {published} messages published, {delivered} delivered; {crashes} crashes, {failures} \
         failures of the journal, {recycled} segments used again; in {seconds:.1} s"
    );
    went_well
}

#[derive(Debug, Default)]
struct Summary {
    runs: u64,
    all: Tally,
}

impl Summary {
    fn add(&mut self, tally: &Tally) {
        let all = &mut self.all;
        self.runs += 1;
        all.steps += tally.steps;
        all.published += tally.published;
        all.delivered += tally.delivered;
        all.crashes += tally.crashes;
        all.recycled += tally.recycled;
        all.failures += tally.failures;
    }
}

/// The first so many, and those that have failed once.
fn fixed_seeds(first: u64) -> impl Iterator<Item = u64> {
    (0..first).chain(ONCE_FAILED.into_iter().filter(move |seed| *seed >= first))
}

/// Seeds that no run has had, most likely: the clock gives the first.
fn fresh_seeds() -> impl Iterator<Item = u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = u64::try_from(since.as_millis()).unwrap_or(0) * 1_000;
    first..
}

fn one(seed: u64, mode: Mode, all: &mut Summary) -> bool {
    if mode == Mode::Digest && digest_of(seed) != digest_of(seed) {
        println!("seed {seed}: two runs were not the same");
        return false;
    }
    match attempt(seed, mode) {
        Ok(tally) => {
            all.add(&tally);
            true
        }
        Err((finding, _)) => {
            if mode != Mode::Print {
                let lines = attempt(seed, Mode::Keep(LAST_EVENTS)).err().map(|(_, lines)| lines);
                lines.into_iter().flatten().for_each(|line| println!("{line}"));
            }
            println!("seed {seed}: {finding}\nagain: cargo xtask sim --seed {seed} --trace");
            false
        }
    }
}

/// What tells whether two runs were the same; nothing if it failed.
fn digest_of(seed: u64) -> Option<u64> {
    attempt(seed, Mode::Digest).ok().map(|tally| tally.digest)
}

/// Runs one seed.
///
/// # Errors
/// What was wrong, and the last events.
fn attempt(seed: u64, mode: Mode) -> Result<Tally, (String, Vec<String>)> {
    attempt_with(seed, mode, |_| {})
}

/// The same in a world that is not as it should be.
fn attempt_with(seed: u64, mode: Mode, change: impl FnOnce(&World)) -> Result<Tally, (String, Vec<String>)> {
    let panicked = Arc::new(Mutex::new(None));
    let said = Arc::clone(&panicked);
    std::panic::set_hook(Box::new(move |panic| {
        if let Ok(mut said) = said.lock() {
            *said = Some(format!("{panic}\n{}", std::backtrace::Backtrace::capture()));
        }
    }));
    let mut world = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world = world.insert(World::new(seed, mode));
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
    fn a_seed_gives_the_same_run_again_whatever_was_run_before() {
        let digest =
            |seed| attempt(seed, Mode::Digest).map(|tally| tally.digest).map_err(|(finding, _)| finding);
        let first: Vec<_> = (0..12).map(digest).collect();
        let again: Vec<_> = (0..12).rev().map(digest).collect();
        assert_eq!(first, again.into_iter().rev().collect::<Vec<_>>());
    }

    #[test]
    fn without_syncs_something_is_lost() {
        let is_lost = |seed: &u64| attempt_with(*seed, Mode::Off, World::ignore_syncs).is_err();
        let lost = (0..40).filter(is_lost).count();
        assert!(lost > 4, "a disk that does not sync must be seen to lose something: {lost} of 40");
    }

    #[test]
    fn options_are_read_or_refused() {
        let parse = |line: &str| Options::parse(line.split_whitespace().map(str::to_owned));
        let expected = Options { seed: Some(7), trace: true, ..Options::default() };
        assert_eq!(parse("--seed 7 --trace"), Ok(expected));
        assert!(parse("--seed x").is_err() && parse("--seed").is_err() && parse("--sed 7").is_err());
    }
}
