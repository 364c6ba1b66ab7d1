//! Runs the fuzz targets of `fuzz/` for a while.
//!
//! They are ordinary cargo-fuzz targets, and `cargo fuzz run TARGET` is the way to search for long. A short run needs
//! no more than a build with coverage counters, which stable compilers can do, so CI does without installing
//! cargo-fuzz and without nightly.

use std::fs;
use std::path::PathBuf;

use crate::house::House;
use crate::log::Log;

/// What cargo-fuzz passes for `--sanitizer none`: coverage of edges and comparisons, in one unit per crate because the
/// pass does not work across units. Debug assertions make an overflow a crash.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions";

/// A run of the fuzz targets.
#[derive(Debug)]
pub(crate) struct Options {
    /// For each target.
    seconds: u32,
    /// All of them if none is named.
    targets: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seconds: 20, targets: Vec::new() }
    }
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seconds" => {
                    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                    options.seconds = seconds.ok_or("--seconds needs a whole number")?;
                }
                flag if flag.starts_with('-') => return Err(format!("there is no option `{flag}`")),
                target => options.targets.push(target.to_owned()),
            }
        }
        Ok(options)
    }
}

/// # Errors
/// When a target cannot be built, or crashes; its input is then under `fuzz/artifacts`.
pub(crate) fn run(house: &House, options: &Options, log: &mut Log) -> Result<(), String> {
    log.run(house.cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
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
        run.arg(format!("-max_total_time={}", options.seconds)).arg("-print_final_stats=1");
        run.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&corpus);
        log.run(&mut run)?;
    }
    Ok(())
}

/// The files of `fuzz/fuzz_targets`, without their ending.
fn targets(house: &House, options: &Options) -> Result<Vec<String>, String> {
    if !options.targets.is_empty() {
        return Ok(options.targets.clone());
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
        assert_eq!((options.seconds, options.targets), (5, vec!["decode".to_owned()]));
        assert!(parse("--seconds x").is_err());
        assert!(parse("--second 5").is_err());
    }
}
