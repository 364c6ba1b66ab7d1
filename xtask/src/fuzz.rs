//! Runs the fuzz targets of `fuzz/` for a limited time. The fuzzer of `tests/fuzz`, which sends packets to a
//! running broker over TCP, runs beside them.
//!
//! The targets are ordinary cargo-fuzz targets, and `cargo fuzz run TARGET` is the way to a long search. A short
//! run only needs a build with coverage counters, which stable compilers support. CI therefore needs neither
//! cargo-fuzz nor nightly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::house::House;
use crate::log::Log;
use crate::pool::{self, Job};

/// Compiler flags of cargo-fuzz with `--sanitizer none`: coverage of edges and comparisons.
///
/// Each crate is one code generation unit, because the pass does not work across units. Debug assertions turn an
/// overflow into a crash.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions";

/// Options of a run of the fuzz targets.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Seconds for each target. Without a value, each target gets the time that it has in CI.
    seconds: Option<u32>,
    /// Whether inputs that this search finds are kept, for the next ones to begin with.
    keeps_inputs: bool,
    /// Arguments for the fuzzer over TCP: the seed, the one connection to repeat, and whether all connections use TLS.
    replay: Vec<String>,
    /// Names of the targets to run; empty for all of them.
    targets: Vec<String>,
}

/// The name of the fuzzer over TCP in the list of targets.
const TCP: &str = "tcp";
/// Default number of seconds for each target of `fuzz/`.
const SECONDS: u32 = 15;
/// Default number of seconds for the fuzzer over TCP, which mostly waits.
const TCP_SECONDS: u32 = 60;

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seconds" => {
                    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                    options.seconds = Some(seconds.ok_or("--seconds needs a whole number")?);
                }
                "--seed" | "--connection" => {
                    let number = arguments.next().filter(|number| number.parse::<u64>().is_ok());
                    let number = number.ok_or_else(|| format!("{argument} needs a whole number"))?;
                    options.replay.extend([argument.clone(), number.clone()]);
                }
                "--keep" => options.keeps_inputs = true,
                "--tls" => options.replay.push(argument.clone()),
                flag if flag.starts_with('-') => return Err(format!("there is no option `{flag}`")),
                target => options.targets.push(target.to_owned()),
            }
        }
        if options.keeps_inputs && options.is_tcp_alone() {
            return Err("--keep needs another target: the fuzzer over TCP has no inputs".to_owned());
        }
        Ok(options)
    }

    /// The fuzzer over TCP alone.
    pub(crate) fn tcp() -> Self {
        Self { targets: vec![TCP.to_owned()], ..Self::default() }
    }

    fn has_tcp(&self) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|target| target == TCP)
    }

    fn is_tcp_alone(&self) -> bool {
        self.targets == [TCP]
    }
}

/// Runs the wanted targets, and the fuzzer over TCP beside them.
///
/// # Errors
/// If a target cannot be built, or crashes; its input is then under `fuzz/artifacts`. If the fuzzer over TCP finds
/// a fault; its output then says how to reproduce the fault.
pub(crate) fn run(house: &House, options: &Options, log: &mut Log) -> Result<(), String> {
    if !options.has_tcp() {
        return run_targets(house, options, log);
    }
    let mut tcp = tcp(house, options, log)?;
    if options.is_tcp_alone() {
        return log.run(&mut tcp);
    }
    // The fuzzer over TCP waits for sockets while the targets compute.
    let tcp = log.start(&mut tcp)?;
    let targets = run_targets(house, options, log);
    let status = log.wait(tcp).map_err(|error| format!("the fuzzer over TCP: {error}"))?;
    targets?;
    if status.success() { Ok(()) } else { Err(format!("the fuzzer over TCP failed ({status})")) }
}

/// Builds the fuzzer over TCP and the broker, in the profile that checks arithmetic. Returns the fuzzer's command.
fn tcp(house: &House, options: &Options, log: &mut Log) -> Result<Command, String> {
    house.build(log)?;
    let mut fuzz = house.command(house.built().join("fuzz-tcp"));
    let seconds = options.seconds.unwrap_or(TCP_SECONDS);
    fuzz.env("PONDHAWK_BUILT", house.built()).args(["--seconds", &seconds.to_string()]);
    fuzz.args(&options.replay);
    Ok(fuzz)
}

