//! Another program that a test runs.

use std::io;
use std::process::{Child, Command};
use std::thread;

use crate::DEADLINE;
use crate::log::{Log, Progress};

/// A program that runs beside the test, ended when this is dropped. What it has written is shown if the test fails.
#[derive(Debug)]
pub struct Program {
    name: String,
    process: Child,
    output: Log,
}

impl Program {
    /// Starts it. Both its outputs are collected as one.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn start(mut command: Command) -> Self {
        let name = format!("{:?}", command.get_program());
        let (reader, writer) = io::pipe().expect("the system has pipes");
        command.stdout(writer.try_clone().expect("a pipe can be shared")).stderr(writer);
        let process = command.spawn().unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
        // The command holds our ends for writing: the output ends when the program has.
        drop(command);
        Self { name, process, output: Log::collect(reader) }
    }

    /// The first line of its output that contains `needle`, as soon as there is one.
    ///
    /// # Panics
    /// When there is none before the deadline.
    pub fn wait_for(&self, needle: &str) -> String {
        let line = self.output.wait_for(needle, DEADLINE);
        line.unwrap_or_else(|| panic!("{} never says {needle:?}", self.name))
    }

    /// Waits until it has ended with success, and returns what it wrote. As long as it writes it has time.
    ///
    /// # Panics
    /// When it fails, or writes nothing more and does not end before the deadline.
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

    /// Ends it without asking.
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
