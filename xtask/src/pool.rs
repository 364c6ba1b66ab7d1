//! Programs that run at the same time.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::log::Log;

/// A program, and its name in the log.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// Number of programs that compute at the same time: one on each processor.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, |processors| processors.get())
}

/// Starts programs in this order, at most `at_once_max` at the same time, and waits for all of them. The log gets the output
/// of each program in one piece, when the program has ended.
///
/// # Errors
/// If a program cannot be run, or fails. The others run nevertheless.
pub(crate) fn run(jobs: Vec<Job>, at_once_max: usize, log: &mut Log) -> Result<(), String> {
    let path = log.path().to_owned();
    let waiting = Mutex::new(jobs.into_iter().enumerate());
    let (log, failures) = (Mutex::new(log), Mutex::new(Vec::new()));
    let next = || locked(&waiting).next();
    let work = || {
        while let Some((number, mut job)) = next() {
            let begun = Instant::now();
            let part = Log::create(path.with_extension(format!("{number}.log")));
            let result = part.and_then(|mut part| {
                let result = part.run(&mut job.command);
                locked(&log).append(&job.name, begun.elapsed(), part);
                result
            });
            locked(&failures).extend(result.err());
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once_max {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n  ")) }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        Job { name: line.to_owned(), command }
    }

    #[test]
    fn programs_run_beside_each_other_and_the_output_of_each_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (ping, pong) = (path("ping"), path("pong"));
        assert!(Command::new("mkfifo").args([&ping, &pong]).status().unwrap().success());
        let one = shell(&format!("echo first; echo > {ping}; cat {pong}; echo last"));
        let other = shell(&format!("cat {ping}; echo between; echo > {pong}"));
        let mut log = Log::create(folder.path().join("pair.log")).unwrap();
        run(vec![one, other], 2, &mut log).unwrap();
        assert!(log.text().contains("\nfirst\n\nlast\n"), "{}", log.text());
        assert!(log.text().contains("\nbetween\n"), "{}", log.text());
    }

    #[test]
    fn a_failure_does_not_keep_others_from_running() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(folder.path().join("three.log")).unwrap();
        let failures =
            run(vec![shell("exit 3"), shell("echo runs"), shell("exit 4")], 1, &mut log).unwrap_err();
        assert!(failures.contains("status: 3") && failures.contains("status: 4"), "{failures}");
        assert!(log.text().contains("\nruns\n"));
    }
}
