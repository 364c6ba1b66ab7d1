#![doc = include_str!("../README.md")]
//! ## Inside
//!
//! From the outside in: [`run`] is the command; `campaign` measures several servers in turn, round after round;
//! `measure` is one run of one load against one server; `load` are the loads; `connections` drives them over mio;
//! `layers` are TLS and WebSocket below them; `relay` is the built-in ceiling. What a figure means is said in the help of each test (`args`).
//!
//! The generator must never be the reason for a figure: one poll for up to 1,024 events, and packets that are made
//! once and only renumbered.

#![forbid(unsafe_code)]

mod args;
mod campaign;
mod connections;
mod crew;
mod decoy;
mod durable;
mod error;
mod exchange;
mod figure;
mod frames;
mod host;
mod hostile;
mod interrupt;
mod layers;
mod ledger;
mod link;
mod load;
mod measure;
mod message;
mod process;
mod progress;
mod protocol;
mod recovery;
mod relay;
mod report;
mod scratch;
mod sequence;
mod server;
mod setup;
mod shootout;
mod stage;
mod table;
mod yardstick;

use std::fs;
use std::process::ExitCode;

use wire::Qos;

use crate::args::{BenchCommand, ComparisonArgs};
use crate::campaign::Campaign;
use crate::decoy::Decoy;
use crate::interrupt::Interrupt;
use crate::layers::Over;
use crate::load::{Pattern, Test};
use crate::measure::Generator;
use crate::relay::Relay;
use crate::report::Report;

pub use crate::args::{BenchArgs, ShootoutArgs};
pub use crate::error::{Error, Result};

/// Runs a load test and prints its table, or runs the relay.
///
/// `own_words` stand on the command line between the program and the name of the test (`["bench"]` where this is a
/// subcommand): the relay is started with them.
///
/// Returns success if every run was clean: nothing lost, duplicated, out of order or altered.
///
/// # Errors
/// If a test could not be run at all: its options do not go together, descriptors do not suffice, a processor does not exist, a file cannot be written.
///
/// # Signals
/// While servers are measured, SIGINT and SIGTERM are caught: first the servers that were started are ended, then the
/// signal ends this process.
pub fn run(args: BenchArgs, own_words: &[&str]) -> Result<ExitCode> {
    match args.command() {
        BenchCommand::Loadtest(args) => {
            args.flood.check_pairs()?;
            compare(&args.test(), &args.flood.comparison, own_words)
        }
        BenchCommand::Pingtest(args) => compare(&args.test(), &args.comparison, own_words),
        BenchCommand::Echo(args) => compare(&args.test(), &args.comparison, own_words),
        BenchCommand::Connects(args) => compare(&args.test(), &args.comparison, own_words),
        BenchCommand::Many(args) => compare(&args.test(), &args.comparison, own_words),
        BenchCommand::Fanout(args) => compare(&args.test(Pattern::OneToMany), &args.comparison, own_words),
        BenchCommand::Fanin(args) => compare(&args.test(Pattern::ManyToOne), &args.comparison, own_words),
        BenchCommand::Idle(args) => compare(&args.test(), &args.comparison, own_words),
        BenchCommand::Ledger(args) => ledger::run(&args).map(|()| ExitCode::SUCCESS),
        BenchCommand::Durable(args) => durable::run(&args).map(|()| ExitCode::SUCCESS),
        BenchCommand::Recovery(args) => recovery::run(&args, own_words).map(|()| ExitCode::SUCCESS),
        BenchCommand::OfflineSessions(args) => compare(&args.test(), &args.comparison, own_words),
        BenchCommand::RetainedFlood(args) => compare(&args.test(), &args.beside.comparison, own_words),
        BenchCommand::SlowConsumer(args) => {
            args.flood.check_pairs()?;
            compare(&args.test(), &args.flood.comparison, own_words)
        }
        BenchCommand::SharedQueue(args) => compare(&args.test(), &args.beside.comparison, own_words),
        BenchCommand::Storm(args) => compare(&args.test(), &args.beside.comparison, own_words),
        BenchCommand::Handshakes(args) => match args.beside() {
            Some(test) => compare(&test, &args.comparison, own_words),
            None => compare(&args.test(), &args.comparison, own_words),
        },
        BenchCommand::Hostile(args) => hostile::run(args, own_words),
        BenchCommand::Relay(args) => match Relay::bind(args.own.begin()?, args.stack()?)?.run()? {},
        BenchCommand::Decoy(args) => match Decoy::bind(args.begin()?)?.run()? {},
    }
}

/// Runs a shoot-out: a comparison of several servers that a file describes, with a report.
///
/// Returns success if there is a report, whatever it says about servers.
///
/// # Errors
/// If the description is wrong, no server is installed, or the machine refuses something.
///
/// # Signals
/// As [`run`].
pub fn shootout(args: &ShootoutArgs) -> Result<ExitCode> {
    shootout::run(args)
}

fn compare<T: Test>(test: &T, args: &ComparisonArgs, own_words: &[&str]) -> Result<ExitCode> {
    if args.with_relay && test.qos() != Qos::AtMostOnce {
        let what = "the relay knows no acknowledgements: leave --with-relay out, or measure at --qos 0";
        return Err(Error::Arguments(what.to_owned()));
    }
    let json = args.json.clone();
    let over = args.layers.title();
    let contenders = args.contenders(own_words);
    if test.needs_tls() && !contenders.iter().all(|contender| matches!(contender.over, Over::Tls | Over::Wss))
    {
        return Err(Error::Arguments("the test is about TLS: --over tls or --over wss".to_owned()));
    }
    let connections = (0..test.sizes().len()).map(|size| test.connections(size)).max().unwrap_or(0);
    host::raise_descriptor_limit(connections)?;
    let campaign = Campaign {
        rounds: args.repeat,
        generator: Generator { workers: args.threads.into(), cpus: args.pin.clone(), version: args.version },
        server_cpus: args.server_cpu.clone(),
        interrupt: Interrupt::on_signals()?,
        trust: args.layers.trust(&contenders)?,
        contenders,
    };
    let runs = campaign.run(test);
    // All that was started has ended by now.
    campaign.interrupt.take_effect()?;
    let runs = runs?;
    let servers = campaign.contenders.into_iter().map(|contender| contender.name).collect();
    let report = Report {
        title: format!("{}{over}", test.title()),
        servers,
        sizes: test.sizes(),
        counted: test.counted(),
        control: test.control(),
        runs,
    };
    print!("{}", report.table());
    if let Some(path) = json {
        fs::write(&path, report.json())
            .map_err(Error::io(format!("write {}", wire::Shown(path.display()))))?;
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
