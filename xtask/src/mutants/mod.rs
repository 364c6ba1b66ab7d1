//! `cargo xtask mutants`: makes small changes to the code of the pure crates, which tests should notice.
//!
//! cargo-mutants lists the changes. A random sample of them is tried, one after another, in a copy of the
//! workspace. The tests of the changed crate run first, then the tests of the crates that use it. A mutant that no
//! test notices is printed. Such a mutant needs a test, or a line in `tests/mutants/equivalent.tsv` with the reason
//! why no test can notice it.

mod known;
mod mutant;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;

use known::Known;
use mutant::Mutant;

use crate::house::House;
use crate::log::Log;
use crate::random::Random;
use crate::tools;
use crate::tree::{BUILD_SECS_MAX, Ran, Test, Tree};

/// Crates, each with the crates whose tests exercise it. Its own tests run first, and the others only if those
/// pass.
const CRATES: [(&str, &[&str]); 11] = [
    ("topic", &["topic", "wire", "index", "session"]),
    ("wire", &["wire", "session", "client"]),
    ("base", &["base", "index", "session", "ledger", "broker"]),
    ("index", &["index", "ledger", "broker"]),
    ("auth", &["auth", "broker"]),
    ("session", &["session", "ledger", "broker", "client"]),
    ("protocol", &["turn", "ledger", "broker"]),
    ("record", &["record", "ledger", "journal"]),
    ("ledger", &["ledger", "broker"]),
    ("broker", &["broker", "net"]),
    ("turn", &["turn", "net"]),
];

/// Code that the tests of other crates exercise than the rest of its crate, with these crates.
const PARTS: [(&str, &[&str]); 1] = [("crates/session/src/client/", &["session", "client"])];

/// Code in which faults were found before: thresholds, hysteresis, groups and expiry, and reconnecting clients.
/// Half of a sample comes from these files.
const FOCUS: &[&str] = &[
    "crates/base/src/budget.rs",
    "crates/base/src/gauge.rs",
    "crates/base/src/members.rs",
    "crates/broker/src/beginnings.rs",
    "crates/broker/src/flow.rs",
    "crates/broker/src/pressure.rs",
    "crates/broker/src/relief.rs",
    "crates/broker/src/requests.rs",
    "crates/ledger/src/lines/group.rs",
    "crates/ledger/src/lines/lanes.rs",
    "crates/ledger/src/lines/members.rs",
    "crates/ledger/src/delivery/expired.rs",
    "crates/ledger/src/delivery/share.rs",
    "crates/ledger/src/publishing/expired.rs",
    "crates/ledger/src/lines/sweep.rs",
    "crates/session/src/client/",
];

/// Default number of mutants. They take about 5 to 30 minutes, so they are not part of `cargo xtask test`.
const COUNT: usize = 30;

/// Options of a run.
#[derive(Debug)]
struct Options {
    seed: u64,
    count: usize,
    /// Number of mutants at the beginning of the sample that are not tried, to go on with an interrupted run.
    skip: usize,
    /// Parts of paths or descriptions, to select mutants. Empty means all mutants.
    only: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { seed: Random::seed_of_now(), count: COUNT, skip: 0, only: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            let number = |text: &String| text.parse().map_err(|_| format!("{argument} needs a number"));
            let count =
                |text: &String| number(text).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
            match argument.as_str() {
                "--seed" => options.seed = number(value()?)?,
                "--count" => options.count = count(value()?)?,
                "--skip" => options.skip = count(value()?)?,
                "--only" => options.only.push(value()?.clone()),
                other => return Err(format!("there is no option `{other}`")),
            }
        }
        Ok(options)
    }
}

/// Tries a sample of mutants, and prints each result.
///
/// # Errors
/// If cargo-mutants or the copy of the workspace cannot be made, or a test fails without any change.
pub(crate) fn run(house: &House, arguments: &[String]) -> Result<ExitCode, String> {
    let options = Options::parse(arguments)?;
    let mut log = Log::create(house.target().join("xtask/mutants.log"))?;
    let program = tools::cargo_program(house, "cargo-mutants", &mut log)?;
    let known = Known::read(house)?;
    let all = mutant::list(house, &program, &CRATES.map(|(name, _)| name))?;
    let stale: Vec<String> = known.without_mutant(&all).collect();
    for entry in &stale {
        println!("{}: there is no such mutant any more: {entry}", known::PATH);
    }
    let count = all.len();
    let sample = draw(all, &options);
    println!("{} of {count} mutants, seed {}", sample.len(), options.seed);
    let mut trial = Trial { house, tree: Tree::refresh(house)?, log, seconds_max: BTreeMap::new() };
    for name in BTreeSet::from_iter(sample.iter().skip(options.skip).flat_map(exercised_by)) {
        trial.measure(name)?;
    }
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unexplained = 0;
    for (number, mutant) in sample.iter().enumerate().skip(options.skip) {
        let (verdict, remark) = trial.try_out(mutant)?;
        *verdicts.entry(verdict).or_default() += 1;
        println!("{:>3} {verdict:<9} {}{remark}", number + 1, mutant.place());
        if verdict != SURVIVED {
            continue;
        }
        match known.reason(mutant) {
            Some(reason) => println!("    equivalent: {reason}"),
            None => {
                unexplained += 1;
                println!("{}", mutant.diff);
            }
        }
    }
    let verdicts: Vec<String> =
        verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    println!("seed {}: {}; {unexplained} of the survivors unexplained", options.seed, verdicts.join(", "));
    let is_good = unexplained == 0 && stale.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Draws a sample. Half of it comes from [`FOCUS`], if there are enough such mutants.
fn draw(all: Vec<Mutant>, options: &Options) -> Vec<Mutant> {
    let is_wanted = |mutant: &Mutant| {
        options.only.is_empty() || options.only.iter().any(|part| mutant.place().contains(part))
    };
    let is_focus = |mutant: &Mutant| FOCUS.iter().any(|path| mutant.path.starts_with(path));
    let (focus, others): (Vec<_>, Vec<_>) = all.into_iter().filter(is_wanted).partition(is_focus);
    let mut random = Random::new(options.seed);
    let at_least = options.count.saturating_sub(others.len());
    let mut sample = random.draw(focus, at_least.max(options.count / 2));
    let rest = options.count - sample.len();
    sample.extend(random.draw(others, rest));
    sample
}

/// The crates whose tests should notice a mutant.
fn exercised_by(mutant: &Mutant) -> &'static [&'static str] {
    let of_part = PARTS.iter().find(|(path, _)| mutant.path.starts_with(path));
    let of_crate = || CRATES.iter().find(|(name, _)| *name == mutant.crate_name());
    of_part.or_else(of_crate).map_or(&[], |(_, crates)| crates)
}

