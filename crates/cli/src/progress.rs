//! Progress bars for long operations at a terminal.

use std::fs;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time before a bar appears. Shorter operations need none.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar on standard error, which appears after [`PATIENCE`]. Without a terminal there is none.
pub(crate) struct Progress {
    bar: ProgressBar,
    since: Instant,
    is_shown: bool,
    may_be_shown: bool,
}

impl Progress {
    /// A bar for `total` items of this unit.
    pub(crate) fn new(total: u64, unit: &str) -> Self {
        let template = format!("{{bar:40}} {{human_pos}} of {{human_len}} {unit}, {{per_sec}}, {{eta}} left");
        Self::with_style(Some(total), &template, true)
    }

    /// A bar for standard input, whose length is known if it is a file.
    pub(crate) fn of_input() -> Self {
        let metadata = fs::metadata("/dev/stdin").ok().filter(fs::Metadata::is_file);
        let total = metadata.map(|metadata| metadata.len());
        let template = match total {
            Some(_) => "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {bytes}, {bytes_per_sec}",
        };
        // No bar while a person types the input.
        Self::with_style(total, template, !io::stdin().is_terminal())
    }

    fn with_style(total: Option<u64>, template: &str, may_be_shown: bool) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, since: Instant::now(), is_shown: false, may_be_shown }
    }

    pub(crate) fn advance(&mut self, by: u64) {
        self.bar.inc(by);
        if self.may_be_shown && !self.is_shown && self.since.elapsed() > PATIENCE {
            self.is_shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
