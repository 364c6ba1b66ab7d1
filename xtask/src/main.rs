//! The maintenance commands of Pondhawk. `cargo xtask help` lists them.
//!
//! The program has no dependencies, so that it builds in a second, even if nothing else builds.
#![forbid(unsafe_code)]

mod bench;
mod conformance;
mod cpu;
mod fuzz;
mod house;
mod log;
mod mutants;
mod package;
mod pool;
mod program;
mod random;
mod report;
mod shootout;
mod sim;
mod suite;
mod testing;
mod tools;
mod tree;
mod words;

use std::process::ExitCode;

use conformance::Aim;
use house::House;
use report::Report;

const USAGE: &str = "\
cargo xtask COMMAND

  test [STEP…]    everything that CI runs, or only these steps; installs what tests need
  docs            write the generated pages: docs/CONFIGURATION.md, docs/METRICS.md, docs/ALERTS.md and
                  docs/CONFORMANCE.md, and tables in docs/LISTENERS.md and docs/MIGRATING.md; the rules for
                  Prometheus and the board for Grafana in packaging
  conformance     write docs/CONFORMANCE.md alone, and list the statements that no test shows
  conformance draw COUNT [SEED]
                  draw statements by lot, with the tests that are named for them
  conformance break [ID…]
                  break the rules of tests/conformance/broken.tsv, all or these, and see whether those tests fail
  fmt             format all sources
  tools           install what tests need under target/tools
  fuzz [--seconds N] [--keep] [--seed N] [--connection N] [--tls] [TARGET…]
                  run the fuzz targets for as long as CI does, if nothing else is said; the target `tcp` throws
                  packets at a running broker, and sends the same ones again for the seed that it prints; with
                  --keep, the next searches begin with the inputs that these have found
  abuse [NAME…]   run the rows of tests/abuse, all or these, with their large counts
  crash [--images N] [--kills N] [--seed S]
                  cut the power of a broker under load a thousand times, kill it two hundred times, and see whether
                  what it had acknowledged is there; and whether something is lost if nothing is synced
  soak [--minutes N] [--seed S] [--share PERCENT]
                  a random mixed load against the real broker, for five minutes if nothing else is said; at each quiet
                  point everything that it holds is compared with what its clients explain
  sim [--only ordinary|disk|memory|held|wide|reload|discard|move] [--seed S] [--seconds N] [--runs N] [--go-on] [--trace] | --controls
                  run the whole broker under the seeded simulator, for a minute if nothing else is said; or plant faults
                  in it on purpose, and see whether runs find each
  mutants [--count N] [--seed S] [--skip N] [--only TEXT]…
                  change the code of the pure crates in 30 random places, one after the other, and see whether a test
                  notices; --only takes those whose path or description contains this; --skip leaves out the first N,
                  to go on with a run of the same seed
  package [--program FILE] [--also MACHINE]… [--try] [--twice]
                  make the packages of a release, for this machine and others; --try installs, upgrades and removes those for
                  Debian and RPM in a fresh system; --twice builds all of them again in another folder, and compares them
  bench [--short | NAME…]
                  take the figures of docs/BENCHMARKS.md, all or these; or only try each command
  shootout --install [NAME…]
                  install the brokers and load balancers that `pondhawk shootout` compares, all or these
  words           count comments and sentences that are hard to read, by folder
  words --list [PATH…]
                  print each of them
  words --write   lower the counts that CI allows to those of now
  words --unchanged REVISION [PATH…]
                  whether sources differ from that revision in comments alone
  semver REVISION report changes of public items since that revision that the version numbers do not allow
  deny            check licences and sources of all dependencies with cargo-deny
  help            this

The logs of the last run are in target/xtask.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match run(command, rest) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, rest: &[String]) -> Result<ExitCode, String> {
    let house = House::new();
    let mut report = Report::new(&house)?;
    match command {
        "test" => suite::run(&house, rest, &mut report)?,
        "docs" => {
            report.step("docs", |log| {
                suite::write_docs(&house).into_iter().try_for_each(|mut command| log.run(&mut command))
            });
            report.step("conformance", |log| conformance::run(&house, Aim::Write, log));
        }
        "conformance" if !rest.is_empty() => return conformance::probe(&house, rest),
        "conformance" => report.step("conformance", |log| conformance::run(&house, Aim::Write, log)),
        "fmt" => report.step("format", |log| log.run(house.cargo().args(["fmt", "--all"]))),
        "tools" => report.step("tools", |log| tools::install(&house, log)),
        "fuzz" => {
            let options = fuzz::Options::parse(rest)?;
            report.step("fuzz", |log| fuzz::run(&house, &options, log));
        }
        "abuse" => report.step("abuse", |log| suite::abuse(&house, rest, log)),
        "package" => {
            let options = package::Options::parse(rest)?;
            report.step("package", |log| package::run(&house, &options, log));
        }
        "bench" if rest == ["--short"] => report.step("bench", |log| bench::run_in_short(&house, log)),
        "bench" => report.step("bench", |log| bench::run(&house, rest, log)),
        "shootout" => {
            let ["--install", names @ ..] = &rest.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
                return Err("shootout takes --install [NAME…]".to_owned());
            };
            report.step("shootout", |log| shootout::install(&house, names, log));
        }
        "crash" => return program::CRASH.run(&house, rest),
        "soak" => return program::SOAK.run(&house, rest),
        "sim" => return sim::run(&house, rest),
        "words" => return words::run(&house, rest),
        "mutants" => return mutants::run(&house, rest),
        "semver" => {
            let [revision] = rest else { return Err("semver takes a REVISION, such as a tag".to_owned()) };
            report.step("semver", |log| tools::semver(&house, revision, log));
        }
        "deny" => report.step("deny", |log| tools::deny(&house, log)),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        other => return Err(format!("there is no command `{other}`\n\n{USAGE}")),
    }
    Ok(report.close())
}
