//! The tests of every crate, with doc tests and the check of generated pages, and those that run the real binary against real
//! clients. Several test programs run at once, because most of them wait for brokers and time limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::house::House;
use crate::log::Log;

/// A program with tests, as cargo names it.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
}

/// Runs all tests, also when some of them fail.
///
/// # Errors
/// If a test fails, or cannot be built or run.
pub(crate) fn run(house: &House, log: &mut Log) -> Result<(), String> {
    house.build(log)?;
    let programs = programs(house)?;
    let failed = run_programs(house, programs, log);
    let mut doc_tests = house.cargo();
    let doc_tests = log.run(doc_tests.args(["test", "--workspace", "--doc", "--no-fail-fast"])).err();
    let programs = (!failed.is_empty()).then(|| format!("tests failed in {}", failed.join(", ")));
    let failures: Vec<String> = programs.into_iter().chain(doc_tests).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}

/// The test programs of the workspace. Those that start brokers take longest, and come first.
fn programs(house: &House) -> Result<Vec<Program>, String> {
    let mut list = house.cargo();
    list.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let listed =
        list.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !listed.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    let end_to_end = house.root().join("tests");
    let (mut first, others): (Vec<_>, Vec<_>) =
        text.lines().filter_map(Program::in_line).partition(|program| program.folder == end_to_end);
    first.extend(others);
    if first.is_empty() { Err("cargo lists no tests".to_owned()) } else { Ok(first) }
}

/// Number of programs that run at the same time, where there are as many processors.
const AT_ONCE_MAX: usize = 4;
/// Number of tests that run at the same time for each processor. Most of them wait.
const TESTS_PER_CORE: usize = 4;

/// Runs several programs at the same time. Returns the names of those that fail.
fn run_programs(house: &House, programs: Vec<Program>, log: &mut Log) -> Vec<String> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let at_once = cores.min(AT_ONCE_MAX);
    let threads = TESTS_PER_CORE * cores / at_once;
    let waiting = Mutex::new(programs.into_iter());
    let ended = Mutex::new((log, Vec::new()));
    let next = || waiting.lock().expect("no holder panics").next();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let begun = Instant::now();
                    let (result, output) = program.run(house, threads);
                    let (log, failed) = &mut *ended.lock().expect("no holder panics");
                    log.note(&format!("{output}# took {:.1} s", begun.elapsed().as_secs_f64()));
                    if let Err(error) = result {
                        log.note(&format!("error: {error}"));
                        failed.push(program.name());
                    }
                }
            });
        }
    });
    ended.into_inner().expect("no holder panics").1
}

impl Program {
    /// The program in a line of cargo's messages, if the line is about a program with tests.
    fn in_line(line: &str) -> Option<Self> {
        // The profile says so, behind which the features stand. The target may say so about another program.
        line.contains(r#""test":true},"features""#).then_some(())?;
        let path = PathBuf::from(text_of(line, "executable")?);
        let folder = Path::new(text_of(line, "manifest_path")?).parent()?.to_owned();
        Some(Self { path, folder })
    }

    /// The name of the file, with a number that cargo has given it.
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Runs the tests of this program, so many at the same time. Returns the result, and the output.
    fn run(&self, house: &House, threads: usize) -> (Result<(), String>, String) {
        let path = house.target().join("xtask").join(format!("tests-{}.log", self.name()));
        let mut log = match Log::create(path) {
            Ok(log) => log,
            Err(error) => return (Err(error), String::new()),
        };
        let mut command = house.command(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("PONDHAWK_BUILT", house.built()).env("PONDHAWK_TOOLS", house.tools());
        let result = log.run(command.env("RUST_TEST_THREADS", threads.to_string()));
        let output = log.text();
        // The output is in the log of the step too.
        let _ = fs::remove_file(log.path());
        (result, output)
    }
}

/// The text behind a name in a line of JSON, if it has no escapes.
fn text_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = line.split_once(&format!("\"{name}\":\""))?;
    Some(behind.split_once('"')?.0).filter(|text| !text.contains('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_program_with_tests_names_it() {
        let line = |test: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/pond/frog/Cargo.toml","target":{{"name":"frog","test":true}},"profile":{{"opt_level":"0","test":{test}}},"features":[],"executable":{executable},"fresh":true}}"#
            )
        };
        let found = Program::in_line(&line("true", r#""/pond/target/frog-1""#)).expect("a program");
        assert_eq!((found.name().as_str(), found.folder), ("frog-1", PathBuf::from("/pond/frog")));
        assert_eq!(Program::in_line(&line("false", r#""/pond/target/frog""#)), None, "a program itself");
        assert_eq!(Program::in_line(&line("true", "null")), None, "a library");
    }
}
