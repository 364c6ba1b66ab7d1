//! Throws packets at a running broker: good ones, changed ones and damaged ones, in sequences that make sense most of the
//! time, over many short connections. Meanwhile two innocent clients talk to each other.
//!
//! All is well if they notice nothing, the broker lives and logs no panic and no error, every answer is a packet of the
//! version, every connection ends, and descriptors and memory go back.
//!
//! usage: `fuzz-tcp [--seconds N] [--seed N] [--connection N]`. The seed is printed; with it, and the number of a
//! connection that is printed with a failure, the same bytes are sent again.
#![forbid(unsafe_code)]

mod field;
mod mutation;
mod packets;
mod peer;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pondhawk_tests::{Broker, Innocents, Options, until};

use crate::peer::Peer;
use pondhawk_tests::Random;

/// Small bounds, so that they are reached; and what peers leave behind is gone soon.
const SETTINGS: &str = "[limits]\nretained_bytes = \"1 MiB\"\npacket_bytes = \"64 KiB\"\ntopic_levels = 100\n\
    [sessions]\nexpiry_max = \"1 s\"\nqueue_messages = 100\nreceive_maximum = 8\n[log]\nlevel = \"warn\"\n\
    [sys]\ninterval = \"1 s\"\n";

/// Number of connections at a time.
const PEERS: u64 = 8;

/// Memory of allocators and of retained messages.
const MEMORY_SLACK_BYTES: usize = 64 << 20;

struct Run {
    seconds: u64,
    seed: u64,
    /// Only this one, again and again.
    connection: Option<u64>,
}

fn main() -> ExitCode {
    let run = match Run::parse(std::env::args().skip(1)) {
        Ok(run) => run,
        Err(message) => {
            eprintln!("{message}\nusage: fuzz-tcp [--seconds N] [--seed N] [--connection N]");
            return ExitCode::from(2);
        }
    };
    println!("seed {}", run.seed);
    let outcomes = [1, 4].map(|shards| run.play(shards));
    for outcome in &outcomes {
        match outcome {
            Ok(connections) => println!("{connections} connections"),
            Err(message) => {
                println!("error: {message}\nagain with: cargo xtask fuzz tcp --seed {}", run.seed);
            }
        }
    }
    if outcomes.iter().all(Result::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Run {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        // Another one each time: what nobody has seen yet is what is looked for.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut run = Self { seconds: 60, seed: now, connection: None };
        while let Some(argument) = arguments.next() {
            let number = arguments.next().and_then(|number| number.parse().ok());
            let number: u64 = number.ok_or_else(|| format!("{argument} needs a whole number"))?;
            match argument.as_str() {
                "--seconds" => run.seconds = number,
                "--seed" => run.seed = number,
                "--connection" => run.connection = Some(number),
                _ => return Err(format!("there is no option {argument}")),
            }
        }
        Ok(run)
    }

    /// Runs half of the time against a broker with this number of shards. Returns the number of connections.
    fn play(&self, shards: u16) -> Result<u64, String> {
        let broker = Broker::start(&Options { shards, settings: SETTINGS.to_owned(), ..Options::default() });
        let mut innocents = Innocents::connect(&broker, "one");
        innocents.notice_nothing_of(|| ());
        let (sockets, bytes) = (broker.open_sockets(), broker.resident_bytes());
        let connections = self.throw(&broker, &mut innocents)?;
        until("the peers' sockets are closed", || (broker.open_sockets() == sockets).then_some(()));
        if let Some(before) = bytes {
            until("the peers' memory is given back", || {
                (broker.resident_bytes()? < before + MEMORY_SLACK_BYTES).then_some(())
            });
        }
        innocents.notice_nothing_of(|| ());
        drop(innocents);
        let complaints = [broker.log_lines("panicked"), broker.log_lines("ERROR")].concat();
        if let Some(line) = complaints.first() {
            return Err(format!("the broker logged: {line}"));
        }
        if broker.stop().success() {
            Ok(connections)
        } else {
            Err("the broker did not stop in order".to_owned())
        }
    }

    /// Peers until the time is over, or one of them has seen something wrong.
    fn throw(&self, broker: &Broker, innocents: &mut Innocents) -> Result<u64, String> {
        let end = Instant::now() + Duration::from_secs(self.seconds) / 2;
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let failure = Mutex::new(None);
        let address = broker.address();
        thread::scope(|scope| {
            for _ in 0..PEERS {
                scope.spawn(|| {
                    while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let connection = self.connection.unwrap_or(number);
                        if let Err(message) = Peer::run(address, Random::of(self.seed, connection)) {
                            is_over.store(true, Ordering::Relaxed);
                            let message = format!("connection {connection}: {message}");
                            failure.lock().expect("nobody panics with it").get_or_insert(message);
                        }
                    }
                });
            }
            while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
                innocents.notice_nothing_of(|| ());
            }
        });
        match failure.into_inner().expect("nobody panics with it") {
            Some(message) => Err(format!("{message}\n{}", broker.log())),
            None => Ok(next.into_inner()),
        }
    }
}
