//! The output of the programs in one step: stored in a file, and summarised for the terminal.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::cpu;

/// The log file of one step.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    remark: String,
    spent: Duration,
}

/// Numbers of tests in a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Log {
    pub(crate) fn create(path: PathBuf) -> Result<Self, String> {
        let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, file, remark: String::new(), spent: Duration::ZERO })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a program, and writes its standard output and standard error to the log.
    ///
    /// # Errors
    /// If the program cannot be run, or fails.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<(), String> {
        let program = self.start(command)?;
        self.expect_success(command, program)
    }

    /// Runs a program, and returns its standard output. Only its standard error goes to the log.
    ///
    /// # Errors
    /// If the program cannot be run, or fails.
    pub(crate) fn capture(&mut self, command: &mut Command) -> Result<String, String> {
        command.stdout(Stdio::piped());
        let mut program = self.spawn(command)?;
        let mut output = String::new();
        let read = program.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut output));
        self.expect_success(command, program)?;
        read.map_err(|error| format!("`{}`: {error}", command_line(command)))?;
        Ok(output)
    }

    /// Waits for a program that this log has [started](Self::start), and adds its processor time.
    ///
    /// # Errors
    /// If the program cannot be waited for.
    pub(crate) fn wait(&mut self, mut program: Child) -> Result<ExitStatus, String> {
        let (status, spent) = cpu::wait(&mut program).map_err(|error| error.to_string())?;
        self.spent += spent;
        Ok(status)
    }

    fn expect_success(&mut self, command: &Command, program: Child) -> Result<(), String> {
        let line = command_line(command);
        let status = self.wait(program).map_err(|error| format!("`{line}`: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("`{line}` failed ({status})")) }
    }

    /// Starts a program, whose standard output and standard error go to the log. Returns without waiting for it.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub(crate) fn start(&mut self, command: &mut Command) -> Result<Child, String> {
        command.stdout(self.output()?);
        self.spawn(command)
    }

    /// Starts a program, whose standard error goes to the log.
    fn spawn(&mut self, command: &mut Command) -> Result<Child, String> {
        let line = command_line(command);
        self.note(&format!("$ {line}"));
        command.stdin(Stdio::null()).stderr(self.output()?);
        command.spawn().map_err(|error| format!("cannot run `{line}`: {error}"))
    }

    fn output(&self) -> Result<File, String> {
        self.file.try_clone().map_err(|error| error.to_string())
    }

    /// Appends the log of a program that has ended after this time, and removes its file.
    pub(crate) fn append(&mut self, name: &str, took: Duration, part: Self) {
        let (took, spent) = (took.as_secs_f64(), part.spent.as_secs_f64());
        self.note(&format!("# {name}: {took:.1} s, and {spent:.1} s of processor time\n{}", part.text()));
        self.spent += part.spent;
        // A file that stays is overwritten by the next run.
        let _ = fs::remove_file(part.path);
    }

    /// Processor time of the programs that were waited for.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// Writes a line to the log.
    pub(crate) fn note(&mut self, line: &str) {
        // A failed write is not an error: the missing line shows when somebody reads the log.
        let _ = writeln!(self.file, "{line}");
    }

    /// Writes a remark, which is shown even if the step succeeds.
    pub(crate) fn remark(&mut self, remark: String) {
        self.note(&remark);
        self.remark = remark;
    }

    /// The last [remark](Self::remark); may be empty.
    pub(crate) fn remarked(&self) -> &str {
        &self.remark
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.path).unwrap_or_default()).into_owned()
    }
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Adds up the results of tests in a log.
///
/// The lines of cargo's test harness (`test result: ok. 3 passed; …`) count.
pub(crate) fn counts(log: &str) -> Counts {
    let mut counts = Counts::default();
    for line in log.lines() {
        let line = line.trim();
        if line.starts_with("test result: ") {
            counts.passed += number_before(line, "passed");
            counts.failed += number_before(line, "failed");
            counts.ignored += number_before(line, "ignored");
        }
    }
    counts
}

/// The number before the word, such as the 3 in `3 passed`; 0 if there is none.
fn number_before(line: &str, word: &str) -> usize {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// Maximum number of lines of a failure that are shown. The rest is in the log.
const EXCERPT_LINES: usize = 60;

/// Returns the first failure in a log.
pub(crate) fn first_failure(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let begins = |line: &&str| {
        ["error", "warning: ", "Diff in ", "---- ", "SUMMARY:"].iter().any(|start| line.starts_with(start))
            || line.contains("panicked at")
            || line.contains('✘')
    };
    let tail = lines.len().saturating_sub(EXCERPT_LINES);
    let first = lines.iter().position(begins).unwrap_or(tail);
    lines[first..].iter().take(EXCERPT_LINES).map(|line| format!("    {line}\n")).collect()
}

/// Returns the names of the failed tests in a log of cargo's test harness.
pub(crate) fn failed_tests(log: &str) -> Vec<&str> {
    let name = |line| str::strip_prefix(line, "test ")?.strip_suffix(" ... FAILED");
    log.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named() {
        let log = "test pond::croaks ... ok\ntest pond::hops ... FAILED\ntest result: FAILED. 1 passed; 1 failed\n\
            failures:\n    pond::hops\ntest swims - should panic ... FAILED\n";
        assert_eq!(failed_tests(log), ["pond::hops", "swims - should panic"]);
    }

    #[test]
    fn the_tests_of_all_programs_are_added_up() {
        let log = "test result: ok. 13 passed; 0 failed; 1 ignored; 0 measured\n\
            test result: FAILED. 2 passed; 3 failed; 0 ignored\n9 passed nothing";
        assert_eq!(counts(log), Counts { passed: 15, failed: 3, ignored: 1 });
    }

    #[test]
    fn the_first_failure_is_shown_with_what_follows() {
        let log = "$ cargo test\n   Compiling a\nerror[E0001]: bad\n --> a.rs\nerror: worse";
        assert_eq!(first_failure(log), "    error[E0001]: bad\n     --> a.rs\n    error: worse\n");
        assert_eq!(first_failure("a\nb"), "    a\n    b\n", "without a mark, the end");
    }
}
