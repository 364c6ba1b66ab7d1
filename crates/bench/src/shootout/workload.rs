//! A workload: one test of `bench`, as many messages as the time is for.

use std::fmt::Debug;
use std::time::Duration;

use clap::Parser;
use serde::{Deserialize, Serialize};
use wire::{Qos, Version};

use super::agents::{self, Fleet};
use super::description::WorkloadEntry;
use super::results::Role;
use crate::args::{BenchArgs, BenchCommand, ComparisonArgs, POSITIVE};
use crate::campaign::new_run_id;
use crate::error::{Error, Result};
use crate::layers::Over;
use crate::load::{Counted, EchoTest, FloodTest, Pattern, PingtestTest, Test, TroubleTest};
use crate::measure::{Conductor, Generator, Measured, Target};
use crate::message::RunId;

/// Messages as the words say, divided by this, are the first piece of a warm-up.
const WARM_UP_DIVISOR: f64 = 4.0;

/// A run of which no message count is known has at least this many messages of each publisher.
const MESSAGES_MIN: f64 = 10.0;

/// Maximum number of threads of all agents.
const THREADS_MAX: usize = 4_096;

/// The tests that can take part.
const TESTS: &str = "loadtest, fanout, fanin, pingtest, echo, connects, idle, many, offline-sessions, slow-consumer, storm, \
    retained-flood, shared-queue and handshakes";

/// A workload that can be run.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) entry: WorkloadEntry,
    load: Load,
    pub(super) version: Version,
    /// The layers of all connections.
    pub(super) over: Over,
}

/// The tests that take part in a shoot-out.
#[derive(Debug)]
enum Load {
    // The number of messages of these three can be chosen.
    Flood(FloodTest),
    Pingtest(PingtestTest),
    Echo(EchoTest),
    AsWritten {
        test: Box<dyn AnyTest>,
        /// Time that the words give to a run.
        duration: Duration,
        /// Whether messages are sent on schedule.
        is_paced: bool,
    },
}

/// A [`Test`] of any kind.
trait AnyTest: Debug {
    fn sizes(&self) -> Vec<String>;
    fn connections(&self, size: usize) -> u64;
    fn qos(&self) -> Qos;
    fn counted(&self) -> Counted;
    fn needs_tls(&self) -> bool;
    fn controls(&self) -> usize;
    fn suits_relay(&self, size: usize) -> bool;
    fn run(
        &self,
        size: usize,
        generator: &Generator,
        target: &Target,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Measured>;
    fn run_part(
        &self,
        size: usize,
        part: Part,
        generator: &Generator,
        target: &Target,
        conductor: &mut dyn Conductor,
    ) -> Result<Measured>;
}

/// The threads of one agent among those of all agents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) run: RunId,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Number of all threads.
    pub(super) threads: usize,
}

