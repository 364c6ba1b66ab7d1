//! Carries out steps one after another, and reports their results.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::cpu;
use crate::house::House;
use crate::log::{self, Counts, Log};

/// The finished steps of a run.
#[derive(Debug)]
pub(crate) struct Report {
    folder: PathBuf,
    begun: Instant,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    /// Processor time of this program and of those that it has run.
    spent: Duration,
    is_good: bool,
    counts: Counts,
    remark: String,
}

impl Report {
    pub(crate) fn new(house: &House) -> Result<Self, String> {
        let folder = house.target().join("xtask");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder, begun: Instant::now(), steps: Vec::new() })
    }

    /// Carries out one step, and shows its first failure if there is one. A failure does not prevent the next
    /// steps.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce(&mut Log) -> Result<(), String>) {
        print!("{name:<12} ");
        let _ = io::stdout().flush();
        let done = carry_out(self.folder.clone(), name, work);
        println!("{}", done.step.line());
        self.note(done);
    }

    /// Begins steps that run one after another beside others, until [`finish`](Self::finish) waits for them.
    pub(crate) fn begin<'scope>(
        &self,
        steps: Vec<(&'static str, impl FnOnce(&mut Log) -> Result<(), String> + Send + 'scope)>,
        scope: &'scope Scope<'scope, '_>,
    ) -> BesideOthers<'scope> {
        let folder = self.folder.clone();
        let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
        names.iter().for_each(|name| println!("{name:<12} goes on beside the next steps"));
        let thread = scope.spawn(move || {
            steps.into_iter().map(|(name, work)| carry_out(folder.clone(), name, work)).collect()
        });
        BesideOthers { names, thread }
    }

    /// Waits for steps that run beside others.
    ///
    /// # Panics
    /// If a step has panicked.
    pub(crate) fn finish(&mut self, beside: BesideOthers<'_>) {
        for done in beside.thread.join().expect("a step that fails returns an error") {
            println!("{:<12} {}", done.step.name, done.step.line());
            self.note(done);
        }
    }

    fn note(&mut self, done: Done) {
        if let Some(failure) = done.failure {
            println!("{failure}");
        }
        self.steps.push(done.step);
    }

    /// Prints the summary. The exit code is a success if all steps succeeded.
    pub(crate) fn close(self) -> ExitCode {
        if self.steps.len() > 1 {
            println!();
            for step in &self.steps {
                println!("{:<12} {}", step.name, step.line());
            }
        }
        let checks = self.steps.iter().map(Step::checks);
        let (passed, failed) = checks.fold((0, 0), |sum, checks| (sum.0 + checks.0, sum.1 + checks.1));
        let seconds = self.begun.elapsed().as_secs();
        let spent: Duration = self.steps.iter().map(|step| step.spent).sum();
        println!(
            "\n{passed} passed, {failed} failed in {} min {:02} s, and {} s of processor time",
            seconds / 60,
            seconds % 60,
            spent.as_secs()
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Steps that run one after another beside others.
#[derive(Debug)]
pub(crate) struct BesideOthers<'scope> {
    names: Vec<&'static str>,
    thread: ScopedJoinHandle<'scope, Vec<Done>>,
}

impl BesideOthers<'_> {
    /// Whether the step is one of them.
    pub(crate) fn has(&self, step: &str) -> bool {
        self.names.contains(&step)
    }
}

/// A step that was carried out.
#[derive(Debug)]
struct Done {
    step: Step,
    /// The text to show if the step has failed.
    failure: Option<String>,
}

fn carry_out(folder: PathBuf, name: &'static str, work: impl FnOnce(&mut Log) -> Result<(), String>) -> Done {
    let (begun, spent_before) = (Instant::now(), cpu::of_thread());
    let (result, text, remark, spent) = match Log::create(folder.join(format!("{name}.log"))) {
        Ok(mut log) => {
            let result = work(&mut log).map_err(|error| (error, log.path().to_owned()));
            (result, log.text(), log.remarked().to_owned(), log.spent())
        }
        Err(error) => (Err((error, folder)), String::new(), String::new(), Duration::ZERO),
    };
    let spent = spent + cpu::of_thread().saturating_sub(spent_before);
    let counts = log::counts(&text);
    let step = Step { name, took: begun.elapsed(), spent, is_good: result.is_ok(), counts, remark };
    let failure = result.err().map(|(error, path)| {
        let tests: String =
            log::failed_tests(&text).iter().map(|test| format!("    failed: {test}\n")).collect();
        format!("{}{tests}  {error}\n  all of it: {}", log::first_failure(&text), path.display())
    });
    Done { step, failure }
}

impl Step {
    fn line(&self) -> String {
        let verdict = if self.is_good { "ok    " } else { "FAILED" };
        let Counts { passed, failed, ignored } = self.counts;
        let tests = if passed + failed > 0 {
            format!("  {passed} tests passed, {failed} failed")
        } else {
            String::new()
        };
        let ignored = if ignored > 0 { format!(", {ignored} ignored") } else { String::new() };
        let remark = if self.remark.is_empty() { String::new() } else { format!("  {}", self.remark) };
        let (took, spent) = (self.took.as_secs_f64(), self.spent.as_secs_f64());
        format!("{verdict} {took:>6.1} s {spent:>7.1} s CPU{tests}{ignored}{remark}")
    }

    /// Numbers of passed and failed checks: the tests of the step.
    ///
    /// A step without tests counts as one check. A failed step counts at least one failed check.
    fn checks(&self) -> (usize, usize) {
        match (self.is_good, self.counts) {
            (true, Counts { passed: 0, .. }) => (1, 0),
            (true, Counts { passed, .. }) => (passed, 0),
            (false, Counts { passed, failed, .. }) => (passed, failed.max(1)),
        }
    }
}
