//! A workload: one test of `bench`, as many messages as the time is for.

use std::time::Duration;

use clap::Parser;
use wire::{Qos, Version};

use super::description::WorkloadEntry;
use crate::args::{BenchArgs, BenchCommand, ComparisonArgs};
use crate::campaign::new_run_id;
use crate::error::{Error, Result};
use crate::load::{FloodTest, IdleTest, ManyTest, OfflineTest, Pattern, PingtestTest, Test};
use crate::measure::{Generator, Measured, Target};

/// Messages as the words say, divided by this, are the first piece of a warm-up.
const WARM_UP_DIVISOR: f64 = 4.0;

/// A run of which no message count is known has at least this many messages of each publisher.
const MESSAGES_MIN: f64 = 10.0;

/// A workload that can be run.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) entry: WorkloadEntry,
    load: Load,
    pub(super) version: Version,
}

/// The tests that take part in a shoot-out.
#[derive(Debug)]
enum Load {
    Flood(FloodTest),
    Pingtest(PingtestTest),
    Idle(IdleTest),
    Many(ManyTest),
    Offline(OfflineTest),
}

/// How much is sent in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Amount {
    /// As much as the words of the workload say.
    AsWritten,
    /// A quarter of it: nobody knows yet how fast the server is.
    WarmUp,
    /// As much as takes this time at this rate in messages per second.
    For { rate: f64, seconds: f64 },
    /// The same, on schedule: latency then counts from when a message was due.
    Paced { rate: f64, seconds: f64 },
}

/// The line that is parsed as the words behind `pondhawk bench`.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

impl Workload {
    /// Parses the words of a workload.
    ///
    /// # Errors
    /// [`Error::Arguments`] if they are no test, or one that cannot take part.
    pub(super) fn new(entry: WorkloadEntry) -> Result<Self> {
        let in_workload = |what: String| Error::Arguments(format!("workload `{}`: {what}", entry.name));
        let line = Line::try_parse_from(entry.bench.split_whitespace());
        let line = line.map_err(|error| in_workload(error.to_string()))?;
        let (load, comparison) = Load::of(line.bench.command()).map_err(in_workload)?;
        if comparison.is_chosen() {
            let what = "servers, processors and rounds are keys of the file, and no words of a workload";
            return Err(in_workload(what.to_owned()));
        }
        let can_share = matches!(&load, Load::Pingtest(test) if test.rate.is_none());
        if !entry.shares_of_best.is_empty() && !can_share {
            return Err(in_workload("`shares_of_best` is for pingtest without --rate".to_owned()));
        }
        if let Some(share) =
            entry.shares_of_best.iter().find(|share| !(0.0..=1.0).contains(*share) || **share == 0.0)
        {
            return Err(in_workload(format!("{share} is no share of a rate")));
        }
        Ok(Self { entry, load, version: comparison.version })
    }

    /// The column headings, one for each size. The shares of the best rate follow the sizes.
    pub(super) fn sizes(&self) -> Vec<String> {
        let sizes = self.load.sizes();
        let share = |share: &f64| format!("{:.0} % of the best rate", share * 100.0);
        sizes.into_iter().chain(self.entry.shares_of_best.iter().map(share)).collect()
    }

    /// The share of the best rate that the size with this index stands for, if it does.
    pub(super) fn share_of_best(&self, size: usize) -> Option<f64> {
        self.entry.shares_of_best.get(size.checked_sub(self.load.sizes().len())?).copied()
    }

    /// Connections of the largest size.
    pub(super) fn connections_max(&self) -> u64 {
        (0..self.load.sizes().len()).map(|size| self.load.connections(size)).max().unwrap_or(0)
    }

    /// Number of connections that the size with this index names.
    pub(super) fn connections(&self, size: usize) -> u64 {
        let size = size.min(self.load.sizes().len() - 1);
        match &self.load {
            // One more may change its subscriptions.
            Load::Flood(test) => test.sizes[size].into(),
            load => load.connections(size),
        }
    }

    pub(super) fn qos(&self) -> Qos {
        self.load.qos()
    }