const SURVIVED: &str = "SURVIVED";

/// Tries mutants one after another.
struct Trial<'a> {
    house: &'a House,
    tree: Tree,
    log: Log,
    /// Time limit for the tests of each crate: 30 seconds and five times the usual duration.
    seconds_max: BTreeMap<&'static str, u64>,
}

impl Trial<'_> {
    /// Runs the tests of a crate without any change. The tests must pass, and their duration determines the time limit.
    fn measure(&mut self, name: &'static str) -> Result<(), String> {
        self.test(name, BUILD_SECS_MAX)?;
        let begun = Instant::now();
        let ran = self.test(name, BUILD_SECS_MAX)?;
        let seconds = begun.elapsed().as_secs();
        if ran != Ran::Green {
            return Err(format!(
                "the tests of {name} fail without any change: {ran:?}, see {}",
                self.log.path().display()
            ));
        }
        self.seconds_max.insert(name, 30 + 5 * seconds);
        Ok(())
    }

    fn test(&mut self, name: &str, seconds_max: u64) -> Result<Ran, String> {
        let package = format!("pondhawk-{name}");
        let targets = ["--lib", "--tests"];
        let test = Test {
            packages: &["-p", &package],
            targets: &targets,
            names: &[],
            environment: &[],
            seconds_max,
        };
        self.tree.test(self.house, &test, &mut self.log)
    }

    /// Tries a mutant. Returns the result as a word, and details.
    fn try_out(&mut self, mutant: &Mutant) -> Result<(&'static str, String), String> {
        let text = self.tree.read(&mutant.path)?;
        self.log.note(&format!("# {}", mutant.place()));
        self.tree.write(&mutant.path, &mutant.apply(&text)?)?;
        let verdict = self.judge(mutant);
        self.tree.write(&mutant.path, &text)?;
        verdict
    }

    fn judge(&mut self, mutant: &Mutant) -> Result<(&'static str, String), String> {
        for name in exercised_by(mutant) {
            let ran = self.test(name, self.seconds_max[name])?;
            let verdict = match ran {
                Ran::Green => continue,
                Ran::Red => "noticed",
                Ran::Endless => "endless",
                Ran::Unbuilt => "unbuilt",
            };
            return Ok((verdict, format!(" ({name})")));
        }
        Ok((SURVIVED, String::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(path: &str, number: usize) -> Mutant {
        let (path, position) = (path.to_owned(), format!("{number}:1"));
        Mutant { path, position, change: "replace < with <=".to_owned(), diff: String::new() }
    }

    #[test]
    fn the_files_that_are_named_are_there() {
        let house = House::new();
        let named = PARTS.iter().map(|(path, _)| *path).chain(FOCUS.iter().copied());
        let missing: Vec<&str> = named.filter(|path| !house.root().join(path).exists()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn half_of_a_sample_is_from_where_faults_have_hidden() {
        let all = |focus, others| {
            let focus = (0..focus).map(|number| mutant("crates/ledger/src/delivery/share.rs", number));
            focus
                .chain((0..others).map(|number| mutant("crates/wire/src/sink.rs", number)))
                .collect::<Vec<_>>()
        };
        let of_focus = |all: Vec<Mutant>, line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let sample = draw(all, &Options::parse(&words).unwrap());
            (sample.iter().filter(|mutant| mutant.crate_name() == "ledger").count(), sample.len())
        };
        assert_eq!(of_focus(all(100, 100), "--seed 1 --count 10"), (5, 10));
        assert_eq!(of_focus(all(2, 100), "--seed 1 --count 10"), (2, 10));
        assert_eq!(of_focus(all(100, 2), "--seed 1 --count 10"), (8, 10));
        assert_eq!(of_focus(all(1, 1), "--seed 1 --count 10"), (1, 2));
        assert_eq!(of_focus(all(100, 100), "--only sink --count 10"), (0, 10));
        assert_eq!(of_focus(all(100, 100), "--only wire --only ledger"), (15, 30));
        assert!(Options::parse(&["--count".to_owned()]).is_err());
    }

    #[test]
    fn a_mutant_is_tried_with_the_crates_that_use_its_code() {
        let crates = |path: &str| exercised_by(&mutant(path, 1)).join(" ");
        assert_eq!(crates("crates/base/src/budget.rs"), "base index session ledger broker");
        assert_eq!(crates("crates/session/src/client/publish.rs"), "session client");
        assert_eq!(crates("crates/net/src/lib.rs"), "");
    }
}
