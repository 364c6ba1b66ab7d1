//! Runs the tests of all crates: their programs, several at the same time, and their doc tests.
//!
//! `cargo test` runs one program after another, and many of them wait for sockets, programs and time limits.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::house::House;
use crate::log::Log;
use crate::pool::{self, Job};

/// Tests that take longest. They begin first, so that no processor waits for one of them in the end.
const LONGEST: [&str; 10] = [
    "tests abuse",
    "tests malice",
    "tests tools",
    "tests operation",
    "tests shootout",
    "tests load",
    "tests access",
    "tests migration",
    "tests clients",
    "journal log",
];

/// Builds and runs the tests of all crates.
///
/// # Errors
/// If a build or a test fails.
pub(crate) fn run(house: &House, log: &mut Log) -> Result<(), String> {
    house.build(log)?;
    let mut build = house.cargo();
    build.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let messages = log.capture(&mut build)?;
    let mut doc_tests = house.cargo();
    doc_tests.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    let mut jobs = vec![Job { name: "doc tests".to_owned(), command: doc_tests }];
    let mut programs: Vec<Program> = messages.lines().filter_map(Program::parse).collect();
    if let Some(missing) = LONGEST.iter().find(|name| programs.iter().all(|program| program.name != **name)) {
        return Err(format!("cargo has not built the tests `{missing}`"));
    }
    programs.sort_by_key(Program::rank);
    jobs.extend(programs.iter().map(|program| program.job(house)));
    pool::run(jobs, pool::processors(), log)
}

/// A program with tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// The folder of the package and the target, such as `tests operation`.
    name: String,
    /// The folder of the package, which is the working directory of its tests.
    folder: PathBuf,
    path: PathBuf,
}

impl Program {
    /// Reads one of cargo's messages. Returns `None` if it is not about a program with tests.
    fn parse(message: &str) -> Option<Self> {
        let (_, profile) = message.split_once("\"profile\":{")?;
        let (profile, _) = profile.split_once('}')?;
        let path = profile.contains("\"test\":true").then(|| text(message, "executable"))??;
        let manifest = text(message, "manifest_path")?;
        let folder = Path::new(&manifest).parent()?.to_owned();
        let (_, target) = message.split_once("\"target\":{")?;
        let name = format!("{} {}", folder.file_name()?.to_string_lossy(), text(target, "name")?);
        Some(Self { name, folder, path: path.into() })
    }

    /// Place in the order of programs: the longest one first, and those that take little time in cargo's order.
    fn rank(&self) -> usize {
        LONGEST.iter().position(|name| *name == self.name).unwrap_or(LONGEST.len())
    }

    fn job(&self, house: &House) -> Job {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("PONDHAWK_BUILT", house.built()).env("PONDHAWK_TOOLS", house.tools());
        // Most end-to-end tests wait for programs and time limits.
        command.env("RUST_TEST_THREADS", (2 * pool::processors()).to_string());
        Job { name: self.name.clone(), command }
    }
}

/// Returns the first text of this name in a JSON object.
fn text(object: &str, name: &str) -> Option<String> {
    let (_, rest) = object.split_once(&format!("\"{name}\":\""))?;
    let (text, _) = rest.split_once('"')?;
    Some(text.replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///pond/crates/a#0.1.0",
        "manifest_path":"/pond/crates/a/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"croaks",
        "src_path":"/pond/crates/a/tests/croaks.rs","edition":"2024","doc":false,"doctest":false,"test":true},
        "profile":{"opt_level":"0","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true},
        "features":[],"filenames":["/pond/target/croaks-1"],"executable":"/pond/target/croaks-1","fresh":true}"#;

    #[test]
    fn programs_with_tests_are_found_among_cargos_messages() {
        let program = Program::parse(MESSAGE).unwrap();
        assert_eq!(program.name, "a croaks");
        assert_eq!((program.folder, program.path), ("/pond/crates/a".into(), "/pond/target/croaks-1".into()));
    }

    #[test]
    fn other_programs_and_libraries_are_left_out() {
        let with_no_tests = MESSAGE.replace("\"overflow_checks\":true,\"test\":true", "\"test\":false");
        assert_eq!(Program::parse(&with_no_tests), None);
        let library = MESSAGE.replace("\"executable\":\"/pond/target/croaks-1\"", "\"executable\":null");
        assert_eq!(Program::parse(&library), None);
        assert_eq!(Program::parse("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }
}
