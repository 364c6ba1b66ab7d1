//! Events of a run, for people.

use std::collections::VecDeque;
use std::fmt;

/// The last events of a run. It is off in the first run of a seed, which is the fast one: a run that failed is run again.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    mode: Mode,
    last: VecDeque<String>,
    /// A hash of all that was noted, which tells whether two runs were the same.
    digest: u64,
    pub(crate) step: u64,
    pub(crate) now_ms: u64,
}

/// The handling of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Events are not even put into words.
    #[default]
    Off,
    /// The last events are kept, at most this number.
    Keep(usize),
    /// Events are printed as they happen.
    Print,
    /// Events are hashed into a digest.
    Digest,
}

/// The last events are to fit a screen.
const LINE_CHARS_MAX: usize = 240;

impl Trace {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    pub(crate) fn note(&mut self, who: fmt::Arguments<'_>, what: fmt::Arguments<'_>) {
        let line = format!("{:>7} {:>9} ms  {:<8} {what}", self.step, self.now_ms, who.to_string());
        match self.mode {
            Mode::Off => {}
            Mode::Print => println!("{line}"),
            Mode::Digest => {
                for byte in line.bytes() {
                    self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
                }
            }
            Mode::Keep(lines) => {
                if self.last.len() >= lines {
                    self.last.pop_front();
                }
                self.last.push_back(line.chars().take(LINE_CHARS_MAX).collect());
            }
        }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

/// Notes an event of somebody, if anybody wants to hear of it: `note!(trace, ("shard {n}"), "reads {bytes} bytes")`.
macro_rules! note {
    ($trace:expr, ($($who:tt)+), $($what:tt)+) => {
        if $trace.is_on() {
            $trace.note(format_args!($($who)+), format_args!($($what)+));
        }
    };
}
pub(crate) use note;