    /// Whether the number of messages can be chosen.
    pub(super) fn is_scalable(&self) -> bool {
        matches!(self.load, Load::Flood(_) | Load::Pingtest(_))
    }

    /// Messages per second, if the words give a rate, which is the same for all servers.
    pub(super) fn rate(&self) -> Option<f64> {
        match &self.load {
            Load::Pingtest(test) => test.rate.map(|requests| 2.0 * requests),
            Load::Many(_) | Load::Flood(_) | Load::Idle(_) | Load::Offline(_) => None,
        }
    }

    /// Whether messages of the size with this index are sent on schedule: their rate then says nothing about the server.
    pub(super) fn is_paced(&self, size: usize) -> bool {
        self.share_of_best(size).is_some() || self.rate().is_some() || matches!(self.load, Load::Many(_))
    }

    /// Time that the words give to a run, if they do.
    pub(super) fn duration(&self) -> Duration {
        match &self.load {
            Load::Many(test) => test.duration,
            Load::Offline(test) => test.duration,
            Load::Flood(_) | Load::Pingtest(_) | Load::Idle(_) => Duration::ZERO,
        }
    }

    /// Runs the size with this index once. Returns the figures, and the words with which `bench` repeats the run.
    ///
    /// # Errors
    /// Those of [`Generator::measure`].
    pub(super) fn run(
        &self,
        size: usize,
        amount: Amount,
        generator: &Generator,
        target: &Target,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<(Measured, String)> {
        let size = size.min(self.load.sizes().len() - 1);
        let (run, workers) = (new_run_id(), generator.workers);
        let generator = &Generator { version: self.version, ..generator.clone() };
        let look = |_, _| check();
        match &self.load {
            Load::Flood(test) => {
                let messages = amount.messages(test.messages, test.deliveries_of_one_each(size));
                let test = FloodTest { messages, ..test.clone() };
                let measured = generator.measure(test.parts(size, run, workers), target, look)?;
                Ok((measured, format!("--messages {messages}")))
            }
            Load::Pingtest(test) => {
                // A request and its reply are two messages.
                let pairs = u64::from(test.sizes[size].pairs);
                let messages = amount.messages(test.messages, 2 * pairs);
                let rate = amount.requests_per_sec();
                let test = PingtestTest { messages, rate, ..test.clone() };
                let measured = generator.measure(test.parts(size, run, workers), target, look)?;
                let rate = rate.map_or(String::new(), |rate| format!(" --rate {rate:.0}"));
                Ok((measured, format!("--messages {messages}{rate}")))
            }
            Load::Idle(test) => {
                generator.measure(test.parts(size, run, workers), target, look).map(as_written)
            }
            Load::Many(test) => {
                generator.measure(test.parts(size, run, workers), target, look).map(as_written)
            }
            Load::Offline(test) => {
                generator.measure(test.parts(size, run, workers), target, look).map(as_written)
            }
        }
    }
}

impl Amount {
    /// Messages of each publisher. If each publisher sends one, there are `deliveries`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    fn messages(self, as_written: u64, deliveries: u64) -> u64 {
        let scaled = match self {
            Self::AsWritten => return as_written,
            Self::WarmUp => as_written as f64 / WARM_UP_DIVISOR,
            Self::For { rate, seconds } | Self::Paced { rate, seconds } => {
                rate * seconds / deliveries.max(1) as f64
            }
        };
        scaled.round().max(MESSAGES_MIN) as u64
    }

    /// Requests of all pairs in a second, of which each is half of the messages.
    fn requests_per_sec(self) -> Option<f64> {
        match self {
            Self::Paced { rate, .. } => Some(rate / 2.0),
            Self::AsWritten | Self::WarmUp | Self::For { .. } => None,
        }
    }
}

fn as_written(measured: Measured) -> (Measured, String) {
    (measured, String::new())
}