/// Runs the wanted targets without the fuzzer over TCP.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_targets(house: &House, options: &Options, log: &mut Log) -> Result<(), String> {
    // The search begins with the packets of the table, and with the inputs that earlier searches have kept.
    log.run(&mut seeds(house))?;
    let targets = targets(house, options)?;
    let programs = build(house, house.cargo(), &targets, log)?;
    let seconds = options.seconds.unwrap_or(SECONDS);
    let jobs = targets.iter().map(|target| job(house, target, &programs, seconds));
    pool::run(jobs.collect::<Result<_, _>>()?, pool::processors(), log)?;
    if !options.keeps_inputs {
        return Ok(());
    }
    targets.iter().try_for_each(|target| keep(house, target, &programs, log))
}

/// Makes the command that writes the inputs with which a search begins.
fn seeds(house: &House) -> Command {
    let mut seeds = house.cargo();
    seeds.args(["run", "--package", "pondhawk-inputs", "--bin", "seeds"]);
    seeds
}

/// Keeps the shortest ones of the inputs that together cover as much of the target as all inputs that were found.
fn keep(house: &House, target: &str, programs: &Path, log: &mut Log) -> Result<(), String> {
    let folder = house.target().join("xtask/fuzz-kept").join(target);
    let said = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(said)?;
    }
    fs::create_dir_all(&folder).map_err(said)?;
    let corpus = house.root().join("fuzz/corpus").join(target);
    let mut merge = house.command(programs.join(target));
    log.run(merge.args(["-merge=1", "-set_cover_merge=1"]).args([&folder, &corpus]))?;
    log.run(seeds(house).args(["--", "keep", target]).arg(&folder))
}

/// Builds all targets with this cargo.
///
/// # Errors
/// If the build fails.
pub(crate) fn build_all(house: &House, cargo: Command, log: &mut Log) -> Result<(), String> {
    build(house, cargo, &targets(house, &Options::default())?, log).map(drop)
}

/// Builds the targets with this cargo, and returns the folder of their programs.
fn build(house: &House, mut cargo: Command, targets: &[String], log: &mut Log) -> Result<PathBuf, String> {
    let (host, folder) = (host(house)?, house.target().join("fuzz"));
    cargo.args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    // Flags do not apply to build scripts if the build has a target triple.
    cargo.args(["--target", &host, "--target-dir"]).arg(&folder).env("RUSTFLAGS", FLAGS);
    for target in targets {
        cargo.args(["--bin", target]);
    }
    log.run(&mut cargo)?;
    Ok(folder.join(host).join("release"))
}

/// Makes the command that runs a target for this time.
fn job(house: &House, target: &str, programs: &Path, seconds: u32) -> Result<Job, String> {
    let [corpus, artifacts] =
        ["corpus", "artifacts"].map(|folder| house.root().join("fuzz").join(folder).join(target));
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mut command = house.command(programs.join(target));
    command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    // A crash leaves its input there.
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&corpus);
    Ok(Job { name: target.to_owned(), command })
}

/// Returns the wanted targets, or else the names of all files in `fuzz/fuzz_targets`, without extension.
fn targets(house: &House, options: &Options) -> Result<Vec<String>, String> {
    if !options.targets.is_empty() {
        return Ok(options.targets.iter().filter(|target| *target != TCP).cloned().collect());
    }
    let folder = house.root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let sources = files.filter(|path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs"));
    let mut targets: Vec<String> =
        sources.filter_map(|path| path.file_stem().map(|name| name.to_string_lossy().into_owned())).collect();
    targets.sort();
    if targets.is_empty() { Err("there are no fuzz targets".to_owned()) } else { Ok(targets) }
}

fn host(house: &House) -> Result<String, String> {
    let output =
        house.command("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not name its host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_targets_and_seconds() {
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let options = parse("--seconds 5 decode").unwrap();
        assert_eq!((options.seconds, &options.targets[..]), (Some(5), &["decode".to_owned()][..]));
        assert!(!options.has_tcp() && !options.keeps_inputs && parse("--keep decode").unwrap().keeps_inputs);
        let options = parse("tcp --seed 7 --connection 8").unwrap();
        assert!(options.is_tcp_alone() && Options::tcp().is_tcp_alone());
        assert_eq!(options.replay, ["--seed", "7", "--connection", "8"]);
        assert_eq!(parse("tcp --tls").unwrap().replay, ["--tls"]);
        assert!(parse("--keep tcp").is_err() && parse("--seconds x").is_err());
        assert!(parse("--second 5").is_err());
    }
}
