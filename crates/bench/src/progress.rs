//! A progress bar on standard error, if that is a terminal.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// Steps of the bar per run.
const STEPS_PER_RUN: u64 = 100;

/// Progress over all runs of a comparison.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for this many runs.
    pub(crate) fn new(runs: u64) -> Self {
        let bar = if stderr().is_terminal() {
            ProgressBar::new(runs * STEPS_PER_RUN)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} % [{elapsed}, {eta} left] {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar }
    }

    /// Run number `run` begins.
    pub(crate) fn begin(&self, run: u64, what: String) {
        self.bar.set_message(what);
        self.bar.set_position(run * STEPS_PER_RUN);
    }

    /// Of the run number `run`, `done` of `all` is done.
    pub(crate) fn advance(&self, run: u64, done: u64, all: u64) {
        let steps = (done * STEPS_PER_RUN).checked_div(all).unwrap_or(0).min(STEPS_PER_RUN);
        self.bar.set_position(run * STEPS_PER_RUN + steps);
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
