//! A program that a test runs in a process of its own.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::DEADLINE;
use crate::log::{Log, Progress};

/// Copies a program, or a script, to `to` and makes the copy executable.
///
/// `install` writes the copy. A file that is open for writing cannot be executed, and a child that another thread of
/// the tests starts would inherit a descriptor of a copy that the tests write.
///
/// # Panics
/// If `from` does not exist, or `to` cannot be written.
pub fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status();
    let status = status.expect("the system has install");
    assert!(status.success(), "{} cannot be installed as {}", from.display(), to.display());
}

/// A program that runs beside the test, and is killed on drop. Its output is shown if the test fails.
#[derive(Debug)]
pub struct Program {
    name: String,
    process: Child,
    output: Log,
}

impl Program {
    /// Starts the program. Standard output and standard error are collected as one log.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn start(mut command: Command) -> Self {
        let name = format!("{:?}", command.get_program());
        let (reader, writer) = io::pipe().expect("the system has pipes");
        command.stdout(writer.try_clone().expect("a pipe can be shared")).stderr(writer);
        let process = command.spawn().unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
        // The command contains the writing ends of the pipe. The output must end when the program ends.
        drop(command);
        Self { name, process, output: Log::collect(reader) }
    }

    /// The number of the process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGTERM.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn terminate(&self) {
        let process = Pid::from_child(&self.process);
        kill_process(process, Signal::TERM).expect("the program runs");
    }

    /// Waits for the first line of output that contains `needle`, and returns the line.
    ///
    /// # Panics
    /// If there is no such line before the deadline.
    pub fn wait_for(&self, needle: &str) -> String {
        let line = self.output.wait_for(needle, DEADLINE);
        line.unwrap_or_else(|| panic!("{} never says {needle:?}", self.name))
    }

    /// Waits until the program has ended with success, and returns its output. Each new line extends the deadline.
    ///
    /// # Panics
    /// If the program fails, or neither writes a line nor ends before the deadline.
    pub fn finish(mut self) -> String {
        let mut lines = 0;
        loop {
            match self.output.wait_for_more(lines, DEADLINE) {
                Progress::Lines(count) => lines = count,
                Progress::Ended => break,
                Progress::None => panic!("{} does not end", self.name),
            }
        }
        let status = self.process.wait().expect("our own child can be waited for");
        assert!(status.success(), "{} failed ({status})", self.name);
        self.output.text()
    }

    /// Kills the program with SIGKILL, and waits for its end.
    pub fn kill(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- output of {} ---\n{}\n---", self.name, self.output.text());
        }
    }
}
