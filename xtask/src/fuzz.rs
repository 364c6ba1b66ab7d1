//! Runs the fuzz targets of `fuzz/` for a while, and beside them the fuzzer of `tests/fuzz`, which talks to a running
//! broker over TCP.
//!
//! The targets are ordinary cargo-fuzz targets, and `cargo fuzz run TARGET` is the way to search for long. A short run needs
//! no more than a build with coverage counters, which stable compilers can do, so CI does without installing
//! cargo-fuzz and without nightly.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::house::House;
use crate::log::Log;

/// What cargo-fuzz passes for `--sanitizer none`: coverage of edges and comparisons, in one unit per crate because the
/// pass does not work across units. Debug assertions make an overflow a crash.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions";

/// A run of the fuzz targets.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// For each target; if nothing else is said, as long as CI has time.
    seconds: Option<u32>,
    /// For the fuzzer over TCP: where its numbers begin, and the one connection that is to be played again.
    replay: Vec<String>,
    /// All of them if none is named.
    targets: Vec<String>,
}

/// The name of the fuzzer over TCP among the targets.
const TCP: &str = "tcp";
/// For each target of `fuzz/`.
const SECONDS: u32 = 15;
/// For the fuzzer over TCP, which runs beside them and while they are built.
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
                flag if flag.starts_with('-') => return Err(format!("there is no option `{flag}`")),
                target => options.targets.push(target.to_owned()),
            }
        }
        Ok(options)
    }

    fn has_tcp(&self) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|target| target == TCP)
    }

    fn is_tcp_alone(&self) -> bool {
        self.targets == [TCP]
    }
}

/// # Errors
/// When a target cannot be built, or crashes: its input is then under `fuzz/artifacts`. Or when the fuzzer over TCP has
/// seen something wrong: then it has said how to see it again.
pub(crate) fn run(house: &House, options: &Options, log: &mut Log) -> Result<(), String> {
    if !options.has_tcp() {
        return run_targets(house, options, log);
    }
    let mut tcp = tcp(house, options, log)?;
    if options.is_tcp_alone() {
        return log.run(&mut tcp);
    }
    // One waits for sockets where the others compute.
    let mut tcp = log.start(&mut tcp)?;
    let targets = run_targets(house, options, log);
    let status = tcp.wait().map_err(|error| format!("the fuzzer over TCP: {error}"))?;
    targets?;
    if status.success() { Ok(()) } else { Err(format!("the fuzzer over TCP failed ({status})")) }
}

/// The fuzzer over TCP, and the broker in the profile that checks arithmetic, built.
fn tcp(house: &House, options: &Options, log: &mut Log) -> Result<Command, String> {
    house.build(log)?;
    let mut fuzz = house.command(house.built().join("fuzz-tcp"));
    let seconds = options.seconds.unwrap_or(TCP_SECONDS);
    fuzz.env("PONDHAWK_BUILT", house.built()).args(["--seconds", &seconds.to_string()]);
    fuzz.args(&options.replay);
    Ok(fuzz)
}

fn run_targets(house: &House, options: &Options, log: &mut Log) -> Result<(), String> {
    // The table of packets is where the search begins.
    let mut seeds = house.cargo();
    seeds.args(["run", "--manifest-path", "fuzz/Cargo.toml", "--bin", "seeds", "--target-dir"]);
    log.run(seeds.arg(house.target().join("fuzz-seeds")))?;
    let host = host(house)?;
    let mut build = house.cargo();
    build.args([
        "build",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        &host,
        "--target-dir",
    ]);
    // A target triple keeps the flags away from build scripts.
    build.arg(house.target().join("fuzz")).env("RUSTFLAGS", FLAGS);
    let targets = targets(house, options)?;
    for target in &targets {
        build.args(["--bin", target]);
    }
    log.run(&mut build)?;
    for target in targets {
        log.note(&format!("# {target}"));
        let [corpus, artifacts] =
            ["corpus", "artifacts"].map(|folder| house.root().join("fuzz").join(folder).join(&target));
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let mut run = house.command(house.target().join("fuzz").join(&host).join("release").join(&target));
        let seconds = options.seconds.unwrap_or(SECONDS);
        run.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        run.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&corpus);
        log.run(&mut run)?;
    }
    Ok(())
}

/// The files of `fuzz/fuzz_targets`, without their ending.
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
        assert!(!options.has_tcp());
        let options = parse("tcp --seed 7 --connection 8").unwrap();
        assert!(options.is_tcp_alone());
        assert_eq!(options.replay, ["--seed", "7", "--connection", "8"]);
        assert!(parse("--seconds x").is_err());
        assert!(parse("--second 5").is_err());
    }
}