impl Load {
    fn of(command: BenchCommand) -> std::result::Result<(Self, ComparisonArgs), String> {
        match command {
            BenchCommand::Loadtest(args) => {
                args.flood.check_pairs().map_err(|error| error.to_string())?;
                Ok((Self::Flood(args.test()), args.flood.comparison))
            }
            BenchCommand::Fanout(args) => Ok((Self::Flood(args.test(Pattern::OneToMany)), args.comparison)),
            BenchCommand::Fanin(args) => Ok((Self::Flood(args.test(Pattern::ManyToOne)), args.comparison)),
            BenchCommand::Pingtest(args) => Ok((Self::Pingtest(args.test()), args.comparison)),
            BenchCommand::Idle(args) => Ok((Self::Idle(args.test()), args.comparison)),
            BenchCommand::Many(args) => Ok((Self::Many(args.test()), args.comparison)),
            BenchCommand::OfflineSessions(args) => Ok((Self::Offline(args.test()), args.comparison)),
            _ => Err("only loadtest, fanout, fanin, pingtest, idle, many and offline-sessions can take part"
                .to_owned()),
        }
    }

    fn sizes(&self) -> Vec<String> {
        match self {
            Self::Flood(test) => Test::sizes(test),
            Self::Pingtest(test) => Test::sizes(test),
            Self::Idle(test) => Test::sizes(test),
            Self::Many(test) => Test::sizes(test),
            Self::Offline(test) => Test::sizes(test),
        }
    }

    fn connections(&self, size: usize) -> u64 {
        match self {
            Self::Flood(test) => test.connections(size),
            Self::Pingtest(test) => test.connections(size),
            Self::Idle(test) => test.connections(size),
            Self::Many(test) => test.connections(size),
            Self::Offline(test) => test.connections(size),
        }
    }

    fn qos(&self) -> Qos {
        match self {
            Self::Flood(test) => Test::qos(test),
            Self::Pingtest(test) => Test::qos(test),
            Self::Idle(test) => Test::qos(test),
            Self::Many(test) => Test::qos(test),
            Self::Offline(test) => Test::qos(test),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(bench: &str, shares_of_best: &[f64]) -> WorkloadEntry {
        WorkloadEntry {
            name: "mine".into(),
            title: "Mine".into(),
            text: String::new(),
            bench: bench.into(),
            shares_of_best: shares_of_best.to_vec(),
            rounds_max: None,
            with_relay: false,
        }
    }

    #[test]
    fn shares_of_the_best_rate_are_sizes_behind_those_of_the_test() {
        let workload = Workload::new(entry("pingtest --sizes 20p0w --messages 50", &[0.5, 0.9])).unwrap();
        assert_eq!(workload.sizes(), ["20p0w", "50 % of the best rate", "90 % of the best rate"]);
        assert_eq!([0, 1, 2].map(|size| workload.share_of_best(size)), [None, Some(0.5), Some(0.9)]);
        assert_eq!([0, 2].map(|size| workload.connections(size)), [40, 40]);
    }

    #[test]
    fn words_that_cannot_take_part_are_refused() {
        for (words, needle) in [
            ("hostile", "can take part"),
            ("loadtest --conns 3", "is odd"),
            ("loadtest --with-mosquitto", "keys of the file"),
            ("loadtest --repeat 3", "keys of the file"),
            ("loadtest --no-such-flag", "--no-such-flag"),
        ] {
            let error = Workload::new(entry(words, &[])).unwrap_err().to_string();
            assert!(error.contains("`mine`") && error.contains(needle), "{words}: {error}");
        }
        let error = Workload::new(entry("loadtest --conns 4", &[0.5])).unwrap_err().to_string();
        assert!(error.contains("pingtest"), "{error}");
        for share in [0.0, -1.0, 1.5, f64::NAN] {
            let error = Workload::new(entry("pingtest", &[share])).unwrap_err().to_string();
            assert!(error.contains("no share of a rate"), "{error}");
        }
    }

    #[test]
    fn a_run_is_as_long_as_its_rate_makes_it() {
        let amount = Amount::For { rate: 10_000.0, seconds: 2.0 };
        assert_eq!(amount.messages(77, 50), 400);
        assert_eq!(amount.messages(77, 1_000_000), 10);
        assert_eq!(Amount::AsWritten.messages(77, 50), 77);
        assert_eq!(Amount::Paced { rate: 600.0, seconds: 1.0 }.requests_per_sec(), Some(300.0));
    }
}