/// The place from which a load comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'a> {
    Here(&'a Generator),
    Agents(&'a Fleet),
}

impl<T: Test + Debug> AnyTest for T {
    fn sizes(&self) -> Vec<String> {
        Test::sizes(self)
    }

    fn connections(&self, size: usize) -> u64 {
        Test::connections(self, size)
    }

    fn qos(&self) -> Qos {
        Test::qos(self)
    }

    fn counted(&self) -> Counted {
        Test::counted(self)
    }

    fn needs_tls(&self) -> bool {
        Test::needs_tls(self)
    }

    fn controls(&self) -> usize {
        Test::controls(self)
    }

    fn suits_relay(&self, size: usize) -> bool {
        Test::suits_relay(self, size)
    }

    fn run(
        &self,
        size: usize,
        generator: &Generator,
        target: &Target,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Measured> {
        generator.measure(self.parts(size, new_run_id(), generator.workers), target, |_, _| check())
    }

    fn run_part(
        &self,
        size: usize,
        part: Part,
        generator: &Generator,
        target: &Target,
        conductor: &mut dyn Conductor,
    ) -> Result<Measured> {
        let all = self.parts(size, part.run, part.threads);
        let own = all.into_iter().skip(part.first).take(part.count).collect();
        generator.conduct(own, part.first, target, conductor)
    }
}

/// How much is sent in a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
            let what = "servers, certificates, processors and rounds are keys of the file, and no words of a workload";
            return Err(in_workload(what.to_owned()));
        }
        let over = comparison.layers.over;
        if load.test().needs_tls() && !over.has_tls() {
            return Err(in_workload("this test is about TLS: use --over tls or --over wss".to_owned()));
        }
        let can_share = match &load {
            Load::Pingtest(test) => test.rate.is_none(),
            Load::Echo(test) => test.rate.is_none() && test.ahead == 1,
            Load::Flood(_) | Load::AsWritten { .. } => false,
        };
        if !entry.shares_of_best.is_empty() && !can_share {
            return Err(in_workload(
                "`shares_of_best` is for pingtest and echo without --rate and --ahead".to_owned(),
            ));
        }
        if let Some(share) =
            entry.shares_of_best.iter().find(|share| !(0.0..=1.0).contains(*share) || **share == 0.0)
        {
            return Err(in_workload(format!("{share} is no share of a rate")));
        }
        Ok(Self { entry, load, version: comparison.version, over })
    }

    /// The column headings, one for each size. The shares of the best rate follow the sizes.
    pub(super) fn sizes(&self) -> Vec<String> {
        let sizes = self.load.test().sizes();
        let share = |share: &f64| format!("{:.0} % of the best rate", share * 100.0);
        sizes.into_iter().chain(self.entry.shares_of_best.iter().map(share)).collect()
    }

    /// The share of the best rate that the size with this index stands for, if it does.
    pub(super) fn share_of_best(&self, size: usize) -> Option<f64> {
        self.entry.shares_of_best.get(size.checked_sub(self.load.test().sizes().len())?).copied()
    }

    /// Connections of the largest size.
    pub(super) fn connections_max(&self) -> u64 {
        let test = self.load.test();
        (0..test.sizes().len()).map(|size| test.connections(size)).max().unwrap_or(0)
    }

    /// Number of connections that the size with this index names.
    pub(super) fn connections(&self, size: usize) -> u64 {
        let size = self.own_size(size);
        match &self.load {
            // One more may change its subscriptions.
            Load::Flood(test) => test.sizes[size].into(),
            load => load.test().connections(size),
        }
    }

    pub(super) fn qos(&self) -> Qos {
        self.load.test().qos()
    }

    /// The things that the test counts.
    pub(super) fn counted(&self) -> Counted {
        self.load.test().counted()
    }

    /// The first word, which names the test.
    pub(super) fn test_name(&self) -> &str {
        self.entry.bench.split_whitespace().next().unwrap_or_default()
    }

    /// The part of the size with this index in a comparison.
    pub(super) fn role(&self, size: usize) -> Role {
        match &self.load {
            Load::AsWritten { test, .. } if size < test.controls() => Role::Control,
            Load::AsWritten { test, is_paced: true, .. } if test.controls() > 0 => Role::Demand,
            _ => Role::Load,
        }
    }

    /// Whether the relay can be measured at the size with this index.
    pub(super) fn suits_relay(&self, size: usize) -> bool {
        self.entry.with_relay && self.load.test().suits_relay(self.own_size(size))
    }

    /// Whether the number of messages can be chosen.
    pub(super) fn is_scalable(&self) -> bool {
        matches!(self.load, Load::Flood(_) | Load::Pingtest(_) | Load::Echo(_))
    }

    /// Messages per second, if the words give a rate, which is the same for all servers.
    pub(super) fn rate(&self) -> Option<f64> {
        match &self.load {
            Load::Pingtest(test) => test.rate.map(|requests| 2.0 * requests),
            Load::Echo(test) => test.rate,
            Load::Flood(_) | Load::AsWritten { .. } => None,
        }
    }

    /// Whether messages of the size with this index are sent on schedule: their rate then says nothing about the server.
    pub(super) fn is_paced(&self, size: usize) -> bool {
        self.share_of_best(size).is_some()
            || self.rate().is_some()
            || matches!(self.load, Load::AsWritten { is_paced: true, .. })
    }

    /// Time that the words give to a run, if they do.
    pub(super) fn duration(&self) -> Duration {
        match &self.load {
            Load::AsWritten { duration, .. } => *duration,
            Load::Flood(_) | Load::Pingtest(_) | Load::Echo(_) => Duration::ZERO,
        }
    }

    /// The size of the test that the size with this index repeats: itself, unless it stands for a share of the best rate.
    fn own_size(&self, size: usize) -> usize {
        size.min(self.load.test().sizes().len() - 1)
    }

    /// A workload of these words alone.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn of_words(bench: &str) -> Result<Self> {
        Self::new(WorkloadEntry {
            name: "agent".to_owned(),
            title: String::new(),
            text: String::new(),
            bench: bench.to_owned(),
            shares_of_best: Vec::new(),
            rounds_max: None,
            with_relay: false,
        })
    }

    /// Checks that agents can divide the load: each client needs clients of the same thread only.
    ///
    /// # Errors
    /// [`Error::Arguments`] if they cannot.
    pub(super) fn check_divisible(&self) -> Result<()> {
        let is_apart = match &self.load {
            Load::Flood(test) => test.pattern == Pattern::Pairs && test.churn.is_none(),
            Load::Pingtest(_) | Load::Echo(_) => true,
            Load::AsWritten { .. } => ["many", "connects"].contains(&self.test_name()),
        };
        if is_apart && matches!(self.over, Over::Tcp | Over::Ws) {
            return Ok(());
        }
        let what = "agents divide loadtest, pingtest, echo, many and connects, over TCP and WebSocket";
        Err(Error::Arguments(format!("workload `{}`: {what}", self.entry.name)))
    }

    /// Runs the size with this index once. Returns the figures, and the words with which `bench` repeats the run.
    ///
    /// # Errors
    /// Those of [`Generator::measure`], or of [`Fleet::measure`].
    pub(super) fn run(
        &self,
        size: usize,
        amount: Amount,
        source: Source<'_>,
        target: &Target,
        mut check: impl FnMut() -> Result<()>,
    ) -> Result<(Measured, String)> {
        let own_size = self.own_size(size);
        let (scaled, words) = self.scaled(own_size, amount);
        let measured = match source {
            Source::Here(generator) => {
                let generator = &Generator { version: self.version, ..generator.clone() };
                self.test(scaled.as_ref()).run(own_size, generator, target, &mut check)?
            }
            Source::Agents(agents) => {
                let load = agents::Load { bench: &self.entry.bench, size: own_size, amount };
                agents.measure(&load, target, &mut check)?
            }
        };
        Ok((measured, words))
    }

    /// The words with which `bench` repeats a run of this amount.
    ///
    /// # Errors
    /// [`Error::Arguments`] if there is no such size, or no such rate.
    pub(super) fn words(&self, size: usize, amount: Amount) -> Result<String> {
        if size >= self.load.test().sizes().len() || !amount.is_possible() {
            return Err(Error::Arguments("the job has no such size, or an impossible rate".to_owned()));
        }
        Ok(self.scaled(size, amount).1)
    }

    /// Runs the threads of one agent.
    ///
    /// # Errors
    /// Those of [`Generator::conduct`]; [`Error::Arguments`] if there is no such size or thread.
    pub(super) fn run_part(
        &self,
        (size, amount): (usize, Amount),
        part: Part,
        generator: &Generator,
        target: &Target,
        conductor: &mut dyn Conductor,
    ) -> Result<Measured> {
        self.words(size, amount)?;
        if part.first.saturating_add(part.count) > part.threads || part.threads > THREADS_MAX {
            return Err(Error::Arguments("the job has too many threads".to_owned()));
        }
        let generator = &Generator { version: self.version, ..generator.clone() };
        let (scaled, _) = self.scaled(size, amount);
        self.test(scaled.as_ref()).run_part(size, part, generator, target, conductor)
    }

    fn test<'a>(&'a self, scaled: Option<&'a Load>) -> &'a dyn AnyTest {
        scaled.unwrap_or(&self.load).test()
    }

    /// The load with this amount, where it can be chosen, and the words for it.
    fn scaled(&self, size: usize, amount: Amount) -> (Option<Load>, String) {
        let words = |messages: u64, rate: Option<f64>| {
            let rate = rate.map_or(String::new(), |rate| format!(" --rate {rate:.0}"));
            format!("--messages {messages}{rate}")
        };
        match &self.load {
            Load::Flood(test) => {
                let messages = amount.messages(test.messages, test.deliveries_of_one_each(size));
                (Some(Load::Flood(FloodTest { messages, ..test.clone() })), words(messages, None))
            }
            Load::Pingtest(test) => {
                // A request and its reply are two messages.
                let pairs = u64::from(test.sizes[size].pairs);
                let messages = amount.messages(test.messages, 2 * pairs);
                let rate = amount.requests_per_sec();
                let test = PingtestTest { messages, rate, ..test.clone() };
                (Some(Load::Pingtest(test)), words(messages, rate))
            }
            Load::Echo(test) => {
                let messages = amount.messages(test.messages, test.sizes[size].into());
                let rate = amount.messages_per_sec();
                (Some(Load::Echo(EchoTest { messages, rate, ..test.clone() })), words(messages, rate))
            }
            Load::AsWritten { .. } => (None, String::new()),
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

    /// Whether rate and duration are such that no time overflows.
    fn is_possible(self) -> bool {
        match self {
            Self::AsWritten | Self::WarmUp => true,
            Self::For { rate, seconds } | Self::Paced { rate, seconds } => {
                POSITIVE.contains(&rate) && POSITIVE.contains(&seconds)
            }
        }
    }

    /// Requests of all pairs in a second, of which each is half of the messages.
    fn requests_per_sec(self) -> Option<f64> {
        self.messages_per_sec().map(|rate| rate / 2.0)
    }

    /// Messages on schedule in a second.
    fn messages_per_sec(self) -> Option<f64> {
        match self {
            Self::Paced { rate, .. } => Some(rate),
            Self::AsWritten | Self::WarmUp | Self::For { .. } => None,
        }
    }
}

impl Load {
    fn of(command: BenchCommand) -> std::result::Result<(Self, ComparisonArgs), String> {
        let fixed = |test: Box<dyn AnyTest>, duration| Self::AsWritten { test, duration, is_paced: false };
        Ok(match command {
            BenchCommand::Loadtest(args) => {
                args.flood.check_pairs().map_err(|error| error.to_string())?;
                (Self::Flood(args.test()), args.flood.comparison)
            }
            BenchCommand::Fanout(args) => (Self::Flood(args.test(Pattern::OneToMany)), args.comparison),
            BenchCommand::Fanin(args) => (Self::Flood(args.test(Pattern::ManyToOne)), args.comparison),
            BenchCommand::Pingtest(args) => (Self::Pingtest(args.test()), args.comparison),
            BenchCommand::Echo(args) => (Self::Echo(args.test()), args.comparison),
            BenchCommand::Connects(args) => (fixed(Box::new(args.test()), Duration::ZERO), args.comparison),
            BenchCommand::Idle(args) => (fixed(Box::new(args.test()), Duration::ZERO), args.comparison),
            BenchCommand::OfflineSessions(args) => {
                let test = args.test();
                let duration = test.duration;
                (fixed(Box::new(test), duration), args.comparison)
            }
            BenchCommand::SlowConsumer(args) => {
                args.flood.check_pairs().map_err(|error| error.to_string())?;
                (fixed(Box::new(args.test()), Duration::ZERO), args.flood.comparison)
            }
            BenchCommand::Many(args) => {
                let test = args.test();
                let duration = test.duration;
                (Self::AsWritten { test: Box::new(test), duration, is_paced: true }, args.comparison)
            }
            BenchCommand::Storm(args) => (Self::beside(args.test()), args.beside.comparison),
            BenchCommand::RetainedFlood(args) => (Self::beside(args.test()), args.beside.comparison),
            BenchCommand::SharedQueue(args) => (Self::beside(args.test()), args.beside.comparison),
            BenchCommand::Handshakes(args) => match args.beside() {
                Some(test) => (Self::beside(test), args.comparison),
                None => (fixed(Box::new(args.test()), Duration::ZERO), args.comparison),
            },
            _ => return Err(format!("only {TESTS} can take part")),
        })
    }

    /// A test beside innocent clients, whose messages are on schedule.
    fn beside<T>(test: TroubleTest<T>) -> Self
    where
        TroubleTest<T>: Test + Debug + 'static,
    {
        Self::AsWritten { duration: test.innocents.duration, test: Box::new(test), is_paced: true }
    }

    fn test(&self) -> &dyn AnyTest {
        match self {
            Self::Flood(test) => test,
            Self::Pingtest(test) => test,
            Self::Echo(test) => test,
            Self::AsWritten { test, .. } => &**test,
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
            ("loadtest --over tls --insecure", "keys of the file"),
            ("handshakes --over ws", "about TLS"),
            ("slow-consumer --conns 3", "is odd"),
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
    fn tests_beside_innocent_clients_are_paced_and_have_their_columns() {
        for (words, columns, counted) in [
            ("storm --clients 10", ["idle", "idle again", "storm"].as_slice(), Counted::Messages),
            ("slow-consumer --conns 10", &["idle", "idle again", "stuck and slow"], Counted::Messages),
            ("handshakes --over wss", &["full", "resumed"], Counted::Handshakes),
            ("connects --at-once 16", &["16 at a time"], Counted::Connections),
        ] {
            let workload = Workload::new(entry(words, &[])).unwrap();
            assert_eq!(workload.sizes(), columns);
            assert_eq!(workload.counted(), counted);
            assert_eq!(workload.is_paced(0), words.starts_with("storm"));
            let roles = ["idle", "idle again"].map(|name| columns.iter().position(|column| *column == name));
            assert!(roles.into_iter().flatten().all(|size| workload.role(size) == Role::Control));
            let last = if words.starts_with("storm") { Role::Demand } else { Role::Load };
            assert_eq!(workload.role(columns.len() - 1), last);
        }
    }

    #[test]
    fn agents_divide_loads_whose_clients_need_no_other_thread() {
        for (words, is_divisible) in [
            ("loadtest --conns 4", true),
            ("loadtest --conns 4 --churn-per-sec 5", false),
            ("loadtest --conns 4 --over ws", true),
            ("loadtest --conns 4 --over tls", false),
            ("fanin --conns 4", false),
            ("pingtest --sizes 4p1w", true),
            ("echo --conns 4", true),
            ("storm --clients 10", false),
            ("idle 10", false),
        ] {
            let workload = Workload::of_words(words).unwrap();
            assert_eq!(workload.check_divisible().is_ok(), is_divisible, "{words}");
        }
    }

    #[test]
    fn a_run_is_as_long_as_its_rate_makes_it() {
        let amount = Amount::For { rate: 10_000.0, seconds: 2.0 };
        assert_eq!(amount.messages(77, 50), 400);
        assert_eq!(amount.messages(77, 1_000_000), 10);
        assert_eq!(Amount::AsWritten.messages(77, 50), 77);
        assert!(!Amount::Paced { rate: 0.0, seconds: 1.0 }.is_possible());
        let paced = Amount::Paced { rate: 600.0, seconds: 1.0 };
        assert_eq!((paced.requests_per_sec(), paced.messages_per_sec()), (Some(300.0), Some(600.0)));
    }
}
